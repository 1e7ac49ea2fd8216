"""What a caller gives to a scan: nested structures of tensors, lengths and options, looked at before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from rnnops.torch.errors import StepError

LONGEST = 2**31 - 1
OPTIONS = ("checkpoints", "memory_budget", "precision", "residuals", "threads")  # of `rnnops.compile`


class Tensors(NamedTuple):
    """The tensors of a nested structure, and the structure."""

    leaves: list[Tensor]
    tree: Any

    def nested(self, leaves: list[Tensor]) -> Any:
        """Other tensors in this structure."""
        return pytree.tree_unflatten(leaves, self.tree)


def tensors_of(what: str, tree: Any) -> Tensors:
    """The tensors of a nested structure. Raises StepError where it holds something else."""
    leaves, structure = pytree.tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise StepError(f"{what} are tensors, and one is none", came=f"{type(leaf).__name__} {leaf!r}"[:60])
    return Tensors(leaves, structure)


def inputs_of(xs: Any) -> Tensors:
    """Inputs of a scan, of which there is one at least."""
    inputs = tensors_of("inputs", xs)
    if not inputs.leaves:
        raise StepError(
            "there are no inputs", wanted="a tensor [T, N, ...], or a structure of such", came=repr(xs)[:60]
        )
    return inputs


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a scan. Raises StepError for those that it does not have."""
    for name in options:
        if name not in OPTIONS:
            raise StepError(f"no such option: {name}=", wanted=", ".join(f"{known}=" for known in OPTIONS))
    return options


def checked_answers(assume: Any) -> tuple[bool, ...]:
    """Answers to `if tensor:`. Raises StepError for what is no list of them."""
    if not isinstance(assume, Sequence) or not all(isinstance(answer, bool) for answer in assume):
        raise StepError("assume= is no list of answers", wanted="True and False, in order", came=repr(assume)[:60])
    return tuple(assume)


def checked_axis(axis: Any) -> int:
    """The axis of the batch. Raises StepError for what is no integer."""
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise StepError("batch_axis= is no axis", wanted="an integer", came=repr(axis)[:60])
    return axis


def checked_recheck(calls: Any) -> int | None:
    """After how many calls the self-check runs again. Raises StepError for what is no positive integer."""
    if calls is None or (isinstance(calls, int) and not isinstance(calls, bool) and calls > 0):
        return calls
    raise StepError("recheck= must be a positive number of calls", came=repr(calls)[:60], hint="recheck=100, or None.")


def checked_lengths(lengths: Any, x: Tensor) -> Tensor | None:
    """Lengths as int32, of a list of integers or a tensor of any integer type, one for each row of `x [T, N, ...]`.

    For inputs on a CUDA device they may be on the CPU, from where they are copied.

    Raises StepError for others.
    """
    if lengths is None:
        return None
    given = torch.as_tensor(lengths)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise StepError("lengths are no integers", blob="lengths", came=given.dtype)
    if given.dim() != 1 or x.dim() < 2 or given.shape[0] != x.shape[1]:
        wanted = f"one for each of the {x.shape[1]} rows" if x.dim() > 1 else "inputs [T, N, ...]"
        raise StepError("lengths do not fit the inputs", blob="lengths", wanted=wanted, came=list(given.shape))
    return given.to(x.device if x.is_cuda else given.device, torch.int64).clamp(0, LONGEST).to(torch.int32)
