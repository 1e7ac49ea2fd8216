"""Training steps with feeds of the same types as those before: `vjp` is one native call, and its pullback another.

Both passes are recorded one behind the other (`compiler/run/recorder.py`). What backward reads of the forward pass is
memory that each call makes anew, so that several pullbacks may wait. All else, as scratch, belongs to the two lists of
jobs, which one caller uses at a time. A pullback that is asked for more than gradients runs the forward pass again, by
its plan.

Limits: no random op is live, no op runs in Python, and all memory of a step is at most `SHORT` bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnops.compiler.api.bound_run import Kind, Recording, refuse_other_integers
from rnnops.compiler.api.derivatives import Pullback
from rnnops.compiler.api.feeds import checked_wrt, float_dtype_of, memory_named
from rnnops.compiler.api.planned_run import SHORT, vjp_by_plan
from rnnops.compiler.run.pipeline import TrainingPlan, training_structure
from rnnops.compiler.run.recorder import JobList, NotRecordedError, Recorded, Recorder, Region, array_maker, held
from rnnops.compiler.targets.target import Processor
from rnnops.errors import named_arguments
from rnnops.interpreter import Workspace
from rnnops.types import Array, Type, type_of
from rnnops.util import cached_property

if TYPE_CHECKING:
    from rnnops.compiler.api.run import Run
    from rnnops.compiler.run.layer_plan import LayerGradients

KINDS = 8  # types of feeds whose lists are kept
Passes = tuple[JobList, JobList]


@dataclass(frozen=True)
class RecordedTraining:
    """Both passes. What each list is given: feeds, outputs, what is kept, gradients of outputs, and of inputs."""

    passes: tuple[Recorded, Recorded]
    feeds: int
    outputs: dict[str, Kind]
    kept: tuple[Kind, ...]
    grads: dict[str, Kind]
    results: dict[str, Kind]

    @property
    def nbytes(self) -> int:
        """Of all memory of a step but what the caller has."""
        return sum(one.nbytes for one in self.passes) + sum(size for (size,), _ in self.kept)


class _StepRecording(Recording):
    """A dry run of both passes of a plan."""

    plan: TrainingPlan

    def __init__(self, plan: TrainingPlan, recorder: Recorder, names: Sequence[str], training: bool) -> None:
        super().__init__(plan, recorder, training)
        self.names = names

    def run(self) -> tuple[tuple[int, int], list[dict[str, Kind]]]:
        """How many jobs, and sizes of drivers, the forward pass has; outputs, their gradients and results by name."""
        plan, note = self.plan, self.recorder.note
        workspace, kept, back = Workspace(), Workspace(), Workspace()
        workspace.local.update((name, self.given(plan.program.types[name])) for name in self.names)
        kept.parent = workspace
        self.execute(plan.program, plan.compiled.forward, workspace, plan.residuals.kept, kept)
        made = self.outputs(plan.program, kept)
        ahead = len(self.recorder.jobs), len(self.recorder.sizes)
        back.local.update((name, kept[name]) for name in (*plan.residuals.kept, *plan.residuals.free))
        grads = {output: plan.backward.types[blob] for output, blob in plan.gradient.output_grads.items()}
        for output, blob in plan.gradient.output_grads.items():
            back[blob] = self.given(grads[output])
        self.execute(plan.backward, plan.compiled.backward, back, given=plan.residuals.kept)
        results = {name: back[blob] for name, blob in plan.backward.net.output_blobs.items()}
        every = {name: a if hasattr(a, "memory") else held(a, note) for name, a in results.items()}
        return ahead, [made, {name: (kind.shape, kind.dtype) for name, kind in grads.items()}, self.assigned(every)]


def record_training(
    run: Run, wrt: tuple[str, ...], training: bool, feeds: Sequence[Type], float_dtype: str
) -> RecordedTraining:
    """Record the passes of a run for feeds of certain types. Raises NotRecordedError where Python has a part in it."""
    target, names, recorder = run._options.target, run._names, Recorder()
    if not isinstance(target, Processor):
        raise NotRecordedError("kernels are not compiled for this machine")
    options = replace(run._options, device=recorder, recycle=False)
    types = dict(zip(names, feeds, strict=True))
    plan = training_structure(run._live, types, float_dtype, wrt, options, run._saving)
    recording = _StepRecording(plan, recorder, names, training)
    ((count, first), (outputs, grads, results)), sizes = recording.twice(target)
    jobs = recorder.jobs[:count], recorder.jobs[count:]
    shared = _shared(*jobs)
    for number, region in enumerate(shared, recording.count):
        region.given = number
    forward, backward = (
        Recorded(
            tuple(some), (), own, recorder.status, recorder.barrier, recording.count + len(shared)
        ).without_copies()
        for some, own in zip(jobs, (sizes[:first], sizes[first:]), strict=True)
    )
    kept = tuple(((region.frame.nbytes,), np.uint8) for region in shared)
    return RecordedTraining((forward, backward), len(names), outputs, kept, grads, results)


def _shared(forward: Sequence[Any], backward: Sequence[Any]) -> list[Region]:
    """Memory that the forward pass writes and the backward pass reads."""
    ahead, behind = ({id(r): r for job in some for r, _ in job.places} for some in (forward, backward))
    both = (region for key, region in ahead.items() if key in behind)
    return [region for region in both if region.made and region.given < 0 and not region.scratch]


class RepeatedTraining:
    """Training steps of a run: those with feeds of the same types as the ones before are recorded."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._last: Hashable = None
        self._known: dict[Hashable, TrainingLists | None] = {}  # None where it is refused

    def call(
        self, key: Any, feeds: Sequence[Array], given: Sequence[Mapping[str, Any]]
    ) -> tuple[dict[str, Array], Pullback] | None:
        """Outputs by name, and the pullback; None where the plan has to answer.

        Args:
            key: types of feeds; inputs whose gradients are wanted, and the mode.
            given: the feeds as the caller has them.
        """
        kinds, (wrt, training) = key
        if key not in self._known:
            if key != self._last:
                return None
            others = dict([*self._known.items()][1 - KINDS :])
            self._known = {**others, key: self._recorded(kinds, checked_wrt(self._run.net, wrt), training, feeds)}
        lists = self._known[key]
        if lists is None:
            return None
        recorded = lists.recorded
        outputs = {name: make() for name, make in lists.outputs.items()}
        kept, made = [make() for make in lists.kept], [*outputs.values()]
        later = made[:1] * (len(recorded.grads) + len(recorded.results))  # which only the other pass has
        passes = lists.take()
        right = passes[0].perform([*feeds, *made, *later, *kept])
        lists.idle.append(passes)
        if not right:
            return None
        again = partial(vjp_by_plan, self._run, tuple(map(dict, given)), {}, wrt, training)
        return outputs, RepeatedPullback(lists, feeds, made, kept, again)

    def known(self, key: Hashable) -> TrainingLists | None:
        """The lists that wait for a caller with such feeds."""
        return self._known.get(key)

    def answered(self, key: Hashable) -> None:
        """Feeds of these types were right, and the plan has answered."""
        self._last = key

    def _recorded(
        self, kinds: Any, wrt: tuple[str, ...], training: bool, feeds: Sequence[Array]
    ) -> TrainingLists | None:
        run, arrays = self._run, dict(zip(self._run._names, feeds, strict=True))
        types, dtype = [type_of(array) for array in feeds], float_dtype_of(run.net, arrays) or "float32"
        try:
            refuse_other_integers(run.net, run._names, feeds)
            recorded = record_training(run, wrt, training, types, dtype)
        except NotRecordedError:
            return None
        if recorded.nbytes > SHORT:
            return None
        plan = run._training.get((wrt, kinds), lambda: run._planned_training(wrt, *run._types(arrays, kinds)))
        return TrainingLists(
            plan, recorded, partial(record_training, run, wrt, training, types, dtype), [_passes(recorded)]
        )


@dataclass(frozen=True)
class TrainingLists:
    """Pairs of lists that wait, each for one caller at a time; where none does, both passes are recorded again."""

    plan: TrainingPlan
    recorded: RecordedTraining
    record: Callable[[], RecordedTraining]
    idle: list[Passes]

    @cached_property
    def outputs(self) -> dict[str, Callable[[], Array]]:
        """Makers of outputs, by name."""
        return {name: array_maker(*kind) for name, kind in self.recorded.outputs.items()}

    @cached_property
    def kept(self) -> list[Callable[[], Array]]:
        return [array_maker(*kind) for kind in self.recorded.kept]

    @cached_property
    def results(self) -> dict[str, Callable[[], Array]]:
        return {name: array_maker(*kind) for name, kind in self.recorded.results.items()}

    @cached_property
    def grads(self) -> dict[str, Kind]:
        """Outputs that take a gradient, with its kind."""
        refused = self.plan.gradient.refused
        return {name: kind for name, kind in self.recorded.grads.items() if name not in refused}

    def take(self) -> Passes:
        try:
            return self.idle.pop()
        except IndexError:
            return _passes(self.record())


def _passes(recorded: RecordedTraining) -> Passes:
    forward, backward = recorded.passes
    return JobList(forward), JobList(backward)


def are_of(arrays: Any, kinds: Mapping[str, Kind]) -> bool:
    """True for a dict of NumPy arrays that have the shapes and types which are wanted under their names."""
    if type(arrays) is not dict:
        return False
    for name, array in arrays.items():
        if type(array) is not np.ndarray or kinds.get(name) != (array.shape, array.dtype) or not array.flags.aligned:
            return False
    return True


class RepeatedPullback(Pullback):
    """The pullback of a recorded training step."""

    def __init__(
        self, lists: TrainingLists, feeds: Sequence[Array], outputs: Sequence[Array], kept: Sequence[Array],
        again: Callable[[], Any],
    ) -> None:  # fmt: skip
        self._plan, self._lists = lists.plan, lists
        self._given: tuple[Any, ...] | None = feeds, outputs, kept, again
        self._slow: Pullback | None = None
        self._lock, self._lent = threading.Lock(), []

    @memory_named(lambda pullback: str(pullback._plan.program.net.name))
    @named_arguments
    def __call__(self, grads: Mapping[str, Any] | Any) -> dict[str, Array]:
        checked = grads if are_of(grads, self._lists.grads) else self._checked(grads)
        if self._slow is not None:
            return self._slow(checked)
        feeds, outputs, kept, _ = self._taken_once()
        wanted, blobs = self._lists.recorded.grads, self._plan.gradient.output_grads
        dys = [np.ascontiguousarray(checked[n]) if n in checked else self._zeros(blobs[n]) for n in wanted]
        results = {name: make() for name, make in self._lists.results.items()}
        passes = self._lists.take()
        passes[1].perform([*feeds, *outputs, *dys, *results.values(), *kept])
        self._lists.idle.append(passes)
        return results

    def _taken_once(self) -> tuple[Any, ...]:
        with self._lock:
            given, self._given = self._given, None
        if given is None:
            raise self._used()
        return given

    def layers(self, *arguments: Any, **options: Any) -> Generator[LayerGradients, None, None]:
        return self._by_plan().layers(*arguments, **options)

    def step_blobs(self, name: str) -> Array:
        return self._by_plan().step_blobs(name)

    def held_arrays(self) -> dict[str, Array]:
        return {} if self._given is None and self._slow is None else self._by_plan().held_arrays()

    def _by_plan(self) -> Pullback:
        """The same by the plan of the step, which has its parts by name."""
        if self._slow is None:
            *_, again = self._taken_once()
            slow: Pullback = again()[1]
            slow.steps.by_parts, self._slow = True, slow
        return self._slow
