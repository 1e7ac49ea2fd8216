"""The runtime as LLVM IR: products of a dtype, and what threads need; loaded where no object of it is on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rnnops.kernels.cpu import barrier, jobs, openmp, row_order
from rnnops.kernels.cpu.gemm import (
    DTYPES,
    define_narrowing,
    make_int8_packers,
    make_packed,
    make_products,
    make_rounded_packers,
    make_rounded_products,
)
from rnnops.kernels.cpu.micro_kernel import define_turn, micro_kernels
from rnnops.kernels.cpu.packing import define_rounding, make_packers
from rnnops.kernels.cpu.words import Text


def products(symbols: Mapping[str, str], dtype: str, width: int) -> str:
    """Products and packing of one dtype with vectors of one width.

    Args:
        symbols: function -> its name in LLVM.
    """
    functions = {**make_products(dtype, width), **make_packers(dtype, width)}
    return micro_kernels(dtype, width, lambda module: define_turn(module, dtype, width)) + _text(symbols, functions)


def rounded_products(symbols: Mapping[str, str], way: str, width: int) -> str:
    """The same of operands that are rounded to bfloat16, or are bytes, as words of a way.

    Args:
        symbols: as for `products`.
        way: of `round_operands.NUMBERS`.
    """
    functions = {**make_rounded_products(way, width), **make_rounded_packers(way, width)}
    text = micro_kernels(DTYPES[way], width, lambda module: define_rounding(module, way, width))
    return text + _text(symbols, functions)


def int8_products(symbols: Mapping[str, str], width: int) -> str:
    """Products of float32 rows with whole numbers of a byte each; arguments as for `products`."""
    functions = {"gemm_packed": make_packed("float32", width, narrow=True), **make_int8_packers(width)}
    return micro_kernels("float32", width, define_narrowing, narrow=True) + _text(symbols, functions)


def threads(symbols: Mapping[str, str]) -> str:
    """Barriers, what starts drivers, and lists of rows."""
    functions: dict[str, Callable[..., Any]] = {
        "wait": barrier.wait,
        "list_rows": row_order.list_rows,
        "lead": barrier.lead,
        "serve": barrier.serve,
        "open_gate": barrier.open_gate,
        "wake": barrier.wake,
        "lead_region": openmp.lead_region,
        "perform": jobs.perform,
        "copy_box": jobs.copy_box,
        "clear": jobs.clear,
        "order_rows": row_order.order_rows,
        "unchanged": barrier.unchanged,
    }
    return _text(symbols, functions)


def exported() -> str:
    """The functions that an exported list of jobs needs in addition to its drivers and their runtime."""
    functions: dict[str, Callable[..., Any]] = {
        "set_up": jobs.set_up,
        "perform_alone": jobs.perform_alone,
        "copy_box": jobs.copy_box,
        "clear": jobs.clear,
        "order_rows": row_order.order_rows,
    }
    return _text({name: name for name in functions}, functions)


def waits(symbols: Mapping[str, str]) -> str:
    """Of what threads need the part that drivers call."""
    return _text(symbols, {"wait": barrier.wait, "list_rows": row_order.list_rows})


def _text(symbols: Mapping[str, str], functions: Mapping[str, Callable[..., Any]]) -> str:
    text = Text()
    for name, function in functions.items():
        text.export(symbols[name], function)
    return str(text)
