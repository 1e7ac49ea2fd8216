"""Kernel IR as LLVM IR: pointwise kernels and a driver for the cores of this machine.

Pointwise kernels are functions of their own, which are not copied into the driver: their pointers do not overlap within
one call, but one step reads what another wrote. Products and sums are not fused to multiply-adds, as which of them are
would depend on what else is computed beside them; scalar functions, which are copied into them, keep their flags.

Products, packing and barriers are called by name; drivers are functions as `kernels/cpu/drivers.py` has them.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnops.compiler.ir.expressions import (
    Binary,
    Call,
    Cast,
    Choice,
    Comparison,
    Constant,
    Expr,
    Literal,
    Load,
    Logic,
    Name,
    Negated,
)
from rnnops.compiler.ir.kernel import (
    Argument,
    Array,
    Assign,
    Do,
    For,
    Function,
    If,
    Matrix,
    Module,
    Parameter,
    Pointer,
    Statement,
    Store,
    Vector,
    statements_of,
)
from rnnops.types import BOOL, is_signed

FLAGS = "nsz afn"  # of a pointwise kernel's own arithmetic
SUMS = {
    "add_any_order": "reassoc contract nsz",
    "add_product_any_order": "reassoc contract nsz",
    "add_product": "contract",
}
EXTREMA = {"larger": "maximum", "smaller": "minimum"}  # of floats LLVM's, of integers the scalar functions
FLOATS = {"float32": "float", "float64": "double"}
ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
DIVISIONS = {"//": "div", "%": "rem"}
FLOAT_TESTS = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
TESTS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


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

    def name(self, call: Call) -> str:
        dtypes = tuple(operand.dtype for operand in call.operands)
        name = symbol_of(call.function, dtypes)
        self.used[name] = call.function, dtypes, call.dtype
        return name

    def declare(self, name: str, result: str, kinds: Sequence[str]) -> str:
        """A function from elsewhere, as callers see it."""
        self.declared[name] = f'declare {result} @"{name}"({", ".join(kinds)})'
        return name


class _Body:
    """Writes the body of one function.

    A variable that is set at one place is the value itself, in what the place comes before; others lie in memory until
    LLVM puts them into registers.
    """

    def __init__(self, function: Function, scalars: Scalars) -> None:
        self.scalars, self.lines, self.entry = scalars, list[str](), list[str]()
        self.values: dict[str, str] = {}  # of names that are set at one place, and of indices of loops
        self.variables: dict[str, str] = {}  # the others: name -> dtype
        self.memory: dict[str, tuple[str, str]] = {}  # buffer -> address, dtype of its elements
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
        if isinstance(e, Literal | Constant):
            return _number(e)
        if isinstance(e, Name):
            known = self.values.get(e.name)
            return known or self.op(f"load {llvm_type(self.variables[e.name])}, ptr %v.{e.name}")
        if isinstance(e, Load):
            place = self.place(e.buffer, e.index)
            return self.op(f"load {llvm_type(self.memory[e.buffer][1])}, ptr {place}")
        if isinstance(e, Binary):
            return self._binary(e)
        if isinstance(e, Negated):
            return self._negated(e)
        if isinstance(e, Comparison):
            return self._comparison(e)
        if isinstance(e, Logic):
            result = self.value(e.parts[0])
            for part in e.parts[1:]:
                result = self.op(f"{e.operator} i1 {result}, {self.value(part)}")
            return result
        if isinstance(e, Choice):
            kind, test = llvm_type(e.dtype), self.value(e.test)
            return self.op(f"select i1 {test}, {kind} {self.value(e.a)}, {kind} {self.value(e.b)}")
        if isinstance(e, Cast):
            return self._cast(self.value(e.x), e.x.dtype, e.dtype)
        assert isinstance(e, Call)
        return self._call(e)

    def place(self, buffer: str, index: Expr) -> str:
        """The address of an element."""
        address, dtype = self.memory[buffer]
        if index == Literal(0):
            return address
        return self.op(f"getelementptr inbounds {llvm_type(dtype)}, ptr {address}, i64 {self.value(index)}")

    def _binary(self, e: Binary) -> str:
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

    def _comparison(self, e: Comparison) -> str:
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

    def _call(self, e: Call) -> str:
        if e.function in SUMS:
            return self._sum(e)
        if e.function in ("min", "max") or (e.function in EXTREMA and e.dtype in FLOATS):
            return self._extremum(e)
        if e.function in EXTREMA:
            e = Call(EXTREMA[e.function], e.operands, dtype=e.dtype)
        given = ", ".join(f"{llvm_type(x.dtype)} {self.value(x)}" for x in e.operands)
        return self.op(f"call {llvm_type(e.dtype)} @{self.scalars.name(e)}({given})")

    def _sum(self, e: Call) -> str:
        """A step of a sum; of products, one multiply-add."""
        kind, (total, *factors) = llvm_type(e.dtype), [self.value(x) for x in e.operands]
        if e.dtype not in FLOATS:
            term = factors[0] if len(factors) == 1 else self.op(f"mul {kind} {', '.join(factors)}")
            return self.op(f"add {kind} {total}, {term}")
        term = factors[0] if len(factors) == 1 else self.op(f"fmul contract {kind} {', '.join(factors)}")
        return self.op(f"fadd {SUMS[e.function]} {kind} {total}, {term}")

    def _extremum(self, e: Call) -> str:
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
            self.do(f"br i1 {self.value(s.test)}, label %{inside}, label %{after}")
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
        begin, end, step = map(self.value, (s.begin, s.end, s.step))
        before, head, inside, after = self.block, self.label(), self.label(), self.label()
        now, following = f"%{head}.now", f"%{head}.next"
        self.do(f"br label %{head}")
        self.begin(head)
        entered = len(self.lines)
        self.do(f"br i1 {self.op(f'icmp slt i64 {now}, {end}')}, label %{inside}, label %{after}")
        self.begin(inside)
        self.values[s.index] = now
        self.body(s.body)
        self.do(f"{following} = add nsw i64 {now}, {step}")
        self.do(f"br label %{head}")
        self.lines.insert(entered, f"  {now} = phi i64 [ {begin}, %{before} ], [ {following}, %{self.block} ]")
        self.begin(after)

    def call(self, s: Do) -> None:
        raise TypeError(f"{self.function.name} calls {s.function}: pointwise kernels call scalar functions alone")


class _Row(_Body):
    """A pointwise kernel."""

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


class _Driver(_Body):
    """The function that threads start."""

    def __init__(self, module: Module, scalars: Scalars, symbols: Mapping[str, str], given: Sequence[str]) -> None:
        super().__init__(module.driver, scalars)
        self.module, self.symbols = module, symbols
        self.arrays = [*(Parameter(name, "int64[]") for name in given), *module.arrays]
        self.rows = {program.name: program for program in module.programs}
        self.lengths: dict[str, str] = {}

    def text(self, name: str) -> str:
        """The function under a name."""
        for number in ("rank", "threads"):
            self.set(number, f"%a.{number}", "int64")
        for place, array in enumerate(self.arrays):
            self.memory[array.name] = self._word("ptr", "%a.words", place), array.dtype
            self.lengths[array.name] = self._word("i64", "%a.words", len(self.arrays) + place)
        for i, size in enumerate(self.module.sizes):
            self.set(size, self._word("i64", self.memory["sizes"][0], i), "int64")
        self.body(self.function.body)
        head = f'define void @"{name}"(i64 %a.rank, i64 %a.threads, ptr %a.words) nounwind {{'
        return "\n".join([head, "entry:", *self.entry, *self.lines, "  ret void", "}"])

    def _word(self, kind: str, start: str, place: int) -> str:
        """One of many words in a row."""
        return self.op(f"load {kind}, ptr {self.op(f'getelementptr inbounds i64, ptr {start}, i64 {place}')}")

    def call(self, s: Do) -> None:
        given = [text for argument in s.arguments for text in self._argument(argument)]
        if s.function in self.rows:
            self.do(f"call void @{s.function}({', '.join(given)})")
            return
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
        """What stands for an argument: an address and sizes for what lies in memory."""
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
        assert isinstance(argument, Matrix)
        start = argument.start if argument.column == Literal(0) else argument.start + argument.column
        sizes = [f"i64 {self.value(size)}" for size in (argument.rows, argument.stride, argument.columns)]
        return [f"ptr {self.place(argument.buffer, start)}", *sizes]


def llvm_text(module: Module, name: str, symbols: Mapping[str, str], given: Sequence[str]) -> tuple[str, Scalars]:
    """The text of an LLVM module, and the scalar functions that it wants beside.

    Args:
        name: of the driver in LLVM.
        symbols: what drivers call by name -> its name in LLVM.
        given: names of the arrays that every driver is given before those of the module, int64 all.
    """
    scalars = Scalars()
    programs = [_Row(program, scalars).text() for program in module.programs]
    driver = _Driver(module, scalars, symbols, given).text(name)
    return "\n\n".join([*scalars.declared.values(), *programs, driver, ""]), scalars


def rows_text(functions: Iterable[Function]) -> tuple[str, Scalars]:
    """The text of an LLVM module of pointwise kernels for callers outside, and the scalar functions it wants."""
    scalars = Scalars()
    texts = [_Row(function, scalars).text(linkage="") for function in functions]
    return "\n\n".join([*scalars.declared.values(), *texts, ""]), scalars


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
