"""Plain C99 as a target: kernel IR as text, and the library that a compiler makes of it.

**Kernel IR as C99 text** for the system's compiler. The text includes `runtime.h`. Variables and parameters have the
names of the IR and an underscore, so that none is a word of C. Integers are added, subtracted and multiplied as
unsigned ones, which wrap. Limits: one thread; barriers do nothing.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rnnops.compiler.codegen.scan_module import ScanModule
from rnnops.compiler.lower import expressions, kernel as ir
from rnnops.compiler.schedule.batch_axis import ScanTeam
from rnnops.compiler.targets.target import OnOneThread, Work, was_wrong
from rnnops.errors import DeviceError
from rnnops.types import BOOL

INDENT = ir.INDENT
LOGIC = {"and": "&&", "or": "||"}
FLOATS = {"float32": "float", "float64": "double"}
IGNORED = ("wait", "prefetch")


def c_type(dtype: str) -> str:
    """The type of a number."""
    return FLOATS.get(dtype) or (BOOL if dtype == BOOL else f"{dtype}_t")


def c_text(module: ir.Module) -> str:
    """The text of a module; its function is `scan(status, sizes, arrays)`."""
    head = [f"#define NUMBER {c_type(module.dtype)}", '#include "runtime.h"']
    return "\n\n".join(["\n".join(head), *map(program_text, module.programs), driver_text(module)]) + "\n"


def program_text(program: ir.Function) -> str:
    """A pointwise kernel."""
    taken = ", ".join(f"{c_type(one.dtype)} {'*restrict ' * one.is_memory}{one.name}_" for one in program.parameters)
    return "\n".join([f"static void {program.name}({taken}) {{", *_body(program), "}"])


def driver_text(module: ir.Module) -> str:
    """The driver of a module, for one thread."""
    head = f"void {module.driver.name}(int64_t *status, const int64_t *sizes, void *const *arrays) {{"
    lines = ["int64_t rank_ = 0, threads_ = 1, *status_ = status;"]
    lines += [f"int64_t {size}_ = sizes[{i}];" for i, size in enumerate(module.sizes)]
    lines += [
        f"{c_type(one.dtype)} *{one.name}_ = ({c_type(one.dtype)} *)arrays[{i}];" for i, one in enumerate(module.arrays)
    ]
    return "\n".join([head, *(INDENT + line for line in lines), *_body(module.driver), "}"])


def _body(function: ir.Function) -> Iterator[str]:
    """The declarations of a function's variables, then its statements."""
    variables = dict.fromkeys((one.name for one in function.parameters), "")  # parameters are declared already
    for s in ir.statements_of(function.body):
        if isinstance(s, ir.Assign):
            variables.setdefault(s.name, s.value.dtype)
        elif isinstance(s, ir.For | ir.Do):
            variables |= dict.fromkeys([s.index] if isinstance(s, ir.For) else s.results, "int64")
    yield from (f"{INDENT}{c_type(dtype)} {name}_ = 0;" for name, dtype in variables.items() if dtype)
    yield from (INDENT + line for s in function.body for line in _lines(s))


def _lines(s: ir.Statement) -> Iterator[str]:
    if isinstance(s, ir.Assign):
        yield f"{s.name}_ = {_value(s.value)};"
    elif isinstance(s, ir.Store):
        yield f"{s.buffer}_[{_value(s.index)}] = {_value(s.value)};"
    elif isinstance(s, ir.For):
        i, (begin, end, step) = f"{s.index}_", map(_value, (s.begin, s.end, s.step))
        yield f"for ({i} = {begin}; {i} < {end}; {i} += {step}) {{"
        yield from _block(s.body)
    elif isinstance(s, ir.If):
        yield f"if ({_value(s.test)}) {{"
        yield from _block(s.body)
    elif s.function not in IGNORED:
        result = f"{s.results[0]}_ = " if s.results else ""
        yield f"{result}{s.function}({', '.join(map(_argument, s.arguments))});"


def _block(body: Sequence[ir.Statement]) -> Iterator[str]:
    for s in body:
        yield from (INDENT + line for line in _lines(s))
    yield "}"


def _argument(argument: ir.Argument) -> str:
    if isinstance(argument, ir.Array):
        return f"{argument.buffer}_"
    if isinstance(argument, ir.Pointer):
        return f"{argument.buffer}_ + {_value(argument.offset)}"
    if isinstance(argument, ir.Vector):
        return f"vector_at({argument.buffer}_ + {_value(argument.start)}, {_value(argument.count)})"
    if isinstance(argument, ir.MatrixOperand):
        sizes = ", ".join(map(_value, (argument.rows, argument.stride, argument.columns)))
        return f"matrix_at({argument.buffer}_ + {_value(argument.start + argument.column)}, {sizes})"
    assert isinstance(argument, expressions.Expr)
    return _value(argument)


def _value(e: expressions.Expr) -> str:
    if isinstance(e, expressions.Literal | expressions.ModuleConstant):
        return _number(e.value, e.dtype)
    if isinstance(e, expressions.Name):
        return f"{e.name}_"
    if isinstance(e, expressions.Load):
        return f"{e.buffer}_[{_value(e.index)}]"
    if isinstance(e, expressions.CompareExpr):
        return f"({_value(e.left)} {e.operator} {_value(e.right)})"
    if isinstance(e, expressions.Logic):
        return f"({f' {LOGIC[e.operator]} '.join(map(_value, e.parts))})"
    if isinstance(e, expressions.Choice):
        return f"({_value(e.test)} ? {_value(e.a)} : {_value(e.b)})"
    if isinstance(e, expressions.CastExpr):
        return f"(({c_type(e.dtype)}){_value(e.x)})"
    if isinstance(e, expressions.ScalarCall):
        return f"{e.function}_{c_type(e.dtype)}({', '.join(map(_value, e.operands))})"
    if isinstance(e, expressions.Negated) and e.dtype == BOOL:
        return f"(!{_value(e.x)})"
    return _arithmetic(e)


def _arithmetic(e: expressions.Expr) -> str:
    """Arithmetic. Users' integers wrap, so they become unsigned in C. Sizes and places are int64 and never overflow."""
    operator = e.operator if isinstance(e, expressions.BinaryExpr) else "-"
    values = ["0", *map(_value, expressions.parts_of(e))][-2:]  # a negated number is subtracted from 0
    if isinstance(e, expressions.Negated) and e.dtype in FLOATS:
        return f"(-{values[1]})"
    if (
        e.dtype in FLOATS
        or operator in ("//", "%", ">>", "&")
        or (e.dtype == expressions.INDEX and isinstance(e, expressions.BinaryExpr))
    ):
        return f"({values[0]} {operator.replace('//', '/')} {values[1]})"
    return f"(({c_type(e.dtype)})((uint64_t){values[0]} {operator} (uint64_t){values[1]}))"


def _number(value: Any, dtype: str) -> str:
    if dtype in FLOATS:
        number, suffix = float(value), "f" if dtype == "float32" else ""
        odd = "NAN" if np.isnan(number) else "-INFINITY" if number < 0 else "INFINITY"
        return f"{number.hex()}{suffix}" if np.isfinite(number) else odd
    if dtype == "int64" and abs(int(value)) < 2**31:
        return str(int(value))
    return f"(({c_type(dtype)}){int(value) % 2**64}u)"  # the least int64 is not a literal of C


HEADER = Path(__file__).with_name("runtime.h")
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared")


@dataclass(frozen=True)
class C99(OnOneThread):
    """Code of the system's C compiler, on one thread."""

    def load(self, text: ScanModule, width: int | None) -> Any:
        assert isinstance(text.module, ir.Module)
        return _library(c_text(text.module)).scan

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        _, status, sizes, *arrays = work
        addresses = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        function(ctypes.c_void_p(status.ctypes.data), ctypes.c_void_p(sizes.ctypes.data), addresses)
        return was_wrong(work)


@cache
def _library(text: str) -> Any:
    """The library of a C text, loaded. Raises DeviceError if there is no C compiler, or if it fails."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if not compiler or shutil.which(compiler[0]) is None:
        raise DeviceError("no C compiler", wanted="`cc` on the path, or the variable CC", came=" ".join(compiler))
    with tempfile.TemporaryDirectory(prefix="rnnops-c99-") as folder:
        shutil.copy(HEADER, folder)
        source, library = Path(folder, "scan.c"), Path(folder, "scan.so")
        source.write_text(text)
        command = [*compiler, *FLAGS, str(source), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise DeviceError("the C compiler refuses a module", wanted="C99", came=done.stderr[:2000])
        return ctypes.CDLL(str(library))
