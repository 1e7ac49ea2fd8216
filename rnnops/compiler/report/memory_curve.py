"""Memory over the time of a training step, as values and as a picture.

**Memory over the time of a training step**: planned bytes from op to op, what for, and what is there at the peak. The
curve counts what memory tables count (`memory_timeline.py`), at three moments of each op. Ops are equally wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from rnnops.compiler.memory.allocations import MOMENTS
from rnnops.compiler.memory.memory import KINDS, SCRATCH
from rnnops.compiler.report.memory_timeline import (
    REST,
    MemoryRow,
    PassMemory,
    Timeline,
    aligned,
    readable,
    spaced,
    timelines_of,
)
from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan
from rnnops.pictures import svg

LINES, LARGEST = 24, 6  # of a table of one pass at most, and rows of memory that are named at the peak


@dataclass(frozen=True)
class PassCurve:
    """One pass.

    Args:
        name: `forward` or `backward`.
        ops: by their first results, in order.
        kinds: what memory is for -> bytes at each moment, three of each op and one when outputs are copied.
        most: what is there when it is most.
        moment: when that is.
    """

    name: str
    ops: tuple[str, ...]
    kinds: Mapping[str, tuple[int, ...]]
    most: PassMemory
    moment: int

    @property
    def totals(self) -> tuple[int, ...]:
        """Bytes at each moment."""
        return tuple(map(sum, zip(*self.kinds.values(), strict=True)))

    @property
    def peak(self) -> int:
        """The most bytes, those of the memory table."""
        return self.most.total

    def largest(self) -> list[MemoryRow]:
        """The largest pieces of memory at the peak."""
        return sorted(self.most.rows, key=lambda row: -row.nbytes)[:LARGEST]

    def lines(self, scale: int) -> Iterator[str]:
        """A bar for each op, or for some together where there are many, then the largest pieces at the peak."""
        totals, count = self.totals, -(-len(self.ops) // LINES) or 1
        rows = []
        for first in range(0, len(self.ops), count):
            last = min(first + count, len(self.ops))
            most = max(totals[MOMENTS * first : MOMENTS * last + (last == len(self.ops))])
            name = self.ops[first] + (f" .. {self.ops[last - 1]}" if last - first > 1 else "")
            rows.append((name, f"{spaced(most):>15}", svg.bar(most, scale).ljust(24)))
        yield self.most.head
        yield from (line.rstrip() for line in aligned(rows)) if rows else ()
        told = [(row.kind, row.what, row.of, f"{spaced(row.nbytes):>15}") for row in self.largest()]
        if told:
            yield "  largest then:"
            yield from (f"  {line}" for line in aligned(told))


@dataclass(frozen=True)
class MemoryCurve(svg.Picture):
    """Planned bytes over the forward pass, and over the backward pass where there is one.

    Args:
        title: what is shown.
        passes: in order.
        note: what is not counted.
    """

    title: str
    passes: tuple[PassCurve, ...]
    note: str = ""

    @property
    def peak(self) -> int:
        """The most bytes of all passes."""
        return max(one.peak for one in self.passes)

    @property
    def svg(self) -> str:
        """The picture, as a document of its own."""
        return picture_of(self)

    def __str__(self) -> str:
        scale = max(self.peak, 1)
        parts = ["\n".join(one.lines(scale)) for one in self.passes]
        return "\n\n".join([self.title, *parts, *([self.note] if self.note else [])])


def memory_curve(plan: ForwardPlan | TrainingPlan) -> MemoryCurve:
    """The memory of a plan over time."""
    passes, note = timelines_of(plan)
    curves = tuple(PassCurve(one.name, one.ops, _kinds(one), one.most, one.moment) for one in passes)
    what = "a training step" if len(curves) > 1 else "a forward pass"
    peak = max(one.peak for one in curves)
    return MemoryCurve(f"net {plan.program.net.name}: memory of {what}, at most {readable(peak)}", curves, note)


def _kinds(timeline: Timeline) -> dict[str, tuple[int, ...]]:
    """Bytes of each kind at each moment; of a block the unused rest is scratch."""
    end = MOMENTS * len(timeline.ops)
    changes = {kind: [0] * (end + 2) for kind in KINDS}
    for one in timeline.rows:
        parts = [(SCRATCH if one.buffer.what == REST else one.buffer.kind, one.nbytes)]
        parts += [] if one.address is None else [(SCRATCH, -one.nbytes)]
        first, last = max(one.first, 0), min(one.last, end)
        for kind, nbytes in parts if first <= last else ():
            changes[kind][first] += nbytes
            changes[kind][last + 1] -= nbytes
    found = {kind: tuple(accumulate(change))[:-1] for kind, change in changes.items() if any(change)}
    return found or {SCRATCH: (0,) * (end + 1)}


WIDTH, LEFT, TOP, HEIGHT, RIGHT = 860.0, 74.0, 66.0, 230.0, 20.0
LANE, ROW, LETTER = 16.0, 16.0, 0.61 * svg.SMALL  # heights of the lane of ops and of rows of the list; of small letters
NARROW = 30.0  # pixels that an op's name wants at least
BAR = 180.0  # pixels of the longest bar of the list
GAP = 14.0  # between the passes


def picture_of(curve: MemoryCurve) -> str:
    """The picture, as a document of its own."""
    ticks = svg.byte_ticks(curve.peak)
    moments = [len(one.totals) for one in curve.passes]
    room = WIDTH - LEFT - RIGHT - GAP * (len(moments) - 1)
    parts, left = [svg.text(12, 22, curve.title, "title")], LEFT
    for one, count in zip(curve.passes, moments, strict=True):
        frame = svg.Frame(left, TOP, room * count / sum(moments), HEIGHT, (0, count), (0, max(ticks[-1][0], 1)))
        parts += frame.across(ticks if left == LEFT else [(at, "") for at, _ in ticks])
        parts += _pass(one, frame, one.peak == curve.peak)
        left += frame.width + GAP
    kinds = [(kind.split()[0], kind) for kind in KINDS if any(kind in one.kinds for one in curve.passes)]
    y = TOP + HEIGHT + LANE + 16
    parts.append(svg.legend(kinds, LEFT, y, WIDTH - LEFT))
    y += svg.legend_size(kinds, WIDTH - LEFT)[1] + 4
    for one in curve.passes:
        rows = list(_list(one, y))
        parts += rows
        y += ROW * (len(one.largest()) + 1) + 10
    return svg.document(max(WIDTH, svg.text_width(curve.title, svg.TITLE) + 24), y, curve.title, parts)


def _pass(curve: PassCurve, frame: svg.Frame, highest: bool) -> Iterator[str]:
    """Areas, the line above them, the peak, and ops."""
    totals = curve.totals
    low = [0] * len(totals)
    for kind in KINDS:
        if kind in curve.kinds:
            high = [a + b for a, b in zip(low, curve.kinds[kind], strict=True)]
            yield frame.area(low, high, kind.split()[0])
            low = high
    yield frame.outline(totals, "mark")
    yield svg.text(frame.left, frame.top - 22, f"{curve.name} pass", "bold")
    yield from _peak(curve, frame, highest)
    yield from _ops(curve, frame)


def _peak(curve: PassCurve, frame: svg.Frame, highest: bool) -> Iterator[str]:
    """A line at the peak, with its bytes above the frame, where they do not lie on the name of the pass."""
    if not curve.peak:
        return
    x, y = frame.x(max(curve.moment, 0) + 0.5), frame.y(curve.peak)
    yield svg.line(x, frame.top - 4, x, y, "way")
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="dot"/>'
    said = ("peak " if highest else "") + readable(curve.peak)
    half = svg.text_width(said, svg.SMALL) / 2
    at = min(max(x, frame.left + half), frame.left + frame.width - half)
    yield svg.text(at, frame.top - 8, said, "small bold" if highest else "small", "middle")


def _ops(curve: PassCurve, frame: svg.Frame) -> Iterator[str]:
    """A lane of ops; their names where there is room, all of them where somebody points at one."""
    width, top, totals = frame.x(MOMENTS) - frame.left, frame.bottom + 3, curve.totals
    for i, name in enumerate(curve.ops):
        most = max(totals[MOMENTS * i : MOMENTS * (i + 1)])
        parts = [svg.rect(frame.x(MOMENTS * i) + 0.5, top, max(width - 1, 0.5), LANE, "op", 2)]
        if width >= NARROW:
            shown = svg.cut(name.rpartition("/")[2], int((width - 6) / LETTER))
            parts.append(svg.text(frame.x(MOMENTS * i) + width / 2, top + 11.5, shown, "small", "middle"))
        yield svg.group(parts, f"{name}: {spaced(most)} bytes at most")


def _list(curve: PassCurve, y: float) -> Iterator[str]:
    """The largest pieces of memory at the peak, with bars."""
    yield svg.text(LEFT, y + 10, curve.most.head, "bold")
    rows, most = curve.largest(), max((row.nbytes for row in curve.largest()), default=1)
    right = WIDTH - RIGHT - BAR - 20
    letters = int((right - LEFT - 110) / LETTER)
    for number, row in enumerate(rows, 1):
        at = y + ROW * number
        parts = [
            svg.rect(LEFT, at + 2, 10, 10, row.kind.split()[0], 2),
            svg.text(LEFT + 18, at + 10, svg.cut(f"{row.what} of {row.of}" if row.of else row.what, letters), "small"),
            svg.text(right, at + 10, spaced(row.nbytes), "small", "end"),
            svg.rect(right + 14, at + 2, BAR * row.nbytes / max(most, 1), 10, row.kind.split()[0], 2),
        ]
        yield svg.group(parts, f"{row.kind}: {row.what} {list(row.shape)} {row.dtype}")
