"""How a compiled pass uses memory: the order of its ops, then which of their buffers share a block."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rnnops.compiler.order_ops import order_ops
from rnnops.compiler.recycle import Recycled, plan_recycling
from rnnops.compiler.scan.device import Kernel
from rnnops.interpreter import Program


def arrange(
    program: Program, kernels: Mapping[str, Kernel], keep: Collection[str] = (), given: Collection[str] = ()
) -> tuple[Program, Recycled]:
    """The program in an order in which little is alive, and what shares memory in it.

    Args:
        kernels: what runs ops compiled, by key.
        keep: blobs that stay, beside outputs.
        given: inputs that are gone after their last use.
    """
    ordered = order_ops(program, {key: kernel.demand() for key, kernel in kernels.items()}, keep, given)
    return ordered, plan_recycling(ordered, kernels, keep)
