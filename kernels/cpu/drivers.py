"""Drivers: functions that every thread of a run calls with its rank; one signature for all.

The arrays of a run come as one array of numbers: the addresses of NumPy's array objects, then how many elements each
has. So what starts a driver is compiled once for all of them, and Python has nothing to look up but `id`.

Limits: arrays are C-contiguous and live as long as the call; bools are read as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba.core.typing.templates import signature
from numba.np.arrayobj import populate_array

from rnnops.kernels.cpu import barrier as teams
from rnnops.kernels.cpu.called_by_name import called_by_name
from rnnops.kernels.cpu.fastmath import OPTIONS, Function, extending, types
from rnnops.kernels.cpu.machine_code import compile_once
from rnnops.kernels.cpu.pointers import RESTRICTED
from rnnops.kernels.cpu.vectors import I64

NUMBERS = types.int64[::1]
HEADER = object.__basicsize__  # of an object, behind which NumPy's C interface has the address of an array's memory


def driver(function: Function) -> Function:
    """Compile `function(rank, threads, barrier, status, sizes, arrays)`, to be started by its address alone."""
    kind = types.void(types.int64, types.int64, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
    return compile_once(function, kind, no_cpython_wrapper=True, **OPTIONS)


def row_program(*kinds: str) -> Callable[[Function], Callable[..., Any]]:
    """Compile a function of pointers and numbers for drivers, which call it by name.

    Copies of it in drivers would have other bits where they come from the disk than where they were compiled.

    Args:
        kinds: of its parameters, such as "int64" and "float32*".
    """
    found = [
        types.CPointer(getattr(types, kind[:-1])) if kind.endswith("*") else getattr(types, kind) for kind in kinds
    ]
    return lambda function: called_by_name(function, types.void(*found), no_cpython_wrapper=True, **RESTRICTED)


def as_numbers(arrays: Sequence[Any]) -> Any:
    """Arrays as drivers take them."""
    return np.array([*map(id, arrays), *(array.size for array in arrays)], np.int64)


def memory(arrays: Any, place: int, count: int, dtype: Any) -> Any:
    """One of `count` arrays, by its place, as an array of one axis. In plain Python arrays are a list."""
    return arrays[place]


@extending.type_callable(memory)
def _type_memory(_context: Any) -> Any:
    def typer(arrays: Any, place: Any, count: Any, dtype: Any) -> Any:
        return signature(dtype.dtype[::1], arrays, types.intp, types.intp, dtype)

    return typer


@extending.lower_builtin(memory, NUMBERS, types.Integer, types.Integer, types.Any)
def _lower_memory(context: Any, builder: Any, sig: Any, values: Any) -> Any:
    arrays, place, count, _ = values
    numbers = context.make_array(NUMBERS)(context, builder, arrays).data
    known, size = (builder.load(builder.gep(numbers, [at])) for at in (place, builder.add(place, count)))
    data = context.get_data_type(sig.return_type.dtype).as_pointer()
    address = builder.load(builder.inttoptr(builder.add(known, I64(HEADER)), data.as_pointer()))
    array, item = context.make_array(sig.return_type)(context, builder), context.get_abi_sizeof(data.pointee)
    populate_array(array, address, shape=[size], strides=[I64(item)], itemsize=I64(item), meminfo=None)
    return array._getvalue()


def wait(barrier: Any, threads: int) -> None:
    """`barrier.wait`, by name."""
    teams.wait(barrier, threads)


wait = called_by_name(wait, types.void(NUMBERS, types.int64), **OPTIONS)
