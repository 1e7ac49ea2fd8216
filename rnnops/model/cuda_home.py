"""A model's arrays on the CUDA device, and their updates there.

**Arrays** (`CudaHome`): parameters, gradients and states of optimizers are on the device. Counts stay on the host. A
batch of NumPy arrays is copied to the device. Its results are copied to the host when all work of the step is in the
stream. If a batch is on the device already, results stay there, and a call returns before the work is done.

**Updates of parameters** (`DeviceUpdates`) use the rule that an optimizer has for NumPy's arrays. The rule is called
with blobs, which gives a net. This net is compiled to one elementwise kernel, which is launched for each parameter.
Numbers that change from update to update (rates, corrections of bias) are arguments of the launch. Clipping by norm
sums squares on the device, with 64 blocks for each gradient, and scales there. The host checks that the norm is finite
when results of the step have come.

Limit: squares are summed in the dtype of the gradients, so that a float32 norm of 1e19 counts as not finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from math import gcd
from typing import Any

import numpy as np

import rnnops as ro
from rnnops.compiler import Pullback, Run, compile as compile_net
from rnnops.compiler.api.cuda_run import are_on_host, placed
from rnnops.compiler.api.feeds import as_array, is_on_cuda
from rnnops.compiler.api.run import CUDA
from rnnops.compiler.memory.memory import on_host
from rnnops.errors import OptimizerError
from rnnops.kernels.cuda.device_array import on_device, written
from rnnops.kernels.cuda.facade import card
from rnnops.kernels.cuda.memory import current_stream
from rnnops.model.layer import LOSS
from rnnops.model.optimizers import Optimizer, check_norm
from rnnops.model.store import Arrays, Confirm, Home
from rnnops.net.net import Net
from rnnops.types import is_float


class CudaHome(Home):
    """The memory of the current device.

    Args:
        model: name of the model.

    Raises DeviceError if there is no device.
    """

    def __init__(self, model: str) -> None:
        card(model)
        self._model = model
        self._updates: DeviceUpdates | None = None
        self._ones: dict[str, Any] = {}  # by dtype; never written

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


BLOCKS = 64  # at most so many blocks share the sum over a gradient


class DeviceUpdates:
    """The updates of one optimizer.

    Args:
        optimizer: any optimizer whose rule also works with blobs.
        model: name of the model, for errors.
    """

    def __init__(self, optimizer: Optimizer, model: str) -> None:
        self.optimizer, self.model = optimizer, model

    def __call__(
        self, params: Mapping[str, Any], grads: Mapping[str, Any], state: Mapping[str, Any]
    ) -> tuple[Arrays, Arrays, Confirm]:
        """New parameters, a new state, and a later test that the norm of the gradients was finite."""
        optimizer = self.optimizer
        new_params, new_state = dict(params), optimizer._counted(grads, state)
        scale, confirm = self._scale(grads)
        known: dict[tuple[float, ...], Any] = {}
        for name, numbers in optimizer._numbers_of(grads, state).items():
            if not grads[name].size:
                continue
            if numbers not in known:
                known[numbers] = written(numbers, current_stream(), grads[name].dtype)
            keys = optimizer._kept(name)
            arrays = {"value": params[name], "grad": grads[name], **_numbered("moment", [state[key] for key in keys])}
            feeds = {key: array.reshape(_factor(array.size), -1) for key, array in arrays.items()}
            scalars = _numbered("number", [known[numbers][place] for place in range(len(numbers))])
            found = self._rule(feeds, scalars, scale)
            made = {key: found[f"new_{key}"].reshape(params[name].shape) for key in arrays if key != "grad"}
            new_params[name] = made.pop("value")
            new_state.update(zip(keys, made.values(), strict=True))
        return new_params, new_state, confirm

    def _scale(self, grads: Mapping[str, Any]) -> tuple[dict[str, Any], Confirm]:
        """The factor that keeps the gradients' norm within the limit, and the check of the norm later."""
        total: Any = None
        for grad in grads.values() if self.optimizer.max_norm is not None else ():
            if grad.size:
                start = written([0.0], current_stream(), grad.dtype)[0] if total is None else total
                total = self._squares({"total": start, "grad": grad.reshape(gcd(grad.size, BLOCKS), -1)})["total"]
        if total is None:
            return {}, partial(check_norm, {}, 0.0)
        found = self._clip({"total": total})
        return {"scale": found["scale"]}, lambda: check_norm(grads, float(found["norm"]))

    @cached_property
    def _rule(self) -> Run:
        """`value, grad, moments, numbers [, scale] -> new_value, new_moments`, elementwise."""
        optimizer, net = self.optimizer, Net(f"{type(self.optimizer).__name__}.update")
        value, grad = net.inputs("value", "grad")
        moments = [net.input(f"moment_{place}") for place in range(len(optimizer._kept("")))]
        numbers = [net.input(f"number_{place}") for place in range(len(optimizer._numbers(0.0, 1)))]
        grad = self._clipped(grad)
        grad = grad if optimizer.max_norm is None else grad * net.input("scale")
        try:
            new, kept = optimizer._updated(value, grad, moments, *numbers)
            net.outputs(new_value=new, **{f"new_moment_{place}": one for place, one in enumerate(kept)})
        except Exception as error:  # any error of a rule that needs NumPy's arrays
            problem = f"the rule of {type(optimizer).__name__} is not one for blobs: {error}"
            hint = "Use operators, np.sqrt and the like, or compile the model for the CPU."
            raise OptimizerError(problem, net=self.model, hint=hint) from error
        return compile_net(net, device=CUDA)

    @cached_property
    def _squares(self) -> Run:
        """`total, grad -> total`, with the sum of all squares added."""
        net = Net("global_norm")
        total, grad = net.inputs("total", "grad")
        squares = ro.reduce_sum(np.square(self._clipped(grad)), axes=[0, 1], keepdims=0)
        net.outputs(total=total + squares)
        return compile_net(net, device=CUDA)

    @cached_property
    def _clip(self) -> Run:
        """`total -> scale, norm`."""
        net = Net("clip_by_global_norm")
        norm, limit = ro.sqrt(net.input("total")), float(self.optimizer.max_norm or 0.0)
        net.outputs(norm=norm, scale=ro.where(norm > limit, limit / norm, 1.0))
        return compile_net(net, device=CUDA)

    def _clipped(self, grad: Any) -> Any:
        limit = self.optimizer.max_value
        return grad if limit is None else np.clip(grad, -float(limit), float(limit))


def _factor(size: int) -> int:
    """The number of rows that elements are cut into: small, but at least 2, because ops on one row are not fused."""
    return next((factor for factor in range(2, BLOCKS) if size % factor == 0), 1)


def _numbered(what: str, arrays: Any) -> dict[str, Any]:
    return {f"{what}_{place}": array for place, array in enumerate(arrays)}
