"""Objectives of checkers and their verdicts: a net on a device, tolerances, CheckError.

What checkers run: a net on a device, and its outputs weighted by numbers that hide nothing.

The weights are rotations of the circle by the golden ratio: all different, none near zero, of both signs, equal on
every machine. Weights of one would hide every error that a sum hides (the gradient of a softmax's sum is zero).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rnnops.compiler import compile as compile_net
from rnnops.errors import DeviceError, FeedError, GradientError, RnnopsError
from rnnops.net import Net, require_net
from rnnops.types import Array, Shape


class CheckError(RnnopsError):
    """A check failed: a wrong gradient, devices that disagree, a lent array that was changed.

    Example:
        >>> net = ro.Net("net")
        >>> x = net.input("x")
        >>> net.outputs(y=ro.with_gradient(ro.exp(x), x, x))  # of exp the slope is exp
        >>> try:
        ...     ro.testing.check_gradient(net, {"x": np.array([1.0])})
        ... except ro.testing.CheckError as error:
        ...     print(error.problem)
        at [0]: the gradient is wrong, off by 1.12 where 3e-06 is allowed
    """


@dataclass(frozen=True)
class Tolerance:
    """An array may be off by `relative` times its largest finite value plus `absolute`."""

    relative: float
    absolute: float

    def limit(self, wanted: Array) -> float:
        """The largest difference that is allowed against this array."""
        finite = np.abs(wanted[np.isfinite(wanted)], dtype=np.float64)
        return self.relative * float(finite.max(initial=0.0)) + self.absolute


TOLERANCES = {"float32": Tolerance(1e-5, 1e-6), "float64": Tolerance(1e-12, 1e-13)}
"""By dtype, how far a device may be off from the reference: `relative` times the largest finite value, and `absolute`.

Example:
    >>> ro.testing.TOLERANCES["float32"].limit(np.array([-2.0, 1.0], "float32")) < 3e-5
    True
"""
EXACT = Tolerance(0.0, 0.0)  # integers, bools, and a device against itself


def tolerance_of(dtype: object) -> Tolerance:
    """The tolerance for arrays of a dtype; integers and bools are exact."""
    return TOLERANCES.get(np.dtype(dtype).name, EXACT)  # type: ignore[call-overload]


def difference(came: Array, wanted: Array) -> float:
    """The largest difference; infinite where NaN or infinities do not agree, or shape or dtype differ."""
    if came.shape != wanted.shape or came.dtype != wanted.dtype:
        return float("inf")
    if wanted.dtype.kind != "f":
        return float("inf") if (came != wanted).any() else 0.0
    finite = np.isfinite(wanted)
    if not np.array_equal(came[~finite], wanted[~finite], equal_nan=True) or not np.isfinite(came[finite]).all():
        return float("inf")
    return float(np.abs(came[finite].astype(np.float64) - wanted[finite]).max(initial=0.0))


GOLDEN_RATIO, SQUARE_ROOT_OF_TWO = 0.6180339887498949, 0.4142135623730951  # their fractions


class DeviceRun(Protocol):
    """The run of a net on a device: `rnnops.compiler.Run`, or a function with its signature."""

    def __call__(
        self, *dicts: Mapping[str, Any], seed: int | None = None, training: bool = False
    ) -> dict[str, Array]: ...

    def vjp(
        self, *dicts: Mapping[str, Any], seed: int | None = None, training: bool = True, wrt: Any = None
    ) -> tuple[dict[str, Array], Callable[[Mapping[str, Array]], dict[str, Array]]]: ...


Device = str | Callable[[Net], DeviceRun]  # a name for `ro.compile`, or a function that makes a run of a net


def require_net_and_feeds(net: object, feeds: object) -> None:
    """Raise NetError for what is not a net, and FeedError for feeds that are not a dict."""
    require_net(net)
    if not isinstance(feeds, Mapping):
        raise FeedError("feeds are not a dict", wanted="input name -> array", came=type(feeds).__name__)


def run_on(net: Net, device: Device) -> DeviceRun:
    """A run of the net on a device. Raises DeviceError for what is none."""
    if isinstance(device, str):
        return compile_net(net, device)
    if not callable(device):
        wanted = "a device's name, or a function that makes a run of a net"
        raise DeviceError("this is not a device", net=net.name, wanted=wanted, came=repr(device))
    return device(net)


def rotation(shape: Shape, start: int = 0) -> Array:
    """Numbers of absolute value 0.5 to 1.5 and both signs, from places `start, start + 1, ...` of two rotations."""
    places = start + np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.float64)
    sizes = 0.5 + (places + 1) * GOLDEN_RATIO % 1.0
    signs = np.where((places + 1) * SQUARE_ROOT_OF_TWO % 1.0 < 0.5, 1.0, -1.0)
    return np.asarray(sizes * signs).reshape(shape)


def output_grads(outputs: Mapping[str, Array], names: Iterable[str]) -> dict[str, Array]:
    """A weight for every element of the named outputs, in their dtypes."""
    grads, start = {}, 0
    for name in names:
        grads[name] = rotation(outputs[name].shape, start).astype(outputs[name].dtype)
        start += 1 + outputs[name].size
    return grads


def float_outputs(net: Net, outputs: Mapping[str, Array], chosen: Sequence[str] | None) -> list[str]:
    """The chosen outputs, all of floats if None. Raises GradientError for one that is not there, or no float."""
    floats = [name for name, array in outputs.items() if array.dtype.kind == "f"]
    names = floats if chosen is None else list(chosen)
    for name in names:
        if name not in floats:
            wanted = f"one of {', '.join(floats)}"
            raise GradientError("no float output of this name", net=net.name, blob=name, wanted=wanted)
    return names


def same_bits(a: Array, b: Array) -> bool:
    """True if two arrays have one dtype, one shape and the same bits."""
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()


class Objective:
    """The number that is differentiated: the sum of all chosen outputs, each element with its weight.

    Args:
        outputs: names of the chosen ones; all float outputs if left out.
        wrt: inputs whose gradients are wanted.
    """

    def __init__(
        self,
        net: Net,
        device: Device,
        outputs: Sequence[str] | None,
        wrt: Sequence[str],
        seed: int | None,
        training: bool,
    ) -> None:
        self.net, self.run, self.wrt, self.seed, self.training = net, run_on(net, device), tuple(wrt), seed, training
        self._chosen = outputs
        self.weights: dict[str, Array] = {}

    def values(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The chosen outputs."""
        outputs = self.run(feeds, seed=self.seed, training=self.training)
        return [outputs[name] for name in self.weights]

    def change(self, after: Sequence[Array], before: Sequence[Array]) -> float:
        """How far the number moves; outputs are subtracted first, which costs the least precision."""
        moves = zip(self.weights.values(), after, before, strict=True)
        with np.errstate(invalid="ignore", over="ignore"):
            return float(sum(np.vdot(weight, new - old) for weight, new, old in moves))

    def gradient(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The gradient that the net gives. Raises CheckError where `vjp` gives other outputs than a plain run."""
        outputs, pullback = self.run.vjp(feeds, seed=self.seed, training=self.training, wrt=self.wrt)
        self._compare_bits(outputs, self.run(feeds, seed=self.seed, training=self.training))
        if not self.weights:
            self.weights = output_grads(outputs, float_outputs(self.net, outputs, self._chosen))
        grads = pullback(self.weights)
        for name in self.wrt:
            self._check_gradient_type(name, grads.get(name), feeds[name])
        return grads

    def _compare_bits(self, outputs: Mapping[str, Array], plain: Mapping[str, Array]) -> None:
        for name, array in plain.items():
            if name not in outputs or not same_bits(outputs[name], array):
                raise CheckError("run.vjp gives another output than a plain run", net=self.net.name, blob=name)

    def _check_gradient_type(self, name: str, grad: Array | None, feed: Array) -> None:
        if grad is None or grad.shape != feed.shape or grad.dtype != feed.dtype:
            came = "none" if grad is None else f"{grad.dtype}{list(grad.shape)}"
            raise CheckError(
                "the gradient of an input has a wrong type",
                net=self.net.name,
                blob=name,
                wanted=f"{feed.dtype}{list(feed.shape)}",
                came=came,
            )


def float64_feeds(net: Net, feeds: Mapping[str, Any], names: Iterable[str]) -> dict[str, Array]:
    """Copies of all feeds. Raises FeedError where one of `names` is missing or not float64."""
    arrays = {name: np.array(value) for name, value in feeds.items()}
    for name in names:
        if name not in arrays:
            raise FeedError("an input is not fed", net=net.name, blob=name)
        if arrays[name].dtype != np.float64:
            raise FeedError(
                "finite differences need float64",
                net=net.name,
                blob=name,
                wanted="float64",
                came=arrays[name].dtype,
                hint="Convert all float feeds with array.astype(numpy.float64).",
            )
    return arrays
