"""Prepared steps: traced once, translated for each batch size, checked before first use, compiled by shape."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rnnops import forks
from rnnops.arguments import check_flags
from rnnops.compiler.api.planned_run import PlannedRun
from rnnops.compiler.api.run import Run
from rnnops.schema import schema_of
from rnnops.torch.autograd import run_recurrence
from rnnops.torch.check import check_step
from rnnops.torch.code_reads import Reads
from rnnops.torch.errors import StepError, UnseenWarning
from rnnops.torch.host_side import check_whole
from rnnops.torch.layout import Layout
from rnnops.torch.recorder import Recorder
from rnnops.torch.sides import Side
from rnnops.torch.step_modes import RestoredModules
from rnnops.torch.trace import Trace, trace_step
from rnnops.torch.translate import Translation, translate
from rnnops.torch.walk import static_walk
from rnnops.torch.watch import Watch, tensor_at

PREPARING = threading.RLock()  # what tracing changes in PyTorch meanwhile is the process's
forks.wait_for(PREPARING)
KEPT_SIZES = 64  # batch sizes for which a step stays compiled
KEPT_TRACES = 8  # other values of what a step reads, and other ways that it takes by sizes
FlatStep = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class Step:
    """A step as a function of tensors.

    Args:
        function: states, then inputs -> states, then results.
        roots: what it is made of, by name, from where all that it reads is reached.
        assume: answers to `if tensor:`.
    """

    function: FlatStep
    roots: Mapping[str, Any]
    assume: tuple[bool, ...] = ()


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
class Traced:
    """A trace that has passed the self-check.

    Args:
        watch: what it read.
        numbers: of the slots of tensors that the graph has, by the tensors' ids.
    """

    trace: Trace
    watch: Watch
    numbers: Mapping[int, int]


@dataclass(frozen=True)
class Compiled:
    """A step compiled for a batch size.

    Args:
        side: where its tensors lie.
        numbers: of the tensors that it closes over among those that its trace reads, None for constants.
        outputs: which output of the run each last state and each result of the steps is.
    """

    side: Side
    traced: Traced
    translation: Translation
    run: Run
    numbers: tuple[int | None, ...]
    outputs: tuple[int, ...]
    is_random: bool

    @property
    def trace(self) -> Trace:
        return self.traced.trace

    def closed_over(self, reached: Sequence[Tensor]) -> list[Tensor]:
        """The tensors that the step closes over, as they are now.

        Args:
            reached: those that its trace reads, at this call.
        """
        now = []
        for tensor, number in zip(self.translation.closed_over, self.numbers, strict=True):
            found = tensor if number is None else reached[number]
            now.append(found if found.dtype == self.translation.float_dtype else self.translation.as_fed(found))
        return now

    def closed_over_now(self) -> list[Tensor]:
        """The same, each read where it is held."""
        slots, held = self.traced.watch.slots, self.translation.closed_over
        pairs = zip(held, self.numbers, strict=True)
        return [tensor if number is None else tensor_at(slots[number]) for tensor, number in pairs]

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
        traces: the one used last comes first; others hold for other values of what a step reads, or other sizes.
        compiled: by sizes and the trace's id.
    """

    settings: Settings
    side: Side
    traces: list[Traced] = field(default_factory=list)
    compiled: dict[Any, Compiled] = field(default_factory=dict)

    def for_shapes(
        self, step: Step, shapes: Any, lengths: bool, layout: Callable[[], Layout]
    ) -> tuple[Compiled, list[Tensor]]:
        """The step compiled for sizes of one step, and the tensors that its trace reads, as they are now.

        Args:
            shapes: what the layout follows from.
        """
        key = (shapes, lengths)
        for traced in self.traces:
            found = self.compiled.get((key, id(traced)))
            tensors = None if found is None else traced.watch.tensors_now(step.roots)
            if found is not None and tensors is not None:
                return found, tensors
        with PREPARING:
            return self._make(step, key, layout(), lengths)

    def _make(self, step: Step, key: Any, layout: Layout, lengths: bool) -> tuple[Compiled, list[Tensor]]:
        traced, tensors = self._known_trace(step, layout) or self._trace(step, layout)
        if (key, id(traced)) not in self.compiled:
            self.compiled[key, id(traced)] = self._compile(traced, layout, lengths)
        made = self.compiled[key, id(traced)]
        while len(self.compiled) > KEPT_SIZES:
            self.compiled.pop(next(iter(self.compiled)))
        return made, tensors

    def _known_trace(self, step: Step, layout: Layout) -> tuple[Traced, list[Tensor]] | None:
        """A trace that holds for these sizes and for what the step reads now, if there is one already."""
        for traced in self.traces:
            tensors = traced.watch.tensors_now(step.roots) if traced.trace.fits(layout) else None
            if tensors is not None:
                return traced, tensors
        return None

    def _compile(self, traced: Traced, layout: Layout, lengths: bool) -> Compiled:
        translation = translate(traced.trace, layout, self.settings.reverse, lengths)
        numbers = tuple(traced.numbers.get(id(tensor)) for tensor in translation.closed_over)
        is_random = any(schema_of(op.type).random for op in translation.cell.ops)
        run = self.side.compile(translation.net, self.settings.threads, dict(self.settings.options))
        known = list(run.net.output_blobs)
        outputs = tuple(known.index(name) for name in (*translation.last, *translation.steps))
        return Compiled(self.side, traced, translation, run, numbers, outputs, is_random)

    def _trace(self, step: Step, layout: Layout) -> tuple[Traced, list[Tensor]]:
        """A new trace that has passed the self-check."""
        traced = traced_step(step, layout)
        self.traces.insert(0, traced)
        for old in self.traces[KEPT_TRACES:]:
            self.compiled = {key: made for key, made in self.compiled.items() if made.traced is not old}
        del self.traces[KEPT_TRACES:]
        return traced, traced.watch.walk.tensors()


def traced_step(step: Step, layout: Layout) -> Traced:
    """A trace of a step that has passed the self-check, and what it read."""
    before = static_walk(step.roots)
    for number, tensor in enumerate(before.tensors()):
        check_whole(f"closed_over_{number}", tensor)
    reads = Reads()
    recorder = Recorder(reads.add)
    with RestoredModules(before.modules):
        trace = trace_step(step.function, layout, recorder, step.assume)
    translation = translate(trace, layout, False, False)
    with RestoredModules(before.modules):
        check_step(step, translation, layout, recorder)
    watch = Watch(step.roots, reads)
    numbers: dict[int, int] = {}
    for number, tensor in enumerate(watch.walk.tensors()):
        numbers.setdefault(id(tensor), number)
    loose = [tensor for tensor in translation.closed_over if id(tensor) not in numbers]
    if loose:
        with RestoredModules(before.modules):
            again = trace_step(step.function, layout, recorder, step.assume)
        check_loose(loose, translate(again, layout, False, False).closed_over, watch)
    warn_of_unseen(watch, recorder)
    return Traced(trace, watch, numbers)


def check_loose(loose: Sequence[Tensor], again: Sequence[Tensor], watch: Watch) -> None:
    """Raise StepError for tensors in no place that is known, unless the step makes them anew each time that it runs.

    Args:
        again: the tensors that another trace closes over.
    """
    known = {_memory(tensor) for tensor in watch.walk.tensors()}
    known |= {array.ctypes.data for array, _ in watch.walk.arrays if isinstance(array, np.ndarray)}
    others = {_memory(tensor) for tensor in again}
    for tensor in loose:
        if _memory(tensor) in known:  # `weight.data`, a view: it holds as long as that is the same tensor
            watch.fix_tensors()
        elif _memory(tensor) in others and tensor.numel():
            came = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
            hint = "Hold it in an attribute, a list, a dict, a closure or a global."
            raise StepError("a step reads a tensor from where rnnops cannot follow it", came=came, hint=hint)


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def warn_of_unseen(watch: Watch, recorder: Recorder) -> None:
    """Warn once of what a step reads and nobody can compare before each call."""
    found = [f"{what} by {name}" for name, what in sorted(recorder.outside)]
    for what in [*found, *watch.unseen]:
        if what not in _told:
            _told.add(what)
            text = f"a step reads {what}, which rnnops does not compare before each call; recheck=n in rt.RNN does"
            warnings.warn(text, UnseenWarning, stacklevel=2)


_told: set[str] = set()
