"""`check_gradient`: compares gradients of a net with central differences in float64.

Every element of every float input is changed separately, unless `sample` is given. If the net has a kink within a step
of the feeds, the element gets another value nearby, and is checked there against the gradient there. So a kink does not
hide errors elsewhere. Too many kinks fail the check.

**The objective** (`Objective`, which other checkers use too) is the weighted sum of a net's outputs. Weights are
rotations of the circle by the golden ratio: all different, none near zero, of both signs, and equal on every machine.
Weights of one would hide errors that a sum hides: the gradient of a softmax's sum is zero, for example.

**Kinks and slopes**. `f-`, `f0` and `f+` are f at x - h, x and x + h. The slope is `(f+ - f-) / 2h`, and the bend is
`|(f+ - f0) / h - (f0 - f-) / h|`. A kink or a jump anywhere within h of x makes the slope wrong by half the bend. A
smooth function bends too, by `h |f''|`, but this bend shrinks with h while the slope stays. At `h / 8` a kink either
bends as much as before, or is out of reach, and then the slope has changed. So a second difference with `h / 8` tells a
kink from a smooth bend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

import numpy as np

from rnnops.compiler import compile as compile_net
from rnnops.errors import ArgumentError, DeviceError, FeedError, GradientError, RnnopsError
from rnnops.net.net import Net, require_net
from rnnops.types import Array, Shape, is_float


class CheckError(RnnopsError):
    """A check failed: a wrong gradient, devices that disagree, a lent array that was changed.

    Example:
        >>> net = ro.Net("net")
        >>> x = net.input("x")
        >>> net.outputs(y=ro.with_gradient(ro.exp(x), x, x))  # the slope of exp is exp, not x
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
    """The largest difference; infinite if shapes or dtypes differ, or NaN or infinities are at different places."""
    if came.shape != wanted.shape or came.dtype != wanted.dtype:
        return float("inf")
    if wanted.dtype.kind != "f":
        return float("inf") if (came != wanted).any() else 0.0
    finite = np.isfinite(wanted)
    if not np.array_equal(came[~finite], wanted[~finite], equal_nan=True) or not np.isfinite(came[finite]).all():
        return float("inf")
    return float(np.abs(came[finite].astype(np.float64) - wanted[finite]).max(initial=0.0))


GOLDEN_RATIO, SQUARE_ROOT_OF_TWO = 0.6180339887498949, 0.4142135623730951  # the parts after the decimal point


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
    """Raise NetError for an argument that is not a net, and FeedError for feeds that are not a dict."""
    require_net(net)
    if not isinstance(feeds, Mapping):
        raise FeedError("feeds are not a dict", wanted="input name -> array", came=type(feeds).__name__)


def run_on(net: Net, device: Device) -> DeviceRun:
    """A run of the net on a device. Raises DeviceError if `device` is not a device."""
    if isinstance(device, str):
        return compile_net(net, device)
    if not callable(device):
        wanted = "a device's name, or a function that makes a run of a net"
        raise DeviceError("this is not a device", net=net.name, wanted=wanted, came=repr(device))
    return device(net)


def rotation(shape: Shape, start: int = 0) -> Array:
    """Numbers of both signs with absolute values from 0.5 to 1.5: steps `start`, `start + 1`, ... of two rotations."""
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
    """The chosen float outputs; all if None. Raises GradientError for a name that is not a float output."""
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
        outputs: names of the chosen outputs; all float outputs if left out.
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
        """The change of the number. Outputs are subtracted before they are summed, which is more precise."""
        moves = zip(self.weights.values(), after, before, strict=True)
        with np.errstate(invalid="ignore", over="ignore"):
            return float(sum(np.vdot(weight, new - old) for weight, new, old in moves))

    def gradient(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The gradient of the net. Raises CheckError if `vjp` gives other outputs than a plain run."""
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
    """Copies of all feeds. Raises FeedError if one of `names` is missing or not float64."""
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


SHRINK = 8.0  # the step of the second difference is this many times smaller
BENT = 1e-3  # for a larger bend, relative to the slope, the second difference is always taken
MOVED = 0.05  # the slope of a smooth function may change by this part of the bend


@dataclass(frozen=True, eq=False)
class Probe:
    """A direction in one input.

    Args:
        label: `[0, 2]` for an element, `direction 1` for a random direction.
        direction: an array of the input's shape: 1 at one element, or a random vector of length 1.
    """

    name: str
    label: str
    direction: Array

    def step(self, array: Array, step: float) -> float:
        """The step for this probe, in proportion to the largest value that it changes."""
        return step * max(1.0, float(np.abs(array[self.direction != 0]).max(initial=0.0)))

    def along(self, grad: Array) -> float:
        """The derivative in this direction according to a gradient."""
        return float(np.vdot(grad, self.direction))

    def resampled(self, feeds: Mapping[str, Array], generator: np.random.Generator) -> dict[str, Array]:
        """Feeds in which the elements of this probe have other values nearby: 1 to 10 % off, of the same sign."""
        array = feeds[self.name].copy()
        moved = self.direction != 0
        sizes = np.maximum(np.abs(array[moved]), 0.1) * generator.uniform(0.01, 0.1, int(moved.sum()))
        signs = np.where(generator.random(sizes.shape) < 0.5, -1.0, 1.0)
        array[moved] += sizes * signs
        return {**feeds, self.name: array}


@dataclass(frozen=True)
class Difference:
    """The central difference of a probe, with its bend; see the module's docstring."""

    slope: float
    bend: float

    @property
    def is_bent(self) -> bool:
        return not self.bend <= BENT * max(1.0, abs(self.slope))

    def explains(self, error: float) -> bool:
        """True if a kink can be the reason of an error: such an error is half the bend."""
        return not self.bend < error


@dataclass(frozen=True)
class Differentiator:
    """Takes differences of an objective around fixed feeds."""

    objective: Objective
    feeds: Mapping[str, Array]
    centre: list[Array]
    step: float

    def difference(self, probe: Probe, shrink: float = 1.0) -> Difference:
        """Three values of the objective along the probe."""
        array = self.feeds[probe.name]
        h = probe.step(array, self.step) / shrink
        ahead, behind = np.asarray(array + h * probe.direction), np.asarray(array - h * probe.direction)
        after, before = self._values(probe.name, ahead), self._values(probe.name, behind)
        forth, back = _width(ahead, array, probe), _width(array, behind, probe)
        change = self.objective.change
        slope = change(after, before) / (forth + back)
        return Difference(slope, abs(change(after, self.centre) / forth - change(self.centre, before) / back))

    def is_kink(self, probe: Probe, first: Difference) -> bool:
        """True if the objective has a kink or a jump within a step of the feeds."""
        second = self.difference(probe, SHRINK)
        return not (second.bend <= first.bend / 2 and abs(second.slope - first.slope) <= MOVED * first.bend)

    def at(self, feeds: Mapping[str, Array]) -> Differentiator:
        """The same around other feeds."""
        return replace(self, feeds=feeds, centre=self.objective.values(feeds))

    def _values(self, name: str, array: Array) -> list[Array]:
        return self.objective.values({**self.feeds, name: array})


def _width(ahead: Array, behind: Array, probe: Probe) -> float:
    """The distance between both values of a probe, after rounding."""
    return float(np.vdot(ahead - behind, probe.direction) / np.vdot(probe.direction, probe.direction))


DIRECTIONS = 4  # random directions, in addition to the sampled elements of a big array
ATTEMPTS = 10  # how many other values are tried for a probe on a kink
FEW = 8  # the number of probes on kinks that is allowed even in small nets


@dataclass(frozen=True)
class InputReport:
    """One input: the probe with the largest error.

    Args:
        probes: number of elements and directions that were checked.
        resampled: number of probes that were moved away from kinks.
        error: max |analytic - numeric|.
        limit: the largest allowed error.
        worst: label of the probe with this error; `analytic` and `numeric` are its derivatives.
    """

    name: str
    shape: tuple[int, ...]
    probes: int
    resampled: int
    error: float
    limit: float
    worst: str
    analytic: float
    numeric: float

    def __str__(self) -> str:
        text = f"{self.name} {list(self.shape)}: {self.probes} differences, max |analytic - numeric| {self.error:.2e}"
        worst = f" at {self.worst} ({self.analytic:.9g} and {self.numeric:.9g})" if self.probes else ""
        return text + worst + (f", {self.resampled} resampled at kinks" if self.resampled else "")


@dataclass(frozen=True)
class GradientReport:
    """A passed `check_gradient`; prints one line for each input.

    Args:
        net: name of the net.
        inputs: for each input the probe with the largest error: `name`, `probes`, `error`, `limit`, ...

    Raises:
        CheckError: in `check_gradient`, which makes it.

    Example:
        >>> print(ro.testing.GradientReport("net", ()))
        gradients of net 'net' agree with central differences
    """

    net: str
    inputs: tuple[InputReport, ...]

    @property
    def error(self) -> float:
        """The largest |analytic - numeric| of all inputs."""
        return max((report.error for report in self.inputs), default=0.0)

    @property
    def resampled(self) -> int:
        """The number of probes that were moved away from kinks."""
        return sum(report.resampled for report in self.inputs)

    def __str__(self) -> str:
        head = f"gradients of net '{self.net}' agree with central differences"
        return "\n".join([head, *(f"  {report}" for report in self.inputs)])


def check_gradient(
    net: Net,
    feeds: Mapping[str, Any],
    *,
    outputs: Sequence[str] | None = None,
    wrt: Sequence[str] | None = None,
    seed: int | None = None,
    training: bool = True,
    device: Device = "reference",
    step: float = 1e-5,
    tolerance: float = 1e-6,
    sample: int | None = None,
) -> GradientReport:
    """Compare the gradients of a net with central differences. Outputs of `run.vjp` must have the bits of a plain run.

    Every element of every input is changed separately, unless `sample` is given. If the net has a kink within a step of
    the feeds, the element gets another value nearby, and is checked there.

    Args:
        net: the net.
        feeds: input name -> array, floats in float64.
        outputs: names of the outputs that get a gradient; all float outputs if left out.
        wrt: names of the inputs to check; all float inputs, parameters included, if left out.
        seed: seed of random ops.
        training: whether Dropout is active.
        device: a device's name, or a function that makes a run of a net.
        step: step of the differences, relative to max(1, |x|). With values and derivatives around 1 the default has
            errors of 1e-10 from curvature and from rounding.
        tolerance: for each input, max |analytic - numeric| <= tolerance * max(1, max |numeric|).
        sample: in arrays with more elements than this, check only so many random elements, and a few random directions
            through all elements. If left out, every element is checked.

    Returns:
        A `GradientReport`, which can be printed.

    Raises:
        CheckError: a gradient is wrong (the error names net, input, element and both values), or there are too many
            kinks.
        FeedError: an input is not fed, or floats are not float64.
        GradientError: outputs that are not float outputs.
        DeviceError: an unknown device.
        ArgumentError: step, tolerance or sample is out of range.

    Example:
        >>> net = ro.Net("net")
        >>> x, w = net.inputs("x", "w")
        >>> net.outputs(y=ro.tanh(x @ w))
        >>> rng = np.random.default_rng(0)
        >>> report = ro.testing.check_gradient(net, {"x": rng.normal(size=(4, 3)), "w": rng.normal(size=(3, 2))})
        >>> [(one.name, one.probes) for one in report.inputs], report.error < 1e-8
        ([('x', 12), ('w', 6)], True)
    """
    require_net_and_feeds(net, feeds)
    _check_settings(step, tolerance, sample)
    names = [name for name in net.input_names if is_float(net.dtype_of(name))] if wrt is None else list(wrt)
    arrays = float64_feeds(net, feeds, names)
    objective = Objective(net, device, outputs, names, seed, training)
    grads = objective.gradient(arrays)
    differentiator = Differentiator(objective, arrays, objective.values(arrays), step)
    probes = {name: make_probes(name, arrays[name], sample) for name in names}
    allowed = max(FEW, sum(map(len, probes.values())) // 10)
    check = _Check(net.name, differentiator, tolerance, allowed)
    return GradientReport(net.name, tuple(check.report(name, probes[name], grads[name]) for name in names))


def _check_settings(step: object, tolerance: object, sample: object) -> None:
    """Raise ArgumentError for settings that are out of range."""
    for name, value in {"step": step, "tolerance": tolerance}.items():
        if not isinstance(value, int | float | np.number) or isinstance(value, bool) or not 0 < value < np.inf:
            raise ArgumentError(f"check_gradient: {name} is out of range", wanted="a number above 0", came=repr(value))
    if sample is not None and (not isinstance(sample, int) or isinstance(sample, bool) or sample < 1):
        raise ArgumentError("check_gradient: sample is not a count", wanted="1 or more, or None", came=repr(sample))


def make_probes(name: str, array: Array, sample: int | None) -> list[Probe]:
    """One probe for each element, or a sample of them and random directions."""
    if sample is None or array.size <= sample:
        return [_element(name, array, place) for place in range(array.size)]
    generator = np.random.Generator(np.random.PCG64(array.size))
    places = np.unique(generator.integers(0, array.size, sample))
    vectors = generator.uniform(-1.0, 1.0, (DIRECTIONS, *array.shape))
    directions = [Probe(name, f"direction {k}", vector / np.linalg.norm(vector)) for k, vector in enumerate(vectors)]
    return [*(_element(name, array, int(place)) for place in places), *directions]


def _element(name: str, array: Array, place: int) -> Probe:
    direction = np.zeros(array.shape)
    direction.flat[place] = 1.0
    return Probe(name, str([int(i) for i in np.unravel_index(place, array.shape)]), direction)


@dataclass(frozen=True, eq=False)
class _ProbeRow:
    """A probe with its analytic and its numeric derivative."""

    probe: Probe
    analytic: float
    found: Difference

    @property
    def error(self) -> float:
        return abs(self.analytic - self.found.slope)


class _Check:
    """One check. It counts the probes that had to be moved."""

    def __init__(self, net: str, differentiator: Differentiator, tolerance: float, allowed: int) -> None:
        self.net, self.differentiator, self.tolerance, self.allowed = net, differentiator, tolerance, allowed
        self.generator = np.random.Generator(np.random.PCG64(0))
        self.moved = 0

    def report(self, name: str, probes: Sequence[Probe], grad: Array) -> InputReport:
        """Check all probes of one input."""
        rows = [_ProbeRow(probe, probe.along(grad), self.differentiator.difference(probe)) for probe in probes]
        self._check_finite(rows)
        suspects = [row for row in rows if row.found.is_bent]
        kinks = self._kinks(suspects)
        smooth = [row for row in rows if row not in kinks]
        # a jump has a huge numeric slope, so the scale is taken from other probes
        limit = self.tolerance * max([1.0, *(abs(row.found.slope) for row in smooth)])
        wrong = [row for row in smooth if row.error > limit]
        more = self._kinks([row for row in wrong if row.found.explains(row.error) and row not in suspects])
        moved = [self._moved(row.probe, limit) for row in [*kinks, *more]]
        rows = [*(row for row in smooth if row not in more), *moved]
        worst = max(rows, key=lambda row: row.error, default=None)
        if worst is None:
            return InputReport(name, grad.shape, 0, 0, 0.0, limit, "", 0.0, 0.0)
        if worst.error > limit:
            self._fail_wrong(worst, limit)
        found = worst.probe.label, worst.analytic, worst.found.slope
        return InputReport(name, grad.shape, len(rows), len(moved), worst.error, limit, *found)

    def _kinks(self, rows: Sequence[_ProbeRow]) -> list[_ProbeRow]:
        return [row for row in rows if self.differentiator.is_kink(row.probe, row.found)]

    def _moved(self, probe: Probe, limit: float) -> _ProbeRow:
        """The probe at other feeds nearby, where there is no kink."""
        self.moved += 1
        if self.moved > self.allowed:
            self._fail("the net has kinks at too many feeds to be checked", probe, wanted=f"at most {self.allowed}")
        objective, feeds = self.differentiator.objective, self.differentiator.feeds
        for _ in range(ATTEMPTS):
            nearby = self.differentiator.at(probe.resampled(feeds, self.generator))
            row = _ProbeRow(probe, probe.along(objective.gradient(nearby.feeds)[probe.name]), nearby.difference(probe))
            self._check_finite([row])
            suspect = row.found.is_bent or (row.error > limit and row.found.explains(row.error))
            if not (suspect and nearby.is_kink(probe, row.found)):
                return row
        self._fail(f"the net has a kink at {ATTEMPTS} places out of {ATTEMPTS}", probe)

    def _check_finite(self, rows: Sequence[_ProbeRow]) -> None:
        for row in rows:
            if not np.isfinite(row.error):
                self._fail("a derivative is not finite", row.probe, **_values(row))

    def _fail_wrong(self, row: _ProbeRow, limit: float) -> NoReturn:
        problem = f"the gradient is wrong, off by {row.error:.3g} where {limit:.1g} is allowed"
        self._fail(problem, row.probe, **_values(row))

    def _fail(self, problem: str, probe: Probe, **details: Any) -> NoReturn:
        raise CheckError(f"at {probe.label}: {problem}", net=self.net, blob=probe.name, **details)


def _values(row: _ProbeRow) -> dict[str, str]:
    return {"wanted": f"{row.found.slope!r} (numeric)", "came": f"{row.analytic!r} (analytic)"}
