"""Which arrays a driver reads only to pack them, once: nobody needs these when they are packed."""

from __future__ import annotations

from rnnops.compiler.ir.kernel import Array, Do, MatrixOperand, Module, buffers_of, statements_of
from rnnops.kernels.cpu.runtime import BY_INT8, PRODUCTS, ROUNDED

PACKS = tuple(name for name in (*PRODUCTS, *ROUNDED, *BY_INT8) if name.startswith("pack_"))


def packed_once(module: Module, unpacked: int) -> frozenset[str]:
    """Names of arrays that are read where they are packed, and nowhere else.

    Args:
        unpacked: a bit for each packed matrix that is packed again in each call.
    """
    packs, others = dict[str, bool](), set[str]()
    for statement in statements_of(module.driver.body):
        if isinstance(statement, Do) and statement.function in PACKS:
            matrix, packed = statement.arguments
            assert isinstance(matrix, MatrixOperand)
            assert isinstance(packed, Array)
            again = unpacked >> int(packed.buffer.removeprefix("packed")) & 1
            packs[matrix.buffer] = packs.get(matrix.buffer, True) and not again
        else:
            others |= buffers_of(statement)
    return frozenset(name for name, once in packs.items() if once and name not in others)
