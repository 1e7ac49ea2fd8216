"""What a step keeps for the backward pass, stored as bfloat16: half the bytes, 8 digits of 24.

The forward pass goes on with the numbers themselves, so that its results do not change. States stay float32: they are
carried, and lie in their tensors anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rnnops.errors import CheckpointError
from rnnops.interpreter import Program
from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.ops.bfloat16 import BITS, from_bfloat16, to_bfloat16
from rnnops.scopes import free_name
from rnnops.types import is_float


def round_kept(program: Program, kept: Sequence[str], backward: Net) -> tuple[Net, tuple[str, ...], Net]:
    """A step, what it keeps, and its backward net, with bits of bfloat16 kept in place of floats.

    rewrite: `keep=[gates]`, `backward(gates)`
        -->  `gates/bits = ToBfloat16(gates)`, `keep=[gates/bits]`, `backward(gates/bits)`

    What backward compares stays as it is: a rounded number may not be equal to the largest one any more, and whether
    it is decides whether it has a gradient. Raises CheckpointError for a step of float64.
    """
    if program.float_dtype != "float32":
        problem = "residuals='bfloat16' rounds what would be float32"
        raise CheckpointError(problem, net=program.net.name, wanted="feeds of float32", came=program.float_dtype)
    compared, taken = _compared(backward), {*program.types, *backward.blob_names}
    rounded = [name for name in kept if is_float(program.types[name].dtype) and name not in compared]
    bits = {name: free_name(f"{name}/bits", taken) for name in rounded}
    stores = [Op(to_bfloat16.name, (name,), (stored,), {}) for name, stored in bits.items()]
    cell = program.net.with_ops([*program.net.ops, *stores]).snapshot()
    return cell, tuple(bits.get(name, name) for name in kept), _widened(backward, bits, taken, program.float_dtype)


def rounded_blobs(cell: Net) -> dict[str, str]:
    """Bits that a step keeps -> the blob that they are of."""
    return {op.outputs[0]: op.inputs[0] for op in cell.ops if op.type == to_bfloat16.name}


def _widened(backward: Net, bits: Mapping[str, str], taken: set[str], float_dtype: str) -> Net:
    """A backward net that is given bits, and reads numbers of them."""
    inputs = [Input(bits[one.name], BITS, one.shape) if one.name in bits else one for one in backward.input_specs]
    numbers, loads = {}, list[Op]()
    for name, stored in bits.items():
        whole, numbers[name] = (free_name(f"{stored}/{what}", taken) for what in ("whole", "number"))
        loads.append(Op("Cast", (stored,), (whole,), {"to": float_dtype}))
        loads.append(Op(from_bfloat16.name, (whole,), (numbers[name],), {}))
    ops = [replace(op, inputs=tuple(numbers.get(name, name) for name in op.inputs)) for op in backward.ops]
    return backward.with_ops([*loads, *ops], inputs=inputs).snapshot()


def _compared(backward: Net) -> set[str]:
    """Blobs of a backward net from which truths or whole numbers follow."""
    found: set[str] = set()
    for op in reversed(backward.ops):
        if any(name and (name in found or not is_float(backward.dtype_of(name))) for name in op.outputs):
            found.update(op.inputs)
    return found
