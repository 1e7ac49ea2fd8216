"""Four numbers that a lane keeps in registers, and tiles, which it reads and writes in memory 16 bytes at once.

They are written out number by number, as in `tiles.py`. What is read or written at once begins at a multiple of 16
bytes; the twins for the simulator raise ValueError where it does not, for arrays that begin at such a one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from rnnops.kernels.cuda.async_copy import COPIED
from rnnops.kernels.cuda.facade import SIMULATED, intrinsic, types
from rnnops.kernels.cuda.tiles import TILE

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
            raise ValueError(f"16 bytes at once from number {first} on, which is no multiple of them")

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
