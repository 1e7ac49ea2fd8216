"""From a net and options to a run: `devices`, `compile`, and runs with `check_numerics=True`.

**Runs that find the first NaN or infinity** (`CheckedRun`). All outputs and gradients are checked, which costs a pass
over them. If one is not finite, the reference device runs the same call again, and the results of every op in every
step are checked. This is slow, but is done only then. The error names the first op that made a NaN or an infinity. If
SelectValid drops such a value in the same step, because its row is over, it is named only if there is no other: it may
still reach the backward pass.

Limits: values that reach no output and no gradient are not checked, so masks of -inf are not errors. `pullback.layers`
is not checked. In a step with a recurrence inside, values before this recurrence are named even if their row is over.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, NoReturn

import numpy as np

from rnnops.checkpoints.policy import as_saving
from rnnops.compiler.api.derivatives import Pullback
from rnnops.compiler.api.feeds import Feeds, check_precision, memory_named, resolved
from rnnops.compiler.api.run import CUDA, Run
from rnnops.compiler.run.compiled_scan import EXACT, REFERENCE, Options
from rnnops.compiler.targets.target import check_threads, default_threads
from rnnops.errors import (
    ArgumentError,
    DeviceError,
    NetError,
    NumericsError,
    check_flags,
    did_you_mean,
    named_arguments,
)
from rnnops.kernels.cpu.processor import host, vector_width
from rnnops.net.net import Net, require_net
from rnnops.net.schema import Call, RunContext
from rnnops.ops.linear_algebra import FORMATS
from rnnops.types import Array
from rnnops.util import cached_property


@dataclass(frozen=True)
class Device:
    """A device that `ro.compile` knows.

    Args:
        name: the value for `device=` of `ro.compile`.
        what: the device on this machine, in words.
        missing: why it cannot be used; empty if it can.
    """

    name: str
    what: str
    missing: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.missing or self.what}"


def devices() -> tuple[Device, ...]:
    """All devices that `ro.compile` knows, and why some cannot be used on this machine.

    Returns:
        For each device its `name`; `what`, the device on this machine in words; and `missing`, why it cannot be used.

    Example:
        >>> [device.name for device in ro.devices()]
        ['reference', 'cpu', 'cuda']
        >>> print(ro.devices()[0])
        reference: NumPy, op by op
    """
    cores = default_threads()
    processor = f"{cores} core{'s' if cores != 1 else ''}, {platform.machine()}, vectors of {vector_width()} bits"
    made_for = f", code for {host().name}" if host().chosen else ""
    return Device("reference", "NumPy, op by op"), Device("cpu", processor + made_for), _cuda()


def on_device(array: Any) -> Any:
    """An array of the CUDA device: a copy of a NumPy array, or an array of another library on the device, not copied.

    `.to_host()` copies it back; CuPy and PyTorch take it by `__cuda_array_interface__` or DLPack.

    Args:
        array: [...] a NumPy array, or an array of the device.

    Returns:
        An array of the same shape and dtype on the device.

    Raises:
        DeviceError: there is no device, or packages that it needs are missing.
        ArgumentError: what is given is not an array.

    Example:
        >>> array = ro.on_device(np.ones(3))
        >>> array.shape, array.to_host()
        ((3,), array([1., 1., 1.]))
    """
    facade, device_array = _kernels("facade"), _kernels("device_array")
    facade.card()
    try:
        return device_array.on_device(resolved(array))
    except TypeError as error:
        raise ArgumentError(str(error)) from None


def _cuda() -> Device:
    try:
        facade, gemm = _kernels("facade"), _kernels("gemm")
        return Device("cuda", f"{facade.card()}, products of tiles by {gemm.product_library()}")
    except DeviceError as error:
        return Device("cuda", "", str(error))


def _kernels(module: str) -> Any:
    """A module of the CUDA kernels. Raises DeviceError where the packages that they need are missing."""
    return import_module(f"rnnops.kernels.cuda.{module}")


DEVICES = ("reference", "cpu")  # devices of every machine


@memory_named(lambda net: net.name if isinstance(net, Net) else None)
def compile(  # noqa: A001
    net: Net,
    device: str = "cpu",
    checkpoints: Any = None,
    memory_budget: int | float | None = None,
    threads: int | None = None,
    recycle: bool = True,
    tuning: Options | None = None,
    weights: str | None = None,
    precision: str = EXACT,
    residuals: str = "float32",
    check_numerics: bool = False,
) -> Run:
    """Make a net ready to run. Plans are made at calls, from the shapes of feeds, and are cached.

    Args:
        net: a net with outputs; later changes of it have no effect.
        device: `"cpu"`, compiled kernels, `"reference"`, the NumPy interpreter, or `"cuda"`, kernels for a CUDA device.
        checkpoints: what is kept for backward: None (as little as possible without running a product again), `"all"`,
            `"speed"`, `"memory"`, `"collection"` (blobs of `net.checkpoint`), or a list of blob names or patterns.
        memory_budget: a limit for residuals and recomputed blobs together: an int is bytes, a float is a fraction of
            the bytes of `checkpoints="all"`. Of the choices that fit, the one predicted to be fastest is taken.
        threads: for the CPU device: the number of threads; one for each core if left out. Results do not depend on it.
        recycle: for the CPU device: whether ops run in an order that needs little memory, and results that die within a
            pass share memory, which the run keeps for its next call. Results have the same bits without it.
        tuning: for tests: forces vector width, tile size or kernels in plain Python on the CPU device.
        weights: for the CUDA device: `"float16"` keeps recurrent weights of float32 nets on the chip as float16, so
            that twice as many fit; sums are float32. Results then agree to about three digits.
        precision: the format that operands of products (MatMul, Gemm, and products of their gradients) are rounded to:
            `"float32"`, no rounding, or `"bfloat16"`; on the CUDA device also `"float16"` and `"tfloat32"`, by tensor
            cores. Sums, states and all else stay float32 (docs/precision.md).
        residuals: the format of values that steps of float32 recurrences keep for backward, except states: `"float32"`,
            or `"bfloat16"`, with half the bytes and 8 of 24 bits of precision. Outputs do not change; gradients then
            agree to about two digits.
        check_numerics: whether outputs and gradients are checked. One that is not finite is an error, which names the
            op and the step that made the first NaN or infinity.

    Returns:
        A `ro.Run`, to be called with arrays.

    Raises:
        DeviceError: the device, the precision or the number of threads is unknown or not available.
        NetError: net is not a net, or has no outputs.
        ArgumentError: unknown argument, or a flag that is not a bool.
        CheckpointError: the policy, the budget or `residuals` is wrong.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=net.input("x") * 2.0)
        >>> run = ro.compile(net, threads=1)
        >>> run
        <Run of net 'n' on cpu: x -> y>
        >>> run({"x": np.array([1.0, 2.0])})
        {'y': array([2., 4.])}
    """
    check_flags("compile", recycle=recycle, check_numerics=check_numerics)
    _check_arguments(net, device, weights, tuning)
    count = default_threads() if threads is None else check_threads(threads)
    chosen = replace(tuning or Options(), threads=count, recycle=bool(recycle))
    options = REFERENCE if device == "reference" else chosen
    options = replace(options, precision=check_precision(net.name, precision, device, _precisions(device, options)))
    saving = as_saving(checkpoints, memory_budget, net, residuals)
    if check_numerics and device == CUDA:
        raise DeviceError("check_numerics= is not supported on 'cuda'", net=net.name, wanted="'cpu' or 'reference'")
    if device == CUDA:
        cuda_run: Any = import_module("rnnops.compiler.api.cuda_run")  # numba.cuda is loaded when it is wanted
        made: Run = cuda_run.compile_for_cuda(net, options, saving, weights)
        return made
    kind = CheckedRun if check_numerics else Run
    return kind(net.snapshot(), device, options, saving=saving)


def _check_arguments(net: Net, device: str, weights: str | None, tuning: Options | None) -> None:
    """Raise the errors of `compile` for a wrong net, a wrong device, and options of another device."""
    require_net(net, None if isinstance(net, Net) else _use_of(net))
    if not isinstance(device, str) or device not in (*DEVICES, CUDA):
        hint = did_you_mean(device, (*DEVICES, CUDA), {"gpu": CUDA, "cuda:0": CUDA, "numpy": "reference"})
        wanted = f"one of {', '.join((*DEVICES, CUDA))}"
        raise DeviceError("no such device", net=net.name, wanted=wanted, came=repr(device), hint=hint)
    if weights is not None and device != CUDA:
        hint = "Weights of int8 are kept where they are bound: run.bind(**params, weights='int8')."
        problem = "weights= is only for the CUDA device"
        raise DeviceError(problem, net=net.name, wanted="device='cuda'", came=repr(device), hint=hint)
    if not net.output_blobs:
        raise NetError("the net has no outputs", net=net.name, hint="Call net.outputs(...).")
    if not isinstance(tuning, Options | None):
        hint = "It is for tests; leave it out."
        raise DeviceError(
            "tuning= is not an Options", net=net.name, wanted="Options", came=repr(tuning)[:60], hint=hint
        )


def _use_of(value: object) -> str | None:
    """The hint for a cell or a layer that is given instead of a net."""
    if hasattr(value, "sequences") or hasattr(value, "get_state_names"):
        return "A cell is stepped in a net: ro.scan(cell, xs, h=h0), or cell.apply_over_sequence(net, xs)."
    return "A model has a method, model.compile([x]); its forward calls layers." if hasattr(value, "scope") else None


def _precisions(device: str, options: Options) -> tuple[str, ...]:
    """The formats to which a device can round operands of products."""
    return options.target.precisions if device == "cpu" else (EXACT, *FORMATS)


GIVEN = "gradient "  # prefix of names of gradients that the caller gives


class CheckedPullback(Pullback):
    """A pullback that checks its gradients for NaN and infinity."""

    check: Callable[[Any, Mapping[str, Array]], None]

    def __call__(self, grads: Mapping[str, Any] | Any) -> dict[str, Array]:
        """Run the backward pass, as any pullback. Raises NumericsError for a gradient that is not finite."""
        found = super().__call__(grads)
        self.check(grads, found)
        return found


class CheckedRun(Run):
    """A run that checks its outputs and gradients for NaN and infinity."""

    pullback: ClassVar[type[Pullback]] = CheckedPullback

    def __call__(
        self, *dicts: Feeds, seed: int | None = None, training: bool = False, **feeds: Any
    ) -> dict[str, Array]:
        """Forward pass, as any run. Raises NumericsError for an output that is not finite."""
        outputs = super().__call__(*dicts, seed=seed, training=training, **feeds)
        self._check("output", outputs, (*dicts, feeds), lambda run: run(*dicts, seed=seed, training=training, **feeds))
        return outputs

    def vjp(
        self, *dicts: Feeds, seed: int | None = None, training: bool = True, wrt: Any = None, **feeds: Any
    ) -> tuple[dict[str, Array], Pullback]:
        """Forward pass and pullback, as any run. Both raise NumericsError for results that are not finite."""

        def again(run: Run) -> tuple[dict[str, Array], Pullback]:
            return run.vjp(*dicts, seed=seed, training=training, wrt=wrt, **feeds)

        def check(given: Any, grads: Mapping[str, Array]) -> None:
            ones = given if isinstance(given, Mapping) else {"of the output": given}
            named = {f"{GIVEN}{name}": one for name, one in ones.items()}
            self._check("gradient of", grads, (named, *dicts, feeds), lambda run: again(run)[1](given))

        outputs, pullback = super().vjp(*dicts, seed=seed, training=training, wrt=wrt, **feeds)
        self._check("output", outputs, (*dicts, feeds), lambda run: again(run)[0])
        assert isinstance(pullback, CheckedPullback)
        pullback.check = check
        return outputs, pullback

    @named_arguments
    def bind(self, *, weights: Any = None, **params: Any) -> Run:
        """A run with some inputs fed once and for all, which checks its numbers; as any run."""
        if isinstance(weights, str):
            hint = "Bind a run without check_numerics."
            raise DeviceError(f"check_numerics= does not work with weights of {weights}", net=self.net.name, hint=hint)
        run = super().bind(weights=weights, **params)
        return CheckedRun(run.net, run.device, run._options, run._bound, run._saving)

    def export_native(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raises DeviceError: an exported program does not check its numbers."""
        hint = "Export a run without check_numerics."
        raise DeviceError("exported programs do not check their numbers", net=self.net.name, hint=hint)

    def _check(
        self,
        what: str,
        arrays: Mapping[str, Array],
        feeds: Sequence[Feeds],
        again: Callable[[Run], Mapping[str, Array]],
    ) -> None:
        """Raise NumericsError if an array is not finite, with the op that made the first NaN or infinity.

        Args:
            again: runs the same call on a given run, and returns its arrays.
        """
        bad = next((name for name, array in arrays.items() if not is_finite(array)), None)
        if bad is None:
            return
        reference = replace(REFERENCE, precision=self._options.precision)
        watched = _Watched(self.net, "reference", reference, self._bound)
        exact = again(watched)
        watched.watcher.close_step()
        fed = {name: array for given in (self._bound, *feeds) for name, array in given.items() if not is_finite(array)}
        if fed:
            raise self._fed_error(fed, f"{what} '{bad}'")
        if not is_finite(exact[bad]):
            if watched.watcher.dropped:
                raise watched.watcher.dropped[0].error
            raise NumericsError(f"a constant is not finite, and reaches {what} '{bad}'", net=self.net.name)
        problem = f"{what} '{bad}' is not finite on this device, and is on the reference device"
        raise NumericsError(problem, net=self.net.name, came=self.device)

    def _fed_error(self, fed: Mapping[str, Any], where: str) -> NumericsError:
        """The error for a feed, or a gradient of the caller, that is not finite. NaN comes first, because masks have
        infinities."""
        name, array = min(fed.items(), key=lambda item: not np.isnan(np.asarray(item[1])).any())
        values = np.asarray(array)
        lost = np.isnan(values)
        came = f"NaN at {np.argwhere(lost)[0].tolist()}" if lost.any() else f"infinity at {place_of(values)}"
        kind = "a gradient that was given" if name.startswith(GIVEN) else "a feed"
        problem = f"{kind} is not finite, and reaches {where}"
        return NumericsError(problem, net=self.net.name, blob=name.removeprefix(GIVEN), came=came)


class _Watched(Run):
    """A run on the reference device that stops at the first op that makes a NaN or an infinity."""

    @cached_property
    def watcher(self) -> Watcher:
        """The watcher of its ops."""
        return Watcher(self.net.name)

    def _context(self, seed: int | None, training: bool) -> RunContext:
        return replace(super()._context(seed, training), watch=self.watcher)


@dataclass(frozen=True)
class NotFinite:
    """A NaN or an infinity that an op made.

    Args:
        error: the error for it.
        rows: for each element of the result's first axis, True if it has one.
    """

    error: NumericsError
    rows: Array


class Watcher:
    """Checks ops in the order in which they run, and stops at the first NaN or infinity that is not dropped.

    A value in a step of a recurrence may still be dropped by SelectValid, so errors are raised when the step is over.

    Args:
        net: name of the outer net.
    """

    def __init__(self, net: str) -> None:
        self.dropped: list[NotFinite] = []
        self._net, self._step = net, (net, 0)
        self._made: list[NotFinite] = []  # in this step

    def __call__(self, call: Call, operands: Sequence[Any], results: Sequence[Any], t: int) -> None:
        if self._step != (call.net, t):
            self.close_step()
            self._step = call.net, t
        if call.op.type == "SelectValid":
            self._drop(np.asarray(operands[3]) >= operands[2])
        for name, result in zip(call.op.outputs, results, strict=True):
            made = name and made_here(operands, result)
            if made:
                error = self._error(call, name, result, operands, made)
                self._made.append(NotFinite(error, bad_rows(result)))
        if call.net == self._net:
            self.close_step()

    def close_step(self) -> None:
        """Raise NumericsError for the first NaN or infinity of a step that was not dropped."""
        if self._made:
            raise self._made[0].error

    def _drop(self, over: Array) -> None:
        """Take out values that are only in finished rows."""
        gone = [one for one in self._made if one.rows.shape == over.shape and not (one.rows & ~over).any()]
        self.dropped += gone
        self._made = [one for one in self._made if not any(one is other for other in gone)]

    def _error(self, call: Call, name: str, result: Array, operands: Sequence[Any], made: str) -> NumericsError:
        step = f", in step {self._step[1]}" if call.net != self._net else ""
        return NumericsError(
            f"the first {made} is made here{step}",
            net=call.net,
            op=call.op.label,
            blob=name,
            wanted="finite numbers",
            came=f"{made} at {place_of(result)} of operands {', '.join(map(in_words, operands))}",
        )


def bad_rows(result: Array) -> Array:
    """For each element of the first axis, True if it has a number that is not finite. A scalar is one element."""
    rows = ~np.isfinite(np.atleast_1d(result))
    return np.asarray(rows.reshape(len(rows), -1).any(axis=1))


def is_finite(array: Any) -> bool:
    """True if an array has neither NaN nor infinity; integers have none."""
    values = np.asarray(array)
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def made_here(operands: Sequence[Any], result: Any) -> str | None:
    """`NaN` if an op makes NaN of operands without NaN; `infinity` if it makes one of finite operands; else None."""
    if not isinstance(result, np.ndarray) or is_finite(result):
        return None
    arrays = [one for one in operands if isinstance(one, np.ndarray) and one.dtype.kind == "f"]
    if np.isnan(result).any() and not any(np.isnan(one).any() for one in arrays):
        return "NaN"
    return "infinity" if arrays and all(map(is_finite, arrays)) else None


def place_of(result: Array) -> list[int]:
    """The indices of the first element that is not finite."""
    return [int(i) for i in np.argwhere(~np.isfinite(result))[0]]


def in_words(operand: Any) -> str:
    """An operand in words: dtype, shape, least and largest number."""
    if not isinstance(operand, np.ndarray) or operand.size == 0 or operand.dtype.kind not in "fiu":
        return "none"
    with np.errstate(invalid="ignore"):
        return f"{operand.dtype}{list(operand.shape)} from {operand.min():.3g} to {operand.max():.3g}"
