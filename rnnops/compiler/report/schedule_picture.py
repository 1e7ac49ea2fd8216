"""Schedules as pictures: a panel for each recurrence, with lanes over tiles and steps, threads and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from rnnops.compiler.buffers.memory import KINDS
from rnnops.compiler.report.memory_table import readable
from rnnops.compiler.report.schedule_parts import ONCE, STEP, TILE, Lane, OpsSchedule, PassSchedule, ScanSchedule, Share
from rnnops.pictures.legend import legend, legend_size
from rnnops.pictures.svg import SMALL, TITLE, cut, document, group, line, rect, text, text_width

if TYPE_CHECKING:
    from rnnops.compiler.report.plan_schedule import Schedule

WIDTH, EDGE, INSET = 1080.0, 12.0, 14.0  # of pictures, around panels, within them
PLOT, RIGHT = 490.0, 1050.0  # where the lanes begin and end
ROW, LETTER = 14.0, 0.61 * SMALL  # from line to line, and of small letters
WORK, LISTED = 5, 4  # lines of a lane's work, and of a list of ops, that are shown
TILES, ENDS = 6, 3  # as many tiles are shown, or the first and the last of them
TICK, MARK = 3.0, 14.0  # pixels that a step takes at least, and the height of marks
BETWEEN = 5.0  # tiles
SAID = {ONCE: "once", TILE: "all steps of a tile at once", STEP: "step by step"}
Slot = tuple[float, float, tuple[int, int] | None]  # left, right, and the tile that lies there, if one does


def picture_of(schedule: Schedule) -> str:
    """The picture, as a document of its own."""
    parts, y = [text(EDGE, 22, schedule.title, "title", size=TITLE)], 36.0
    for one in schedule.passes:
        drawn, y = _pass(one, y)
        parts += drawn
    scans = [part for one in schedule.passes for part in one.parts if isinstance(part, ScanSchedule)]
    lanes = {lane.when for scan in scans for lane in scan.lanes}
    named = [("tick" if when == STEP else when, said) for when, said in SAID.items() if when in lanes]
    named += [(kind.split()[0], kind) for kind in KINDS if any(kind in scan.nbytes for scan in scans)]
    if named:
        parts.append(legend(named, EDGE, y, WIDTH))
        y += legend_size(named, WIDTH)[1]
    return document(max(WIDTH, text_width(schedule.title, TITLE) + 2 * EDGE), y, schedule.title, parts)


def _pass(one: PassSchedule, y: float) -> tuple[list[str], float]:
    """All panels of a pass under its name, and where the next one begins."""
    parts = [text(EDGE, y + 12, f"{one.name} pass", "bold")]
    y += 22
    for part in one.parts:
        drawn, height = _scan(part) if isinstance(part, ScanSchedule) else _ops(part)
        parts.append(group([rect(EDGE, 0, WIDTH - 2 * EDGE, height, "recurrence", 4), *drawn], y=y))
        y += height + 8
    return parts, y + 8


def _ops(part: OpsSchedule) -> tuple[list[str], float]:
    """A list of ops; all of them where somebody points at it."""
    lines = _wrapped(part.title, _letters(WIDTH - EDGE - 2 * INSET))
    drawn = [text(EDGE + INSET, 18 + ROW * i, said, "small bold", size=SMALL) for i, said in enumerate(lines)]
    top = 18 + ROW * len(lines)
    shown = _shortened(_wrapped(", ".join(part.ops), _letters(WIDTH - EDGE - 2 * INSET)), LISTED)
    drawn += [text(EDGE + INSET, top + ROW * i, said, "small soft", size=SMALL) for i, said in enumerate(shown)]
    return [group(drawn, ", ".join(part.ops))], top + ROW * len(shown) - 4


def _scan(part: ScanSchedule) -> tuple[list[str], float]:
    """A panel: facts, lanes, threads, bytes."""
    drawn, y = [text(EDGE + INSET, 18, cut(part.title, _letters(WIDTH, 11) - 8), "bold")], 34.0
    for fact in (said for one in part.facts for said in _wrapped(one, _letters(WIDTH - 2 * EDGE - 2 * INSET))):
        drawn.append(text(EDGE + INSET, y, fact, "small soft", size=SMALL))
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
        drawn.append(group([*lines, *marks], "\n".join(lane.lines())))
        y += height
        drawn.append(line(EDGE + INSET, y - 4, RIGHT, y - 4, "grid"))
    for what, shares in part.shares.items():
        drawn += _shares(what, shares, y)
        y += 22
    if part.nbytes:
        drawn += _bytes(part.nbytes, y)
        y += 24
    return drawn, y + 2


def _slots(part: ScanSchedule) -> list[Slot]:
    """Places of tiles from left to right, each as wide as it has steps; of many the first and the last."""
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
    """Steps of each tile above it, and what lies between where not all are shown."""
    hidden = len(part.tiles()) - sum(one is not None for _, _, one in slots)
    for left, right, one in slots:
        yield line(left, y + 13, right, y + 13, "way")
        said = f"{hidden} more" if one is None else _steps(one, part.reverse)
        if text_width(said, SMALL) > right - left:
            said = "…" if one is None else said.removeprefix("steps ")
        if text_width(said, SMALL) <= right - left + BETWEEN:
            yield text((left + right) / 2, y + 8, said, "small soft", "middle", SMALL)


def _steps(tile: Share, reverse: bool) -> str:
    """Steps of a tile in the order in which they run."""
    first, last = tile[0], tile[1] - 1
    return f"step {first}" if first == last else f"steps {last}-{first}" if reverse else f"steps {first}-{last}"


def _lane_text(lane: Lane, y: float, right: float) -> tuple[list[str], float]:
    """What runs in a lane, left of its marks, and its height."""
    letters = _letters(right - EDGE - INSET)
    gflop = f"{lane.gflop:.3g} GFLOP" if lane.gflop else ""
    drawn = [text(EDGE + INSET, y + 12, cut(lane.head, letters - len(gflop) - 2), "small bold", size=SMALL)]
    if gflop:
        drawn.append(text(right, y + 12, gflop, "small soft", "end", SMALL))
    shown = [cut(one, letters - 2) for one in _shortened(lane.work, WORK)]
    drawn += [
        text(EDGE + INSET + 10, y + 12 + ROW * i, said, "small soft", size=SMALL) for i, said in enumerate(shown, 1)
    ]
    return drawn, ROW * (len(shown) + 1) + 10


def _lane_marks(lane: Lane, slots: Sequence[Slot], y: float, turn: int, count: int) -> Iterator[str]:
    """When a lane runs: within each tile in its turn, at all steps at once or at each of them."""
    if lane.when == ONCE:
        yield rect(RIGHT - 26 if lane.after else PLOT, y + 3, 26, MARK, ONCE, 2)
        return
    for left, right, tile in slots:
        width = (right - left) / max(count, 1)
        x = left + turn * width
        if tile is None:
            yield line(x + 2, y + 3 + MARK / 2, x + width - 2, y + 3 + MARK / 2, "way")
        elif lane.when == TILE:
            yield rect(x, y + 3, max(width - 1, 1), MARK, TILE, 2)
        else:
            yield from _ticks(x, width - 1, tile[1] - tile[0], y + 3)


def _ticks(x: float, width: float, steps: int, y: float) -> Iterator[str]:
    """A mark for each step, or as many as there is room for."""
    shown = max(min(steps, int(width / TICK)), 1)
    for i in range(shown):
        yield rect(x + i * width / shown, y, max(width / shown - 1.2, 0.8), MARK, "tick")


def _shares(what: str, shares: Sequence[Share], y: float) -> Iterator[str]:
    """What each thread takes, side by side."""
    yield text(EDGE + INSET, y + 12, f"{what} of {len(shares)} threads", "small bold", size=SMALL)
    total = max(end for _, end in shares) or 1
    for thread, (first, end) in enumerate(shares):
        x, width = PLOT + (RIGHT - PLOT) * first / total, (RIGHT - PLOT) * (end - first) / total
        said = str(first) if end == first + 1 else f"{first}-{end - 1}"
        parts = [rect(x, y + 2, max(width - 1, 0.5), 15, "input", 2)]
        if text_width(said, SMALL) < width - 8:
            parts.append(text(x + width / 2, y + 13, said, "small", "middle", SMALL))
        yield group(parts, f"thread {thread}: {said if end > first else 'none'}") if end > first else ""


def _bytes(nbytes: Mapping[str, int], y: float) -> Iterator[str]:
    """Bytes by kind of memory: a stacked bar, and what it says in words left of it."""
    yield text(EDGE + INSET, y + 12, f"memory {readable(sum(nbytes.values()))}", "small bold", size=SMALL)
    x, total = PLOT, sum(nbytes.values())
    for kind, count in nbytes.items():
        width, said = (RIGHT - PLOT) * count / total, f"{kind} {readable(count)}"
        parts = [rect(x, y + 2, max(width - 1, 0.5), 15, kind.split()[0], 2)]
        if text_width(said, SMALL) < width - 8:
            parts.append(text(x + width / 2, y + 13, said, "small", "middle", SMALL))
        yield group(parts, said)
        x += width


def _letters(width: float, size: float = SMALL) -> int:
    """How many letters a width has room for."""
    return int(width / (LETTER * size / SMALL))


def _wrapped(said: str, letters: int) -> list[str]:
    return [cut(one, letters) for one in wrap(said, letters, break_long_words=False, break_on_hyphens=False)] or [""]


def _shortened(lines: Sequence[str], most: int) -> list[str]:
    """At most so many lines, the last of which tells of those left out."""
    return [*lines] if len(lines) <= most else [*lines[: most - 1], f"… {len(lines) - most + 1} more"]
