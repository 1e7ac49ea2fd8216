"""Pointwise kernels: the elementwise work of a row between two products.

**Sizes** are arguments of a kernel, so that a new width needs no new compilation. Counts of short innermost loops
(`SHORT`) are constants, so that LLVM makes vectors of the whole loop. Kernels over large states have all sizes of a row
as constants. With arguments, their loops over the few vectors of a matrix's row would test as much as they compute, and
sums along columns would go through memory at each row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import index
from types import MappingProxyType

import numpy as np

from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.lower.expressions import (
    INDEX,
    CastExpr,
    Constants,
    Expr,
    Literal,
    Load,
    Name,
    Negated,
    OperandPlace,
    ScalarCall,
    any_of,
    as_index,
    both,
    choice,
    compare,
    expression_of,
    inside,
    places_of_operands,
    scalar_expression,
    total,
    typed_expression,
)
from rnnops.compiler.lower.statements import FORMS, Access, Layout, Number, Statement, operands_of
from rnnops.compiler.schedule.loop_nests import Nest, is_register_fold
from rnnops.compiler.schedule.product_axes import CalledMatrix, MatrixCall
from rnnops.net.loop_forms import Reduction
from rnnops.net.schema import form_of
from rnnops.ops.linear_algebra import BYTES, INT8
from rnnops.types import BOOL, FLOATS, Shape, Type

Fold = Callable[[Expr, Expr], Expr]
FOLDED: Mapping[str, Fold] = {  # in registers, in any order
    "add": lambda acc, x: _added(acc, x),
    "max": lambda acc, x: ScalarCall("larger", (acc, x), dtype=acc.dtype),
    "min": lambda acc, x: ScalarCall("smaller", (acc, x), dtype=acc.dtype),
    "or": lambda acc, x: any_of(acc, x),
    "and": lambda acc, x: both(acc, x),
}
FOLDED_IN_MEMORY: Mapping[str, Fold] = {
    **FOLDED,
    "add": lambda acc, x: acc + x if acc.dtype in FLOATS else _added(acc, x),  # integers wrap in any order
}
SCALAR_KINDS = {"t": "int32", "status": "int64*"}  # others are int64
ZERO, ONE = Literal(0), Literal(1)
FEW, MANY = 4, 8  # elements: at most on an axis that is written out; at least in the loop around it, for vectors
SHORT = 32  # elements of an innermost loop whose count is a constant, so that LLVM makes vectors of all of it
NOTHING: Mapping[str, str] = MappingProxyType({})

Element = tuple[str, int, tuple[int, ...]]


class SizeArguments:
    """Whole numbers that a generated module gets as arguments. 0, 1 and -1 are constants in its text."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._places: dict[tuple[bool, int], int] = {}  # a number, or the id of a symbol -> its place in `values`

    def of(self, value: int) -> Expr:
        if value in (0, 1, -1):
            return Literal(value)
        # a symbol is known by its object: that it equals a number now is chance
        key = (True, value) if type(value) is int else (False, id(value))
        number = self._places.setdefault(key, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return Name(f"c{number}")


@dataclass
class PointwiseKernel:
    """One pointwise kernel and its parameters.

    Args:
        name: of the function.
        pointers: owner -> parameter.
        sizes: names of the sizes it takes.
        scalars: names of further numbers it takes (`n`, `t`, ...).
        body: its statements.
        folds: folds over lanes of a device that only this kernel has.
    """

    name: str
    pointers: dict[str, str] = field(default_factory=dict)
    sizes: list[str] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    body: list[ir.Statement] = field(default_factory=list)
    folds: list[ir.LaneFold] = field(default_factory=list)

    def function(self, types: Mapping[str, Type]) -> ir.Function:
        """The kernel as a function.

        Args:
            types: of owners.
        """
        scalars = [ir.Parameter(name, SCALAR_KINDS.get(name, INDEX)) for name in self.scalars]
        pointers = [ir.Parameter(name, f"{_stored(types[owner])}*", owner) for owner, name in self.pointers.items()]
        return ir.Function(self.name, (*scalars, *pointers, *map(ir.Parameter, self.sizes)), tuple(self.body))


class PointwiseWriter:
    """Writes the nests of one pointwise kernel."""

    writes_out = True  # whether loops over few elements are written out

    def __init__(
        self,
        name: str,
        types: Mapping[str, Type],
        batch_axes: Mapping[str, int],
        stored: Collection[str],
        scalars: Mapping[str, str],
        sizes: SizeArguments,
        constants: Constants,
        aliases: Mapping[str, str] = NOTHING,
    ) -> None:
        self.result = PointwiseKernel(name)
        self.aliases = aliases  # owner -> the one whose memory it shares
        self.types, self.batch_axes, self.stored, self.known_scalars = types, batch_axes, stored, scalars
        self.module_sizes, self.constants = sizes, constants
        self.variables: dict[str, Expr] = {}  # owner with one element in a row -> its variable
        self.writes: Counter[str] = Counter()
        self.lines: list[ir.Statement] = []  # of the loop that is being written
        self.count = 0

    def write(self, nests: Sequence[Nest]) -> PointwiseKernel:
        self.writes = Counter(s.target.owner for nest in nests for s in nest.statements)
        for nest, needed in zip(nests, _read_elsewhere(nests), strict=True):
            self._nest(nest, needed)
        if "status" in self.result.scalars:
            wrong = Name("wrong")
            told = ir.If(wrong > 0, (ir.Store("status", ZERO, ONE),))
            self.lines = [ir.Assign("wrong", ZERO), *self.lines, told]
        self.result.body = self.lines
        return self.result

    # -- nests ---------------------------------------------------------------------------------------------------

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        if nest.call:
            self.lines += self._product(nest.statements[0], nest.call)
            return
        self.local: dict[Element, Expr] = {}  # what this nest has computed or loaded -> variable
        self.written_out = self._short_axes(nest)
        self.places: dict[int, int] = {}  # axis that is written out -> its element
        registers = [s for s in nest.statements if is_register_fold(s) and s.folded_axes()]
        self.accumulators: dict[int, Name] = {}
        self._level(nest, 0, registers, needed)

    def _product(self, statement: Statement, call: MatrixCall) -> Sequence[ir.Statement]:
        """Calls of a product, in loops over the axes that are not part of its matrices."""
        lines = self._sum_of_products(call, call.folds, statement.start is None, statement.extents)
        for axis in reversed(call.loops):
            lines = (ir.For(f"i{axis}", ZERO, self._size(statement.extents[axis]), ONE, tuple(lines)),)
        return lines

    def _sum_of_products(
        self, call: MatrixCall, folds: Sequence[int], adds: bool, extents: Shape
    ) -> Sequence[ir.Statement]:
        """Calls along folded axes. All but the first add to the result."""
        if not folds:
            matrices = [self._matrix(one, (*call.loops, *call.folds)) for one in call.operands]
            rows, columns = (self._size(size) for size in (call.operands[2].rows, call.operands[2].columns))
            return (ir.Do(call.function, (*matrices, Literal(adds, dtype=BOOL), ZERO, rows, ZERO, columns)),)
        (axis, *others), size = folds, self._size(extents[folds[0]])
        parts = ((ZERO, size, True),) if adds else ((ZERO, ONE, False), (ONE, size, True))
        return tuple(
            ir.For(f"i{axis}", first, last, ONE, tuple(self._sum_of_products(call, others, more, extents)))
            for first, last, more in parts
        )

    def _matrix(self, one: CalledMatrix, loops: Sequence[int]) -> ir.MatrixOperand:
        layout, size = one.access.layout, self._size
        column = layout.offset % one.stride
        terms = {False: [size(layout.offset - column)], True: [size(column)]}  # of rows, and of columns
        for axis in loops:
            if layout.strides[axis]:
                terms[layout.strides[axis] < one.stride].append(self._times(axis, layout.strides[axis]))
        start, along = (total([term for term in terms[inside] if term != ZERO]) for inside in (False, True))
        sizes = size(one.rows), size(one.stride), along, size(one.columns)
        return ir.MatrixOperand(self._pointer(one.access.owner), start, *sizes)

    def _level(self, nest: Nest, depth: int, registers: list[Statement], needed: Collection[str]) -> None:
        starting = [s for s in registers if min(s.folded_axes()) == depth]
        for statement in starting:
            self._start_register(statement)
        if depth in self.written_out:
            for place in range(nest.extents[depth]):
                self.places[depth] = place
                self._level(nest, depth + 1, registers, needed)
            del self.places[depth]
        elif depth < len(nest.extents):
            begin, end, step = self._range(nest, depth)
            outside, self.lines = self.lines, []
            self._level(nest, depth + 1, registers, needed)
            self.lines = [*outside, ir.For(f"i{depth}", begin, end, step, tuple(self.lines))]
        else:
            for statement in nest.statements:
                self._statement(statement, depth, needed)
        for statement in starting:
            self._finish_register(statement, depth, needed)

    def _short_axes(self, nest: Nest) -> range:
        """The last axes, if they have few elements each and the axis before them has many.

        Loops over them are written out. The loop around them is then the innermost one and becomes vectors. There are
        no such axes if a sum folds some of them and other axes, too: a loop may add to a sum only once in a round.
        """
        first = count = len(nest.extents)
        while self.writes_out and first > 0 and nest.extents[first - 1] <= FEW:
            first -= 1
        inside = prod(nest.extents[first:]) <= FEW * FEW
        short = range(first, count) if first > 0 and inside and nest.extents[first - 1] >= MANY else range(0)
        folded = [[axis in short for axis in statement.folded_axes()] for statement in nest.statements]
        return range(0) if any(any(axes) and not all(axes) for axes in folded) else short

    def _range(self, nest: Nest, depth: int) -> tuple[Expr, Expr, Expr]:
        """Begin, end and step of a loop."""
        extent = nest.extents[depth]
        is_innermost = depth + 1 + len(self.written_out) == len(nest.extents)
        is_constant = is_innermost and type(extent) is int and extent <= SHORT
        return ZERO, Literal(extent) if is_constant else self._size(extent), ONE

    def _start_register(self, statement: Statement) -> None:
        start = 0 if statement.start is None else statement.start
        self.accumulators[id(statement)] = self._variable(self.constants.of(start, statement.dtype), statement.blob)

    def _finish_register(self, statement: Statement, depth: int, needed: Collection[str]) -> None:
        name = self.accumulators[id(statement)]
        if statement.start is None:
            self._add(statement, name, depth)
        else:
            self._keep(statement, name, depth, needed)

    def _add(self, statement: Statement, value: Expr, depth: int) -> None:
        """Join the value in a register with the value in memory."""
        place, old = self._in_memory(statement.target, depth)
        self._store(place, self._joined(statement, old, value, FOLDED_IN_MEMORY), statement, depth)

    def _statement(self, statement: Statement, depth: int, needed: Collection[str]) -> None:
        if id(statement) in self.accumulators:
            name = self.accumulators[id(statement)]
            in_order = all(axis in self.written_out for axis in statement.folded_axes())
            folds = FOLDED_IN_MEMORY if in_order else FOLDED
            self.lines.append(ir.Assign(name.name, self._folded(statement, name, depth, folds)))
            return
        if statement.fold and statement.start is None:
            self._accumulate(statement, depth)
            return
        self._keep(statement, self._variable(self._value(statement, depth), statement.blob), depth, needed)

    def _accumulate(self, statement: Statement, depth: int) -> None:
        """Join a value with what lies in memory."""
        place, old = self._in_memory(statement.target, depth)
        self._store(place, self._folded(statement, old, depth, FOLDED_IN_MEMORY), statement, depth)

    def _in_memory(self, access: Access, depth: int) -> tuple[Load, Expr]:
        """An element of memory, and its value."""
        place = self._element(access, depth)
        return place, compare("!=", place, 0) if self.types[access.owner].dtype == BOOL else place

    def _folded(self, statement: Statement, old: Expr, depth: int, folds: Mapping[str, Fold]) -> Expr:
        """An accumulator joined with the statement's value. In a sum of products, that is one multiply-add."""
        if statement.form == "product" and statement.fold == "add":
            factors = [self._factor(statement, o, depth) for o in statement.operands if isinstance(o, Access)]
            function = "add_product_any_order" if folds is FOLDED else "add_product"
            return ScalarCall(function, (old, *factors), dtype=statement.dtype)
        return self._joined(statement, old, self._value(statement, depth), folds)

    def _joined(self, statement: Statement, old: Expr, value: Expr, folds: Mapping[str, Fold]) -> Expr:
        if statement.fold in folds:
            return folds[statement.fold](old, value)
        return self._combined(statement, self._variable(old), self._variable(value))

    def _combined(self, statement: Statement, a: Expr, b: Expr) -> Expr:
        """Two numbers joined as the `combine` of a loop form says."""
        places = {"a": OperandPlace(a, statement.dtype), "b": OperandPlace(b, statement.dtype)}
        return expression_of(statement.made_by(), statement.fold, places, statement.dtype, self.constants)

    def _keep(self, statement: Statement, value: Expr, depth: int, needed: Collection[str]) -> None:
        """Remember a value under its owner. Store it, too, if other nests, kernels or products read it from memory."""
        owner = statement.target.owner
        scalar = depth == 0 and self._is_scalar(owner)
        if scalar:
            self.variables[owner] = value
        if owner in self.stored or (owner in needed and not scalar) or statement.target.index is not None:
            self._write(depth, self._stored(self._element(statement.target, depth), value, owner))
        if not scalar and statement.target.index is None:
            self.local[self._key(statement.target)] = value

    def _is_scalar(self, owner: str) -> bool:
        """True if a row has only one element of an owner, which is written once."""
        axis = self.batch_axes.get(owner)
        return self.writes[owner] == 1 and all(size == 1 for i, size in enumerate(self.types[owner].shape) if i != axis)

    def _store(self, place: Load, value: Expr, statement: Statement, depth: int) -> None:
        """Store a value that was joined with memory. From now on, elements of its owner are loaded anew."""
        owner = statement.target.owner
        self._write(depth, self._stored(place, value, owner))
        self.local = {key: known for key, known in self.local.items() if key[0] != owner}

    def _stored(self, place: Load, value: Expr, owner: str) -> ir.Store:
        return ir.Store(place.buffer, place.index, value, owner)

    # -- values --------------------------------------------------------------------------------------------------

    def _factor(self, statement: Statement, access: Access, depth: int) -> Expr:
        """An operand; rounded if the statement is a rounded product. In products of whole numbers it is a float with
        the whole number as its value."""
        operand = self._operand(access, depth)
        if statement.rounding in ("", INT8, BYTES):
            return operand
        return ScalarCall(f"round_{statement.rounding}", (operand,), dtype=operand.dtype)

    def _value(self, statement: Statement, depth: int) -> Expr:
        operands = [self._factor(statement, o, depth) if isinstance(o, Access) else o for o in statement.operands]
        if statement.form == "apply":
            if statement.is_integer_power():
                self._note_wrong(self._typed(operands[1], statement.dtype) < 0)
            return scalar_expression(statement.made_by(), self._with_missing(statement, operands), self.constants)
        if statement.form in ("element", "finish"):
            return self._of_reduction(statement, operands)
        if statement.form == "uniform":
            return self._uniform(statement, depth)
        if statement.form == "labels":
            return self._label(statement, operands[0])
        if statement.form == "dropped":
            return self._dropped(statement, operands)
        text = FORMS.get(statement.form) or " + ".join(f"{{{i}}}" for i in range(len(operands)))
        places = {str(i): self._place(o, statement, i) for i, o in enumerate(operands)}
        return typed_expression(text, places, statement.dtype, self.constants)

    def _of_reduction(self, statement: Statement, operands: Sequence[Expr | Number]) -> Expr:
        """The contribution of an element to a fold, or the result of the fold."""
        call = statement.made_by()
        form = form_of(call)
        assert isinstance(form, Reduction)
        if statement.form == "finish":
            text, places = (
                form.finish,
                {"acc": self._place(operands[0], statement, 0), "count": OperandPlace(operands[1])},
            )
        else:
            given = dict(zip(operands_of(form), operands, strict=True))
            text = form.element
            places = places_of_operands(call, [given.get(i, 0) for i in range(len(call.types))])
        return expression_of(call, text, places, statement.dtype, self.constants)

    def _place(self, operand: Expr | Number, statement: Statement, i: int) -> OperandPlace:
        original = statement.operands[i]
        dtype = self.types[original.owner].dtype if isinstance(original, Access) else statement.dtype
        return OperandPlace(operand, dtype)

    def _with_missing(self, statement: Statement, operands: Sequence[Expr | Number]) -> list[Expr | Number]:
        """An operand for each input of the op; 0 for an omitted one."""
        given = iter(operands)
        return [next(given) if name else 0 for name in statement.made_by().op.inputs]

    def _operand(self, access: Access, depth: int) -> Expr:
        if access.owner in self.known_scalars:
            return self._scalar(self.known_scalars[access.owner])
        if access.owner in self.variables:
            if access.index is not None:
                self._index(access, depth)  # there is one element, but the index may be wrong
            return self.variables[access.owner]
        key = self._key(access)
        if access.index is None and key in self.local:
            return self.local[key]
        value = self._variable(self._in_memory(access, depth)[1], access.owner)
        if access.index is None:
            self.local[key] = value
        return value

    def _element(self, access: Access, depth: int) -> Load:
        """`p[offset + i0 * stride + ...]`."""
        terms = self._terms(access.layout, depth)
        if access.index is not None:
            terms.append(self._index(access, depth))
        return Load(self._pointer(access.owner), total(terms), dtype=_stored(self.types[access.owner]))

    def _terms(self, layout: Layout, depth: int) -> list[Expr]:
        """The terms of an element's number: its offset, and a term for each axis with several elements."""
        offset, strides = self._outside(layout)
        axes = [axis for axis in range(depth) if strides[axis] and layout.shape[axis] > 1]
        return [*([self._size(offset)] if offset else []), *(self._times(axis, strides[axis]) for axis in axes)]

    def _outside(self, layout: Layout) -> tuple[int, tuple[int, ...]]:
        """Offset and strides of a layout at the places of the axes that are written out."""
        if not self.places:
            return layout.offset, layout.strides
        offset = layout.offset + sum(layout.strides[axis] * place for axis, place in self.places.items())
        return offset, tuple(0 if axis in self.places else stride for axis, stride in enumerate(layout.strides))

    def _key(self, access: Access) -> Element:
        """The key that tells elements of an owner apart within a nest."""
        return access.owner, *self._outside(access.layout)

    def _times(self, axis: int, stride: int) -> Expr:
        place = Name(f"i{axis}")
        if 1 < stride <= FEW:  # a compiler loads every second number by vectors where the stride is in the text
            return place * Literal(index(stride))
        return place if stride == 1 else place * self._size(stride)

    def _index(self, access: Access, depth: int) -> Expr:
        assert access.index is not None
        found, step = as_index(self._operand(access.index, depth)), self._size(access.index_step)
        if access.index_size == 0:
            return found * step
        raw, size = self._variable(found), self._size(access.index_size)
        self._note_wrong(any_of(raw < Negated(size), raw >= size))
        return self._variable(inside(raw, size)) * step

    def _note_wrong(self, test: Expr) -> None:
        """Count a wrong number if a test holds. The kernel then sets `status`, and the interpreter names the number."""
        self._scalar("status")
        wrong = Name("wrong")
        self.lines.append(ir.Assign("wrong", wrong + choice(test, ONE, ZERO)))

    def _label(self, statement: Statement, label: Expr | Number) -> Expr:
        classes, ignored = (statement.made_by().attr(name) for name in ("classes", "ignore_index"))
        value, constant = self._variable(self._typed(label, statement.dtype)), self.constants.of
        test = any_of(value < constant(0, statement.dtype), value >= constant(classes, statement.dtype))
        if ignored is not None and int(np.array(ignored).astype(statement.dtype)) == ignored:
            test = both(test, compare("!=", value, constant(ignored, statement.dtype)))
        self._note_wrong(test)
        return value

    def _uniform(self, statement: Statement, depth: int) -> Expr:
        """A random number, or the bool that keeps an element. The element's number within all rows selects it."""
        (row_size, by_row), layout, call = statement.operands, statement.target.layout, statement.made_by()
        terms = self._terms(layout, depth)
        size = self._size(int(row_size))  # type: ignore[arg-type]
        seed, t, n = (self._scalar(name) for name in ("seed", "draw_t", "n"))
        element = self._variable(total([*terms, *([n * size] if by_row else [])]))
        counter = (seed, self._size(call.attr("ordinal")), t, element // size, element % size)
        drawn = ScalarCall("uniform", counter, dtype="float64")
        if statement.dtype == BOOL:
            stays = compare(">=", drawn, self.constants.of(call.attr("ratio"), "float64"))
            return any_of(compare("==", self._scalar("active"), 0), stays)
        if statement.dtype == "float64":
            return drawn
        many, one = (self.constants.of(2.0**power, "float64") for power in (24, -24))
        cut = (
            ScalarCall("floor", (drawn * many,), dtype="float64") * one
        )  # the bits of a float32, so that none rounds to 1
        return CastExpr(cut, dtype="float32")

    def _typed(self, operand: Expr | Number, dtype: str) -> Expr:
        return operand if isinstance(operand, Expr) else self.constants.of(operand, dtype)

    def _dropped(self, statement: Statement, operands: Sequence[Expr | Number]) -> Expr:
        active, dtype = self._scalar("active"), statement.dtype
        scale = self.constants.of(1.0 / (1.0 - statement.made_by().attr("ratio")), dtype)
        x, mask = self._typed(operands[0], dtype), self._typed(operands[1], BOOL)
        kept = choice(mask, x * scale, self.constants.of(0.0, dtype))
        return choice(compare("!=", active, 0), kept, x)

    # -- names ---------------------------------------------------------------------------------------------------

    def _size(self, value: int) -> Expr:
        size = self.module_sizes.of(value)
        if isinstance(size, Name) and size.name not in self.result.sizes:
            self.result.sizes.append(size.name)
        return size

    def _scalar(self, name: str) -> Name:
        if name not in self.result.scalars:
            self.result.scalars.append(name)
        return Name(name, dtype=SCALAR_KINDS.get(name, INDEX))

    def _pointer(self, owner: str) -> str:
        owner = self.aliases.get(owner, owner)
        return self.result.pointers.setdefault(owner, f"p{len(self.result.pointers)}")

    def _variable(self, value: Expr, blob: str = "") -> Name:
        """A new variable that holds a value, an element of a blob."""
        name = Name(f"v{self.count}", dtype=value.dtype)
        self.count += 1
        self.lines.append(ir.Assign(name.name, value, blob))
        return name

    def _write(self, depth: int, line: ir.Store) -> None:
        """Add a store, within `depth` loops."""
        self.lines.append(line)


def _added(accumulator: Expr, x: Expr) -> Expr:
    return ScalarCall("add_any_order", (accumulator, x), dtype=accumulator.dtype)


def _stored(kind: Type) -> str:
    """The dtype of elements in memory; bools are bytes."""
    return "uint8" if kind.dtype == BOOL else kind.dtype


def _read_elsewhere(nests: Sequence[Nest]) -> list[set[str]]:
    """For each nest the owners that it writes and other nests read."""
    readers: dict[str, set[int]] = {}
    for i, nest in enumerate(nests):
        for owner in _owners_read(nest):
            readers.setdefault(owner, set()).add(i)
    written = [{statement.target.owner for statement in nest.statements} for nest in nests]
    return [{owner for owner in owners if readers.get(owner, set()) - {i}} for i, owners in enumerate(written)]


def _owners_read(nest: Nest) -> Iterator[str]:
    """The owners that statements of a nest read: operands, indices, and targets that folds add to."""
    for statement in nest.statements:
        yield from (access.owner for access in statement.reads())
        if statement.target.index is not None:
            yield statement.target.index.owner
        if statement.fold and statement.start is None:
            yield statement.target.owner


class StateWriter(PointwiseWriter):
    """Writes the nests of one pointwise kernel over a large state."""

    def _size(self, value: int) -> Expr:
        return Literal(index(value))
