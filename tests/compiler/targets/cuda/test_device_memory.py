"""Memory of compiled recurrences on the device: buffers by themselves, scratch from blocks that go round."""

from __future__ import annotations

import pytest
from cuda_marks import in_simulator, on_cuda
from lending import Purse

from rnnops.compiler.memory.memory import ALIGNMENT, OUTPUT, SCRATCH, Buffer, Pool
from rnnops.compiler.targets.cuda.target import DeviceBlock, DeviceMemory
from rnnops.kernels.cuda.memory import lent_by

pytestmark = on_cuda
OUT, FEW = Buffer("out", OUTPUT, "float32", (2, 3)), Buffer("few", SCRATCH, "int64", (5,))


@pytest.mark.parametrize("zeros", [False, True])
def test_buffers_have_the_shape_and_dtype_that_is_asked_for(zeros: bool) -> None:
    made = DeviceMemory()(OUT, zeros)
    assert (made.shape, str(made.dtype)) == ((2, 3), "float32")
    assert not zeros or not made.to_host().any()


def test_parts_of_a_block_lie_side_by_side() -> None:
    block = DeviceBlock(4 * ALIGNMENT)
    parts = block.parts(None, {"few": FEW, "out": OUT}, offset=ALIGNMENT)
    parts["few"].fill(-1)
    parts["out"].fill(0)
    taken = block.memory.to_host()
    assert taken[ALIGNMENT : ALIGNMENT + FEW.nbytes].tolist() == [255] * FEW.nbytes
    assert not taken[2 * ALIGNMENT : 2 * ALIGNMENT + OUT.nbytes].any()


def test_a_block_that_is_given_back_is_lent_again() -> None:
    memory, pool = DeviceMemory(), Pool()
    block, offset = memory.borrow(pool, 100)
    memory.give_back(pool, block)
    assert offset == 0
    assert memory.borrow(pool, 50)[0] is block
    assert memory.borrow(pool, 50)[0] is not block


@in_simulator
def test_a_lender_gets_its_blocks_back_and_nobody_else() -> None:
    """A graph that it captures owns its scratch for good."""
    memory, pool, purse = DeviceMemory(), Pool(), Purse()
    with lent_by(purse):
        block, offset = memory.borrow(pool, 100)
        memory.give_back(pool, block)
        assert offset == 0
        assert memory.borrow(pool, 100)[0] is not block
        assert purse.owns(block.memory)
    ours, _ = memory.borrow(pool, 50)
    assert ours is not block
    assert not purse.owns(ours.memory)
    memory.give_back(pool, ours)
    with lent_by(purse):
        assert memory.borrow(pool, 50)[0] is not ours
