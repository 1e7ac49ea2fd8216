"""Kernel IR as LLVM IR: pointwise kernels and a driver for the cores of this machine.

Pointwise kernels are functions of their own, which are not copied into the driver: their pointers do not overlap within
one call, but one step reads what another wrote. Nothing here lets LLVM choose what is rounded: sums of a row have a
grouping of their own (`row_sums.py`), multiply-adds are written as such, and no flag fuses or reorders the others.

Products, packing and barriers are called by name; drivers are functions as `kernels/cpu/threads.py` has them.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from rnnops.compiler.lower.expressions import (
    BinaryExpr,
    CastExpr,
    Choice,
    CompareExpr,
    Expr,
    Literal,
    Load,
    Logic,
    ModuleConstant,
    Name,
    Negated,
    ScalarCall,
)
from rnnops.compiler.lower.kernel import (
    Argument,
    Array,
    Assign,
    Do,
    For,
    Function,
    If,
    MatrixOperand,
    Pointer,
    Statement,
    Store,
    Vector,
    buffers_of,
    statements_of,
)
from rnnops.compiler.targets.row_sums import (
    BLOCK,
    CUT,
    FLOATS,
    PIECE_LANES,
    RowSum,
    Scalars,
    declared,
    fixed_loads,
    is_step,
    is_straight,
    llvm_type,
    sums_of,
)
from rnnops.kernels.cpu.processor import host
from rnnops.types import BOOL, is_signed

FLAGS = "nsz"  # of a pointwise kernel's own arithmetic
SUMS = ("add_any_order", "add_product_any_order", "add_product")
EXTREMA = {"larger": "maximum", "smaller": "minimum"}  # of floats LLVM's, of integers the scalar functions
ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
MASKED = 4  # bytes of the smallest numbers that masked loads and stores know
DIVISIONS = {"//": "div", "%": "rem"}
FLOAT_TESTS = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
NO_SYMBOLS: Mapping[str, str] = MappingProxyType({})
TESTS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class Body:
    """Writes the body of one function.

    A variable that is set at one place is the value itself, in what the place comes before; others lie in memory until
    LLVM puts them into registers.
    """

    def __init__(self, function: Function, scalars: Scalars, symbols: Mapping[str, str] = NO_SYMBOLS) -> None:
        self.scalars, self.lines, self.entry, self.symbols = scalars, list[str](), list[str](), symbols
        self.values: dict[str, str] = {}  # of names that are set at one place, and of indices of loops
        self.variables: dict[str, str] = {}  # the others: name -> dtype
        self.memory: dict[str, tuple[str, str]] = {}  # buffer -> address, dtype of its elements
        self.lengths: dict[str, str] = {}  # of buffers that are whole arrays
        self.loaded: dict[Load, str] = {}  # elements that were loaded before the loop that is written
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
        """A variable gets a value."""
        if name not in self.changing:
            self.values[name] = value
            return
        if name not in self.variables:
            self.variables[name] = dtype
            self.entry.append(f"  %v.{name} = alloca {llvm_type(dtype)}")
        self.do(f"store {llvm_type(dtype)} {value}, ptr %v.{name}")

    # -- expressions ---------------------------------------------------------------------------------------------

    def value(self, e: Expr) -> str:
        """The value of an expression, as an operand of instructions."""
        if isinstance(e, Literal | ModuleConstant):
            return _number(e)
        if isinstance(e, Name):
            known = self.values.get(e.name)
            return known or self.op(f"load {llvm_type(self.variables[e.name])}, ptr %v.{e.name}")
        if isinstance(e, Load):
            if e in self.loaded:
                return self.loaded[e]
            place = self.place(e.buffer, e.index)
            return self.op(f"load {llvm_type(self.memory[e.buffer][1])}, ptr {place}")
        if isinstance(e, BinaryExpr):
            return self._binary(e)
        if isinstance(e, Negated):
            return self._negated(e)
        if isinstance(e, CompareExpr):
            return self._comparison(e)
        if isinstance(e, Logic):
            result = self.value(e.parts[0])
            for part in e.parts[1:]:
                result = self.op(f"{e.operator} i1 {result}, {self.value(part)}")
            return result
        if isinstance(e, Choice):
            kind, test = llvm_type(e.dtype), self.value(e.test)
            return self.op(f"select i1 {test}, {kind} {self.value(e.a)}, {kind} {self.value(e.b)}")
        if isinstance(e, CastExpr):
            return self._cast(self.value(e.x), e.x.dtype, e.dtype)
        assert isinstance(e, ScalarCall)
        return self._call(e)

    def test(self, e: Expr) -> str:
        """The value of the test of an `If`."""
        return self.value(e)

    def place(self, buffer: str, index: Expr) -> str:
        """The address of an element."""
        address, dtype = self.memory[buffer]
        if index == Literal(0):
            return address
        return self.op(f"getelementptr inbounds {llvm_type(dtype)}, ptr {address}, i64 {self.value(index)}")

    def _binary(self, e: BinaryExpr) -> str:
        a, b, kind = self.value(e.left), self.value(e.right), llvm_type(e.dtype)
        if e.dtype in FLOATS:
            return self.op(f"f{ARITHMETIC[e.operator]} {FLAGS} {kind} {a}, {b}")
        signed = "s" if is_signed(e.dtype) else "u"
        if e.operator in DIVISIONS:
            return self.op(f"{signed}{DIVISIONS[e.operator]} {kind} {a}, {b}")
        if e.operator in ("&", ">>"):
            word = "and" if e.operator == "&" else "ashr" if signed == "s" else "lshr"
            return self.op(f"{word} {kind} {a}, {b}")
        wraps = "" if e.dtype != "int64" else " nsw"  # places and counts; of users' numbers only uint64 are added
        return self.op(f"{ARITHMETIC[e.operator]}{wraps} {kind} {a}, {b}")

    def _negated(self, e: Negated) -> str:
        x, kind = self.value(e.x), llvm_type(e.dtype)
        if e.dtype == BOOL:
            return self.op(f"xor i1 {x}, true")
        return self.op(f"fneg {FLAGS} {kind} {x}" if e.dtype in FLOATS else f"sub {kind} 0, {x}")

    def _comparison(self, e: CompareExpr) -> str:
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

    def _call(self, e: ScalarCall) -> str:
        if e.function in SUMS:
            return self._sum(e)
        if e.function in ("min", "max") or (e.function in EXTREMA and e.dtype in FLOATS):
            return self._extremum(e)
        if e.function in EXTREMA:
            e = ScalarCall(EXTREMA[e.function], e.operands, dtype=e.dtype)
        given = ", ".join(f"{llvm_type(x.dtype)} {self.value(x)}" for x in e.operands)
        return self.op(f"call {llvm_type(e.dtype)} @{self.scalars.name(e)}({given})")

    def _sum(self, e: ScalarCall) -> str:
        """A step of a sum in its order; of products, one multiply-add."""
        kind, (total, *factors) = llvm_type(e.dtype), [self.value(x) for x in e.operands]
        if e.dtype not in FLOATS:
            term = factors[0] if len(factors) == 1 else self.op(f"mul {kind} {', '.join(factors)}")
            return self.op(f"add {kind} {total}, {term}")
        if len(factors) == 1:
            return self.op(f"fadd {FLAGS} {kind} {total}, {factors[0]}")
        name = self.scalars.declare(*declared(e.dtype))
        return self.op(f"call {FLAGS} {kind} @{name}({kind} {factors[0]}, {kind} {factors[1]}, {kind} {total})")

    def _extremum(self, e: ScalarCall) -> str:
        kind, (a, b) = llvm_type(e.dtype), [self.value(x) for x in e.operands]
        if e.dtype in FLOATS:
            name = f"llvm.{EXTREMA[e.function]}.f{8 * np.dtype(e.dtype).itemsize}"
            flags = "nsz "
        else:
            name, flags = f"llvm.{'s' if is_signed(e.dtype) else 'u'}{e.function}.{kind}", ""
        self.scalars.declare(name, kind, [kind, kind])
        return self.op(f"call {flags}{kind} @{name}({kind} {a}, {kind} {b})")

    # -- statements ----------------------------------------------------------------------------------------------

    def body(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, s: Statement) -> None:
        if isinstance(s, Assign):
            self.set(s.name, self.value(s.value), s.value.dtype)
        elif isinstance(s, Store):
            self._store(s)
        elif isinstance(s, For):
            self._loop(s)
        elif isinstance(s, If):
            inside, after = self.label(), self.label()
            self.do(f"br i1 {self.test(s.test)}, label %{inside}, label %{after}")
            self.begin(inside)
            self.body(s.body)
            self.do(f"br label %{after}")
            self.begin(after)
        else:
            self.call(s)

    def _store(self, s: Store) -> None:
        dtype = self.memory[s.buffer][1]
        value = self._cast(self.value(s.value), s.value.dtype, dtype)
        self.do(f"store {llvm_type(dtype)} {value}, ptr {self.place(s.buffer, s.index)}")

    def _loop(self, s: For) -> None:
        def write(now: str) -> None:
            self.values[s.index] = now
            self.body(s.body)

        self.loop(self.value(s.begin), self.value(s.end), self.value(s.step), write)

    def loop(self, begin: str, end: str, step: str, write: Callable[[str], None], mark: str = "") -> None:
        """A loop whose body is written for the value of its index.

        Args:
            mark: of its last branch.
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

    def call(self, s: Do) -> None:
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

    def _argument(self, argument: Argument) -> list[str]:
        """The value of an argument: an address and sizes for an array."""
        if isinstance(argument, Expr):
            value = self.value(argument)
            if argument.dtype == BOOL:
                return [f"i8 {self._cast(value, BOOL, 'uint8')}"]
            return [f"{llvm_type(argument.dtype)} {value}"]
        if isinstance(argument, Pointer):
            return [f"ptr {self.place(argument.buffer, argument.offset)}"]
        if isinstance(argument, Array):
            return [f"ptr {self.memory[argument.buffer][0]}", f"i64 {self.lengths[argument.buffer]}"]
        if isinstance(argument, Vector):
            return [f"ptr {self.place(argument.buffer, argument.start)}", f"i64 {self.value(argument.count)}"]
        assert isinstance(argument, MatrixOperand)
        start = argument.start if argument.column == Literal(0) else argument.start + argument.column
        sizes = [f"i64 {self.value(size)}" for size in (argument.rows, argument.stride, argument.columns)]
        return [f"ptr {self.place(argument.buffer, start)}", *sizes]


class Row(Body):
    """A pointwise kernel, whose sums in lanes go by blocks."""

    def __init__(self, function: Function, scalars: Scalars, symbols: Mapping[str, str] = NO_SYMBOLS) -> None:
        super().__init__(function, scalars, symbols)
        self.factors = sums_of(function.body)
        self.sums: dict[str, RowSum] = {}
        self.depth = 0

    def body(self, statements: Sequence[Statement]) -> None:
        starts: dict[str, str] = {}
        for s in statements:
            if isinstance(s, Assign) and s.name in self.factors and not is_step(s):
                starts[s.name] = self._start(s)
                continue
            self.statement(s)
            ended = sums_of(s.body) if isinstance(s, For) else {}
            for name in filter(starts.__contains__, ended):  # in the order of the text, whatever hashes are
                self._end(name, starts[name])

    def statement(self, s: Statement) -> None:
        if is_step(s):
            assert isinstance(s, Assign)
            assert isinstance(s.value, ScalarCall)
            self.sums[s.name].put([self.value(x) for x in s.value.operands[1:]])
        else:
            super().statement(s)

    def _start(self, s: Assign) -> str:
        """Begin a sum; the number that it starts from."""
        dtype, factors = s.value.dtype, self.factors[s.name]
        if factors > 1:
            self.scalars.declare(*declared(dtype, PIECE_LANES[dtype]))
        self.count += 1
        self.sums[s.name] = RowSum(self, f"s{self.count}", dtype, factors, self.depth)
        self.sums[s.name].start()
        return self.value(s.value)

    def _end(self, name: str, start: str) -> None:
        one = self.sums.pop(name)
        kind = FLOATS[one.dtype]
        self.set(name, self.op(f"fadd {kind} {start}, {one.total()}"), one.dtype)

    def _loop(self, s: For) -> None:
        sums = [self.sums[one.name] for one in s.body if isinstance(one, Assign) and is_step(one)]
        goes_on = any(one.depth != self.depth for one in sums)
        self.depth += 1
        if not sums:
            super()._loop(s)
        elif not goes_on and 0 < _known_count(s) <= BLOCK:
            self._one_block(s, sums, _known_count(s))
        elif goes_on or not (is_straight(s) or self._is_masked(s)):
            self._any_blocks(s, sums, goes_on)
        else:
            self._whole_blocks(s, sums)
        self.depth -= 1

    def _is_masked(self, s: For) -> bool:
        """True if the processor reads and writes a part of a vector in all memory of a loop."""
        touched = set().union(*map(buffers_of, statements_of(s.body)))
        return has_masks() and all(np.dtype(self.memory[buffer][1]).itemsize >= MASKED for buffer in touched)

    def _one_block(self, s: For, sums: Sequence[RowSum], count: int) -> None:
        """A block as long as the loop."""
        for one in sums:
            one.block = -(-count // CUT) * CUT
            if count < one.block:
                one.clear()
        few = is_straight(s) or count <= BLOCK // 2
        self._within(
            s, sums, "part", self.value(s.begin), str(count), self.scalars.mark("unrolled" if few else "by ones")
        )
        for one in sums:
            one.add("part", first=True)

    def _whole_blocks(self, s: For, sums: Sequence[RowSum]) -> None:
        """Blocks that are full, then what is left."""
        begin, end, straight = self.value(s.begin), self.value(s.end), is_straight(s)
        size = self.op(f"sub nsw i64 {end}, {begin}")
        whole = self.op(f"add nsw i64 {begin}, {self.op(f'and i64 {size}, {-BLOCK}')}")

        def block(now: str) -> None:
            self._within(s, sums, "full", now, str(BLOCK), self.scalars.mark("unrolled" if straight else "by twos"))
            for one in sums:
                one.add("full")

        self.loop(begin, whole, str(BLOCK), block)
        rest, after = self.label(), self.label()
        self.do(f"br i1 {self.op(f'icmp slt i64 {whole}, {end}')}, label %{rest}, label %{after}")
        self.begin(rest)
        left = self.op(f"sub nsw i64 {end}, {whole}")
        if self._is_masked(s):
            self._masked_rest(s, sums, whole, left, straight)
        else:
            for one in sums:
                one.clear()
            self._within(s, sums, "part", whole, left)
        for one in sums:
            one.add("part")
        self.do(f"br label %{after}")
        self.begin(after)

    def _masked_rest(self, s: For, sums: Sequence[RowSum], first: str, left: str, straight: bool) -> None:
        """A block with so many elements: the others are zeros, and nothing is done for them."""
        count = str(BLOCK)
        if not straight:  # the block is cut off behind the last vector that has some
            for one in sums:
                one.clear()
            count = self.op(f"and i64 {self.op(f'add nsw i64 {left}, {CUT - 1}')}, {-CUT}")
        start = self.op(f"sub nsw i64 {BLOCK}, {left}")
        mask = self.op(f"getelementptr inbounds i32, ptr @{self.scalars.mask()}, i64 {start}")

        def write(now: str) -> None:
            inside, after, before = self.label(), self.label(), self.block
            there = self.op(f"load i32, ptr {self.op(f'getelementptr inbounds i32, ptr {mask}, i64 {now}')}")
            self.do(f"br i1 {self.op(f'icmp slt i32 {there}, 0')}, label %{inside}, label %{after}")
            self.begin(inside)
            self.values[s.index] = self.op(f"add nsw i64 {first}, {now}")
            for one in sums:
                one.into = "", ""
            self.body(s.body)
            self.do(f"br label %{after}")
            there = self.block
            self.begin(after)
            given = [
                [self.op(f"phi {FLOATS[one.dtype]} [ {x}, %{there} ], [ 0.0, %{before} ]") for x in one.held]
                for one in sums
            ]
            for one, values in zip(sums, given, strict=True):
                one.into = "part", now
                one.put(values)

        self.loaded = {load: self.value(load) for load in fixed_loads(s)}  # in a branch they would prevent vectors
        self.loop("0", count, "1", write, self.scalars.mark("unrolled" if straight else "by ones"))
        self.loaded = {}

    def _any_blocks(self, s: For, sums: Sequence[RowSum], goes_on: bool) -> None:
        """Blocks, or what is still missing in them; all sums of a loop are added to their lanes where they are full."""
        end, self.count = self.value(s.end), self.count + 1
        at, head, inside, after = f"%at.{self.count}", self.label(), self.label(), self.label()
        self.entry.append(f"  {at} = alloca i64")
        self.do(f"store i64 {self.value(s.begin)}, ptr {at}")
        self.do(f"br label %{head}")
        self.begin(head)
        now = self.op(f"load i64, ptr {at}")
        left = self.op(f"sub nsw i64 {end}, {now}")
        self.do(f"br i1 {self.op(f'icmp sgt i64 {left}, 0')}, label %{inside}, label %{after}")
        self.begin(inside)
        for room in [str(BLOCK), *(one.room() for one in sums if goes_on)]:
            left = self._least(left, room)
        for one in sums:
            one.goes_on = goes_on
            one.open()
        self._within(s, sums, "part", now, left)
        for one in sums:
            one.close(left)
        self.do(f"store i64 {self.op(f'add nsw i64 {now}, {left}')}, ptr {at}")
        self.do(f"br label %{head}")
        self.begin(after)

    def _within(self, s: For, sums: Sequence[RowSum], kind: str, first: str, count: str, mark: str = "") -> None:
        """So many elements of a loop, from one on, within a block of each sum."""
        places = [one.place() if one.goes_on else "" for one in sums]

        def write(now: str) -> None:
            for one, place in zip(sums, places, strict=True):
                one.into = kind, self.op(f"add nsw i64 {place}, {now}") if place else now
            self.values[s.index] = self.op(f"add nsw i64 {first}, {now}")
            self.body(s.body)

        self.loop("0", count, "1", write, mark)

    def _least(self, a: str, b: str) -> str:
        name = self.scalars.declare("llvm.smin.i64", "i64", ["i64", "i64"])
        return self.op(f"call i64 @{name}(i64 {a}, i64 {b})")

    def text(self, linkage: str = "internal ") -> str:
        taken = []
        for parameter in self.function.parameters:
            if parameter.is_memory:
                self.memory[parameter.name] = f"%a.{parameter.name}", parameter.dtype
                taken.append(f"ptr noalias %a.{parameter.name}")
            else:
                self.set(parameter.name, f"%a.{parameter.name}", parameter.dtype)
                taken.append(f"{llvm_type(parameter.dtype)} %a.{parameter.name}")
        self.body(self.function.body)
        head = f"define {linkage}void @{self.function.name}({', '.join(taken)}) noinline nounwind {{"
        return "\n".join([head, "entry:", *self.entry, *self.lines, "  ret void", "}"])


def _known_count(s: For) -> int:
    """How many times a loop runs where its text says so, else 0."""
    if not isinstance(s.begin, Literal) or not isinstance(s.end, Literal):
        return 0
    return s.end.value - s.begin.value


def has_masks() -> bool:
    """True if the processor reads and writes the first few numbers of a vector at once."""
    return "avx" in host().features


def _set_again(function: Function) -> set[str]:
    """Variables that are set at several places."""
    places = [one.name for one in function.parameters]
    for s in statements_of(function.body):
        places += [s.name] if isinstance(s, Assign) else s.results if isinstance(s, Do) else ()
    return {name for name, count in Counter(places).items() if count > 1}


def _number(e: Any) -> str:
    if e.dtype in FLOATS:  # LLVM writes numbers of both dtypes as a double's bits
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(e.value)))[0]:016x}"
    return str(int(e.value))
