"""Row programs as text: one function of pointers and sizes for all elementwise work between two products of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rnnops.compiler.scalar_text import (
    Constants,
    Place,
    expression_of,
    places_of_operands,
    scalar_expression,
    typed_expression,
)
from rnnops.compiler.scan.nests import Nest, is_register_fold
from rnnops.compiler.scan.statements import FORMS, Access, Number, Statement, operands_of
from rnnops.loops import Reduction
from rnnops.schema import form_of
from rnnops.types import BOOL, Type

INDENT = "    "
FOLD_TEXT = {
    "add": "add_any_order({acc}, {x})",
    "max": "larger({acc}, {x})",
    "min": "smaller({acc}, {x})",
    "or": "{acc} or {x}",
    "and": "{acc} and {x}",
}
ADD_TO_MEMORY = {**FOLD_TEXT, "add": "{acc} + {x}"}


SCALAR_KINDS = {"t": "int32", "status": "int64*"}  # others are int64

Element = tuple[str, int, tuple[int, ...]]


class Sizes:
    """Whole numbers that a generated module gets as arguments; 0 and 1 stand in the text."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def name(self, value: int) -> str:
        if value in (0, 1, -1):
            return str(value)
        if value not in self.values:
            self.values.append(value)
        return f"c{self.values.index(value)}"


@dataclass
class RowText:
    """The text of one row program.

    Args:
        name: of the function.
        pointers: owner -> parameter.
        sizes: names of the sizes it takes.
        scalars: names of further numbers it takes (`n`, `t`, ...).
        lines: of the body.
        functions: texts of those that it calls, beside what all modules have.
    """

    name: str
    pointers: dict[str, str] = field(default_factory=dict)
    sizes: list[str] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)

    def text(self, decorator: str) -> str:
        """The function."""
        parameters = [*self.scalars, *self.pointers.values(), *self.sizes]
        return "\n".join([f"@{decorator}\ndef {self.name}({', '.join(parameters)}):", *self.lines])

    def kinds(self, types: Mapping[str, Type]) -> list[str]:
        """What its parameters are, `float32*` for a pointer.

        Args:
            types: owner -> what it holds.
        """
        pointed = ["uint8" if types[owner].dtype == BOOL else types[owner].dtype for owner in self.pointers]
        scalars = [SCALAR_KINDS.get(name, "int64") for name in self.scalars]
        return [*scalars, *(f"{dtype}*" for dtype in pointed), *["int64"] * len(self.sizes)]


class RowWriter:
    """Writes the nests of one row program."""

    def __init__(
        self,
        name: str,
        types: Mapping[str, Type],
        batch_axes: Mapping[str, int],
        stored: Collection[str],
        scalars: Mapping[str, str],
        sizes: Sizes,
        constants: Constants,
    ) -> None:
        self.result = RowText(name)
        self.types, self.batch_axes, self.stored, self.known_scalars = types, batch_axes, stored, scalars
        self.module_sizes, self.constants = sizes, constants
        self.variables: dict[str, str] = {}  # owners of one element in a row -> variable
        self.writes: Counter[str] = Counter()
        self.count = 0

    def write(self, nests: Sequence[Nest]) -> RowText:
        self.writes = Counter(s.target.owner for nest in nests for s in nest.statements)
        for nest, needed in zip(nests, _read_elsewhere(nests), strict=True):
            self._nest(nest, needed)
        if "status" in self.result.scalars:
            self.result.lines.insert(0, f"{INDENT}wrong = 0")
            self.result.lines += [f"{INDENT}if wrong > 0:", f"{INDENT * 2}status[0] = 1"]
        if not self.result.lines:
            self.result.lines.append(f"{INDENT}pass")
        return self.result

    # -- nests ---------------------------------------------------------------------------------------------------

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.local: dict[Element, str] = {}  # what this nest has computed or loaded -> variable
        registers = [s for s in nest.statements if is_register_fold(s) and s.folded_axes()]
        self.accumulators: dict[int, str] = {}
        self._level(nest, 0, registers, needed)

    def _level(self, nest: Nest, depth: int, registers: list[Statement], needed: Collection[str]) -> None:
        starting = [s for s in registers if min(s.folded_axes()) == depth]
        for statement in starting:
            self._start_register(statement, depth)
        if depth < len(nest.extents):
            self._line(depth, self._loop(nest, depth))
            self._level(nest, depth + 1, registers, needed)
        else:
            for statement in nest.statements:
                self._statement(statement, depth, needed)
        for statement in starting:
            self._finish_register(statement, depth, needed)

    def _loop(self, nest: Nest, depth: int) -> str:
        return f"for i{depth} in range({self._size(nest.extents[depth])}):"

    def _start_register(self, statement: Statement, depth: int) -> None:
        start = 0 if statement.start is None else statement.start
        name = self._variable()
        self.accumulators[id(statement)] = name
        self._line(depth, f"{name} = {self.constants.name(start, statement.dtype)}")

    def _finish_register(self, statement: Statement, depth: int, needed: Collection[str]) -> None:
        name = self.accumulators[id(statement)]
        if statement.start is None:
            self._add(statement, name, depth)
        else:
            self._keep(statement, name, depth, needed)

    def _add(self, statement: Statement, name: str, depth: int) -> None:
        """Join what a register has gathered with what lies in memory."""
        place = self._element(statement.target, depth)
        old = f"({place} != 0)" if self.types[statement.target.owner].dtype == BOOL else place
        self._write(depth, f"{place} = {self._joined(statement, old, name, depth, ADD_TO_MEMORY)}")
        self.local = {key: known for key, known in self.local.items() if key[0] != statement.target.owner}

    def _statement(self, statement: Statement, depth: int, needed: Collection[str]) -> None:
        if id(statement) in self.accumulators:
            name = self.accumulators[id(statement)]
            self._line(depth, f"{name} = {self._folded(statement, name, depth, FOLD_TEXT)}")
            return
        if statement.fold and statement.start is None:
            self._accumulate(statement, depth)
            return
        name = self._variable()
        self._line(depth, f"{name} = {self._value(statement, depth)}")
        self._keep(statement, name, depth, needed)

    def _accumulate(self, statement: Statement, depth: int) -> None:
        """Join a value with what lies in memory."""
        place = self._element(statement.target, depth)
        old = f"({place} != 0)" if self.types[statement.target.owner].dtype == BOOL else place
        self._write(depth, f"{place} = {self._folded(statement, old, depth, ADD_TO_MEMORY)}")
        self.local = {key: name for key, name in self.local.items() if key[0] != statement.target.owner}

    def _folded(self, statement: Statement, old: str, depth: int, texts: Mapping[str, str]) -> str:
        """An accumulator joined with the statement's value; sums of products are multiply-adds."""
        if statement.form == "product" and statement.fold == "add":
            factors = ", ".join(self._operand(o, depth) for o in statement.operands if isinstance(o, Access))
            return f"{'add_product_any_order' if texts is FOLD_TEXT else 'add_product'}({old}, {factors})"
        return self._joined(statement, old, self._value(statement, depth), depth, texts)

    def _joined(self, statement: Statement, old: str, value: str, depth: int, texts: Mapping[str, str]) -> str:
        if statement.fold in texts:
            return texts[statement.fold].format(acc=old, x=value if value.isidentifier() else f"({value})")
        return self._combined(statement, self._named(old, depth), self._named(value, depth))

    def _combined(self, statement: Statement, a: str, b: str) -> str:
        """Two numbers joined as the `combine` of a loop form says."""
        places = {"a": Place(a, statement.dtype), "b": Place(b, statement.dtype)}
        return expression_of(statement.made_by(), statement.fold, places, statement.dtype, self.constants)

    def _named(self, value: str, depth: int) -> str:
        name = self._variable()
        self._line(depth, f"{name} = {value}")
        return name

    def _keep(self, statement: Statement, name: str, depth: int, needed: Collection[str]) -> None:
        """Remember a value under its owner, and store it where others read it from memory."""
        owner = statement.target.owner
        scalar = depth == 0 and self._is_scalar(owner)
        if scalar:
            self.variables[owner] = name
        if owner in self.stored or (owner in needed and not scalar) or statement.target.index is not None:
            self._store(statement, name, depth)
        if not scalar and statement.target.index is None:
            self.local[element(statement.target)] = name

    def _is_scalar(self, owner: str) -> bool:
        """Whether a row has but one element of it, written once."""
        axis = self.batch_axes.get(owner)
        return self.writes[owner] == 1 and all(size == 1 for i, size in enumerate(self.types[owner].shape) if i != axis)

    def _store(self, statement: Statement, value: str, depth: int) -> None:
        self._write(depth, f"{self._element(statement.target, depth)} = {value}")

    # -- values --------------------------------------------------------------------------------------------------

    def _value(self, statement: Statement, depth: int) -> str:
        operands = [self._operand(o, depth) if isinstance(o, Access) else o for o in statement.operands]
        if statement.form == "apply":
            return scalar_expression(statement.made_by(), self._with_missing(statement, operands), self.constants)
        if statement.form in ("element", "finish"):
            return self._of_reduction(statement, operands)
        if statement.form == "uniform":
            return self._uniform(statement, depth)
        if statement.form == "labels":
            return self._label(statement, operands[0], depth)
        if statement.form == "dropped":
            return self._dropped(statement, operands)
        text = FORMS.get(statement.form) or " + ".join(f"{{{i}}}" for i in range(len(operands)))
        places = {str(i): self._place(o, statement, i) for i, o in enumerate(operands)}
        return typed_expression(text, places, statement.dtype, self.constants)

    def _of_reduction(self, statement: Statement, operands: Sequence[str | Number]) -> str:
        """What an element contributes to a fold, or what is made of all of them."""
        call = statement.made_by()
        form = form_of(call)
        assert isinstance(form, Reduction)
        if statement.form == "finish":
            text, places = form.finish, {"acc": self._place(operands[0], statement, 0), "count": Place(operands[1])}
        else:
            given = dict(zip(operands_of(form), operands, strict=True))
            text = form.element
            places = places_of_operands(call, [given.get(i, 0) for i in range(len(call.types))])
        return expression_of(call, text, places, statement.dtype, self.constants)

    def _place(self, operand: str | Number, statement: Statement, i: int) -> Place:
        original = statement.operands[i]
        dtype = self.types[original.owner].dtype if isinstance(original, Access) else statement.dtype
        return Place(operand, dtype)

    def _with_missing(self, statement: Statement, operands: Sequence[str | Number]) -> list[str | Number]:
        """Operands in the places of the op's inputs, with 0 for optional ones that were left out."""
        given = iter(operands)
        return [next(given) if name else 0 for name in statement.made_by().op.inputs]

    def _operand(self, access: Access, depth: int) -> str:
        if access.owner in self.known_scalars:
            return self._scalar(self.known_scalars[access.owner])
        if access.owner in self.variables:
            if access.index is not None:
                self._index(access, depth)  # there is one element, but the index may be wrong
            return self.variables[access.owner]
        key = element(access)
        if access.index is not None or key not in self.local:
            name, place = self._variable(), self._element(access, depth)
            test = " != 0" if self.types[access.owner].dtype == BOOL else ""
            self._line(depth, f"{name} = {place}{test}")
            if access.index is not None:
                return name
            self.local[key] = name
        return self.local[key]

    def _element(self, access: Access, depth: int) -> str:
        """`p[offset + i0 * stride + ...]`."""
        terms = [self._size(access.layout.offset)] if access.layout.offset else []
        for axis, stride in enumerate(access.layout.strides[:depth]):
            if stride and access.layout.shape[axis] > 1:
                terms.append(f"i{axis}" if stride == 1 else f"i{axis} * {self._size(stride)}")
        if access.index is not None:
            terms.append(self._index(access, depth))
        return f"{self._pointer(access.owner)}[{' + '.join(terms) or '0'}]"

    def _index(self, access: Access, depth: int) -> str:
        assert access.index is not None
        raw, step = self._operand(access.index, depth), self._size(access.index_step)
        if access.index_size == 0:
            return f"{raw} * {step}"
        name, size = self._variable(), self._size(access.index_size)
        self._note_wrong(f"({raw} < -{size}) | ({raw} >= {size})", depth)
        self._line(depth, f"{name} = inside({raw}, {size})")
        return f"{name} * {step}"

    def _note_wrong(self, test: str, depth: int) -> None:
        """Count what is out of range; the function tells by its status, and the reference says what it was."""
        self._scalar("status")
        self._line(depth, f"wrong += {test}")

    def _label(self, statement: Statement, label: str | Number, depth: int) -> str:
        classes, ignored = (statement.made_by().attr(name) for name in ("classes", "ignore_index"))
        name, zero = self._variable(), self.constants.name(0, statement.dtype)
        self._line(depth, f"{name} = {self._text(label, statement.dtype)}")
        test = f"({name} < {zero}) | ({name} >= {self.constants.name(classes, statement.dtype)})"
        if ignored is not None and int(np.array(ignored).astype(statement.dtype)) == ignored:
            test = f"({test}) & ({name} != {self.constants.name(ignored, statement.dtype)})"
        self._note_wrong(test, depth)
        return name

    def _uniform(self, statement: Statement, depth: int) -> str:
        """A random number, or whether it lets an element stay: its number within all rows says which is its own."""
        (row_size, by_row), layout, call = statement.operands, statement.target.layout, statement.made_by()
        terms = [self._size(layout.offset)] if layout.offset else []
        for axis, stride in enumerate(layout.strides[:depth]):
            terms.append(f"i{axis}" if stride == 1 else f"i{axis} * {self._size(stride)}")
        size, element = self._size(int(row_size)), self._variable()  # type: ignore[arg-type]
        seed, t, n = (self._scalar(name) for name in ("seed", "draw_t", "n"))
        self._line(depth, f"{element} = {' + '.join([*terms, *([f'{n} * {size}'] if by_row else [])]) or '0'}")
        drawn = f"uniform({seed}, {self._size(call.attr('ordinal'))}, {t}, {element} // {size}, {element} % {size})"
        if statement.dtype == "bool":
            ratio = self.constants.name(call.attr("ratio"), "float64")
            return f"{self._scalar('active')} == 0 or {drawn} >= {ratio}"
        if statement.dtype == "float64":
            return drawn
        many, one = (self.constants.name(2.0**power, "float64") for power in (24, -24))
        return f"np.float32(floor({drawn} * {many}) * {one})"  # the bits of a float32, so that none rounds to 1

    def _text(self, operand: str | Number, dtype: str) -> str:
        return operand if isinstance(operand, str) else self.constants.name(operand, dtype)

    def _dropped(self, statement: Statement, operands: Sequence[str | Number]) -> str:
        active = self._scalar("active")
        scale = self.constants.name(1.0 / (1.0 - statement.made_by().attr("ratio")), statement.dtype)
        zero = self.constants.name(0.0, statement.dtype)
        x, mask = operands
        x = self._text(x, statement.dtype)
        return f"({x} * {scale} if {mask} else {zero}) if {active} != 0 else {x}"

    # -- names ---------------------------------------------------------------------------------------------------

    def _size(self, value: int) -> str:
        name = self.module_sizes.name(value)
        if name.startswith("c") and name not in self.result.sizes:
            self.result.sizes.append(name)
        return name

    def _scalar(self, name: str) -> str:
        if name not in self.result.scalars:
            self.result.scalars.append(name)
        return name

    def _pointer(self, owner: str) -> str:
        return self.result.pointers.setdefault(owner, f"p{len(self.result.pointers)}")

    def _variable(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def _write(self, depth: int, text: str) -> None:
        """A line that writes to memory."""
        self._line(depth, text)

    def _line(self, depth: int, text: str) -> None:
        self.result.lines.append(INDENT * (depth + 1) + text)


def element(access: Access) -> Element:
    """What tells one element of an owner from another within a nest."""
    return access.owner, access.layout.offset, access.layout.strides


def _read_elsewhere(nests: Sequence[Nest]) -> list[set[str]]:
    """For each nest the owners that it writes and whose values other nests, or other elements, read from memory."""
    readers: dict[str, set[int]] = {}
    for i, nest in enumerate(nests):
        for owner in _owners_read(nest):
            readers.setdefault(owner, set()).add(i)
    written = [{statement.target.owner for statement in nest.statements} for nest in nests]
    return [{owner for owner in owners if readers.get(owner, set()) - {i}} for i, owners in enumerate(written)]


def _owners_read(nest: Nest) -> Iterator[str]:
    """What statements of a nest read from memory: operands, indices, and sums that go on."""
    for statement in nest.statements:
        yield from (access.owner for access in statement.reads())
        if statement.target.index is not None:
            yield statement.target.index.owner
        if statement.fold and statement.start is None:
            yield statement.target.owner
