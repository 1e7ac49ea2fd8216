"""Checks that compare runs: `checked_loans`, `check_devices` and `check_forward_mode`.

`checked_loans` finds changes of arrays that are lent to a pullback. Feeds, and outputs that backward reads, must not
change between `run.vjp` and the call of the pullback. Checksums of all these arrays are taken by `vjp` and compared in
the call.

`check_devices` compares every device with the reference.

`check_forward_mode` compares derivatives in a direction with gradients, without finite differences. For directions `v`
of inputs and weights `u` of outputs, `<u, J v>` and `<J^T u, v>` are the same number. `run.jvp` gives `J v`, and the
pullback of `run.vjp` gives `J^T u`. The check takes one pass of each, and works in float32 too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.compiler import DEVICES, Pullback, Run
from rnnops.compiler.api.compile import on_device
from rnnops.compiler.api.feeds import is_on_cuda
from rnnops.compiler.memory.memory import on_host
from rnnops.errors import ArgumentError, DeviceError, check_flags
from rnnops.net.net import Net
from rnnops.testing.gradient_check import (
    EXACT,
    CheckError,
    Device,
    DeviceRun,
    difference,
    float_outputs,
    output_grads,
    require_net_and_feeds,
    run_on,
    tolerance_of,
)
from rnnops.types import Array


def checked_loans(run: Run) -> LoanCheckedRun:
    """A run whose pullbacks find changes of arrays that are lent to them.

    Feeds, and outputs that backward reads, must not change between `run.vjp` and the call of the pullback. Checksums of
    all these arrays are taken by `vjp` and compared in the call.

    Args:
        run: a run that `ro.compile` made.

    Returns:
        An object that is called like the run. Pullbacks of its `vjp` raise CheckError with the name of a changed array.

    Raises:
        ArgumentError: run is not a run.

    Example:
        >>> net = ro.Net("net")
        >>> net.outputs(y=ro.exp(net.input("x")))
        >>> run = ro.testing.checked_loans(ro.compile(net, device="reference"))
        >>> x = np.zeros(2)
        >>> out, pullback = run.vjp(x=x)
        >>> x[:] = 9.0
        >>> try:
        ...     pullback({"y": np.ones(2)})
        ... except ro.testing.CheckError as error:
        ...     print(error.problem)
        kept blob 'x' was changed while the pullback reads it
    """
    if not isinstance(run, Run):
        raise ArgumentError("checked_loans: this is not a run", wanted="what ro.compile gives", came=type(run).__name__)
    return LoanCheckedRun(run)


class LoanCheckedRun:
    """A run like the one inside, with checksums."""

    def __init__(self, run: Run) -> None:
        self.run, self.net = run, run.net

    def __call__(
        self, *dicts: Mapping[str, Any], seed: int | None = None, training: bool = False, **feeds: Any
    ) -> dict[str, Array]:
        """As `Run.__call__`."""
        return self.run(*dicts, seed=seed, training=training, **feeds)

    def vjp(
        self, *dicts: Mapping[str, Any], seed: int | None = None, training: bool = True, wrt: Any = None, **feeds: Any
    ) -> tuple[dict[str, Array], LoanCheckedPullback]:
        """As `Run.vjp`."""
        outputs, pullback = self.run.vjp(*dicts, seed=seed, training=training, wrt=wrt, **feeds)
        fed = {f"feed '{name}'": _lent(value) for part in (*dicts, feeds) for name, value in part.items()}
        return outputs, LoanCheckedPullback(pullback, self.net.name, fed)


class LoanCheckedPullback:
    """A pullback that checks the arrays that are lent to it before it runs."""

    def __init__(self, pullback: Pullback, net: str, fed: Mapping[str, Array]) -> None:
        self.pullback, self._net = pullback, net
        kept = {f"kept blob '{name}'": array for name, array in pullback.held_arrays().items()}
        self._lent = {**kept, **fed}
        self._checksums = {name: checksum(array) for name, array in self._lent.items()}

    def __call__(self, grads: Mapping[str, Any] | Any) -> dict[str, Array]:
        self.check()
        self._lent = {}
        return self.pullback(grads)

    def step_blobs(self, name: str) -> Array:
        """As `Pullback.step_blobs`."""
        return self.pullback.step_blobs(name)

    def check(self) -> None:
        """Raise CheckError if a lent array has changed."""
        for name, array in self._lent.items():
            if checksum(array) != self._checksums[name]:
                raise CheckError(
                    f"{name} was changed while the pullback reads it",
                    net=self._net,
                    hint="Feeds are lent to the pullback until it is used or dropped: give it copies.",
                )


def _lent(value: Any) -> Any:
    """A feed as an array on its own device, for later checks."""
    return on_device(value) if is_on_cuda(value) else np.asarray(value)


def checksum(array: Array) -> bytes:
    """A checksum of the elements of an array."""
    return hashlib.blake2b(np.ascontiguousarray(on_host(array)).tobytes(), digest_size=16).digest()


REFERENCE = "reference"


@dataclass(frozen=True)
class DeviceRow:
    """One array of one device: how far it is from the reference and how far it may be."""

    device: str
    array: str
    error: float
    limit: float

    def __str__(self) -> str:
        return f"{self.device}: {self.array} is off by {self.error:.2e}, allowed {self.limit:.2e}"


@dataclass(frozen=True)
class DeviceReport:
    """A passed `check_devices`; prints one line for each array of each device.

    Args:
        net: name of the net.
        rows: for each array of each device its difference from the reference, `error`, and the allowed one, `limit`.

    Raises:
        CheckError: in `check_devices`, which makes it.

    Example:
        >>> print(ro.testing.DeviceReport("net", ()))
        devices agree on net 'net'
    """

    net: str
    rows: tuple[DeviceRow, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that were compared, each once."""
        return tuple(dict.fromkeys(row.device for row in self.rows))

    def __str__(self) -> str:
        return "\n".join([f"devices agree on net '{self.net}'", *(f"  {row}" for row in self.rows)])


def check_devices(
    net: Net,
    feeds: Mapping[str, Any],
    devices: Sequence[str] | Mapping[str, Device] | None = None,
    *,
    outputs: Sequence[str] | None = None,
    wrt: Sequence[str] | None = None,
    seed: int | None = None,
    training: bool = True,
    gradients: bool = True,
) -> DeviceReport:
    """Compare every output and every gradient of a net on each device with the reference.

    A plain run, the outputs of `run.vjp` and the gradients are compared. The allowed difference of an array is the
    tolerance of its dtype in `TOLERANCES`, times the reference's largest value. Integers and bools must be equal. The
    reference must be equal to itself.

    Args:
        net: the net.
        feeds: input name -> array.
        devices: names, or name -> device. A device is a name, or a function that makes a run of a net. If left out, all
            devices of this machine.
        outputs: names of the outputs that get a gradient; all float outputs if left out.
        wrt: names of the inputs whose gradients are compared; all float inputs if left out.
        seed: seed of random ops.
        training: whether Dropout is active.
        gradients: False compares only plain runs, for nets without a gradient.

    Returns:
        A `DeviceReport`, which can be printed.

    Raises:
        CheckError: a difference is too large; the error names net, device and array of the first one.
        FeedError: a feed is missing or does not fit.
        DeviceError: an unknown device.
        GradientError: outputs that are not float outputs.

    Example:
        >>> net = ro.Net("net")
        >>> net.outputs(y=ro.tanh(net.input("x")))
        >>> report = ro.testing.check_devices(net, {"x": np.linspace(-1, 1, 5)}, ["cpu"])
        >>> report.devices, all(row.error <= row.limit for row in report.rows)
        (('cpu',), True)
    """
    require_net_and_feeds(net, feeds)
    check_flags("check_devices", training=training, gradients=gradients)
    names = DEVICES if devices is None else devices
    names = (names,) if isinstance(names, str) else names
    if not isinstance(names, Sequence | Mapping):
        raise DeviceError("these are not devices", net=net.name, wanted="names, or name -> device", came=repr(names))
    named = names if isinstance(names, Mapping) else {name: name for name in names}
    feeds = {name: array.to_host() if hasattr(array, "to_host") else array for name, array in feeds.items()}
    options = _Options(net, outputs, wrt, seed, training, gradients)
    wanted = options.arrays(run_on(net, REFERENCE), feeds)
    rows: list[DeviceRow] = []
    for name, device in named.items():
        came = options.arrays(run_on(net, device), feeds)
        rows += _compared(net, name, came, wanted, exact=device == REFERENCE)
    return DeviceReport(net.name, tuple(rows))


@dataclass(frozen=True)
class _Options:
    """The options of a run on the reference and on each device."""

    net: Net
    outputs: Sequence[str] | None
    wrt: Sequence[str] | None
    seed: int | None
    training: bool
    gradients: bool

    def arrays(self, run: DeviceRun, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """All arrays that a run returns, by name."""
        plain = run(feeds, seed=self.seed, training=self.training)
        arrays = {f"output '{name}'": np.array(array) for name, array in plain.items()}
        if self.gradients:
            outputs, pullback = run.vjp(feeds, seed=self.seed, training=self.training, wrt=self.wrt)
            arrays.update((f"output '{name}' of vjp", np.array(array)) for name, array in outputs.items())
            grads = pullback(output_grads(outputs, float_outputs(self.net, outputs, self.outputs)))
            arrays.update((f"gradient of '{name}'", array) for name, array in grads.items())
        return arrays


def _compared(
    net: Net, device: str, came: Mapping[str, Array], wanted: Mapping[str, Array], exact: bool
) -> list[DeviceRow]:
    if came.keys() != wanted.keys():
        raise CheckError(
            "a device gives other arrays than the reference",
            net=net.name,
            op=f"device {device}",
            wanted=", ".join(wanted),
            came=", ".join(came),
        )
    rows = []
    for name, array in wanted.items():
        limit = (EXACT if exact else tolerance_of(array.dtype)).limit(array)
        rows.append(DeviceRow(device, name, difference(came[name], array), limit))
        if not rows[-1].error <= limit:
            raise CheckError(
                f"device '{device}' differs from the reference in its {name}",
                net=net.name,
                wanted=f"a difference of at most {limit:.2e}",
                came=f"{rows[-1].error:.2e} {_place(came[name], array)}",
            )
    return rows


def _place(came: Array, wanted: Array) -> str:
    """The place where two arrays differ most, with both values, in words."""
    if came.shape != wanted.shape or came.dtype != wanted.dtype:
        return f"({came.dtype}{list(came.shape)} instead of {wanted.dtype}{list(wanted.shape)})"
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(came.astype(np.float64) - wanted.astype(np.float64))
    place = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape)
    return f"at {[int(i) for i in place]} ({came[place]} instead of {wanted[place]})"


def check_forward_mode(
    net: Net,
    feeds: Mapping[str, Any],
    device: Device = "cpu",
    *,
    wrt: Any = None,
    seed: int | None = None,
    training: bool = True,
) -> float:
    """Compare `run.jvp` with `run.vjp`: both must give the same derivative of weighted outputs in one direction.

    Each side gives one number, a sum of products of weights and derivatives. The two numbers may differ by the relative
    part of `TOLERANCES` (1e-5 in float32, 1e-12 in float64) times the sum of the absolute values of all these products.
    Outputs of `jvp` must be those of `vjp` within `TOLERANCES`.

    Args:
        net: a net with float inputs and outputs.
        feeds: input name -> array, all floats float32 or all float64.
        device: a name for `ro.compile`, or a function that makes a run of a net.
        wrt: float inputs that have a direction; all of them if left out.
        seed: seed of random ops.
        training: whether Dropout is active.

    Returns:
        The difference of the two numbers, divided by the sum of the absolute values of all products.

    Raises:
        CheckError: the numbers, or the outputs, differ by more than is allowed.
        FeedError: feeds do not fit.
        GradientError: the net cannot be differentiated.

    Example:
        >>> net = ro.Net("n")
        >>> x, h, w = net.inputs("x", "h", "w")
        >>> net.outputs(y=ro.tanh(x + h @ w))
        >>> ro.testing.check_forward_mode(net, {"x": np.ones((2, 3)), "h": np.ones((2, 3)), "w": np.eye(3)}) < 1e-12
        True
    """
    require_net_and_feeds(net, feeds)
    run: Any = run_on(net, device)
    outputs, pullback = run.vjp(feeds, seed=seed, training=training, wrt=wrt)
    weights = output_grads(outputs, float_outputs(net, outputs, None))
    outputs = {name: array.copy() for name, array in outputs.items()}  # they are lent to the pullback
    grads = pullback(weights)
    directions = output_grads(grads, [*grads][::-1])
    found, moved = run.jvp(feeds, directions, seed=seed, training=training)
    for name, array in outputs.items():
        if not difference(found[name], array) <= tolerance_of(array.dtype).limit(array):
            raise CheckError("run.jvp gives another output than run.vjp", net=net.name, blob=name)
    ahead, behind = _terms(weights, moved), _terms(directions, grads)
    total = float(np.abs(ahead).sum() + np.abs(behind).sum())
    error = abs(float(ahead.sum() - behind.sum())) / (total or 1.0)
    limit = max((tolerance_of(array.dtype).relative for array in grads.values()), default=0.0)
    if not error <= limit:
        problem = f"run.jvp and run.vjp disagree, by {error:.3g} of all terms where {limit:.3g} is allowed"
        raise CheckError(problem, net=net.name, wanted=f"{behind.sum():.9g}", came=f"{ahead.sum():.9g}")
    return error


def _terms(left: Mapping[str, Array], right: Mapping[str, Array]) -> Array:
    """Products of all elements of the arrays of the same name, in float64."""
    pairs = [(array.astype(np.float64), right[name]) for name, array in left.items()]
    return np.concatenate([np.zeros(0), *((a * b).ravel() for a, b in pairs)])
