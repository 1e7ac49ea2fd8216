"""Store: the arrays of a model, by the names in nets: parameters, and the state of an optimizer.

Arrays are replaced, never changed in place, so that what a run borrows and what was given out stays as it is. What
there is at one moment is one value (`Held`), so that nobody sees half an update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from rnnops.errors import ModelError, RnnopsError
from rnnops.initializers import init_params
from rnnops.model.arrays import Arrays, by_dotted_names, checked, dotted
from rnnops.model.home import HOST, Home
from rnnops.model.migrations import STATE
from rnnops.model.optimizers import Optimizer
from rnnops.net import Net
from rnnops.types import Array, type_of

OPTIMIZER = "optimizer"  # what the names of its arrays begin with


@dataclass(frozen=True)
class Held:
    """What a store holds at one moment.

    Args:
        frozen: patterns of dotted names of parameters that the optimizer leaves alone.
        state: the optimizer's, for the other parameters.
        home: where arrays are.
    """

    params: Arrays = field(default_factory=dict)
    optimizer: Optimizer | None = None
    frozen: tuple[str, ...] = ()
    state: Arrays = field(default_factory=dict)
    home: Home = HOST

    def at(self, home: Home) -> Held:
        """The same arrays somewhere else."""
        return replace(self, params=home.kept(self.params), state=home.kept(self.state), home=home)

    @property
    def trainable(self) -> list[str]:
        """Parameters that the optimizer moves."""
        return [name for name in self.params if not any(fnmatchcase(dotted(name), one) for one in self.frozen)]

    def with_state(self) -> Held:
        """With a state of the optimizer for all trainable parameters, keeping what there is of it."""
        if self.optimizer is None:
            return self
        fresh = self.optimizer.start({name: self.params[name] for name in self.trainable})
        new = self.home.kept({name: array for name, array in fresh.items() if name not in self.state})
        return replace(self, state={name: self.state[name] if name in self.state else new[name] for name in fresh})

    def check_names(self, model: str) -> None:
        """Raise ModelError for names that would be one with dots, or stand for something else in a file."""
        seen: dict[str, str] = {}
        for name in self.params:
            other = seen.setdefault(dotted(name), name)
            if other != name:
                raise ModelError("two parameters have one name", net=model, blob=name, came=other)
            if dotted(name).startswith((f"{OPTIMIZER}.", STATE)):
                hint = "Give the layer another name."
                raise ModelError("this name is kept for the optimizer and the user", net=model, blob=name, hint=hint)

    def check_frozen(self, model: str) -> None:
        """Raise ModelError for a pattern that no parameter has."""
        names = [dotted(name) for name in self.params]
        for pattern in self.frozen if names else ():
            if not any(fnmatchcase(name, pattern) for name in names):
                wanted = f"a pattern of {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
                raise ModelError("freeze= names no parameter", net=model, wanted=wanted, came=repr(pattern))


class Store:
    """Starts empty.

    Args:
        model: its name, for errors.
    """

    def __init__(self, model: str) -> None:
        self.model, self.held = model, Held()

    @property
    def params(self) -> Arrays:
        return self.held.params

    @property
    def step_count(self) -> int:
        """How many updates there were."""
        return int(self.held.state.get("step", 0))

    def set_optimizer(self, optimizer: Optimizer, frozen: Sequence[str]) -> None:
        """Another optimizer; what it keeps of each parameter goes on where the one before kept the same."""
        held = replace(self.held, optimizer=optimizer, frozen=tuple(frozen)).with_state()
        held.check_frozen(self.model)
        self.held = held

    def start(self, net: Net, seed: int, dtype: str, given: Callable[[], Mapping[str, Array]]) -> None:
        """Give parameters that are not there yet their beginning: what is given, else by the seed and their names.

        Raises ModelError for one that is there with another shape or dtype.
        """
        is_new = any(spec.name not in self.params for spec in net.parameters)
        found = {**given(), **self.params} if is_new else self.params
        for spec in net.parameters:
            there = found.get(spec.name)
            if there is not None and (there.shape, there.dtype.name) != (spec.shape, dtype):
                hint = "Sizes of parameters may not depend on what changes from batch to batch."
                wanted, came = f"{dtype}{list(spec.shape or ())}", type_of(there)
                raise ModelError("a parameter has another type", blob=spec.name, wanted=wanted, came=came, hint=hint)
        if is_new:
            own = {name: found.get(name, array) for name, array in init_params(net, seed, dtype).items()}
            held = replace(self.held, params=self.held.home.kept({**own, **self.params})).with_state()
            held.check_names(self.model)
            self.held = held

    def of(self, net: Net) -> Arrays:
        """The parameters that a net reads."""
        return {spec.name: self.params[spec.name] for spec in net.parameters}

    def update(self, gradients: Arrays) -> Callable[[], None]:
        """Move the parameters that have gradients.

        Returns: what is to be called when the step's results are there; it takes the update back where it raises.
        """
        held = self.held
        if held.optimizer is None:
            raise ModelError("there is no optimizer", net=self.model, hint="Call set_optimizer before training.")
        moved = {name: held.params[name] for name in held.trainable}
        params, state, confirm = held.home.update(held.optimizer, moved, gradients, held.state)
        self.held = replace(held, params={**held.params, **params}, state=state)
        return partial(self._confirmed, held, confirm)

    def _confirmed(self, before: Held, confirm: Callable[[], None]) -> None:
        try:
            confirm()
        except BaseException:
            self.held = before
            raise

    def everything(self) -> Arrays:
        """Copies of all arrays, by dotted names."""
        held = self.held
        return {**by_dotted_names(held.params), **by_dotted_names(_prefixed(held.state))}

    def replace(
        self, given: Mapping[str, Any], error: type[RnnopsError], complete: bool = False, optimizer: bool = True
    ) -> None:
        """Replace arrays, by dotted names, or raise the error and change nothing.

        Args:
            complete: whether none may be missing.
            optimizer: whether its state is among them.
        """
        held = self.held
        state = _prefixed(held.state) if optimizer else {}
        types = {name: type_of(array) for name, array in {**held.params, **state}.items()}
        arrays = held.home.kept(checked(given, types, self.model, complete, error))
        params = {name: arrays.get(name, array) for name, array in held.params.items()}
        new_state = {name: arrays.get(f"{OPTIMIZER}/{name}", array) for name, array in held.state.items()}
        self.held = replace(held, params=params, state=new_state)


def _prefixed(state: Arrays) -> Arrays:
    return {f"{OPTIMIZER}/{name}": array for name, array in state.items()}
