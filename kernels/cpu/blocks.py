"""Parts of matrix products as functions that run twofold: compiled by numba, and in plain Python with NumPy.

`multiply_block`, `copy_panel` and `stack_panel` are ordinary functions: called from Python, or with
NUMBA_DISABLE_JIT=1, they do their work with NumPy (and add in NumPy's order). In a function that numba compiles, the
call becomes one to the code of `micro_kernel.py`. They are typed and lowered by numba's extension API rather than by
`@intrinsic`, whose results cannot be called from Python, and are pickled under a random number, which keeps functions
that close over them out of numba's disk cache.

The vector width must be known when the caller is compiled: a number in its source, or an integer that it closes over;
and `linking.link` must have been called for it.
Nothing is checked here: `gemm.py` and `packing.py` see to shapes and strides. No index is negative.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import signature
from numba.extending import lower_builtin, type_callable
from numba.np.arrayobj import populate_array

from rnnops.kernels.cpu.linking import declare
from rnnops.kernels.cpu.micro_kernel import PANEL_VECTORS, PANELS_AT_ONCE, Operands
from rnnops.kernels.cpu.vectors import BYTES, FLOATS, I64, ITEM_SIZES, lanes

K_BLOCK = 512  # rows of a panel that `stack_panel` has room for
NOTHING, C_ITSELF, BIAS = 0, 1, 2  # what a product is added to
WIDEST = PANEL_VECTORS * max(max(some) for some in PANELS_AT_ONCE.values())  # vectors of a tile


def multiply_block(
    width: int, A: Any, packed: Any, start: int, stride: int, C: Any, bias: Any, addend: int, row: int, row_end: int,
    column: int, column_end: int, vectors: int, panels: int, k: int, k_end: int, later: Any, later_at: int,
) -> None:  # fmt: skip
    """C[row:row_end, column:] = addend + A[row:row_end, k:k_end] @ B, up to column_end.

    Args:
        A: [M, K], any strides.
        packed: 1-D; from `start` on panels of B's rows k:k_end, each `vectors` vectors wide, `stride` numbers apart.
        C: [M, N], contiguous rows.
        bias: [N].
        addend: NOTHING, C_ITSELF or BIAS.
        later: where the next call's B comes from: a packed array, from `later_at` on, or a matrix, from that column on.
    """
    wide = vectors * lanes(width, A.dtype.name)
    for panel in range(panels):
        first, at = column + panel * wide, start + panel * stride
        stop = min(first + wide, column_end)
        B = packed[at : at + (k_end - k) * wide].reshape(k_end - k, wide)[:, : stop - first]
        target = C[row:row_end, first:stop]
        product = A[row:row_end, k:k_end] @ B
        np.add((np.zeros(1, C.dtype), target, bias[first:stop])[addend], product, out=target)


def copy_panel(
    width: int, B: Any, k: int, k_end: int, column: int, column_end: int, vectors: int, packed: Any, start: int
) -> None:
    """Rows k:k_end of B [K, N], `vectors` vectors from `column` on, zeros from column_end on; B has contiguous rows."""
    wide = vectors * lanes(width, B.dtype.name)
    panel = packed[start : start + (k_end - k) * wide].reshape(k_end - k, wide)
    there = min(wide, column_end - column)
    panel[:, :there] = B[k:k_end, column : column + there]
    panel[:, there:] = 0


def stack_panel(width: int, B: Any) -> Any:
    """Room for a panel of K_BLOCK rows, 96 KiB at 512 bits; it goes when the caller returns."""
    return np.empty(K_BLOCK * PANEL_VECTORS * lanes(width, B.dtype.name), B.dtype)


def _typed(function: Callable[..., Any], result: Callable[..., Any]) -> None:
    """Types `function(width, *operands)`: arrays as they come, every other operand as an integer."""

    @wraps(function)  # numba reads the names of parameters
    def typer(*operands: Any) -> Any:
        width, *rest = operands
        if not isinstance(width, types.IntegerLiteral):
            return None
        return signature(result(*rest), width, *(x if isinstance(x, types.Array) else types.intp for x in rest))

    type_callable(function)(lambda _context: typer)


_typed(multiply_block, lambda *_: types.none)
_typed(copy_panel, lambda *_: types.none)
_typed(stack_panel, lambda B: types.Array(B.dtype, 1, "C"))


@lower_builtin(multiply_block, types.IntegerLiteral, types.VarArg(types.Any))
def _lower_multiply_block(context: Any, builder: Any, sig: Any, values: Any) -> Any:
    width, dtype = sig.args[0].literal_value, str(sig.args[1].dtype)
    x = _operands(multiply_block, context, builder, sig, values)
    count, item = I64(lanes(width, dtype)), I64(ITEM_SIZES[dtype])
    wide = builder.mul(x.vectors, count)
    last_column = builder.add(x.column, builder.sub(builder.mul(wide, x.panels), count))
    addend, addend_row = _addends(
        builder, dtype, x.addend, x.C.at(x.row, x.column), x.C.strides[0], x.bias.at(x.column)
    )
    if x.later.dimensions == 1:
        ahead, ahead_row = x.later.at(x.later_at), builder.mul(wide, item)
    else:
        ahead, ahead_row = x.later.at(x.k, x.later_at), x.later.strides[0]
    operands = Operands(
        a=x.A.at(x.row, x.k),
        a_row=x.A.strides[0],
        a_step=x.A.strides[1],
        b=x.packed.at(x.start),
        b_panel=builder.mul(x.stride, item),
        k=builder.sub(x.k_end, x.k),
        addend=addend,
        addend_row=addend_row,
        c=x.C.at(x.row, x.column),
        c_row=x.C.strides[0],
        last=builder.sub(x.column_end, last_column),
        ahead=ahead,
        ahead_row=ahead_row,
        ahead_rate=I64(2**32),
    )
    function = declare(builder.module, "block", dtype, width)
    builder.call(function, [builder.sub(x.row_end, x.row), x.vectors, x.panels, *operands.values()])
    return context.get_dummy_value()


@lower_builtin(copy_panel, types.IntegerLiteral, types.VarArg(types.Any))
def _lower_copy_panel(context: Any, builder: Any, sig: Any, values: Any) -> Any:
    width, dtype = sig.args[0].literal_value, str(sig.args[1].dtype)
    x = _operands(copy_panel, context, builder, sig, values)
    count, rows = lanes(width, dtype), builder.sub(x.k_end, x.k)
    for vectors in range(1, PANEL_VECTORS + 1):
        with builder.if_then(builder.icmp_unsigned("==", x.vectors, I64(vectors))):
            last = builder.sub(x.column_end, builder.add(x.column, I64((vectors - 1) * count)))
            function = declare(builder.module, f"copy{vectors}", dtype, width)
            builder.call(function, [x.B.at(x.k, x.column), x.B.strides[0], x.packed.at(x.start), rows, last])
    return context.get_dummy_value()


@lower_builtin(stack_panel, types.IntegerLiteral, types.Array)
def _lower_stack_panel(context: Any, builder: Any, sig: Any, _values: Any) -> Any:
    width, dtype = sig.args[0].literal_value, str(sig.args[1].dtype)
    size, item = K_BLOCK * PANEL_VECTORS * lanes(width, dtype), I64(ITEM_SIZES[dtype])
    with builder.goto_entry_block():
        memory = builder.alloca(ir.ArrayType(FLOATS[dtype], size))
    memory.align = 64
    array = context.make_array(sig.return_type)(context, builder)
    data = builder.bitcast(memory, FLOATS[dtype].as_pointer())
    populate_array(array, data=data, shape=[I64(size)], strides=[item], itemsize=item, meminfo=None)
    return array._getvalue()


class _Array:
    """Pointers into a numba array; strides are in bytes."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.builder, self.data = builder, builder.bitcast(array.data, BYTES)
        self.strides = cgutils.unpack_tuple(builder, array.strides)
        self.dimensions = len(self.strides)

    def at(self, *indices: Any) -> Any:
        """A pointer to one element."""
        pointer = self.data
        for index, stride in zip(indices, self.strides, strict=True):
            pointer = self.builder.gep(pointer, [self.builder.mul(index, stride)])
        return pointer


def _operands(function: Callable[..., Any], context: Any, builder: Any, sig: Any, values: Any) -> Any:
    """LLVM values by the names of the function's parameters, arrays as `_Array`."""
    named = zip(inspect.signature(function).parameters, sig.args, values, strict=True)
    return SimpleNamespace(
        **{n: _Array(context, builder, t, v) if isinstance(t, types.Array) else v for n, t, v in named}
    )


def _addends(builder: Any, dtype: str, addend: Any, c: Any, c_row: Any, bias: Any) -> tuple[Any, Any]:
    """Where the addends are, and their stride from row to row: C itself, or one row of biases or zeros for all rows."""
    is_c, is_bias = (builder.icmp_unsigned("==", addend, I64(kind)) for kind in (C_ITSELF, BIAS))
    row = builder.select(is_bias, bias, builder.bitcast(_zeros(builder.module, dtype), BYTES))
    return builder.select(is_c, c, row), builder.select(is_c, c_row, I64(0))


def _zeros(module: Any, dtype: str) -> Any:
    """A row of zeros as long as the widest tile is at 512 bits."""
    name = f"rnnops_zeros_{dtype}"
    if name not in module.globals:
        row = ir.ArrayType(FLOATS[dtype], WIDEST * lanes(512, dtype))
        zeros = ir.GlobalVariable(module, row, name)
        zeros.initializer, zeros.linkage, zeros.global_constant = ir.Constant(row, None), "linkonce_odr", True
    return module.globals[name]
