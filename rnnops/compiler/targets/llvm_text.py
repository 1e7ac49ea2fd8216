"""Kernel IR as LLVM IR: statements, and sums of a row in one grouping.

LLVM never chooses how results are rounded. Sums of a row have a fixed grouping, multiply-adds are written as such, and
no flag fuses or reorders other operations. Products, packing and barriers are called by name.

**Sums of a row** have one grouping, whatever else is in their loop: elements 32 apart are one lane, a tree joins lanes.

Lane l of a sum of float32 adds elements l, l + 32, l + 64, ..., in that order (l, l + 16, ... in float64); then the
upper half of the lanes is added to the lower half until one is left. So the bits of a sum depend only on its summands.
LLVM's flag `reassoc` is not used: sums would then depend on the width of vectors, which LLVM chooses by the rest of the
loop.

A loop goes by blocks of 32 elements. Summands are stored in memory of one block. Then whole vectors of them are added
to the lanes, which are in registers. LLVM makes vectors of the loop within a block as it likes. If a loop is straight
arithmetic, full blocks have a loop of their own, without a remainder: LLVM unrolls it, and the stored summands stay in
registers. Missing elements of a block count as zeros.

A sum over several loops goes on in the lane where it was: its bits are those of one loop over as many elements.

If a loop is known to have no more elements than a block, its block is only as long as the loop. Lanes without
elements are zeros. A lane may begin with its first element instead of zero plus that element: only the sign of a zero
can differ, and the sum is added to the number that it starts from, which is never -0.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from rnnops.compiler.lower import expressions, kernel as ir
from rnnops.types import BOOL, is_signed

FLAGS = "nsz"  # of arithmetic other than sums in lanes
SUMS = ("add_any_order", "add_product_any_order", "add_product")
EXTREMA = {"larger": "maximum", "smaller": "minimum"}  # for floats LLVM's functions, for integers scalar functions
ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
DIVISIONS = {"//": "div", "%": "rem"}
FLOAT_TESTS = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
NO_SYMBOLS: Mapping[str, str] = MappingProxyType({})
TESTS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
FLOATS = {"float32": "float", "float64": "double"}
MARKED = (
    '!0 = !{!"llvm.loop.unroll.disable"}',
    '!1 = !{!"llvm.loop.vectorize.followup_vectorized", !2}',
    '!2 = !{!"llvm.loop.unroll.full"}',
    '!3 = !{!"llvm.loop.interleave.count", i32 2}',
    '!4 = !{!"llvm.loop.interleave.count", i32 1}',
)
MARKS = {"unrolled": "!0, !1", "by twos": "!0, !3", "by ones": "!0, !4"}  # what a loop's vectors become


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
        self.marks: list[str] = []  # keys of `MARKS`, for each marked loop

    def name(self, call: expressions.ScalarCall) -> str:
        dtypes = tuple(operand.dtype for operand in call.operands)
        name = symbol_of(call.function, dtypes)
        self.used[name] = call.function, dtypes, call.dtype
        return name

    def declare(self, name: str, result: str, kinds: Sequence[str]) -> str:
        """Declare a function of another module. Returns its name."""
        self.declared[name] = f'declare {result} @"{name}"({", ".join(kinds)})'
        return name

    def mark(self, what: str) -> str:
        """The text on the last branch of a loop that marks it as one of `MARKS`."""
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
BLOCK, CUT = 32, 8  # elements of a block; a shorter block has a multiple of `CUT`
LANES = {"float32": 32, "float64": 16}
PIECES = {
    "float32": "<8 x float>",
    "float64": "<4 x double>",
}  # vectors of 256 bits, two or four where they are shorter
PIECE_LANES, SIZES = {"float32": 8, "float64": 4}, {"float32": 4, "float64": 8}
QUICK = ("min", "max", "larger", "smaller", "round_bfloat16", *STEPS)  # calls that straight arithmetic may have


def multiply_add(dtype: str, lanes: int = 1) -> str:
    """The name of LLVM's multiply-add. It rounds once if the processor has such an instruction."""
    return f"llvm.fmuladd.{f'v{lanes}' if lanes > 1 else ''}f{8 * SIZES[dtype]}"


def declared(dtype: str, lanes: int = 1) -> tuple[str, str, list[str]]:
    """The name of a multiply-add, its result and its operands."""
    kind = PIECES[dtype] if lanes > 1 else FLOATS[dtype]
    return multiply_add(dtype, lanes), kind, [kind] * 3


class Body:
    """Writes the body of one function.

    A variable that is set at only one place is written as its value. Other variables lie in memory until LLVM puts them
    into registers.
    """

    def __init__(self, function: ir.Function, scalars: Scalars, symbols: Mapping[str, str] = NO_SYMBOLS) -> None:
        self.scalars, self.lines, self.entry, self.symbols = scalars, list[str](), list[str](), symbols
        self.values: dict[str, str] = {}  # of names that are set at one place, and of indices of loops
        self.variables: dict[str, str] = {}  # the others: name -> dtype
        self.memory: dict[str, tuple[str, str]] = {}  # buffer -> address, dtype of its elements
        self.lengths: dict[str, str] = {}  # of buffers that are whole arrays
        self.loaded: dict[expressions.Load, str] = {}  # elements that were loaded before the loop that is written
        self.count, self.block = 0, "entry"
        self.function = function
        self.changing = _set_again(function)

    # -- lines ---------------------------------------------------------------------------------------------------

    def op(self, text: str) -> str:
        """A new value."""
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self) -> str:
        self.count += 1
        return f"b{self.count}"

    def begin(self, label: str) -> None:
        self.block = label
        self.lines.append(f"{label}:")

    def set(self, name: str, value: str, dtype: str) -> None:
        """Set a variable."""
        if name not in self.changing:
            self.values[name] = value
            return
        if name not in self.variables:
            self.variables[name] = dtype
            self.entry.append(f"  %v.{name} = alloca {llvm_type(dtype)}")
        self.do(f"store {llvm_type(dtype)} {value}, ptr %v.{name}")

    # -- expressions ---------------------------------------------------------------------------------------------

    def value(self, e: expressions.Expr) -> str:
        """The value of an expression, as an operand of instructions."""
        if isinstance(e, expressions.Literal | expressions.ModuleConstant):
            return _number(e)
        if isinstance(e, expressions.Name):
            known = self.values.get(e.name)
            return known or self.op(f"load {llvm_type(self.variables[e.name])}, ptr %v.{e.name}")
        if isinstance(e, expressions.Load):
            if e in self.loaded:
                return self.loaded[e]
            place = self.place(e.buffer, e.index)
            return self.op(f"load {llvm_type(self.memory[e.buffer][1])}, ptr {place}")
        if isinstance(e, expressions.BinaryExpr):
            return self._binary(e)
        if isinstance(e, expressions.Negated):
            return self._negated(e)
        if isinstance(e, expressions.CompareExpr):
            return self._comparison(e)
        if isinstance(e, expressions.Logic):
            result = self.value(e.parts[0])
            for part in e.parts[1:]:
                result = self.op(f"{e.operator} i1 {result}, {self.value(part)}")
            return result
        if isinstance(e, expressions.Choice):
            kind, test = llvm_type(e.dtype), self.value(e.test)
            return self.op(f"select i1 {test}, {kind} {self.value(e.a)}, {kind} {self.value(e.b)}")
        if isinstance(e, expressions.CastExpr):
            return self._cast(self.value(e.x), e.x.dtype, e.dtype)
        assert isinstance(e, expressions.ScalarCall)
        return self._call(e)

    def test(self, e: expressions.Expr) -> str:
        """The value of the test of an `If`."""
        return self.value(e)

    def place(self, buffer: str, index: expressions.Expr) -> str:
        """The address of an element."""
        address, dtype = self.memory[buffer]
        if index == expressions.Literal(0):
            return address
        return self.op(f"getelementptr inbounds {llvm_type(dtype)}, ptr {address}, i64 {self.value(index)}")

    def _binary(self, e: expressions.BinaryExpr) -> str:
        a, b, kind = self.value(e.left), self.value(e.right), llvm_type(e.dtype)
        if e.dtype in FLOATS:
            return self.op(f"f{ARITHMETIC[e.operator]} {FLAGS} {kind} {a}, {b}")
        signed = "s" if is_signed(e.dtype) else "u"
        if e.operator in DIVISIONS:
            return self.op(f"{signed}{DIVISIONS[e.operator]} {kind} {a}, {b}")
        if e.operator in ("&", ">>"):
            word = "and" if e.operator == "&" else "ashr" if signed == "s" else "lshr"
            return self.op(f"{word} {kind} {a}, {b}")
        wraps = "" if e.dtype != "int64" else " nsw"  # places and counts; users' int64 are added as uint64
        return self.op(f"{ARITHMETIC[e.operator]}{wraps} {kind} {a}, {b}")

    def _negated(self, e: expressions.Negated) -> str:
        x, kind = self.value(e.x), llvm_type(e.dtype)
        if e.dtype == BOOL:
            return self.op(f"xor i1 {x}, true")
        return self.op(f"fneg {FLAGS} {kind} {x}" if e.dtype in FLOATS else f"sub {kind} 0, {x}")

    def _comparison(self, e: expressions.CompareExpr) -> str:
        a, b, dtype = self.value(e.left), self.value(e.right), e.left.dtype
        if dtype in FLOATS:
            return self.op(f"fcmp {FLAGS} {FLOAT_TESTS[e.operator]} {FLOATS[dtype]} {a}, {b}")
        sign = "" if e.operator in ("==", "!=") else "s" if is_signed(dtype) else "u"
        return self.op(f"icmp {sign}{TESTS[e.operator]} {llvm_type(dtype)} {a}, {b}")

    def _cast(self, x: str, old: str, new: str) -> str:
        source, target = llvm_type(old), llvm_type(new)
        if source == target:
            return x
        if new == BOOL:
            return self.op(f"fcmp une {source} {x}, 0.0" if old in FLOATS else f"icmp ne {source} {x}, 0")
        if old in FLOATS and new in FLOATS:
            word = "fptrunc" if new == "float32" else "fpext"
        elif old in FLOATS:
            word = "fptosi" if is_signed(new) else "fptoui"
        elif new in FLOATS:
            word = "sitofp" if is_signed(old) else "uitofp"
        elif int(target[1:]) < int(source[1:]):
            word = "trunc"
        else:
            word = "sext" if is_signed(old) else "zext"
        return self.op(f"{word} {source} {x} to {target}")

    def _call(self, e: expressions.ScalarCall) -> str:
        if e.function in SUMS:
            return self._sum(e)
        if e.function in ("min", "max") or (e.function in EXTREMA and e.dtype in FLOATS):
            return self._extremum(e)
        if e.function in EXTREMA:
            e = expressions.ScalarCall(EXTREMA[e.function], e.operands, dtype=e.dtype)
        given = ", ".join(f"{llvm_type(x.dtype)} {self.value(x)}" for x in e.operands)
        return self.op(f"call {llvm_type(e.dtype)} @{self.scalars.name(e)}({given})")

    def _sum(self, e: expressions.ScalarCall) -> str:
        """One step of a sum that keeps its order. In a sum of products it is one multiply-add."""
        kind, (total, *factors) = llvm_type(e.dtype), [self.value(x) for x in e.operands]
        if e.dtype not in FLOATS:
            term = factors[0] if len(factors) == 1 else self.op(f"mul {kind} {', '.join(factors)}")
            return self.op(f"add {kind} {total}, {term}")
        if len(factors) == 1:
            return self.op(f"fadd {FLAGS} {kind} {total}, {factors[0]}")
        name = self.scalars.declare(*declared(e.dtype))
        return self.op(f"call {FLAGS} {kind} @{name}({kind} {factors[0]}, {kind} {factors[1]}, {kind} {total})")

    def _extremum(self, e: expressions.ScalarCall) -> str:
        kind, (a, b) = llvm_type(e.dtype), [self.value(x) for x in e.operands]
        if e.dtype in FLOATS:
            name = f"llvm.{EXTREMA[e.function]}.f{8 * np.dtype(e.dtype).itemsize}"
            flags = "nsz "
        else:
            name, flags = f"llvm.{'s' if is_signed(e.dtype) else 'u'}{e.function}.{kind}", ""
        self.scalars.declare(name, kind, [kind, kind])
        return self.op(f"call {flags}{kind} @{name}({kind} {a}, {kind} {b})")

    # -- statements ----------------------------------------------------------------------------------------------

    def body(self, statements: Sequence[ir.Statement]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, s: ir.Statement) -> None:
        if isinstance(s, ir.Assign):
            self.set(s.name, self.value(s.value), s.value.dtype)
        elif isinstance(s, ir.Store):
            self._store(s)
        elif isinstance(s, ir.For):
            self._loop(s)
        elif isinstance(s, ir.If):
            inside, after = self.label(), self.label()
            self.do(f"br i1 {self.test(s.test)}, label %{inside}, label %{after}")
            self.begin(inside)
            self.body(s.body)
            self.do(f"br label %{after}")
            self.begin(after)
        else:
            self.call(s)

    def _store(self, s: ir.Store) -> None:
        dtype = self.memory[s.buffer][1]
        value = self._cast(self.value(s.value), s.value.dtype, dtype)
        self.do(f"store {llvm_type(dtype)} {value}, ptr {self.place(s.buffer, s.index)}")

    def _loop(self, s: ir.For) -> None:
        def write(now: str) -> None:
            self.values[s.index] = now
            self.body(s.body)

        self.loop(self.value(s.begin), self.value(s.end), self.value(s.step), write)

    def loop(self, begin: str, end: str, step: str, write: Callable[[str], None], mark: str = "") -> None:
        """Write a loop.

        Args:
            write: writes the body, given the value of the index.
            mark: the text on its last branch.
        """
        before, head, inside, after = self.block, self.label(), self.label(), self.label()
        now, following = f"%{head}.now", f"%{head}.next"
        self.do(f"br label %{head}")
        self.begin(head)
        entered = len(self.lines)
        self.do(f"br i1 {self.op(f'icmp slt i64 {now}, {end}')}, label %{inside}, label %{after}")
        self.begin(inside)
        write(now)
        self.do(f"{following} = add nsw i64 {now}, {step}")
        self.do(f"br label %{head}{mark}")
        self.lines.insert(entered, f"  {now} = phi i64 [ {begin}, %{before} ], [ {following}, %{self.block} ]")
        self.begin(after)

    def call(self, s: ir.Do) -> None:
        given = [text for argument in s.arguments for text in self._argument(argument)]
        if s.function == "prefetch":
            self.scalars.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
            self.do(f"call void @llvm.prefetch.p0({given[0]}, i32 0, i32 3, i32 1)")  # to read, into all caches, data
            return
        result = "i64" if s.results else "void"
        name = self.scalars.declare(self.symbols[s.function], result, [one.split()[0] for one in given])
        call = f'call {result} @"{name}"({", ".join(given)})'
        if not s.results:
            self.do(call)
        for variable in s.results:
            self.set(variable, self.op(call), "int64")

    def _argument(self, argument: ir.Argument) -> list[str]:
        """The words of an argument: for an array or a matrix an address and sizes."""
        if isinstance(argument, expressions.Expr):
            value = self.value(argument)
            if argument.dtype == BOOL:
                return [f"i8 {self._cast(value, BOOL, 'uint8')}"]
            return [f"{llvm_type(argument.dtype)} {value}"]
        if isinstance(argument, ir.Pointer):
            return [f"ptr {self.place(argument.buffer, argument.offset)}"]
        if isinstance(argument, ir.Array):
            return [f"ptr {self.memory[argument.buffer][0]}", f"i64 {self.lengths[argument.buffer]}"]
        if isinstance(argument, ir.Vector):
            return [f"ptr {self.place(argument.buffer, argument.start)}", f"i64 {self.value(argument.count)}"]
        assert isinstance(argument, ir.MatrixOperand)
        start = argument.start if argument.column == expressions.Literal(0) else argument.start + argument.column
        sizes = [f"i64 {self.value(size)}" for size in (argument.rows, argument.stride, argument.columns)]
        return [f"ptr {self.place(argument.buffer, start)}", *sizes]


def _set_again(function: ir.Function) -> set[str]:
    """Variables that are set at several places."""
    places = [one.name for one in function.parameters]
    for s in ir.statements_of(function.body):
        places += [s.name] if isinstance(s, ir.Assign) else s.results if isinstance(s, ir.Do) else ()
    return {name for name, count in Counter(places).items() if count > 1}


def _number(e: Any) -> str:
    if e.dtype in FLOATS:  # LLVM writes numbers of both dtypes as a double's bits
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(e.value)))[0]:016x}"
    return str(int(e.value))


@dataclass
class RowSum:
    """One sum of a function, while its loops are written.

    Args:
        name: in LLVM, used by this sum only.
        dtype: float32 or float64.
        factors: numbers that are multiplied with each other in each summand, 1 or 2.
        depth: loops around the place where it starts.
        goes_on: whether it goes over several loops.
        block: elements of a block, a multiple of `CUT`.
        into: the memory (`full` or `part`) and the place for the next summand.
        held: the factors of the last summand that got no place.
    """

    write: Body
    name: str
    dtype: str
    factors: int
    depth: int
    goes_on: bool = False
    block: int = BLOCK
    into: tuple[str, str] = field(default=("", ""), init=False)
    held: Sequence[str] = field(default=(), init=False)

    @property
    def pieces(self) -> int:
        return LANES[self.dtype] // PIECE_LANES[self.dtype]

    @property
    def gathered(self) -> range:
        """The pieces of a block."""
        return range(self.block // PIECE_LANES[self.dtype])

    def start(self) -> None:
        """Write the memory of a sum, with lanes of zeros."""
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
        """The count of elements in the block."""
        return self.write.op(f"load i64, ptr %{self.name}.place")

    def room(self) -> str:
        """The count of elements that the block still takes."""
        return self.write.op(f"sub nsw i64 {BLOCK}, {self.place()}")

    def open(self) -> None:
        """Fill an empty block with zeros."""
        if not self.goes_on:
            self.clear()
            return
        with self._where(f"icmp eq i64 {self.place()}, 0"):
            self.clear()

    def close(self, count: str) -> None:
        """Count `count` more elements in the block. If the block is full or the sum ends here, add it to the lanes."""
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
        """Store the factors of a summand in the block."""
        kind, place = self.into
        if not kind:
            self.held = values
            return
        for factor, value in enumerate(values):
            name = FLOATS[self.dtype]
            at = self.write.op(f"getelementptr inbounds {name}, ptr %{self.name}.{kind}{factor}, i64 {place}")
            self.write.do(f"store {name} {value}, ptr {at}")

    def clear(self) -> None:
        """Fill the block with zeros."""
        for factor in range(self.factors):
            for k in self.gathered:
                at = self._piece_of(f"part{factor}", k)
                self.write.do(f"store {PIECES[self.dtype]} zeroinitializer, ptr {at}, align 32")

    def add(self, kind: str, first: bool = False) -> None:
        """Add a block to the lanes. The first block of a sum replaces their zeros."""
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
