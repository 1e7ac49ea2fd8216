"""Symbols: what Python does to them is what LLVM does to numbers, and what it cannot do is an error."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

from rnnops.kernels.cpu.native import compiled, engine_of
from rnnops.kernels.cpu.traced import Symbol, as_dtype, define, dtype_of, entry_of, is_traced, llvm_type, select

TABLE = np.array([3, 1, 2**63 + 5], np.uint64)
CTYPES = {"float64": ctypes.c_double, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64}


def run(function: Callable[..., Any], dtype: str, *numbers: Any, result: str | None = None) -> Any:
    """The result of a traced function."""
    module, result = ir.Module("test"), result or dtype
    defined = define(module, function, "traced", [dtype] * len(numbers), result)
    defined.linkage = ""
    defined.attributes.discard("alwaysinline")
    engine = engine_of(compiled(str(module)))
    kinds = [CTYPES[dtype]] * len(numbers)
    return ctypes.CFUNCTYPE(CTYPES[result], *kinds)(engine.get_function_address("traced"))(*numbers)


@pytest.mark.parametrize(
    ("function", "dtype", "numbers", "wanted"),
    [
        (lambda x, y: (x + y) * 2.0 - y / x, "float64", (3.0, 5.0), 16.0 - 5.0 / 3.0),
        (lambda x: 1.0 / x - 2, "float64", (4.0,), -1.75),
        (lambda x: np.float64(1.0) - x, "float64", (4.0,), -3.0),
        (lambda x: -abs(x), "float64", (-4.0,), -4.0),
        (lambda x: np.sqrt(np.floor(x)) + np.trunc(-x) + np.rint(x), "float64", (9.5,), 3.0 - 9.0 + 10.0),
        (lambda x: np.arctan(x) + np.fmod(x, x - 1.0), "float64", (2.5,), np.arctan(2.5) + 1.0),
        (lambda x: select(x < 2, x + 1, x - 1), "float64", (1.0,), 2.0),
        (lambda x: select(x != x, np.float64(7.0), np.float64(8.0)), "float64", (np.nan,), 7.0),
        (lambda x: select((x > 0) & (x <= 3), x, -x), "float64", (4.0,), -4.0),
        (lambda x, y: np.maximum(x, y) - np.sign(x), "int64", (-5, 3), 4),
        (lambda x, y: ((x & y) | (x ^ 1)) << 2 >> 1, "int64", (6, 3), ((6 & 3) | 7) << 1),
        (lambda x: x >> 1, "int64", (-8,), -4),
        (lambda x: x >> 1, "uint64", (2**64 - 8,), 2**63 - 4),
        (lambda x: select(x > np.uint64(5), x - x, x), "uint64", (2**63,), 0),
        (lambda x: entry_of(TABLE, x), "uint64", (2,), 2**63 + 5),
        (lambda x: (x + 0.5).as_dtype("int64"), "int64", (3,), 3),
    ],
)
def test_operators(function: Callable[..., Any], dtype: str, numbers: tuple[Any, ...], wanted: Any) -> None:
    assert run(function, dtype, *numbers) == wanted


@pytest.mark.parametrize("number", [-1, 2**63 - 1, -(2**63)])
def test_casts(number: int) -> None:
    for dtype in ("int8", "uint16", "int32", "uint64"):
        narrowed = np.int64(number).astype(dtype)
        assert run(lambda x, d=dtype: x.as_dtype(d), "int64", number, result="int64") == narrowed.astype("int64")
        assert run(lambda x, d=dtype: x.as_dtype(d), "int64", number, result="float64") == float(narrowed)
    assert run(lambda x: x.as_dtype("float64").view("int64"), "int64", number) == np.float64(number).view("int64")


def symbol(dtype: str = "float64") -> Symbol:
    function = ir.Function(ir.Module("m"), ir.FunctionType(llvm_type(dtype), [llvm_type(dtype)]), "f")
    return Symbol(ir.IRBuilder(function.append_basic_block()), function.args[0], dtype)


def test_what_no_instruction_can_say_is_an_error() -> None:
    x = symbol()
    with pytest.raises(TypeError, match="a branch on a number that is not known: use `select`"):
        bool(x > 0)
    with pytest.raises(TypeError):
        float(x)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        np.cbrt(x)
    with pytest.raises(TypeError):
        np.add.reduce(x)


def test_numbers_and_symbols_are_told_apart() -> None:
    assert is_traced(1.0, symbol())
    assert not is_traced(1.0, np.float32(2))
    assert dtype_of(symbol("float32")) == dtype_of(np.float32(1)) == np.float32
    assert as_dtype(np.float32, 1.5).dtype == np.float32
    assert entry_of(TABLE, 1) == 1
    assert select(np.array([True, False]), 1.0, 2.0).tolist() == [1.0, 2.0]


def test_text_is_the_same_in_every_process() -> None:
    """It is the key of what lies on the disk."""
    texts = set()
    for _ in range(2):
        module = ir.Module("m")
        define(module, lambda x: entry_of(TABLE, x), "f", ["uint64"], "uint64")
        texts.add(str(module))
    assert len(texts) == 1
