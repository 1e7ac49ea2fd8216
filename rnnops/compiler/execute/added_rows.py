"""A recorded sum of rows as a module of its own: what NumPy's `sum(axis=0)` computes, in the order in which it adds."""

from __future__ import annotations

from rnnops.compiler.codegen.parameters import DRIVER_PARAMETERS
from rnnops.compiler.codegen.scan_module import HEADER_SIZES, ScanModule
from rnnops.compiler.ir.expressions import Expr, Literal, Load, Name
from rnnops.compiler.ir.kernel import For, Function, Module, Parameter, Store
from rnnops.compiler.lower.scalar_expressions import Constants
from rnnops.types import FLOATS

BLOCK, LONGEST = 8, 128  # NumPy adds floats of a single column by eights up to so many, then halves by halves
Body = tuple[For | Store, ...]


def added_rows(dtype: str, rows: int, columns: int) -> ScanModule | None:
    """The module that adds up `x [rows, columns]` as `y [columns]`, which may spoil x; None where NumPy would add in
    another order."""
    by_eights = dtype in FLOATS and columns == 1 and rows >= BLOCK
    if dtype == "bool" or rows == 0 or (by_eights and rows > LONGEST):
        return None
    arrays = tuple(Parameter(name, f"{dtype}[]") for name in ("x", "y"))
    sizes = *HEADER_SIZES, "height", "width", "whole"
    body = _by_eights(dtype) if by_eights else _by_rows(dtype)
    module = Module(
        dtype if dtype in FLOATS else "float32", (), Function("scan", DRIVER_PARAMETERS, body), arrays, sizes
    )
    return ScanModule(module, Constants(), sizes_of(rows, columns), ("x", "y"), ())


def sizes_of(rows: int, columns: int) -> tuple[int, int, int]:
    """Rows, columns, and rows as far as they are whole blocks."""
    return rows, columns, rows - rows % BLOCK


def _by_rows(dtype: str) -> Body:
    """Row after row."""
    row, column, width = Name("row"), Name("column"), Name("width")
    first = Store("y", column, Load("x", column, dtype=dtype))
    more = Load("y", column, dtype=dtype) + Load("x", row * width + column, dtype=dtype)
    zero, one = Literal(0), Literal(1)
    return (
        For("column", zero, width, one, (first,)),
        For("row", one, Name("height"), one, (For("column", zero, width, one, (Store("y", column, more),)),)),
    )


def _by_eights(dtype: str) -> Body:
    """Eight sums side by side, these two by two, then what is left over."""
    row, lane, zero, one, block = Name("row"), Name("lane"), Literal(0), Literal(1), Literal(BLOCK)
    more = Load("x", lane, dtype=dtype) + Load("x", row + lane, dtype=dtype)
    sums: list[Expr] = [Load("x", Literal(place), dtype=dtype) for place in range(BLOCK)]
    while len(sums) > 1:
        sums = [one_sum + other for one_sum, other in zip(sums[::2], sums[1::2], strict=True)]
    left = Load("y", zero, dtype=dtype) + Load("x", row, dtype=dtype)
    return (
        For("row", block, Name("whole"), block, (For("lane", zero, block, one, (Store("x", lane, more),)),)),
        Store("y", zero, sums[0]),
        For("row", Name("whole"), Name("height"), one, (Store("y", zero, left),)),
    )
