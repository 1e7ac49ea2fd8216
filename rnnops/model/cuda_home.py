"""A model's arrays on the CUDA device: parameters, gradients and what optimizers keep; counts stay numbers of the host.

A batch of NumPy arrays is copied to the device, and results to the host when all work of the step is in the stream.
With a batch that is on the device already, results stay there, and a call returns before the work is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnops.compiler import Pullback
from rnnops.compiler.api.cuda_run import are_on_host, placed
from rnnops.compiler.api.feeds import as_array, is_on_cuda
from rnnops.compiler.buffers.memory import on_host
from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.facade import card
from rnnops.kernels.cuda.host_numbers import written
from rnnops.kernels.cuda.memory import current_stream
from rnnops.model.device_updates import DeviceUpdates
from rnnops.model.home import Arrays, Confirm, Home
from rnnops.model.optimizers import Optimizer
from rnnops.model.tracing import LOSS
from rnnops.types import is_float


class CudaHome(Home):
    """The memory of the device that is current.

    Args:
        model: its name.

    Raises DeviceError where there is no device.
    """

    def __init__(self, model: str) -> None:
        card(model)
        self._model = model
        self._updates: DeviceUpdates | None = None
        self._ones: dict[str, Any] = {}  # by dtype; nobody writes them

    def kept(self, arrays: Mapping[str, Any]) -> Arrays:
        floats = {name: is_float(str(array.dtype)) for name, array in arrays.items()}
        return {name: on_device(array) if floats[name] else on_host(array) for name, array in arrays.items()}

    def fed(self, net: str, leaves: Mapping[str, Any]) -> Mapping[str, Any]:
        if not are_on_host(net, leaves):
            return leaves
        return {name: on_device(as_array(net, name, value)) for name, value in leaves.items()}

    def given(self, outputs: Mapping[str, Any], leaves: Mapping[str, Any]) -> Mapping[str, Any]:
        wanted = {name: array for name, array in outputs.items() if name != LOSS}  # which is among the results
        return placed(wanted, not any(map(is_on_cuda, leaves.values())))

    def gradients(self, pullback: Pullback, loss: Any) -> Arrays:
        dtype = loss.dtype.name
        if dtype not in self._ones:
            self._ones[dtype] = written([1.0], current_stream(), dtype)[0]
        return pullback({LOSS: self._ones[dtype]})

    def update(
        self, optimizer: Optimizer, params: Arrays, grads: Arrays, state: Arrays
    ) -> tuple[Arrays, Arrays, Confirm]:
        if self._updates is None or self._updates.optimizer != optimizer:
            self._updates = DeviceUpdates(optimizer, self._model)
        return self._updates(params, grads, state)
