"""What generated drivers use: shares of rows, matrices in flat memory, safe indices, the border between two steps."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core.typing.templates import signature
from numba.np.arrayobj import populate_array

from rnnops.kernels.cpu.bits import primitive
from rnnops.kernels.cpu.fastmath import extending, inlined, types
from rnnops.kernels.cpu.vectors import I64


@inlined
def part(rank: int, threads: int, count: int, block: int) -> tuple[int, int]:
    """First and last (not included) of the `count` things that a thread takes, in whole blocks but for the last."""
    blocks = (count + block - 1) // block
    return min(count, blocks * rank // threads * block), min(count, blocks * (rank + 1) // threads * block)


def matrix(array: Any, start: int, rows: int, stride: int, column: int, columns: int) -> Any:
    """`[rows, columns]` in a 1-D array: rows begin at `start + column`, `stride` numbers apart. Nothing is checked."""
    return array[start : start + rows * stride].reshape((rows, stride))[:, column : column + columns]


def vector(array: Any, start: int, count: int) -> Any:
    """So many numbers of a 1-D array. Nothing is checked."""
    return array[start : start + count]


def _part_of(array: Any, axes: int) -> Any:
    return array.copy(ndim=axes, layout="A" if axes > 1 else "C") if isinstance(array, types.Array) else None


@extending.type_callable(matrix)
def _type_matrix(_context: Any) -> Any:
    def typer(array: Any, start: Any, rows: Any, stride: Any, column: Any, columns: Any) -> Any:
        return signature(_part_of(array, 2), array, *[types.intp] * 5)

    return typer


@extending.type_callable(vector)
def _type_vector(_context: Any) -> Any:
    def typer(array: Any, start: Any, count: Any) -> Any:
        return signature(_part_of(array, 1), array, *[types.intp] * 2)

    return typer


@extending.lower_builtin(matrix, types.Array, *[types.Integer] * 5)
def _lower_matrix(context: Any, builder: Any, sig: Any, values: Any) -> Any:
    array, start, rows, stride, column, columns = values
    return _lower_part(context, builder, sig, array, builder.add(start, column), (rows, columns), (stride, I64(1)))


@extending.lower_builtin(vector, types.Array, *[types.Integer] * 2)
def _lower_vector(context: Any, builder: Any, sig: Any, values: Any) -> Any:
    array, start, count = values
    return _lower_part(context, builder, sig, array, start, (count,), (I64(1),))


def _lower_part(context: Any, builder: Any, sig: Any, array: Any, start: Any, shape: Any, strides: Any) -> Any:
    """An array of borrowed memory, made in a few instructions where slices of numba's are hundreds."""
    given, made = context.make_array(sig.args[0])(context, builder, array), context.make_array(sig.return_type)
    part, item = made(context, builder), given.itemsize
    distances = [builder.mul(stride, item) for stride in strides]
    data = builder.gep(given.data, [start])
    populate_array(part, data=data, shape=shape, strides=distances, itemsize=item, meminfo=None)
    return part._getvalue()


def _emit_fence(builder: Any) -> Any:
    builder.fence("seq_cst", targetscope="singlethread")
    return ir.Constant(ir.IntType(64), 0)


@primitive(lambda: types.int64(), _emit_fence)
def step_begins() -> int:
    """Between two steps: no load or store is moved across. No instruction for the processor.

    Pointers of a row program do not overlap within one call, but one step reads what another wrote. LLVM forgets that
    where a row program has become part of a loop over steps: it would load vectors across steps.
    """
    return 0


@inlined
def inside(index: Any, size: int) -> Any:
    """An index counted from the end where negative, moved into `[0, size)` where it is out of range."""
    place = index + size if index < 0 else index
    return min(max(place, 0), size - 1)
