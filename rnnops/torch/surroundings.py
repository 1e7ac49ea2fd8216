"""A recurrence is called as what surrounds the call wants it: with tangents in forward mode, else without.

Forward mode is `torch.autograd.forward_ad` or one `torch.func.jvp`. Other transforms of `torch.func` are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor
from torch._C._functorch import _unwrap_for_grad, _wrap_for_grad
from torch._functorch.pyfunctorch import (
    retrieve_current_functorch_interpreter,
    temporarily_clear_interpreter_stack,
)
from torch.autograd import forward_ad

from rnnops.compiler.api.gradient_net import free_prefix
from rnnops.torch.errors import StepError
from rnnops.torch.sides import SEEDS, Side, TensorRun, outputs_of


def run_recurrence(run: TensorRun, is_random: bool, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Outputs of a recurrence, in the net's order.

    Args:
        tensors: of the net's inputs, in its order.
    """
    check_surroundings()
    seed = _new_seed(run.side) if is_random else None
    return outputs_of(run, seed, tensors) if forward_ad._current_level < 0 else with_tangents(run, seed, tensors)


def with_tangents(run: TensorRun, seed: int | None, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The same in forward mode: outputs with tangents, where a tensor has one, by the run of the tangent net.

    Its outputs are nodes of autograd's graph like any others, so that tangents have gradients.
    """
    level = _level_of_jvp()
    primals, tangents = zip(*map(forward_ad.unpack_dual, tensors), strict=True)
    moving = tuple([tangent is not None for tangent in tangents])
    given = [*primals, *(tangent for tangent in tangents if tangent is not None)]
    with nullcontext() if level is None else retrieve_current_functorch_interpreter().lower():
        given = given if level is None else [_unwrap_for_grad(x, level) for x in given]
        derived = run.tangent(moving, given[: len(primals)]) if True in moving else run
        made = outputs_of(derived, seed, given)
    made = made if level is None else [_wrap_for_grad(x, level) for x in made]
    names, prefix = list(run.run.net.output_blobs), free_prefix(run.run.net, "t")
    found = dict(zip(derived.run.net.output_blobs, made, strict=True))
    pairs = [(found[name], found.get(prefix + name)) for name in names]
    return [output if moved is None else forward_ad.make_dual(output, moved) for output, moved in pairs]


def _level_of_jvp() -> int | None:
    """The level of `torch.func.jvp` where this runs in one; `check_surroundings` has refused other transforms."""
    return retrieve_current_functorch_interpreter().level() if torch._C._are_functorch_transforms_active() else None


def _new_seed(side: Side) -> int:
    if side.captures:
        raise StepError(
            "a CUDA graph is captured, and the step draws random numbers: each replay would draw the same",
            hint="Leave the recurrence out of the graph, or put the module into eval mode.",
        )
    return int(torch.randint(SEEDS, ()).item())


FOLDED = "Fold the mapped axis into the batch: xs.movedim(axis, 1).flatten(1, 2), states too, and unflatten results."
NESTED = "Use torch.autograd.grad with create_graph=True, or one torch.func.jvp."


def check_surroundings() -> None:
    """Raise StepError under transforms of torch.func, other than one jvp."""
    if not torch._C._are_functorch_transforms_active():
        return
    names = [level.key().name.lower() for level in torch._C._functorch.get_interpreter_stack() or ()]
    if names != ["jvp"]:
        problem = f"a recurrence runs under torch.func ({' in '.join(reversed(names))}), which rnnops does not support"
        raise StepError(problem, hint=FOLDED if "vmap" in names else NESTED)


def outside_of_transforms() -> AbstractContextManager[object]:
    """A step is traced and compared without tangents, and outside of `torch.func`, whose tensors have no data."""
    is_plain = forward_ad._current_level < 0 and not torch._C._are_functorch_transforms_active()
    return nullcontext() if is_plain else _outside()


@contextmanager
def _outside() -> Iterator[None]:
    with forward_ad._set_fwd_grad_enabled(False), temporarily_clear_interpreter_stack():
        yield


def check_traceable() -> None:
    """Raise StepError for a step that fails because it reads tensors of `torch.func`."""
    check_surroundings()
    if torch._C._are_functorch_transforms_active():
        hint = "Call it once outside of torch.func.jvp: the trace is kept."
        raise StepError("a step that reads tensors of torch.func.jvp was not traced before", hint=hint)
