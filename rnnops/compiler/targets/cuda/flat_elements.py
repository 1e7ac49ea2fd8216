"""Elements of a tile counted through by all lanes, with columns, rows and steps: no division of 64 bits in a loop.

Devices divide 64 bits by some hundred instructions, which elementwise work would wait for. Rows and steps have 32
bits; elements may have more, so their columns and rows are counted on by a stride instead.
"""

from __future__ import annotations

from rnnops.compiler.ir.expressions import INDEX, Call, Expr, Literal, Name, choice, compare, most
from rnnops.compiler.ir.kernel import Assign, Statement as Line

U, ROW, ONE = Name("u"), Name("row"), Literal(1)


def quotient(a: Expr, b: Expr) -> Expr:
    """`a // b` of numbers of 32 bits."""
    return Call("quotient", (a, b), dtype=INDEX)


def remainder(a: Expr, b: Expr) -> Expr:
    """`a % b` of numbers of 32 bits."""
    return Call("remainder", (a, b), dtype=INDEX)


def step_and_row(row: Expr, rows: Expr) -> list[Line]:
    """Lines that find step and row of the batch of a row of all steps."""
    return [Assign("n", remainder(row, rows)), Assign("step", quotient(row, rows))]


def columns_and_rows(first: Expr, stride: Expr, columns: Expr) -> tuple[list[Line], list[Line]]:
    """Lines before a loop that find column and row of its first element, and lines that go on by a stride.

    Args:
        columns: of a row; there may be none, and then the loop has no turn.
    """
    some, over = most(columns, ONE), compare(">=", U, columns)
    rows_on, columns_on = Name("rows_on"), Name("columns_on")
    before = [Assign("row", first // some), Assign("u", first - ROW * some)]
    before += [Assign("rows_on", stride // some), Assign("columns_on", stride - rows_on * some)]
    after = [Assign("u", U + columns_on), Assign("row", choice(over, ROW + rows_on + ONE, ROW + rows_on))]
    return [*before], [*after, Assign("u", choice(over, U - columns, U))]
