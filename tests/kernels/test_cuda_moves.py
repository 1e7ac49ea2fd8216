"""What copies, sums and fills of arrays launch where there is no simulator, by a driver that writes it down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator
from fake_driver import FakeKernel, Fakes, fake_device

from rnnops.compiler.targets.cuda.target import Launches
from rnnops.kernels.cuda import facade
from rnnops.kernels.cuda.device_array import empty, on_device
from rnnops.kernels.cuda.memory import in_stream

pytestmark = [pytest.mark.cuda, in_simulator]


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    with fake_device() as made:
        yield made


def launched(fakes: Fakes) -> list[tuple[Any, ...]]:
    """Blocks, threads, stream and numbers of all launches."""
    found = [
        (blocks, threads, stream, tuple(one for one in given if isinstance(one, int)))
        for _, blocks, threads, stream, _, given in fakes.said("launch")
    ]
    fakes.log.clear()
    return found


def test_elements_move_by_four_axes_in_the_stream_that_is_current(fakes: Fakes) -> None:
    x, y = on_device(np.zeros((4, 6))), empty((4, 3), "float64")
    fakes.log.clear()
    with in_stream(facade.stream_of(7)):
        y[...] = x[:, ::2]
        y += x[:, 3:]
    strided = (12, 1, 1, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0)  # as one axis
    added = (12, 1, 4, 3, 0, 0, 3, 1, 0, 0, 6, 1, 0, 3, 1)
    assert launched(fakes) == [(1, 256, 7, strided), (1, 256, 7, added)]
    x.fill(3)  # one number, which lies in one place
    assert launched(fakes)[0][3] == (24, 1, 1, 24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0)
    empty((0, 3), "float64")[...] = empty((0, 3), "float64")
    assert launched(fakes) == []


def test_more_axes_take_several_launches(fakes: Fakes) -> None:
    x, y = on_device(np.zeros((2, 2, 2, 2, 2))), empty((2, 2, 2, 2, 2), "float64")
    fakes.log.clear()
    y[...] = x.transpose(4, 3, 2, 1, 0)
    first, second = (numbers for _, _, _, numbers in launched(fakes))
    assert (first[0], first[-3:]) == (16, (0, 0, 0))
    assert (second[0], second[-3:]) == (16, (16, 1, 0))


def test_sums_are_launched_but_where_there_is_nothing_to_add(fakes: Fakes) -> None:
    out = empty((3,), "float64")
    on_device(np.zeros((5, 3))).sum(axis=0, out=out)
    assert launched(fakes) == [(1, 256, 0, (5, 3))]
    empty((5, 0), "float64").sum(axis=0, out=empty((0,), "float64"))
    assert launched(fakes) == []
    empty((0, 3), "float64").sum(axis=0, out=out)
    assert fakes.said("launch", "memset") == [("memset", 24, 0)]


def test_arrays_with_gaps_go_into_no_kernel(fakes: Fakes) -> None:
    x = on_device(np.zeros((4, 4)))
    on = Launches(x, x, x, 32, 0)
    with pytest.raises(ValueError, match="kernels take arrays without gaps, not strides of"):
        on.launch(FakeKernel(fakes.log), 1, 0, 0, 0, 1, 1, x[:, 1:])
    on.launch(FakeKernel(fakes.log), 1, 0, 0, 0, 1, 1, x)
    assert on.count == 2
    with pytest.raises(TypeError, match="float32 elements for an array of float64"):
        x += on_device(np.zeros((4, 4), "float32"))
    assert f"{x[0, 0]:.1f}" == "0.0"
    assert f"{x}" == str(x)
    assert not x[0, 0]


def test_arrays_without_elements_ask_for_nothing(fakes: Fakes) -> None:
    x = empty((0, 3), "float32")
    fakes.log.clear()
    x.fill(0)
    assert x.to_host().shape == (0, 3)
    assert fakes.log == []
