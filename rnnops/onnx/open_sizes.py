"""Sizes that a file leaves open: what they are called, and fixing them as though the file had them.

An open size has the name that the file gives it, else `INPUT.AXIS`, as in `x.0`. Those of outputs and of graphs inside
the graph are none that a caller can name: they follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.errors import RnnopsError
from rnnops.onnx.errors import OnnxError
from rnnops.onnx.package import GraphProto, ValueInfoProto
from rnnops.onnx.probes import Dims

MOST = 2**63 - 1  # that a protobuf can hold
SHOWN = 8  # names in a hint
NO_NAMES = ("", "?")  # what exporters write for a size without a name; two of these may be two sizes


def dims_of(value: ValueInfoProto) -> Dims | None:
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


def dims_of_inputs(graph: GraphProto) -> dict[str, Dims | None]:
    """Sizes of the inputs that have no values in the file."""
    valued = {tensor.name for tensor in graph.initializer}
    return {value.name: dims_of(value) for value in graph.input if value.name not in valued}


def open_sizes(name: str, dims: Dims | None) -> dict[int, str]:
    """Axes of an input that have no number, and what their sizes are called."""
    return {axis: dim or f"{name}.{axis}" for axis, dim in enumerate(dims or ()) if not isinstance(dim, int)}


def names_of_open_sizes(inputs: Mapping[str, Dims | None]) -> list[str]:
    """What the open sizes of inputs are called, each once."""
    return list(dict.fromkeys(size for name, dims in inputs.items() for size in open_sizes(name, dims).values()))


def fix_sizes(graph: GraphProto, sizes: Mapping[str, int], constants: Mapping[str, object]) -> dict[str, int]:
    """Write sizes into the shapes that a graph declares for its inputs and outputs; the sizes, checked.

    Args:
        sizes: name of an open size -> its number.
        constants: values of inputs, which must have these sizes.

    Raises OnnxError for a name of no open size, what is no positive whole number, and a constant of another size.
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
    """Sizes as numbers. Raises OnnxError for others than those with these names, and for what is no size."""
    there = ", ".join(names) or "none: the file says them all"
    if not isinstance(sizes, Mapping):
        raise OnnxError("sizes is no dict", wanted="sizes={'N': 8} or the like", came=type(sizes).__name__)
    if unknown := sorted(str(name) for name in sizes if name not in names):
        hint = "Sizes have the names that model.shapes has; one without a name is INPUT.AXIS, as in 'x.0'."
        raise OnnxError("these are no open sizes", wanted=there, came=", ".join(unknown), hint=hint)
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
        node: what it is called; source: the input or op that the condition follows from, None for open sizes alone.
    """

    node: str
    source: str | None

    def hint(self, inputs: Mapping[str, Dims | None]) -> str:
        """What makes the condition known, where a file has these inputs."""
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
