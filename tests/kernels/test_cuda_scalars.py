"""Scalar functions of CUDA kernels: the simulator's are the processor's; what a device computes, tried on a processor.

Code for processors gets the texts that are compiled for devices, with the C library in libdevice's place: this tests
all but libdevice itself, and `floor` and `trunc`, which give integers there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError
from pointwise_cases import DTYPES, ODD, UNARY, WIDER, Array, assert_within, edges, every_exponent, ordinary, pairs

from rnnops.compiler.targets.cuda.module import DEVICE, HEAD, HOME
from rnnops.kernels.cpu import pointwise
from rnnops.kernels.cuda import device_scalars, facade, tensor_cores
from rnnops.kernels.scalar_functions import SCALAR_FUNCTIONS, implementations, uniform_rows
from rnnops.ops.base import bits_of, numbers_of

pytestmark = pytest.mark.skipif(
    not facade.SIMULATED, reason="only in the simulator has code for processors these texts"
)
INTEGERS = ("int8", "int32", "int64", "uint8", "uint64")
MOST_ULPS = 4.0


@pytest.fixture(autouse=True)
def _silent_edges() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def device_function(name: str) -> Any:
    modules = (tensor_cores, device_scalars)
    return next(getattr(module, name) for module in modules if hasattr(module, name))


FLOATS_OF_TWO = ("maximum", "minimum", "add_any_order", "pow")
INTEGERS_OF_TWO = (*FLOATS_OF_TWO, "divide_towards_zero")


@cache
def over_arrays(names: tuple[str, ...], operands: int) -> Callable[..., None]:
    """A loop over arrays for the processor that fills one result for each function: results, then operands."""
    results, given = [f"y{k}" for k in range(len(names))], [f"x{i}" for i in range(operands)]
    elements = ", ".join(f"{name}[i]" for name in given)
    lines = "".join(f"        {y}[i] = function{k}({elements})\n" for k, y in enumerate(results))
    module: dict[str, Any] = {f"function{k}": device_function(name) for k, name in enumerate(names)}
    exec(f"def run({', '.join(results + given)}):\n    for i in range(y0.size):\n{lines}", module)
    compiled: Callable[..., None] = numba.njit(error_model="numpy")(module["run"])
    return compiled


def run(name: str, *operands: Array) -> Array:
    """What a function makes of arrays; those that take the same are compiled together, which takes most of the time."""
    floats, kinds = operands[0].dtype.kind == "f", {x.dtype for x in operands}
    pairs_of = FLOATS_OF_TWO if floats else INTEGERS_OF_TWO
    together = tuple(UNARY) if len(operands) == 1 and floats else pairs_of if len(operands) == 2 else ()
    names = together if name in together and len(kinds) == 1 and operands[0].dtype != bool else (name,)
    results = [np.empty_like(operands[0]) for _ in names]
    over_arrays(names, len(operands))(*results, *operands)
    return results[names.index(name)]


def values(dtype: str) -> Array:
    if dtype in DTYPES:
        return edges(dtype)
    if dtype == "bool":
        return np.array([False, True])
    limits = np.iinfo(dtype)
    near_zero = [x for x in (-7, -2, -1) if x >= limits.min]
    return np.array([limits.min, *near_zero, 0, 1, 2, 3, 7, limits.max - 1, limits.max], dtype)


def wrapped(exact: list[int], dtype: str) -> list[int]:
    limits = np.iinfo(dtype)
    return [(x - int(limits.min)) % 2**limits.bits + int(limits.min) for x in exact]


def test_the_simulator_has_the_functions_of_processors() -> None:
    assert (DEVICE, HOME) == ("cpu", "cpu.pointwise")
    names = HEAD.split("{home} import (")[1].split(")")[0].replace(",", " ").split()
    assert "uniform" in names
    for name in names:
        assert callable(getattr(pointwise, name))
    for name in {*names, *SCALAR_FUNCTIONS} - {"abs"}:
        assert callable(device_function(name))


def test_the_table_names_what_devices_have() -> None:
    functions = implementations("cuda")
    assert functions == {name: device_function(name) if name != "abs" else abs for name in SCALAR_FUNCTIONS}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_errors_of_floats(name: str, dtype: str) -> None:
    x = np.concatenate([every_exponent(dtype, 40 if dtype == "float32" else 4), ordinary(dtype, 2000)])
    result = run(name, x)
    assert_within(MOST_ULPS, result, UNARY[name](x.astype(WIDER[x.dtype])), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_edges_of_floats(name: str, dtype: str) -> None:
    x = edges(dtype)
    result, wanted = run(name, x), UNARY[name](x)
    is_exact = ~np.isfinite(wanted) | (x == 0)
    np.testing.assert_array_equal(result[is_exact], wanted[is_exact])
    np.testing.assert_allclose(result[~is_exact], wanted[~is_exact], 8 * np.finfo(dtype).eps, np.finfo(dtype).tiny)
    if name in ODD:
        assert list(np.signbit(run(name, np.array([0.0, -0.0], dtype)))) == [False, True]


@pytest.mark.parametrize("dtype", DTYPES)
def test_bfloat16_is_that_of_processors(dtype: str) -> None:
    between = (np.arange(1, 2**17, 2, dtype="uint32") << np.uint32(15)).view("float32")  # two that are as near
    x = np.concatenate([every_exponent(dtype, 4), ordinary(dtype, 2000), edges(dtype), between.astype(dtype)])
    np.testing.assert_array_equal(run("bfloat16_code", x), bits_of(x))
    codes = np.arange(2**16)
    np.testing.assert_array_equal(run("bfloat16_value", codes.astype(dtype)), numbers_of(codes))


def test_sigmoid_keeps_its_lower_tail() -> None:
    x = np.array([-80, -87.5, -88.5, -95, -103, -104.5, -1e30, 17, 1e30], np.float32)
    wanted = UNARY["sigmoid"](x.astype(np.float64))
    np.testing.assert_allclose(run("sigmoid", x), wanted, 4 * np.finfo("float32").eps, 2.0**-149)


def test_float32_sin_and_cos_of_quarter_turns() -> None:
    """Results there are small and their relative errors large."""
    near = (np.random.default_rng(3).integers(1, 2**40, 20_000) * (np.pi / 2)).astype("float32")
    for name in ("sin", "cos"):
        assert_within(MOST_ULPS, run(name, near), UNARY[name](near.astype(np.float64)), near)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pow_of_floats(dtype: str) -> None:
    x, y = pairs(edges(dtype))
    np.testing.assert_allclose(run("pow", x, y), np.power(x, y), 8 * np.finfo(dtype).eps, np.finfo(dtype).tiny)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_is_exact(dtype: str) -> None:
    """Ties go to the even integer, and a zero has the sign of the operand; numba has `math.fmod` for devices alone."""
    halves = np.arange(-6, 7).astype(dtype) / 2
    x = np.concatenate([edges(dtype), halves, np.nextafter(halves, np.inf, dtype=dtype), ordinary(dtype, 500)])
    rounded = run("rint", x)
    np.testing.assert_array_equal(rounded, np.rint(x))
    np.testing.assert_array_equal(np.signbit(rounded), np.signbit(np.rint(x)))


def test_steps_of_folds_are_functions_of_two_names() -> None:
    module = device_scalars
    assert (module.larger, module.smaller) == (module.maximum, module.minimum)
    assert module.add_product_any_order is module.add_product


@pytest.mark.parametrize("dtype", [*DTYPES, *INTEGERS, "bool"])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extrema(name: str, dtype: str) -> None:
    a, b = pairs(values(dtype))
    np.testing.assert_array_equal(run(name, a, b), getattr(np, name)(a, b))


@pytest.mark.parametrize("dtype", [*DTYPES, *INTEGERS])
def test_signs(dtype: str) -> None:
    x = values(dtype)
    result = run("sign", x)
    np.testing.assert_array_equal(result, np.sign(x))
    assert not np.signbit(result[x == 0]).any()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_and_power(dtype: str) -> None:
    a, b = pairs(values(dtype))
    operands = zip(a.tolist(), b.tolist(), strict=True)
    exact = [abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) if y else 0 for x, y in operands]
    assert run("divide_towards_zero", a, b).tolist() == wrapped(exact, dtype)
    power = (b % 5).astype(dtype)
    np.testing.assert_array_equal(run("pow", a, power), np.power(a, power))
    if np.iinfo(dtype).min < 0:
        np.testing.assert_array_equal(run("pow", a, np.full_like(a, -2)), np.ones_like(a))


@pytest.mark.parametrize("dtype", [*DTYPES, *INTEGERS])
@pytest.mark.parametrize("name", ["add_any_order", "add_product"])
def test_sums(name: str, dtype: str) -> None:
    a, b = pairs(values(dtype))
    operands = (a, b) if name == "add_any_order" else (a, b, b[::-1].copy())
    result = run(name, *operands)
    if dtype in DTYPES:
        wanted = operands[0] + (operands[1] * operands[2] if len(operands) == 3 else operands[1])
        np.testing.assert_allclose(result, wanted, np.finfo(dtype).eps)
    else:
        first, second, *third = (x.tolist() for x in operands)
        exact = [x + y * z for x, y, z in zip(first, second, third[0] if third else [1] * a.size, strict=True)]
        assert result.tolist() == wrapped(exact, dtype)


def test_a_wider_accumulator() -> None:
    a, b, wide = np.array([-128, 127], "int8"), np.array([-128, 127], "int8"), np.array([1, -1], "int64")
    assert run("add_product", wide, a, b).tolist() == [16385, 16128]
    assert run("larger", wide, a).tolist() == [1, 127]


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [("maximum", "float32 float64"), ("sigmoid", "int32"), ("add_any_order", "int64 uint64"), ("sign", "bool")],
)
def test_operands_that_are_refused(name: str, dtypes: str) -> None:
    operands = [np.ones(1, dtype) for dtype in dtypes.split()]
    with pytest.raises(TypingError):
        run(name, *operands)


def test_random_numbers_are_philox() -> None:
    uniform = device_function("uniform")
    compiled = numba.njit(lambda seed, ordinal, t, n, element: uniform(seed, ordinal, t, n, element))
    seeds, ordinals = (0, 1, 2**31, 2**32 + 5, 2**63 - 1, 2**63 + 2**40 + 7, 2**64 - 1), (0, 1, 2**31, 2**32 - 1)
    for seed, ordinal, t in product(seeds, ordinals, (0, 3, 2**32 - 1)):
        wanted = uniform_rows(seed, ordinal, t, 3, 21)[2].tolist()
        signed = np.uint64(seed).view(np.int64)
        assert [compiled(np.uint64(seed), ordinal, t, 2, element) for element in range(21)] == wanted
        assert [compiled(signed, np.int32(np.uint32(ordinal).view(np.int32)), t, 2, e) for e in (6, 20)] == wanted[
            6::14
        ]
