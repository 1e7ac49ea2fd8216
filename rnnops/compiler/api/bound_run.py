"""Calls that are recorded once and then are one native call each: short calls, training steps, bound runs.

**Native calls of one run** are lists of jobs, by the types of feeds. A list is made when two calls in a row have feeds
of the same types (`RepeatedCalls`). Making a list takes as long as planning. So calls whose types change each time, as
with sequences of many lengths, run op by op.

**Training steps**: `vjp` is one native call, and its pullback another. Both passes are recorded together. Each call
makes new memory for the values that backward reads, so that several pullbacks may wait. All other memory, such as
scratch, belongs to the two lists of jobs, which one caller uses at a time. A pullback that is asked for more than
gradients runs the forward pass again, op by op.
Limits: no random op is live, no op runs in Python, and all memory of a step is at most `SHORT` bytes.

**Runs with bound inputs on processors** (`BoundRun`), as a server has them. Its first use computes all values that
follow only from bound inputs (`bound_weights.py`); the net without these ops is the folded net. Calls run the folded
net, with all of its ops compiled, even small ones: for a step of one row, one op in the interpreter takes longer than
all kernels of the net. `vjp` differentiates the original net. It is an error if weights are kept as int8, because these
have no gradients.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from rnnops.compiler.api.derivatives import Pullback, RepeatedPullback
from rnnops.compiler.api.feeds import Feeds, checked_wrt, float_dtype_of, memory_named, merge_given, of_run
from rnnops.compiler.api.planned_run import SHORT, PlannedRun, vjp_by_plan
from rnnops.compiler.api.run import Run
from rnnops.compiler.api.stream_states import check_direction, position_to_set
from rnnops.compiler.memory.memory import rounded
from rnnops.compiler.rewrite.bound_weights import byte_products, folded, int8_weights
from rnnops.compiler.run.compile_programs import Runners
from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan, forward_structure, training_structure
from rnnops.compiler.run.recorder import (
    JobList,
    NotRecordedError,
    Recorded,
    Recorder,
    Region,
    array_maker,
    held,
    made_array,
)
from rnnops.compiler.targets.target import PROCESSOR, Processor
from rnnops.errors import DeviceError, FeedError, check_flags
from rnnops.interpreter import Program, Workspace, execute, prepare
from rnnops.kernels.cpu.processor import has_quads, vector_width
from rnnops.net.net import Net
from rnnops.net.schema import RunContext
from rnnops.ops.linear_algebra import BYTES
from rnnops.recurrent.cell_rewrites import lift_from_cells
from rnnops.types import FLOAT, Array, Type, type_of
from rnnops.util import LazyModule, cached_property

if TYPE_CHECKING:
    from rnnops.compiler.api import stream_parts as stream_parts, streamed_net as streamed_nets
    from rnnops.compiler.api.streamed_net import StreamedNet
    from rnnops.compiler.report.costs import Profile
    from rnnops.compiler.run import export_native as export_native
    from rnnops.compiler.run.export_native import ExportedFiles
else:  # who calls does without
    export_native = LazyModule("rnnops.compiler.run.export_native")
    stream_parts = LazyModule("rnnops.compiler.api.stream_parts")
    streamed_nets = LazyModule("rnnops.compiler.api.streamed_net")

Jobs = TypeVar("Jobs")
Passes = tuple[JobList, JobList]
PENDING = Type("uint8", (0,))  # stands for memory whose size is not known yet
Kind = tuple[tuple[int, ...], Any]  # shape and dtype, the arguments of `np.empty`
LARGEST = 1 << 28  # the most bytes of one list's own memory, which holds all results of a plan at the same time


class JobLists(Generic[Jobs]):
    """Lists of jobs that answer calls with feeds of certain types. One caller at a time uses a list.

    Args:
        first: the first list.
        made: makes one more list when all are in use.
    """

    def __init__(self, first: Jobs, made: Callable[[], Jobs]) -> None:
        self.idle, self._made = [first], made

    def take(self) -> Jobs:
        """A list, which the caller puts back."""
        try:
            return self.idle.pop()
        except IndexError:
            return self._made()


class CallLists(JobLists[JobList]):
    """The lists of jobs of forward passes.

    Args:
        recorded: the recorded call.
        record: records the call once more, for another list.
    """

    def __init__(self, recorded: Recorded, record: Callable[[], Recorded]) -> None:
        super().__init__(JobList(recorded), lambda: JobList(record()))
        self.recorded = recorded
        self._makers = {name: array_maker(shape, dtype) for name, dtype, shape in recorded.outputs}

    def answer(self, feeds: Sequence[Any], arrays: Sequence[Array] | None = None) -> dict[str, Array] | None:
        """Outputs by name; None if feeds have other types, or an index or a label is out of range.

        Args:
            arrays: the feeds as arrays whose types the caller has checked. If left out, types are checked here.
        """
        made = {name: make() for name, make in self._makers.items()}
        jobs = self.take()
        try:
            right = jobs.do([*(feeds if arrays is None else arrays), *made.values()], arrays is None)
        finally:
            self.idle.append(jobs)
        return made if right else None


class Recording(ABC):
    """A dry run of a plan with placeholders for arrays.

    Args:
        run: the run whose plan is recorded.
        recorder: a new recorder, which is the device of the plan.
    """

    def __init__(self, run: Run, plan: ForwardPlan | TrainingPlan, recorder: Recorder, training: bool = False) -> None:
        self.plan, self.recorder, self.context = plan, recorder, RunContext(training=training)
        self._fed, self._bound = run._free, run._bound
        self.kinds: list[Type] = []  # types of the arrays that the caller gives

    @abstractmethod
    def run(self) -> Any:
        """Run the plan once."""

    def twice(self, target: Processor) -> tuple[Any, tuple[tuple[Array, Array, Array], ...]]:
        """Run the plan twice. Returns the result of the second run, and the sizes of each driver.

        Sizes are `(in use, before packing, after packing)`: the first run packs weights, the second finds them packed.

        Raises NotRecordedError if Python or threads of another library run a part of the plan.
        """
        compiled, recorder = self.plan.compiled, self.recorder
        for key, runner in (*compiled.forward.items(), *compiled.backward.items()):
            if runner.compiled is None:
                raise NotRecordedError(f"recurrence '{key}' is stepped from Python")
        self.run()
        unpacked = [sizes.copy() for sizes in recorder.sizes]
        self.kinds.clear()
        recorder.clear()
        found = self.run()
        if target.openmp is not None and any(job.threads > 1 for job in recorder.jobs):
            raise NotRecordedError("threads of another library run it")
        return found, tuple((now, first, now.copy()) for now, first in zip(recorder.sizes, unpacked, strict=True))

    def execute(
        self, program: Program, runners: Runners, workspace: Workspace,
        keep: Iterable[str] = (), kept: Workspace | None = None, given: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Run the ops of one pass; arguments as of `execute` of the interpreter."""
        kernels: dict[str, Any] = {**self.recorder.references(program), **runners}
        execute(program, workspace, self.context, keep, kept, kernels, given)

    def inputs(self) -> Workspace:
        """The inputs of the net."""
        workspace, types = Workspace(), self.plan.program.types
        given: dict[str, Any] = {name: self.given(types[name]) for name in self._fed}
        fixed: dict[str, Any] = {name: held(array, self.recorder.note) for name, array in self._bound.items()}
        workspace.local.update({**given, **fixed})
        return workspace

    def given(self, kind: Type) -> Any:
        """One more array that the caller gives."""
        self.kinds.append(kind)
        return made_array(kind.shape, kind.dtype, self.recorder.note, len(self.kinds) - 1)

    def outputs(self, program: Program, workspace: Workspace) -> dict[str, Kind]:
        """Assign outputs to arrays of the caller. Views of feeds are copied first, because a caller may put an output
        where a feed lies."""
        found: dict[str, Any] = {name: workspace[blob] for name, blob in program.net.output_blobs.items()}
        return self.assigned({name: a.copy() if a.memory.given >= 0 else a for name, a in found.items()})

    def assigned(self, arrays: Mapping[str, Any]) -> dict[str, Kind]:
        """Copy these arrays into arrays that the caller gives. Returns the kinds of the caller's arrays."""
        for array in arrays.values():
            self.given(type_of(array)).assign(array)
        return {name: (array.shape, array.dtype) for name, array in arrays.items()}


class _CallRecording(Recording):
    """A dry run of a forward pass."""

    def run(self) -> dict[str, Kind]:
        program, workspace = self.plan.program, self.inputs()
        self.execute(program, self.plan.compiled.forward, workspace)
        return self.outputs(program, workspace)


def call_lists(run: Run, folded: Run, feeds: Sequence[Array], largest: int) -> CallLists | str:
    """The lists of jobs that answer calls of a run with such feeds; or a text on why there are none.

    Args:
        folded: the run that is recorded: of a bound run, its folded run.
        largest: the most bytes of a list's own memory.
    """
    types = [type_of(array) for array in feeds]
    dtype = float_dtype_of(folded.net, {**folded._bound, **dict(zip(run._free, feeds, strict=True))}) or "float32"
    record = partial(_record_call, folded, types, dtype)
    try:
        refuse_other_integers(run.net, run._free, feeds)
        found = record()
    except NotRecordedError as reason:
        return str(reason)
    return CallLists(found, record) if found.nbytes <= largest else f"all results take {found.nbytes} bytes"


def _record_call(folded: Run, types: Sequence[Type], float_dtype: str) -> Recorded:
    return recorded(folded, types, float_dtype).without_copies()


def refuse_other_integers(net: Net, names: Sequence[str], feeds: Sequence[Array]) -> None:
    """Raise NotRecordedError if a feed of integers has another dtype than its input, and must be converted first."""
    declared = map(net.dtype_of, names)
    if any(dtype not in (FLOAT, str(array.dtype)) for dtype, array in zip(declared, feeds, strict=True)):
        raise NotRecordedError("integers are fed in another dtype than their input's")


def recorded(
    run: Run, feeds: Sequence[Type], float_dtype: str, recorder: Recorder | None = None, **changed: Any
) -> Recorded:
    """The recorded call of a run for feeds of certain types, with some options changed.

    Args:
        feeds: types of the inputs that are not bound, in order.
        recorder: must be new; a plain `Recorder` if left out.
        changed: options of the run with other values.

    Raises NotRecordedError if Python runs a part of the call.
    """
    options, target, recorder = replace(run._options, **changed), run._options.target, recorder or Recorder()
    if not isinstance(target, Processor) or options.interpreted:
        raise NotRecordedError("kernels are not compiled for this machine")
    types = {name: type_of(array) for name, array in run._bound.items()} | dict(zip(run._free, feeds, strict=True))
    plan = forward_structure(run._live, types, float_dtype, replace(options, device=recorder, recycle=False))
    recording = _CallRecording(run, plan, recorder)
    outputs, sizes = recording.twice(target)
    kinds, checked = tuple((name, dtype, shape) for name, (shape, dtype) in outputs.items()), tuple(enumerate(feeds))
    given = len(recording.kinds)
    return Recorded(tuple(recorder.jobs), kinds, sizes, recorder.status, recorder.barrier, given, checked)


@dataclass(frozen=True)
class RecordedTraining:
    """Both recorded passes of a training step.

    The backward list takes, in this order: feeds, outputs, kept memory, gradients of outputs, gradients of inputs. The
    forward list takes the first three.

    Args:
        feeds: how many feeds there are.
        outputs: kinds of the outputs, by name.
        kept: kind of the memory that the forward pass leaves for the backward pass.
        grads: kinds of the gradients of outputs, by output.
        results: kinds of the gradients of inputs, by input.
    """

    passes: tuple[Recorded, Recorded]
    feeds: int
    outputs: dict[str, Kind]
    kept: Kind
    grads: dict[str, Kind]
    results: dict[str, Kind]

    @property
    def nbytes(self) -> int:
        """Bytes of all memory of a step, without arrays of the caller."""
        return sum(one.nbytes for one in self.passes) + self.kept[0][0]


class _StepRecording(Recording):
    """A dry run of both passes of a plan."""

    plan: TrainingPlan

    def run(self) -> tuple[tuple[int, int, int], list[dict[str, Kind]]]:
        """How many jobs, sizes of drivers and given arrays the forward pass has; then the kinds of outputs, of their
        gradients and of results, by name."""
        plan, note = self.plan, self.recorder.note
        workspace, kept, back = self.inputs(), Workspace(), Workspace()
        kept.parent = workspace
        self.execute(plan.program, plan.compiled.forward, workspace, plan.residuals.kept, kept)
        made = self.outputs(plan.program, kept)
        ahead = len(self.recorder.jobs), len(self.recorder.sizes), len(self.kinds)
        self.given(PENDING)
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
    """Record both passes of a run for feeds of certain types. Raises NotRecordedError if Python runs a part of them."""
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
    """The lists of jobs that answer training steps of a run with such feeds; or a text on why there are none."""
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


class TrainingLists(JobLists[Passes]):
    """Pairs of lists of jobs: one for the forward pass and one for the backward pass of a training step."""

    def __init__(
        self, run: Run, wrt: tuple[str, ...], training: bool, plan: TrainingPlan, recorded: RecordedTraining,
        record: Callable[[], RecordedTraining],
    ) -> None:  # fmt: skip
        super().__init__(_passes(recorded), lambda: _passes(record()))
        self._run, self._how, self.plan, self.recorded = run, (wrt, training), plan, recorded
        self._outputs = {name: array_maker(*kind) for name, kind in recorded.outputs.items()}
        self._kept = array_maker(*recorded.kept)
        self._results = {name: array_maker(*kind) for name, kind in recorded.results.items()}
        # outputs whose gradients the native call takes as they are, in order
        self.grads = () if plan.gradient.refused else tuple(recorded.grads)

    def answer(
        self, feeds: Sequence[Any], arrays: Sequence[Array] | None = None
    ) -> tuple[dict[str, Array], Pullback] | None:
        """Outputs by name, and the pullback; None if feeds have other types, or an index is out of range.

        Args:
            arrays: the feeds as arrays whose types the caller has checked. If left out, types are checked here.
        """
        made = {name: make() for name, make in self._outputs.items()}
        every = [*(feeds if arrays is None else arrays), *made.values(), self._kept()]
        return (made, RepeatedPullback(self, every, feeds)) if self._do(0, every, arrays is None) else None

    def pull(self, every: Sequence[Array], dys: Sequence[Any], check: bool = True) -> dict[str, Array] | None:
        """Gradients of inputs by name; None if gradients of outputs have other types.

        Args:
            every: the arrays that the forward pass was given.
            dys: gradients of outputs.
            check: whether the types of `dys` are checked.
        """
        results = {name: make() for name, make in self._results.items()}
        return results if self._do(1, [*every, *dys, *results.values()], check) else None

    def by_plan(self, feeds: Sequence[Any]) -> Pullback:
        """A pullback for the same feeds that runs op by op."""
        run, (wrt, training) = self._run, self._how
        return vjp_by_plan(run, (dict(zip(run._free, feeds, strict=True)),), {}, wrt, training)[1]

    def _do(self, which: int, arrays: list[Any], check: bool) -> bool:
        passes = self.take()
        try:
            return passes[which].do(arrays, check)
        finally:
            self.idle.append(passes)


def _passes(recorded: RecordedTraining) -> Passes:
    forward, backward = recorded.passes
    return JobList(forward), JobList(backward)


Result = TypeVar("Result")


class FoldedRun(Run):
    """The run of the folded net. It draws the same random numbers as the original net."""

    repeats: bool = False


class BoundRun(Run):
    """A run with some inputs fed once and for all."""

    def _called(
        self, dicts: tuple[Feeds, ...], feeds: Feeds, _: Any = None, training: bool = False, seed: int | None = None
    ) -> dict[str, Array]:
        return self._on_folded_run(lambda run: run(*dicts, seed=seed, training=training, **feeds), dicts, feeds)

    def _call_lists(self, feeds: Sequence[Array], *_: Any) -> CallLists | str:
        return call_lists(self, self.folded_run, feeds, LARGEST)

    @memory_named(of_run)
    def plan(
        self, *dicts: Feeds, backward: bool = True, wrt: Any = None, dtype: Any = None, **feeds: Any
    ) -> PlannedRun:
        """The plan; arguments as for `Run.plan`."""
        check_flags("plan", backward=backward)
        if backward:
            return super().plan(*dicts, wrt=wrt, dtype=dtype, **feeds)
        planned = self._on_folded_run(lambda run: run.plan(*dicts, backward=False, dtype=dtype, **feeds), dicts, feeds)
        program = planned.plan.program
        try:
            recorded = self._recorded([program.types[name] for name in self._free], program.float_dtype)
        except NotRecordedError as reason:
            return replace(planned, calls=f"op by op, from Python: {reason}")
        count, nbytes = len(recorded.jobs), recorded.nbytes
        return replace(planned, calls=f"one native call of {count} jobs in {nbytes} bytes of memory, weights included")

    def profile(self, *dicts: Feeds, backward: bool = True, **given: Any) -> Profile:
        """The time of each op; arguments as for `Run.profile`."""
        check_flags("profile", backward=backward)
        if backward:
            return super().profile(*dicts, **given)
        return self.folded_run.profile(*dicts, backward=False, **given)

    def write_export(
        self,
        call: Callable[[Run], PlannedRun],
        given: tuple[tuple[Feeds, ...], Feeds],
        folder: str | os.PathLike[str],
        name: str | None,
        states: Mapping[str, str] | StreamedNet | None,
        initial: Mapping[str, Any] | None,
        source: str | None,
    ) -> ExportedFiles:
        """Write the files of `export_native`.

        Args:
            call: plans the call that is exported.
            given: feeds and shapes of this call, for errors.
            others: as of `Run.export_native`.
        """
        if not isinstance(folder, str | os.PathLike):
            wanted, came = "a string or a Path", repr(folder)[:60]
            raise FeedError("folder is not a path", net=self.net.name, wanted=wanted, came=came)
        if source not in (None, "object", "c99"):
            wanted = '"object", which None is, or "c99"'
            raise FeedError("there is no such source", net=self.net.name, wanted=wanted, came=repr(source))
        source = None if source == "object" else source
        word = export_native.name_of(self.net.name) if name is None else export_native.checked_name(name, self.net.name)
        if (drawn := self._random_ops[False]) is not None:
            hint = "Feed the numbers as an input: a program has no seed, and would have the same ones in each call."
            raise DeviceError("random ops are live, which is not exported", net=self.net.name, op=drawn, hint=hint)
        facts = dict[str, dict[str, Any]]()
        if isinstance(states, streamed_nets.StreamedNet):
            facts, states = states.facts(), states.states
        program = self._on_folded_run(call, *given).plan.program
        types = {one: program.types[one] for one in self._free}
        for one, kind in types.items():
            if 0 in kind.shape:
                raise FeedError("an array without elements is not exported", net=self.net.name, blob=one, came=kind)
        recording: dict[str, Any] = {"threads": 1}
        if source:
            recording |= {"recorder": export_native.SourceRecorder(), "width": export_native.SCALAR_WIDTH}
        try:
            recorded = self._recorded([*types.values()], program.float_dtype, **recording)
        except NotRecordedError as reason:
            problem = f"this plan is not exported: {reason}"
            hint = (
                "Write the steps of a recurrence inside of a cell as a loop of Python, and other ops as compiled ones."
            )
            raise DeviceError(
                problem, net=self.net.name, wanted="a plan that is one native call", hint=hint
            ) from reason
        if isinstance(states, Mapping):
            check_direction(self.net, states.values(), FeedError)
            initial = self._with_position(states, initial)
        written = program.float_dtype if source else None
        every = {one: type_of(array) for one, array in self._bound.items()} | types
        ranges = export_native.ranges_of_inputs(prepare(self._live, every, program.float_dtype))
        for one, (least, greatest) in ranges.items():
            facts.setdefault(one, {}).update(least=least, greatest=greatest)
        files = export_native.export_recorded(
            recorded,
            types,
            {} if states is None else states,
            {} if initial is None else initial,
            folder,
            word,
            self.net.name,
            written,
            facts,
        )
        stream_parts.warn_of_export(self._live, types, every, states or {}, program.float_dtype)
        return files

    def _with_position(self, states: Mapping[str, str], initial: Any) -> Any:
        """Initial states, with the position of a streamed net set to 1: the net reads initial states only then."""
        if not isinstance(initial, Mapping):
            return initial
        position = position_to_set(self.net, [*states.values()], initial, FeedError)
        return initial if position is None else {**initial, position: 1}

    @cached_property
    def folded_run(self) -> Run:
        """The run of the folded net, which answers calls."""
        dtype = float_dtype_of(self._live, self._bound)
        if self._options.weights:
            lifted = lift_from_cells(self._live, self._bound)
            net, arrays = folded(lifted, self._bound, dtype, large=inf)  # a constant is not a weight
            net, arrays = int8_weights(net, arrays, self._bound)
        else:
            net, arrays = folded(self._live, self._bound, dtype)
            if self._multiplies_bytes:
                net, arrays = byte_products(net, arrays)
        options = replace(self._options, fixed=frozenset(arrays))
        if options.target == PROCESSOR:
            options = replace(options, around="all")
        return FoldedRun(net, self.device, options, arrays)

    @property
    def _multiplies_bytes(self) -> bool:
        options = self._options
        known = not options.interpreted and BYTES in options.target.weight_types
        return known and has_quads(vector_width(options.width))

    def _recorded(
        self, feeds: Sequence[Type], float_dtype: str, recorder: Recorder | None = None, **changed: Any
    ) -> Recorded:
        return recorded(self.folded_run, feeds, float_dtype, recorder, **changed)

    def _on_folded_run(self, work: Callable[[Run], Result], dicts: tuple[Feeds, ...], named: Feeds) -> Result:
        """Call `work` with the folded run. A FeedError has the names of the original net."""
        try:
            return work(self.folded_run)
        except FeedError:  # it may name an input that only the folded net has
            merge_given(self.net, (self._bound, *dicts), named)
            raise
