"""Memory over time as a picture: areas by kind, the peak with what is there, a lane of ops below."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rnnops.compiler.buffers.allocations import MOMENTS
from rnnops.compiler.buffers.memory import KINDS
from rnnops.compiler.report.memory_table import readable, spaced
from rnnops.pictures.chart import Frame, byte_ticks
from rnnops.pictures.legend import legend, legend_size
from rnnops.pictures.svg import SMALL, TITLE, cut, document, group, line, rect, text, text_width

if TYPE_CHECKING:
    from rnnops.compiler.report.memory_curve import MemoryCurve, PassCurve

WIDTH, LEFT, TOP, HEIGHT, RIGHT = 860.0, 74.0, 66.0, 230.0, 20.0
LANE, ROW, LETTER = 16.0, 16.0, 0.61 * SMALL  # heights of the lane of ops and of rows of the list; of small letters
NARROW = 30.0  # pixels that an op's name wants at least
BAR = 180.0  # pixels of the longest bar of the list
GAP = 14.0  # between the passes


def picture_of(curve: MemoryCurve) -> str:
    """The picture, as a document of its own."""
    ticks = byte_ticks(curve.peak)
    moments = [len(one.totals) for one in curve.passes]
    room = WIDTH - LEFT - RIGHT - GAP * (len(moments) - 1)
    parts, left = [text(12, 22, curve.title, "title", size=TITLE)], LEFT
    for one, count in zip(curve.passes, moments, strict=True):
        frame = Frame(left, TOP, room * count / sum(moments), HEIGHT, (0, count), (0, max(ticks[-1][0], 1)))
        parts += frame.across(ticks if left == LEFT else [(at, "") for at, _ in ticks])
        parts += _pass(one, frame, one.peak == curve.peak)
        left += frame.width + GAP
    kinds = [(kind.split()[0], kind) for kind in KINDS if any(kind in one.kinds for one in curve.passes)]
    y = TOP + HEIGHT + LANE + 16
    parts.append(legend(kinds, LEFT, y, WIDTH - LEFT))
    y += legend_size(kinds, WIDTH - LEFT)[1] + 4
    for one in curve.passes:
        rows = list(_list(one, y))
        parts += rows
        y += ROW * (len(one.largest()) + 1) + 10
    return document(max(WIDTH, text_width(curve.title, TITLE) + 24), y, curve.title, parts)


def _pass(curve: PassCurve, frame: Frame, highest: bool) -> Iterator[str]:
    """Areas, the line above them, the peak, and ops."""
    totals = curve.totals
    low = [0] * len(totals)
    for kind in KINDS:
        if kind in curve.kinds:
            high = [a + b for a, b in zip(low, curve.kinds[kind], strict=True)]
            yield frame.area(low, high, kind.split()[0])
            low = high
    yield frame.outline(totals, "mark")
    yield text(frame.left, frame.top - 22, f"{curve.name} pass", "bold")
    yield from _peak(curve, frame, highest)
    yield from _ops(curve, frame)


def _peak(curve: PassCurve, frame: Frame, highest: bool) -> Iterator[str]:
    """A line at the peak, with its bytes above the frame, where they do not lie on the name of the pass."""
    if not curve.peak:
        return
    x, y = frame.x(max(curve.moment, 0) + 0.5), frame.y(curve.peak)
    yield line(x, frame.top - 4, x, y, "way")
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="dot"/>'
    said = ("peak " if highest else "") + readable(curve.peak)
    half = text_width(said, SMALL) / 2
    at = min(max(x, frame.left + half), frame.left + frame.width - half)
    yield text(at, frame.top - 8, said, "small bold" if highest else "small", "middle", SMALL)


def _ops(curve: PassCurve, frame: Frame) -> Iterator[str]:
    """A lane of ops; their names where there is room, all of them where somebody points at one."""
    width, top, totals = frame.x(MOMENTS) - frame.left, frame.bottom + 3, curve.totals
    for i, name in enumerate(curve.ops):
        most = max(totals[MOMENTS * i : MOMENTS * (i + 1)])
        parts = [rect(frame.x(MOMENTS * i) + 0.5, top, max(width - 1, 0.5), LANE, "op", 2)]
        if width >= NARROW:
            shown = cut(name.rpartition("/")[2], int((width - 6) / LETTER))
            parts.append(text(frame.x(MOMENTS * i) + width / 2, top + 11.5, shown, "small", "middle", SMALL))
        yield group(parts, f"{name}: {spaced(most)} bytes at most")


def _list(curve: PassCurve, y: float) -> Iterator[str]:
    """The largest pieces of memory at the peak, with bars."""
    yield text(LEFT, y + 10, curve.most.head, "bold")
    rows, most = curve.largest(), max((row.nbytes for row in curve.largest()), default=1)
    right = WIDTH - RIGHT - BAR - 20
    letters = int((right - LEFT - 110) / LETTER)
    for number, row in enumerate(rows, 1):
        at = y + ROW * number
        parts = [
            rect(LEFT, at + 2, 10, 10, row.kind.split()[0], 2),
            text(
                LEFT + 18, at + 10, cut(f"{row.what} of {row.of}" if row.of else row.what, letters), "small", size=SMALL
            ),
            text(right, at + 10, spaced(row.nbytes), "small", "end", SMALL),
            rect(right + 14, at + 2, BAR * row.nbytes / max(most, 1), 10, row.kind.split()[0], 2),
        ]
        yield group(parts, f"{row.kind}: {row.what} {list(row.shape)} {row.dtype}")
