"""What a training plan saves: the training form of a net, its gradient, and what is kept, by policy or by budget."""

from __future__ import annotations

from collections.abc import Mapping

from rnnops.autodiff import GradientNet, differentiate
from rnnops.checkpoints.policy import COLLECTION, NAMES, Policy, Saving
from rnnops.checkpoints.residuals import Residuals, choose_residuals
from rnnops.errors import NothingToRecomputeError
from rnnops.interpreter import Program, prepare
from rnnops.net import Net
from rnnops.recurrent.training_form import plain_form, training_form
from rnnops.recurrent.workspace_bytes import bytes_of_blobs
from rnnops.types import Type

Saved = tuple[Program, GradientNet, Residuals]


def choose_saved(live: Program, types: Mapping[str, Type], wrt: tuple[str, ...], saving: Saving) -> Saved:
    """The forward net in training form, its gradient net, and what is kept between them.

    Raises CheckpointError where a policy or a budget does not fit the net.
    """
    return _by_policy(live, types, wrt, saving.policy)


def _by_policy(live: Program, types: Mapping[str, Type], wrt: tuple[str, ...], policy: Policy) -> Saved:
    program = prepare(training_form(live, wrt, policy), types, live.float_dtype)
    gradient = differentiate(program, wrt)
    free, nbytes = set(program.net.input_names), bytes_of_blobs(program)
    residuals = choose_residuals(program, gradient.reads, free, (), policy, nbytes)
    _check(program, residuals, policy)
    return _without_unkept(program, types, residuals), gradient, residuals


def _without_unkept(program: Program, types: Mapping[str, Type], residuals: Residuals) -> Program:
    """The forward net in which recurrences that backward runs again keep nothing."""
    ops = [
        plain_form(op) if op.type == "RecurrentNetwork" and op.outputs[-1] not in residuals.kept else op
        for op in program.net.ops
    ]
    return prepare(program.net.with_ops(ops).snapshot(), types, program.float_dtype)


def _check(program: Program, residuals: Residuals, policy: Policy) -> None:
    """Raise an error where a policy that was asked for changes nothing."""
    recurrences = [op for op in program.net.ops if op.type == "RecurrentNetwork" and "backward" in op.attributes]
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
