"""Addresses of elements, parameters of generated functions, and loops over rows.

**Addresses**: where the elements of a place lie at step `t`, or in a tile of steps, as expressions of sizes. What
drivers and kernels of a scan are given: parameters, numbers of a step, a thread's share, and a function that copies.

**Row shares**: how a driver goes through the rows of a thread, all of them, or those whose sequence has not ended. A
thread keeps its rows for a whole run. Where rows shrink, its share is a range of places in an order in which long and
short rows alternate (`ends`, `order`), and `list_rows` writes down for each step of a tile which are not over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rnnops.compiler.codegen.pointwise_kernel import ONE, ZERO, SizeArguments
from rnnops.compiler.lower.expressions import CastExpr, Expr, Literal, Load, Name, least, most, share_of, total
from rnnops.compiler.lower.kernel import (
    Array,
    Assign,
    Do,
    For,
    Function,
    Parameter,
    Pointer,
    Statement,
    Statement as Line,
    Store,
)
from rnnops.compiler.lower.scan import Scan, StepPlan
from rnnops.compiler.schedule.places import Layouts, Place
from rnnops.types import BOOL

T, LOW, RANK, APART = Name("t"), Name("low"), Name("rank"), Name("apart")


@dataclass(frozen=True)
class Addresses:
    """Writes addresses with the sizes of one module.

    Args:
        batched: whether there are rows.
    """

    sizes: SizeArguments
    batched: bool

    def of_row(self, place: Place, row: Expr) -> Expr:
        """The address of a row of step `t`, which is step `i` of its tile."""
        terms = self._start(place)
        if place.step and place.over:
            position = self._shifted(Name("i") if place.over == "i" else T, place)
            if place.ring:
                position = self._remainder(position, self.sizes.of(place.ring)) if place.ring > 1 else Literal(0)
            terms.append(position * self.sizes.of(place.step))
        if place.row and self.batched:
            sharing = row if place.together == 1 else self._quotient(row, self.sizes.of(place.together))
            terms.append(sharing * self.sizes.of(place.row))
        if place.thread:
            terms.append(RANK * self.sizes.of(place.thread))
        if place.apart:
            terms.append(APART * self.sizes.of(place.apart))
        return total(terms)

    def of_tile(self, place: Place) -> Expr:
        """The address of the first step of a tile."""
        terms = self._start(place)
        if place.over == "t":
            terms.append(self._shifted(LOW, place) * self.sizes.of(place.step))
        return total(terms)

    def _quotient(self, a: Expr, b: Expr) -> Expr:
        return a // b

    def _remainder(self, a: Expr, b: Expr) -> Expr:
        return a % b

    def _start(self, place: Place) -> list[Expr]:
        return [self.sizes.of(place.start)] if place.start else []

    def _shifted(self, step: Expr, place: Place) -> Expr:
        return step + self.sizes.of(place.shift) if place.shift else step


DRIVER_PARAMETERS = (
    Parameter("rank"),
    Parameter("threads"),
    *(Parameter(name, "int64[]") for name in ("barrier", "status")),
)
SCALARS: Mapping[str, Expr | Pointer] = {
    "t": CastExpr(Name("first") + Name("t"), dtype="int32"),
    "draw_t": Name("draw_t0") + Name("t"),
    "status": Pointer("status", ZERO),
}


def array_parameters(scan: Scan, plan: StepPlan, layouts: Layouts) -> list[Parameter]:
    """The parameters for arrays of the caller, and scratch; bools come as bytes."""
    tensors = [(array, scan.tensors[name].dtype, f"tensor {name}") for name, array in layouts.tensors.items()]
    arrays = [(array, plan.types[owner].dtype, owner) for owner, array in layouts.arrays.items()]
    scratch = [(f"w_{dtype}", dtype, "") for dtype in layouts.scratch]
    given = (*tensors, *arrays, *scratch)
    return [Parameter(name, "uint8[]" if dtype == BOOL else f"{dtype}[]", blob) for name, dtype, blob in given]


def copy_function(name: str, dtype: str) -> Function:
    """A function that copies numbers."""
    stored = "uint8" if dtype == BOOL else dtype
    taken = Parameter("p0", f"{stored}*"), Parameter("p1", f"{stored}*"), Parameter("size")
    body = Store("p0", Name("i0"), Load("p1", Name("i0"), dtype=stored))
    return Function(name, taken, (For("i0", ZERO, Name("size"), ONE, (body,)),))


def thread_share(names: tuple[str, str], rank: Expr, threads: Expr, count: Expr, block: Expr) -> tuple[Line, Line]:
    """First and last of what a thread takes."""
    first, last = share_of(rank, threads, count, block)
    return Assign(names[0], first), Assign(names[1], last)


N, K, RANK, STEPS, LOW, HEAD, COUNT, ROWS = map(Name, ("N", "K", "rank", "steps", "low", "head", "count", "rows"))
IN_TILE, J0, N0, N1, M0, M1 = map(Name, ("i", "j0", "n0", "n1", "m0", "m1"))


class AllRows:
    """Every row at every step.

    Args:
        firsts: row index (`Place.rows`) -> the first row of a thread's products at a step.
        count: of their rows at a step: the thread's own, or all of them where threads share out columns.
        columns: whether threads may share out columns.
    """

    firsts: Mapping[str, Expr] = {"n": M0}
    count: Expr = M1 - M0
    columns = True

    def before_tile(self) -> list[Statement]:
        """The code at the beginning of a tile."""
        return []

    def before_rows(self) -> list[Statement]:
        """The code at the beginning of a step."""
        return []

    def each_row(self, body: Sequence[Statement]) -> Statement:
        """The loop over the thread's rows of a step."""
        return For("n", N0, N1, ONE, tuple(body))

    def in_tile(self, rows: int, batch: int, sizes: SizeArguments) -> Expr:
        """The rows of a product in a tile, where one step of all rows of the batch has `rows`."""
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

    def in_tile(self, rows: int, batch: int, sizes: SizeArguments) -> Expr:
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

    def in_tile(self, rows: int, batch: int, sizes: SizeArguments) -> Expr:
        return (STEPS * N - ROWS) * sizes.of(rows // batch)
