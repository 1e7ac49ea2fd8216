"""`compile`, from a net and options to a run, and `devices`."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rnnops.arguments import check_flags, did_you_mean, named_arguments
from rnnops.checkpoints.policy import as_saving
from rnnops.compiler.api.feeds import check_precision, memory_named, resolved
from rnnops.compiler.api.run import CUDA, Run
from rnnops.compiler.run.compiled_scan import EXACT, REFERENCE, Options
from rnnops.compiler.targets.cpu.team import check_threads, default_threads
from rnnops.errors import ArgumentError, DeviceError, NetError
from rnnops.kernels.cpu.processor import host, vector_width
from rnnops.net.net import Net, require_net
from rnnops.ops.linear_algebra import FORMATS
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.compiler.api import check_numerics as checked
else:  # most runs do without
    checked = LazyModule("rnnops.compiler.api.check_numerics")


@dataclass(frozen=True)
class Device:
    """A device that `ro.compile` knows.

    Args:
        name: `device=` of `ro.compile`.
        what: it is on this machine.
        missing: why it cannot be used; empty where it can.
    """

    name: str
    what: str
    missing: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.missing or self.what}"


def devices() -> tuple[Device, ...]:
    """All devices that `ro.compile` knows, those that cannot be used here with the reason.

    Returns:
        For each its `name`, `what` it is here, and what is `missing`, empty where it can be used.

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
    """An array of the CUDA device: a copy of a NumPy array, or what another library has there as it is.

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
        facade, blas = _kernels("facade"), _kernels("blas")
        return Device("cuda", f"{facade.card()}, products of tiles by {blas.products()}")
    except DeviceError as error:
        return Device("cuda", "", str(error))


def _kernels(module: str) -> Any:
    """A module of the CUDA kernels. Raises DeviceError where the packages that they need are missing."""
    return import_module(f"rnnops.kernels.cuda.{module}")


DEVICES = ("reference", "cpu")  # those that every machine has


@memory_named(lambda net: net.name if isinstance(net, Net) else None)
@named_arguments
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
    """Make a net ready to run; shapes are learnt at the call, plans are cached, and filled in for new T and N.

    Args:
        net: with outputs; later changes of it do not matter.
        device: `"cpu"`, compiled kernels, `"reference"`, the NumPy interpreter, or `"cuda"`, kernels for a CUDA device.
        checkpoints: what is kept for backward: None (no product is done again, else as little as can be), `"all"`,
            `"speed"`, `"memory"`, `"collection"` (what `net.checkpoint` named), or a list of blob names or patterns.
        memory_budget: a limit for residuals and recomputed blobs together: an int is bytes, a float is a fraction of
            what `checkpoints="all"` keeps. Of the choices that fit, the one predicted to be fastest is taken.
        threads: of the CPU device; as many as there are cores if left out. Results do not depend on it.
        recycle: of the CPU device; whether ops run in an order in which little is alive, and results that die within a
            pass share memory, which the run keeps for its next call. Results have the same bits without it.
        tuning: what tests force on the CPU device: vector width, tile size, kernels as plain Python.
        weights: of the CUDA device; `"float16"` keeps recurrent weights of float32 nets as such on chip, where twice as
            many fit; sums are float32. Results then agree to about three digits.
        precision: what operands of products (MatMul, Gemm, and those of their gradients) are rounded to: `"float32"`,
            not at all, or `"bfloat16"`, on the CUDA device also `"float16"` and `"tfloat32"`, by tensor cores; sums,
            states and all else stay float32 (docs/precision.md).
        residuals: what steps of float32 recurrences keep for backward, states excepted: `"float32"`, or `"bfloat16"`,
            half the bytes and 8 of 24 digits. Outputs stay what they are; gradients then agree to about two digits.
        check_numerics: whether outputs and gradients are looked at, and one that is not finite is an error that names
            the op and the step that made the first NaN or infinity.

    Returns:
        A `ro.Run`, to be called with arrays.

    Raises:
        DeviceError: device, precision or number of threads is unknown or not there.
        NetError: net is not a net, or has no outputs.
        ArgumentError: arguments that there are not, or one that is neither on nor off.
        CheckpointError: the policy or the budget makes no sense.

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
        raise DeviceError("check_numerics= is not of the CUDA device", net=net.name, wanted="'cpu' or 'reference'")
    if device == CUDA:
        cuda_run: Any = import_module("rnnops.compiler.api.cuda_run")  # numba.cuda is loaded when it is wanted
        made: Run = cuda_run.compile_for_cuda(net, options, saving, weights)
        return made
    kind = checked.CheckedRun if check_numerics else Run
    return kind(net.snapshot(), device, options, saving=saving)


def _check_arguments(net: Net, device: str, weights: str | None, tuning: Options | None) -> None:
    """Raise what `compile` says of a net, a device and options of one device."""
    require_net(net, None if isinstance(net, Net) else _use_of(net))
    if not isinstance(device, str) or device not in (*DEVICES, CUDA):
        hint = did_you_mean(device, (*DEVICES, CUDA), {"gpu": CUDA, "cuda:0": CUDA, "numpy": "reference"})
        wanted = f"one of {', '.join((*DEVICES, CUDA))}"
        raise DeviceError("no such device", net=net.name, wanted=wanted, came=repr(device), hint=hint)
    if weights is not None and device != CUDA:
        hint = "Weights of int8 are kept where they are bound: run.bind(**params, weights='int8')."
        problem = "weights= is of the CUDA device"
        raise DeviceError(problem, net=net.name, wanted="device='cuda'", came=repr(device), hint=hint)
    if not net.output_blobs:
        raise NetError("the net has no outputs", net=net.name, hint="Call net.outputs(...).")
    if not isinstance(tuning, Options | None):
        hint = "It is for tests; leave it out."
        raise DeviceError(
            "tuning= is not an Options", net=net.name, wanted="Options", came=repr(tuning)[:60], hint=hint
        )


def _use_of(value: object) -> str | None:
    """The hint for a cell or a layer in the place of a net."""
    if hasattr(value, "sequences") or hasattr(value, "get_state_names"):
        return "A cell is stepped in a net: ro.scan(cell, xs, h=h0), or cell.apply_over_sequence(net, xs)."
    return "A model has a method, model.compile([x]); its forward calls layers." if hasattr(value, "scope") else None


def _precisions(device: str, options: Options) -> tuple[str, ...]:
    """The formats to which a device can round operands of products."""
    return options.target.precisions if device == "cpu" else (EXACT, *FORMATS)
