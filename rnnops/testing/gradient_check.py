"""`check_gradient`: gradients of a net against central differences in float64; the objective that checkers share.

Every element of every float input is moved separately, unless `sample` says otherwise. If the net has a kink within a
step of the feeds, that element's feed is moved to another place nearby and checked there, against a gradient taken
there. A kink therefore hides nothing else, and too many kinks fail the check.

**Kinks and slopes**. `f-`, `f0` and `f+` are f at x - h, x and x + h. The slope is `(f+ - f-) / 2h`, and the bend is
`|(f+ - f0) / h - (f0 - f-) / h|`. A kink or a jump within h of x makes the slope wrong by half the bend, wherever it
lies. A smooth function bends too, by `h |f''|`, but that shrinks with h while its slope stays. At an eighth of h a kink
either still bends as much, or is out of reach and the slope has moved. So a second look at `h / 8` tells the two apart.

**The objective** is a net on a device with its outputs weighted by numbers that hide nothing: rotations of the circle
by the golden ratio, all different, none near zero, of both signs, equal on every machine. Weights of one would hide
every error that a sum hides (the gradient of a softmax's sum is zero).
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
    """Raise NetError for an argument that is not a net, and FeedError for feeds that are not a dict."""
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


SHRINK = 8.0  # of the step, for the second look
BENT = 1e-3  # a bend, relative to the slope, from which on the second look is taken whatever the analytic value
MOVED = 0.05  # how much of the bend the slope of a smooth function may move by


@dataclass(frozen=True, eq=False)
class Probe:
    """A direction in one input.

    Args:
        label: `[0, 2]` for an element, `direction 1` for a random direction.
        direction: of the input's shape; 1 at one element, or a random vector of length 1.
    """

    name: str
    label: str
    direction: Array

    def step(self, array: Array, step: float) -> float:
        """The step, relative to the largest value that it moves."""
        return step * max(1.0, float(np.abs(array[self.direction != 0]).max(initial=0.0)))

    def along(self, grad: Array) -> float:
        """The derivative in this direction that a gradient says."""
        return float(np.vdot(grad, self.direction))

    def resampled(self, feeds: Mapping[str, Array], generator: np.random.Generator) -> dict[str, Array]:
        """Feeds with the elements that this probe moves at other places nearby: 1 to 10 % off, of the same sign."""
        array = feeds[self.name].copy()
        moved = self.direction != 0
        sizes = np.maximum(np.abs(array[moved]), 0.1) * generator.uniform(0.01, 0.1, int(moved.sum()))
        signs = np.where(generator.random(sizes.shape) < 0.5, -1.0, 1.0)
        array[moved] += sizes * signs
        return {**feeds, self.name: array}


@dataclass(frozen=True)
class Difference:
    """The central difference of a probe; see the module."""

    slope: float
    bend: float

    @property
    def is_bent(self) -> bool:
        return not self.bend <= BENT * max(1.0, abs(self.slope))

    def explains(self, error: float) -> bool:
        """True if a kink could be the reason of an error: it would be half the bend."""
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
    """How far a probe really went, after rounding."""
    return float(np.vdot(ahead - behind, probe.direction) / np.vdot(probe.direction, probe.direction))


DIRECTIONS = 4  # random directions, in addition to the sampled elements of a big array
ATTEMPTS = 10  # places that are tried for one probe on a kink
FEW = 8  # probes that may be on kinks in any net, however small


@dataclass(frozen=True)
class InputReport:
    """One input: the probe with the largest error.

    Args:
        probes: how many elements and directions were differenced; resampled: how many of them moved off kinks.
        error: max |analytic - numeric|; limit: what it may be.
        worst: label of the probe, with its analytic and numeric derivative.
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
        net: its name.
        inputs: of each input the probe with the largest error: `name`, `probes`, `error`, `limit`, ...

    Raises:
        CheckError: by `check_gradient`, which makes it.

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
        """How many probes were moved off kinks."""
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
    """Compare the gradients of a net with central differences, and `run.vjp`'s outputs with a plain run's bit for bit.

    Every element of every input is moved by itself, unless `sample` says otherwise. Where the net has a kink within a
    step of the feeds, that element is moved to another place nearby and checked there.

    Args:
        net: what is checked.
        feeds: input name -> array, floats in float64.
        outputs: names of the outputs that get a gradient; all float outputs if left out.
        wrt: names of the inputs to check; all float inputs, parameters included, if left out.
        seed: of random ops.
        training: whether the run trains, as dropout asks.
        device: a device's name, or a function that makes a run of a net.
        step: of the differences, relative to max(1, |x|). With values and derivatives around 1 the default has errors
            of 1e-10 from curvature and from rounding.
        tolerance: for each input, max |analytic - numeric| <= tolerance * max(1, max |numeric|).
        sample: for arrays of more elements than this, only so many random elements are moved, and a few random
            directions through all of them. Left out, every element is.

    Returns:
        A `GradientReport`, which prints.

    Raises:
        CheckError: a gradient is wrong; it names net, input, element and both values. Or kinks are at too many places.
        FeedError: an input is not fed, or floats are not float64.
        GradientError: outputs that are not float outputs.
        DeviceError: an unknown device.
        ArgumentError: a step, tolerance or sample that makes no sense.

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
    """Raise ArgumentError for settings that make no sense."""
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
    """A probe with what both sides say."""

    probe: Probe
    analytic: float
    found: Difference

    @property
    def error(self) -> float:
        return abs(self.analytic - self.found.slope)


class _Check:
    """One check; counts the probes that had to move."""

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
        # a jump has a huge numeric slope, so the scale is taken where there is none
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
        """The probe at a place nearby that has no kink."""
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
