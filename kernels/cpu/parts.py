"""What generated drivers use: shares of rows, matrices in flat memory, safe indices, the border between two steps."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from rnnops.kernels.cpu.bits import primitive
from rnnops.kernels.cpu.fastmath import inlined, types


@inlined
def part(rank: int, threads: int, count: int, block: int) -> tuple[int, int]:
    """First and last (not included) of the `count` things that a thread takes, in whole blocks but for the last."""
    blocks = (count + block - 1) // block
    return min(count, blocks * rank // threads * block), min(count, blocks * (rank + 1) // threads * block)


@inlined
def matrix(array: Any, start: int, rows: int, stride: int, column: int, columns: int) -> Any:
    """`[rows, columns]` in a 1-D array: rows begin at `start + column`, `stride` numbers apart."""
    return array[start : start + rows * stride].reshape((rows, stride))[:, column : column + columns]


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
