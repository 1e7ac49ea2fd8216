"""The runtime: what drivers call by name, compiled once on a machine: products, packing, barriers, lists of rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from numba import types

from rnnops.kernels.cpu import active_rows, barrier
from rnnops.kernels.cpu.called_by_name import called_by_name
from rnnops.kernels.cpu.drivers import NUMBERS
from rnnops.kernels.cpu.entries import link_entry
from rnnops.kernels.cpu.fastmath import OPTIONS
from rnnops.kernels.cpu.gemm import gemm


def runtime(names: Iterable[str], dtype: str, width: int | None) -> dict[str, str]:
    """What drivers call -> its name in LLVM, which knows it from now on.

    Args:
        names: of what is called.
        dtype: of products.
        width: of vectors in bits; the host's if None.
    """
    return {name: _entry(name, dtype, width) for name in names}


@cache
def _entry(name: str, dtype: str, width: int | None) -> str:
    vector, matrix, part = f"{dtype}[]", f"{dtype}[][]", ["int64"] * 4
    kinds = {
        "gemm_packed": [matrix, vector, matrix, "bool", vector, *part],
        "gemm_tn": [matrix, matrix, matrix, "bool", *part],
        "pack_into": [matrix, vector],
        "pack_transposed_into": [matrix, vector],
        "wait": ["int64[]", "int64"],
        "list_rows": ["int64[]", "int64[]", *part, "int64[]", "int64"],
    }
    others = {"wait": _wait, "list_rows": _list_rows}
    function = others[name]() if name in others else getattr(gemm(dtype, width), name)
    return link_entry(function.symbol, kinds[name])


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
