"""Loops whose products have their inner axis shared out, all blocks at once: right, without races, where they pay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import golden_cases
import numpy as np
import pytest
from cuda_marks import in_simulator
from scan_cases import training_scans
from test_golden import results as golden_results
from whole_grid import RaceError, whole_grid

import rnnops as ro
from rnnops.compiler.lower.scan import rows_of_sum
from rnnops.compiler.lower.statements import Access, Layout, StepProduct
from rnnops.compiler.run.compiled_scan import CompiledScan, Options
from rnnops.compiler.targets.cuda import share_blocks
from rnnops.compiler.targets.cuda.loop import (
    PARTIAL,
    TOTAL,
    Loop,
    LoopRegion,
    Sharing,
    place_barriers,
    with_split_products,
)
from rnnops.compiler.targets.cuda.share_blocks import Blocks, share_loop, step_time
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.kernels.cuda import lane_functions

T = 3
H100 = Blocks(132, 256, 224256)


@pytest.fixture(autouse=True)
def _all_blocks_at_once() -> Iterator[None]:
    with whole_grid(check=True, seed=1, same_value_is_fine=True):
        yield


def device(lanes: int, blocks: int, split: bool | None = True, weights: str = "") -> Callable[[ro.Net], ro.Run]:
    """Several tiles and blocks; products share out their inner axis wherever they can."""
    target = Cuda(lanes, blocks, split=split, weights=weights)
    return lambda net: ro.compile(net, device="cuda", tuning=Options(tile=2, around="rows", device=target))


gru_with_one_product = partial(ro.GRU, linear_before_reset=True)


def net_of(cell: Any, H: int, padded: bool = False) -> ro.Net:
    net = ro.Net("net")
    lengths = net.input("lengths", "int32") if padded else None
    outputs = cell(net, net.input("xs"), lengths, None, 2, H)
    net.outputs(**dict(zip(("h_all", "h_last", "c_all"), outputs, strict=False)))
    return net


def feeds_of(net: ro.Net, N: int, dtype: str = "float64") -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    given = {"xs": random.normal(size=(T, N, 2)), "lengths": random.integers(1, T + 1, N)}
    feeds = {**{spec.name: random.normal(size=spec.shape) for spec in net.parameters}, **given}
    return {name: feeds[name].astype("int32" if name == "lengths" else dtype) for name in net.input_names}


def is_split(run: ro.Run, feeds: dict[str, np.ndarray]) -> bool:
    """Whether a kernel of the plan computes partial sums."""
    return re.search(r"^ +partial_product\(", run.plan(feeds).source, re.MULTILINE) is not None


@pytest.mark.parametrize(
    ("cell", "H", "N", "lanes", "blocks", "dtype"),
    [
        (ro.LSTM, 5, 3, 3, 3, "float64"),
        (gru_with_one_product, 6, 1, 5, 4, "float32"),
        pytest.param(ro.LSTM, 5, 17, 8, 3, "float32", marks=pytest.mark.slow),
        pytest.param(gru_with_one_product, 9, 3, 16, 2, "float32", marks=pytest.mark.slow),
        pytest.param(ro.GRU, 9, 3, 16, 2, "float64", marks=pytest.mark.slow),
        pytest.param(ro.MILSTM, 3, 2, 4, 3, "float64", marks=pytest.mark.slow),
        pytest.param(ro.LayerNormLSTM, 5, 3, 3, 3, "float64", marks=pytest.mark.slow),
    ],
)
def test_agrees_with_the_reference(cell: Any, H: int, N: int, lanes: int, blocks: int, dtype: str) -> None:
    """Features that members share unequally; in tiles of two steps, both copies of partial sums are used."""
    net = net_of(cell, H)
    feeds, run = feeds_of(net, N, dtype), device(lanes, blocks)
    ro.testing.check_devices(net, feeds, {"cuda": run})
    assert is_split(run(net), feeds)


@pytest.mark.slow
@pytest.mark.parametrize("N", [1, 3, 17])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cell", [ro.LSTM, ro.GRU, ro.MILSTM, ro.LayerNormLSTM])
def test_agrees_with_the_reference_for_any_sizes(cell: Any, dtype: str, N: int) -> None:
    for H, lanes, blocks in ((5, 3, 3), (8, 7, 4), (10, 2, 5)):
        net = net_of(cell, H, padded=True)
        ro.testing.check_devices(net, feeds_of(net, N, dtype), {"cuda": device(lanes, blocks)})


@pytest.mark.parametrize(
    "name", ["attention_dot", *(pytest.param(name, marks=pytest.mark.slow) for name in golden_cases.NAMES)]
)
def test_agrees_with_caffe2(name: str) -> None:
    golden_results(golden_cases.load(name), device(5, 3))


def test_float16_weights_are_those_of_the_other_form() -> None:
    net = net_of(ro.LSTM, 6)
    feeds, found = feeds_of(net, 2, "float32"), []
    for split in (True, False):
        run = device(4, 3, split, "float16")(net)
        out, pullback = run.vjp(feeds)
        assert is_split(run, feeds) == split
        found.append(pullback({name: np.ones_like(array) for name, array in out.items()}))
    for name, grad in found[0].items():
        np.testing.assert_allclose(grad, found[1][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("cell", "stays"), [(ro.LSTM, True), (ro.GRU, False), (ro.LayerNormLSTM, False)])
def test_a_left_side_stays_on_chip_where_it_is_the_only_one_and_written_by_features(cell: Any, stays: bool) -> None:
    """GRU has three products, whose left sides would lie in the same memory."""
    net = net_of(cell, 4)
    backward = device(3, 2)(net).plan(feeds_of(net, 2)).source.split("@scan_kernel")[-1]
    assert set(re.findall(r" partial_product\(.*, (True|False), at\(shared", backward)) == {str(stays)}


@pytest.mark.parametrize("split", [None, True])
def test_other_numbers_of_rows_and_steps(split: bool | None) -> None:
    """From the second shape on a plan has symbols for sizes: where partial sums lie, and which form is cheaper."""
    net = net_of(ro.LSTM, 4)
    run, reference = device(3, 3, split)(net), ro.compile(net, device="reference")
    with whole_grid():
        for rows in (2, 5, 9):
            feeds = feeds_of(net, rows)
            (out, pullback), (wanted, pullback_wanted) = run.vjp(feeds), reference.vjp(feeds)
            grads, grads_wanted = (
                back({name: np.ones_like(array) for name, array in out.items()}) for back in (pullback, pullback_wanted)
            )
            for came, right in ((out, wanted), (grads, grads_wanted)):
                assert all(np.allclose(came[name], right[name], atol=1e-9) for name in right)


def test_two_runs_have_the_same_bits() -> None:
    net = net_of(ro.GRU, 6)
    feeds, found = feeds_of(net, 3, "float32"), []
    for seed in (2, 3):
        with whole_grid(seed=seed):  # which runs threads in another order
            out, pullback = device(3, 3)(net).vjp(feeds)
            found.append(pullback({name: np.ones_like(array) for name, array in out.items()}))
    assert all(found[0][name].tobytes() == found[1][name].tobytes() for name in found[0])


@in_simulator
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if members > 1", "if members > 99"),
        ("add_release(counters, line, ", "cuda.atomic.add(counters, line, "),
        ("while np.int64(load_acquire(counters, line))", "while np.int64(cuda.atomic.add(counters, line, 0))"),
    ],
    ids=["no wait", "no release", "no acquire"],
)
def test_without_waits_blocks_race(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For partial sums, which are all that a block reads of others where forward products are split as well."""
    text = lane_functions.groups_source()
    assert right in text
    monkeypatch.setattr(lane_functions, "groups_source", lambda: text.replace(right, wrong))
    net = net_of(ro.LSTM, 4)
    with pytest.raises(RaceError, match="race for w_float64"):
        device(3, 2)(net)(feeds_of(net, 2))


def with_one_copy(monkeypatch: pytest.MonkeyPatch) -> tuple[ro.Net, dict[str, np.ndarray]]:
    monkeypatch.setattr(share_blocks, "copies_of_sums", lambda *_: 1)
    net = net_of(ro.LSTM, 4)
    return net, feeds_of(net, 2)


def test_one_copy_of_partial_sums_takes_another_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    net, feeds = with_one_copy(monkeypatch)
    assert "2 waits a step" in str(device(3, 2)(net).plan(feeds))
    ro.testing.check_devices(net, feeds, {"cuda": device(3, 2)})


@in_simulator
def test_one_copy_without_it_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    net, feeds = with_one_copy(monkeypatch)
    monkeypatch.setattr(share_blocks, "place_barriers", lambda *known: place_barriers(*known[:3], 2))
    with pytest.raises(RaceError, match="race for w_float64"):
        device(3, 2)(net)(feeds)


@cache
def compiled(cell: Any, H: int, N: int) -> list[CompiledScan]:
    net = net_of(cell, H)
    scans = training_scans(net, xs=(T, N, 2), **{spec.name: spec.shape for spec in net.parameters})
    return [scan.compiled for passes in scans for scan in passes]


def loops(cell: Any, H: int, N: int, blocks: Blocks = H100) -> list[Loop]:
    """Forward and backward, as blocks of a large device share them out."""
    return [
        share_loop(one.scan, one.plan, stage, blocks, "float32", "float32")
        for one in compiled(cell, H, N)
        for stage in one.plan.stages
        if stage.cyclic
    ]


def parts(loop: Loop) -> list[str]:
    return [region.part for region in loop.regions if region.product]


@pytest.mark.parametrize(
    ("cell", "H", "N", "is_cheaper"),
    [
        (ro.LSTM, 1024, 16, True),
        (ro.LSTM, 512, 64, False),
        (ro.GRU, 768, 16, False),  # 18 features a block, which fill no tiles
        (ro.LSTM, 16, 4, False),
        (ro.BasicRNN, 1024, 16, False),  # one number a feature
    ],
)
def test_where_it_is_cheaper(cell: Any, H: int, N: int, is_cheaper: bool) -> None:
    forward, back = loops(cell, H, N)
    assert set(parts(forward)) == {""}
    assert parts(back) == ([PARTIAL, TOTAL] if is_cheaper else parts(forward))
    assert not is_cheaper or step_time(back, N) < step_time(loops(cell, H, N, replace(H100, split=False))[1], N)


def test_bytes_of_a_step() -> None:
    """LSTM reads four times rows x H where weights are shared out by columns, and else writes and reads that once."""
    whole, split = (loops(ro.LSTM, 1024, 16, replace(H100, split=split))[1] for split in (False, True))
    (product,) = whole.products
    sharing = split.sharing(16)
    assert (split.groups, split.members) == (1, 128)
    assert sum(map(sharing.numbers, whole.regions)) == 16 * product.inner == 4 * 16 * 1024
    assert sum(map(sharing.numbers, split.regions)) == 2 * 16 * 1024 + 16 * 4 * 8


def test_partial_sums_of_products_side_by_side_come_first() -> None:
    """One wait serves both."""
    first, second = (LoopRegion((node,), 4) for node in (product_of("a"), product_of("b")))
    sharing = Sharing(2, 1, 2)
    found = with_split_products([first, second], sharing, whatever_it_costs=True)
    assert [(region.written, region.part) for region in found] == [
        ({"a"}, PARTIAL), ({"b"}, PARTIAL), ({"a"}, TOTAL), ({"b"}, TOTAL),
    ]  # fmt: skip
    reads_first = LoopRegion((replace(product_of("c"), left="a"),), 4)
    found = with_split_products([first, reads_first], sharing, whatever_it_costs=True)
    assert [region.part for region in found] == [PARTIAL, TOTAL, PARTIAL, TOTAL]


def product_of(target: str) -> StepProduct:
    right = Access("w", Layout(0, (8, 4), (4, 1)))
    return StepProduct(target, "left", 2, 8, 4, 0, 8, right, target)


def test_rows_of_a_group_are_no_more_than_memory_is_laid_out_for() -> None:
    """Rows that add to one sum stay together, so that a group may have more than its even share."""
    found = []
    for batch in (1, 17, 64, 65, 130, 200, 513, 1000):
        together = rows_of_sum(batch)
        for groups in range(1, 20):
            parts = -(-batch // together)
            ends = [min(parts * g // groups * together, batch) for g in range(groups + 1)]
            most = max(last - first for first, last in pairwise(ends))
            room = Sharing(batch, groups, 2).rows_of(replace(product_of("a"), rows=batch))
            assert most <= room
            found.append(most > -(-batch // groups))
    assert any(found)


@pytest.mark.parametrize("sizes", [{"inner": 9}, {"columns": 6}, {"offset": 2}, {"row_stride": 10}])
def test_left_sides_that_lie_otherwise_are_not_split(sizes: dict[str, int]) -> None:
    region = LoopRegion((replace(product_of("a"), **sizes),), 4)
    assert with_split_products([region], Sharing(2, 1, 2), whatever_it_costs=True) == (region,)


@pytest.mark.slow
def test_where_two_copies_of_partial_sums_would_leave_l2() -> None:
    found = loops(ro.LSTM, 1024, 64)[1]
    assert (found.copies, len(found.waits), parts(found)) == (1, 2, [PARTIAL, TOTAL])


def test_members_share_features_as_evenly_as_more_would() -> None:
    """132 blocks of which each of three groups has 44: some have 18 of 768 features, as where there are 43."""
    assert [(loop.groups, loop.members) for loop in loops(ro.GRU, 768, 16)] == [(3, 43), (3, 43)]
