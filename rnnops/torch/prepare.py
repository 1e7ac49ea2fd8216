"""Prepared steps: traced once, translated for each batch size, checked before first use, compiled by shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

import rnnops as ro
from rnnops.compiler.openmp import openmp_of
from rnnops.compiler.run import Run
from rnnops.compiler.scan.compiled_scan import Options
from rnnops.compiler.scan.target import Processor
from rnnops.schema import schema_of
from rnnops.torch.autograd import run_recurrence
from rnnops.torch.check import check_step
from rnnops.torch.layout import Layout
from rnnops.torch.trace import Example, Trace, trace_step
from rnnops.torch.translate import Translation, translate

FlatStep = Callable[..., Sequence[Tensor]]
# Of a tensor that a step closes over: a module's parameters or buffers and its name there, its number, or itself.
Place = tuple[Mapping[str, Any], str] | int | None


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


@dataclass(frozen=True)
class Settings:
    """How a recurrence runs: its direction, what `ro.compile` takes, and how many threads where that does not say."""

    reverse: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    threads: int = field(default_factory=torch.get_num_threads)


@dataclass(frozen=True)
class Compiled:
    """A step compiled for a batch size."""

    translation: Translation
    run: Run
    places: tuple[Place, ...]
    is_random: bool

    def closed_over(self, reached: Sequence[Tensor]) -> list[Tensor]:
        """The tensors that the step closes over, as they are now.

        Args:
            reached: those that the step reaches at this call.
        """
        now = []
        for tensor, place in zip(self.translation.closed_over, self.places, strict=True):
            found = tensor if place is None else reached[place] if isinstance(place, int) else place[0][place[1]]
            now.append(found if found.dtype == self.translation.float_dtype else self.translation.as_fed(found))
        return now

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
        out = run_recurrence(self.run, names, wanted, self.is_random, tensors)
        return [out[name] for name in self.translation.last], [out[name] for name in self.translation.steps]


@dataclass
class Prepared:
    """All that was made of one step with one structure of states and inputs."""

    step: Step
    settings: Settings
    traces: list[Trace] = field(default_factory=list)
    compiled: dict[Any, Compiled] = field(default_factory=dict)

    def for_shapes(self, shapes: Any, lengths: bool, layout: Callable[[], Layout]) -> Compiled:
        """The step compiled for sizes of one step, traced anew only where the batch size changes the way that it takes.

        Args:
            shapes: what the layout follows from.
        """
        key = (shapes, lengths)
        if key not in self.compiled:
            self.compiled[key] = self._compile(layout(), lengths)
        return self.compiled[key]

    def _compile(self, layout: Layout, lengths: bool) -> Compiled:
        trace = next((trace for trace in self.traces if trace.fits(layout.batch)), None)
        if trace is None:
            examples = [
                Example(kind.without_data(), None if layout.batch is None else kind.batch_axis) for kind in layout.kinds
            ]
            trace = trace_step(self.step.function, examples, self.step.modules, self.step.assume)
            translation = translate(trace, layout, self.settings.reverse, lengths)
            check_step(self.step, translate(trace, layout, False, False), layout)
            self.traces.append(trace)
        else:
            translation = translate(trace, layout, self.settings.reverse, lengths)
        places = _places(self.step, translation.closed_over)
        is_random = any(schema_of(op.type).random for op in translation.cell.ops)
        return Compiled(translation, compile_beside_torch(translation.net, self.settings), places, is_random)


def compile_beside_torch(net: ro.Net, settings: Settings) -> Run:
    """Compile for the threads of the pool that PyTorch has, where its runtime is one that is known."""
    options = dict(settings.options)
    options.setdefault("threads", settings.threads)
    tuning = Options(device=Processor(openmp=openmp_of(torch._C.__file__)))
    return ro.compile(net, tuning=tuning, **options)


def _places(step: Step, tensors: Sequence[Tensor]) -> tuple[Place, ...]:
    """Where each tensor is found again at the next call, when it may be another."""
    found: dict[int, Place] = {id(tensor): number for number, tensor in enumerate(step.tensors)}
    for module in (module for root in step.modules for module in root.modules()):
        for held in (module._parameters, module._buffers):
            found.update({id(tensor): (held, name) for name, tensor in held.items() if tensor is not None})
    return tuple(found.get(id(tensor)) for tensor in tensors)
