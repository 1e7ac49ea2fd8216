"""Pointwise functions: error bounds, edges, and that loops over them become vector instructions."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pointwise_cases import (
    BOUNDED,
    DTYPES,
    ERROR_BOUNDS,
    FUNCTIONS,
    ODD,
    UNARY,
    WIDER,
    Array,
    assert_within,
    compiled,
    edges,
    errors,
    every_exponent,
    ordinary,
    pairs,
    powers,
    run_compiled,
    run_in_python,
)

from rnnops.kernels.cpu.processor import vector_width

INTEGERS = ("int8", "int32", "int64", "uint8", "uint64")
CHOOSING = {"maximum": np.maximum, "minimum": np.minimum}
ROUNDING = {"floor": np.floor, "sign": np.sign, "abs": np.abs}
LONG_DOUBLE = np.finfo(np.longdouble).nmant >= 63
needs_long_double = pytest.mark.skipif(not LONG_DOUBLE, reason="no floats here are more precise than float64")
BY_DTYPE = ["float32", pytest.param("float64", marks=needs_long_double)]
Runner = Callable[..., Array]


@pytest.fixture(autouse=True)
def _silent_edges() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def bound_of(name: str, dtype: str) -> float:
    return ERROR_BOUNDS[name][DTYPES.index(dtype)]


def assert_unary(name: str, run: Runner, x: Array) -> None:
    result, exact = run(name, x), UNARY[name](x.astype(WIDER[x.dtype]))
    assert result.dtype == x.dtype
    assert_within(bound_of(name, x.dtype.name), result, exact, x)
    if name in BOUNDED:
        assert not (np.abs(result) > 1).any()


def test_bounds_keep_the_promise() -> None:
    assert max(single for single, _ in ERROR_BOUNDS.values()) <= 4.0
    assert max(double for _, double in ERROR_BOUNDS.values()) <= 4.0


@pytest.mark.parametrize("dtype", BY_DTYPE)
@pytest.mark.parametrize("name", UNARY)
def test_error_bounds(name: str, dtype: str) -> None:
    count = 1000 if dtype == "float32" else 40
    assert_unary(name, run_compiled, np.concatenate([every_exponent(dtype, count), ordinary(dtype, 25_000)]))


@pytest.mark.parametrize("dtype", BY_DTYPE)
@pytest.mark.parametrize("name", UNARY)
def test_error_bounds_uncompiled(name: str, dtype: str) -> None:
    assert_unary(name, run_in_python, np.concatenate([every_exponent(dtype, 8), ordinary(dtype, 2_000)]))


@pytest.mark.parametrize("dtype", BY_DTYPE)
@pytest.mark.parametrize("run", [run_compiled, run_in_python])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_near_multiples_of_a_quarter_turn(name: str, run: Runner, dtype: str) -> None:
    """Results there are small and their relative errors large; the last float64 is the closest of all."""
    quarter = np.longdouble(2) * np.arctan(np.longdouble(1))
    near = (quarter * np.random.default_rng(3).integers(1, 2**40, 3000)).astype(dtype)
    assert_unary(name, run, np.append(near, near.dtype.type(6381956970095103 * 2.0**797)))


@pytest.mark.parametrize("dtype", BY_DTYPE)
@pytest.mark.parametrize(("run", "count"), [(run_compiled, 60_000), (run_in_python, 5_000)])
def test_error_bound_of_pow(run: Runner, count: int, dtype: str) -> None:
    x, y = powers(dtype, count)
    exact = np.power(x.astype(WIDER[x.dtype]), y.astype(WIDER[x.dtype]))
    assert_within(bound_of("pow", dtype), run("pow", x, y), exact, x, y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("run", [run_compiled, run_in_python])
def test_edges_of_pow(run: Runner, dtype: str) -> None:
    x, y = pairs(edges(dtype))
    result, exact = run("pow", x, y), np.power(x, y)
    is_exact = ~np.isfinite(exact) | (exact == 0)
    limits = np.finfo(dtype)
    assert np.array_equal(result[is_exact], exact[is_exact], equal_nan=True)
    is_number = ~np.isnan(exact)
    assert np.array_equal(np.signbit(result[is_number]), np.signbit(exact[is_number]))
    assert np.allclose(result[~is_exact], exact[~is_exact], 8 * limits.eps, limits.tiny)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("run", [run_compiled, run_in_python])
@pytest.mark.parametrize("name", UNARY)
def test_edges(name: str, run: Runner, dtype: str) -> None:
    """NumPy's own functions are a few units off at most and right at the edges."""
    x = edges(dtype)
    result, wanted = run(name, x), UNARY[name](x)
    is_exact = ~np.isfinite(wanted) | (x == 0)
    assert np.array_equal(result[is_exact], wanted[is_exact], equal_nan=True)
    assert np.allclose(result[~is_exact], wanted[~is_exact], 8 * np.finfo(dtype).eps, np.finfo(dtype).tiny)
    if name in ODD:
        assert list(np.signbit(run(name, np.array([0.0, -0.0], dtype)))) == [False, True]


@pytest.mark.parametrize("dtype", [*DTYPES, *INTEGERS])
@pytest.mark.parametrize("run", [run_compiled, run_in_python])
@pytest.mark.parametrize("name", [*ROUNDING, *CHOOSING])
def test_exact_functions(name: str, run: Runner, dtype: str) -> None:
    values = edges(dtype) if dtype in DTYPES else integer_edges(dtype)
    operands = pairs(values) if name in CHOOSING else (values,)
    wanted = {**ROUNDING, **CHOOSING}[name](*operands)
    assert np.array_equal(run(name, *operands), wanted, equal_nan=True)


def integer_edges(dtype: str) -> Array:
    limits = np.iinfo(dtype)
    near_zero = [x for x in (-7, -2, -1) if x >= limits.min]
    return np.array([limits.min, *near_zero, 0, 1, 2, 3, 7, limits.max - 1, limits.max], dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("run", [run_compiled, run_in_python])
def test_integer_division_and_power(run: Runner, dtype: str) -> None:
    a, b = pairs(integer_edges(dtype))
    limits, operands = np.iinfo(dtype), zip(map(int, a), map(int, b), strict=True)
    exact = [abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) if y else 0 for x, y in operands]
    wrapped = [(x - limits.min) % 2**limits.bits + limits.min for x in exact]
    assert list(map(int, run("divide_towards_zero", a, b))) == wrapped
    power = np.asarray(b % 5, dtype)
    assert np.array_equal(run("pow", a, power), np.power(a, power))


def test_float_division_drops_the_fraction() -> None:
    x, y = pairs(edges("float32"))
    assert np.array_equal(run_compiled("divide_towards_zero", x, y), np.trunc(x / y), equal_nan=True)


@pytest.mark.parametrize("name", ["exp", "sin", "tanh", "log", "floor"])
def test_python_numbers(name: str) -> None:
    wanted = float({**UNARY, **ROUNDING}[name](np.float64(1.25)))
    assert FUNCTIONS[name](1.25) == pytest.approx(wanted, rel=1e-15)
    assert isinstance(FUNCTIONS[name](np.float32(1.25)), np.float32)


def test_the_test_finds_errors() -> None:
    exact = np.array([1.0, 1e-300, np.inf, np.nan, 2.0])
    result = np.array([1 + 5 * 2.0**-23, 1.0, 3e38, 0.0, np.nan], np.float32)
    found = errors(result, exact)
    assert found.ulps[0] == 5.0
    assert found.ulps[4] == np.inf
    assert list(found.is_wrong) == [False, True, True, True, False]


PACKED = {
    "x86_64": {"float32": r"\bv?\w*[a-z]ps\b", "float64": r"\bv?\w*[a-z]pd\b"},
    "aarch64": {"float32": r"\bf\w+\s+v\d+\.4s", "float64": r"\bf\w+\s+v\d+\.2d"},
}
OF_THE_C_LIBRARY = {"atan", "fmod"}  # too rare to be written out
ONLY_BITS = {"abs", "bfloat16_code", "bfloat16_value"}  # no arithmetic of floats
ONE_BY_ONE = {("x86_64", 128, "sqrt", "float64")}  # two roots at once take as long as one after the other
ONLY_MOVES = re.compile(r"v?(mov|broadcast|xor|unpck|shuf|perm|blend|insert|extract|cvt)")


@pytest.mark.skipif(platform.machine() not in PACKED, reason="instructions of this processor are not known")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - OF_THE_C_LIBRARY))
def test_loops_become_vector_instructions(name: str, dtype: str) -> None:
    if (platform.machine(), vector_width(), name, dtype) in ONE_BY_ONE:
        pytest.skip("LLVM makes no vectors of it")
    assembly = compiled(name, dtype).row.assembly
    found = re.findall(PACKED[platform.machine()][dtype], assembly)
    assert [x for x in found if not ONLY_MOVES.match(x)] or name in ONLY_BITS, f"nothing packed: {sorted(set(found))}"
    assert not re.search(rf"\W{name}f?\b", assembly), "the C library's function is called"
