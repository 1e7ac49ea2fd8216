"""Loop nests: what shares one pass over the features, and what must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scan_cases import lowered_step, run_statements, value_of

import rnnops as ro
from rnnops.compiler.lower.scan import Lowered
from rnnops.compiler.lower.statements import Access
from rnnops.compiler.schedule.loop_nests import Nest, fuse_nests

Build = Callable[..., ro.Blob]


def fused(build: Build, **kinds: tuple[int, ...]) -> tuple[Lowered, list[Nest]]:
    cell = ro.Net("cell")
    given = {name: cell.input(name, "int32" if kind[0] == "int32" else None) for name, kind in kinds.items()}
    cell.outputs(y=build(**given))
    lowered = lowered_step(cell, **kinds)
    return lowered, fuse_nests(lowered.statements)


def names(nests: Sequence[Nest]) -> list[str]:
    return [f"{list(nest.extents)} " + ", ".join(s.blob for s in nest.statements) for nest in nests]


def test_elementwise_chains_are_one_loop() -> None:
    _, nests = fused(lambda x, w: ro.tanh(x * w) + x, x=(4, 3), w=(4, 3))
    assert names(nests) == ["[12] mul_0, tanh_0, add_0"]


def test_loops_join_only_where_all_memory_runs_through() -> None:
    _, nests = fused(lambda x, w: ro.tanh(x * w), x=(4, 3), w=(3,))
    assert names(nests) == ["[4, 3] mul_0, tanh_0"]


def differences(y: ro.Blob) -> ro.Blob:
    return ro.slice(y, [1], [4], [0]) - ro.slice(y, [0], [3], [0])


def with_its_transpose(y: ro.Blob) -> ro.Blob:
    return y + ro.transpose(y, perm=[1, 0])


def test_what_needs_another_element_comes_later() -> None:
    """`x[i + 1] - x[i]` reads what another round of the loop has written."""
    _, nests = fused(lambda x: differences(ro.tanh(x)), x=(4,))
    assert names(nests) == ["[4] tanh_0", "[3] sub_0"]


def test_a_turned_blob_is_another_element() -> None:
    _, nests = fused(lambda x: with_its_transpose(ro.tanh(x)), x=(3, 3))
    assert names(nests) == ["[9] tanh_0", "[3, 3] add_0"]


def test_a_result_that_waits_for_a_fold_is_a_loop_of_its_own() -> None:
    _, nests = fused(lambda x: ro.softmax(x, axis=0), x=(5,))
    assert names(nests) == [
        "[5] softmax_0/reduce_max_0",
        "[5] softmax_0/sub_0, softmax_0/exp_0, softmax_0/reduce_sum_0",
        "[5] softmax_0",
    ]


def test_parts_of_one_blob_do_not_meet() -> None:
    """The two halves of a Concat are two places: what reads one half joins its loop, past the other."""
    _, nests = fused(lambda x, w: ro.slice(ro.concat([x, w], axis=0), [0], [4], [0]) * 2.0, x=(4,), w=(4,))
    assert names(nests) == ["[4] concat_0, concat_0, mul_0"]


def test_parts_that_overlap_meet() -> None:
    _, nests = fused(lambda x, w: ro.slice(ro.concat([x, w], axis=0), [1], [5], [0]) * 2.0, x=(4,), w=(4,))
    assert names(nests) == ["[4] concat_0, concat_0", "[4] mul_0"]


def test_a_filled_blob_is_written_before_its_parts_are() -> None:
    _, nests = fused(lambda x: ro.pad(ro.tanh(x), [1, 1], axes=[0]), x=(2,))
    assert names(nests)[-2:] == ["[4] pad_0", "[2] pad_0"]


def test_sums_in_memory_start_before_they_are_added_to() -> None:
    """A fold over an outer axis lives in memory: filled first, then added to, then read."""
    _, nests = fused(lambda x: ro.tanh(ro.reduce_sum(x * 2.0, axes=[0], keepdims=0)), x=(4, 3))
    of_sum = [(nest.extents, s.fold, s.start) for nest in nests for s in nest.statements if s.blob == "reduce_sum_0"]
    assert of_sum == [((3,), "", None), ((4, 3), "add", None)]
    assert names(nests)[-1] == "[3] tanh_0"


def test_sums_in_registers_need_no_start() -> None:
    _, nests = fused(lambda x: ro.reduce_sum(x * 2.0, axes=[1], keepdims=0), x=(4, 3))
    assert names(nests) == ["[4, 3] mul_0, reduce_sum_0"]


def test_a_look_up_waits_for_the_whole_blob() -> None:
    _, nests = fused(lambda x, i: ro.gather(ro.tanh(x), i, axis=0) + 1.0, x=(4,), i=("int32", (4,)))
    assert names(nests) == ["[4] tanh_0", "[4] gather_0, add_0"]


def test_what_reads_a_scattered_blob_waits() -> None:
    cell = ro.Net("cell")
    x, i = cell.input("x"), cell.input("i", "int32")
    cell.outputs(y=ro.tanh(cell.append("ScatterAdd", [x, i], {"axis": 0, "size": 4})[0]))
    lowered = lowered_step(cell, x=(4,), i=("int32", (4,)))
    assert names(fuse_nests(lowered.statements)) == ["[4] scatter_add_0", "[4] scatter_add_0", "[4] tanh_0"]


def test_products_run_along_the_rows_of_their_matrix() -> None:
    """`c[j] += a[k] * b[k, j]`: the inner loop runs where b is contiguous."""
    _, (fill, nest) = fused(lambda x, m: ro.gather(x, 0, axis=0) @ m, x=(2, 4), m=(4, 8))
    assert (fill.extents, nest.extents) == ((8,), (4, 8))
    matrix = next(o for o in nest.statements[0].operands if isinstance(o, Access) and o.owner == "m")
    assert matrix.layout.strides in ((8, 1), (1,))


def test_order_within_loops_gives_the_same_values() -> None:
    """Statements in the order of the nests compute what the reference does."""
    cell = ro.Net("cell")
    x, w = cell.inputs("x", "w")
    parts = ro.concat([ro.softmax(x * w, axis=1), ro.tanh(x)], axis=0)
    shifted = ro.slice(ro.pad(x, [1, 0], axes=[1]), [0], [3], [1])
    cell.outputs(y=ro.reduce_sum(ro.slice(parts, [1], [7], [0]), axes=[0]) + shifted)
    lowered = lowered_step(cell, x=(4, 3), w=(3,))
    order = [s for nest in fuse_nests(lowered.statements) for s in nest.statements]
    lowered.statements = order
    feeds = {"x": np.random.default_rng(0).normal(size=(4, 3)), "w": np.arange(3.0)}
    came = value_of(lowered, run_statements(lowered, feeds), cell.output_blobs["y"])
    np.testing.assert_allclose(came, ro.compile(cell, device="reference")(feeds)["y"], rtol=1e-13)
