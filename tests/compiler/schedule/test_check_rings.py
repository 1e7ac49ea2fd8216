"""Rings that two loops over time touch, or a product of a whole tile, must hold all steps, and are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_masked_rows import planned

import rnnops as ro
from rnnops.compiler.schedule.plan_step import RingError, check_rings


@pytest.mark.parametrize("times", [1, 2])
def test_a_ring_is_for_one_loop(times: int) -> None:
    scan, plan = planned(lambda x, h, w, lengths, t: ro.tanh(x + h))
    rings = replace(scan, tensors={name: replace(one, ring=True) for name, one in scan.tensors.items()})
    plan = replace(plan, stages=plan.stages * times)
    assert check_rings(scan, plan) is plan
    if times == 1:
        assert check_rings(rings, plan) is plan
        return
    with pytest.raises(RingError) as caught:
        check_rings(rings, plan)
    assert caught.value.tensors == frozenset(scan.tensors)


def test_a_product_of_a_tile_reads_no_ring() -> None:
    scan, plan = planned(lambda x, h, w, lengths, t: ro.tanh(x @ w + h))
    (product, loop), (read,) = plan.stages, [name for name in scan.tensors if name.blob == "x"]
    assert (product.loop, loop.loop) == (False, True)
    rings = replace(scan, tensors={**scan.tensors, read: replace(scan.tensors[read], ring=True)})
    with pytest.raises(RingError) as caught:
        check_rings(rings, plan)
    assert caught.value.tensors == {read}
