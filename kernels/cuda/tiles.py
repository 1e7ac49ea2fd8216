"""Tiles of sums that a lane keeps in registers: written out number by number, whatever a compiler unrolls.

NVIDIA's compiler for compute capability 10.0 leaves short loops over a local array as loops, and the array in local
memory, which is some hundred times slower than registers. Each function has a twin for the simulator. A tile is a local
array of `TILE` x `TILE` numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from rnnops.kernels.cuda.facade import SIMULATED, intrinsic, types

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
