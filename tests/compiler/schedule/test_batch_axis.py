"""The batch axis: found by what is read along what, never from equal sizes; mixing is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scan_cases import lowered_step

import rnnops as ro
from rnnops.compiler.schedule.batch_axis import BatchAxes, find_batch_axes

N = 3
Build = Callable[..., ro.Blob]


def axes_of(build: Build, known: dict[str, int] | None = None, **kinds: object) -> BatchAxes:
    cell = ro.Net("cell")
    blobs = [cell.input(name, "int32" if kind and kind[0] == "int32" else None) for name, kind in kinds.items()]
    cell.outputs(y=build(*blobs))
    lowered = lowered_step(cell, **kinds)
    return find_batch_axes(lowered.statements, lowered.types, {"x": 0} if known is None else known)


LOCAL: dict[str, tuple[Build, dict[str, tuple[int, ...]], int]] = {
    # every size is N: only what is read along what tells the axes apart
    "elementwise": (lambda x, w: ro.tanh(x * w), {"x": (N, N), "w": (N,)}, 0),
    "a product with a matrix": (lambda x, w: x @ w, {"x": (N, N), "w": (N, N)}, 0),
    "turned": (lambda x, w: ro.tanh(ro.transpose(x, perm=[1, 0])) * w, {"x": (N, N), "w": (N,)}, 1),
    "encoder steps first": (
        lambda x, e: ro.reduce_sum(ro.unsqueeze(x, [0]) * e, axes=[2], keepdims=0), {"x": (N, N), "e": (N, N, N)}, 1,
    ),
    "a fold over features": (lambda x, w: ro.softmax(x * w, axis=-1), {"x": (N, N), "w": (N,)}, 0),
    "a fold over encoder steps": (
        lambda x, e: ro.reduce_sum(ro.softmax(ro.unsqueeze(x, [0]) * e, axis=0), axes=[0], keepdims=0),
        {"x": (N, N), "e": (N, N, N)}, 0,
    ),
    "parts side by side": (lambda x, w: ro.concat([x, x * w], axis=1), {"x": (N, N), "w": (N,)}, 0),
    "a look-up in a row": (lambda x, i: ro.gather(ro.tanh(x), i, axis=1), {"x": (N, N), "i": ("int32", (N,))}, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", LOCAL)
def test_rows_are_independent(name: str) -> None:
    build, kinds, axis = LOCAL[name]
    found = axes_of(build, **kinds)
    assert found.mixing == ()
    assert found.axes[found.statements[-1].target.owner] == axis
    assert all(statement.row_axis is not None for statement in found.statements)


def test_what_is_read_along_the_batch_has_its_axis() -> None:
    """Encoder outputs `[S, N, E]` with S = N = E: their batch axis is the one that rows of x meet."""
    build, kinds, _ = LOCAL["encoder steps first"]
    assert axes_of(build, **kinds).axes["e"] == 1


def test_what_meets_no_row_has_no_axis() -> None:
    found = axes_of(lambda x, w, v: x * w + ro.reduce_sum(v, axes=[0], keepdims=0), x=(N, N), w=(N,), v=(N, N))
    assert found.mixing == ()
    assert {"w", "v"} & set(found.axes) == set()
    (of_v,) = (s for s in found.statements if s.blob.startswith("reduce_sum"))
    assert of_v.row_axis is None


MIXING: dict[str, Build] = {
    "turned onto itself": lambda x, w: x + ro.transpose(x, perm=[1, 0]),
    "one row for all": lambda x, w: x * ro.slice(x, [0], [1], [0]),
    "rows the other way": lambda x, w: x + ro.slice(x, [-1], [-99], [0], [-1]),
    "a product of rows with rows": lambda x, w: x @ ro.transpose(x, perm=[1, 0]),
    "rows one below": lambda x, w: x + ro.pad(ro.slice(x, [0], [N - 1], [0]), [1, 0], axes=[0]),
    "rows side by side": lambda x, w: ro.reshape(x, [1, N * N]) * 2.0,
    "a cumulation along rows": lambda x, w: ro.concat([x, x], axis=0) * w,
}


@pytest.mark.parametrize("name", MIXING)
def test_mixing_rows_is_noticed(name: str) -> None:
    assert axes_of(MIXING[name], x=(N, N), w=(N,)).mixing


def test_a_look_up_of_rows_mixes() -> None:
    found = axes_of(lambda x, i: ro.gather(ro.tanh(x), i, axis=0), x=(N, N), i=("int32", (N,)))
    assert found.mixing


def test_a_sum_over_the_batch_is_a_fold_not_a_mix() -> None:
    found = axes_of(lambda x, w: ro.reduce_sum(x * w, axes=[0], keepdims=0), x=(N, N), w=(N,))
    assert found.mixing == ()
    assert found.statements[-1].row_axis in found.statements[-1].folded_axes()
    assert found.statements[-1].target.owner not in found.axes


def test_rows_that_are_scattered_mix() -> None:
    """The gradient of a look-up adds rows up where an index sends them: no fold over the batch."""
    cell = ro.Net("cell")
    x, i = cell.input("x"), cell.input("i", "int32")
    cell.outputs(y=cell.append("ScatterAdd", [ro.tanh(x), i], {"axis": 0, "size": 5})[0])
    lowered = lowered_step(cell, x=(N, 2), i=("int32", (N,)))
    assert find_batch_axes(lowered.statements, lowered.types, {"x": 0}).mixing


def test_known_axes_of_results_count_too() -> None:
    """A stored constant is written row by row, as what it is stored in is known to hold rows."""
    found = axes_of(lambda x: ro.tanh(x), {"tanh_0": 0}, x=(N, 2))
    assert found.statements[0].row_axis == 0
    assert found.axes["x"] == 0
