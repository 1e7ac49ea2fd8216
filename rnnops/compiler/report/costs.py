"""The costs of a run: measured op by op, and predicted for byte budgets.

**Events of a profile as a file that Perfetto and Chrome show**: the ops that ran, their starts and their times. The
format is that of the Trace Event Format document ("complete" events), with times in microseconds.

**Profiles**: the time of each op of a run, its calls, and the bytes of its results. Ops are measured from outside, as
the run calls them. A recurrence is one op, and so is a group of fused ops. Rounds to warm up, which also plan and
compile, are not in the averages.

**The budget curve**: the predicted time of a training step for byte budgets, from the most bytes to the least that are
enough. Each point is a choice of `memory_budget=`. Between two points there may be others that differ by few bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import pairwise
from math import log2
from typing import Any

import numpy as np

from rnnops import svg
from rnnops.checkpoints.policy import Policy, Slots
from rnnops.compiler.memory.allocations import allocations_by, part_bytes
from rnnops.compiler.memory.choose_saved import By, fit_budget, held_bytes, step_cost, ways
from rnnops.compiler.memory.memory import Demand
from rnnops.compiler.run.compile_programs import Runners, demands_of, runner_shown
from rnnops.compiler.run.pipeline import ForwardPlan, PlanCache, TrainingPlan
from rnnops.errors import BudgetError, FeedError
from rnnops.interpreter import Program, run_reference
from rnnops.net.schema import Call, RunContext, schema_of
from rnnops.recurrent.recurrence import runs_in_parts
from rnnops.types import Array
from rnnops.util import aligned, counted, preformatted, readable, replaced, spaced, table

MICROSECONDS = 1e6  # in a second


@dataclass(frozen=True)
class Event:
    """A pass or an op that ran.

    Args:
        kind: `pass`, `compiled` or `interpreter`.
        start, seconds: its start, by the clock of the profile, and its time.
        more: further facts to show.
    """

    name: str
    kind: str
    start: float
    seconds: float
    more: dict[str, Any] = field(default_factory=dict)


def write_trace(path: str | os.PathLike[str], events: Iterable[Event], title: str) -> None:
    """Write events. The first is at 0. Raises OSError if the file cannot be written; an old file then stays."""
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
        calls: the count of calls in all rounds.
        seconds: the time of one call, on average.
        nbytes: bytes of the memory that its results lie in.
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
        seconds: the time of one pass, on average, with checks of feeds and copies of outputs.
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
        rounds: rounds that were timed.
        warm_up: rounds before them, which were not timed.
        forward: the forward pass.
        backward: the backward pass; None if only forward passes ran.
        events: each pass and op of the timed rounds.
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
        """Write the passes and ops over time as a JSON file for Perfetto or Chrome's tracing.

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
        """The count of rounds, as a line."""
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
        kernel: runs the op; None for its reference.
        runs: `compiled` or `interpreter`.
        demands: key of an op -> the memory that it asks for. Interpreted ops and recurrences in parts are not there.
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
        """The profile of the op."""
        nbytes = sum(one.nbytes for one in allocations_by(0, self.call, self.demands, {}) if one.blobs)
        op, calls = self.call.op, len(self.events)
        return OpProfile(op.type, op.key, self.runs, calls, self.seconds / max(calls, 1), nbytes)

    def traced(self) -> Iterator[Event]:
        """An event for each call."""
        op = self.call.op
        for start, seconds in self.events:
            yield Event(f"{op.type} {op.key}", self.runs, start, seconds, {"net": self.call.net})


class WatchedPlans(PlanCache[Any]):
    """The plans of another cache, with a timer for each op."""

    def __init__(self, plans: PlanCache[Any], clock: Clock, reference: Callable[[Call], Any]) -> None:
        super().__init__()
        self.plans, self.clock, self.reference = plans, clock, reference
        self.passes: dict[str, list[OpTimer]] = {}
        self.plan: Plan | None = None

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The plan of the other cache, with timers."""
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
        """Forget all calls so far."""
        for watch in (watch for watches in self.passes.values() for watch in watches):
            watch.events.clear()


def profile_run(run: Any, plans: WatchedPlans, backward: bool, rounds: int, warm_up: int) -> Profile:
    """Run forward, and backward for ones as gradients, again and again.

    Args:
        run: a function that does one forward pass. With `backward` it returns outputs and a pullback.
        plans: the cache in which the run finds its plan.

    Raises FeedError for a wrong number of rounds.
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


ESTIMATE_HEAD = ("policy", "time", "bytes")


@dataclass(frozen=True)
class Estimate:
    """The cost of one policy.

    Args:
        policy: as text.
        nbytes: the most bytes that are held, from the end of the forward pass on.
        time: the time of a training step, divided by that of a step that does nothing twice.
    """

    policy: str
    nbytes: int
    time: float

    def __str__(self) -> str:
        return f"{self.policy}: {spaced(self.nbytes)} bytes, {self.time:.2f} of the time"


@dataclass(frozen=True)
class EstimateTable:
    """Estimates, the fastest first; prints as a table.

    Args:
        rows: an `Estimate` each.
    """

    rows: tuple[Estimate, ...]

    def cells(self) -> list[tuple[str, ...]]:
        """The rows of the table, in the column order of `ESTIMATE_HEAD`."""
        return [(row.policy, f"{row.time:.2f}", spaced(row.nbytes)) for row in self.rows]

    def __str__(self) -> str:
        return "\n".join(aligned([ESTIMATE_HEAD, *self.cells()]))

    def _repr_html_(self) -> str:
        return table(ESTIMATE_HEAD, self.cells(), "bytes held, and time over that of a step that does nothing twice")


def estimates(by: By, tile: Callable[[int, int], int]) -> EstimateTable:
    """The estimates of ways among which a budget chooses, the fastest first. Each needs fewer bytes than all before."""
    found: list[Estimate] = []
    for way in sorted(ways(by, tile), key=lambda way: (way.time, way.nbytes)):
        if not found or way.nbytes < found[-1].nbytes:
            found.append(Estimate(str(way.policy), way.nbytes, way.time))
    return EstimateTable(tuple(found))


def estimate_of(by: By, policy: Policy) -> Estimate:
    """The estimate of one policy."""
    saved, chosen = by(policy), policy.slots or Slots(1)
    held = held_bytes(saved) + sum(part_bytes(call).held(chosen) for call in saved[0].calls if runs_in_parts(call.op))
    return Estimate(str(policy), held, step_cost(saved).time(chosen))


def said_of_budget(budget: int | float | None, chosen: Estimate, whole: Estimate) -> str:
    """A line about the choice for a budget, with the bytes that the policy `all` holds."""
    kept = f"{readable(chosen.nbytes)} of {readable(whole.nbytes)} kept by {chosen.policy}"
    return f"memory_budget {budget}: {kept}, predicted {chosen.time:.2f} times as long"


CLOSER = 0.9  # the budget for the next point, as a part of the bytes of the last one
MOST = 1 << 62  # bytes: enough for everything


@dataclass(frozen=True)
class BudgetCurve(svg.Picture):
    """Bytes against predicted time.

    Args:
        title: the title of the picture.
        rows: the choices of budgets, in order of falling bytes.
        chosen: the estimate of the run itself.
    """

    title: str
    rows: tuple[Estimate, ...]
    chosen: Estimate

    @property
    def least(self) -> int:
        """The least budget that is enough."""
        return self.rows[-1].nbytes

    @property
    def svg(self) -> str:
        """The picture, as a document of its own."""
        rows = [*self.rows, self.chosen]
        low, high = min(row.nbytes for row in rows), max(row.nbytes for row in rows)
        slowest = max(row.time for row in rows)
        across = log2(max(low, 1)) - 0.15, log2(max(high, 1)) + 0.15
        up = log2(0.97), log2(max(slowest, 1.2)) + 0.04
        frame = svg.Frame(LEFT, TOP, PICTURE_WIDTH - LEFT - RIGHT, HEIGHT, across, up)
        parts = [svg.text(12, 22, self.title, "title"), *_scales(frame, slowest, across)]
        corners = " L ".join(f"{x:.1f} {y:.1f}" for x, y in _stairs(frame, self.rows))
        parts += [svg.path(f"M {corners}", "way"), *(_point(frame, row) for row in self.rows), *_named(frame, self)]
        there = set(map(colour_of, self.rows))
        colours = [(colour, said) for colour, said in SAID.items() if colour in there]
        y = TOP + HEIGHT + 44
        parts.append(svg.legend(colours, LEFT, y, PICTURE_WIDTH - LEFT))
        height = y + svg.legend_size(colours, PICTURE_WIDTH - LEFT)[1]
        return svg.document(max(PICTURE_WIDTH, svg.text_width(self.title, svg.TITLE) + 24), height, self.title, parts)

    def __str__(self) -> str:
        most = self.rows[0].nbytes
        width = max(len(spaced(most)), len("bytes"))
        lines = [
            f"  {spaced(row.nbytes):>{width}}  {row.time:7.2f}  {svg.bar(row.nbytes, most):{svg.WIDTH}}  {row.policy}"
            for row in self.rows
        ]
        head = f"  {'bytes':>{width}}  {'time':>7}  {'':{svg.WIDTH}}  policy"
        return "\n".join([self.title, head, *lines, f"this run: {self.chosen}"])


def budget_curve(net: str, by: By, tile: Callable[[int, int], int], chosen: Estimate) -> BudgetCurve:
    """The curve of a net.

    Args:
        by: gives the net for a policy.
        tile: T and N -> steps of a tile of kernels.
        chosen: the estimate of the run itself.

    Raises BudgetError if there is no way to run backward.
    """
    known, below = cache(by), CLOSER
    rows = [_taken(known, MOST, tile)]
    while True:
        budget = min(int(rows[-1].nbytes * below), rows[-1].nbytes - 1)
        try:
            rows.append(_taken(known, budget, tile))
        except BudgetError:
            if below == 1:
                break
            below = 1  # nearly at the end: from now on budgets are one byte less
    return BudgetCurve(f"net {net}: bytes against predicted time of a training step", tuple(rows), chosen)


def _taken(by: By, budget: int, tile: Callable[[int, int], int]) -> Estimate:
    way = fit_budget(by, budget, tile)
    return Estimate(str(way.policy), way.nbytes, way.time)


PICTURE_WIDTH, LEFT, TOP, HEIGHT, RIGHT = 760.0, 64.0, 56.0, 280.0, 24.0
TIMES = (1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)  # of an axis
APART = 22.0  # pixels between lines of the grid at least
SAID = {"kept": "kept for all steps", "checkpoint": "only states kept", "tile": "in parts"}
NEAR, FAR = (-10.0, 18.0, 4.0, -24.0), (-38.0, -52.0, -66.0)  # heights of texts above points
Area = tuple[float, float, float, float]  # left, top, right, bottom


def colour_of(row: Estimate) -> str:
    """The colour of a way: it keeps all steps, only states, or parts."""
    return "tile" if "slot" in row.policy else "checkpoint" if row.policy.startswith("memory") else "kept"


def _scales(frame: svg.Frame, slowest: float, across: tuple[float, float]) -> Iterator[str]:
    """Lines of the grid with times and bytes, and titles of the axes."""
    shown = [1.0]
    for time in TIMES[1:]:
        if time <= slowest and frame.y(log2(shown[-1])) - frame.y(log2(time)) >= APART:
            shown.append(time)
    yield from frame.across([(log2(time), f"{time:g}") for time in shown])
    step = 1 if across[1] - across[0] < 5 else 2
    powers = [power for power in range(0, 60, step) if across[0] <= power <= across[1]]
    yield from frame.below([(power, readable(2**power)) for power in powers])
    yield svg.text(LEFT, TOP - 12, "predicted time, of a step that does nothing twice", "small soft")
    yield svg.text(frame.left + frame.width, frame.bottom + 30, "bytes held", "small soft", "end")


def _stairs(frame: svg.Frame, rows: Sequence[Estimate]) -> list[tuple[float, float]]:
    """Corners: a budget takes the point left of it, so that a point counts up to the bytes of the one before."""
    corners, right = list[tuple[float, float]](), frame.left + frame.width
    for x, y in (_place(frame, row) for row in rows):
        corners += [(right, y), (x, y)]
        right = x
    return corners


def _place(frame: svg.Frame, row: Estimate) -> tuple[float, float]:
    return frame.x(log2(max(row.nbytes, 1))), frame.y(log2(row.time or 1.0))


def _point(frame: svg.Frame, row: Estimate) -> str:
    x, y = _place(frame, row)
    return svg.group([f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="{colour_of(row)}"/>'], str(row))


def _named(frame: svg.Frame, curve: BudgetCurve) -> Iterator[str]:
    """The run's own label, then names of points if they cover nothing else."""
    x, y = _place(frame, curve.chosen)
    yield svg.group([f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6.5" class="mark"/>'], f"this run: {curve.chosen}")
    taken = [(a - 7, b - 7, a + 7, b + 7) for a, b in (_place(frame, row) for row in (*curve.rows, curve.chosen))]
    taken += [
        (min(a, c) - 2, min(b, d) - 2, max(a, c) + 2, max(b, d) + 2)
        for (a, b), (c, d) in pairwise(_stairs(frame, curve.rows))
    ]
    yield from _label(frame, f"this run, {readable(curve.chosen.nbytes)}", (x, y), taken, "small bold", NEAR + FAR)
    first = {colour_of(row): row for row in reversed(curve.rows)}
    for row in dict.fromkeys([curve.rows[-1], *first.values()]):
        said = f"{row.policy.split(' for ')[0]}, {readable(row.nbytes)}"
        yield from _label(frame, said, _place(frame, row), taken, "small soft")


def _label(
    frame: svg.Frame,
    said: str,
    place: tuple[float, float],
    taken: list[Area],
    kind: str,
    heights: Sequence[float] = NEAR,
) -> Iterator[str]:
    """A text next to a point, at the first of some places that is free; a line leads to a text that is far.

    Args:
        heights: above and below the point, in order.
    """
    width = svg.text_width(said, svg.SMALL)
    for dy in heights:
        for dx in (10, 36, -width - 10, -width / 2):
            x, y = place[0] + dx, place[1] + dy
            area = x - 2, y - 10, x + width + 2, y + 3
            inside = area[0] > frame.left and area[2] < frame.left + frame.width
            if inside and frame.top - 4 < area[1] < frame.bottom - 14 and not any(_overlap(area, one) for one in taken):
                taken.append(area)
                if dy in FAR:
                    yield svg.line(place[0], place[1] - 7, min(max(place[0], x), x + width), y + 4, "way")
                yield svg.text(x, y, said, f"{kind} halo")
                return


def _overlap(one: Area, other: Area) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
