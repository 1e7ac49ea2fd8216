"""Sizes that a file leaves open: names, probes of shapes, and shapes that cannot be known.

**`KnownSizes`**: a shape that nothing before a run can decide is refused while the file is read. What may be known is
constants, sizes of arrays, and integer arithmetic on them, whatever the sizes will be. It is decided only from ops and
dtypes, so that it holds for every run; whether the sizes then fit is another matter.

**What is known of shapes while a file is read**: inference with made-up sizes for whatever the file leaves open. Each
open size gets two numbers that occur nowhere else, and types are inferred twice. A size that comes out equal both times
is fixed; two sizes that are equal both times are one size. Where made-up sizes do not broadcast, as those of a table of
places that is cut to a sequence's length, the result has another open size there. Where inference fails otherwise the
type is unknown, and so is all that follows from it: nothing is guessed, and no array of data is ever made.

That a value comes out equal both times proves little: `min(T, 100)` is 100 for both of the large sizes. So what depends
on no made-up size at all is remembered by name; only that is certain, and an op that fails only on it fails always.

**Sizes that a file leaves open**: what they are called, and fixing them as though the file had them. An open size has
the name that the file gives it, else `INPUT.AXIS`, as in `x.0`. Those of outputs and of graphs inside the graph are
none that a caller can name: they follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, NoReturn, TypeAlias

import numpy as np
import onnx

from rnnops.errors import OnnxError, RnnopsError
from rnnops.net.infer import calls_of, infer_call, is_integer_arithmetic
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.net.schema import Call, schema_of
from rnnops.ops.base import Binary, Variadic
from rnnops.types import FLOAT, Array, Type, broadcast_shapes

ALWAYS_KNOWN = ("Constant", "Shape")


class KnownSizes:
    """Which blobs of a net may be known before a run, and what keeps the others from being known.

    Args:
        net: the net that a file is read into.
        is_body: whether it is the body of a Scan, whose inputs differ from step to step.
    """

    def __init__(self, net: Net, is_body: bool) -> None:
        self._net, self._is_body, self._seen = net, is_body, 0
        self._known: set[str] = set()
        self._sources: dict[str, str] = {}  # of each other blob that an op makes: an input of the net, or an op

    def check(self) -> None:
        """Look at the ops appended since the last time. Raises OnnxError for one whose shape can never be known."""
        first, self._seen = self._seen, len(self._net.ops)
        for op in self._net.ops[first:]:
            schema = schema_of(op.type)
            for port, name in zip((port.rstrip("?*") for port in schema.inputs), op.inputs, strict=False):
                if name and port in schema.static and name not in self._known:
                    self._refuse(op, port, name)
            self._add(op)

    def source(self, name: str) -> str | None:
        """The source that keeps a blob from being known before a run; None if it is known."""
        self.check()
        return None if name in self._known else self._sources.get(name, name)

    def _add(self, op: Op) -> None:
        names = [name for name in op.outputs if name]
        dtypes = [self._net.blob(name).dtype for name in names]
        if op.type in ALWAYS_KNOWN or is_integer_arithmetic(op, dtypes, self._known):
            self._known.update(names)
        elif is_integer_arithmetic(op, dtypes, set(op.inputs)):  # it would be known if its inputs were
            unknown = next(name for name in op.inputs if name and name not in self._known)
            self._sources.update(dict.fromkeys(names, self._sources.get(unknown, unknown)))
        else:
            self._sources.update(dict.fromkeys(names, op.label))

    def _refuse(self, op: Op, port: str, name: str) -> NoReturn:
        source = self._sources.get(name, name)
        kind = "input" if source in self._net.input_names else "the result of"
        hint = "Only constants, sizes of arrays and integer arithmetic on them are known then."
        if kind == "input" and not self._is_body and source not in {spec.name for spec in self._net.parameters}:
            hint += f" If it is the same in all runs, give it: load(path, constants={{'{source}': ...}})."
        raise OnnxError(
            f"input '{port}' decides a shape, but cannot be known before a run",
            op=op.label,
            blob=name,
            came=f"what follows from {kind} '{source}'" + (" of the body" if self._is_body else ""),
            hint=hint,
        )


Dims: TypeAlias = tuple[int | str | None, ...]  # a size, the name of one, or an unknown one
Known: TypeAlias = tuple[Type, Type]

FIRST, STEP = (12 * 101, 12 * 151), (12 * 2, 12 * 3)  # multiples of 12, so that gates can be split off


class MadeUpSizes:
    """The made-up sizes of one model, by name.

    Args:
        first, step: numbers of the first size, and how much more those of the next are.
    """

    def __init__(self, first: tuple[int, int] = FIRST, step: tuple[int, int] = STEP) -> None:
        self._numbers = (count(first[0], step[0]), count(first[1], step[1]))
        self._named: dict[str, tuple[int, int]] = {}
        self.made_up: set[int] = set()  # the first number of each open size

    def pair(self, dim: int | str | None) -> tuple[int, int]:
        """A size twice, or the two numbers that stand for an open one."""
        if isinstance(dim, int):
            return dim, dim
        if dim in self._named:
            return self._named[dim]
        fresh = (next(self._numbers[0]), next(self._numbers[1]))
        self.made_up.add(fresh[0])
        return fresh if dim is None else self._named.setdefault(dim, fresh)

    def named(self) -> dict[tuple[int, int], str]:
        """Which two numbers stand for which name."""
        return {pair: name for name, pair in self._named.items()}


class Probes:
    """Types and values of a net's blobs, as far as they follow."""

    def __init__(self, sizes: MadeUpSizes, float_dtype: str) -> None:
        self.sizes, self.float_dtype = sizes, float_dtype
        self._types: dict[str, Known] = {}
        self._values: dict[str, tuple[Array, Array]] = {}
        self._certain: set[str] = set()  # blobs whose types, and values, depend on no made-up size
        self._seen = 0

    def declare(self, name: str, dtype: str, dims: Sequence[int | str | None]) -> None:
        """Say what an input is."""
        pairs = [self.sizes.pair(dim) for dim in dims]
        kind = self.float_dtype if dtype == FLOAT else dtype
        known = Type(kind, tuple(a for a, _ in pairs)), Type(kind, tuple(b for _, b in pairs))
        self.give(name, known, all(isinstance(dim, int) for dim in dims))

    def give(self, name: str, known: Known | None, certain: bool = False) -> None:
        """Say what an input is, both times, and whether that depends on no made-up size."""
        if known is not None:
            self._types[name] = known
        if certain:
            self._certain.add(name)

    def give_value(self, name: str, value: Array) -> None:
        """Say what a constant input holds."""
        self._values[name] = value, value

    def follow(self, net: Net) -> None:
        """Infer the ops that were appended since the last time. Raises what an op raises that can never run."""
        first, self._seen = self._seen, len(net.ops)
        for op in net.ops[first:]:
            inputs = [name for name in op.inputs if name]
            certain = self._certain.issuperset(inputs)
            if all(name in self._types for name in inputs):
                self._infer(net, op, certain)
            self._certain.update(op.outputs if certain else ())

    def known(self, name: str) -> Known | None:
        """A blob's type with either choice of sizes, None where it is unknown."""
        return self._types.get(name)

    def is_certain(self, name: str) -> bool:
        """True if a blob's type depends on no made-up size."""
        return name in self._certain

    def certain_value(self, name: str) -> Array | None:
        """A blob's value where it follows only from constants and fixed sizes."""
        return self._values[name][0] if name in self._certain and name in self._values else None

    def likely_value(self, name: str) -> Array | None:
        """A blob's value where it comes out equal both times."""
        pair = self._values.get(name)
        return pair[0] if pair is not None and np.array_equal(*pair) else None

    def numbers(self, name: str) -> tuple[int, int] | None:
        """The integer that a blob of one element is with either choice of sizes."""
        pair = self._values.get(name)
        return None if pair is None or {a.size for a in pair} != {1} else (int(pair[0].item()), int(pair[1].item()))

    def dims(self, name: str) -> Dims | None:
        """A blob's sizes, None for those that are open."""
        known = self.known(name)
        return None if known is None else fixed_dims(known)

    def _infer(self, net: Net, op: Op, certain: bool) -> None:
        """Types and values of an op's results."""
        ways = [[self._types.get(name) for name in op.inputs]]
        if op.type == "RecurrentNetwork":
            ways.append([kind and self._with_rows(kind, ways[0][0]) for kind in ways[0]])
        for types in ways:
            try:
                (call, folded), (other, others) = (self._inferred(net, op, types, i) for i in range(2))
                break
            except Exception:
                if certain:
                    raise
        else:  # made-up sizes need not fit, and a senseless op fails again, with a message, at its run
            return self._open(net, op)
        rows = zip(call.op.outputs, call.output_types, other.output_types, folded, others, strict=True)
        for name, one_type, other_type, one, two in rows:
            if name:  # results without one are not to be taken for inputs that are left out
                self._types[name] = one_type, other_type
            if name and one is not None and two is not None:
                self._values[name] = one, two

    def _inferred(
        self, net: Net, op: Op, types: Sequence[Known | None], i: int
    ) -> tuple[Call, tuple[Array | None, ...]]:
        """An op with the i-th choice of sizes, and the values of its results."""
        values = [self._values[name][i] if name in self._values else None for name in op.inputs]
        return infer_call(op, [kind and kind[i] for kind in types], values, net.name, self.float_dtype)

    def _with_rows(self, known: Known, first: Known | None) -> Known:
        """An input of a recurrence with the rows of its first sequence, where a file has other names for them."""
        one, other = known
        if first is None or min(one.rank, first[0].rank) < 2 or one.shape[-2] == other.shape[-2]:
            return known
        rows = [Type(a.dtype, (*a.shape[:-2], b.shape[-2], a.shape[-1])) for a, b in zip(known, first, strict=True)]
        return rows[0], rows[1]

    def _open(self, net: Net, op: Op) -> None:
        """The type of a result whose operands are made up so that they do not fit: they do in a run."""
        if op.type == "Squeeze" and op.attributes["axes"] is not None:
            one, other = self._types[op.inputs[0]]
            self._types[op.outputs[0]] = without_axes(one, op), without_axes(other, op)
            return
        if not (op.type == "Where" or isinstance(schema_of(op.type), Binary | Variadic)):
            return
        kinds = [self._types[name] for name in op.inputs if name]
        dtypes = [Type(kind.dtype, ()) for kind, _ in kinds]
        try:
            call, _ = infer_call(op, dtypes, [None] * len(dtypes), net.name, self.float_dtype)
        except Exception:
            return
        sizes = [self._together(axis, kinds) for axis in range(-max(kind.rank for kind, _ in kinds), 0)]
        dtype = call.output_types[0].dtype
        self._types[op.outputs[0]] = Type(dtype, tuple(a for a, _ in sizes)), Type(dtype, tuple(b for _, b in sizes))

    def _together(self, axis: int, kinds: Sequence[Known]) -> tuple[int, int]:
        """The size of operands along an axis for both choices of sizes, another open one where they do not fit."""
        fitting = [
            broadcast_shapes([kind.shape[axis:][:1] for kind in choice if kind.rank >= -axis])
            for choice in zip(*kinds, strict=True)
        ]
        one, other = self.sizes.pair(None) if None in fitting else (0, 0)
        return fitting[0][0] if fitting[0] else one, fitting[1][0] if fitting[1] else other


def without_axes(kind: Type, op: Op) -> Type:
    """The type that a Squeeze gives where its axes are of size 1."""
    gone = op.attributes["axes"]
    kept = (axis for axis in range(kind.rank) if axis not in gone and axis - kind.rank not in gone)
    return Type(kind.dtype, tuple(kind.shape[axis] for axis in kept))


def fixed_dims(known: Known) -> Dims:
    """Sizes, None for those that are open."""
    first, second = known
    return tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))


MOST = 2**63 - 1  # that a protobuf can hold
SHOWN = 8  # names in a hint
NO_NAMES = ("", "?")  # what exporters write for a size without a name; two of these may be two sizes


def dims_of(value: onnx.ValueInfoProto) -> Dims | None:
    """Sizes of an input or output, None where the file does not say how many axes there are."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(
        int(dim.dim_value)
        if dim.HasField("dim_value") and dim.dim_value >= 0
        else (dim.dim_param if dim.dim_param not in NO_NAMES else None)
        for dim in kind.shape.dim
    )


def dims_of_inputs(graph: onnx.GraphProto) -> dict[str, Dims | None]:
    """Sizes of the inputs that have no values in the file."""
    valued = {tensor.name for tensor in graph.initializer}
    return {value.name: dims_of(value) for value in graph.input if value.name not in valued}


def open_sizes(name: str, dims: Dims | None) -> dict[int, str]:
    """Axes of an input that have no number, and what their sizes are called."""
    return {axis: dim or f"{name}.{axis}" for axis, dim in enumerate(dims or ()) if not isinstance(dim, int)}


def names_of_open_sizes(inputs: Mapping[str, Dims | None]) -> list[str]:
    """The names of the open sizes of inputs, each once."""
    return list(dict.fromkeys(size for name, dims in inputs.items() for size in open_sizes(name, dims).values()))


SMALL = ((24, 26), (6, 7))  # the first open size, twice


def sizes_of_weights(net: Net, shapes: Mapping[str, Dims], float_dtype: str) -> dict[str, int]:
    """Open sizes that weights fix, as the width of an array that is multiplied by one, by name.

    Where types do not follow with made-up sizes, each open size is tried as each size above 1 that inputs and ops have.
    The number with which they follow for the most ops stays, unless 1, its neighbours or another open size do as well.

    Args:
        shapes: sizes of all inputs, parameters too.
    """
    numbers = sorted(
        {dim for dims in (*shapes.values(), *shapes_in(net)) for dim in dims if isinstance(dim, int)} - {1}
    )
    found: dict[str, int] = {}
    most = ops_that_fit(net, shapes, float_dtype)
    while most < len(net.ops):
        tries = [(name, size) for size in numbers for name in names_of_open_sizes(shapes)]
        fits = [ops_that_fit(net, with_sizes(shapes, {name: size}), float_dtype) for name, size in tries]
        best = max(fits, default=0)
        if best <= most:
            return found
        name, size = tries[fits.index(best)]
        fixed = with_sizes(shapes, {name: size})
        others: list[int | str] = [1, size - 1, size + 1, *names_of_open_sizes(fixed)]
        near = [ops_that_fit(net, with_sizes(shapes, {name: other}), float_dtype) for other in others]
        if max(near) >= best:
            return found
        found[name], shapes, most = size, fixed, best
    return found


def shapes_in(net: Net) -> Iterator[Sequence[int]]:
    """Shapes that ops of a net, and of its cells, have."""
    for op in net.ops:
        yield from (dims for dims in [op.attributes.get("shape")] if isinstance(dims, tuple | list))
        yield from shapes_in(op.attributes["cell"]) if "cell" in op.attributes else ()


def with_sizes(shapes: Mapping[str, Dims], sizes: Mapping[str, int | str]) -> dict[str, Dims]:
    """Shapes with numbers or other names for some open sizes."""
    return {
        key: tuple(sizes.get(open_sizes(key, dims).get(axis, ""), dim) for axis, dim in enumerate(dims))
        for key, dims in shapes.items()
    }


def ops_that_fit(net: Net, shapes: Mapping[str, Dims], float_dtype: str) -> int:
    """The number of the first ops of a net whose types follow, for two choices of open sizes."""
    sizes, count = MadeUpSizes(SMALL[0], (2, 2)), [0, 0]
    pairs = {name: [sizes.pair(dim) for dim in dims] for name, dims in shapes.items()}
    dtypes = {spec.name: float_dtype if spec.dtype == FLOAT else spec.dtype for spec in net.input_specs}
    for i in range(2):
        feeds = {name: Type(dtypes[name], tuple(pair[i] for pair in pairs[name])) for name in pairs if name in dtypes}
        with suppress(Exception):  # an op may raise anything where the sizes are made up
            for _ in calls_of(net, feeds, float_dtype):
                count[i] += 1
    return min(count)


def fix_sizes(graph: onnx.GraphProto, sizes: Mapping[str, int], constants: Mapping[str, object]) -> dict[str, int]:
    """Write sizes into the shapes that a graph declares for its inputs and outputs; the sizes, checked.

    Args:
        sizes: name of an open size -> its number.
        constants: values of inputs, which must have these sizes.

    Raises OnnxError for a name of no open size, what is not a positive whole number, and a constant of another size.
    """
    numbers = checked_sizes(names_of_open_sizes(dims_of_inputs(graph)), sizes)
    for value in (*graph.input, *graph.output):
        chosen = {axis: size for axis, size in open_sizes(value.name, dims_of(value)).items() if size in numbers}
        if value.name in constants:
            check_constant(value.name, np.asarray(constants[value.name]).shape, chosen, numbers)
        for axis, size in chosen.items():
            value.type.tensor_type.shape.dim[axis].dim_value = numbers[size]
    return numbers


def checked_sizes(names: list[str], sizes: Any) -> dict[str, int]:
    """Sizes as numbers. Raises OnnxError for others than those with these names, and for what is not a size."""
    there = ", ".join(names) or "none: the file says them all"
    if not isinstance(sizes, Mapping):
        raise OnnxError("sizes is not a dict", wanted="sizes={'N': 8} or the like", came=type(sizes).__name__)
    if unknown := sorted(str(name) for name in sizes if name not in names):
        hint = "Sizes have the names that model.shapes has; one without a name is INPUT.AXIS, as in 'x.0'."
        raise OnnxError("these are not open sizes", wanted=there, came=", ".join(unknown), hint=hint)
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 0 < size <= MOST:
            hint = f"Give sizes={{'{name}': 8}} or the like, for any of the open sizes {there}."
            raise OnnxError(f"size '{name}' is wrong", wanted="a positive whole number", came=repr(size), hint=hint)
    return {name: int(size) for name, size in sizes.items()}


def check_constant(name: str, shape: tuple[int, ...], chosen: Mapping[int, str], numbers: Mapping[str, int]) -> None:
    """Raise OnnxError where an input's constant has another size than that which is given.

    Args:
        chosen: axis -> name of its size, of those that are given.
    """
    for axis, size in chosen.items():
        if axis < len(shape) and shape[axis] != numbers[size]:
            hint = f"Give {size} the number {shape[axis]}, leave it out, or give another constant."
            raise OnnxError(
                "constants and sizes contradict each other",
                blob=name,
                wanted=f"{size}={numbers[size]}, its axis {axis}",
                came=f"an array of sizes {list(shape)}",
                hint=hint,
            )


@dataclass(frozen=True)
class OpenBranch:
    """An If whose condition is not known while a file is read.

    Args:
        node: its name.
        source: the input or op that the condition follows from, None if it follows only from open sizes.
    """

    node: str
    source: str | None

    def hint(self, inputs: Mapping[str, Dims | None]) -> str:
        """A hint on how to make the condition known, for a file with these inputs."""
        if self.source is not None:
            name = f"'{self.source}': ..." if self.source in inputs else "..."
            return f"If the condition of {self.node} is the same in all runs, give what it follows from: " + (
                f"load(path, constants={{{name}}})."
            )
        names = names_of_open_sizes(inputs)
        if not names:
            return ""
        named = ", ".join([*(f"'{name}': ..." for name in names[:SHOWN]), *(["..."] if names[SHOWN:] else [])])
        return f"Open sizes decide a branch of {self.node}: give those that do, of load(path, sizes={{{named}}})."


@contextmanager
def with_hints(inputs: Mapping[str, Dims | None], sizes: dict[str, int], branches: list[OpenBranch]) -> Iterator[None]:
    """Say of what fails inside which sizes and conditions are open or given, where that may be why.

    Args:
        inputs: input -> its sizes, after those that are given were fixed.
        branches: those so far; it may grow inside.
    """
    try:
        yield
    except RnnopsError as error:
        last = {branch.source is None: branch.hint(inputs) for branch in branches}
        given = f"The file is read with sizes={sizes}, which may not fit each other or the graph." if sizes else ""
        hints = [hint for hint in (error.hint, *last.values(), given) if hint]
        told = error.again()
        told.hint = " ".join(hints) or None
        raise told.again() from error
