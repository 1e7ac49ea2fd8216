"""Store: the arrays of a model, by the names in nets: parameters, and the state of an optimizer.

Arrays are replaced, never changed in place, so that what a run borrows and what was given out stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from rnnops.errors import ModelError, RnnopsError
from rnnops.initializers import init_params
from rnnops.model.arrays import Arrays, by_dotted_names, checked, dotted
from rnnops.model.optimizers import Optimizer
from rnnops.net import Net
from rnnops.types import Array, type_of

OPTIMIZER = "optimizer"  # what the names of an optimizer's arrays begin with


class Store:
    """Starts empty.

    Args:
        model: its name, for errors.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.params: Arrays = {}
        self.state: Arrays = {}
        self.optimizer: Optimizer | None = None
        self.frozen: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """How many updates there were."""
        return int(self.state.get("step", 0))

    @property
    def trainable(self) -> list[str]:
        """Parameters that the optimizer moves."""
        return [name for name in self.params if not any(fnmatchcase(dotted(name), one) for one in self.frozen)]

    def set_optimizer(self, optimizer: Optimizer, frozen: Sequence[str]) -> None:
        """Another optimizer; what it keeps of each parameter goes on where the one before kept the same."""
        self.optimizer, self.frozen = optimizer, tuple(frozen)
        self._start_state()

    def start(self, net: Net, seed: int, dtype: str) -> None:
        """Give parameters that are not there yet their beginning; each follows from the seed and its name.

        Raises ModelError for one that is there with another shape or dtype.
        """
        for spec in net.parameters:
            there = self.params.get(spec.name)
            if there is not None and (there.shape, there.dtype.name) != (spec.shape, dtype):
                hint = "Sizes of parameters may not depend on what changes from batch to batch."
                wanted = f"{dtype}{list(spec.shape or ())}"
                raise ModelError(
                    "a parameter has another type", blob=spec.name, wanted=wanted, came=type_of(there), hint=hint
                )
        if any(spec.name not in self.params for spec in net.parameters):
            self.params = {**init_params(net, seed, dtype), **self.params}
            self._start_state()

    def of(self, net: Net) -> Arrays:
        """The parameters that a net reads."""
        return {spec.name: self.params[spec.name] for spec in net.parameters}

    def update(self, gradients: Mapping[str, Array]) -> None:
        """Move parameters; one without a gradient, because the loss does not depend on it, has one of zeros."""
        if self.optimizer is None:
            raise ModelError("there is no optimizer", net=self.model, hint="Call set_optimizer before training.")
        params = {name: self.params[name] for name in self.trainable}
        grads = {name: gradients[name] if name in gradients else np.zeros_like(params[name]) for name in params}
        params, self.state = self.optimizer.update(params, grads, self.state)
        self.params = {**self.params, **params}

    def everything(self) -> Arrays:
        """Copies of all arrays, by dotted names."""
        return {**by_dotted_names(self.params), **by_dotted_names(self._prefixed())}

    def replace(
        self, given: Mapping[str, Any], error: type[RnnopsError], complete: bool = False, optimizer: bool = True
    ) -> None:
        """Replace arrays, by dotted names, or raise the error and change nothing.

        Args:
            complete: whether none may be missing.
            optimizer: whether its state is among them.
        """
        state = self._prefixed() if optimizer else {}
        types = {name: type_of(array) for name, array in {**self.params, **state}.items()}
        arrays = checked(given, types, self.model, complete, error)
        self.params = {name: arrays.get(name, array) for name, array in self.params.items()}
        self.state = {name: arrays.get(f"{OPTIMIZER}/{name}", array) for name, array in self.state.items()}

    def _prefixed(self) -> Arrays:
        return {f"{OPTIMIZER}/{name}": array for name, array in self.state.items()}

    def _start_state(self) -> None:
        """The optimizer's state, keeping what there is of it."""
        if self.optimizer is not None:
            fresh = self.optimizer.start({name: self.params[name] for name in self.trainable})
            self.state = {name: self.state.get(name, array) for name, array in fresh.items()}
