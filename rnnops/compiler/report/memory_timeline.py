"""The memory of a run from op to op, and tables of its uses.

**What memory a run holds from op to op**: the allocations of both passes, and the moment when each pass holds most.
Counted is what results lie in, and all that compiled recurrences allocate. Not counted are feeds, gradients that come
from outside, and what the interpreter needs within an op: temporaries of NumPy, the steps of a recurrence.

**Which memory arrays lie in, to ask of many others whether they may lie there too**. Answers are those of
`np.may_share_memory`, which looks at the lowest and highest address of two arrays; stretches of addresses are kept
sorted and joined, so that a question costs a bisection. Most arrays need no address: what NumPy or the free list has
allocated belongs to one array, and views of another one lie elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from rnnops.compiler.memory.allocations import MOMENTS, Allocation, Demands, allocations_by, last_moments, most_at_once
from rnnops.compiler.memory.memory import GRADIENT, KEPT, KINDS, OUTPUT, SCRATCH, Buffer, is_leased
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
from rnnops.kernels.cpu.barrier import memory_address
from rnnops.net.schema import Call
from rnnops.recurrent.recurrence import is_training_form, runs_in_parts
from rnnops.types import OPAQUE, Array, Shape
from rnnops.util import preformatted, table

HEAD = ("kind", "what", "of", "dtype", "shape", "bytes")


@dataclass(frozen=True)
class MemoryRow:
    """One piece of memory.

    Args:
        what: it holds: a blob, a tensor over all steps, packed weights.
        of: the first result of the op that allocates it.
        shape, dtype: of what it holds.
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
    """The allocations at the peak of one pass; feeds and gradients from outside are not counted.

    Args:
        name: `forward` or `backward`.
        rows: a `MemoryRow` for each piece.
        at: the op that runs then, by its first result.
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
            kind: as of a `MemoryRow`.
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
        backward: None where only a forward pass is planned; outputs of the forward pass count as long as it runs.
        note: what is not counted.
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


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines in columns, the last one to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("  " + "  ".join([*cells, row[-1].rjust(widths[-1])]))
    return lines


def spaced(count: int) -> str:
    """A number in groups of three digits."""
    return f"{count:,}".replace(",", " ")


def readable(count: int) -> str:
    """Bytes with a unit: `512 B`, `13.2 MiB`."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.4g} {units[0]}"


NOTE = "Not counted: what the interpreter needs within an op."
STEPS_NOTE = "Not counted: what is made within the steps of recurrences that are called one by one."
PARTS_NOTE = "Not counted: scratch, and copies of results, of recurrences in parts."
PART = 3 / 4  # a kept blob that is less of its memory is copied, so that it keeps nothing else alive
REST = "scratch that others use"
BEFORE, FOREVER = -1, 1 << 62  # moments before a pass, and after all
Rows = Sequence[Allocation]


@dataclass(frozen=True)
class Timeline:
    """The bytes of one pass from moment to moment; there are `MOMENTS` of each op, and one when all ops have run.

    Args:
        name: `forward` or `backward`.
        ops: by their first results, in order.
        rows: what is there from when to when; what has an address lies in a block, one of whose rows is `REST`.
        most: what is there when it is most.
        moment: when that is.
    """

    name: str
    ops: tuple[str, ...]
    rows: tuple[Allocation, ...]
    most: PassMemory
    moment: int


def memory_of(plan: ForwardPlan | TrainingPlan) -> MemoryTable:
    """The memory of a plan."""
    (forward, *others), note = timelines_of(plan)
    return MemoryTable(forward.most, others[0].most if others else None, note)


def timelines_of(plan: ForwardPlan | TrainingPlan) -> tuple[tuple[Timeline, ...], str]:
    """The timelines of the passes of a plan, and the notes on what is not counted."""
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
    """One pass.

    Args:
        runners: what runs ops, by key.
        recycled: which of their buffers share a block.
        names: workspaces of a recurrence -> its first result.
        notes: what is not counted, each once.
        there: all that is there at some moment; what lies in the block has an address.
        lasting: what is there for good: the block, and what recurrences keep for the next call.
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
        """Begin with what another pass has left: its outputs, and blobs that are held.

        Args:
            given: blobs that go after their last use.
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
        """Memory under the name of its recurrence; what the interpreter makes for a blob goes by the blob's."""
        if call.op.key not in self.demands and one.blobs == (one.buffer.what,):
            kind = kinds.get(one.buffer.what, one.buffer.kind)
            return replace(one, of=one.buffer.what, buffer=replace(one.buffer, kind=kind))
        address = self.recycled.places.get(one.of, {}).get(id(one.buffer))
        return replace(one, of=self._name(call), address=address)

    def _owned(self, call: Call, made: Rows, keep: Collection[str], last: Mapping[str, int]) -> Iterator[Allocation]:
        """The memory of an op's results; a kept blob that is a small part of it is copied when the op has run."""
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
        """The memory of compiled scans: from the block, which exists from its first use on, and their own."""
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
        """Outputs as the caller gets them: copies where they lie in feeds, or alone in a larger piece of memory."""
        lies_in, outputs = _lies_in(self.there), tuple(self.program.net.output_blobs.values())
        whole = {
            id(rows[0].buffer) for blob in outputs if (rows := lies_in.get(blob, ())) and self._is_whole(blob, rows)
        }
        found: list[Allocation] = []
        for number, blob in enumerate(outputs):
            rows = lies_in.get(blob, [])
            if blob in outputs[:number] or not any(id(one.buffer) in whole for one in rows):
                rows = [self._copy(blob, OUTPUT, blob)]
                self.there += rows
            found += rows
        return found

    def copy_gradients(self) -> None:
        """Gradients as the caller gets them: copies where they lie in what was given, or in another gradient."""
        lies_in, seen = _lies_in(self.there), set[int]()
        for blob in self.program.net.output_blobs.values():
            buffers = {id(one.buffer) for one in lies_in.get(blob, ())}
            if not buffers or buffers & seen:
                self.there.append(self._copy(blob, GRADIENT, blob))
            seen |= buffers

    def timeline(self, title: str) -> Timeline:
        """All of the pass."""
        rows = (*self.there, *self.lasting)
        nbytes, moment = most_at_once(one for one in rows if one.address is None)
        ops = tuple(map(self._name, self.program.calls))
        return Timeline(title, ops, rows, self._most(title, rows, nbytes, moment), moment)

    def _most(self, title: str, everything: Rows, nbytes: int, moment: int) -> PassMemory:
        """The memory of the moment when most is there; the unused rest of the block is a row of its own."""
        there = [one for one in everything if nbytes and one.first <= moment <= one.last]
        rest = _block_of(there) - sum(one.nbytes for one in there if one.address is not None)
        found = [(one.of, one.buffer) for one in there if one.buffer.what != REST]
        found += [("", Buffer(REST, SCRATCH, "uint8", (rest,)))] if rest else []
        rows = [MemoryRow(buffer.what, of, buffer.shape, buffer.dtype, buffer.kind) for of, buffer in found]
        at = self._name(self.program.calls[moment // MOMENTS]) if nbytes and 0 <= moment < self.end else ""
        return PassMemory(title, tuple(sorted(rows, key=lambda row: KINDS.index(row.kind))), at)

    def _name(self, call: Call) -> str:
        """The op, by its first result; a recurrence has one name for both passes."""
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


class MemoryInUse:
    """The memory of arrays, of the host or of a device."""

    def __init__(self, arrays: Iterable[Any] = ()) -> None:
        self._owned: dict[int, _Stretches] = {}  # by id of the array that has allocated the memory
        self._others = _Stretches()  # of memory that something else has allocated
        self._elsewhere: list[Any] = []  # arrays that only NumPy's dispatch can compare
        for array in arrays:
            self.add(array)

    def add(self, array: Any) -> None:
        """Memory that is in use from now on; the array has to stay."""
        if not isinstance(array, np.ndarray):
            self._elsewhere.append(array)
            return
        owner = _owner(array)
        there = self._others if owner is None else self._owned.setdefault(id(owner), _Stretches())
        there.arrays.append(array)

    def holds(self, array: Any) -> bool:
        """True if an array may have an element in memory that is in use."""
        if not isinstance(array, np.ndarray):
            return any(np.may_share_memory(array, other) for other in self._elsewhere)
        owner = _owner(array)
        if owner is None:
            return any(there.hold(array) for there in (self._others, *self._owned.values()))
        there = self._owned.get(id(owner))
        return (there is not None and there.hold(array)) or self._others.hold(array)


class _Stretches:
    """Stretches of addresses, of arrays that wait to be looked at."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def hold(self, array: Array) -> bool:
        """True if an array may have an element in one of them."""
        while self.arrays:
            self._join(self.arrays.pop())
        if not self._starts or not array.size:
            return False
        start, end = stretch(array)
        after = bisect_right(self._ends, start)
        return after < len(self._starts) and self._starts[after] < end

    def _join(self, array: Array) -> None:
        if array.size:
            start, end = stretch(array)
            first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
            if first < last:
                start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
            self._starts[first:last], self._ends[first:last] = [start], [end]


def _owner(array: Array) -> Array | None:
    """The array that has allocated the memory of an array; None where something else has, which others may wrap too."""
    base = array.base
    owner = base if type(base) is np.ndarray else array
    return owner if owner.flags.owndata or is_leased(owner) else None


def stretch(array: Array) -> tuple[int, int]:
    """The address of the lowest byte of an array that has elements, and the one behind its highest."""
    start = memory_address(array)
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    moves = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(move, 0) for move in moves), start + sum(max(move, 0) for move in moves) + array.itemsize
