"""Training steps with feeds of the same types as those before: `vjp` is one native call, and its pullback another.

Both passes are recorded one behind the other (`compiler/run/recorder.py`). What backward reads of the forward pass is
memory that each call makes anew, so that several pullbacks may wait. All else, as scratch, belongs to the two lists of
jobs, which one caller uses at a time. A pullback that is asked for more than gradients runs the forward pass again, by
its plan.

Limits: no random op is live, no op runs in Python, and all memory of a step is at most `SHORT` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnops.compiler.api.bound_run import Kind, Recording, refuse_other_integers
from rnnops.compiler.api.derivatives import Pullback
from rnnops.compiler.api.feeds import checked_wrt, float_dtype_of, given_once, memory_named
from rnnops.compiler.api.planned_run import SHORT, vjp_by_plan
from rnnops.compiler.memory.memory import rounded
from rnnops.compiler.run.pipeline import TrainingPlan, training_structure
from rnnops.compiler.run.recorder import JobList, NotRecordedError, Recorded, Recorder, Region, array_maker, held
from rnnops.compiler.targets.target import Processor
from rnnops.interpreter import Workspace
from rnnops.types import Array, Type, type_of

if TYPE_CHECKING:
    from rnnops.compiler.api.run import Run
    from rnnops.compiler.run.layer_plan import LayerGradients

Passes = tuple[JobList, JobList]
BYTES = Type("uint8", (0,))  # stands for memory whose size is not known yet


@dataclass(frozen=True)
class RecordedTraining:
    """Both passes. Lists are given feeds, outputs, memory that is kept, gradients of outputs, and those of inputs.

    The forward pass is given the first three.
    """

    passes: tuple[Recorded, Recorded]
    feeds: int
    outputs: dict[str, Kind]
    kept: Kind
    grads: dict[str, Kind]
    results: dict[str, Kind]

    @property
    def nbytes(self) -> int:
        """Of all memory of a step but what the caller has."""
        return sum(one.nbytes for one in self.passes) + self.kept[0][0]


class _StepRecording(Recording):
    """A dry run of both passes of a plan."""

    plan: TrainingPlan

    def run(self) -> tuple[tuple[int, int, int], list[dict[str, Kind]]]:
        """Jobs, sizes of drivers and arrays before what is kept; outputs, their gradients and results by name."""
        plan, note = self.plan, self.recorder.note
        workspace, kept, back = self.inputs(), Workspace(), Workspace()
        kept.parent = workspace
        self.execute(plan.program, plan.compiled.forward, workspace, plan.residuals.kept, kept)
        made = self.outputs(plan.program, kept)
        ahead = len(self.recorder.jobs), len(self.recorder.sizes), len(self.kinds)
        self.given(BYTES)
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
    target, recorder = run._options.target, Recorder()
    if not isinstance(target, Processor):
        raise NotRecordedError("kernels are not compiled for this machine")
    options = replace(run._options, device=recorder, recycle=False)
    types = {name: type_of(array) for name, array in run._bound.items()} | dict(zip(run._free, feeds, strict=True))
    plan = training_structure(run._live, types, float_dtype, wrt, options, run._saving)
    recording = _StepRecording(run, plan, recorder, training)
    ((count, first, place), (outputs, grads, results)), sizes = recording.twice(target)
    jobs, kinds = (recorder.jobs[:count], recorder.jobs[count:]), list(enumerate(recording.kinds))
    kept = 0
    for region in _shared(*jobs):
        region.given, region.base = place, kept
        kept += rounded(int(region.frame.nbytes))
    given, checked = (place + 1, len(kinds)), (kinds[: len(feeds)], kinds[place + 1 : place + 1 + len(grads)])
    forward, backward = (
        Recorded(tuple(some), (), own, recorder.status, recorder.barrier, arrays, tuple(those)).without_copies()
        for some, own, arrays, those in zip(jobs, (sizes[:first], sizes[first:]), given, checked, strict=True)
    )
    return RecordedTraining((forward, backward), len(feeds), outputs, ((kept,), np.uint8), grads, results)


def _shared(forward: Sequence[Any], backward: Sequence[Any]) -> list[Region]:
    """Memory that the forward pass writes and the backward pass reads."""
    ahead, behind = ({id(r): r for job in some for r, _ in job.places} for some in (forward, backward))
    both = (region for key, region in ahead.items() if key in behind)
    return [region for region in both if region.made and region.given < 0 and not region.scratch]


def training_lists(
    run: Run, feeds: Sequence[Array], wrt: tuple[str, ...] | None, training: bool
) -> TrainingLists | str:
    """The lists of jobs that answer training steps of a run with such feeds, or why there are none."""
    names, given = checked_wrt(run.net, wrt), dict(zip(run._free, feeds, strict=True))
    types, dtype = [type_of(array) for array in feeds], float_dtype_of(run.net, {**run._bound, **given}) or "float32"
    record = partial(record_training, run, names, training, types, dtype)
    try:
        refuse_other_integers(run.net, run._free, feeds)
        recorded = record()
    except NotRecordedError as reason:
        return str(reason)
    if recorded.nbytes > SHORT:
        return f"a step takes {recorded.nbytes} bytes"
    arrays, kinds = run._read((given,), {})
    plan = run._training.get((names, kinds), lambda: run._planned_training(names, *run._types(arrays, kinds)))
    return TrainingLists(run, names, training, plan, recorded, record)


class TrainingLists:
    """Pairs of lists that wait, each for one caller at a time; where none does, both passes are recorded again."""

    def __init__(
        self, run: Run, wrt: tuple[str, ...], training: bool, plan: TrainingPlan, recorded: RecordedTraining,
        record: Callable[[], RecordedTraining],
    ) -> None:  # fmt: skip
        self._run, self._how, self.plan, self.recorded, self._record = run, (wrt, training), plan, recorded, record
        self.idle = [_passes(recorded)]
        self._outputs = {name: array_maker(*kind) for name, kind in recorded.outputs.items()}
        self._kept = array_maker(*recorded.kept)
        self._results = {name: array_maker(*kind) for name, kind in recorded.results.items()}
        self.grads = () if plan.gradient.refused else tuple(recorded.grads)  # which are taken without another look

    def answer(
        self, feeds: Sequence[Any], arrays: Sequence[Array] | None = None
    ) -> tuple[dict[str, Array], Pullback] | None:
        """Outputs by name, and the pullback; None where types of feeds are others, or an index is out of range.

        Args:
            arrays: the feeds as kernels take them, which are of these types.
        """
        made = {name: make() for name, make in self._outputs.items()}
        every = [*(feeds if arrays is None else arrays), *made.values(), self._kept()]
        return (made, RepeatedPullback(self, every, feeds)) if self._do(0, every, arrays is None) else None

    def pull(self, every: Sequence[Array], dys: Sequence[Any], check: bool = True) -> dict[str, Array] | None:
        """Gradients of inputs by name; None where types of those of outputs are others.

        Args:
            every: what the forward pass was given.
            dys: gradients of outputs.
            check: whether their types are looked at.
        """
        results = {name: make() for name, make in self._results.items()}
        return results if self._do(1, [*every, *dys, *results.values()], check) else None

    def by_plan(self, feeds: Sequence[Any]) -> Pullback:
        """The pullback of the plan for the same feeds."""
        run, (wrt, training) = self._run, self._how
        return vjp_by_plan(run, (dict(zip(run._free, feeds, strict=True)),), {}, wrt, training)[1]

    def _do(self, which: int, arrays: list[Any], check: bool) -> bool:
        passes = self.take()
        try:
            return passes[which].do(arrays, check)
        finally:
            self.idle.append(passes)

    def take(self) -> Passes:
        try:
            return self.idle.pop()
        except IndexError:
            return _passes(self._record())


def _passes(recorded: RecordedTraining) -> Passes:
    forward, backward = recorded.passes
    return JobList(forward), JobList(backward)


class RepeatedPullback(Pullback):
    """The pullback of a recorded training step."""

    _slow: Pullback | None = None

    def __init__(self, lists: TrainingLists, every: Sequence[Array], feeds: Sequence[Any]) -> None:
        self._plan, self._lists = lists.plan, lists
        self._given = [(every, feeds)]  # until it is used: whoever takes it out is the only one

    @memory_named(lambda pullback: str(pullback._plan.program.net.name))
    def __call__(self, grads: Mapping[str, Any] | Any) -> dict[str, Array]:
        lists, given = self._lists, self._given
        dys = given_once(lists.grads, (grads,), {}) if given else None
        if dys is not None:
            taken = self._taken_once()
            found = lists.pull(taken[0], dys)
            if found is not None:
                return found
            given.append(taken)
        checked = self._checked(grads)
        if self._slow is not None:
            return self._slow(checked)
        blobs = self._plan.gradient.output_grads
        dys = [np.ascontiguousarray(checked[n]) if n in checked else self._zeros(blobs[n]) for n in blobs]
        found = lists.pull(self._taken_once()[0], dys, check=False)
        assert found is not None
        return found

    def _taken_once(self) -> tuple[Sequence[Array], Sequence[Any]]:
        try:
            return self._given.pop()
        except IndexError:
            raise self._used() from None

    def layers(self, *arguments: Any, **options: Any) -> Generator[LayerGradients, None, None]:
        return self._by_plan().layers(*arguments, **options)

    def step_blobs(self, name: str) -> Array:
        return self._by_plan().step_blobs(name)

    def held_arrays(self) -> dict[str, Array]:
        return self._by_plan().held_arrays() if self._given or self._slow is not None else {}

    def _by_plan(self) -> Pullback:
        """The same by the plan of the step, which has its parts by name."""
        if self._slow is None:
            slow = self._lists.by_plan(self._taken_once()[1])
            slow.steps.by_parts, self._slow = True, slow
        return self._slow
