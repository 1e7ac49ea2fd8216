"""Functions that a module of LLVM IR calls: scalar functions, and sums of a row in one grouping.

Sums of a row in one grouping, whatever else their loop does: elements 32 apart are one lane, a tree joins the lanes.

Lane l of a sum of float32 adds elements l, l + 32, l + 64, ..., in that order (l, l + 16, ... in float64); then the
upper half of the lanes is added to the lower half until one is left. So the bits of a sum follow only from summands.
There is no `reassoc` here, which would let LLVM group by the width of its vectors, and these by what else is in a loop.

A loop goes by blocks of 32 elements: what is summed is put into memory that a block fills, and whole vectors of it are
added to the lanes, which are in registers. LLVM makes vectors of the loop within a block as it likes. Where a loop is
straight arithmetic, blocks that are full have a loop of their own, without a remainder: LLVM unrolls it, and what it
puts into memory stays in registers. Elements of a block that are not there count as zeros.

A sum over several loops goes on in the lane where it was: its bits are those of one loop over as many elements.

Where a loop is known to have no more elements than a block, its block is as long as it needs to be. Lanes without
elements are zeros. A lane may begin with its first element instead of zero plus that element: only the sign of a zero
can differ, and the sum is added to the number that it starts from, which is never -0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rnnops.compiler.lower.expressions import Expr, Load, ScalarCall, loads_in, names_in, parts_of
from rnnops.compiler.lower.kernel import Assign, For, Statement, Store, expressions_of, statements_of
from rnnops.types import BOOL

FLOATS = {"float32": "float", "float64": "double"}
MARKED = (
    '!0 = !{!"llvm.loop.unroll.disable"}',
    '!1 = !{!"llvm.loop.vectorize.followup_vectorized", !2}',
    '!2 = !{!"llvm.loop.unroll.full"}',
    '!3 = !{!"llvm.loop.interleave.count", i32 2}',
    '!4 = !{!"llvm.loop.interleave.count", i32 1}',
)
MARKS = {"unrolled": "!0, !1", "by twos": "!0, !3", "by ones": "!0, !4"}  # of the vectors that a loop is made of


def llvm_type(dtype: str) -> str:
    """The type of a number in a register."""
    return FLOATS.get(dtype) or ("i1" if dtype == BOOL else f"i{8 * np.dtype(dtype).itemsize}")


def symbol_of(function: str, dtypes: Sequence[str]) -> str:
    """The name of a scalar function for operands of some dtypes."""
    return "_".join([function, *dict.fromkeys(dtypes)])


class Scalars:
    """The scalar functions that a module calls: name -> (function, dtypes of its operands, dtype of its result)."""

    def __init__(self) -> None:
        self.used: dict[str, tuple[str, tuple[str, ...], str]] = {}
        self.declared: dict[str, str] = {}
        self.marks: list[str] = []  # of loops: what each is to become

    def name(self, call: ScalarCall) -> str:
        dtypes = tuple(operand.dtype for operand in call.operands)
        name = symbol_of(call.function, dtypes)
        self.used[name] = call.function, dtypes, call.dtype
        return name

    def declare(self, name: str, result: str, kinds: Sequence[str]) -> str:
        """A function from elsewhere, as callers see it."""
        self.declared[name] = f'declare {result} @"{name}"({", ".join(kinds)})'
        return name

    def mark(self, what: str) -> str:
        """The mark on the last branch of a loop that becomes one of `MARKS`."""
        self.marks.append(what)
        return f", !llvm.loop !{len(MARKED) + len(self.marks)}"

    def mask(self) -> str:
        """The name of a table: as many times -1 as a block has elements, then as many zeros."""
        marks = ", ".join(f"i32 {mark}" for mark in [-1] * BLOCK + [0] * BLOCK)
        self.declared["mask"] = f"@mask = internal constant [{2 * BLOCK} x i32] [{marks}], align 64"
        return "mask"

    def metadata(self) -> list[str]:
        """The meaning of the marks."""
        numbers = range(len(MARKED) + 1, len(MARKED) + 1 + len(self.marks))
        loops = [f"!{i} = distinct !{{!{i}, {MARKS[what]}}}" for i, what in zip(numbers, self.marks, strict=True)]
        return [*MARKED, *loops] if loops else []


STEPS = ("add_any_order", "add_product_any_order")
BLOCK, CUT = 32, 8  # elements of a block, and those that one which is not full is made of
LANES = {"float32": 32, "float64": 16}
PIECES = {
    "float32": "<8 x float>",
    "float64": "<4 x double>",
}  # vectors of 256 bits, two or four where they are shorter
PIECE_LANES, SIZES = {"float32": 8, "float64": 4}, {"float32": 4, "float64": 8}
QUICK = ("min", "max", "larger", "smaller", "round_bfloat16", *STEPS)  # calls that straight arithmetic may have


class Writer(Protocol):
    """A writer of the lines of a function."""

    entry: list[str]

    def op(self, text: str) -> str: ...
    def do(self, text: str) -> None: ...
    def label(self) -> str: ...
    def begin(self, label: str) -> None: ...


@dataclass
class RowSum:
    """One sum of a function, while its loops are written.

    Args:
        name: in LLVM, used by this sum only.
        dtype: float32 or float64.
        factors: numbers that are multiplied with each other in each summand, 1 or 2.
        depth: loops around the place where it starts.
    """

    write: Writer
    name: str
    dtype: str
    factors: int
    depth: int
    goes_on: bool = False  # over several loops
    block: int = BLOCK  # elements of it, a multiple of `CUT`
    into: tuple[str, str] = field(default=("", ""), init=False)  # memory and place that the next summand is put into
    held: Sequence[str] = field(default=(), init=False)  # the factors of the last summand that had no place

    @property
    def pieces(self) -> int:
        return LANES[self.dtype] // PIECE_LANES[self.dtype]

    @property
    def gathered(self) -> range:
        """The pieces of a block."""
        return range(self.block // PIECE_LANES[self.dtype])

    def start(self) -> None:
        """All lanes are zero."""
        for k in range(self.pieces):
            self.write.entry.append(f"  %{self.name}.{k} = alloca {PIECES[self.dtype]}")
            self.write.do(f"store {PIECES[self.dtype]} zeroinitializer, ptr %{self.name}.{k}")
        for kind in ("full", "part"):
            for factor in range(self.factors):
                room = f"[{BLOCK} x {FLOATS[self.dtype]}], align 64"
                self.write.entry.append(f"  %{self.name}.{kind}{factor} = alloca {room}")
        self.write.entry.append(f"  %{self.name}.place = alloca i64")
        self.write.do(f"store i64 0, ptr %{self.name}.place")

    def place(self) -> str:
        """Elements of the block that are there."""
        return self.write.op(f"load i64, ptr %{self.name}.place")

    def room(self) -> str:
        """Elements that the block still takes."""
        return self.write.op(f"sub nsw i64 {BLOCK}, {self.place()}")

    def open(self) -> None:
        """A block that is empty is filled with zeros."""
        if not self.goes_on:
            self.clear()
            return
        with self._where(f"icmp eq i64 {self.place()}, 0"):
            self.clear()

    def close(self, count: str) -> None:
        """So many elements more are gathered; they are added to the lanes where the block is full or ends here."""
        if not self.goes_on:
            self.add("part")
            return
        place = f"%{self.name}.place"
        self.write.do(f"store i64 {self.write.op(f'add nsw i64 {self.place()}, {count}')}, ptr {place}")
        with self._where(f"icmp eq i64 {self.place()}, {BLOCK}"):
            self.add("part")
            self.write.do(f"store i64 0, ptr {place}")

    @contextmanager
    def _where(self, test: str) -> Iterator[None]:
        """Code written within runs only if a test holds."""
        inside, after = self.write.label(), self.write.label()
        self.write.do(f"br i1 {self.write.op(test)}, label %{inside}, label %{after}")
        self.write.begin(inside)
        yield
        self.write.do(f"br label %{after}")
        self.write.begin(after)

    def put(self, values: Sequence[str]) -> None:
        """The factors of a summand go where blocks are gathered."""
        kind, place = self.into
        if not kind:
            self.held = values
            return
        for factor, value in enumerate(values):
            name = FLOATS[self.dtype]
            at = self.write.op(f"getelementptr inbounds {name}, ptr %{self.name}.{kind}{factor}, i64 {place}")
            self.write.do(f"store {name} {value}, ptr {at}")

    def clear(self) -> None:
        """Nothing is gathered yet."""
        for factor in range(self.factors):
            for k in self.gathered:
                at = self._piece_of(f"part{factor}", k)
                self.write.do(f"store {PIECES[self.dtype]} zeroinitializer, ptr {at}, align 32")

    def add(self, kind: str, first: bool = False) -> None:
        """Adds a block to the lanes; the first one of a sum takes their place."""
        piece = PIECES[self.dtype]
        for k in self.gathered:
            lanes = f"%{self.name}.{k % self.pieces}"
            given = [self._load(piece, self._piece_of(f"{kind}{factor}", k)) for factor in range(self.factors)]
            if first and k < self.pieces:
                sums = given[0] if len(given) == 1 else self.write.op(f"fmul {piece} {given[0]}, {given[1]}")
            else:
                sums = self._added(piece, self.write.op(f"load {piece}, ptr {lanes}"), given)
            self.write.do(f"store {piece} {sums}, ptr {lanes}")

    def _added(self, piece: str, old: str, given: Sequence[str]) -> str:
        if len(given) == 1:
            return self.write.op(f"fadd {piece} {old}, {given[0]}")
        operands = ", ".join(f"{piece} {x}" for x in (*given, old))
        return self.write.op(f"call {piece} @{multiply_add(self.dtype, PIECE_LANES[self.dtype])}({operands})")

    def total(self) -> str:
        """All lanes as one number."""
        if self.goes_on:
            with self._where(f"icmp sgt i64 {self.place()}, 0"):
                self.add("part")
        piece, half = PIECES[self.dtype], self.pieces
        filled = min(self.pieces, len(self.gathered))
        parts = [self.write.op(f"load {piece}, ptr %{self.name}.{k}") for k in range(filled)]
        while half > 1:
            half //= 2
            upper = parts[half:]
            added = [self.write.op(f"fadd {piece} {a}, {b}") for a, b in zip(parts, upper, strict=False)]
            parts = [*added, *parts[len(added) : half]]
        return self._joined(parts[0], PIECE_LANES[self.dtype])

    def _joined(self, vector: str, count: int) -> str:
        """The numbers of one vector, the upper half added to the lower one until one is left."""
        name = FLOATS[self.dtype]
        while count > 1:
            kind, half = f"<{count} x {name}>", count // 2
            lower, upper = (
                self.write.op(f"shufflevector {kind} {vector}, {kind} poison, <{half} x i32> {_places(start, half)}")
                for start in (0, half)
            )
            vector, count = self.write.op(f"fadd <{half} x {name}> {lower}, {upper}"), half
        return self.write.op(f"extractelement <1 x {name}> {vector}, i64 0")

    def _piece_of(self, room: str, k: int) -> str:
        place = k * PIECE_LANES[self.dtype]
        return self.write.op(f"getelementptr inbounds {FLOATS[self.dtype]}, ptr %{self.name}.{room}, i64 {place}")

    def _load(self, piece: str, at: str) -> str:
        return self.write.op(f"load {piece}, ptr {at}, align 32")


def _places(start: int, count: int) -> str:
    return f"<{', '.join(f'i32 {place}' for place in range(start, start + count))}>"


def multiply_add(dtype: str, lanes: int = 1) -> str:
    """The name of LLVM's multiply-add, rounded once where the processor can."""
    return f"llvm.fmuladd.{f'v{lanes}' if lanes > 1 else ''}f{8 * SIZES[dtype]}"


def declared(dtype: str, lanes: int = 1) -> tuple[str, str, list[str]]:
    """The name of a multiply-add, its result and its operands."""
    kind = PIECES[dtype] if lanes > 1 else FLOATS[dtype]
    return multiply_add(dtype, lanes), kind, [kind] * 3


def is_step(statement: Statement) -> bool:
    """True if a statement adds to a sum of floats in lanes."""
    value = statement.value if isinstance(statement, Assign) else None
    return isinstance(value, ScalarCall) and value.function in STEPS and value.dtype in LANES


def sums_of(body: Sequence[Statement]) -> dict[str, int]:
    """The sums that statements add to, and how many factors their summands have."""
    found: dict[str, int] = {}
    for statement in statements_of(body):
        if is_step(statement):
            assert isinstance(statement, Assign)
            found[statement.name] = len(parts_of(statement.value)) - 1
    return found


def fixed_loads(loop: For) -> list[Load]:
    """The elements that each round of a loop loads from the same place, which no round writes."""
    inside = list(statements_of(loop.body))
    moved = {loop.index, *(s.name for s in inside if isinstance(s, Assign))}
    moved |= {s.index for s in inside if isinstance(s, For)}
    written = {s.buffer for s in inside if isinstance(s, Store)}
    found = [
        load for s in loop.body if isinstance(s, Assign | Store) for e in expressions_of(s) for load in loads_in(e)
    ]
    return [load for load in dict.fromkeys(found) if load.buffer not in written and not names_in(load) & moved]


def is_straight(loop: For) -> bool:
    """True if a loop is only arithmetic, so that several copies in a row are small."""
    return all(_is_quick(e) for s in statements_of(loop.body) for e in expressions_of(s))


def _is_quick(e: Expr) -> bool:
    own = not isinstance(e, ScalarCall) or e.function in QUICK
    return own and all(map(_is_quick, parts_of(e)))
