"""The runtime: what drivers call by name, compiled once on a machine: products, packing, barriers, lists of rows."""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from rnnops.kernels.cpu import active_rows, barrier
from rnnops.kernels.cpu.called_by_name import called_by_name
from rnnops.kernels.cpu.drivers import NUMBERS
from rnnops.kernels.cpu.entries import link_entries
from rnnops.kernels.cpu.fastmath import OPTIONS
from rnnops.kernels.cpu.gemm import gemm


@cache
def runtime(dtype: str, width: int | None) -> dict[str, str]:
    """What drivers may call, and its name in LLVM, which knows it from now on.

    Args:
        dtype: of products.
        width: of vectors in bits; the host's if None.
    """
    products, vector, matrix, part = gemm(dtype, width), f"{dtype}[]", f"{dtype}[][]", ["int64"] * 4
    found = {
        "gemm_packed": (products.gemm_packed, [matrix, vector, matrix, "bool", vector, *part]),
        "gemm_tn": (products.gemm_tn, [matrix, matrix, matrix, "bool", *part]),
        "pack_into": (products.pack_into, [matrix, vector]),
        "pack_transposed_into": (products.pack_transposed_into, [matrix, vector]),
        "wait": (_wait(), ["int64[]", "int64"]),
        "list_rows": (_list_rows(), ["int64[]", "int64[]", *part, "int64[]", "int64"]),
    }
    entries = link_entries({function.symbol: kinds for function, kinds in found.values()})
    return {name: entries[function.symbol] for name, (function, _) in found.items()}


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
