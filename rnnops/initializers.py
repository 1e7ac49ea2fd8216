"""How parameters start: a small table of initializers and `init_params`."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rnnops.arguments import named_arguments
from rnnops.errors import FeedError, NetError
from rnnops.types import Array, Shape

if TYPE_CHECKING:
    from rnnops.net import Net

ARGUMENTS = {"zeros": 0, "ones": 0, "constant": 1, "uniform": 2, "normal": 2, "xavier": (0, 1)}


@dataclass(frozen=True)
class Initializer:
    """A kind from `ARGUMENTS` with its numbers."""

    kind: str
    numbers: tuple[float, ...] = ()

    def array(self, shape: Shape, generator: np.random.Generator) -> Array:
        """An array of this shape, in float64."""
        if self.kind == "uniform":
            low, high = self.numbers
            return generator.uniform(low, high, shape)
        if self.kind == "normal":
            mean, deviation = self.numbers
            return generator.normal(mean, deviation, shape)
        if self.kind == "xavier":
            fan_in = self.numbers[0] if self.numbers else shape[-1] if shape else 1
            bound = (3.0 / max(fan_in, 1)) ** 0.5
            return generator.uniform(-bound, bound, shape)
        return np.full(shape, {"zeros": 0.0, "ones": 1.0}.get(self.kind, *self.numbers[:1] or (0.0,)))


def as_initializer(init: object, net: str, name: str) -> Initializer:
    """Read what a user gave as `init`: a kind, a number, or a tuple of a kind and its numbers."""
    if isinstance(init, Initializer):
        return init
    if isinstance(init, int | float | np.number) and not isinstance(init, bool):
        return Initializer("constant", (float(init),))
    kind, *numbers = init if isinstance(init, tuple | list) and init else (init,)
    if isinstance(kind, str) and kind in ARGUMENTS and all(isinstance(number, int | float) for number in numbers):
        wanted = ARGUMENTS[kind]
        if len(numbers) == wanted or (isinstance(wanted, tuple) and len(numbers) in wanted):
            return _distribution(Initializer(kind, tuple(float(number) for number in numbers)), net, name)
    raise NetError(
        "unknown initializer",
        net=net,
        blob=name,
        came=repr(init),
        wanted='a number, "zeros", "ones", "xavier", ("uniform", low, high) or ("normal", mean, deviation)',
    )


def _distribution(init: Initializer, net: str, name: str) -> Initializer:
    """The initializer itself. Raises NetError for numbers that make no distribution."""
    numbers = init.numbers
    wrong = init.kind != "constant" and not all(map(math.isfinite, numbers))
    wrong = wrong or (init.kind == "uniform" and numbers[0] > numbers[1])
    wrong = wrong or (init.kind == "normal" and numbers[1] < 0)
    if wrong or (init.kind == "xavier" and min(numbers, default=1) <= 0):
        raise NetError("an initializer's numbers make no distribution", net=net, blob=name, came=(init.kind, *numbers))
    return init


@named_arguments
def init_params(net: Net, seed: int, dtype: object = "float32") -> dict[str, Array]:
    """Start values of all parameters of a net.

    Each array depends on seed and name alone, so neither order nor other parameters matter.

    Args:
        net: whose `net.parameters` are wanted, those of cells in it among them.
        seed: an integer of 0 or more.
        dtype: float32 or float64; the float64 values, rounded.

    Returns:
        Parameter name -> array of its shape.

    Raises:
        NetError: net is not a net.
        FeedError: dtype is not a float, or seed is no such integer.

    Example:
        >>> net = ro.Net("n")
        >>> w = net.parameter("w", [2, 3], ("uniform", -0.1, 0.1))
        >>> ro.init_params(net, seed=0)
        {'w': array([[ 0.0044, -0.0228, -0.0241],
               [-0.0484,  0.0266, -0.0689]], dtype=float32)}
    """
    if not hasattr(net, "parameters"):
        raise NetError("this is not a net", wanted="a ro.Net", came=type(net).__name__)
    if not _is_float_dtype(dtype):
        raise FeedError("parameters are floats", net=net.name, wanted="float32 or float64", came=dtype)
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise FeedError("not a seed", net=net.name, wanted="an integer of 0 or more", came=repr(seed))
    return {
        spec.name: spec.initializer.array(spec.shape or (), _generator(int(seed), spec.name)).astype(dtype)  # type: ignore[call-overload]
        for spec in net.parameters
        if spec.initializer is not None
    }


def _is_float_dtype(dtype: object) -> bool:
    if not isinstance(dtype, str | type | np.dtype):
        return False  # NumPy would look for an attribute `dtype` on anything else
    try:
        return np.dtype(dtype).name in ("float32", "float64")
    except TypeError:
        return False


def _generator(seed: int, name: str) -> np.random.Generator:
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest, dtype=np.uint32)])
