"""The memory of a run from op to op: tables of its uses, and its curve over time.

**Memory from op to op**: the allocations of both passes, and the moment when each pass holds most. Counted are the
memory of results, and all allocations of compiled recurrences. Not counted are feeds, gradients that come from outside,
and memory of the interpreter within an op: temporaries of NumPy, the steps of a recurrence.

**Memory over the time of a training step**: planned bytes from op to op by kind, and the largest pieces at the peak, as
values and as a picture. The curve counts the same as memory tables, at three moments of each op. Ops are equally wide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod

import numpy as np

from rnnops import svg
from rnnops.compiler.memory.allocations import MOMENTS, Allocation, Demands, allocations_by, last_moments, most_at_once
from rnnops.compiler.memory.memory import GRADIENT, KEPT, KINDS, OUTPUT, SCRATCH, Buffer
from rnnops.compiler.run.compile_programs import (
    Recycled,
    Runner,
    Runners,
    Stepped,
    compiled_in,
    demands_of,
    runner_shown,
)
from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan
from rnnops.interpreter import Program
from rnnops.net.schema import Call
from rnnops.recurrent.recurrence import is_training_form, runs_in_parts
from rnnops.types import OPAQUE, Shape
from rnnops.util import aligned, cached_property, preformatted, readable, spaced, table

HEAD = ("kind", "what", "of", "dtype", "shape", "bytes")


@dataclass(frozen=True)
class MemoryRow:
    """One piece of memory.

    Args:
        what: its contents: a blob, a tensor over all steps, packed weights.
        of: the first result of the op that allocates it.
        shape, dtype: of its contents.
        kind: `kept` (for the backward pass), `output`, `gradient`, `sums`, `packed weights` or `scratch`.
    """

    what: str
    of: str
    shape: Shape
    dtype: str
    kind: str

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def cells(self) -> tuple[str, ...]:
        """The row as texts."""
        return self.kind, self.what, self.of, self.dtype, str(list(self.shape)), spaced(self.nbytes)


@dataclass(frozen=True)
class PassMemory:
    """The allocations at the peak of one pass. Feeds and gradients from outside are not counted.

    Args:
        name: `forward` or `backward`.
        rows: a `MemoryRow` for each piece.
        at: the op that runs at the peak, by its first result.
    """

    name: str
    rows: tuple[MemoryRow, ...]
    at: str = ""

    @property
    def total(self) -> int:
        """Bytes of all rows."""
        return sum(row.nbytes for row in self.rows)

    def bytes_of(self, kind: str) -> int:
        """Bytes of all rows of a kind.

        Args:
            kind: as in `MemoryRow`.
        """
        return sum(row.nbytes for row in self.rows if row.kind == kind)

    def cells(self) -> list[tuple[str, ...]]:
        """The rows of the table, in the column order of `HEAD`."""
        return [*(row.cells() for row in self.rows), ("total", "", "", "", "", spaced(self.total))]

    @property
    def head(self) -> str:
        """Name, bytes and op, as a line."""
        head = f"{self.name} pass: {readable(self.total)}"
        return f"{head}, most at '{self.at}'" if self.at else head

    def __str__(self) -> str:
        return "\n".join([self.head, *aligned([HEAD, *self.cells()])])

    def _repr_html_(self) -> str:
        return table(HEAD, self.cells(), self.head)


@dataclass(frozen=True)
class MemoryTable:
    """Memory of a run with feeds of certain shapes.

    Args:
        forward: the forward pass.
        backward: the backward pass; None if only a forward pass is planned. Outputs of the forward pass are counted in
            it.
        note: memory that is not counted.
    """

    forward: PassMemory
    backward: PassMemory | None = None
    note: str = ""

    @property
    def passes(self) -> tuple[PassMemory, ...]:
        """The passes that there are."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)

    @property
    def total(self) -> int:
        """Bytes of the pass that needs most."""
        return max(one.total for one in self.passes)

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.passes), *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        return "".join([*(one._repr_html_() for one in self.passes), preformatted(self.note) if self.note else ""])


NOTE = "Not counted: what the interpreter needs within an op."
STEPS_NOTE = "Not counted: what is made within the steps of recurrences that are called one by one."
PARTS_NOTE = "Not counted: scratch, and copies of results, of recurrences in parts."
PART = 3 / 4  # a kept blob that is a smaller part of its memory is copied, so that it keeps nothing else alive
REST = "scratch that others use"
LINES, LARGEST = 24, 6  # the most lines for the ops of a pass, and for the pieces of memory at its peak
BEFORE, FOREVER = -1, 1 << 62  # a moment before all passes, and one after them
Rows = Sequence[Allocation]


@dataclass(frozen=True)
class Timeline:
    """The bytes of one pass from moment to moment. Each op has `MOMENTS` moments; one more is after all ops.

    Args:
        name: `forward` or `backward`.
        ops: by their first results, in order.
        rows: pieces of memory with their lives. Those with an address lie in the block. Rows `REST` are the block.
        most: the pieces at the peak.
        moment: the moment of the peak.
    """

    name: str
    ops: tuple[str, ...]
    rows: tuple[Allocation, ...]
    most: PassMemory
    moment: int

    @cached_property
    def kinds(self) -> dict[str, tuple[int, ...]]:
        """Kind -> the bytes at each moment. The unused rest of a block is scratch."""
        end = MOMENTS * len(self.ops)
        changes = {kind: [0] * (end + 2) for kind in KINDS}
        for one in self.rows:
            parts = [(SCRATCH if one.buffer.what == REST else one.buffer.kind, one.nbytes)]
            parts += [] if one.address is None else [(SCRATCH, -one.nbytes)]
            first, last = max(one.first, 0), min(one.last, end)
            for kind, nbytes in parts if first <= last else ():
                changes[kind][first] += nbytes
                changes[kind][last + 1] -= nbytes
        found = {kind: tuple(accumulate(change))[:-1] for kind, change in changes.items() if any(change)}
        return found or {SCRATCH: (0,) * (end + 1)}

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
        """A bar for each op (of many ops, for some together), then the largest pieces at the peak."""
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


def memory_of(plan: ForwardPlan | TrainingPlan) -> MemoryTable:
    """The memory of a plan."""
    (forward, *others), note = timelines_of(plan)
    return MemoryTable(forward.most, others[0].most if others else None, note)


def timelines_of(plan: ForwardPlan | TrainingPlan) -> tuple[tuple[Timeline, ...], str]:
    """The timelines of a plan's passes, and notes about memory that is not counted."""
    compiled = plan.compiled
    keep = plan.residuals.kept if isinstance(plan, TrainingPlan) else ()
    forward = _Pass(plan.program, compiled.forward, compiled.recycled[0])
    forward.walk(OUTPUT, keep)
    outputs = forward.copy_outputs()
    if isinstance(plan, ForwardPlan):
        return (forward.timeline("forward"),), " ".join(forward.notes)
    backward = _Pass(plan.backward, compiled.backward, compiled.recycled[1], forward.names, forward.notes)
    backward.begin(forward, (*keep, *plan.residuals.free), outputs, keep)
    backward.walk(GRADIENT)
    backward.copy_gradients()
    return (forward.timeline("forward"), backward.timeline("backward")), " ".join(backward.notes)


@dataclass
class _Pass:
    """Collects the memory of one pass.

    Args:
        runners: key of an op -> its runner.
        recycled: the buffers that share a block.
        names: workspace of a recurrence -> its first result.
        notes: notes about memory that is not counted, each once.
        there: pieces of memory of the pass. Those in the block have an address.
        lasting: pieces that stay: the block, and memory that recurrences keep for the next call.
    """

    program: Program
    runners: Runners
    recycled: Recycled
    names: dict[str, str] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    there: list[Allocation] = field(default_factory=list)
    lasting: list[Allocation] = field(default_factory=list)
    demands: Demands = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The moment after the last op."""
        return MOMENTS * len(self.program.calls)

    def begin(self, before: _Pass, held: Collection[str], outputs: Rows, given: Collection[str]) -> None:
        """Begin with the memory that another pass has left: its outputs, and blobs that are held.

        Args:
            given: blobs that are freed after their last use.
        """
        last = last_moments(self.program, set(self.program.net.input_names).difference(given))
        lies_in, lent = _lies_in(before.there), {id(one.buffer): one for one in outputs}
        ends = {name: last.get(name, self.end) for name in held}
        for key, one in {**{id(one.buffer): one for name in held for one in lies_in.get(name, ())}, **lent}.items():
            end = self.end if key in lent else max(ends[name] for name in one.blobs if name in ends)
            self.there.append(replace(one, first=BEFORE, last=end))
        self.lasting = [replace(one, first=BEFORE) for one in before.lasting]

    def walk(self, kind: str, keep: Collection[str] = ()) -> None:
        """Run all ops.

        Args:
            kind: of outputs.
            keep: blobs that stay, besides outputs.
        """
        kinds = {**dict.fromkeys(self.program.net.output_blobs.values(), kind), **dict.fromkeys(keep, KEPT)}
        last, self.demands = last_moments(self.program, keep), demands_of(self.runners)
        for number, call in enumerate(self.program.calls):
            if is_training_form(call.op):
                self.names[call.op.outputs[-1]] = call.op.key
            made = [self._named(call, one, kinds) for one in allocations_by(number, call, self.demands, last)]
            self.there += self._owned(call, made, [name for name in call.op.outputs if kinds.get(name) == KEPT], last)
            self._scans(number, call, runner_shown(self.runners.get(call.op.key)))

    def _named(self, call: Call, one: Allocation, kinds: Mapping[str, str]) -> Allocation:
        """Memory under the name of its recurrence. Memory that the interpreter makes for a blob has the blob's name."""
        if call.op.key not in self.demands and one.blobs == (one.buffer.what,):
            kind = kinds.get(one.buffer.what, one.buffer.kind)
            return replace(one, of=one.buffer.what, buffer=replace(one.buffer, kind=kind))
        address = self.recycled.places.get(one.of, {}).get(id(one.buffer))
        return replace(one, of=self._name(call), address=address)

    def _owned(self, call: Call, made: Rows, keep: Collection[str], last: Mapping[str, int]) -> Iterator[Allocation]:
        """The memory of an op's results. A kept blob that is a small part of its memory is copied after the op."""
        lies_in = _lies_in(made)
        copied = [name for name in keep if not self._is_whole(name, lies_in.get(name, ()))]
        for one in made:
            blobs = tuple(name for name in one.blobs if name not in copied)
            gone = MOMENTS * one.op + 1
            end = max((last.get(name, gone) for name in blobs), default=gone)
            yield one if blobs == one.blobs else replace(one, blobs=blobs, last=end)
        for name in copied:
            yield self._copy(name, KEPT, call.op.key, (name,), MOMENTS * made[0].op + 2)

    def _is_whole(self, name: str, rows: Rows) -> bool:
        """True if a blob is most of the memory that it lies in."""
        kind = self.program.types.get(name)
        return kind is None or kind.dtype == OPAQUE or len(rows) != 1 or kind.nbytes >= PART * rows[0].nbytes

    def _copy(self, blob: str, kind: str, what: str, blobs: tuple[str, ...] = (), first: int = 0) -> Allocation:
        buffer = Buffer(what, kind, self.program.types[blob].dtype, self.program.types[blob].shape)
        return Allocation(len(self.program.calls), what, buffer, blobs, first or self.end, self.end)

    def _scans(self, number: int, call: Call, runner: Runner | None) -> None:
        """Add the memory of compiled scans: their own, and parts of the block, which exists from its first use on."""
        demand, stepped, parted = self.demands.get(call.op.key), isinstance(runner, Stepped), runs_in_parts(call.op)
        first, of = MOMENTS * number + (0 if demand else 2), self._name(call)
        last = first + MOMENTS - (first + MOMENTS < self.end)  # that of the last op is there until outputs are copied
        for scan in compiled_in([runner]) if runner and (demand or stepped) else ():
            block = self.recycled.nbytes if self.recycled.placed else scan.compiled.block
            more = Buffer(REST, SCRATCH, "uint8", (max(block - _block_of(self.lasting), 0),))
            self.lasting.append(Allocation(number, "", more, (), first, FOREVER))
            self.lasting += [Allocation(number, of, one, (), first, FOREVER) for one in scan.demand().lasting]
        for buffer in demand.lent if demand else ():
            self.there.append(Allocation(number, of, buffer, (), first, last, address=0))
        notes = {STEPS_NOTE: stepped, PARTS_NOTE: parted, NOTE: not (stepped or parted)}
        self.notes.update((note, None) for note, there in notes.items() if there and not demand)

    def copy_outputs(self) -> list[Allocation]:
        """Outputs as the caller gets them. An output is copied if it lies in a feed or in another output, or if no
        output is most of its memory."""
        lies_in, outputs = _lies_in(self.there), tuple(self.program.net.output_blobs.values())
        whole = {
            id(rows[0].buffer) for blob in outputs if (rows := lies_in.get(blob, ())) and self._is_whole(blob, rows)
        }
        found, taken = list[Allocation](), set[int]()
        for number, blob in enumerate(outputs):
            rows = lies_in.get(blob, [])
            own = {id(one.buffer) for one in rows} if self._is_whole(blob, rows) else set()
            if blob in outputs[:number] or own & taken or not any(id(one.buffer) in whole for one in rows):
                rows = [self._copy(blob, OUTPUT, blob)]
                self.there += rows
            found += rows
            taken |= own
        return found

    def copy_gradients(self) -> None:
        """Gradients as the caller gets them. One is copied if it lies in a given array or in another gradient."""
        lies_in, seen = _lies_in(self.there), set[int]()
        for blob in self.program.net.output_blobs.values():
            buffers = {id(one.buffer) for one in lies_in.get(blob, ())}
            if not buffers or buffers & seen:
                self.there.append(self._copy(blob, GRADIENT, blob))
            seen |= buffers

    def timeline(self, title: str) -> Timeline:
        """The timeline of the pass."""
        rows = (*self.there, *self.lasting)
        nbytes, moment = most_at_once(one for one in rows if one.address is None)
        ops = tuple(map(self._name, self.program.calls))
        return Timeline(title, ops, rows, self._most(title, rows, nbytes, moment), moment)

    def _most(self, title: str, everything: Rows, nbytes: int, moment: int) -> PassMemory:
        """The memory at the peak. The unused rest of the block is a row of its own."""
        there = [one for one in everything if nbytes and one.first <= moment <= one.last]
        rest = _block_of(there) - sum(one.nbytes for one in there if one.address is not None)
        found = [(one.of, one.buffer) for one in there if one.buffer.what != REST]
        found += [("", Buffer(REST, SCRATCH, "uint8", (rest,)))] if rest else []
        rows = [MemoryRow(buffer.what, of, buffer.shape, buffer.dtype, buffer.kind) for of, buffer in found]
        at = self._name(self.program.calls[moment // MOMENTS]) if nbytes and 0 <= moment < self.end else ""
        return PassMemory(title, tuple(sorted(rows, key=lambda row: KINDS.index(row.kind))), at)

    def _name(self, call: Call) -> str:
        """The name of an op: its first result. A recurrence has one name for both passes."""
        return next((self.names[name] for name in call.op.inputs if name in self.names), call.op.key)


def _block_of(rows: Rows) -> int:
    return sum(one.nbytes for one in rows if one.buffer.what == REST)


def _lies_in(rows: Rows) -> dict[str, list[Allocation]]:
    """Blob -> the memory that it lies in."""
    found: dict[str, list[Allocation]] = {}
    for one in rows:
        for name in one.blobs:
            found.setdefault(name, []).append(one)
    return found


@dataclass(frozen=True)
class MemoryCurve(svg.Picture):
    """Planned bytes over the forward pass, and over the backward pass if there is one.

    Args:
        title: the title of the picture.
        passes: in order.
        note: memory that is not counted.
    """

    title: str
    passes: tuple[Timeline, ...]
    note: str = ""

    @property
    def peak(self) -> int:
        """The most bytes of all passes."""
        return max((one.peak for one in self.passes), default=0)

    @property
    def svg(self) -> str:
        """The picture, as a document of its own."""
        ticks = svg.byte_ticks(self.peak)
        moments = [len(one.totals) for one in self.passes]
        room = WIDTH - LEFT - RIGHT - GAP * (len(moments) - 1)
        parts, left = [svg.text(12, 22, self.title, "title")], LEFT
        for one, count in zip(self.passes, moments, strict=True):
            frame = svg.Frame(left, TOP, room * count / sum(moments), HEIGHT, (0, count), (0, max(ticks[-1][0], 1)))
            parts += frame.across(ticks if left == LEFT else [(at, "") for at, _ in ticks])
            parts += _pass(one, frame, one.peak == self.peak)
            left += frame.width + GAP
        kinds = [(kind.split()[0], kind) for kind in KINDS if any(kind in one.kinds for one in self.passes)]
        y = TOP + HEIGHT + LANE + 16
        parts.append(svg.legend(kinds, LEFT, y, WIDTH - LEFT))
        y += svg.legend_size(kinds, WIDTH - LEFT)[1] + 4
        for one in self.passes:
            rows = list(_list(one, y))
            parts += rows
            y += ROW * (len(one.largest()) + 1) + 10
        return svg.document(max(WIDTH, svg.text_width(self.title, svg.TITLE) + 24), y, self.title, parts)

    def __str__(self) -> str:
        scale = max(self.peak, 1)
        parts = ["\n".join(one.lines(scale)) for one in self.passes]
        return "\n\n".join([self.title, *parts, *([self.note] if self.note else [])])


def memory_curve(plan: ForwardPlan | TrainingPlan) -> MemoryCurve:
    """The memory of a plan over time."""
    passes, note = timelines_of(plan)
    what = "a training step" if len(passes) > 1 else "a forward pass"
    peak = max(one.peak for one in passes)
    return MemoryCurve(f"net {plan.program.net.name}: memory of {what}, at most {readable(peak)}", passes, note)


WIDTH, LEFT, TOP, HEIGHT, RIGHT = 860.0, 74.0, 66.0, 230.0, 20.0
LANE, ROW, LETTER = 16.0, 16.0, 0.61 * svg.SMALL  # heights of the lane of ops and of rows of the list; of small letters
NARROW = 30.0  # the least pixels for an op's name
BAR = 180.0  # pixels of the longest bar of the list
GAP = 14.0  # between the passes


def _pass(curve: Timeline, frame: svg.Frame, highest: bool) -> Iterator[str]:
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


def _peak(curve: Timeline, frame: svg.Frame, highest: bool) -> Iterator[str]:
    """A line at the peak, with its bytes above the frame, below the name of the pass."""
    if not curve.peak:
        return
    x, y = frame.x(max(curve.moment, 0) + 0.5), frame.y(curve.peak)
    yield svg.line(x, frame.top - 4, x, y, "way")
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="dot"/>'
    said = ("peak " if highest else "") + readable(curve.peak)
    half = svg.text_width(said, svg.SMALL) / 2
    at = min(max(x, frame.left + half), frame.left + frame.width - half)
    yield svg.text(at, frame.top - 8, said, "small bold" if highest else "small", "middle")


def _ops(curve: Timeline, frame: svg.Frame) -> Iterator[str]:
    """A lane of ops. An op shows its name if there is room, and its name and bytes when the pointer is on it."""
    width, top, totals = frame.x(MOMENTS) - frame.left, frame.bottom + 3, curve.totals
    for i, name in enumerate(curve.ops):
        most = max(totals[MOMENTS * i : MOMENTS * (i + 1)])
        parts = [svg.rect(frame.x(MOMENTS * i) + 0.5, top, max(width - 1, 0.5), LANE, "op", 2)]
        if width >= NARROW:
            shown = svg.cut(name.rpartition("/")[2], int((width - 6) / LETTER))
            parts.append(svg.text(frame.x(MOMENTS * i) + width / 2, top + 11.5, shown, "small", "middle"))
        yield svg.group(parts, f"{name}: {spaced(most)} bytes at most")


def _list(curve: Timeline, y: float) -> Iterator[str]:
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
