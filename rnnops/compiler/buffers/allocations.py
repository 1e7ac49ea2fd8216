"""Allocations: the memory that the ops of a program ask for, what lies in it, and from when to when it is there.

A piece of memory holds one blob or several (`_all` and `_last` of a state), and a blob may lie in several pieces (the
step workspaces of a recurrence). Ops of the interpreter never give out memory of their inputs, so what it makes is new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rnnops.compiler.buffers.demand import Demand
from rnnops.compiler.buffers.interpreted_memory import buffers_of, results_of
from rnnops.compiler.buffers.memory import KEPT, OUTPUT, SCRATCH, Buffer
from rnnops.compiler.buffers.part_bytes import PARTS, held_in_parts
from rnnops.interpreter import Program
from rnnops.recurrent.recurrence import is_training_form, runs_in_parts
from rnnops.schema import Call
from rnnops.types import OPAQUE

Demands = Mapping[str, Demand]
Held = Callable[[Call], Collection[str]]
MOMENTS = 3  # of each op: its sums are there; its end; its results are the program's, and all else is gone


@dataclass(frozen=True)
class Allocation:
    """A piece of memory.

    Args:
        op, of: number and key of the op that asks for it.
        buffer: what it holds; two that look the same are two.
        blobs: results that lie in it, `""` for one without a name.
        first, last: moments of the pass from which to which it is there.
        address: where in a block that others use as well, None for memory of its own.
    """

    op: int
    of: str
    buffer: Buffer
    blobs: tuple[str, ...]
    first: int
    last: int
    address: int | None = None

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes


def allocations_of(
    program: Program, demands: Demands, keep: Collection[str] = (), held: Held = lambda call: ()
) -> list[Allocation]:
    """What all ops of a program ask for, op by op.

    Args:
        demands: of ops that run compiled, by key.
        keep, held: as for `last_moments`.
    """
    last = last_moments(program, keep, held)
    return [one for n, call in enumerate(program.calls) for one in allocations_by(n, call, demands, last)]


def last_moments(program: Program, keep: Collection[str] = (), held: Held = lambda call: ()) -> dict[str, int]:
    """The last moment of each blob; of those that stay, the one after the last op.

    Args:
        keep: blobs that stay, beside outputs.
        held: inputs of an op that are there as long as its results.
    """
    last = dict.fromkeys((*keep, *program.net.output_blobs.values()), MOMENTS * len(program.calls))
    for number, call in reversed([*enumerate(program.calls)]):
        own = MOMENTS * (number + 1) - 1
        ends = [last.setdefault(name, own) for name in call.op.outputs if name]
        stuck = held(call)
        for name in filter(None, call.op.inputs):
            last[name] = max([last.get(name, own), *(ends if name in stuck else ())])
    return last


def allocations_by(number: int, call: Call, demands: Demands, last: Mapping[str, int]) -> Iterator[Allocation]:
    """What one op asks for; results of the interpreter are there when it has run.

    Args:
        last: the last moment of each blob.
    """
    demand, start = demands.get(call.op.key), MOMENTS * number
    moments = demand.moments() if demand else ()
    results = demand.results if demand else interpreted_results(call)
    there = [{id(buffer) for buffer in buffers} for buffers in moments]
    blobs: dict[int, list[str]] = {}
    for name, buffers in zip(call.op.outputs, results, strict=True):
        for buffer in buffers:
            blobs.setdefault(id(buffer), []).append(name)
    for key, buffer in {id(buffer): buffer for buffers in (*moments, *results) for buffer in buffers}.items():
        names = tuple(blobs.get(key, ()))
        within = [start + moment for moment, ids in enumerate(there) if key in ids]
        within = within or [start + 2, start + 1]  # of the interpreter: nothing, but what results with a name lie in
        end = max([within[-1], *(last.get(name, 0) for name in names)])
        yield Allocation(number, call.op.key, buffer, names, within[0], end)


def interpreted_results(call: Call) -> Sequence[tuple[Buffer, ...]]:
    """For each output of an op that the interpreter runs, or that runs in parts, the buffers that it lies in."""
    if call.op.type == "RecurrentNetwork" and not runs_in_parts(call.op):
        return results_of(call, buffers_of(call))
    typed = zip(call.op.outputs, call.output_types, strict=True)
    kind = OUTPUT if runs_in_parts(call.op) else SCRATCH
    results = [(Buffer(n, kind, t.dtype, t.shape),) if n and t.dtype != OPAQUE else () for n, t in typed]
    if runs_in_parts(call.op) and is_training_form(call.op):
        results[-1] = (Buffer(PARTS, KEPT, "uint8", (held_in_parts(call),)),)
    return results
