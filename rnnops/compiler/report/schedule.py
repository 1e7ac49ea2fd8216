"""The schedule of a plan, as values and as a picture.

**The schedule of a plan as values**: the order of work over tiles and steps, the threads that do it, and its memory.
Names, sizes and orders are those of the plan. Nothing is measured, and no lane tells its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from textwrap import wrap

from rnnops import svg
from rnnops.compiler.codegen.scan_module import COLUMNS
from rnnops.compiler.lower.scan import SUM_PARTS, rows_of_sum
from rnnops.compiler.lower.statements import Contraction, Node, Stage, StepProduct
from rnnops.compiler.memory.memory import KINDS, PACKED
from rnnops.compiler.report import describe
from rnnops.compiler.run.backward import BackwardScan
from rnnops.compiler.run.compile_programs import Runner, Stepped
from rnnops.compiler.run.compiled_scan import CompiledScan
from rnnops.compiler.run.forward import ForwardScan, RowPass
from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan
from rnnops.interpreter import Program
from rnnops.net.schema import Call
from rnnops.util import counted, readable

ONCE, TILE, STEP = "once", "tile", "step"  # how often a lane runs; rows of a pass without steps run once
Share = tuple[int, int]  # the first thing that a thread takes, and the one after the last


@dataclass(frozen=True)
class Lane:
    """Work that runs together.

    Args:
        when: `once`, `tile` (all steps of a tile at once) or `step`.
        head: a heading that tells how it runs.
        work: a line for each product, and for each group of elementwise ops.
        gflop: 1e9 operations of its products in all steps.
        after: whether work that runs once does so after the last step.
    """

    when: str
    head: str
    work: tuple[str, ...]
    gflop: float = 0.0
    after: bool = False

    def lines(self) -> Iterator[str]:
        yield self.head + (f" ({self.gflop:.3g} GFLOP)" if self.gflop else "")
        yield from (f"  {one}" for one in self.work)


@dataclass(frozen=True)
class ScanSchedule:
    """One compiled recurrence, or a group of fused ops, in one pass.

    Args:
        title: its name.
        facts: lines about steps, rows, threads and so on, as in a printed plan.
        steps: T; 0 for a group of fused ops.
        tile: steps of a tile.
        reverse: whether steps run from the last to the first.
        lanes: in order. Within a tile, each runs when the one before has ended.
        shares: things that threads share out (`rows`, `128 columns`) -> the share of each thread.
        nbytes: bytes by kind of memory.
    """

    title: str
    facts: tuple[str, ...]
    steps: int
    tile: int
    reverse: bool
    lanes: tuple[Lane, ...]
    shares: Mapping[str, tuple[Share, ...]] = field(default_factory=dict)
    nbytes: Mapping[str, int] = field(default_factory=dict)

    def tiles(self) -> list[Share]:
        """The first step of each tile and the one after its last, in the order in which tiles run."""
        sizes = [(first, min(self.tile, self.steps - first)) for first in range(0, self.steps, self.tile or 1)]
        if self.reverse:
            return [(self.steps - first - size, self.steps - first) for first, size in sizes]
        return [(first, first + size) for first, size in sizes]

    def lines(self) -> Iterator[str]:
        yield f"{self.title}:"
        yield from (f"  {fact}" for fact in self.facts)
        tiles = self.tiles()
        if len(tiles) > 1:
            shown = [*tiles[:3], *([] if len(tiles) < 5 else [None]), *tiles[3:][-1:]]
            said = ", ".join("..." if one is None else ranged(one) for one in shown)
            yield f"  {len(tiles)} tiles, of steps {said}"
        for lane in self.lanes:
            yield from (f"  {line}" for line in lane.lines())
        for what, shares in self.shares.items():
            yield f"  {what} of threads: {', '.join(map(ranged, shares))}"
        if self.nbytes:
            yield f"  memory: {', '.join(f'{kind} {readable(nbytes)}' for kind, nbytes in self.nbytes.items())}"


@dataclass(frozen=True)
class OpsSchedule:
    """Ops that run one by one outside of generated code.

    Args:
        title: the place where they run.
        ops: in order, as `Reshape -> y`.
    """

    title: str
    ops: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield f"{self.title}: {', '.join(self.ops) or 'nothing'}"


Part = ScanSchedule | OpsSchedule


@dataclass(frozen=True)
class PassSchedule:
    """One pass: `forward` or `backward`, and its parts in the order in which they run."""

    name: str
    parts: tuple[Part, ...]


def ranged(share: Share) -> str:
    """`0 to 7`, `3`, `none`."""
    first, end = share
    return "none" if end <= first else str(first) if end == first + 1 else f"{first} to {end - 1}"


OVER = "rows that are over, "
Entry = tuple[str, Call, Runner | None]  # of `compiled_ops`


@dataclass(frozen=True)
class Schedule(svg.Picture):
    """The schedule of a plan.

    Args:
        title: the title of the picture.
        passes: in order.
    """

    title: str
    passes: tuple[PassSchedule, ...]

    @property
    def svg(self) -> str:
        """The picture, as a document of its own."""
        parts, y = [svg.text(EDGE, 22, self.title, "title")], 36.0
        for one in self.passes:
            drawn, y = _pass(one, y)
            parts += drawn
        scans = [part for one in self.passes for part in one.parts if isinstance(part, ScanSchedule)]
        lanes = {lane.when for scan in scans for lane in scan.lanes}
        named = [("tick" if when == STEP else when, said) for when, said in SAID.items() if when in lanes]
        named += [(kind.split()[0], kind) for kind in KINDS if any(kind in scan.nbytes for scan in scans)]
        if named:
            parts.append(svg.legend(named, EDGE, y, WIDTH))
            y += svg.legend_size(named, WIDTH)[1]
        return svg.document(max(WIDTH, svg.text_width(self.title, svg.TITLE) + 2 * EDGE), y, self.title, parts)

    def __str__(self) -> str:
        lines = [self.title]
        for one in self.passes:
            lines += ["", f"{one.name}:"]
            lines += [f"  {line}" for part in one.parts for line in part.lines()]
        return "\n".join(lines)


def plan_schedule(plan: ForwardPlan | TrainingPlan, device: str) -> Schedule:
    """The schedule of a plan for a device."""
    around = "in the interpreter" if device != "cuda" else "as views, copies or through the host"
    programs = describe.programs_of(plan)
    compiled = _by_call(plan, programs.values())
    passes = [PassSchedule(name, tuple(_parts(one.calls, compiled, around, name))) for name, one in programs.items()]
    return Schedule(f"net {plan.program.net.name} on device '{device}': what runs when", tuple(passes))


def _by_call(plan: ForwardPlan | TrainingPlan, programs: Iterable[Program]) -> dict[int, list[Entry]]:
    """Id of a call of a pass -> the call, if it is compiled, and compiled calls that run within it."""
    outer, key = {id(call) for program in programs for call in program.calls}, 0
    found: dict[int, list[Entry]] = {}
    for entry in describe.compiled_ops(plan):  # calls within an op come right after it
        key = id(entry[1]) if id(entry[1]) in outer else key
        found.setdefault(key, []).append(entry)
    return found


def share_out(count: int, threads: int, block: int = 1) -> tuple[Share, ...]:
    """The share of each thread in `count` things that go in blocks, as drivers share them out (`share_of`)."""
    blocks = -(-count // block)
    bounds = [min(count, blocks * rank // threads * block) for rank in range(threads + 1)]
    return tuple(pairwise(bounds))


def _parts(calls: Sequence[Call], compiled: Mapping[int, list[Entry]], around: str, name: str) -> Iterator[Part]:
    """The parts of a pass. Neighbours that are not compiled are one part."""
    for is_compiled, members in groupby(calls, key=lambda call: id(call) in compiled):
        if not is_compiled:
            yield OpsSchedule(around, describe.written(members))
            continue
        for title, call, runner in (entry for one in members for entry in compiled[id(one)]):
            yield _part(title.removesuffix(f", {name}"), call, runner)


def _part(title: str, call: Call, runner: Runner | None) -> Part:
    if isinstance(runner, ForwardScan | BackwardScan | RowPass):
        return _scan(title, call, runner)
    if isinstance(runner, Stepped) and runner.reason:
        ops = describe.written(describe.others(runner.program))
        return OpsSchedule(f"{title}, steps one by one, as {runner.reason}; in the interpreter at each step", ops)
    inner = call.op.attributes.get("body") or call.op.attributes.get("cell")
    return OpsSchedule(f"{title}, in the interpreter", tuple(op.type for op in inner.ops) if inner is not None else ())


def _scan(title: str, call: Call, runner: ForwardScan | BackwardScan | RowPass) -> ScanSchedule:
    compiled, stepless = runner.compiled, isinstance(runner, RowPass)
    once = None if isinstance(runner, RowPass) else runner.hoisted.prologue
    before = () if once is None else once.calls
    plan, steps = compiled.plan, compiled.scan.steps
    stages = [_lane(stage, steps, stepless) for stage in plan.stages]
    over = [_lane(stage, steps, stepless, OVER) for stage in plan.past_end]
    lanes = [*_first(compiled, before), *(over + stages if compiled.scan.reverse else stages + over), *_last(compiled)]
    facts = (*describe.said_of_parts(call), *describe.facts_of(compiled, stepless))
    known = (0, 0, False) if stepless else (steps, compiled.tile, compiled.scan.reverse)
    return ScanSchedule(title, facts, *known, tuple(lanes), _shares(compiled), _nbytes(runner))


def _lane(stage: Stage, steps: int, stepless: bool, whose: str = "") -> Lane:
    head = ("row by row" if stage.loop else "all rows at once") if stepless else stage.head
    when = ONCE if stepless else STEP if stage.loop else TILE
    products = [node for node in stage.nodes if isinstance(node, StepProduct | Contraction)]
    gflop = sum(2e-9 * steps * node.rows * node.inner * node.columns for node in products)
    groups = groupby(stage.nodes, key=lambda node: isinstance(node, StepProduct | Contraction))
    work = [line for large, nodes in groups for line in (map(str, nodes) if large else [_elementwise([*nodes])])]
    return Lane(when, whose + head, tuple(work), gflop)


def _elementwise(nodes: Sequence[Node]) -> str:
    return f"{counted(len(nodes), 'elementwise op')}: {', '.join(dict.fromkeys(node.blob for node in nodes))}"


def _first(compiled: CompiledScan, before: Sequence[Call]) -> Iterator[Lane]:
    """The work that runs once, before the first step."""
    packed = [buffer.what for buffer in compiled.lent.values() if buffer.kind == PACKED]
    work = [*(call.op.label for call in before), *([f"pack {', '.join(packed)}"] if packed else [])]
    if work:
        yield Lane(ONCE, "once, before all", tuple(work))


def _last(compiled: CompiledScan) -> Iterator[Lane]:
    """The work that runs once, after the last step."""
    plan = compiled.plan
    by_row = [owner for owner, in_parts in plan.accumulators.items() if in_parts]
    work = [*([f"add up rows of {', '.join(by_row)}"] if by_row else []), *(call.op.label for call in plan.epilogue)]
    if work:
        yield Lane(ONCE, "once, after all", tuple(work), after=True)


def _shares(compiled: CompiledScan) -> dict[str, tuple[Share, ...]]:
    """The shares of threads; empty for one thread."""
    scan, plan, threads = compiled.scan, compiled.plan, compiled.threads
    if threads < 2 or compiled.options.device is not None:
        return {}
    rows = scan.batch * plan.heads if plan.batch_axes else 1
    together = rows_of_sum(scan.batch) if scan.batch > SUM_PARTS else 1
    what = "places of rows by length" if plan.lengths else "heads of rows" if plan.heads > 1 else "rows"
    shares = {what: share_out(rows, threads, together)}
    if compiled.team.by_columns:
        loops = [node for stage in plan.stages if stage.loop for node in stage.nodes if isinstance(node, StepProduct)]
        shares |= {f"{node.columns} columns": share_out(node.columns, threads, COLUMNS) for node in loops}
    return shares if rows > 1 or compiled.team.by_columns else {}


def _nbytes(runner: Runner) -> dict[str, int]:
    """Bytes by kind of memory."""
    demand = runner.demand()
    if demand is None:
        return {}
    found = {kind: sum(one.nbytes for one in demand.buffers if one.kind == kind) for kind in KINDS}
    return {kind: nbytes for kind, nbytes in found.items() if nbytes}


WIDTH, EDGE, INSET = 1080.0, 12.0, 14.0  # pixels: of pictures, around panels, within them
PLOT, RIGHT = 490.0, 1050.0  # pixels: where the lanes begin and end
ROW, LETTER = 14.0, 0.61 * svg.SMALL  # pixels: from line to line, and of small letters
WORK, LISTED = 5, 4  # the most lines of a lane's work, and of a list of ops
TILES, ENDS = 6, 3  # the most tiles that are shown; of more, the first `ENDS` and the last one
TICK, MARK = 3.0, 14.0  # pixels: the least for a step, and the height of marks
BETWEEN = 5.0  # pixels between tiles
SAID = {ONCE: "once", TILE: "all steps of a tile at once", STEP: "step by step"}
Slot = tuple[float, float, tuple[int, int] | None]  # left, right, and the tile there; None for tiles that are left out


def _pass(one: PassSchedule, y: float) -> tuple[list[str], float]:
    """All panels of a pass under its name, and where the next one begins."""
    parts = [svg.text(EDGE, y + 12, f"{one.name} pass", "bold")]
    y += 22
    for part in one.parts:
        drawn, height = _draw_scan(part) if isinstance(part, ScanSchedule) else _ops(part)
        parts.append(svg.group([svg.rect(EDGE, 0, WIDTH - 2 * EDGE, height, "recurrence", 4), *drawn], y=y))
        y += height + 8
    return parts, y + 8


def _ops(part: OpsSchedule) -> tuple[list[str], float]:
    """A list of ops. All of them are shown when the pointer is on it."""
    lines = _wrapped(part.title, _letters(WIDTH - EDGE - 2 * INSET))
    drawn = [svg.text(EDGE + INSET, 18 + ROW * i, said, "small bold") for i, said in enumerate(lines)]
    top = 18 + ROW * len(lines)
    shown = _shortened(_wrapped(", ".join(part.ops), _letters(WIDTH - EDGE - 2 * INSET)), LISTED)
    drawn += [svg.text(EDGE + INSET, top + ROW * i, said, "small soft") for i, said in enumerate(shown)]
    return [svg.group(drawn, ", ".join(part.ops))], top + ROW * len(shown) - 4


def _draw_scan(part: ScanSchedule) -> tuple[list[str], float]:
    """A panel: facts, lanes, threads, bytes."""
    drawn, y = [svg.text(EDGE + INSET, 18, svg.cut(part.title, _letters(WIDTH, 11) - 8), "bold")], 34.0
    for fact in (said for one in part.facts for said in _wrapped(one, _letters(WIDTH - 2 * EDGE - 2 * INSET))):
        drawn.append(svg.text(EDGE + INSET, y, fact, "small soft"))
        y += ROW
    slots = _slots(part)
    if part.steps:
        drawn += _heads(part, slots, y + 4)
        y += 18
    count = sum(lane.when != ONCE for lane in part.lanes)
    for i, lane in enumerate(part.lanes):
        lines, height = _lane_text(lane, y, PLOT - 16 if part.steps else RIGHT)
        turn = sum(one.when != ONCE for one in part.lanes[:i])
        marks = _lane_marks(lane, slots, y, turn, count) if part.steps else ()
        drawn.append(svg.group([*lines, *marks], "\n".join(lane.lines())))
        y += height
        drawn.append(svg.line(EDGE + INSET, y - 4, RIGHT, y - 4, "grid"))
    for what, shares in part.shares.items():
        drawn += _draw_shares(what, shares, y)
        y += 22
    if part.nbytes:
        drawn += _bytes(part.nbytes, y)
        y += 24
    return drawn, y + 2


def _slots(part: ScanSchedule) -> list[Slot]:
    """Places of tiles from left to right, as wide as they have steps. Of many tiles, the first ones and the last."""
    tiles = part.tiles()
    shown: list[Share | None] = [*tiles]
    if len(tiles) > TILES:
        shown = [*tiles[:ENDS], None, tiles[-1]]
    once = {lane.after for lane in part.lanes if lane.when == ONCE}
    left, right = PLOT + 34.0 * (False in once), RIGHT - 34.0 * (True in once)
    weights = [tiles[0][1] - tiles[0][0] if one is None else max(one[1] - one[0], part.tile / 8) for one in shown]
    room, x, slots = right - left - BETWEEN * len(shown), left, list[Slot]()
    for one, weight in zip(shown, weights, strict=True):
        width = room * weight / (sum(weights) or 1)
        slots.append((x, x + width, one))
        x += width + BETWEEN
    return slots


def _heads(part: ScanSchedule, slots: Sequence[Slot], y: float) -> Iterator[str]:
    """The steps of each tile above it, and the count of tiles that are left out."""
    hidden = len(part.tiles()) - sum(one is not None for _, _, one in slots)
    for left, right, one in slots:
        yield svg.line(left, y + 13, right, y + 13, "way")
        said = f"{hidden} more" if one is None else _steps(one, part.reverse)
        if svg.text_width(said, svg.SMALL) > right - left:
            said = "…" if one is None else said.removeprefix("steps ")
        if svg.text_width(said, svg.SMALL) <= right - left + BETWEEN:
            yield svg.text((left + right) / 2, y + 8, said, "small soft", "middle")


def _steps(tile: Share, reverse: bool) -> str:
    """Steps of a tile in the order in which they run."""
    first, last = tile[0], tile[1] - 1
    return f"step {first}" if first == last else f"steps {last}-{first}" if reverse else f"steps {first}-{last}"


def _lane_text(lane: Lane, y: float, right: float) -> tuple[list[str], float]:
    """The text of a lane, left of its marks, and its height."""
    letters = _letters(right - EDGE - INSET)
    gflop = f"{lane.gflop:.3g} GFLOP" if lane.gflop else ""
    drawn = [svg.text(EDGE + INSET, y + 12, svg.cut(lane.head, letters - len(gflop) - 2), "small bold")]
    if gflop:
        drawn.append(svg.text(right, y + 12, gflop, "small soft", "end"))
    shown = [svg.cut(one, letters - 2) for one in _shortened(lane.work, WORK)]
    drawn += [svg.text(EDGE + INSET + 10, y + 12 + ROW * i, said, "small soft") for i, said in enumerate(shown, 1)]
    return drawn, ROW * (len(shown) + 1) + 10


def _lane_marks(lane: Lane, slots: Sequence[Slot], y: float, turn: int, count: int) -> Iterator[str]:
    """Marks that show when a lane runs: in its turn within each tile, for all steps at once or for each step."""
    if lane.when == ONCE:
        yield svg.rect(RIGHT - 26 if lane.after else PLOT, y + 3, 26, MARK, ONCE, 2)
        return
    for left, right, tile in slots:
        width = (right - left) / max(count, 1)
        x = left + turn * width
        if tile is None:
            yield svg.line(x + 2, y + 3 + MARK / 2, x + width - 2, y + 3 + MARK / 2, "way")
        elif lane.when == TILE:
            yield svg.rect(x, y + 3, max(width - 1, 1), MARK, TILE, 2)
        else:
            yield from _ticks(x, width - 1, tile[1] - tile[0], y + 3)


def _ticks(x: float, width: float, steps: int, y: float) -> Iterator[str]:
    """A mark for each step, or as many marks as have room."""
    shown = max(min(steps, int(width / TICK)), 1)
    for i in range(shown):
        yield svg.rect(x + i * width / shown, y, max(width / shown - 1.2, 0.8), MARK, "tick")


def _draw_shares(what: str, shares: Sequence[Share], y: float) -> Iterator[str]:
    """The shares of threads, side by side."""
    yield svg.text(EDGE + INSET, y + 12, f"{what} of {counted(len(shares), 'thread')}", "small bold")
    total = max((end for _, end in shares), default=0) or 1
    for thread, (first, end) in enumerate(shares):
        x, width = PLOT + (RIGHT - PLOT) * first / total, (RIGHT - PLOT) * (end - first) / total
        said = str(first) if end == first + 1 else f"{first}-{end - 1}"
        parts = [svg.rect(x, y + 2, max(width - 1, 0.5), 15, "input", 2)]
        if svg.text_width(said, svg.SMALL) < width - 8:
            parts.append(svg.text(x + width / 2, y + 13, said, "small", "middle"))
        yield svg.group(parts, f"thread {thread}: {said if end > first else 'none'}") if end > first else ""


def _bytes(nbytes: Mapping[str, int], y: float) -> Iterator[str]:
    """Bytes by kind of memory: a stacked bar, with the total left of it."""
    yield svg.text(EDGE + INSET, y + 12, f"memory {readable(sum(nbytes.values()))}", "small bold")
    x, total = PLOT, sum(nbytes.values())
    for kind, size in nbytes.items():
        width, said = (RIGHT - PLOT) * size / total, f"{kind} {readable(size)}"
        parts = [svg.rect(x, y + 2, max(width - 1, 0.5), 15, kind.split()[0], 2)]
        if svg.text_width(said, svg.SMALL) < width - 8:
            parts.append(svg.text(x + width / 2, y + 13, said, "small", "middle"))
        yield svg.group(parts, said)
        x += width


def _letters(width: float, size: float = svg.SMALL) -> int:
    """The count of letters that fit a width."""
    return int(width / (LETTER * size / svg.SMALL))


def _wrapped(said: str, letters: int) -> list[str]:
    lines = wrap(said, letters, break_long_words=False, break_on_hyphens=False)
    return [svg.cut(one, letters) for one in lines] or [""]


def _shortened(lines: Sequence[str], most: int) -> list[str]:
    """At most so many lines. The last one gives the count of those that are left out."""
    return [*lines] if len(lines) <= most else [*lines[: most - 1], f"… {len(lines) - most + 1} more"]
