"""Training form: gives every RecurrentNetwork op that needs one its backward step net and the list of blobs to keep.

rewrite: `h_all, h_last = RecurrentNetwork(...)`
    -->  `h_all, h_last, step_workspaces = RecurrentNetwork(..., keep=[gates], backward=<net>)`
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from rnnops.autodiff import differentiate
from rnnops.checkpoints.policy import BFLOAT16, SEGMENTS, Policy
from rnnops.checkpoints.residuals import DEFAULT_POLICY, backward_net, cheap_descendants, choose_residuals
from rnnops.errors import GradientError
from rnnops.fold_constants import fold_constants
from rnnops.interpreter import Program, prepare_again
from rnnops.net import Net
from rnnops.op import Op
from rnnops.recurrent.mask_padding import mask_padding
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence, is_training_form
from rnnops.recurrent.round_kept import round_kept
from rnnops.rewritten import rewritten
from rnnops.schema import Call, schema_of
from rnnops.types import is_float


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
