"""The training form of a recurrence: its backward step net, and the blobs it keeps of each step.

What a step keeps for the backward pass, stored as bfloat16: half the bytes, 8 digits of 24.

The forward pass goes on with the numbers themselves, so that its results do not change. States stay float32: they are
carried, and lie in their tensors anyway.

Training form: gives every RecurrentNetwork op that needs one its backward step net and the list of blobs to keep.

rewrite: `h_all, h_last = RecurrentNetwork(...)`
    -->  `h_all, h_last, step_workspaces = RecurrentNetwork(..., keep=[gates], backward=<net>)`
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from rnnops.autodiff import differentiate
from rnnops.checkpoints.policy import (
    BFLOAT16,
    DEFAULT_POLICY,
    SEGMENTS,
    Policy,
    backward_net,
    cheap_descendants,
    choose_residuals,
)
from rnnops.errors import CheckpointError, GradientError
from rnnops.interpreter import Program, fold_constants, prepare_again
from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.ops.internal import BITS, from_bfloat16, to_bfloat16
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.padding import mask_padding
from rnnops.recurrent.recurrence import Recurrence, is_training_form
from rnnops.rewrites import rewritten
from rnnops.schema import Call, schema_of
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


def training_form(
    program: Program,
    wrt: Collection[str],
    policy: Policy = DEFAULT_POLICY,
    same: Collection[str] = (),
    in_segments: Callable[[Call], bool] = lambda call: False,
) -> Net:
    """The net with its padding masked, and every recurrence on a way from `wrt` in training form.

    Args:
        policy: what the steps of cells keep.
        same: of a cell, inputs that are the same at every step.
        in_segments: whether a recurrence is to run segments of its steps again.

    Raises GradientError for a recurrence there that was built with forward_only.
    """
    program = _masked(program, same)
    active, ops = set(wrt), []
    for call in program.calls:
        differentiable = schema_of(call.op.type).differentiable
        if differentiable and any(name in active for name in call.op.inputs):
            active.update(n for n in call.op.outputs if n and is_float(program.types[n].dtype))
        is_recurrence = call.op.type == "RecurrentNetwork" and any(name in active for name in call.op.outputs)
        again = is_recurrence and in_segments(call)
        own = Policy(SEGMENTS) if again else policy
        op = _training_op(call, active, program.types, own) if is_recurrence else call.op
        ops.append(replace(op, attributes={**op.attributes, "segments": 1}) if again else op)
    return rewritten(program.net, ops)


def _masked(program: Program, same: Collection[str]) -> Program:
    """The program with its padding masked."""
    net = mask_padding(program, same)
    types = {name: program.types[name] for name in net.input_names}
    return prepare_again(program, net, types)


def plain_form(op: Op) -> Op:
    """A recurrence that keeps nothing, whether it was in training form or not."""
    if not is_training_form(op):
        return op
    attributes = {key: value for key, value in op.attributes.items() if key not in ("keep", "backward", "output_grads")}
    return replace(op, outputs=op.outputs[:-1], attributes=attributes)


def _training_op(call: Call, active: Collection[str], taken: Collection[str], policy: Policy) -> Op:
    recurrence = Recurrence(call.op, call.net)
    if call.op.attributes.get("forward_only"):
        raise GradientError(
            "this recurrence was built with forward_only=True",
            net=call.net,
            op=call.op.label,
            hint="Build it without forward_only to differentiate it.",
        )
    types, step = recurrence.step_types(input_types(recurrence, call)), cell_program(recurrence, call)
    wrt = _wanted_inputs(recurrence, call, active)
    folded = prepare_again(step, fold_constants(step), types)
    program = prepare_again(folded, training_form(folded, wrt, policy, recurrence.references), types)
    gradient = differentiate(program, wrt)
    free = _free_blobs(recurrence, program)
    recompute = recurrence.op.attributes.get("recompute", ())
    residuals = choose_residuals(program, gradient.reads, free, recompute, policy)
    cell, keep, backward = program.net, residuals.kept, backward_net(program, gradient, residuals)
    if policy.residuals == BFLOAT16:
        cell, keep, backward = round_kept(program, keep, backward)
    attributes = {
        **call.op.attributes,
        "cell": cell,
        "keep": keep,
        "backward": backward,
        "output_grads": tuple(gradient.output_grads.items()),
        "outputs_with_grads": _with_grads(recurrence, gradient.refused),
    }
    return replace(
        call.op, outputs=(*call.op.outputs, _free_name(f"{call.op.key}/step_workspaces", taken)), attributes=attributes
    )


def _free_name(name: str, taken: Collection[str]) -> str:
    """The name, with underscores behind it where a blob has it already."""
    while name in taken:
        name += "_"
    return name


def _wanted_inputs(recurrence: Recurrence, call: Call, active: Collection[str]) -> list[str]:
    """Float cell inputs whose gradients are needed: all states, and what is bound to an active blob."""
    wanted = []
    for (kind, name, outer), outer_type in zip(recurrence.bindings(), call.types, strict=True):
        if outer_type is not None and is_float(outer_type.dtype) and (kind == "initial" or outer in active):
            wanted.append(name)
    return wanted


def _with_grads(recurrence: Recurrence, refused: Mapping[str, GradientError]) -> tuple[int, ...] | None:
    """Positions that may get gradients: those of the op, less what follows from a refused output inside the cell.

    Raises GradientError where a state does, as gradients always flow back through states.
    """
    allowed: tuple[int, ...] | None = recurrence.op.attributes.get("outputs_with_grads")
    for state in recurrence.states:
        if state.output in refused:
            raise refused[state.output].again()
    names = [name for name in recurrence.output_names() for _ in ("all", "last")]
    open_ = tuple(i for i, name in enumerate(names) if name not in refused and (allowed is None or i in allowed))
    return allowed if allowed is None and len(open_) == len(names) else open_


def _free_blobs(recurrence: Recurrence, program: Program) -> set[str]:
    """Blobs of a step that are stored anyway: its inputs, its states, and step outputs that somebody reads.

    A step output that is listed for recompute, or follows from a listed blob, is not among them: it is computed again.
    """
    blobs = program.net.output_blobs
    stored = {*program.net.input_names, *(blobs[state.output] for state in recurrence.states)}
    again = cheap_descendants(program, recurrence.op.attributes.get("recompute", ()), stored)
    return stored | ({blobs[name] for name in recurrence.wanted_step_outputs} - again)
