"""What there is to run nets on, here and now."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rnnops.compiler.targets.cpu.team import default_threads
from rnnops.errors import ArgumentError, DeviceError
from rnnops.foreign_arrays import resolved
from rnnops.kernels.cpu.processor import host
from rnnops.kernels.cpu.vector_width import vector_width


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
        ArgumentError: what is given is no array.

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
