"""Scalar functions as PTX for compute capability 9.0: all compile, float32 stays float32, nothing lies in memory."""

from __future__ import annotations

import ast
from typing import Any

from without_simulator import run_compiler

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
OF_FLOATS = {
    "atan": 1, "cos": 1, "erf": 1, "exp": 1, "expm1": 1, "floor": 1, "fmod": 2, "log": 1, "log1p": 1, "rint": 1,
    "sigmoid": 1, "sin": 1, "sqrt": 1, "tanh": 1,
}  # fmt: skip
OF_NUMBERS = {
    "sign": 1, "divide_towards_zero": 2, "pow": 2, "maximum": 2, "minimum": 2, "larger": 2, "smaller": 2,
    "add_any_order": 2, "add_product": 3, "add_product_any_order": 3,
}  # fmt: skip
OF_BOOLS = {"maximum": 2, "minimum": 2, "larger": 2, "smaller": 2}
OUT_OF_LINE = {"cos": 1, "sin": 1, "pow": 2}  # libdevice's for float64: the first two with local memory

COMPILE = """
from numba import types
from rnnops.kernels.cuda import device_scalars
from rnnops.kernels.cuda.facade import array_type, ptx
from rnnops.kernels.scalar_functions import implementations

def kernel(functions):
    lines = ["def kernel(y, a, b, c, i):"]
    for name, count in functions.items():
        lines.append(f"    y[i] = {name}({', '.join(f'{x}[i]' for x in 'abc'[:count])}); i += 1")
    module = {name: implementations("cuda").get(name) or getattr(device_scalars, name) for name in functions}
    exec("\\n".join(lines), module)
    return module["kernel"]

def uniform(y, seed, ordinal, t, n, element):
    y[0] = device_scalars.uniform(seed, ordinal, t, n, element)

def facts(text):
    found = [".local" in text, bool(re.search(r"\\bcall\\b", text)), ".f64" in text]
    return [*found, *(word in text for word in ("fma.rn.f32", "cvt.rmi.f32.f32", "cvt.rzi.f32.f32"))]

def numbers(dtype, functions):
    array = array_type(dtype)
    return ptx(kernel(functions), (array, array, array, array, types.int64), (9, 0))

words = (array_type("float64"), types.int64, types.int32, types.int64, types.int64, types.int64)
result = {(dtype, tuple(functions)): facts(numbers(dtype, functions)) for dtype, functions in CASES}
result["uniform"] = facts(ptx(uniform, words, (9, 0)))
print(result)
"""
KEPT = {**OF_FLOATS, **OF_NUMBERS, "abs": 1}
IN_LINE = {name: count for name, count in KEPT.items() if name not in OUT_OF_LINE}
CASES: list[tuple[str, dict[str, int]]] = [
    ("float32", KEPT),
    *(("float64", functions) for functions in (IN_LINE, OUT_OF_LINE)),
    *((dtype, {**OF_NUMBERS, "abs": 1}) for dtype in INTEGERS),
    ("boolean", OF_BOOLS),
]


def compiled() -> dict[Any, list[bool]]:
    """For each kernel: local memory, calls, float64; multiply-adds, floor and trunc of float32."""
    (said,) = run_compiler(f"CASES = {CASES!r}\n{COMPILE}")
    found: dict[Any, list[bool]] = ast.literal_eval(said)
    return found


def test_code_for_a_device() -> None:
    """One test: what it looks at takes long to compile."""
    found = compiled()
    assert found["float32", tuple(KEPT)] == [False, False, False, True, True, True]
    assert found["float64", tuple(IN_LINE)][:3] == [False, False, True]
    assert found["float64", tuple(OUT_OF_LINE)][:3] == [True, True, True]
    for dtype in INTEGERS:
        assert found[dtype, (*OF_NUMBERS, "abs")] == [False] * 6
    assert found["boolean", tuple(OF_BOOLS)] == [False] * 6
    assert found["uniform"][:3] == [False, False, True]
