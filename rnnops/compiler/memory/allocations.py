"""The memory of a pass: lifetimes, an order of ops, every allocation, and one block for all of them.

**An order of ops that keeps little memory alive** is found greedily (as Sethi and Ullman do for trees; for the nets
here it is not exact). Of the ops that may run next, the one that leaves the least alive comes first. This is done from
the first op on, and from the last one back. The order with the smallest peak is taken, and the given one if no other is
better. Random numbers do not depend on the order, as random ops are numbered before.

**Allocations** are the memory that the ops of a program ask for, with its contents and its live range. A piece of
memory holds one blob or several (`_all` and `_last` of a state), and a blob may lie in several pieces (the step
workspaces of a recurrence). Ops of the interpreter never give out memory of their inputs, so their results are new.

**An arena** is one block of memory that buffers of different times share. This is dynamic storage allocation with fixed
lifetimes (NP-hard; Robson 1971, Gergov 1999 for bounds). Buffers are placed one after another, in several orders. Each
goes to the lowest offset that is free for as long as it lives, or to the offset that leaves the least space over (best
fit). A bounded local search starts from the best layouts and places the highest buffers earlier. It ends when the block
is as large as what is alive at once: no block can be smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING

from rnnops.checkpoints.policy import Slots
from rnnops.compiler.lower.scan import Role, TensorName
from rnnops.compiler.memory.memory import KEPT, OUTPUT, SCRATCH, Buffer, Demand, read_by_backward, rounded
from rnnops.interpreter import Program
from rnnops.net.schema import Call
from rnnops.recurrent.recurrence import Recurrence, cell_program, input_types, is_training_form, runs_in_parts
from rnnops.recurrent.stepping import tensor_shape
from rnnops.types import OPAQUE, Type
from rnnops.util import LazyModule, makers_before, topological_order

if TYPE_CHECKING:
    from rnnops.recurrent import parts as in_parts
else:  # a forward pass does without
    in_parts = LazyModule("rnnops.recurrent.parts")


@dataclass(frozen=True)
class Lifetimes:
    """Ops and pieces of memory by number, in the order of the program.

    Args:
        makes: the pieces that each op makes for its results.
        reads: the pieces that each op reads.
        sizes: bytes of each piece.
        stays: pieces that are still there at the end: outputs, and blobs that are kept.
        within: bytes that each op needs only while it runs.
        given: pieces that are there at the beginning, and are freed after their last use.
    """

    makes: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    stays: frozenset[int]
    within: tuple[int, ...]
    given: frozenset[int] = frozenset()


def most_alive(lifetimes: Lifetimes, order: Sequence[int]) -> int:
    """The largest sum of bytes that are alive at once, if ops run in this order."""
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
        keep: blobs that stay besides the outputs.
        given: inputs that are freed after their last use; other inputs are not counted.
    """
    results = [one for one in allocations_of(program, demands, keep) if one.blobs]
    sizes = [program.types[name].nbytes if program.types[name].dtype != OPAQUE else 0 for name in given]
    lies_in = {name: [piece] for piece, name in enumerate(given)}
    makes: list[list[int]] = [[] for _ in program.calls]
    for piece, one in enumerate(results, len(sizes)):
        makes[one.op].append(piece)
        for name in filter(None, one.blobs):
            lies_in.setdefault(name, []).append(piece)
    sizes += [one.nbytes for one in results]
    reads, within = [], [0] * len(makes)
    for number, call in enumerate(program.calls):
        reads.append(tuple(dict.fromkeys(piece for name in call.op.inputs for piece in lies_in.get(name, ()))))
        if call.op.key in demands:
            most = max(sum(buffer.nbytes for buffer in moment) for moment in demands[call.op.key].moments())
            within[number] = most - sum(sizes[piece] for piece in makes[number])
    stays = {piece for name in (*keep, *program.net.output_blobs.values()) for piece in lies_in.get(name, ())}
    there = frozenset(range(len(given)))
    return Lifetimes(tuple(map(tuple, makes)), tuple(reads), tuple(sizes), frozenset(stays), tuple(within), there)


Before = Sequence[Collection[int]]


def order_ops(program: Program, demands: Demands, keep: Collection[str] = (), given: Collection[str] = ()) -> Program:
    """The program with its ops in an order in which less is alive at once. If no order is better, the same program.

    rewrite: `a = Exp(x); b = Exp(y); c = ReduceSum(a); d = ReduceSum(b)`  -->
        `a = Exp(x); c = ReduceSum(a); b = Exp(y); d = ReduceSum(b)`

    Args:
        demands, keep, given: as for `lifetimes_of`.
    """
    own = list(range(len(program.calls)))
    before = makers_before([(call.op.inputs, call.op.outputs) for call in program.calls])
    order = least_alive(lifetimes_of(program, demands, keep, given), before)
    if order == own:
        return program
    net = program.net.with_ops([program.calls[i].op for i in order]).snapshot()
    return Program(net, tuple(program.calls[i] for i in order), program.types, program.float_dtype)


def least_alive(lifetimes: Lifetimes, before: Before) -> list[int]:
    """The order with the smallest peak of those that are tried.

    Args:
        before: for each op those that it needs.
    """
    own = list(range(len(lifetimes.makes)))
    orders = (own, _forwards(lifetimes, before), _backwards(lifetimes, before))
    return min(orders, key=lambda order: most_alive(lifetimes, order))


def _forwards(lifetimes: Lifetimes, before: Before) -> list[int]:
    """An order from the first op on. Next comes the op after which the fewest bytes are alive."""
    left = _readers(lifetimes)

    def growth(op: int) -> int:
        last = [p for p in (*lifetimes.reads[op], *lifetimes.makes[op]) if left[p] <= {op} and p not in lifetimes.stays]
        made, gone = lifetimes.makes[op], set(last)
        return sum(lifetimes.sizes[p] for p in made) - sum(lifetimes.sizes[p] for p in gone)

    def ran(op: int) -> list[int]:
        for piece in lifetimes.reads[op]:
            left[piece].discard(op)
        return [reader for piece in lifetimes.reads[op] if len(left[piece]) == 1 for reader in left[piece]]

    return topological_order(before, growth, ran)


def _backwards(lifetimes: Lifetimes, before: Before) -> list[int]:
    """An order from the last op back. Before the others comes the op before which the fewest bytes are alive."""
    alive, readers = set(lifetimes.stays), _readers(lifetimes)

    def growth(op: int) -> int:
        read = [p for p in lifetimes.reads[op] if p not in alive]
        made = [p for p in lifetimes.makes[op] if p in alive]
        return sum(lifetimes.sizes[p] for p in read) - sum(lifetimes.sizes[p] for p in made)

    def ran(op: int) -> list[int]:
        news = [piece for piece in lifetimes.reads[op] if piece not in alive]
        alive.difference_update(lifetimes.makes[op])
        alive.update(news)
        return [reader for piece in news for reader in readers[piece]]

    count = len(before)
    after: list[set[int]] = [set() for _ in range(count)]
    for op, needed in enumerate(before):
        for maker in needed:
            after[maker].add(op)
    mirrored = [{count - 1 - op for op in after[count - 1 - place]} for place in range(count)]
    order = topological_order(
        mirrored,
        lambda place: growth(count - 1 - place),
        lambda place: [count - 1 - op for op in ran(count - 1 - place)],
    )
    return [count - 1 - place for place in reversed(order)]


def _readers(lifetimes: Lifetimes) -> list[set[int]]:
    """The ops that read each piece."""
    readers: list[set[int]] = [set() for _ in lifetimes.sizes]
    for op, read in enumerate(lifetimes.reads):
        for piece in read:
            readers[piece].add(op)
    return readers


Demands = Mapping[str, Demand]
Held = Callable[[Call], Collection[str]]
MOMENTS = 3  # of each op: all its sums are there; it ends; only its results are left


@dataclass(frozen=True)
class Allocation:
    """A piece of memory.

    Args:
        op, of: number and key of the op that asks for it.
        buffer: its contents and size. Equal buffers of two allocations are different memory.
        blobs: results that lie in it, `""` for one without a name.
        first, last: the moments of the pass from which and until which it is there.
        address: its offset in a block that it shares with others; None for memory of its own.
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
    """The allocations of a program, op by op.

    Args:
        demands: of ops that run compiled, by key.
        keep, held: as for `last_moments`.
    """
    last = last_moments(program, keep, held)
    return [one for n, call in enumerate(program.calls) for one in allocations_by(n, call, demands, last)]


def last_moments(program: Program, keep: Collection[str] = (), held: Held = lambda call: ()) -> dict[str, int]:
    """The last moment of each blob. For blobs that stay it is after the last op.

    Args:
        keep: blobs that stay, besides outputs.
        held: gives the inputs of an op that live at least as long as its results.
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
    """The allocations of one op. Results of an interpreted op are there from its end on.

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
        within = within or [start + 2, start + 1]  # an interpreted op: its results are there after it, if they are read
        end = max([within[-1], *(last.get(name, 0) for name in names)])
        yield Allocation(number, call.op.key, buffer, names, within[0], end)


def interpreted_results(call: Call) -> Sequence[tuple[Buffer, ...]]:
    """For each output the buffers that it lies in, of an op that the interpreter runs, or that runs in parts."""
    if call.op.type == "RecurrentNetwork" and not runs_in_parts(call.op):
        return results_of(call, buffers_of(call))
    typed = zip(call.op.outputs, call.output_types, strict=True)
    kind = OUTPUT if runs_in_parts(call.op) else SCRATCH
    results = [(Buffer(n, kind, t.dtype, t.shape),) if n and t.dtype != OPAQUE else () for n, t in typed]
    if runs_in_parts(call.op) and is_training_form(call.op):
        results[-1] = (Buffer(PARTS, KEPT, "uint8", (held_in_parts(call),)),)
    return results


def buffers_of(call: Call) -> dict[TensorName, Buffer]:
    """The buffers of a RecurrentNetwork op that last longer than the op runs."""
    recurrence = Recurrence(call.op, call.net)
    types, program = input_types(recurrence, call), cell_program(recurrence, call)
    steps, batch = recurrence.steps_and_batch(types)
    blobs, read = program.net.output_blobs, read_by_backward(recurrence)
    kinds: dict[TensorName, Type] = {}
    for state in recurrence.states:
        name, initial = Role.STATE.of(state.input), types[state.input]
        seen = steps if state.input in recurrence.whole_states else 0  # else it is as short as the initial state
        kinds[name] = Type(initial.dtype, tensor_shape(initial.shape, state.feature_rank, seen, batch))
    for output in recurrence.wanted_step_outputs:
        kinds[Role.OUTPUT.of(output)] = _over(steps, program.types[blobs[output]])
    kinds.update((Role.OUTPUT.of(name), program.types[blobs[name]]) for name in recurrence.sums)
    kinds.update((Role.KEPT.of(blob), _over(steps, kind)) for blob, kind in _kept(recurrence, program))
    return {
        name: Buffer(str(name), KEPT if name in read else OUTPUT, kind.dtype, kind.shape)
        for name, kind in kinds.items()
    }


def results_of(call: Call, buffers: Mapping[TensorName, Buffer]) -> list[tuple[Buffer, ...]]:
    """For each output of the op the buffers that it lies in."""
    recurrence = Recurrence(call.op, call.net)
    lies_in = [Role.STATE.of(state.input) for state in recurrence.states]
    for name in recurrence.step_outputs:
        own, before = Role.OUTPUT.of(name), recurrence.before.get(name)
        lies_in.append(Role.STATE.of(before[0].input) if before and own not in buffers else own)
    results: list[tuple[Buffer, ...]] = []
    for place in lies_in:
        results += [(buffers[place],) if place in buffers else ()] * 2
    if recurrence.keeps_workspaces:
        results.append(tuple(buffer for buffer in buffers.values() if buffer.kind == KEPT))
    return results


def _kept(recurrence: Recurrence, program: Program) -> Iterator[tuple[str, Type]]:
    """Kept blobs and their types. The residuals of a recurrence within the cell are an array of bytes."""
    makers = {name: call for call in program.calls for name in call.op.outputs}
    for name in recurrence.keep:
        kind = program.types[name]
        if kind.dtype == OPAQUE:
            inner = sum(buffer.nbytes for buffer in buffers_of(makers[name]).values() if buffer.kind == KEPT)
            kind = Type("uint8", (inner,))
        yield name, kind


def _over(steps: int, kind: Type) -> Type:
    return Type(kind.dtype, (steps, *kind.shape))


PARTS = "states and parts that are kept"


@dataclass(frozen=True)
class PartBytes:
    """The settings that decide how many bytes a recurrence holds.

    Args:
        call: the RecurrentNetwork op in training form.
        steps, batch: T and N.
        states: bytes of the states before a part.
        known: results of `sizes`, by steps.
    """

    call: Call
    steps: int
    batch: int
    states: int
    known: dict[int, tuple[int, int]] = field(default_factory=dict, compare=False, repr=False)

    def keep(self, steps: int) -> Call:
        """The op that runs a part of so many steps and keeps its residuals."""
        every = ((True, True),) * (len(self.call.output_types) // 2)
        parts = in_parts.Parts(self.call, every, min(steps, self.steps))
        return parts.calls(parts.unit).keep

    def sizes(self, steps: int) -> tuple[int, int]:
        """Two counts of bytes of a part: its residuals with the states after it; its results, which are copied."""
        if steps not in self.known:
            keep = self.keep(steps)
            outputs = zip(keep.op.outputs[:-1], keep.output_types[:-1], strict=True)
            results = sum(kind.nbytes for name, kind in outputs if name)
            self.known[steps] = (workspace_bytes(keep) + self.states, results)
        return self.known[steps]

    def held(self, chosen: Slots) -> int:
        """The most bytes at once: states and residuals in slots, the first and the current states, results of a
        part."""
        count, (part, results) = -(-self.steps // chosen.steps), self.sizes(chosen.steps)
        used = min(chosen.count, count * chosen.cost if chosen.kind == "mixed" else count)
        in_slots = used * part if chosen.kind == "step" else (used - 1) * self.states + part
        if chosen.kind == "mixed":
            in_slots = max(in_slots, (used - 1) // chosen.cost * part + part)
        return in_slots + 2 * self.states + results


def held_in_parts(call: Call) -> int:
    """The most bytes that a recurrence in training form holds under its schedule."""
    steps, count, kind, cost = call.op.attributes["schedule"]
    return part_bytes(call).held(Slots(count, kind, steps, cost))


def part_bytes(call: Call) -> PartBytes:
    """The bytes of a RecurrentNetwork op in training form."""
    parts = in_parts.Parts(call, (), 1)
    return PartBytes(call, *parts.size, sum(kind.nbytes for kind in parts.initial.values()))


def bytes_of_blobs(program: Program) -> dict[str, int]:
    """Bytes of every blob."""
    found = {name: 0 if kind.dtype == OPAQUE else kind.nbytes for name, kind in program.types.items()}
    for call in program.calls:
        if is_training_form(call.op):
            found[call.op.outputs[-1]] = workspace_bytes(call)
    return found


def workspace_bytes(call: Call) -> int:
    """Bytes that a recurrence keeps for backward. One in segments keeps only the states at their borders."""
    if call.op.attributes.get("segments"):
        recurrence = Recurrence(call.op, call.net)
        steps, _ = recurrence.steps_and_batch(input_types(recurrence, call))
        borders: int = -(-steps // call.op.attributes["segments"])
        return borders * sum(kind.nbytes for kind in state_types(recurrence, call))
    return sum(buffer.nbytes for buffer in buffers_of(call).values() if buffer.kind == KEPT)


def state_types(recurrence: Recurrence, call: Call) -> list[Type]:
    """Types of the states of a recurrence at one step."""
    program = cell_program(recurrence, call)
    return [program.types[program.net.output_blobs[state.output]] for state in recurrence.states]


STARTS = 4  # layouts that the local search begins at; the first one gets most rounds
ROUNDS, PAIRS = 1000, 5_000_000  # of the local search: the most placements, and the most pairs of buffers compared


@dataclass(frozen=True)
class Interval:
    """A buffer's bytes, and the first and last op of its life."""

    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """The offsets of buffers in a block of `nbytes` bytes. Offsets are multiples of a line of the cache."""

    offsets: tuple[int, ...] = ()
    nbytes: int = 0


def intervals_of(allocations: Iterable[Allocation]) -> list[Interval]:
    """The life of each piece of memory, in whole ops. So pieces that one op uses never share bytes."""
    return [Interval(one.nbytes, one.first // MOMENTS, one.last // MOMENTS) for one in allocations]


def plan_arena(intervals: Sequence[Interval]) -> Arena:
    """Offsets for buffers, such that no two that are alive at once overlap."""
    if not intervals:
        return Arena()
    lines = [Interval(rounded(one.nbytes), one.first, one.last) for one in intervals]
    least, _ = most_at_once(lines)
    starts: list[Arena] = []
    for key in ORDERS:
        order = sorted(range(len(lines)), key=lambda i: (key(lines[i]), i))
        for fit in (_lowest, _tightest):
            starts.append(_placed(lines, order, fit))
            if starts[-1].nbytes == least:
                return starts[-1]
    return _best_searched(lines, sorted(starts, key=lambda start: start.nbytes)[:STARTS], least)


def _best_searched(lines: Sequence[Interval], starts: Sequence[Arena], least: int) -> Arena:
    """The best layout of a search from each start. It stops at a layout than which none can be smaller."""
    best, rounds = starts[0], min(ROUNDS, PAIRS // len(lines) ** 2 + 1)
    for number, start in enumerate(starts):
        found = _searched(lines, start, least, rounds if number == 0 else rounds // STARTS)
        best = found if found.nbytes < best.nbytes else best
        if best.nbytes == least:
            break
    return best


def most_at_once(intervals: Iterable[Interval | Allocation]) -> tuple[int, int]:
    """The largest sum of bytes that are alive at once, and the first moment when so many are."""
    changes: dict[int, int] = {}
    for one in intervals:
        changes[one.first] = changes.get(one.first, 0) + one.nbytes
        changes[one.last + 1] = changes.get(one.last + 1, 0) - one.nbytes
    alive, most = 0, (0, 0)
    for moment in sorted(changes):
        alive += changes[moment]
        most = max(most, (alive, moment), key=itemgetter(0))
    return most


ORDERS: tuple[Callable[[Interval], tuple[int, ...]], ...] = (
    lambda one: (-one.nbytes, one.first),
    lambda one: (one.first, -one.nbytes),
    lambda one: (-one.nbytes * (one.last - one.first + 1), one.first),
    lambda one: (-(one.last - one.first), -one.nbytes),
    lambda one: (-one.last, -one.nbytes),
)
Gap = tuple[int, int]  # from, to
Fit = Callable[[Iterable[Gap], int], int]


def _lowest(gaps: Iterable[Gap], nbytes: int) -> int:
    return next(start for start, end in gaps if end - start >= nbytes)


def _tightest(gaps: Iterable[Gap], nbytes: int) -> int:
    return min((end - start, start) for start, end in gaps if end - start >= nbytes)[1]


def _placed(lines: Sequence[Interval], order: Iterable[int], fit: Fit) -> Arena:
    """Buffers placed one after another."""
    offsets = [0] * len(lines)
    placed: list[tuple[int, int, int, int]] = []  # from, to, first, last
    total = 0
    for i in order:
        one = lines[i]
        taken = sorted((start, end) for start, end, first, last in placed if first <= one.last and one.first <= last)
        offsets[i] = fit(_gaps(taken), one.nbytes)
        placed.append((offsets[i], offsets[i] + one.nbytes, one.first, one.last))
        total = max(total, offsets[i] + one.nbytes)
    return Arena(tuple(offsets), total)


def _gaps(taken: Iterable[Gap]) -> Iterable[Gap]:
    """The free ranges, lowest first. The last one is all space above what is taken."""
    top, gaps = 0, []
    for start, end in taken:
        if start > top:
            gaps.append((top, start))
        top = max(top, end)
    return [*gaps, (top, 1 << 62)]


def _searched(lines: Sequence[Interval], best: Arena, least: int, rounds: int) -> Arena:
    """The best layout of a local search. Each round places one buffer earlier than before: one at the top, or any."""
    draw = Random(0)
    order = sorted(range(len(lines)), key=lambda i: (best.offsets[i], i))
    for number in range(rounds):
        top = [i for i in order if best.offsets[i] + lines[i].nbytes == best.nbytes]
        moved = draw.choice(order if number % 4 == 3 else top)
        candidate = [i for i in order if i != moved]
        candidate.insert(draw.randint(0, order.index(moved)), moved)
        found = _placed(lines, candidate, _lowest)
        if found.nbytes <= best.nbytes:
            best, order = found, candidate
        if best.nbytes == least:
            break
    return best
