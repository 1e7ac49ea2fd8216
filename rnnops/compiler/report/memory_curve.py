"""Memory over the time of a training step: planned bytes from op to op, what for, and what is there at the peak.

The curve counts what memory tables count (`memory_timeline.py`), at three moments of each op. Ops are equally wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from rnnops.compiler.buffers.allocations import MOMENTS
from rnnops.compiler.buffers.memory import KINDS, SCRATCH
from rnnops.compiler.pipeline import ForwardPlan, TrainingPlan
from rnnops.compiler.report.memory_picture import picture_of
from rnnops.compiler.report.memory_table import MemoryRow, PassMemory, aligned, readable, spaced
from rnnops.compiler.report.memory_timeline import REST, Timeline, timelines_of
from rnnops.pictures.picture import Picture
from rnnops.pictures.words import bar

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
            rows.append((name, f"{spaced(most):>15}", bar(most, scale).ljust(24)))
        yield self.most.head
        yield from (line.rstrip() for line in aligned(rows)) if rows else ()
        told = [(row.kind, row.what, row.of, f"{spaced(row.nbytes):>15}") for row in self.largest()]
        if told:
            yield "  largest then:"
            yield from (f"  {line}" for line in aligned(told))


@dataclass(frozen=True)
class MemoryCurve(Picture):
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
    """Bytes of each kind at each moment; of a block what nobody uses is scratch."""
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
