"""Functions that lanes of a block call: copies, ordered accesses, waits of groups, tiles in registers, folds.

Functions that are single instructions are written in LLVM IR, with a twin in Python for the simulator. The others are
text for generated modules (`groups_source`, `folds_source`). The reason is that the simulator puts its own `cuda` only
into the module that holds the kernel.

**Asynchronous copies of 16 bytes from memory into shared memory, and early reads**. A copy reads and writes at some
time between its start and `copies_done` of the same lane. Other lanes see the result after the block's next barrier.
Copies bypass the L1 cache, which might hold old values of numbers that other blocks have written. Before compute
capability 8.0 a copy is a load and a store. The simulator's twin copies at the last moment, in `copies_done`. So a test
fails if shared memory is read too early, or if the source changes too early. Limit: in the simulator, arrays count as
if they began at a multiple of 16 bytes.

**Ordered memory between blocks**: an addition that releases, and a read that acquires, at the scope of a device. If a
thread acquires a word after another has released it, it sees all that the other thread wrote or saw before the release.
With a block's barrier before the release and another after the acquire, this holds for all lanes of both blocks,
because PTX's causality order includes barriers. The simulator's memory has one order anyway. Tests replace it
(`simulated`) by one that tracks releases and acquires.

**Barriers of groups of blocks: members release what they wrote, and acquire what the others wrote**. A group has a word
of memory: its highest bit is the turn, the rest counts. The first of `members` blocks adds 2^31 - (members - 1), each
other block adds 1. After all have come, the highest bit has flipped and the other bits are 0 again, ready for the next
barrier, in this launch or another one. A block must know for which turn it waits. It reads the word before its first
barrier, when the bit cannot flip without it, and counts barriers from there. So the word is never reset between
launches, and no block waits for the result of its own addition.

No block waits for ever, for three reasons. The launch is cooperative, so all blocks run at the same time. All members
of a group come to the same barriers in the same order, as a group goes through the same steps and regions. A block
comes to a barrier only after it has left the one before. At most one barrier of a group is therefore open, and the
members that have not come to it wait for nothing of other groups. Each addition is made before its block begins to
read. A word that has turned stays so until all members, also the one that reads, have come to the next barrier.

Order: all lanes of a block meet before its first lane releases, so it releases what all of them have written. The first
lane acquires before they meet again, so all of them may read what other blocks released. Limits: only one launch at a
time may use the words of a group; the order of a stream ensures it. A launch that is aborted leaves the words as they
are.

**Four numbers and tiles of sums that a lane keeps in registers**: code is written out number by number, so that it does
not depend on unrolling. For compute capability 10.0, NVIDIA's compiler does not unroll short loops over a local array.
The array then stays in local memory, which is about a hundred times slower than registers. A tile is a local array of
`TILE` x `TILE` numbers. Reads and writes of 16 bytes begin at multiples of 16 bytes. The twins of the writes and of
`add_batch` raise ValueError otherwise; they assume that arrays begin at such a multiple.

**Folds** over the lanes of a block, or over some of them: each lane brings a number, and each gets the result. `count`
lanes fold together, from lane `first` on, `stride` lanes apart. They are neighbours, or have the same place in their
teams. The fold is a tree: at step k every 2^(k+1)-th lane takes in the number of the lane 2^k further on. Limits: all
lanes of a block call a fold together. Shared memory holds a number for each lane.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir

from rnnops.kernels.cuda.facade import SIMULATED, compiled_for, cuda, device_functions, intrinsic, types

COPIED = 16  # bytes of a copy; source and target begin at multiples of it
GO_ON = 8, 0  # compute capability from which on copies are asynchronous
COPY = "cp.async.cg.shared.global [$0], [$1], 16;"
DONE = "cp.async.wait_all;"
FETCH = "prefetch.global.L2 [$0];"

if SIMULATED:
    _started = threading.local()

    def starts_a_copy(array: Any, first: int) -> bool:
        """True if an element of an array of one axis lies where copies may begin."""
        return bool(first * array.dtype.itemsize % COPIED == 0)

    def copy_soon(target: Any, place: int, source: Any, first: int) -> None:
        """16 bytes from `source[first]` on begin their way to `target[place]`, in shared memory."""
        if not hasattr(_started, "copies"):
            _started.copies = []
        _started.copies.append((target, place, source, first))

    def copies_done() -> None:
        """All copies that this lane has begun have arrived."""
        for target, place, source, first in _started.__dict__.pop("copies", ()):
            count = COPIED // source.dtype.itemsize
            target[place : place + count] = source[first : first + count]

    def fetch_early(array: Any, place: int) -> None:
        """Fetch an element and its neighbours, so that they are nearer when they are read."""

else:
    SHORT, LONG = ir.IntType(32), ir.IntType(64)

    @intrinsic
    def starts_a_copy(_context: Any, array: Any, first: Any) -> Any:
        """True if an element of an array of one axis lies where copies may begin."""

        def test(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            address = builder.ptrtoint(_pointer(context, builder, array, values[0], values[1]), LONG)
            rest = builder.and_(address, ir.Constant(LONG, COPIED - 1))
            return builder.icmp_unsigned("==", rest, ir.Constant(LONG, 0))

        return types.boolean(array, types.intp), test

    @intrinsic
    def copy_soon(_context: Any, target: Any, place: Any, source: Any, first: Any) -> Any:
        """16 bytes from `source[first]` on begin their way to `target[place]`, in shared memory."""

        def copy(context: Any, builder: Any, signature: Any, values: Any) -> None:
            to = _pointer(context, builder, target, values[0], values[1])
            if compiled_for() < GO_ON:
                _copy_now(builder, to, _pointer(context, builder, source, values[2], values[3]))
                return
            shared = builder.addrspacecast(to, ir.PointerType(to.type.pointee, 3))
            given = builder.ptrtoint(_pointer(context, builder, source, values[2], values[3]), LONG)
            _do(builder, COPY, "r,l,~{memory}", builder.ptrtoint(shared, SHORT), given)

        return types.void(target, types.intp, source, types.intp), copy

    @intrinsic
    def copies_done(_context: Any) -> Any:
        """All copies that this lane has begun have arrived."""

        def done(context: Any, builder: Any, signature: Any, values: Any) -> None:
            if compiled_for() >= GO_ON:
                _do(builder, DONE, "~{memory}")

        return types.void(), done

    @intrinsic
    def fetch_early(_context: Any, array: Any, place: Any) -> Any:
        """Fetch an element and its neighbours, so that they are nearer when they are read."""

        def fetch(context: Any, builder: Any, signature: Any, values: Any) -> None:
            pointer = _pointer(context, builder, array, values[0], values[1])
            _do(builder, FETCH, "l", builder.ptrtoint(pointer, LONG))

        return types.void(array, types.intp), fetch


def _pointer(context: Any, builder: Any, kind: Any, value: Any, place: Any) -> Any:
    """A pointer to an element of an array, or to an element behind a pointer."""
    start = context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
    return builder.gep(start, [place])


def _copy_now(builder: Any, target: Any, source: Any) -> None:
    vector = ir.VectorType(ir.IntType(32), 4).as_pointer()
    numbers = builder.load(builder.bitcast(source, vector))
    store = builder.store(numbers, builder.bitcast(target, vector))
    numbers.align = store.align = COPIED


def _do(builder: Any, assembly: str, constraints: str, *operands: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [operand.type for operand in operands])
    builder.call(ir.InlineAsm(kind, assembly, constraints, side_effect=True), operands)


ADD_RELEASE = "red.release.gpu.global.add.u32 [$0], $1;"
WORD_VALUES = 1 << 32
LOAD_ACQUIRE = "ld.acquire.gpu.global.u32 $0, [$1];"


class PlainMemory:
    """The simulator's memory: it has one order for all threads, so that an addition needs only a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def add_release(self, counters: Any, place: int, value: Any) -> None:
        with self._lock:
            counters[place] = (int(counters[place]) + int(value)) % WORD_VALUES

    def load_acquire(self, counters: Any, place: int) -> Any:
        return counters[place]


simulated = PlainMemory()

if SIMULATED:

    def add_release(counters: Any, place: int, value: Any) -> None:
        """Add to a uint32, modulo 2^32, after all that this thread knows of."""
        simulated.add_release(counters, place, value)

    def load_acquire(counters: Any, place: int) -> Any:
        """Read a uint32. From now on this thread sees all that was released with it."""
        return simulated.load_acquire(counters, place)

else:

    @intrinsic
    def add_release(_context: Any, counters: Any, place: Any, value: Any) -> Any:
        """Add to a uint32, modulo 2^32, after all that this thread knows of."""

        def add(context: Any, builder: Any, signature: Any, values: Any) -> None:
            _do(builder, ADD_RELEASE, "l,r,~{memory}", _address(context, builder, counters, values), values[2])

        return types.void(counters, types.intp, types.uint32), add

    @intrinsic
    def load_acquire(_context: Any, counters: Any, place: Any) -> Any:
        """Read a uint32. From now on this thread sees all that was released with it. The launch becomes cooperative."""

        def load(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            context.active_code_library.use_cooperative = True
            kind = ir.FunctionType(SHORT, [LONG])
            assembly = ir.InlineAsm(kind, LOAD_ACQUIRE, "=r,l,~{memory}", side_effect=True)
            return builder.call(assembly, [_address(context, builder, counters, values)])

        return types.uint32(counters, types.intp), load


def _address(context: Any, builder: Any, counters: Any, values: Any) -> Any:
    return builder.ptrtoint(_pointer(context, builder, counters, values[0], values[1]), ir.IntType(64))


WORDS = 32  # uint32 words for each group: its word has a line of the cache to itself
HALF = 1 << 31


def turn_of(counters: Any, line: int) -> int:
    """The turn of a group's word, before this block has come to any barrier."""
    return np.int64(load_acquire(counters, line)) >> 31


def arrive(counters: Any, line: int, member: int, members: int) -> None:
    """Tell the group that this member has come. Until `await_group`, its lanes may do work that needs no other member.

    Args:
        line: index of the group's word in `counters`.
    """
    cuda.syncthreads()
    if members > 1 and cuda.threadIdx.x == 0:
        add_release(counters, line, np.uint32(HALF - members + 1 if member == 0 else 1))


def await_group(counters: Any, line: int, members: int, turns: int) -> None:
    """Wait until all members have come. Then all lanes see what the members wrote before they came.

    Args:
        turns: the turn at the beginning, plus the count of barriers so far.
    """
    if members > 1:
        if cuda.threadIdx.x == 0:
            while np.int64(load_acquire(counters, line)) >> 31 == turns & 1:
                pass
        cuda.syncthreads()


FUNCTIONS = (turn_of, arrive, await_group)


def groups_source() -> str:
    """The text of the functions, for modules that define `cuda`, `device_function` and the names of this file."""
    return "\n\n\n".join([f"HALF = {HALF}", *device_functions(FUNCTIONS)])


BATCH = 8  # groups of four numbers that `add_batch` reads before it adds any

if SIMULATED:

    def clear_four(four: Any) -> None:
        """All numbers become 0."""
        four[:] = 0

    def add_apart(four: Any, array: Any, first: int, along: int) -> None:
        """`four[i]` grows by `array[first + i * along]`."""
        for i in range(TILE):
            four[i] += array[first + i * along]

    def add_batch(four: Any, array: Any, first: int, stride: int, count: int) -> None:
        """`four[i]` grows by `array[first + n * stride + i]` for n = 0, 1, ... in order: `count`, `BATCH` at most."""
        for n in range(min(count, BATCH)):
            _check(array, first + n * stride)
            for i in range(TILE):
                four[i] += array[first + n * stride + i]

    def keep_four(four: Any, array: Any, first: int, along: int) -> None:
        """`array[first + i * along]` becomes number `i`."""
        for i in range(TILE):
            array[first + i * along] = four[i]

    def write_four(four: Any, array: Any, first: int) -> None:
        """Numbers side by side in memory become these."""
        _check(array, first)
        array[first : first + TILE] = four

    def write_tile(total: Any, array: Any, first: int, pitch: int) -> None:
        """Rows of a tile go to memory, `pitch` numbers apart."""
        for i in range(TILE):
            _check(array, first + i * pitch)
            array[first + i * pitch : first + i * pitch + TILE] = total[i * TILE : (i + 1) * TILE]

    def _check(array: Any, first: int) -> None:
        if first * array.dtype.itemsize % COPIED:
            raise ValueError(f"16 bytes at once from number {first} on, which is not at a multiple of 16 bytes")

else:

    @intrinsic
    def clear_four(_context: Any, four: Any) -> Any:
        """All numbers become 0."""

        def clear(context: Any, builder: Any, signature: Any, values: Any) -> None:
            for place in _registers(context, builder, four, values[0], TILE):
                builder.store(ir.Constant(place.type.pointee, 0.0), place)

        return types.void(four), clear

    @intrinsic
    def add_apart(_context: Any, four: Any, array: Any, first: Any, along: Any) -> Any:
        """`four[i]` grows by `array[first + i * along]`."""

        def add(context: Any, builder: Any, signature: Any, values: Any) -> None:
            place = values[2]
            for register in _registers(context, builder, four, values[0], TILE):
                number = builder.load(_pointer(context, builder, array, values[1], place))
                builder.store(builder.fadd(builder.load(register), number), register)
                place = builder.add(place, values[3])

        return types.void(four, array, types.intp, types.intp), add

    @intrinsic
    def add_batch(_context: Any, four: Any, array: Any, first: Any, stride: Any, count: Any) -> Any:
        """`four[i]` grows by `array[first + n * stride + i]` for n = 0, 1, ... in order: `count`, `BATCH` at most.

        All are read before any is added. Beyond `count`, the first is read again and 0 is added.
        """

        def add(context: Any, builder: Any, signature: Any, values: Any) -> None:
            _, memory, start, distance, wanted = values
            found, place = [], start
            for n in range(BATCH):
                there = builder.icmp_signed("<", ir.Constant(wanted.type, n), wanted)
                read = _four(context, builder, array, memory, builder.select(there, place, start))
                zero = ir.Constant(read[0].type, 0.0)
                found.append([builder.select(there, number, zero) for number in read])
                place = builder.add(place, distance)
            for i, register in enumerate(_registers(context, builder, four, values[0], TILE)):
                total = builder.load(register)
                for numbers in found:
                    total = builder.fadd(total, numbers[i])
                builder.store(total, register)

        return types.void(four, array, types.intp, types.intp, types.intp), add

    @intrinsic
    def keep_four(_context: Any, four: Any, array: Any, first: Any, along: Any) -> Any:
        """`array[first + i * along]` becomes number `i`."""

        def keep(context: Any, builder: Any, signature: Any, values: Any) -> None:
            place = values[2]
            for register in _registers(context, builder, four, values[0], TILE):
                builder.store(builder.load(register), _pointer(context, builder, array, values[1], place))
                place = builder.add(place, values[3])

        return types.void(four, array, types.intp, types.intp), keep

    @intrinsic
    def write_four(_context: Any, four: Any, array: Any, first: Any) -> Any:
        """Numbers side by side in memory become these."""

        def write(context: Any, builder: Any, signature: Any, values: Any) -> None:
            registers = _registers(context, builder, four, values[0], TILE)
            _store(builder, registers, _pointer(context, builder, array, values[1], values[2]))

        return types.void(four, array, types.intp), write

    @intrinsic
    def write_tile(_context: Any, total: Any, array: Any, first: Any, pitch: Any) -> Any:
        """Rows of a tile go to memory, `pitch` numbers apart."""

        def write(context: Any, builder: Any, signature: Any, values: Any) -> None:
            place, registers = values[2], _registers(context, builder, total, values[0], TILE * TILE)
            for i in range(TILE):
                to = _pointer(context, builder, array, values[1], place)
                _store(builder, registers[i * TILE : (i + 1) * TILE], to)
                place = builder.add(place, values[3])

        return types.void(total, array, types.intp, types.intp), write


def _registers(context: Any, builder: Any, kind: Any, value: Any, count: int) -> list[Any]:
    """Pointers to the numbers of a local array."""
    return [_pointer(context, builder, kind, value, ir.Constant(ir.IntType(64), i)) for i in range(count)]


def _four(context: Any, builder: Any, kind: Any, value: Any, place: Any) -> list[Any]:
    pointer = _pointer(context, builder, kind, value, place)
    read = builder.load(builder.bitcast(pointer, ir.VectorType(pointer.type.pointee, TILE).as_pointer()))
    read.align = 16
    return [builder.extract_element(read, ir.Constant(ir.IntType(32), i)) for i in range(TILE)]


def _store(builder: Any, registers: list[Any], to: Any) -> None:
    vector = ir.VectorType(to.type.pointee, TILE)
    whole = ir.Constant(vector, ir.Undefined)
    for i, register in enumerate(registers):
        whole = builder.insert_element(whole, builder.load(register), ir.Constant(ir.IntType(32), i))
    builder.store(whole, builder.bitcast(to, vector.as_pointer())).align = 16


TILE = 4  # rows and columns of a tile; also the numbers of k that a lane reads at once
SQUARE = TILE * TILE  # sums of a tile

if SIMULATED:

    def clear_tile(total: Any) -> None:
        """All sums become 0."""
        total[:] = 0

    def keep_tile(total: Any, sums: Any, first: int, stride: int) -> None:
        """`sums[first + e * stride]` becomes sum `e`."""
        for element in range(SQUARE):
            sums[first + element * stride] = total[element]

    def add_products(left: Any, pitch: int, right: Any, width: int, k: int, total: Any) -> None:
        """`total[i, j]` grows by `left[i * pitch + q] * right[q * width + j]`, for q = k ... k + TILE - 1 in order.

        Rows of both begin at multiples of 16 bytes, and are read four numbers at once; float16 becomes float32.
        """
        for q in range(k, k + TILE):
            for i in range(TILE):
                x = left[i * pitch + q]
                for j in range(TILE):
                    total[i * TILE + j] += x * right[q * width + j]

else:

    @intrinsic
    def clear_tile(_context: Any, total: Any) -> Any:
        """All sums become 0."""

        def clear(context: Any, builder: Any, signature: Any, values: Any) -> None:
            zero = ir.Constant(context.get_data_type(total.dtype), 0.0)
            for place in _places(context, builder, total, values[0]):
                builder.store(zero, place)

        return types.void(total), clear

    @intrinsic
    def keep_tile(_context: Any, total: Any, sums: Any, first: Any, stride: Any) -> Any:
        """`sums[first + e * stride]` becomes sum `e`."""

        def keep(context: Any, builder: Any, signature: Any, values: Any) -> None:
            place = values[2]
            for element in _places(context, builder, total, values[0]):
                builder.store(builder.load(element), builder.gep(values[1], [place]))
                place = builder.add(place, values[3])

        return types.void(total, sums, types.intp, types.intp), keep

    @intrinsic
    def add_products(_context: Any, left: Any, pitch: Any, right: Any, width: Any, k: Any, total: Any) -> Any:
        """`total[i, j]` grows by `left[i * pitch + q] * right[q * width + j]`, for q = k ... k + TILE - 1 in order.

        Rows of both begin at multiples of 16 bytes, and are read four numbers at once; float16 becomes float32.
        """

        def add(context: Any, builder: Any, signature: Any, values: Any) -> None:
            a_start, pitch_value, b_start, width_value, k_value, memory = values
            b_place = builder.mul(k_value, width_value)
            rows = list(_read(context, builder, left, a_start, k_value, pitch_value))
            columns = list(_read(context, builder, right, b_start, b_place, width_value))
            places = list(_places(context, builder, total, memory))
            found = [builder.load(place) for place in places]
            for q in range(TILE):
                for i in range(TILE):
                    for j in range(TILE):
                        grown = builder.fmul(rows[i][q], columns[q][j])
                        found[i * TILE + j] = builder.fadd(found[i * TILE + j], grown)
            for number, place in zip(found, places, strict=True):
                builder.store(number, place)

        return types.void(left, types.intp, right, types.intp, types.intp, total), add


def _places(context: Any, builder: Any, array: Any, value: Any) -> Iterator[Any]:
    """Pointers to the sums of a tile."""
    memory = context.make_array(array)(context, builder, value).data
    for element in range(SQUARE):
        yield builder.gep(memory, [ir.Constant(ir.IntType(64), element)])


def _read(context: Any, builder: Any, pointer: Any, start: Any, place: Any, pitch: Any) -> Iterator[list[Any]]:
    """Rows of a tile, four numbers each, converted to the type of sums."""
    half = pointer.dtype == types.float16  # numba keeps float16 as whole numbers
    vector = ir.VectorType(context.get_data_type(pointer.dtype), TILE)
    for _ in range(TILE):
        row = builder.load(builder.bitcast(builder.gep(start, [place]), vector.as_pointer()))
        row.align = 8 if half else 16
        numbers = [builder.extract_element(row, ir.Constant(ir.IntType(32), i)) for i in range(TILE)]
        yield [builder.fpext(builder.bitcast(x, ir.HalfType()), ir.FloatType()) for x in numbers] if half else numbers
        place = builder.add(place, pitch)


FOLD = """\
@device_function
def {name}(x, lane, first, stride, place, count, shared):
    shared[lane] = x
    cuda.syncthreads()
    step = 1
    while step < count:
        if place & (2 * step - 1) == 0 and place + step < count:
            a, b = shared[lane], shared[lane + step * stride]
            shared[lane] = {joined}
        cuda.syncthreads()
        step *= 2
    found = shared[first]
    cuda.syncthreads()
    return found"""
JOINED = {  # fold of a statement -> expression that joins two numbers, `a` and `b`; bools are bytes
    "add": "a + b",
    "max": "larger(a, b)",
    "min": "smaller(a, b)",
    "or": "a | b",
    "and": "a & b",
}


def fold_name(fold: str) -> str:
    """The function for a fold of statements.

    Its arguments are the lane's number x, the lane, and then `first`, `stride`, `place` and `count`. These tell which
    lanes fold together, and this lane's place among them. The last argument is shared memory.
    """
    return f"{fold}_of_lanes"


def folds_source() -> str:
    """The text of all functions, for modules that define `cuda`, `device_function`, `larger` and `smaller`."""
    return "\n\n\n".join(fold_text(fold_name(fold), joined) for fold, joined in JOINED.items())


def fold_text(name: str, joined: str) -> str:
    """The text of a function for another fold.

    Args:
        joined: an expression that joins `a` and `b`.
    """
    return FOLD.format(name=name, joined=joined)
