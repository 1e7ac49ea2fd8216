"""Tiles of numbers that a lane keeps in registers.

**Four numbers that a lane keeps in registers, and tiles, which it reads and writes in memory 16 bytes at once**. They
are written out number by number, as in `tiles.py`. What is read or written at once begins at a multiple of 16 bytes;
the twins for the simulator raise ValueError where it does not, for arrays that begin at such a one.

**Tiles of sums that a lane keeps in registers**: written out number by number, whatever a compiler unrolls. NVIDIA's
compiler for compute capability 10.0 leaves short loops over a local array as loops, and the array in local memory,
which is some hundred times slower than registers. Each function has a twin for the simulator. A tile is a local array
of `TILE` x `TILE` numbers.

**Lanes.** Folds over the lanes of a block, or over some of them: each brings a number, all get the result.

Those that fold together are `count` lanes from `first` on, `stride` lanes apart: neighbours, or lanes of the same place
in their teams. They go by one tree: at step k every 2^(k+1)-th of them takes in what lies 2^k further on. Functions
are text (`source`) that modules of generated kernels hold, as the simulator puts its own `cuda` only into the module
that a kernel is from. Limits: all lanes of a block call them, with shared memory for a number a lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from rnnops.kernels.cuda.async_copy import COPIED
from rnnops.kernels.cuda.facade import SIMULATED, intrinsic, types

BATCH = 8  # fours that are on their way at once

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
            raise ValueError(f"16 bytes at once from number {first} on, which is not a multiple of them")

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

        All are read before any is added; of those that are not asked for, the first is read instead.
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


def _pointer(context: Any, builder: Any, kind: Any, value: Any, place: Any) -> Any:
    """To an element of an array, or of what a pointer points to."""
    start = context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
    return builder.gep(start, [place])


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


TILE = 4  # rows, and columns, of a tile; numbers of k that a lane reads at once
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
    """Rows of a tile, four numbers each, as numbers of sums."""
    half = pointer.dtype == types.float16  # which numba has as whole numbers
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
JOINED = {  # fold of a statement -> two numbers, `a` and `b`, as one; bools are bytes
    "add": "a + b",
    "max": "larger(a, b)",
    "min": "smaller(a, b)",
    "or": "a | b",
    "and": "a & b",
}


def fold_name(fold: str) -> str:
    """The function for a fold of statements.

    Its arguments are a number, the lane, the first of those it folds with, how far these are apart, the lane's place
    among them, how many they are, and shared memory.
    """
    return f"{fold}_of_lanes"


def source() -> str:
    """The text of all functions, for modules that define `cuda`, `device_function`, `larger` and `smaller`."""
    return "\n\n\n".join(fold_text(fold_name(fold), joined) for fold, joined in JOINED.items())


def fold_text(name: str, joined: str) -> str:
    """The text of a function for another fold.

    Args:
        joined: `a` and `b` as one.
    """
    return FOLD.format(name=name, joined=joined)
