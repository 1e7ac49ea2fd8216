"""Lifetimes: the memory that the ops of a program ask for, who reads it, and how much is alive when.

A piece of memory holds one blob or several (`_all` and `_last` of a state), and a blob may lie in several pieces (the
step workspaces of a recurrence). Ops of the interpreter never give out memory of their inputs, so what it makes is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rnnops.compiler.buffers.arena import Interval
from rnnops.compiler.buffers.demand import Demand
from rnnops.compiler.buffers.interpreted_memory import buffers_of, results_of
from rnnops.compiler.buffers.memory import KEPT, SCRATCH, Buffer
from rnnops.compiler.buffers.part_bytes import PARTS, held_in_parts
from rnnops.interpreter import Program
from rnnops.schema import Call
from rnnops.types import OPAQUE, Type

Demands = Mapping[str, Demand]


@dataclass(frozen=True)
class Lifetimes:
    """Ops and pieces of memory by number, in the order of the program.

    Args:
        makes: the pieces that each op makes for its results.
        reads: the pieces that each op reads.
        sizes: bytes of each piece.
        stays: pieces that are there at the end: outputs, and what others keep.
        within: bytes that each op needs only while it runs.
        given: pieces that are there at the beginning, and go after their last use.
    """

    makes: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    stays: frozenset[int]
    within: tuple[int, ...]
    given: frozenset[int] = frozenset()


def most_alive(lifetimes: Lifetimes, order: Sequence[int]) -> int:
    """The largest sum of bytes that are alive at once, ops running in this order."""
    left = [0] * len(lifetimes.sizes)
    for read in lifetimes.reads:
        for piece in read:
            left[piece] += 1
    alive = most = sum(lifetimes.sizes[piece] for piece in lifetimes.given)
    for op in order:
        alive += sum(lifetimes.sizes[piece] for piece in lifetimes.makes[op])
        most = max(most, alive + lifetimes.within[op])
        for piece in lifetimes.reads[op]:
            left[piece] -= 1
        gone = {p for p in (*lifetimes.reads[op], *lifetimes.makes[op]) if not left[p] and p not in lifetimes.stays}
        alive -= sum(lifetimes.sizes[piece] for piece in gone)
    return most


def lifetimes_of(
    program: Program, demands: Demands, keep: Collection[str] = (), given: Collection[str] = ()
) -> Lifetimes:
    """The lifetimes of a program's memory.

    Args:
        demands: of ops that run compiled, by key.
        keep: blobs that stay beside the outputs.
        given: inputs that go after their last use; all others are not counted.
    """
    sizes = [program.types[name].nbytes if program.types[name].dtype != OPAQUE else 0 for name in given]
    lies_in: dict[str, tuple[int, ...]] = {name: (piece,) for piece, name in enumerate(given)}
    makes, reads, within = [], [], []
    for call in program.calls:
        results, needs = results_and_needs(call, demands)
        first = len(sizes)
        made = {one.number: one.buffer.nbytes for held in results for one in held}
        sizes += [made[number] for number in range(len(made))]
        reads.append(tuple(dict.fromkeys(piece for name in call.op.inputs for piece in lies_in.get(name, ()))))
        for name, held in zip(call.op.outputs, results, strict=True):
            lies_in[name] = tuple(first + one.number for one in held)
        makes.append(tuple(range(first, len(sizes))))
        within.append(needs)
    stay = {*keep, *program.net.output_blobs.values()}
    stays = frozenset(piece for name in stay for piece in lies_in.get(name, ()))
    return Lifetimes(tuple(makes), tuple(reads), tuple(sizes), stays, tuple(within), frozenset(range(len(given))))


@dataclass(frozen=True)
class Held:
    """A buffer as the memory of an op: two buffers that look the same are two."""

    number: int
    buffer: Buffer


def results_and_needs(call: Call, demands: Demands) -> tuple[list[tuple[Held, ...]], int]:
    """For each output of an op the buffers that it lies in, and the bytes that the op needs beside them."""
    demand = demands.get(call.op.key)
    if demand is not None:
        results = _held(demand.results)
        made = sum({one.number: one.buffer.nbytes for held in results for one in held}.values())
        return results, max(sum(buffer.nbytes for buffer in moment) - made for moment in (*demand.moments(), ()))
    in_parts = bool(call.op.attributes.get("schedule"))
    if call.op.type == "RecurrentNetwork" and not in_parts:
        return _held(results_of(call, buffers_of(call))), 0
    buffers = [_alone(name, kind) for name, kind in zip(call.op.outputs, call.output_types, strict=True)]
    if in_parts and "backward" in call.op.attributes and call.op.type == "RecurrentNetwork":
        buffers[-1] = (Buffer(PARTS, KEPT, "uint8", (held_in_parts(call),)),)
    return _held(buffers), 0


def _held(results: Iterable[tuple[Buffer, ...]]) -> list[tuple[Held, ...]]:
    numbers: dict[int, int] = {}
    return [tuple(Held(numbers.setdefault(id(one), len(numbers)), one) for one in buffers) for buffers in results]


def _alone(name: str, kind: Type) -> tuple[Buffer, ...]:
    return (Buffer(name, SCRATCH, kind.dtype, kind.shape),) if name and kind.dtype != OPAQUE else ()


def intervals_of(lifetimes: Lifetimes) -> list[Interval]:
    """From which op to which each piece is alive, in the order of the program."""
    count = len(lifetimes.makes)
    first, last = dict.fromkeys(lifetimes.given, 0), dict.fromkeys(lifetimes.given, 0)
    for op in range(count):
        first.update(dict.fromkeys(lifetimes.makes[op], op))
        last.update(dict.fromkeys((*lifetimes.makes[op], *lifetimes.reads[op]), op))
    last.update(dict.fromkeys(lifetimes.stays, count))
    return [Interval(nbytes, first[piece], last[piece]) for piece, nbytes in enumerate(lifetimes.sizes)]
