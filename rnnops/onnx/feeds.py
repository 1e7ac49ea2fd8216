"""Random feeds for files: sizes for what a file leaves open, made up where nobody says them, and numbers by dtype."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

from rnnops.onnx.errors import OnnxError
from rnnops.onnx.open_sizes import names_of_open_sizes, open_sizes
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


def choose_sizes(inputs: Mapping[str, Dims | None], given: Mapping[str, Sequence[int]]) -> ChosenSizes:
    """Shapes of all inputs.

    Args:
        inputs: input -> what the file says of its sizes, None for nothing.
        given: name of an open size -> one number; name of an input of which the file says nothing -> all its sizes.

    Raises OnnxError for other names and numbers, and for an input of which nobody says anything.
    """
    check_names(inputs, given)
    names = names_of_open_sizes(inputs)
    made_up = tuple(name for name in names if name not in given)
    numbers = dict(zip(made_up, chain(MADE_UP, repeat(MADE_UP[-1])), strict=False))
    sizes = {name: numbers[name] if name in numbers else one_size(name, given[name]) for name in names}
    shapes = {name: shape_of(name, dims, sizes, given) for name, dims in inputs.items()}
    return ChosenSizes(shapes, sizes, made_up)


def check_names(inputs: Mapping[str, Dims | None], given: Collection[str]) -> None:
    """Raise OnnxError for names that are neither open sizes nor inputs of which the file says nothing."""
    names = [*names_of_open_sizes(inputs), *(name for name, dims in inputs.items() if dims is None)]
    if unknown := sorted(set(given) - set(names)):
        wanted = ", ".join(names) or "none: the file says them all"
        raise OnnxError("these are no open sizes", wanted=wanted, came=", ".join(unknown))


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
