"""Sums of a row: the bits of a grouping by lanes, whatever else a loop does, over how many loops, for every length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from native_loops import ELEMENT, ONE, ZERO, Array, NativeRows, number

from rnnops.compiler.lower.expressions import CastExpr, Expr, Literal, Load, Name, ScalarCall
from rnnops.compiler.lower.kernel import Assign, For, Function, Parameter, Statement, Store
from rnnops.compiler.targets import driver_text
from rnnops.compiler.targets.llvm_text import LANES

FLOATS = ("float32", "float64")
LENGTHS = [*range(70), 95, 96, 97, 127, 128, 131, 500, 2049]
SHAPES = [(1, 5), (3, 4), (7, 11), (2, 32), (3, 33), (5, 31), (40, 1), (9, 64), (4, 100)]


def in_lanes(terms: Array, start: float = 0.0) -> Any:
    """What a sum is: each lane in order, then the upper half of the lanes added to the lower one."""
    count = LANES[terms.dtype.name]
    rows = np.pad(terms, (0, -terms.size % count)).reshape(-1, count)
    lanes = np.zeros(count, terms.dtype)
    for row in rows:
        lanes = lanes + row
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    return terms.dtype.type(start) + lanes[0]


def row(n: int, dtype: str) -> Array:
    return np.random.default_rng(n).standard_normal(n).astype(dtype)


def load(name: str, dtype: str) -> Load:
    return Load(name, ELEMENT, dtype=dtype)


def step(total: str, value: Expr, *factors: Expr) -> Assign:
    name = "add_product_any_order" if factors else "add_any_order"
    return Assign(total, ScalarCall(name, (Name(total, dtype=value.dtype), value, *factors), dtype=value.dtype))


def kernel(dtype: str, body: Sequence[Statement], totals: int = 1, memory: Sequence[str] = ()) -> NativeRows:
    """`out[k]` become the sums `total_k` of a loop over `x`; `y` and what `memory` says are there too."""
    starts = [Assign(f"total_{k}", number(0.5, dtype)) for k in range(totals)]
    ends = [Store("out", Literal(k), Name(f"total_{k}", dtype=dtype)) for k in range(totals)]
    kinds = [Parameter(name, f"{dtype}*") for name in ("out", "x", "y")]
    more = [Parameter(f"m{i}", f"{kind}*") for i, kind in enumerate(memory)]
    loop = For("i", ZERO, Name("n"), ONE, tuple(body))
    return NativeRows((Function("fold", (*kinds, *more, Parameter("n")), (*starts, loop, *ends)),))


@cache
def company(dtype: str) -> dict[str, tuple[NativeRows, tuple[str, ...]]]:
    """Loops that sum `x` beside something else, and what memory they touch beside."""
    x, y = load("x", dtype), load("y", dtype)
    first = Load("y", ZERO, dtype=dtype)
    power, far = ScalarCall("exp", (x,), dtype=dtype), ScalarCall("sin", (y,), dtype=dtype)
    own, other = step("total_0", x), step("total_1", far)
    wide = "float64" if dtype == "float32" else "float32"
    return {
        "alone": (kernel(dtype, [own]), ()),
        "a store": (kernel(dtype, [Store("m0", ELEMENT, x * y), own], 1, [dtype]), (dtype,)),
        "a store of half words": (
            kernel(dtype, [Store("m0", ELEMENT, CastExpr(x, dtype="int16")), own], 1, ["int16"]),
            ("int16",),
        ),
        "a factor of all": (kernel(dtype, [Store("m0", ELEMENT, x * first), own], 1, [dtype]), (dtype,)),
        "powers": (kernel(dtype, [Store("m0", ELEMENT, power), own], 1, [dtype]), (dtype,)),
        "another sum": (kernel(dtype, [other, own], 2), ()),
        "another dtype": (kernel(dtype, [Store("m0", ELEMENT, CastExpr(y, dtype=wide)), own], 1, [wide]), (wide,)),
        "what is not in a row": (kernel(dtype, [Store("m0", ZERO, x), own], 1, [dtype]), (dtype,)),
    }


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_are_those_of_lanes_whatever_else_a_loop_does(
    dtype: str, masks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without the instructions for a part of a vector."""
    if not masks:
        monkeypatch.setattr(driver_text, "has_masks", lambda: False)
        company.cache_clear()
    for name, (made, memory) in company(dtype).items():
        for n in LENGTHS:
            x, out = row(n, dtype), np.zeros(2, dtype)
            rooms = [np.zeros(n + 1, kind) for kind in memory]
            made(out, x, row(n, dtype), *rooms, n)
            assert out[0].tobytes() == in_lanes(x, 0.5).tobytes(), f"{name}, {n} elements"
    company.cache_clear()


@pytest.mark.skipif(not driver_text.has_masks(), reason="this processor reads no parts of vectors")
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_rest_is_vectors_also_where_all_its_rounds_read_one_element(dtype: str) -> None:
    """A load in the branch of an element that is there kept LLVM from making vectors: three times as slow."""
    made, _ = company(dtype)["a factor of all"]
    assert "llvm.masked.store" in made.optimised


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_have_the_same_bits_in_every_vector(dtype: str) -> None:
    power = ScalarCall("exp", (load("x", dtype),), dtype=dtype)
    summed = kernel(dtype, [step("total_0", power)])
    kept = kernel(dtype, [Store("m0", ELEMENT, power), step("total_0", load("x", dtype))], 1, [dtype])
    for n in LENGTHS:
        x, out, terms = row(n, dtype), np.zeros(1, dtype), np.zeros(n, dtype)
        kept(out, x, x, terms, n)
        summed(out, x, x, n)
        assert out[0] == in_lanes(terms, 0.5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_zeros_have_the_sign_of_the_start_whether_or_not_the_text_says_how_many_there_are(dtype: str) -> None:
    """A loop of known length begins with its elements, another one with zeros plus these."""
    parameters = [Parameter(name, f"{dtype}*") for name in ("out", "x")]
    ends = [Store("out", ZERO, Name("total", dtype=dtype))]
    for count in (1, 7, 8, 20, 32):
        for end in (Literal(count), Name("n")):
            loop = For("i", ZERO, end, ONE, (step("total", load("x", dtype)),))
            body = Assign("total", number(0.0, dtype)), loop, *ends
            out = np.ones(1, dtype)
            NativeRows((Function("fold", (*parameters, Parameter("n")), tuple(body)),))(
                out, np.full(count, -0.0, dtype), count
            )
            assert out.tobytes() == np.zeros(1, dtype).tobytes()


def over_two_axes(dtype: str, factors: int) -> NativeRows:
    """A sum over both loops, and one over the inner loop, whose bits lie in `y`."""
    place = Name("j") * Name("n") + ELEMENT
    x = Load("x", place, dtype=dtype)
    more = [x] * (factors - 1)
    inner = For("i", ZERO, Name("n"), ONE, (step("whole", x, *more), step("part", x, *more)))
    around = For(
        "j", ZERO, Name("m"), ONE,
        (Assign("part", number(0.5, dtype)), inner, Store("y", Name("j"), Name("part", dtype=dtype))),
    )  # fmt: skip
    body = Assign("whole", number(0.5, dtype)), around, Store("out", ZERO, Name("whole", dtype=dtype))
    memory = [Parameter(name, f"{dtype}*") for name in ("out", "x", "y")]
    return NativeRows((Function("fold", (*memory, Parameter("m"), Parameter("n")), body),))


@pytest.mark.parametrize("factors", [1, 2])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sum_over_two_axes_is_that_over_one(dtype: str, factors: int) -> None:
    nested = over_two_axes(dtype, factors)
    flat = kernel(dtype, [step("total_0", *[load("x", dtype)] * factors)])
    for m, n in SHAPES:
        x, out, parts, wanted = row(m * n, dtype), np.zeros(1, dtype), np.zeros(m, dtype), np.zeros(1, dtype)
        nested(out, x, parts, m, n)
        flat(wanted, x, x, m * n)
        assert out.tobytes() == wanted.tobytes(), f"{m} x {n}"
        for j in range(m):
            flat(wanted, np.ascontiguousarray(x[j * n : j * n + n]), x, n)
            assert parts[j].tobytes() == wanted.tobytes(), f"row {j} of {m} x {n}"


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_products_are_right(dtype: str) -> None:
    made = kernel(dtype, [step("total_0", load("x", dtype), load("y", dtype))])
    for n in LENGTHS:
        x, y, out = row(n, dtype), row(n + 1, dtype)[:n].copy(), np.zeros(1, dtype)
        made(out, x, y, n)
        exact, size = (np.sum(terms, dtype="longdouble") for terms in (x.astype("longdouble") * y, abs(x * y)))
        assert abs(out[0] - exact - 0.5) <= (n / 8 + 8) * np.finfo(dtype).eps * (size + 0.5)


def test_nothing_is_touched_behind_the_end() -> None:
    body = [Store("m0", ELEMENT, load("x", "float32") * load("y", "float32")), step("total_0", load("x", "float32"))]
    made = kernel("float32", body, 1, ["float32"])
    for n in range(70):
        x, room, out = row(n, "float32"), np.full(n + 70, 7, "float32"), np.zeros(1, "float32")
        made(out, x, x, room, n)
        assert (room[n:] == 7).all()
        assert np.array_equal(room[:n], x * x)
