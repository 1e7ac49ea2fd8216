"""Profiles of runs, and the blobs that a training plan saves.

**Events of a profile as a file that Perfetto and Chrome show**: what ran when, and for how long. The format is that of
the Trace Event Format document ("complete" events), times in microseconds.

**Profiles**: how long each op of a run takes, how often it runs, and how many bytes it makes. Ops are measured from
outside, as the run calls them; a recurrence and a group of fused ops are one op each. Rounds to warm up, which also
plan and compile, are not in the averages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from rnnops.checkpoints.slot_schedule import slots
from rnnops.compiler.lower.scan import Role
from rnnops.compiler.memory.allocations import allocations_by, buffers_of, part_bytes, results_of
from rnnops.compiler.memory.choose_saved import runs_again
from rnnops.compiler.memory.memory import KEPT, Demand
from rnnops.compiler.report.memory_timeline import PART
from rnnops.compiler.run.compile_programs import Runners, demands_of, runner_shown
from rnnops.compiler.run.pipeline import ForwardPlan, PlanCache, TrainingPlan
from rnnops.errors import FeedError
from rnnops.interpreter import Program, run_reference
from rnnops.net.drawing import Drawing, Marks, draw_typed
from rnnops.net.loop_forms import View
from rnnops.net.schema import Call, RunContext, form_of, schema_of
from rnnops.recurrent.parts import Parts
from rnnops.recurrent.recurrence import Recurrence, cell_program, input_types, is_training_form, runs_in_parts
from rnnops.types import OPAQUE, Array, Shape
from rnnops.util import aligned, counted, preformatted, readable, replaced, spaced, table

MICROSECONDS = 1e6  # in a second


@dataclass(frozen=True)
class Event:
    """Something that ran.

    Args:
        kind: `pass`, `compiled` or `interpreter`.
        start, seconds: when, by the clock of the profile, and for how long.
        more: what else is shown of it.
    """

    name: str
    kind: str
    start: float
    seconds: float
    more: dict[str, Any] = field(default_factory=dict)


def write_trace(path: str | os.PathLike[str], events: Iterable[Event], title: str) -> None:
    """Write events; the first is at 0. Raises OSError where no file can be written; an old one stays then."""
    listed = sorted(events, key=lambda event: (event.start, -event.seconds))
    first = listed[0].start if listed else 0.0
    place = {"pid": 1, "tid": 1}
    named = {"name": "process_name", "ph": "M", **place, "args": {"name": title}}
    shown = [
        {
            "name": event.name,
            "cat": event.kind,
            "ph": "X",
            "ts": MICROSECONDS * (event.start - first),
            "dur": MICROSECONDS * event.seconds,
            **place,
            "args": event.more,
        }
        for event in listed
    ]
    with replaced(path) as file:
        file.write_text(json.dumps({"traceEvents": [named, *shown], "displayTimeUnit": "ms"}), encoding="utf-8")


HEAD = ("op", "result", "runs", "calls", "bytes", "ms", "share")
PASS = "pass"  # kind of an event
Plan = ForwardPlan | TrainingPlan
Clock = Callable[[], float]


@dataclass(frozen=True)
class OpProfile:
    """One op.

    Args:
        op: its type.
        result: its first result.
        runs: `compiled` or `interpreter`.
        calls: in all rounds.
        seconds: of one call, on average.
        nbytes: of the memory that its results lie in.
    """

    op: str
    result: str
    runs: str
    calls: int
    seconds: float
    nbytes: int


@dataclass(frozen=True)
class PassProfile:
    """One pass.

    Args:
        name: `forward` or `backward`.
        seconds: of one pass, on average, with what is around its ops: checks of feeds, copies of outputs.
        ops: an `OpProfile` for each.
    """

    name: str
    seconds: float
    ops: tuple[OpProfile, ...]

    @property
    def head(self) -> str:
        """Name and time, as a line."""
        return f"{self.name} pass: {1000 * self.seconds:.3f} ms"

    def rows(self) -> list[tuple[str, ...]]:
        """The rows of the table, the slowest ops first."""
        total = self.seconds or 1.0
        cells = [
            (one.op, one.result, one.runs, str(one.calls), spaced(one.nbytes), *_time(one.seconds, total))
            for one in sorted(self.ops, key=lambda one: -one.seconds)
        ]
        around = ("around ops", "", "", "", "", *_time(self.seconds - sum(one.seconds for one in self.ops), total))
        sums = ("total", "", "", "", spaced(sum(one.nbytes for one in self.ops)), *_time(self.seconds, total))
        return [*cells, around, sums]

    def lines(self) -> list[str]:
        """As a table."""
        return [self.head, *aligned([HEAD, *self.rows()])]


@dataclass(frozen=True)
class Profile:
    """The result of `run.profile`; it prints as tables.

    Args:
        rounds: that were timed.
        warm_up: rounds before them, which were not.
        forward: the forward pass.
        backward: None where only forward passes ran.
        events: each pass and op of the rounds that were timed, as it ran.
    """

    rounds: int
    warm_up: int
    forward: PassProfile
    backward: PassProfile | None = None
    events: tuple[Event, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """All averages as dicts and lists."""
        return asdict(replace(self, events=()))

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write what ran when as a JSON file for Perfetto or Chrome's tracing.

        Args:
            path: of the file; an old one is replaced.

        Raises:
            OSError: it cannot be written.
        """
        write_trace(path, self.events, f"rnnops, {self.rounds} rounds")

    @property
    def passes(self) -> tuple[PassProfile, ...]:
        """The passes that ran."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)

    @property
    def head(self) -> str:
        """How many rounds there were, as a line."""
        return f"averages of {counted(self.rounds, 'round')} after {self.warm_up} to warm up"

    def __str__(self) -> str:
        return "\n\n".join([self.head, *("\n".join(one.lines()) for one in self.passes)])

    def _repr_html_(self) -> str:
        return preformatted(self.head) + "".join(table(HEAD, one.rows(), one.head) for one in self.passes)


def _time(seconds: float, total: float) -> tuple[str, str]:
    return f"{1000 * seconds:.3f}", f"{100 * seconds / total:.1f} %"


class OpTimer:
    """Runs one op and notes the time.

    Args:
        kernel: what runs the op; None for its reference.
        runs: `compiled` or `interpreter`.
        demands: what ops ask for, by key; nothing where the interpreter, or parts of a recurrence, ask for it.
    """

    def __init__(self, call: Call, kernel: Any, runs: str, demands: Mapping[str, Demand], clock: Clock) -> None:
        self.call, self.kernel, self.runs, self.demands, self.clock = call, kernel, runs, demands, clock
        self.events: list[tuple[float, float]] = []  # start and seconds of each call

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.events)

    def __call__(self, arrays: Sequence[Any], context: RunContext, **more: Any) -> tuple[Any, ...]:
        start = self.clock()
        if self.kernel is None:
            results = run_reference(self.call, schema_of(self.call.op.type), arrays, context)
        else:
            results = self.kernel(arrays, context, **more)
        self.events.append((start, self.clock() - start))
        return results

    def profile(self) -> OpProfile:
        """The profile of the ops it has seen."""
        nbytes = sum(one.nbytes for one in allocations_by(0, self.call, self.demands, {}) if one.blobs)
        op, calls = self.call.op, len(self.events)
        return OpProfile(op.type, op.key, self.runs, calls, self.seconds / max(calls, 1), nbytes)

    def traced(self) -> Iterator[Event]:
        """Each call."""
        op = self.call.op
        for start, seconds in self.events:
            yield Event(f"{op.type} {op.key}", self.runs, start, seconds, {"net": self.call.net})


class WatchedPlans(PlanCache[Any]):
    """The plans of another cache, all of whose ops are watched."""

    def __init__(self, plans: PlanCache[Any], clock: Clock, reference: Callable[[Call], Any]) -> None:
        super().__init__()
        self.plans, self.clock, self.reference = plans, clock, reference
        self.passes: dict[str, list[OpTimer]] = {}
        self.plan: Plan | None = None

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The plan that the other cache has or makes, watched."""
        return super().get(key, lambda: self._watched(self.plans.get(key, make)))

    def _watched(self, plan: Plan) -> Plan:
        forward, backward = self._watch("forward", plan.program, plan.compiled.forward), {}
        if isinstance(plan, TrainingPlan):
            backward = self._watch("backward", plan.backward, plan.compiled.backward)
        self.plan = replace(plan, compiled=replace(plan.compiled, forward=forward, backward=backward))
        return self.plan

    def _watch(self, name: str, program: Program, runners: Runners) -> dict[str, Any]:
        """Runners that note the time of each op of a pass, by key."""
        watches, demands = {}, demands_of(runners)
        for call in program.calls:
            runner = runners.get(call.op.key)
            runs = "compiled" if runner_shown(runner) else "interpreter"
            watches[call.op.key] = OpTimer(call, runner or self.reference(call), runs, demands, self.clock)
        self.passes[name] = list(watches.values())
        return watches

    def forget(self) -> None:
        """Forget what was seen so far."""
        for watch in (watch for watches in self.passes.values() for watch in watches):
            watch.events.clear()


def profile_run(run: Any, plans: WatchedPlans, backward: bool, rounds: int, warm_up: int) -> Profile:
    """Run forward, and backward for ones as gradients, again and again.

    Args:
        run: a function that does one forward pass, and gives outputs and a pullback where `backward` is on.
        plans: where the run finds its plan.

    Raises FeedError for numbers of rounds that make no sense.
    """
    for name, value, least in (("rounds", rounds, 1), ("warm_up", warm_up, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise FeedError(
                f"{name} is not a number of rounds", wanted=f"an integer of {least} or more", came=repr(value)
            )
    clock, timed = plans.clock, list[Event]()
    for number in range(warm_up + rounds):
        if number == warm_up:
            plans.forget()
            timed = []
        start = clock()
        result = run()
        timed.append(Event("forward", PASS, start, clock() - start))
        if backward:
            given = _ones(result[0], plans.plan)
            start = clock()
            result[1](given)
            timed.append(Event("backward", PASS, start, clock() - start))
    passes = [
        PassProfile(name, _total(timed, name) / rounds, tuple(watch.profile() for watch in watches))
        for name, watches in plans.passes.items()
    ]
    forward, *others = passes
    ops = [event for watches in plans.passes.values() for watch in watches for event in watch.traced()]
    return Profile(rounds, warm_up, forward, others[0] if others else None, (*timed, *ops))


def _total(timed: Sequence[Event], name: str) -> float:
    """Seconds of all passes of a name."""
    return sum(event.seconds for event in timed if event.name == name)


def _ones(outputs: Mapping[str, Array], plan: Plan | None) -> dict[str, Array]:
    """A gradient for every output that takes one."""
    assert isinstance(plan, TrainingPlan)
    wanted = [name for name in plan.gradient.output_grads if name not in plan.gradient.refused]
    return {name: np.ones(outputs[name].shape, outputs[name].dtype) for name in wanted}


SAVED_HEAD = ("status", "blob", "of", "dtype", "shape", "bytes")


@dataclass(frozen=True)
class SavedBlob:
    """One line.

    Args:
        status: `kept`; `recomputed` on the backward pass; `boundary`: a state before a part of a recurrence; `alias`:
            kept, but it lies in an output that is there anyway.
        name: of a blob of the net, or of a step; of steps of a recurrence within a step their workspace.
        of: the recurrence by its first result, `""` for blobs of the net.
        dtype: of its elements.
        shape: of all steps together.
    """

    status: str
    name: str
    of: str
    dtype: str
    shape: Shape

    @property
    def nbytes(self) -> int:
        """Bytes between the passes; none for what is made again."""
        return 0 if self.status == "recomputed" else prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class SavedResiduals:
    """All lines; prints as a table.

    Args:
        blobs: a `SavedBlob` each.
    """

    blobs: tuple[SavedBlob, ...]

    @property
    def total(self) -> int:
        """Bytes kept between the passes, aliases of outputs included."""
        return sum(blob.nbytes for blob in self.blobs)

    def cells(self) -> list[tuple[str, ...]]:
        """The rows of the table, in the column order of `SAVED_HEAD`."""
        rows = [(b.status, b.name, b.of, b.dtype, str(list(b.shape)), spaced(b.nbytes)) for b in self.blobs]
        return [*rows, ("total", "", "", "", "", spaced(self.total))]

    def __str__(self) -> str:
        return "\n".join(aligned([SAVED_HEAD, *self.cells()]))

    def _repr_html_(self) -> str:
        return table(SAVED_HEAD, self.cells(), "what is kept for the backward pass, and what is computed again")


def saved_residuals(plan: TrainingPlan) -> SavedResiduals:
    """The blobs that a plan saves; nothing is computed."""
    return SavedResiduals((*_of_net(plan), *(line for call in _recurrences(plan) for line in _of_steps(plan, call))))


def _recurrences(plan: TrainingPlan) -> list[Call]:
    return [call for call in plan.program.calls if is_training_form(call.op)]


def _of_net(plan: TrainingPlan) -> Iterator[SavedBlob]:
    types, outputs = plan.program.types, set(plan.program.net.output_blobs.values())
    within = {name for call in _recurrences(plan) for name in _within_kept(call)}
    for name in plan.residuals.kept:
        if types[name].dtype != OPAQUE and name not in within:
            yield SavedBlob("alias" if name in outputs else "kept", name, "", types[name].dtype, types[name].shape)
    for op in plan.residuals.rerun:
        for name in (name for name in op.outputs if name):
            kind = plan.unfused.types[name]
            yield SavedBlob("recomputed", name, "", kind.dtype, kind.shape)


def _within_kept(call: Call) -> Iterator[str]:
    """Results of a recurrence that need no memory besides what it keeps of its steps."""
    if not runs_in_parts(call.op) and not call.op.attributes.get("segments"):
        for name, kind, lies_in in zip(
            call.op.outputs[:-1], call.output_types, results_of(call, buffers_of(call)), strict=False
        ):
            if len(lies_in) == 1 and lies_in[0].kind == KEPT and kind.nbytes >= PART * lies_in[0].nbytes:
                yield name


def _of_steps(plan: TrainingPlan, call: Call) -> Iterator[SavedBlob]:
    """The residuals of a recurrence; of one in parts, those of a whole part and the states in slots."""
    recurrence = Recurrence(call.op, call.net)
    types, step = input_types(recurrence, call), cell_program(recurrence, call).types
    steps, _ = recurrence.steps_and_batch(types)
    borders = _borders(plan, call)
    if borders:
        yield from borders
    elif runs_in_parts(call.op):
        schedule = call.op.attributes["schedule"]
        yield from _boundaries(call, schedule)
        yield from _kept(part_bytes(call).keep(schedule[0]), ())
    else:
        yield from _kept(call, set(plan.program.net.output_blobs.values()))
    for name in runs_again(recurrence.cell, call.op.attributes["backward"]):
        yield SavedBlob("recomputed", name, call.op.key, step[name].dtype, (steps, *step[name].shape))


def _borders(plan: TrainingPlan, call: Call) -> list[SavedBlob]:
    """States at borders of segments, where a recurrence keeps nothing else."""
    runner = plan.compiled.forward.get(call.op.key)
    tensors = runner.compiled.scan.tensors if runner is not None and runner.compiled is not None else {}
    return [
        SavedBlob("boundary", name.blob, call.op.key, tensor.dtype, (tensor.length, *tensor.shape))
        for name, tensor in tensors.items()
        if name.role is Role.BORDER
    ]


def _kept(call: Call, outputs: Collection[str]) -> Iterator[SavedBlob]:
    """Memory of all steps that backward reads; what lies in outputs of the net is there anyway."""
    buffers = buffers_of(call)
    results = zip(call.op.outputs, results_of(call, buffers), strict=True)
    there = [buffer for name, lies_in in results if name in outputs for buffer in lies_in]
    for name, buffer in buffers.items():
        if buffer.kind == KEPT:
            status = "alias" if buffer in there else "kept"
            yield SavedBlob(status, name.blob, call.op.key, buffer.dtype, buffer.shape)


def _boundaries(call: Call, schedule: tuple[int, int, str, int]) -> Iterator[SavedBlob]:
    """States in slots when the forward pass ends, and those at the start and after the part that is kept."""
    unit, m, kind, cost = schedule
    parts = Parts(call, (), unit)
    stored = 0
    for action in slots(parts.count, m, kind, cost):
        if action.what == "backward":
            break
        stored += (action.what in ("store", "keep")) - (action.what == "drop")
    for name, initial in parts.initial.items():
        yield SavedBlob("boundary", name, call.op.key, initial.dtype, (stored + 1, *initial.shape))


COLOURS = {"kept": "kept", "alias": "kept", "boundary": "boundary", "recomputed": "recomputed"}
SAID = {
    "kept": "kept for the backward pass, {} bytes",
    "alias": "kept for the backward pass, {} bytes that lie in an output",
    "boundary": "kept before each part of the steps, {} bytes",
    "recomputed": "computed again on the backward pass",
}


def draw_saved(plan: ForwardPlan | TrainingPlan, opened: bool = True, views: bool = False) -> Drawing:
    """The net that a plan runs forward, less what it fuses; its blobs have the names that other reports say.

    Args:
        opened: whether cells are drawn within recurrences.
        views: whether ops that give elements another shape or order are drawn.
    """
    if isinstance(plan, ForwardPlan):
        program = plan.program
        return draw_typed(program.net, program.types, opened, views, None, "", program.float_dtype)
    saved, program = saved_residuals(plan), plan.unfused
    recurrent = [call for call in program.calls if call.op.type == "RecurrentNetwork"]
    inner = {call.op.key: cell_program(Recurrence(call.op, call.net), call) for call in recurrent}
    within = {key: _marks(saved.blobs, key, cell) for key, cell in inner.items()}
    outer = _marks(saved.blobs, "", program)
    title = f"net {program.net.name}: {readable(saved.total)} kept for the backward pass"
    marks = Marks(outer.blobs, outer.notes, within)
    return draw_typed(program.net, program.types, opened, views, marks, title, program.float_dtype)


def _is_computed(call: Call) -> bool:
    """True if an op takes time."""
    return call.op.type != "Constant" and not isinstance(form_of(call), View)


def _marks(blobs: Iterable[SavedBlob], of: str, program: Program) -> Marks:
    """Colours and notes of the blobs of one net; views and constants are never computed, so not again."""
    made = {name for call in program.calls if _is_computed(call) for name in call.op.outputs}
    told = [one for one in blobs if one.of == of and (one.status != "recomputed" or one.name in made)]
    borders = [one for one in told if one.status == "boundary"]
    if borders:  # all steps run again from there, whatever is kept of a part meanwhile
        again = Marks(dict.fromkeys(made, "recomputed"), dict.fromkeys(made, SAID["recomputed"]))
        return again.beside(_told(borders))
    return _told(told)


def _told(blobs: Iterable[SavedBlob]) -> Marks:
    notes = {one.name: SAID[one.status].format(spaced(one.nbytes)) for one in blobs}
    return Marks({one.name: COLOURS[one.status] for one in blobs}, notes)
