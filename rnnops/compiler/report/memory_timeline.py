"""What memory a run holds from op to op: the plan walked through as a run would, and the moment when it holds most.

Counted is what results lie in, and all that compiled recurrences allocate. Not counted are feeds, gradients that come
from outside, and what the interpreter needs within an op: temporaries of NumPy, the steps of a recurrence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rnnops.compiler.buffers.demand import Demand
from rnnops.compiler.buffers.interpreted_memory import buffers_of, results_of
from rnnops.compiler.buffers.memory import GRADIENT, KEPT, KINDS, OUTPUT, SCRATCH, Buffer
from rnnops.compiler.buffers.part_bytes import PARTS, held_in_parts
from rnnops.compiler.execute.compile_programs import Kernel
from rnnops.compiler.execute.recycle import Recycled
from rnnops.compiler.execute.stepped_kernels import Stepped
from rnnops.compiler.pipeline import ForwardPlan, TrainingPlan
from rnnops.compiler.report.alive_rows import AliveRows, Rows
from rnnops.compiler.report.memory_table import MemoryRow, MemoryTable, PassMemory
from rnnops.interpreter import Program
from rnnops.schema import Call
from rnnops.types import OPAQUE, Type

NOTE = "Not counted: what the interpreter needs within an op."
STEPS_NOTE = "Not counted: what is made within the steps of recurrences that are called one by one."
PARTS_NOTE = "Not counted: scratch, and copies of results, of recurrences in parts."
PART = 3 / 4  # a kept blob that is less of its memory is copied, so that it keeps nothing else alive


@dataclass(frozen=True)
class _Moment:
    """A moment of a pass.

    Args:
        nbytes: all that is held.
        event, lasting: of the logs of what is alive, and of what lasts.
        more: rows of the op that runs, beside those of blobs.
        rest: bytes of the block that nobody uses.
        at: the op that runs.
    """

    nbytes: int = 0
    event: int = 0
    lasting: int = 0
    more: Rows = ()
    rest: int = 0
    at: str = ""


def memory_of(plan: ForwardPlan | TrainingPlan) -> MemoryTable:
    """The memory of a plan."""
    compiled = plan.compiled
    ahead, behind = ({**stepped, **compiled.parted.stepped} for stepped in compiled.stepped)
    timeline = _Timeline(compiled.forward, ahead, compiled.recycled[0])
    keep = plan.residuals.kept if isinstance(plan, TrainingPlan) else ()
    timeline.walk(plan.program, keep, {**_kinds(plan.program, OUTPUT), **dict.fromkeys(keep, KEPT)})
    outputs = timeline.copy_outputs(plan.program)
    forward = PassMemory("forward", timeline.rows_of_most(), timeline.most.at)
    if isinstance(plan, ForwardPlan):
        return MemoryTable(forward, note=" ".join(timeline.notes))
    names = (*plan.residuals.kept, *plan.residuals.free)
    held = {name: timeline.alive.rows(name) for name in names}
    alive = {**held, **{f"output {name}": rows for name, rows in outputs.items()}}
    timeline.begin(compiled.backward, behind, compiled.recycled[1], alive)
    timeline.walk(plan.backward, (), _kinds(plan.backward, GRADIENT), plan.residuals.kept)
    timeline.copy_gradients(plan.backward)
    return MemoryTable(
        forward, PassMemory("backward", timeline.rows_of_most(), timeline.most.at), " ".join(timeline.notes)
    )


def _kinds(program: Program, kind: str) -> dict[str, str]:
    return dict.fromkeys(program.net.output_blobs.values(), kind)


@dataclass
class _Timeline:
    """The walk.

    Args:
        kernels, stepped: what runs ops of this pass, and recurrences step by step, by key.
        recycled: which of their buffers share a block.
        alive: blobs and the memory they lie in, none for what is borrowed; several blobs may lie in one row.
        borrowed: bytes of the block that ops or passes borrow in turn, once it is there.
        scratch: what the op that runs has cut from it.
        names: workspaces of a recurrence -> its first result.
        inside: all rows that lie in it, by id.
        lasting: what recurrences keep for the next call.
        most: the moment with the most bytes.
        notes: what is not counted, each once.
    """

    kernels: Mapping[str, Kernel]
    stepped: Mapping[str, Stepped]
    recycled: Recycled
    borrowed: int = 0
    scratch: Rows = ()
    inside: dict[int, MemoryRow] = field(default_factory=dict)
    most: _Moment = _Moment()
    notes: dict[str, None] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.alive, self.lasting = AliveRows(self.inside, {}), AliveRows(self.inside, {})

    def begin(
        self,
        kernels: Mapping[str, Kernel],
        stepped: Mapping[str, Stepped],
        recycled: Recycled,
        alive: Mapping[str, Rows],
    ) -> None:
        """Begin another pass with these blobs alive."""
        self.kernels, self.stepped, self.recycled = kernels, stepped, recycled
        self.alive, self.most = AliveRows(self.inside, alive), _Moment()
        self._note(None)

    def walk(
        self, program: Program, keep: Collection[str], kinds: Mapping[str, str], given: Collection[str] = ()
    ) -> None:
        """Run all ops; blobs in `keep` stay, beside outputs and inputs that are not in `given`."""
        stay = {*keep, *program.net.output_blobs.values(), *set(program.net.input_names).difference(given)}
        for call, _, dead in program.steps:
            self.scratch = ()
            results = self._run(call, kinds)
            for name, rows in zip(call.op.outputs, results, strict=True):
                if name:
                    self.alive.begin(name, self._owned(call, program.types.get(name), rows) if name in keep else rows)
            self._note(call)
            for name in set(dead) - stay:
                self.alive.end(name)

    def copy_outputs(self, program: Program) -> dict[str, Rows]:
        """Outputs as the caller gets them: copies where they lie in feeds, or alone in a larger piece of memory."""
        blobs = program.net.output_blobs
        whole = {id(row) for blob in blobs.values() for row in self._whole(blob, program)}
        outputs: dict[str, Rows] = {}
        for name, blob in blobs.items():
            rows = self.alive.rows(blob)
            alone = not any(id(row) in whole for row in rows)
            copied = alone or blob in [blobs[other] for other in outputs]
            outputs[name] = self._new(blob, program.types[blob], OUTPUT) if copied else rows
        self._note(None, [row for rows in outputs.values() for row in rows])
        return outputs

    def copy_gradients(self, program: Program) -> None:
        """Gradients as the caller gets them: copies where they lie in what was given, or in another gradient."""
        copies: list[MemoryRow] = []
        seen: set[int] = set()
        for blob in program.net.output_blobs.values():
            rows = self.alive.rows(blob)
            if not rows or any(id(row) in seen for row in rows):
                copies += self._new(blob, program.types[blob], GRADIENT)
            seen.update(map(id, rows))
        self._note(None, copies)

    # -- ops -----------------------------------------------------------------------------------------------------

    def _run(self, call: Call, kinds: Mapping[str, str]) -> list[Rows]:
        """The rows that each result of an op lies in."""
        kernel = self.kernels.get(call.op.key)
        if kernel is None:
            return self._interpret(call, kinds)
        demand = kernel.demand()
        moments = demand.moments()
        made = {id(buffer): self._place(call, buffer) for buffers in moments for buffer in buffers}
        self._lend(call, demand, kernel)
        self._last(call, demand)
        for buffers in moments:
            self._note(call, [made[id(buffer)] for buffer in buffers])
        return [tuple(made[id(buffer)] for buffer in buffers) for buffers in demand.results]

    def _place(self, call: Call, buffer: Buffer) -> MemoryRow:
        """The row of a buffer of an op, which may lie in the block that a pass borrows."""
        row = self._row(call, buffer)
        if id(buffer) in self.recycled.places.get(call.op.key, {}):
            self.inside[id(row)] = row
        return row

    def _lend(self, call: Call, demand: Demand, kernel: Kernel) -> None:
        """Cut what an op wants from the block."""
        self._borrow(kernel)
        self.scratch = tuple(self._row(call, buffer) for buffer in demand.lent)
        self.inside.update((id(row), row) for row in self.scratch)

    def _borrow(self, kernel: Kernel) -> None:
        """The block is there from its first use on."""
        self.borrowed = max(self.borrowed, self.recycled.nbytes if self.recycled.places else kernel.compiled.block)

    def _step(self, call: Call, stepped: Stepped) -> None:
        """What scans within steps borrow, and keep for the next call."""
        for kernel in stepped.scans():
            self._borrow(kernel)
            self._last(call, kernel.demand())

    def _last(self, call: Call, demand: Demand) -> None:
        """What an op keeps for the next call."""
        for buffer in demand.lasting:
            self.lasting.begin(str(self.lasting.events), (self._row(call, buffer),))

    def _interpret(self, call: Call, kinds: Mapping[str, str]) -> list[Rows]:
        stepped = self.stepped.get(call.op.key)
        if stepped is not None:
            self._step(call, stepped)
            self.notes[STEPS_NOTE] = None
        if call.op.attributes.get("schedule"):
            self.notes[PARTS_NOTE] = None
            return self._in_parts(call, kinds)
        if stepped is None:
            self.notes[NOTE] = None
        if call.op.type == "RecurrentNetwork":
            made = {buffer: self._row(call, buffer) for buffer in buffers_of(call)}
            return [tuple(made[buffer] for buffer in buffers) for buffers in results_of(call, made)]
        typed = zip(call.op.outputs, call.output_types, strict=True)
        return [self._new(name, kind, kinds.get(name, SCRATCH)) if name else () for name, kind in typed]

    def _in_parts(self, call: Call, kinds: Mapping[str, str]) -> list[Rows]:
        """The results of a recurrence in parts, and all that it ever holds; scratch of its parts is not counted."""
        typed = zip(call.op.outputs, call.output_types, strict=True)
        rows = [self._new(name, one, kinds.get(name, OUTPUT)) if name else () for name, one in typed]
        if call.op.type == "RecurrentNetwork" and "backward" in call.op.attributes:
            rows[-1] = (MemoryRow(PARTS, call.op.key, (held_in_parts(call),), "uint8", KEPT),)
        return rows

    def _new(self, name: str, kind: Type, purpose: str) -> Rows:
        return () if kind.dtype == OPAQUE else (MemoryRow(name, name, kind.shape, kind.dtype, purpose),)

    def _owned(self, call: Call, kind: Type | None, rows: Rows) -> Rows:
        """A kept result: the memory it lies in, or a copy where it is a small part of that."""
        if kind is None or kind.dtype == OPAQUE or len(rows) != 1 or kind.nbytes >= PART * rows[0].nbytes:
            return rows
        return self._new(call.op.key, kind, KEPT)

    def _whole(self, blob: str, program: Program) -> Rows:
        rows, kind = self.alive.rows(blob), program.types[blob]
        return rows if len(rows) == 1 and kind.nbytes >= PART * rows[0].nbytes else ()

    def _note(self, call: Call | None, more: Iterable[MemoryRow] = ()) -> None:
        """Look whether what is alive, and more, is the most so far; it is at an op, or at the end of the pass."""
        rows = (*more, *self.scratch)
        found = {id(row): row for row in rows if not self.alive.holds(row)}.values()
        inside = self.alive.nbytes_inside + sum(row.nbytes for row in found if id(row) in self.inside)
        rest = max(self.borrowed - inside, 0)
        nbytes = self.alive.nbytes + self.lasting.nbytes + sum(row.nbytes for row in found) + rest
        if nbytes > self.most.nbytes:
            self.most = _Moment(nbytes, self.alive.events, self.lasting.events, rows, rest, self._name(call))

    def rows_of_most(self) -> Rows:
        """The rows of the moment with the most bytes."""
        blobs, lasting = self.alive.rows_at(self.most.event), self.lasting.rows_at(self.most.lasting)
        rows = {id(row): row for row in (*blobs, *self.most.more, *lasting)}.values()
        rest = MemoryRow("scratch that others use", "", (self.most.rest,), "uint8", SCRATCH)
        return tuple(sorted((*rows, *([rest] if self.most.rest else ())), key=lambda row: KINDS.index(row.kind)))

    def _row(self, call: Call, buffer: Buffer) -> MemoryRow:
        return MemoryRow(buffer.what, self._name(call), buffer.shape, buffer.dtype, buffer.kind)

    def _name(self, call: Call | None) -> str:
        """The op, by its first result; a recurrence has one name for both passes."""
        if call is None:
            return ""
        if call.op.type == "RecurrentNetwork" and "backward" in call.op.attributes:
            self.names[call.op.outputs[-1]] = call.op.key
        return next((self.names[name] for name in call.op.inputs if name in self.names), call.op.key)
