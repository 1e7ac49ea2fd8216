"""Pointers into arrays, and functions that are promised pointers to memory of their own.

`at` gives the address of one element; indexing it reads and writes memory without reference counts, bounds or negative
indices, in the fewest instructions. `row_program` compiles a function whose pointer arguments do not overlap: LLVM's
`noalias`, C's `restrict`. Loops over any number of pointers then become vector loops at once, where LLVM would compare
all addresses first, for every row, and take a scalar loop when two are close. That also makes sums whose order is left
to LLVM depend on the length of a row alone, never on addresses.

The promise concerns memory that is written: what is only read may come by several pointers. An operation in place
takes one pointer, for reading and writing.

Limits: an array must live as long as its pointers do; a pointer does not keep it alive, and numba frees an array that a
compiled function has made after the last line that names it. Nothing stops compiled code from writing to a read-only
array. Pointers to bool arrays are to their bytes: write comparisons, read with `!= 0`. In plain Python a pointer is a
view of the array from that element on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core.cgutils import pointer_add
from numba.core.compiler import Compiler
from numba.core.errors import TypingError
from numba.core.typing.templates import signature

from rnnops.kernels.cpu.fastmath import FLAGS, OPTIONS, Function, extending, types
from rnnops.kernels.cpu.machine_code import compile_once


def at(array: Any, offset: Any) -> Any:
    """A pointer to an element of a C-contiguous array, counted in memory, or past a pointer's own element.

    Args:
        array: of any number of axes, read-only ones too; or a pointer.
        offset: an integer, 0 or more.
    """
    if not array.flags.c_contiguous:
        raise ValueError("a pointer into an array that is not C-contiguous")
    flat = array.reshape(-1)
    return (flat.view(np.uint8) if flat.dtype == np.bool_ else flat)[offset:]


def _pointer_to(target: Any) -> Any:
    if isinstance(target, types.CPointer):
        return target
    if isinstance(target, types.Array) and target.layout == "C":
        return types.CPointer(types.uint8 if target.dtype == types.boolean else target.dtype)
    return None


@extending.type_callable(at)
def _type_at(_context: Any) -> Any:
    def typer(array: Any, offset: Any) -> Any:
        pointer = _pointer_to(array)
        if pointer is None or not isinstance(offset, types.Integer):
            return None
        return signature(pointer, array, types.intp)

    return typer


@extending.lower_builtin(at, types.Array, types.Integer)
def _lower_at_array(context: Any, builder: Any, sig: Any, values: Any) -> Any:
    data = context.make_array(sig.args[0])(context, builder, values[0]).data
    return builder.gep(data, [values[1]])


@extending.lower_builtin(at, types.CPointer, types.Integer)
def _lower_at_pointer(_context: Any, builder: Any, _sig: Any, values: Any) -> Any:
    return builder.gep(values[0], [values[1]])


def row_at(matrix: Any, row: Any, column: Any) -> Any:
    """A pointer to an element of a matrix, valid within its row.

    Rows are contiguous, which compiled code does not check where numba's type does not tell, and any distance apart.
    """
    if matrix.shape[1] > 1 and matrix.strides[1] != matrix.itemsize:
        raise ValueError("a pointer into a row that is not contiguous")
    return at(matrix[row], column)


@extending.type_callable(row_at)
def _type_row_at(_context: Any) -> Any:
    def typer(matrix: Any, row: Any, column: Any) -> Any:
        is_matrix = isinstance(matrix, types.Array) and matrix.ndim == 2 and matrix.layout in "CA"
        if not is_matrix or not isinstance(row, types.Integer) or not isinstance(column, types.Integer):
            return None
        return signature(_pointer_to(matrix.copy(layout="C")), matrix, types.intp, types.intp)

    return typer


@extending.lower_builtin(row_at, types.Array, types.Integer, types.Integer)
def _lower_row_at(context: Any, builder: Any, sig: Any, values: Any) -> Any:
    matrix = context.make_array(sig.args[0])(context, builder, values[0])
    stride = builder.extract_value(matrix.strides, 0)
    start = pointer_add(builder, matrix.data, builder.mul(values[1], stride))
    return builder.gep(start, [values[2]])


class _Restricted(Compiler):
    """numba's compiler with a flag set that no option of its decorators reaches."""

    def define_pipelines(self) -> Any:
        # the counts of references to an array that comes twice would break the promise
        if any(isinstance(argument, types.Buffer) for argument in self.state.args):
            raise TypingError("a row program takes pointers and numbers, no arrays")
        self.state.flags.noalias = True
        return super().define_pipelines()


RESTRICTED = {**OPTIONS, "fastmath": FLAGS - {"contract"}, "pipeline_class": _Restricted}


def row_program(function: Function, **options: Any) -> Function:
    """Compile a function of pointers and numbers, for calls from other compiled functions; kept on disk.

    Its own products and sums are not fused to multiply-adds, as which of them are would depend on what else is
    computed beside them: a value that is computed again has the same bits. Functions that it calls keep their flags.
    Memory that the function writes to is reached by way of one of its pointers alone. Further options go to numba, such
    as `forceinline=True`, which keeps the promise where the code is copied to. Plain Python calls `.py_func`.
    """
    return compile_once(function, **RESTRICTED, **options)


def restricted(function: Function) -> Function:
    """The same as a part of whatever compiled function calls it, under the same promise; plain Python elsewhere."""
    registered: Function = extending.register_jitable(pipeline_class=_Restricted, **OPTIONS)(function)
    return registered
