"""Random feeds for files: sizes for what a file leaves open, and numbers by dtype.

An open size has the name that the file gives it, else `INPUT.AXIS`, as in `x.0`. Sizes that nobody says are made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

from rnnops.onnx.errors import OnnxError
from rnnops.onnx.probes import Dims
from rnnops.types import BOOL, FLOATS, Array, Shape

MADE_UP = (2, 7, 5, 3)  # the first open size, the second and so on; the last of these is that of all others
MOST = 2**27  # numbers of a feed


@dataclass(frozen=True)
class ChosenSizes:
    """What open sizes are.

    Args:
        shapes: of each input; open: the sizes by their names; made_up: those of them that nobody has said.
    """

    shapes: dict[str, Shape]
    open: dict[str, int]
    made_up: tuple[str, ...]

    def text(self) -> str:
        """`batch=2 (made up), time=9`."""
        return ", ".join(f"{name}={size}{' (made up)' * (name in self.made_up)}" for name, size in self.open.items())


def open_sizes(name: str, dims: Dims) -> dict[int, str]:
    """Axes of an input that have no number, and what their sizes are called."""
    return {axis: dim or f"{name}.{axis}" for axis, dim in enumerate(dims) if not isinstance(dim, int)}


def choose_sizes(inputs: Mapping[str, Dims | None], given: Mapping[str, Sequence[int]]) -> ChosenSizes:
    """Shapes of all inputs.

    Args:
        inputs: input -> what the file says of its sizes, None for nothing.
        given: name of an open size -> one number; name of an input of which the file says nothing -> all its sizes.

    Raises OnnxError for other names and numbers, and for an input of which nobody says anything.
    """
    names = dict.fromkeys(name for one, dims in inputs.items() if dims for name in open_sizes(one, dims).values())
    shapeless = [name for name, dims in inputs.items() if dims is None]
    if unknown := sorted(set(given) - {*names, *shapeless}):
        wanted = ", ".join((*names, *shapeless)) or "none: the file says them all"
        raise OnnxError("these are no open sizes", wanted=wanted, came=", ".join(unknown))
    made_up = tuple(name for name in names if name not in given)
    numbers = dict(zip(made_up, chain(MADE_UP, repeat(MADE_UP[-1])), strict=False))
    sizes = {name: numbers[name] if name in numbers else one_size(name, given[name]) for name in names}
    shapes = {name: shape_of(name, dims, sizes, given) for name, dims in inputs.items()}
    return ChosenSizes(shapes, sizes, made_up)


def one_size(name: str, sizes: Sequence[int]) -> int:
    """The size of that name. Raises OnnxError for several numbers."""
    if len(sizes) != 1:
        raise OnnxError(f"'{name}' is one size", wanted="one number", came=list(sizes))
    return sizes[0]


def shape_of(name: str, dims: Dims | None, sizes: Mapping[str, int], given: Mapping[str, Sequence[int]]) -> Shape:
    """The shape of one input."""
    if dims is not None:
        called = open_sizes(name, dims)
        return tuple(sizes[called[axis]] if axis in called else int(dim or 0) for axis, dim in enumerate(dims))
    if name not in given:
        hint = f"Say them all: {name}=1,16 or the like."
        raise OnnxError("the file says nothing of the sizes of an input", blob=name, hint=hint)
    return tuple(given[name])


def random_feeds(
    types: Mapping[str, str],
    shapes: Mapping[str, Shape],
    ranges: Mapping[str, tuple[float, float]],
    random: np.random.Generator,
) -> dict[str, Array]:
    """Arrays for inputs.

    Args:
        types: input -> dtype.
        ranges: input -> lowest and highest number; without it floats are normal and integers 0 or 1.

    Raises OnnxError for a range of what is no input, and for feeds that are too large.
    """
    if unknown := sorted(set(ranges) - set(types)):
        raise OnnxError("ranges of what is no input", wanted=", ".join(types) or "none", came=", ".join(unknown))
    return {name: random_feed(name, dtype, shapes[name], ranges.get(name), random) for name, dtype in types.items()}


def random_feed(
    name: str, dtype: str, shape: Shape, bounds: tuple[float, float] | None, random: np.random.Generator
) -> Array:
    """An array for one input."""
    if np.prod(shape, dtype=float) > MOST:
        raise OnnxError("a feed would be too large", blob=name, wanted=f"at most {MOST} numbers", came=list(shape))
    if dtype in FLOATS:
        floats = random.normal(size=shape) if bounds is None else random.uniform(*bounds, shape)
        return np.asarray(floats).astype(dtype)
    low, high = (0, 1) if bounds is None or dtype == BOOL else (int(bounds[0]), int(bounds[1]))
    return np.asarray(random.integers(low, high, shape, endpoint=True)).astype(dtype)
