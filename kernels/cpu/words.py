"""Functions of words: kernels of integers and addresses as LLVM IR, and their instructions.

**Functions of words**: kernels of whole numbers and addresses. Their LLVM IR is made from the syntax tree of their
Python. All values are int64 or bools. A function may assign, loop (`for ... in range`, `while`), test, return, call
other functions of words, and use the instructions of this file. Numbers that it closes over are constants. Memory is
written and read only through addresses. So the same text runs in plain Python, on one thread and some hundred times
slower.

Limits: `//` and `%` take numbers of 0 or more; both sides of `and`, `or` and a choice are computed; integers wrap.
Other Python is a SyntaxError when the text is made. It names the function and the line.

**Instructions** for memory and for other threads: loads and stores, also atomic ones, and calls by address. In plain
Python, loads and stores go through `ctypes`. Instructions that involve other threads are only in compiled code.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import platform
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NewType

import numpy as np

from rnnops.errors import DeviceError
from rnnops.kernels.cpu.processor import ARM, X86

WORD_BYTES = 8
LINE_BYTES = 64
LINE = LINE_BYTES // WORD_BYTES
DONE_GATE, JOB, MAILBOX_LINES = LINE_BYTES, 2 * LINE_BYTES, 3  # a mailbox: gate to a worker, gate from it, its job
DRIVER, RANK, THREADS, WORDS = (JOB + i * WORD_BYTES for i in range(4))  # a job


def cache_lines(count: int) -> Any:
    """An array of int64 zeros that fills whole cache lines."""
    numbers = np.zeros((count + 1) * LINE, np.int64)
    start = -numbers.ctypes.data % LINE_BYTES // WORD_BYTES
    return numbers[start : start + count * LINE]


def new_barrier() -> Any:
    """The memory of a barrier: the count and the phase."""
    return cache_lines(2)


Address = NewType("Address", int)
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "sdiv",
    ast.Mod: "srem",
    ast.BitAnd: "and",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "slt",
    ast.LtE: "sle",
    ast.Gt: "sgt",
    ast.GtE: "sge",
}
WORD, TRUTH = "i64", "i1"
TAKEN = {"Address": "ptr", "bool": "i8"}  # annotation -> type of a parameter in calls from outside; others are words
GIVEN = {"None": "void", "int": WORD}  # annotation -> type of a result
EXTREMA: dict[Any, str] = {min: "slt", max: "sgt"}


@dataclass(frozen=True)
class WordInstruction:
    """An instruction that Python lacks.

    Args:
        lines: of LLVM IR. The last one gives the value. `{0}` is the first operand, `{p0}` the same as a pointer, `{n}`
            a number for names of its own.
        result: the type of the value; void for none.
        plain: does the same in plain Python.
        outside: declarations that it needs.
        entry: whether it belongs at the entry of its function, like room on the stack.
    """

    lines: tuple[str, ...]
    result: str
    plain: Callable[..., Any]
    outside: tuple[str, ...] = ()
    entry: bool = False

    def __call__(self, *operands: int) -> Any:
        return self.plain(*operands)


@dataclass(frozen=True)
class ModulePart:
    """A function without result that is in the same LLVM module, but is not a function of words.

    Args:
        kinds: of its parameters, i64 or ptr.
    """

    name: str
    kinds: tuple[str, ...]

    def __call__(self, *operands: int) -> Any:
        raise TypeError(f"{self.name} exists only in compiled code")


@dataclass(frozen=True)
class AddressOf:
    """A call of it gives the address of a function of words."""

    function: Callable[..., Any]

    def __call__(self) -> int:
        raise TypeError("functions have addresses only in compiled code")


class Text:
    """The text of the functions of one LLVM module: those that are asked for, and those that they call."""

    def __init__(self) -> None:
        self.functions: dict[Callable[..., Any], str] = {}
        self.declared: dict[str, None] = {}  # in order
        self.texts: list[str] = []
        self.names: dict[str, str] = {}  # text of an inner function without its name -> the name

    def export(self, name: str, function: Callable[..., Any]) -> str:
        """Add a function that is called from outside."""
        self.texts.append(_FunctionWriter(self, function, name, exported=True).text())
        return name

    def inner(self, function: Callable[..., Any]) -> str:
        """The name of a function that other functions call. Functions with the same text share a name."""
        if function not in self.functions:
            name = f"{function.__name__}.{len(self.functions)}"
            self.functions[function] = name
            text = _FunctionWriter(self, function, name, exported=False).text()
            self.functions[function] = self.names.setdefault(text.replace(f'@"{name}"', "", 1), name)
            if self.functions[function] == name:
                self.texts.append(text)
        return self.functions[function]

    def __str__(self) -> str:
        return "\n\n".join([*self.declared, *self.texts]) + "\n"


def text_of(symbols: Mapping[str, str], functions: Mapping[str, Callable[..., Any]]) -> str:
    """The text of functions that are called from outside.

    Args:
        symbols: function -> its name in LLVM.
    """
    text = Text()
    for name, function in functions.items():
        text.export(symbols[name], function)
    return str(text)


class _FunctionWriter:
    """Writes one function. Variables lie in memory until LLVM puts them into registers."""

    def __init__(self, text: Text, function: Callable[..., Any], name: str, exported: bool) -> None:
        self.module, self.name, self.exported = text, name, exported
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        self.tree = tree
        found = inspect.getclosurevars(function)
        self.known: dict[str, Any] = {**found.builtins, **found.globals, **found.nonlocals}
        self.kinds = {name: str(kind) for name, kind in function.__annotations__.items()}
        self.entry, self.lines, self.variables, self.count = list[str](), list[str](), set[str](), 0

    def text(self) -> str:
        result = GIVEN.get(self.kinds.get("return", "None"), WORD)
        taken = []
        for argument in self.tree.args.args:
            name, kind = argument.arg, TAKEN.get(self.kinds.get(argument.arg, ""), WORD) if self.exported else WORD
            taken.append(f"{kind} %a.{name}")
            self.set(name, self.as_word(f"%a.{name}", kind))
        self.body(self.tree.body)
        self.do("ret void" if result == "void" else f"ret {result} 0")
        linkage = "" if self.exported else "internal "
        head = f'define {linkage}{result} @"{self.name}"({", ".join(taken)}) nounwind {{'
        return "\n".join([head, "entry:", *self.entry, *self.lines, "}"])

    # -- lines ---------------------------------------------------------------------------------------------------

    def do(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def op(self, line: str) -> str:
        self.count += 1
        self.do(f"%t{self.count} = {line}")
        return f"%t{self.count}"

    def labels(self, *names: str) -> Iterator[str]:
        self.count += 1
        return (f"{name}{self.count}" for name in names)

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def set(self, name: str, value: str) -> None:
        if name not in self.variables:
            self.variables.add(name)
            self.entry.append(f"  %v.{name} = alloca i64")
        self.do(f"store i64 {value}, ptr %v.{name}")

    def as_word(self, value: str, kind: str) -> str:
        if kind == WORD:
            return value
        return self.op(f"ptrtoint ptr {value} to i64" if kind == "ptr" else f"zext {kind} {value} to i64")

    # -- statements ----------------------------------------------------------------------------------------------

    def body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if type(statement) not in STATEMENTS:
                raise self.wrong(statement)
            STATEMENTS[type(statement)](self, statement)

    def assign(self, s: ast.Assign) -> None:
        (target,) = s.targets
        values = s.value.elts if isinstance(target, ast.Tuple) and isinstance(s.value, ast.Tuple) else [s.value]
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        for one, value in zip(targets, [self.word(value) for value in values], strict=True):
            self.set(self.variable(one), value)

    def change(self, s: ast.AugAssign) -> None:
        name = ast.copy_location(ast.Name(self.variable(s.target)), s)
        self.set(name.id, self.word(ast.copy_location(ast.BinOp(name, s.op, s.value), s)))

    def do_call(self, s: ast.Expr) -> None:
        if isinstance(s.value, ast.Call):
            self.call(s.value)
        elif not isinstance(s.value, ast.Constant):  # a docstring
            raise self.wrong(s)

    def test(self, s: ast.If) -> None:
        inside, other, after = self.labels("then", "else", "after")
        self.do(f"br i1 {self.truth(s.test)}, label %{inside}, label %{other}")
        for label, body in ((inside, s.body), (other, s.orelse)):
            self.begin(label)
            self.body(body)
            self.do(f"br label %{after}")
        self.begin(after)

    def repeat(self, s: ast.While) -> None:
        head, inside, after = self.labels("head", "inside", "after")
        self.do(f"br label %{head}")
        self.begin(head)
        self.do(f"br i1 {self.truth(s.test)}, label %{inside}, label %{after}")
        self.begin(inside)
        self.body(s.body)
        self.do(f"br label %{head}")
        self.begin(after)

    def loop(self, s: ast.For) -> None:
        given = s.iter.args if isinstance(s.iter, ast.Call) and ast.unparse(s.iter.func) == "range" else []
        if not given:
            raise self.wrong(s)
        numbers = [self.word(one) for one in given]
        begin, end, step = ("0", *numbers, "1") if len(numbers) == 1 else (*numbers, "1")[:3]
        name, (head, inside, after) = self.variable(s.target), self.labels("head", "inside", "after")
        self.set(name, begin)
        self.do(f"br label %{head}")
        self.begin(head)
        now = self.op(f"load i64, ptr %v.{name}")
        self.do(f"br i1 {self.op(f'icmp slt i64 {now}, {end}')}, label %{inside}, label %{after}")
        self.begin(inside)
        self.body(s.body)
        self.set(name, self.op(f"add nsw i64 {now}, {step}"))
        self.do(f"br label %{head}")
        self.begin(after)

    def leave(self, s: ast.Return) -> None:
        self.do("ret void" if s.value is None else f"ret i64 {self.word(s.value)}")
        (after,) = self.labels("unreached")
        self.begin(after)

    # -- expressions ---------------------------------------------------------------------------------------------

    def word(self, e: ast.expr) -> str:
        value, kind = self.value(e)
        return self.as_word(value, kind)

    def truth(self, e: ast.expr) -> str:
        value, kind = self.value(e)
        return value if kind == TRUTH else self.op(f"icmp ne i64 {value}, 0")

    def value(self, e: ast.expr) -> tuple[str, str]:
        """An expression's value, and its type."""
        if type(e) not in EXPRESSIONS:
            raise self.wrong(e)
        return EXPRESSIONS[type(e)](self, e)

    def literal(self, e: ast.Constant) -> tuple[str, str]:
        return self.constant(e.value, e)

    def known_name(self, e: ast.Name) -> tuple[str, str]:
        if e.id in self.variables:
            return self.op(f"load i64, ptr %v.{e.id}"), WORD
        return self.constant(self.known.get(e.id), e)

    def constant(self, value: Any, e: ast.expr) -> tuple[str, str]:
        if not isinstance(value, int):
            raise self.wrong(e)
        return (str(value).lower(), TRUTH) if isinstance(value, bool) else (str(value), WORD)

    def binary(self, e: ast.BinOp) -> tuple[str, str]:
        if type(e.op) not in OPERATORS:
            raise self.wrong(e)
        a, b = self.word(e.left), self.word(e.right)
        return self.op(f"{OPERATORS[type(e.op)]} i64 {a}, {b}"), WORD

    def unary(self, e: ast.UnaryOp) -> tuple[str, str]:
        if isinstance(e.op, ast.Not):
            return self.op(f"xor i1 {self.truth(e.operand)}, true"), TRUTH
        return self.op(f"sub i64 0, {self.word(e.operand)}"), WORD

    def compare(self, e: ast.Compare) -> tuple[str, str]:
        if len(e.ops) > 1 or type(e.ops[0]) not in COMPARISONS:
            raise self.wrong(e)
        a, b = self.word(e.left), self.word(e.comparators[0])
        return self.op(f"icmp {COMPARISONS[type(e.ops[0])]} i64 {a}, {b}"), TRUTH

    def logic(self, e: ast.BoolOp) -> tuple[str, str]:
        first, *others = map(self.truth, e.values)
        for other in others:
            first = self.op(f"{'and' if isinstance(e.op, ast.And) else 'or'} i1 {first}, {other}")
        return first, TRUTH

    def choice(self, e: ast.IfExp) -> tuple[str, str]:
        test, a, b = self.truth(e.test), self.word(e.body), self.word(e.orelse)
        return self.op(f"select i1 {test}, i64 {a}, i64 {b}"), WORD

    def call(self, e: ast.Call) -> tuple[str, str]:
        called = self.known.get(e.func.id) if isinstance(e.func, ast.Name) else None
        if e.keywords or called is None:
            raise self.wrong(e)
        values = [self.word(one) for one in e.args]
        if called in EXTREMA:
            return self.extremum(EXTREMA[called], values)
        if isinstance(called, AddressOf):
            return self.op(f'ptrtoint ptr @"{self.module.inner(called.function)}" to i64'), WORD
        if isinstance(called, WordInstruction):
            return self.instruction(called, values)
        if isinstance(called, ModulePart):
            kinds = zip(called.kinds, values, strict=True)
            given = ", ".join(f"{kind} {value if kind == WORD else self.pointer(value)}" for kind, value in kinds)
            self.do(f'call void @"{called.name}"({given})')
            return "", "void"
        return self.function(called, values)

    def extremum(self, test: str, values: Sequence[str]) -> tuple[str, str]:
        a, b = values
        return self.op(f"select i1 {self.op(f'icmp {test} i64 {a}, {b}')}, i64 {a}, i64 {b}"), WORD

    def function(self, called: Callable[..., Any], values: Iterable[str]) -> tuple[str, str]:
        name, result = self.module.inner(called), GIVEN.get(str(called.__annotations__["return"]), WORD)
        call = f'call {result} @"{name}"({", ".join(f"i64 {value}" for value in values)})'
        if result == "void":
            self.do(call)
            return "", result
        return self.op(call), result

    def instruction(self, one: WordInstruction, values: Sequence[str]) -> tuple[str, str]:
        self.module.declared.update(dict.fromkeys(one.outside))
        pointers = {f"p{i}": self.pointer(v) for i, v in enumerate(values) if f"{{p{i}}}" in " ".join(one.lines)}
        self.count += 1
        *before, last = (line.format(*values, n=self.count, **pointers) for line in one.lines)
        for line in before:
            self.do(line)
        if one.entry:
            self.entry.append(f"  %t{self.count} = {last}")
            return self.as_word(f"%t{self.count}", one.result), WORD
        if one.result == "void":
            self.do(last)
            return "", "void"
        return self.as_word(self.op(last), one.result), WORD

    def pointer(self, value: str) -> str:
        return self.op(f"inttoptr i64 {value} to ptr")

    def variable(self, target: ast.expr) -> str:
        if not isinstance(target, ast.Name):
            raise self.wrong(target)
        return target.id

    def wrong(self, node: ast.AST) -> SyntaxError:
        line = getattr(node, "lineno", 0)
        return SyntaxError(f"{self.tree.name}, line {line}: a function of words may not have {ast.unparse(node)!r}")


STATEMENTS: dict[type[ast.stmt], Callable[[_FunctionWriter, Any], None]] = {
    ast.Assign: _FunctionWriter.assign,
    ast.AugAssign: _FunctionWriter.change,
    ast.Expr: _FunctionWriter.do_call,
    ast.If: _FunctionWriter.test,
    ast.While: _FunctionWriter.repeat,
    ast.For: _FunctionWriter.loop,
    ast.Return: _FunctionWriter.leave,
}
EXPRESSIONS: dict[type[ast.expr], Callable[[_FunctionWriter, Any], tuple[str, str]]] = {
    ast.Constant: _FunctionWriter.literal,
    ast.Name: _FunctionWriter.known_name,
    ast.BinOp: _FunctionWriter.binary,
    ast.UnaryOp: _FunctionWriter.unary,
    ast.Compare: _FunctionWriter.compare,
    ast.BoolOp: _FunctionWriter.logic,
    ast.IfExp: _FunctionWriter.choice,
    ast.Call: _FunctionWriter.call,
}


OF_BYTES: dict[int, Any] = {4: ctypes.c_int32, 8: ctypes.c_int64}


def _load(size: int, address: int) -> int:
    found: int = OF_BYTES[size].from_address(address).value
    return found


def _store(size: int, address: int, number: int) -> None:
    OF_BYTES[size].from_address(address).value = number


def _copy(size: int, target: int, source: int) -> None:
    ctypes.memmove(target, source, size)


def only_compiled(*_: int) -> Any:
    """Raise the error of plain Python in place of waiting for other threads."""
    raise DeviceError("only compiled code runs on several threads", wanted="1 thread")


def _pause() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The instruction for a short rest, and its declaration. For unknown processors it is a fence."""
    machine = platform.machine().lower()
    if machine in X86:
        return ("call void @llvm.x86.sse2.pause()",), ("declare void @llvm.x86.sse2.pause()",)
    if machine in ARM:  # about as long as a pause; `yield` takes no time at all
        return ("call void @llvm.aarch64.isb(i32 15)",), ("declare void @llvm.aarch64.isb(i32)",)
    return ("fence seq_cst",), ()


def copied(size: int, align: int = 0) -> WordInstruction:
    """`copy(target, source)`: copies `size` bytes. Addresses are multiples of `align`, or of `size` if `align` is 0."""
    kind, align = f"i{8 * size}", align or size
    lines = f"%c{{n}} = load {kind}, ptr {{p1}}, align {align}", f"store {kind} %c{{n}}, ptr {{p0}}, align {align}"
    return WordInstruction(lines, "void", partial(_copy, size))


def zeroed(size: int) -> WordInstruction:
    """`zero(address)`: a number of `size` bytes becomes zero."""
    return WordInstruction((f"store i{8 * size} 0, ptr {{p0}}, align {size}",), "void", partial(_store, size, number=0))


def room(count: int) -> WordInstruction:
    """The address of `count` bytes on the stack, aligned to a cache line. They are freed when the caller returns."""
    return WordInstruction((f"alloca [{count} x i8], align 64",), "ptr", only_compiled, entry=True)


def address_of(name: str) -> WordInstruction:
    """The address of a global variable or a function of the same module."""
    return WordInstruction((f'ptrtoint ptr @"{name}" to i64',), "i64", only_compiled)


def _copy_bytes(target: int, source: int, count: int) -> None:
    ctypes.memmove(target, source, count)


def _clear_bytes(target: int, count: int) -> None:
    ctypes.memset(target, 0, count)


GIVE = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
copy_bytes = WordInstruction(  # target, source, count
    ("call void @llvm.memcpy.p0.p0.i64(ptr {p0}, ptr {p1}, i64 {2}, i1 false)",),
    "void",
    _copy_bytes,
    ("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",),
)
clear_bytes = WordInstruction(  # target, count
    ("call void @llvm.memset.p0.i64(ptr {p0}, i8 0, i64 {1}, i1 false)",),
    "void",
    _clear_bytes,
    ("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",),
)
loaded = WordInstruction(("load i64, ptr {p0}",), "i64", partial(_load, WORD_BYTES))  # the number at an address
loaded_int32 = WordInstruction(("%c{n} = load i32, ptr {p0}", "sext i32 %c{n} to i64"), "i64", partial(_load, 4))
stored = WordInstruction(("store i64 {1}, ptr {p0}",), "void", partial(_store, WORD_BYTES))  # address, number
# `seen` reads a number that `shown` has stored, and then sees all writes that came before `shown`.
seen = WordInstruction(("load atomic i64, ptr {p0} acquire, align 8",), "i64", only_compiled)
shown = WordInstruction(("store atomic i64 {1}, ptr {p0} release, align 8",), "void", only_compiled)
added = WordInstruction(("atomicrmw add ptr {p0}, i64 {1} seq_cst",), "i64", only_compiled)  # gives the old value
exchanged = WordInstruction(("atomicrmw xchg ptr {p0}, i64 {1} seq_cst",), "i64", only_compiled)
compared = (
    WordInstruction(  # address, expected, new: stores the new number if the old one is as expected; gives the old one
        ("%c{n} = cmpxchg ptr {p0}, i64 {1}, i64 {2} seq_cst seq_cst", "extractvalue {{ i64, i1 }} %c{n}, 0"),
        "i64",
        only_compiled,
    )
)
paused = WordInstruction(*_pause()[:1], "void", only_compiled, _pause()[1])  # for some ten nanoseconds
give_processor = WordInstruction((f"call i32 @{GIVE}()",), "i32", only_compiled, (f"declare i32 @{GIVE}()",))


def of_python(name: str, result: str, *kinds: str) -> WordInstruction:
    """A call of a function of Python's C interface, by the kinds of its result and its arguments."""
    given = ", ".join(f"{kind} {{p{n}}}" if kind == "ptr" else f"{kind} {{{n}}}" for n, kind in enumerate(kinds))
    declared = f"declare {result} @{name}({', '.join(kinds)})"
    return WordInstruction((f"call {result} @{name}({given})",), result, only_compiled, (declared,))


# Python's portable locks. These calls do not need the interpreter's lock.
acquire_lock = WordInstruction(
    ("call i32 @PyThread_acquire_lock(ptr {p0}, i32 1)",),
    "i32",
    only_compiled,
    ("declare i32 @PyThread_acquire_lock(ptr, i32)",),
)
release_lock = of_python("PyThread_release_lock", "void", "ptr")
# Questions to objects. The caller of these holds the interpreter's lock.
dict_item = of_python("PyDict_GetItemWithError", "ptr", "ptr", "ptr")  # dict, key; borrowed; 0 for a missing key
next_item = of_python("PyDict_Next", "i32", "ptr", "ptr", "ptr", "ptr")  # dict, addresses of place, key and value
list_element = of_python("PyList_GetItem", "ptr", "ptr", "i64")  # list, place; borrowed
number_of = of_python("PyLong_AsLongLong", "i64", "ptr")
attribute_of = of_python("PyObject_GetAttr", "ptr", "ptr", "ptr")  # object, name; the caller owns the result
size_of = of_python("PyObject_Size", "i64", "ptr")
let_go = of_python("Py_DecRef", "void", "ptr")
own = of_python("Py_IncRef", "void", "ptr")
no_error = of_python("PyErr_Clear", "void")
without_lock = of_python("PyEval_SaveThread", "ptr")  # other threads may run Python from now on
with_lock = of_python("PyEval_RestoreThread", "void", "ptr")  # takes the result of `without_lock`
call_driver = WordInstruction(  # function, rank, threads, words
    ("call void {p0}(i64 {1}, i64 {2}, ptr {p3})",), "void", only_compiled
)
call_count = WordInstruction(("call i32 {p0}()",), "i32", only_compiled)  # of `omp_get_thread_num` and its like
call_parallel = WordInstruction(  # GOMP_parallel, region, job, threads
    ("%c{n} = trunc i64 {3} to i32", "call void {p0}(ptr {p1}, ptr {p2}, i32 %c{n}, i32 0)"), "void", only_compiled
)
