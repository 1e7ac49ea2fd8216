"""A recorded sum of rows as a module of its own: what NumPy's `sum(axis=0)` computes, in the order in which it adds."""

from __future__ import annotations

from rnnops.compiler.codegen.parameters import DRIVER_PARAMETERS
from rnnops.compiler.codegen.scan_module import HEADER_SIZES, ScanModule
from rnnops.compiler.ir.expressions import Literal, Load, Name
from rnnops.compiler.ir.kernel import For, Function, Module, Parameter, Store
from rnnops.compiler.lower.scalar_expressions import Constants
from rnnops.types import FLOATS

BLOCK = 8  # numbers of one column from which on NumPy adds floats in another order


def added_rows(dtype: str, rows: int, columns: int) -> ScanModule | None:
    """The module that adds up `x [rows, columns]` as `y [columns]`; None where NumPy would add in another order."""
    if dtype == "bool" or rows == 0 or (dtype in FLOATS and columns == 1 and rows >= BLOCK):
        return None
    row, column, width = Name("row"), Name("column"), Name("width")
    first = Store("y", column, Load("x", column, dtype=dtype))
    more = Load("y", column, dtype=dtype) + Load("x", row * width + column, dtype=dtype)
    zero, one = Literal(0), Literal(1)
    body = (
        For("column", zero, width, one, (first,)),
        For("row", one, Name("height"), one, (For("column", zero, width, one, (Store("y", column, more),)),)),
    )
    arrays = tuple(Parameter(name, f"{dtype}[]") for name in ("x", "y"))
    sizes = *HEADER_SIZES, "height", "width"
    module = Module(
        dtype if dtype in FLOATS else "float32", (), Function("scan", DRIVER_PARAMETERS, body), arrays, sizes
    )
    return ScanModule(module, Constants(), (rows, columns), ("x", "y"), ())
