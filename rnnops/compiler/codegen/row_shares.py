"""Row shares: how a driver goes through the rows of a thread, all of them or those that are not over.

A thread keeps its rows for a whole run. Where rows shrink, its share is a range of places in an order in which long and
short rows alternate (`ends`, `order`), and `list_rows` writes down for each step of a tile which are not over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rnnops.compiler.codegen.pointwise_kernel import Sizes
from rnnops.compiler.ir.expressions import Expr, Literal, Load, Name, least, most
from rnnops.compiler.ir.kernel import Array, Assign, Do, For, Statement

N, K, RANK, STEPS, LOW, HEAD, COUNT, ROWS = map(Name, ("N", "K", "rank", "steps", "low", "head", "count", "rows"))
IN_TILE, J0, N0, N1, M0, M1 = map(Name, ("i", "j0", "n0", "n1", "m0", "m1"))
ZERO, ONE = Literal(0), Literal(1)


class AllRows:
    """Every row at every step.

    Args:
        firsts: for what rows are counted by (`Place.rows`), the first row of a thread's products at a step.
        count: of their rows at a step: the thread's own, or all of them where threads share out columns.
        columns: whether threads may share out columns.
    """

    firsts: Mapping[str, Expr] = {"n": M0}
    count: Expr = M1 - M0
    columns = True

    def before_tile(self) -> list[Statement]:
        """What a tile begins with."""
        return []

    def before_rows(self) -> list[Statement]:
        """What a step begins with."""
        return []

    def each_row(self, body: Sequence[Statement]) -> Statement:
        """The loop over the thread's rows of a step."""
        return For("n", N0, N1, ONE, tuple(body))

    def in_tile(self, rows: int, batch: int, sizes: Sizes) -> Expr:
        """The rows of a product in a tile, of which one step of all rows of the batch has `rows`."""
        return STEPS * sizes.of(rows)


class RowsToEnd(AllRows):
    """Every row through all steps of a tile; it lasts `lasting` of them.

    Args:
        heads: rows that stand for each row of the batch.
    """

    def __init__(self, heads: Expr) -> None:
        self.heads = heads

    def each_row(self, body: Sequence[Statement]) -> Statement:
        k, row = Name("k"), Name("row")
        last = most(least(Load("ends", row) - LOW, STEPS), 0)
        n = Load("order", row) * self.heads + k % self.heads
        return For("k", N0, N1, ONE, (Assign("row", k // self.heads), Assign("n", n), Assign("lasting", last), *body))


class LastingRows(AllRows):
    """Rows that are not over; `n` is one of them, `j` its place in the tile and `r` its place in the step."""

    firsts: Mapping[str, Expr] = {"n": N0, "j": J0, "r": N0}
    count = COUNT
    columns = False

    def before_tile(self) -> list[Statement]:
        own = Array("ends"), Array("order"), Name("low"), STEPS, N0, N1, Array("lists"), RANK * K * (N + 2)
        return [Do("list_rows", own, ("rows",))]

    def before_rows(self) -> list[Statement]:
        return [
            Assign("head", (RANK * K + IN_TILE) * (N + 2)),
            Assign("j0", Load("lists", HEAD)),
            Assign("count", Load("lists", HEAD + 1)),
        ]

    def each_row(self, body: Sequence[Statement]) -> Statement:
        k = Name("k")
        places = Assign("n", Load("lists", HEAD + 2 + k)), Assign("j", J0 + k), Assign("r", N0 + k)
        return For("k", ZERO, COUNT, ONE, (*places, *body))

    def in_tile(self, rows: int, batch: int, sizes: Sizes) -> Expr:
        return ROWS * sizes.of(rows // batch)


class RowsPastEnd(LastingRows):
    """Rows that are over, in the same way; they come after the others in the lists."""

    def before_rows(self) -> list[Statement]:
        return [
            Assign("head", (RANK * K + IN_TILE) * (N + 2)),
            Assign("j0", IN_TILE * N + N0 - Load("lists", HEAD)),
            Assign("count", N1 - N0 - Load("lists", HEAD + 1)),
            Assign("head", HEAD + Load("lists", HEAD + 1)),
        ]

    def in_tile(self, rows: int, batch: int, sizes: Sizes) -> Expr:
        return (STEPS * N - ROWS) * sizes.of(rows // batch)
