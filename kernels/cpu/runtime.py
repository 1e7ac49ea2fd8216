"""The runtime: what drivers call by name, compiled once on a machine: products, packing, barriers, lists of rows."""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from rnnops.kernels.cpu import active_rows, barrier
from rnnops.kernels.cpu.called_by_name import called_by_name
from rnnops.kernels.cpu.drivers import NUMBERS
from rnnops.kernels.cpu.fastmath import OPTIONS
from rnnops.kernels.cpu.gemm import gemm

PRODUCTS = ("gemm_packed", "gemm_tn", "pack_into", "pack_transposed_into")


@cache
def runtime(dtype: str, width: int | None) -> dict[str, str]:
    """What drivers may call, and its name in LLVM, which knows it from now on.

    Args:
        dtype: of products.
        width: of vectors in bits; the host's if None.
    """
    products = gemm(dtype, width)
    functions = {name: getattr(products, name) for name in PRODUCTS}
    functions |= {"wait": _wait(), "list_rows": _list_rows()}
    return {name: function.symbol for name, function in functions.items()}


@cache
def _wait() -> Any:
    def wait(numbers: Any, threads: int) -> None:
        barrier.wait(numbers, threads)

    return called_by_name(wait, types.void(NUMBERS, types.int64), **OPTIONS)


@cache
def _list_rows() -> Any:
    integers = (types.int64,) * 4
    kind = types.int64(NUMBERS, NUMBERS, *integers, NUMBERS, types.int64)
    return called_by_name(active_rows.list_rows, kind, **OPTIONS)
