"""Kernel IR: modules, functions and statements, for processors and for devices, and as text for people.

**Kernel IR**: functions of loops, loads and stores, scalar expressions, products and barriers. The module of a scan has
pointwise kernels and a driver. A pointwise kernel takes pointers and numbers, and does elementwise work of one row.
Every thread runs the driver. Values of the IR never change; targets render them. Printed, they are Python that runs.

**Kernel IR for people** (`shown`): buffers and variables get the names of the blobs that they hold. A blob's name may
be any text, and may occur twice. If it is not an identifier or is taken already, the name of the IR stays. The shown
form is never run.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from rnnops.compiler.lower.expressions import IDENTIFIER, INDEX, Expr, Literal, Load, loads_in, names_in

INDENT = "    "


@dataclass(frozen=True)
class Pointer:
    """The address of an element of an array."""

    buffer: str
    offset: Expr

    def __str__(self) -> str:
        return f"at({self.buffer}, {self.offset})"


@dataclass(frozen=True)
class Vector:
    """`count` numbers of an array, from `start` on."""

    buffer: str
    start: Expr
    count: Expr

    def __str__(self) -> str:
        return f"vector({self.buffer}, {self.start}, {self.count})"


@dataclass(frozen=True)
class MatrixOperand:
    """A matrix `[rows, columns]` in an array. Its first row begins at `start + column`; rows are `stride` numbers
    apart."""

    buffer: str
    start: Expr
    rows: Expr
    stride: Expr
    column: Expr
    columns: Expr

    def __str__(self) -> str:
        sizes = ", ".join(map(str, (self.start, self.rows, self.stride, self.column, self.columns)))
        return f"matrix({self.buffer}, {sizes})"


@dataclass(frozen=True)
class Array:
    """A whole array."""

    buffer: str

    def __str__(self) -> str:
        return self.buffer


@dataclass(frozen=True)
class StridedMatrix:
    """A matrix in an array of a device. Rows are `row` numbers apart, columns `column` numbers."""

    buffer: str
    start: Expr
    row: Expr
    column: Expr

    def __str__(self) -> str:
        column = "" if self.column == Literal(1) else f", {self.column}"
        return f"Matrix({self.buffer}, {self.start}, {self.row}{column})"


@dataclass(frozen=True)
class MatrixProduct:
    """`c [rows, columns]` becomes `a @ b`, plus its old value or plus a bias.

    Args:
        sizes: rows, columns, inner.
        bias: the array and the place of its first number.
        rounding: the dtype that operands are rounded to first; empty for none.
    """

    a: StridedMatrix
    b: StridedMatrix
    c: StridedMatrix
    sizes: tuple[Expr, Expr, Expr]
    accumulate: Expr
    bias: tuple[str, Expr] | None = None
    rounding: str = ""

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.sizes))
        bias = "None" if self.bias is None else f"({self.bias[0]}, {self.bias[1]})"
        more = f", {self.rounding!r}" if self.rounding else ""
        return f"Product({self.a}, {self.b}, {self.c}, {sizes}, {self.accumulate}, {bias}{more})"


@dataclass(frozen=True)
class Callee:
    """A kernel of the module that the driver launches."""

    name: str

    def __str__(self) -> str:
        return self.name


Argument = Expr | Pointer | Vector | MatrixOperand | Array | MatrixProduct | Callee


@dataclass(frozen=True)
class Assign:
    """Sets a variable. All values of one variable have the same dtype.

    Args:
        blob: the blob that the value is an element of, for people.
    """

    name: str
    value: Expr
    blob: str = ""

    def lines(self) -> Iterator[str]:
        yield f"{self.name} = {self.value}"


@dataclass(frozen=True)
class Store:
    """Sets an element of memory.

    Args:
        blob: the blob that lies in this memory, for people.
    """

    buffer: str
    index: Expr
    value: Expr
    blob: str = ""

    def lines(self) -> Iterator[str]:
        yield f"{self.buffer}[{self.index}] = {self.value}"


@dataclass(frozen=True)
class For:
    """A loop from `begin` up to `end`, without `end`."""

    index: str
    begin: Expr
    end: Expr
    step: Expr
    body: tuple[Statement, ...]

    def lines(self) -> Iterator[str]:
        begin, end, step = map(str, (self.begin, self.end, self.step))
        given = ", ".join([begin, end, step] if step != "1" else [begin, end] if begin != "0" else [end])
        yield f"for {self.index} in range({given}):"
        yield from _indented(self.body)


@dataclass(frozen=True)
class If:
    """Statements that run if a test holds."""

    test: Expr
    body: tuple[Statement, ...]

    def lines(self) -> Iterator[str]:
        yield f"if {self.test}:"
        yield from _indented(self.body)


@dataclass(frozen=True)
class Do:
    """Calls a function: a pointwise kernel of the module, a product, a barrier.

    Args:
        results: variables that get the returned numbers, all int64.
    """

    function: str
    arguments: tuple[Argument, ...] = ()
    results: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        result = f"{', '.join(self.results)} = " if self.results else ""
        yield f"{result}{self.function}({', '.join(map(str, self.arguments))})"


Statement = Assign | Store | For | If | Do


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function.

    Args:
        kind: a dtype; `float32*` is a pointer and `float32[]` an array.
        blob: the blob that lies in the pointer's or array's memory, for people.
    """

    name: str
    kind: str = INDEX
    blob: str = ""

    @property
    def dtype(self) -> str:
        """The dtype of the number, or of the elements in memory."""
        return self.kind.rstrip("*[]")

    @property
    def is_memory(self) -> bool:
        return self.kind != self.dtype


@dataclass(frozen=True)
class Function:
    """A function without a result."""

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]

    def lines(self) -> Iterator[str]:
        yield f"def {self.name}({', '.join(parameter.name for parameter in self.parameters)}):"
        yield from _indented(self.body)

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True)
class Module:
    """Functions that call each other.

    Args:
        dtype: of its products.
        programs: pointwise kernels.
        driver: the function that threads start.
        arrays: the arrays that the driver is given, in order.
        sizes: names of the numbers that the driver reads from the array `sizes`, in order.
    """

    dtype: str
    programs: tuple[Function, ...]
    driver: Function
    arrays: tuple[Parameter, ...]
    sizes: tuple[str, ...]


def statements_of(body: Sequence[Statement]) -> Iterator[Statement]:
    """All statements, with those inside loops and tests."""
    for statement in body:
        yield statement
        if isinstance(statement, For | If):
            yield from statements_of(statement.body)


def expressions_of(statement: Statement) -> tuple[Expr, ...]:
    """The expressions of a statement, without those of statements inside it."""
    if isinstance(statement, Assign):
        return (statement.value,)
    if isinstance(statement, Store):
        return statement.index, statement.value
    if isinstance(statement, For):
        return statement.begin, statement.end, statement.step
    if isinstance(statement, If):
        return (statement.test,)
    return tuple(one for argument in statement.arguments for one in _expressions_of_argument(argument))


def _expressions_of_argument(argument: Argument) -> tuple[Expr, ...]:
    if isinstance(argument, Expr):
        return (argument,)
    if isinstance(argument, Pointer):
        return (argument.offset,)
    if isinstance(argument, Vector):
        return argument.start, argument.count
    if isinstance(argument, MatrixOperand):
        return argument.start, argument.rows, argument.stride, argument.column, argument.columns
    if isinstance(argument, MatrixProduct):
        matrices = (argument.a, argument.b, argument.c)
        places = (one for matrix in matrices for one in (matrix.start, matrix.row, matrix.column))
        bias = () if argument.bias is None else (argument.bias[1],)
        return *places, *argument.sizes, argument.accumulate, *bias
    return ()


def buffers_of(statement: Statement) -> set[str]:
    """The memory that a statement touches, without that of statements inside it."""
    found = {statement.buffer} if isinstance(statement, Store) else set()
    for argument in statement.arguments if isinstance(statement, Do) else ():
        if isinstance(argument, Pointer | Vector | MatrixOperand | Array):
            found.add(argument.buffer)
        elif isinstance(argument, MatrixProduct):
            found |= {argument.a.buffer, argument.b.buffer, argument.c.buffer, *(argument.bias or ())[:1]}
    return found.union(load.buffer for e in expressions_of(statement) for load in loads_in(e))


def _indented(body: Sequence[Statement]) -> Iterator[str]:
    if not body:
        yield f"{INDENT}pass"
    for statement in body:
        yield from (INDENT + line for line in statement.lines())


@dataclass(frozen=True)
class LaneFold:
    """A fold over the lanes of a block, two numbers `a` and `b` at a time."""

    name: str
    joined: Expr


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel that a grid of blocks runs for some steps of a tile.

    Args:
        sizes: names of the numbers of the module that it reads.
        folded: shared memory in which lanes fold, a number a lane.
        teams: whether lanes work in teams.
        weights: whether it keeps weights in shared memory, `kept`, the same as `shared` of the module's dtype.
        fragments: words of the same memory in which it keeps weights for tensor cores, and numbers to begin with.
    """

    name: str
    arrays: tuple[Parameter, ...]
    sizes: tuple[str, ...]
    folded: tuple[Parameter, ...]
    teams: bool
    weights: bool
    body: tuple[Statement, ...]
    fragments: tuple[Parameter, ...] = ()


@dataclass(frozen=True)
class DeviceModule:
    """A driver of the host, and what it launches.

    Args:
        dtype: of its products.
        weights: the dtype in which kernels keep weights.
        precision: that operands of products on tensor cores are rounded to; empty where there are none.
        folds: that pointwise kernels call, besides those that all modules have.
        programs: pointwise kernels, which lanes of a block call together or each by itself.
        driver: launches kernels and products of `arrays`.
        sizes: names of the numbers that driver and kernels read, in order.
    """

    dtype: str
    weights: str
    folds: tuple[LaneFold, ...]
    programs: tuple[Function, ...]
    kernels: tuple[DeviceKernel, ...]
    driver: Function
    arrays: tuple[Parameter, ...]
    sizes: tuple[str, ...]
    precision: str = ""


Value = TypeVar("Value")
AnyModule = TypeVar("AnyModule", bound=Module | DeviceModule)
NAMES = ("name", "buffer")  # fields that name variables and memory


def beside(blob: str) -> str:
    """A comment that names the blob in an array. It is empty if a character of the name could end the line."""
    return f"  # {' '.join(blob.split())}" if blob.isprintable() and blob else ""


def shown(module: AnyModule) -> AnyModule:
    """The same module; its pointwise kernels use names of blobs."""
    return replace(module, programs=tuple(map(_shown, module.programs)))


def _shown(program: Function) -> Function:
    labels = [(one.name, one.blob) for one in program.parameters if one.is_memory]
    labels += [(s.name, s.blob) for s in statements_of(program.body) if isinstance(s, Assign)]
    taken = {one.name for one in program.parameters} | {name for name, _ in labels}
    names = _chosen(labels, taken)
    parameters, body = renamed(program.parameters, names), renamed(program.body, names)
    return replace(program, parameters=parameters, body=body)


def _chosen(labels: Iterable[tuple[str, str]], taken: set[str]) -> dict[str, str]:
    """A name of the IR -> the last part of its blob's name. If several want the same name, the first has it: memory
    comes before variables."""
    chosen: dict[str, str] = {}
    for name, blob in labels:
        label = blob.rsplit("/", 1)[-1]
        if name not in chosen and label not in taken and IDENTIFIER.fullmatch(label) and not keyword.iskeyword(label):
            chosen[name] = label
            taken.add(label)
    return chosen


def renamed(value: Value, names: Mapping[str, str]) -> Value:
    """A value of the IR with other names in it."""
    if isinstance(value, tuple):
        return tuple(renamed(one, names) for one in value)  # type: ignore[return-value]
    if not is_dataclass(value):
        return value
    changed: dict[str, Any] = {}
    for field in fields(value):
        old = getattr(value, field.name)
        changed[field.name] = names.get(old, old) if field.name in NAMES else renamed(old, names)
    return replace(value, **changed)  # type: ignore[type-var]


def fixed_loads(loop: For) -> list[Load]:
    """Elements that every round of a loop loads from the same place. No round writes to their buffer."""
    inside = list(statements_of(loop.body))
    moved = {loop.index, *(s.name for s in inside if isinstance(s, Assign))}
    moved |= {s.index for s in inside if isinstance(s, For)}
    written = {s.buffer for s in inside if isinstance(s, Store)}
    found = [
        load for s in loop.body if isinstance(s, Assign | Store) for e in expressions_of(s) for load in loads_in(e)
    ]
    return [load for load in dict.fromkeys(found) if load.buffer not in written and not names_in(load) & moved]
