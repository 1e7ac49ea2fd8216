"""Where a model's arrays are: in NumPy's memory, or on the CUDA device (`cuda_home.py`), where they then stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from rnnops.compiler import Pullback
from rnnops.compiler.api.run import CUDA
from rnnops.compiler.buffers.memory import on_host
from rnnops.model.optimizers import Optimizer
from rnnops.model.tracing import LOSS
from rnnops.types import Array

Arrays = dict[str, Array]
Confirm = Callable[[], None]  # raises what is known of an update only when its work is done


class Home:
    """NumPy's memory."""

    def kept(self, arrays: Mapping[str, Any]) -> Arrays:
        """Parameters, or a state of an optimizer, as they are held; they may come from anywhere."""
        return {name: on_host(array) for name, array in arrays.items()}

    def fed(self, net: str, leaves: Mapping[str, Any]) -> Mapping[str, Any]:
        """A batch as nets read it beside parameters."""
        return leaves

    def given(self, outputs: Mapping[str, Any], leaves: Mapping[str, Any]) -> Mapping[str, Any]:
        """Results as the caller wants them, who gave a batch of such leaves."""
        return outputs

    def gradients(self, pullback: Pullback, loss: Any) -> Arrays:
        """Gradients of a loss."""
        return pullback({LOSS: np.ones((), loss.dtype)})

    def update(
        self, optimizer: Optimizer, params: Arrays, grads: Arrays, state: Arrays
    ) -> tuple[Arrays, Arrays, Confirm]:
        """New parameters, a new state, and what is to be called when results are there, as it may wait."""
        return *optimizer.update(params, grads, state), _is_done


HOST = Home()


def home_of(device: object, model: str) -> Home:
    """Where a model's arrays are that is compiled for a device. Raises DeviceError where there is none.

    Args:
        model: its name, for the error.
    """
    if device != CUDA:
        return HOST
    cuda_home: Any = import_module("rnnops.model.cuda_home")  # numba.cuda is loaded when it is wanted
    made: Home = cuda_home.CudaHome(model)
    return made


def _is_done() -> None:
    """All is known."""
