"""What a training plan saves: the training form of a net, its gradient, and what is kept, by policy or by budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rnnops.autodiff import differentiate
from rnnops.checkpoints.policy import COLLECTION, DEFAULT, NAMES, Policy, Saving, Slots
from rnnops.checkpoints.residuals import Residuals, choose_residuals
from rnnops.compiler.buffers.workspace_bytes import bytes_of_blobs
from rnnops.compiler.saving.choose_segments import StepsOf, goes_in_segments, with_segments
from rnnops.compiler.saving.fit_budget import Saved, fit_budget
from rnnops.errors import NothingToRecomputeError
from rnnops.interpreter import Program, prepare, prepare_again
from rnnops.net import Net
from rnnops.recurrent.op import input_types
from rnnops.recurrent.recurrence import Recurrence, is_training_form
from rnnops.recurrent.training_form import plain_form, training_form
from rnnops.rewritten import rewritten
from rnnops.schema import Call
from rnnops.types import Type


def choose_saved(
    live: Program,
    types: Mapping[str, Type],
    wrt: tuple[str, ...],
    saving: Saving,
    tile: Callable[[int, int], int],
    segments: StepsOf | None = None,
) -> Saved:
    """The forward net in training form, its gradient net, and what is kept between them.

    Args:
        tile: T and N of a recurrence -> steps of a tile of kernels.
        segments: says how recurrences can go in segments, None where none can.

    Raises CheckpointError where a policy or a budget does not fit the net.
    """
    if saving.budget is None:
        return by_policy(live, types, wrt, saving.policy, segments)

    def by(policy: Policy) -> Saved:
        return by_policy(live, types, wrt, replace(policy, residuals=saving.policy.residuals), segments)

    return by(fit_budget(by, saving.budget, tile).policy)


def by_policy(
    live: Program,
    types: Mapping[str, Type],
    wrt: tuple[str, ...],
    policy: Policy,
    segments: StepsOf | None = None,
    whole: frozenset[str] = frozenset(),
) -> Saved:
    """What a policy saves.

    Args:
        segments: says how recurrences can go in segments, None where none can.
        whole: keys of recurrences that do not.

    Raises CheckpointError where it does not fit the net.
    """
    if segments is None or policy.kind != DEFAULT or policy.slots is not None:
        return _by_policy(live, types, wrt, policy, lambda call: False)
    marked = _by_policy(live, types, wrt, policy, lambda call: call.op.key not in whole and goes_in_segments(call))
    saved, refused = with_segments(marked, segments, policy.longer)
    return by_policy(live, types, wrt, policy, segments, whole | refused) if refused else saved


def _by_policy(
    live: Program,
    types: Mapping[str, Type],
    wrt: tuple[str, ...],
    policy: Policy,
    in_segments: Callable[[Call], bool],
) -> Saved:
    program = prepare_again(live, training_form(live, wrt, policy, in_segments=in_segments), types)
    if policy.slots is not None:
        program = prepare(in_parts(program, policy.slots), types, live.float_dtype)
    gradient = differentiate(program, wrt)
    free, nbytes = set(program.net.input_names), bytes_of_blobs(program)
    residuals = choose_residuals(program, gradient.reads, free, (), policy, nbytes)
    _check(program, residuals, policy)
    return _without_unkept(program, types, residuals), gradient, residuals


def in_parts(program: Program, slots: Slots) -> Net:
    """The net in training form with its recurrences in parts, where they have steps at all."""
    schedule = (slots.steps, slots.count, slots.kind, slots.cost)
    ops = [
        replace(call.op, attributes={**call.op.attributes, "schedule": schedule}) if _has_steps(call) else call.op
        for call in program.calls
    ]
    return program.net.with_ops(ops).snapshot()


def _has_steps(call: Call) -> bool:
    """Whether a call is a recurrence in training form of at least one step."""
    if not is_training_form(call.op):
        return False
    recurrence = Recurrence(call.op, call.net)
    return recurrence.steps_and_batch(input_types(recurrence, call))[0] > 0


def _without_unkept(program: Program, types: Mapping[str, Type], residuals: Residuals) -> Program:
    """The forward net in which recurrences that backward runs again keep nothing."""
    ops = [
        plain_form(op) if op.type == "RecurrentNetwork" and op.outputs[-1] not in residuals.kept else op
        for op in program.net.ops
    ]
    return prepare_again(program, rewritten(program.net, ops), types)


def _check(program: Program, residuals: Residuals, policy: Policy) -> None:
    """Raise an error where a policy that was asked for changes nothing."""
    recurrences = [op for op in program.net.ops if is_training_form(op)]
    again = residuals.rerun or any(runs_again(op.attributes["cell"], op.attributes["backward"]) for op in recurrences)
    if policy.kind in (NAMES, COLLECTION) and not again:
        raise NothingToRecomputeError(
            f"checkpoints={policy} leaves nothing to compute again",
            net=program.net.name,
            hint="Everything that backward reads is kept or at hand: leave checkpoints= out.",
        )


def runs_again(forward: Net, backward: Net) -> list[str]:
    """Blobs of a forward net that a backward net computes a second time."""
    made = {name for op in forward.ops for name in op.outputs if name}
    return [name for op in backward.ops for name in op.outputs if name in made]
