"""Profiles of runs: time and bytes of each op, as a table and as a trace file.

Events of a profile as a file that Perfetto and Chrome show: what ran when, and for how long.

The format is that of the Trace Event Format document ("complete" events), times in microseconds.

Profiles: how long each op of a run takes, how often it runs, and how many bytes it makes.

Ops are measured from outside, as the run calls them; a recurrence and a group of fused ops are one op each. Rounds to
warm up, which also plan and compile, are not in the averages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from rnnops.compiler.buffers.allocations import allocations_by
from rnnops.compiler.buffers.memory import Demand
from rnnops.compiler.execute.compile_programs import runner_shown
from rnnops.compiler.execute.compiled import Runners, demands_of
from rnnops.compiler.pipeline import ForwardPlan, PlanCache, TrainingPlan
from rnnops.compiler.report.memory_table import aligned, spaced
from rnnops.errors import FeedError
from rnnops.interpreter import Program, run_reference
from rnnops.schema import Call, RunContext, schema_of
from rnnops.terminal import preformatted, table
from rnnops.types import Array
from rnnops.util import replaced

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
    """Write events, the first of which is at 0. Raises OSError where no file can be written; an old one stays then."""
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
        """What `HEAD` is above of, the ops that take longest first."""
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
    """What `run.profile` gives; prints as tables.

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
        return f"averages of {self.rounds} rounds after {self.warm_up} to warm up"

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
        """What it has seen."""
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
        """What notes the time of each op of a pass, by key."""
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
            raise FeedError(f"{name} is no number of rounds", wanted=f"an integer of {least} or more", came=repr(value))
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
