"""Prepared steps: traced once, translated for each batch size, checked before first use, compiled by shape."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from rnnops import forks
from rnnops.arguments import check_flags
from rnnops.compiler.api.planned_run import PlannedRun
from rnnops.compiler.api.run import Run
from rnnops.schema import schema_of
from rnnops.torch.autograd import run_recurrence
from rnnops.torch.check import check_step
from rnnops.torch.host_side import check_whole
from rnnops.torch.layout import Layout
from rnnops.torch.sides import Side
from rnnops.torch.surroundings import other_tensors
from rnnops.torch.trace import Trace, trace_step
from rnnops.torch.translate import Translation, translate

PREPARING = threading.RLock()  # what tracing changes in PyTorch meanwhile is the process's
forks.wait_for(PREPARING)
KEPT_SIZES = 64  # batch sizes for which a step stays compiled
FlatStep = Callable[..., Sequence[Tensor]]
# Of a tensor that a step closes over: what holds it and the keys to it, its number, or itself.
Place = tuple[Any, ...] | int | None


@dataclass(frozen=True)
class Step:
    """A step as a function of tensors.

    Args:
        function: states, then inputs -> states, then results.
        modules: whose parameters it uses, and whose attributes it may set.
        tensors: others that it reaches.
        assume: answers to `if tensor:`.
    """

    function: FlatStep
    modules: tuple[Module, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    assume: tuple[bool, ...] = ()

    def reached(self) -> list[Place]:
        """Places of all tensors that it could close over and a graph may have: parameters, buffers, a closure's."""
        held = [held for module in self._all_modules() for held in (module._parameters, module._buffers)]
        named = [(tensors, name) for tensors in held for name, tensor in tensors.items() if tensor is not None]
        return [*range(len(self.tensors)), *named]

    def all_reached(self) -> list[Place]:
        """These, then the other tensors that modules hold."""
        return [*self.reached(), *(place for module in self._all_modules() for place in other_tensors(module))]

    def _all_modules(self) -> Iterator[Module]:
        return (module for root in self.modules for module in root.modules())


class Settings(NamedTuple):
    """How a recurrence runs.

    Args:
        options: what `rnnops.compile` takes beside.
        threads: as many as PyTorch uses if None.
    """

    reverse: bool
    options: tuple[tuple[str, Any], ...]
    threads: int | None

    def now(self) -> Settings:
        """These settings with the number of threads that PyTorch uses now."""
        return self if self.threads else Settings(self.reverse, self.options, torch.get_num_threads())


def settings_of(reverse: bool, options: Mapping[str, Any]) -> Settings:
    """Settings of a recurrence by its options."""
    check_flags("rnnops.torch", reverse=reverse)
    others = {name: value for name, value in options.items() if name != "threads"}
    hashable = {name: tuple(value) if isinstance(value, list) else value for name, value in others.items()}
    return Settings(reverse, tuple(sorted(hashable.items())), options.get("threads"))


@dataclass(frozen=True)
class Compiled:
    """A step compiled for a batch size.

    Args:
        side: where its tensors lie.
        places: of the tensors that it closes over, None for those that are always the same.
        positions: of these among all that a graph may have of what the step could close over.
        outputs: which output of the run each last state and each result of the steps is.
    """

    side: Side
    trace: Trace
    translation: Translation
    run: Run
    places: tuple[Place, ...]
    positions: tuple[int | None, ...]
    outputs: tuple[int, ...]
    is_random: bool

    def closed_over(self, reached: Sequence[Tensor]) -> list[Tensor]:
        """The tensors that the step closes over, as they are now.

        Args:
            reached: those that the step reaches at this call.
        """
        now = []
        for tensor, place in zip(self.translation.closed_over, self.places, strict=True):
            found = tensor if place is None else tensor_at(place, reached)
            now.append(found if found.dtype == self.translation.float_dtype else self.translation.as_fed(found))
        return now

    def plan(self, tensors: Sequence[Tensor], backward: bool) -> PlannedRun:
        """What a run does with states, inputs and lengths of these shapes."""
        fed = [*tensors, *self.translation.closed_over]
        named = dict(zip(self.translation.names, fed, strict=True))
        shapes = {name: tuple(tensor.shape) for name, tensor in named.items()}
        wrt = [name for name, tensor in named.items() if tensor.requires_grad]
        dtype = str(self.translation.float_dtype).removeprefix("torch.")
        return self.run.plan(shapes, backward=backward, wrt=wrt if backward else None, dtype=dtype)

    def __call__(
        self, states: Sequence[Tensor], inputs: Sequence[Tensor], lengths: Tensor | None, reached: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Last states, and results of all steps."""
        named = [] if lengths is None else [lengths]
        tensors = [*states, *inputs, *named, *self.closed_over(reached)]
        names = self.translation.names
        wanted: tuple[str, ...] = ()
        if torch.is_grad_enabled():
            wanted = tuple(name for name, tensor in zip(names, tensors, strict=True) if tensor.requires_grad)
        out = run_recurrence(self.side, self.run, names, wanted, self.is_random, tensors)
        results = [out[place] for place in self.outputs]
        if len(set(self.outputs)) < len(self.outputs):  # results are tensors of their own, as those of a loop are
            results = [
                x.clone() if self.outputs.index(p) < i else x
                for i, (x, p) in enumerate(zip(results, self.outputs, strict=True))
            ]
        return results[: len(states)], results[len(states) :]


@dataclass
class Prepared:
    """All that was made of one step with one structure of states and inputs.

    Args:
        side: where its tensors lie.
        numbers: which of all reached tensors those were, by id, that a trace closed over, which keeps them alive.
    """

    step: Step
    settings: Settings
    side: Side
    traces: list[Trace] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    compiled: dict[Any, Compiled] = field(default_factory=dict)

    def for_shapes(self, shapes: Any, lengths: bool, layout: Callable[[], Layout]) -> Compiled:
        """The step compiled for sizes of one step, traced anew only where the batch size changes the way that it takes.

        Args:
            shapes: what the layout follows from.
        """
        key = (shapes, lengths)
        found = self.compiled.get(key)
        return found or self._make(key, layout(), lengths)

    def _make(self, key: Any, layout: Layout, lengths: bool) -> Compiled:
        with PREPARING:
            if key not in self.compiled:
                self.compiled[key] = self._compile(layout, lengths)
            made = self.compiled[key]
            while len(self.compiled) > KEPT_SIZES:
                self.compiled.pop(next(iter(self.compiled)))
        return made

    def trace_for(self, layout: Layout) -> Trace | None:
        """A trace that holds for these sizes, if there is one already."""
        return next((trace for trace in self.traces if trace.fits(layout)), None)

    def _compile(self, layout: Layout, lengths: bool) -> Compiled:
        trace = self.trace_for(layout) or self._trace(layout)
        translation = translate(trace, layout, self.settings.reverse, lengths)
        reached, in_graphs = self.step.all_reached(), len(self.step.reached())
        numbers = [self.numbers.get(id(tensor)) for tensor in translation.closed_over]
        places = tuple(None if number is None else reached[number] for number in numbers)
        positions = tuple(number if number is not None and number < in_graphs else None for number in numbers)
        is_random = any(schema_of(op.type).random for op in translation.cell.ops)
        run = self.side.compile(translation.net, self.settings.threads, dict(self.settings.options))
        known = list(run.net.output_blobs)
        outputs = tuple(known.index(name) for name in (*translation.last, *translation.steps))
        return Compiled(self.side, trace, translation, run, places, positions, outputs, is_random)

    def _trace(self, layout: Layout) -> Trace:
        """A new trace that has passed the self-check."""
        reached = [tensor_at(place, self.step.tensors) for place in self.step.all_reached()]
        for number, tensor in enumerate(reached):
            check_whole(f"closed_over_{number}", tensor)
        trace = trace_step(self.step.function, layout, self.step.modules, self.step.assume)
        translation = translate(trace, layout, False, False)
        check_step(self.step, translation, layout)
        self.traces.append(trace)
        used = set(map(id, translation.closed_over))
        for number, tensor in enumerate(reached):
            if id(tensor) in used:
                self.numbers.setdefault(id(tensor), number)  # a parameter that is an attribute too is a parameter
        return trace


def tensor_at(place: Place, tensors: Sequence[Tensor]) -> Tensor:
    """The tensor that is at a place now.

    Args:
        tensors: those that a step reaches without a module, at this call.
    """
    assert place is not None
    found: Any = tensors[place] if isinstance(place, int) else reduce(getitem, place)
    return found
