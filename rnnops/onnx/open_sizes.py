"""Sizes that a file leaves open: their names, types at made-up sizes, and shapes that cannot be known.

**`KnownSizes`**: while a file is read, a shape that cannot be known before a run is refused. Constants, sizes of
arrays, and integer arithmetic on these are known, whatever the sizes are. The decision depends only on ops and dtypes,
so it holds for every run. It does not say if the sizes fit.

**`Probes`**: types are inferred with made-up sizes for all open sizes. Each open size gets two numbers that occur
nowhere else, and types are inferred twice. A size that comes out equal both times is fixed. Two sizes that are equal to
each other both times are one size. Made-up sizes may not broadcast, for example those of a table of places that is cut
to a sequence's length. The result then has a new open size there. If inference fails otherwise, the type is unknown,
and so are all types that depend on it. Nothing is guessed, and arrays of data are never made.

A value that comes out equal both times may still depend on open sizes: `min(T, 100)` is 100 for both large sizes. So
blobs that do not depend on any made-up size are noted by name. Only these are certain. An op that fails on certain
inputs fails always.

**Names of open sizes**: a size has the name that the file gives it, else `INPUT.AXIS`, as in `x.0`. A caller can fix
such a size as though the file had it. Open sizes of outputs and of inner graphs cannot be named: they follow from the
others.
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
    """Finds blobs of a net that may be known before a run, and for other blobs the cause.

    Args:
        net: the net into which a file is read.
        is_body: True for the body of a Scan, whose inputs differ from step to step.
    """

    def __init__(self, net: Net, is_body: bool) -> None:
        self._net, self._is_body, self._seen = net, is_body, 0
        self._known: set[str] = set()
        self._sources: dict[str, str] = {}  # blob that is not known -> the input or op that is the cause

    def check(self) -> None:
        """Looks at the ops that were appended since the last call.

        Raises OnnxError for a shape that can never be known.
        """
        first, self._seen = self._seen, len(self._net.ops)
        for op in self._net.ops[first:]:
            schema = schema_of(op.type)
            for port, name in zip((port.rstrip("?*") for port in schema.inputs), op.inputs, strict=False):
                if name and port in schema.static and name not in self._known:
                    self._refuse(op, port, name)
            self._add(op)

    def source(self, name: str) -> str | None:
        """The input or op that keeps a blob from being known before a run. None if it is known."""
        self.check()
        return None if name in self._known else self._sources.get(name, name)

    def _add(self, op: Op) -> None:
        names = [name for name in op.outputs if name]
        dtypes = [self._net.blob(name).dtype for name in names]
        if op.type in ALWAYS_KNOWN or is_integer_arithmetic(op, dtypes, self._known):
            self._known.update(names)
        elif is_integer_arithmetic(op, dtypes, set(op.inputs)):  # it is known if its inputs are
            unknown = next(name for name in op.inputs if name and name not in self._known)
            self._sources.update(dict.fromkeys(names, self._sources.get(unknown, unknown)))
        else:
            self._sources.update(dict.fromkeys(names, op.label))

    def _refuse(self, op: Op, port: str, name: str) -> NoReturn:
        source = self._sources.get(name, name)
        kind = "input" if source in self._net.input_names else "the result of"
        hint = "Only constants, sizes of arrays and integer arithmetic on these are known before a run."
        if kind == "input" and not self._is_body and source not in {spec.name for spec in self._net.parameters}:
            hint += f" If it is the same in all runs, give it: load(path, constants={{'{source}': ...}})."
        raise OnnxError(
            f"input '{port}' decides a shape, but cannot be known before a run",
            op=op.label,
            blob=name,
            came=f"a value that depends on {kind} '{source}'" + (" of the body" if self._is_body else ""),
            hint=hint,
        )


Dims: TypeAlias = tuple[int | str | None, ...]  # a size, the name of an open size, or None for an unknown size
Known: TypeAlias = tuple[Type, Type]

FIRST, STEP = (12 * 101, 12 * 151), (12 * 2, 12 * 3)  # multiples of 12, so that they can be cut into gates


class MadeUpSizes:
    """The made-up sizes of one model, by name.

    Args:
        first, step: the two numbers of the first size, and the differences to those of the next size.
    """

    def __init__(self, first: tuple[int, int] = FIRST, step: tuple[int, int] = STEP) -> None:
        self._numbers = (count(first[0], step[0]), count(first[1], step[1]))
        self._named: dict[str, tuple[int, int]] = {}
        self.made_up: set[int] = set()  # the first number of each open size

    def pair(self, dim: int | str | None) -> tuple[int, int]:
        """A fixed size twice, or the two made-up numbers of an open size."""
        if isinstance(dim, int):
            return dim, dim
        if dim in self._named:
            return self._named[dim]
        fresh = (next(self._numbers[0]), next(self._numbers[1]))
        self.made_up.add(fresh[0])
        return fresh if dim is None else self._named.setdefault(dim, fresh)

    def named(self) -> dict[tuple[int, int], str]:
        """The two made-up numbers of each named size -> its name."""
        return {pair: name for name, pair in self._named.items()}


class Probes:
    """Types and values of a net's blobs, as far as they are known."""

    def __init__(self, sizes: MadeUpSizes, float_dtype: str) -> None:
        self.sizes, self.float_dtype = sizes, float_dtype
        self._types: dict[str, Known] = {}
        self._values: dict[str, tuple[Array, Array]] = {}
        self._certain: set[str] = set()  # blobs whose types and values do not depend on made-up sizes
        self._seen = 0

    def declare(self, name: str, dtype: str, dims: Sequence[int | str | None]) -> None:
        """Declares an input with its dtype and sizes."""
        pairs = [self.sizes.pair(dim) for dim in dims]
        kind = self.float_dtype if dtype == FLOAT else dtype
        known = Type(kind, tuple(a for a, _ in pairs)), Type(kind, tuple(b for _, b in pairs))
        self.give(name, known, all(isinstance(dim, int) for dim in dims))

    def give(self, name: str, known: Known | None, certain: bool = False) -> None:
        """Gives the types of an input for both choices. `certain`: they do not depend on made-up sizes."""
        if known is not None:
            self._types[name] = known
        if certain:
            self._certain.add(name)

    def give_value(self, name: str, value: Array) -> None:
        """Gives the value of a constant input."""
        self._values[name] = value, value

    def follow(self, net: Net) -> None:
        """Infers the ops that were appended since the last call. Raises the error of an op that fails in every run."""
        first, self._seen = self._seen, len(net.ops)
        for op in net.ops[first:]:
            inputs = [name for name in op.inputs if name]
            certain = self._certain.issuperset(inputs)
            if all(name in self._types for name in inputs):
                self._infer(net, op, certain)
            self._certain.update(op.outputs if certain else ())

    def known(self, name: str) -> Known | None:
        """A blob's types for both choices of sizes. None if they are unknown."""
        return self._types.get(name)

    def is_certain(self, name: str) -> bool:
        """True if a blob's type does not depend on made-up sizes."""
        return name in self._certain

    def certain_value(self, name: str) -> Array | None:
        """A blob's value, if it depends only on constants and fixed sizes. Else None."""
        return self._values[name][0] if name in self._certain and name in self._values else None

    def likely_value(self, name: str) -> Array | None:
        """A blob's value, if it is equal for both choices of sizes. Else None."""
        pair = self._values.get(name)
        return pair[0] if pair is not None and np.array_equal(*pair) else None

    def numbers(self, name: str) -> tuple[int, int] | None:
        """The integers in a blob of one element, for both choices of sizes."""
        pair = self._values.get(name)
        return None if pair is None or {a.size for a in pair} != {1} else (int(pair[0].item()), int(pair[1].item()))

    def dims(self, name: str) -> Dims | None:
        """A blob's sizes. Open sizes are None."""
        known = self.known(name)
        return None if known is None else fixed_dims(known)

    def _infer(self, net: Net, op: Op, certain: bool) -> None:
        """Infers types and values of an op's results."""
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
        else:  # Made-up sizes need not fit. A senseless op fails again in its run, with a clear error.
            return self._open(net, op)
        rows = zip(call.op.outputs, call.output_types, other.output_types, folded, others, strict=True)
        for name, one_type, other_type, one, two in rows:
            if name:  # results without a name must not be taken for inputs that are left out
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
        """The type of a recurrence's input with the rows of its first sequence.

        A file may have different names for one size.
        """
        one, other = known
        if first is None or min(one.rank, first[0].rank) < 2 or one.shape[-2] == other.shape[-2]:
            return known
        rows = [Type(a.dtype, (*a.shape[:-2], b.shape[-2], a.shape[-1])) for a, b in zip(known, first, strict=True)]
        return rows[0], rows[1]

    def _open(self, net: Net, op: Op) -> None:
        """The type of a result whose operands do not fit at made-up sizes, but fit in a run."""
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
        """The size of operands along an axis, for both choices of sizes. A new open size if they do not fit."""
        fitting = [
            broadcast_shapes([kind.shape[axis:][:1] for kind in choice if kind.rank >= -axis])
            for choice in zip(*kinds, strict=True)
        ]
        one, other = self.sizes.pair(None) if None in fitting else (0, 0)
        return fitting[0][0] if fitting[0] else one, fitting[1][0] if fitting[1] else other


def without_axes(kind: Type, op: Op) -> Type:
    """The type after a Squeeze, whose axes have size 1."""
    gone = op.attributes["axes"]
    kept = (axis for axis in range(kind.rank) if axis not in gone and axis - kind.rank not in gone)
    return Type(kind.dtype, tuple(kind.shape[axis] for axis in kept))


def fixed_dims(known: Known) -> Dims:
    """Sizes. Open sizes are None."""
    first, second = known
    return tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))


MOST = 2**63 - 1  # the largest number of a protobuf
SHOWN = 8  # most names in a hint
NO_NAMES = ("", "?")  # Exporters write these for sizes without a name. Two such sizes may differ.


def dims_of(value: onnx.ValueInfoProto) -> Dims | None:
    """Sizes of an input or output. None if the file does not give the number of axes."""
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
    """Axes of an input whose size is open -> the name of the size."""
    return {axis: dim or f"{name}.{axis}" for axis, dim in enumerate(dims or ()) if not isinstance(dim, int)}


def names_of_open_sizes(inputs: Mapping[str, Dims | None]) -> list[str]:
    """The names of the open sizes of inputs, without repetitions."""
    return list(dict.fromkeys(size for name, dims in inputs.items() for size in open_sizes(name, dims).values()))


SMALL = ((24, 26), (6, 7))  # smaller pairs of numbers for the first open size


def sizes_of_weights(net: Net, shapes: Mapping[str, Dims], float_dtype: str) -> dict[str, int]:
    """Open sizes that weights fix, for example the width of an array that is multiplied by a weight. By name.

    If inference fails with made-up sizes, each open size is tried with every size above 1 that inputs and ops have. The
    number with which most ops can be inferred is taken, unless 1, its neighbours or another open size do equally well.

    Args:
        shapes: sizes of all inputs, including parameters.
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
    """Shapes of inputs and attributes in the ops of a net and of its cells."""
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
    """The number of leading ops of a net whose types can be inferred, for two choices of open sizes."""
    sizes, count = MadeUpSizes(SMALL[0], (2, 2)), [0, 0]
    pairs = {name: [sizes.pair(dim) for dim in dims] for name, dims in shapes.items()}
    dtypes = {spec.name: float_dtype if spec.dtype == FLOAT else spec.dtype for spec in net.input_specs}
    for i in range(2):
        feeds = {name: Type(dtypes[name], tuple(pair[i] for pair in pairs[name])) for name in pairs if name in dtypes}
        with suppress(Exception):  # with made-up sizes an op may raise any error
            for _ in calls_of(net, feeds, float_dtype):
                count[i] += 1
    return min(count)


def fix_sizes(graph: onnx.GraphProto, sizes: Mapping[str, int], constants: Mapping[str, object]) -> dict[str, int]:
    """Writes sizes into the shapes of a graph's inputs and outputs. Returns the sizes, checked.

    Args:
        sizes: name of an open size -> its number.
        constants: values of inputs, which must have these sizes.

    Raises OnnxError for a name that is not an open size, a number that is not positive, and a constant of another size.
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
    """Sizes as numbers. Raises OnnxError for other names than these, and for values that are not sizes."""
    there = ", ".join(names) or "none: the file gives them all"
    if not isinstance(sizes, Mapping):
        raise OnnxError("sizes is not a dict", wanted="sizes={'N': 8} or the like", came=type(sizes).__name__)
    if unknown := sorted(str(name) for name in sizes if name not in names):
        hint = "Sizes have the names in model.shapes; one without a name is INPUT.AXIS, as in 'x.0'."
        raise OnnxError("these are not open sizes", wanted=there, came=", ".join(unknown), hint=hint)
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 0 < size <= MOST:
            hint = f"Give sizes={{'{name}': 8}} or the like, for any of the open sizes {there}."
            raise OnnxError(f"size '{name}' is wrong", wanted="a positive whole number", came=repr(size), hint=hint)
    return {name: int(size) for name, size in sizes.items()}


def check_constant(name: str, shape: tuple[int, ...], chosen: Mapping[int, str], numbers: Mapping[str, int]) -> None:
    """Raise OnnxError if an input's constant has another size than the given one.

    Args:
        chosen: axis -> name of its size, for sizes that are given.
    """
    for axis, size in chosen.items():
        if axis < len(shape) and shape[axis] != numbers[size]:
            hint = f"Give {size} the number {shape[axis]}, leave it out, or give another constant."
            raise OnnxError(
                "constants and sizes do not agree",
                blob=name,
                wanted=f"{size}={numbers[size]}, its axis {axis}",
                came=f"an array of sizes {list(shape)}",
                hint=hint,
            )


@dataclass(frozen=True)
class OpenBranch:
    """An If whose condition is not known while a file is read.

    Args:
        node: the node's name.
        source: the input or op on which the condition depends. None if it depends only on open sizes.
    """

    node: str
    source: str | None

    def hint(self, inputs: Mapping[str, Dims | None]) -> str:
        """A hint that says how to make the condition known, for a file with these inputs."""
        if self.source is not None:
            name = f"'{self.source}': ..." if self.source in inputs else "..."
            return f"If the condition of {self.node} is the same in all runs, give the values that it depends on: " + (
                f"load(path, constants={{{name}}})."
            )
        names = names_of_open_sizes(inputs)
        if not names:
            return ""
        named = ", ".join([*(f"'{name}': ..." for name in names[:SHOWN]), *(["..."] if names[SHOWN:] else [])])
        return f"Open sizes decide a branch of {self.node}: give these sizes by load(path, sizes={{{named}}})."


@contextmanager
def with_hints(inputs: Mapping[str, Dims | None], sizes: dict[str, int], branches: list[OpenBranch]) -> Iterator[None]:
    """Adds hints to errors inside: which sizes and conditions are open or given, if they may be the cause.

    Args:
        inputs: input -> its sizes, after the given sizes were fixed.
        branches: undecided Ifs so far; more may be added inside.
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
