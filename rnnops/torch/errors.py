"""Errors of the PyTorch front end.

**Package.** Importing this module raises a clear error if the package `torch` is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rnnops.errors import RnnopsError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

BY_HAND = 'Write the inner gradient by hand, as ops of the step: docs/pytorch.md, "Gradients within a step".'
GIVE_INIT = "Give the call init=, tensors [N, ...]: rnn(xs, init)."
IN_PLACE = "A step must not change a state or an input in place: write h = 0.5 * h, or h = h.clone() first."
SEED_OUTSIDE = "Seed by torch.manual_seed before the call, or give the noise as an input."
ONE_DTYPE = "Give states, inputs and parameters one float dtype, and convert outside of the step."
SHARDED = "Put fully_shard around the RNN, or a module that holds it, and not around its cell."


class StepError(RnnopsError):
    """A step does something that cannot be translated, or is called with tensors that it cannot take.

    Example:
        >>> import torch
        >>> try:
        ...     ro.torch.scan(lambda h, x: (h + x if h.sum() > 0 else h, h), torch.zeros(4, 8), torch.ones(5, 4, 8))
        ... except ro.torch.StepError as error:
        ...     print(error.hint)
        Choose by torch.where, or give the answers to all such tests in order: assume=[False].
    """


class SelfCheckError(StepError):
    """The translated step and PyTorch's own differ: the step does something that its graph does not show.

    It is raised before the step's first use, so that no wrong number comes out. It names the output or the gradient.

    Example:
        >>> issubclass(ro.torch.SelfCheckError, ro.torch.StepError)
        True
    """


class UnseenWarning(UserWarning):
    """A step reads something that rnnops cannot compare before each call, such as a file or the clock.

    It is given once for each thing that is read. `RNN(..., recheck=n)` repeats the self-check at every n-th call.

    Example:
        >>> issubclass(ro.torch.UnseenWarning, UserWarning)
        True
    """


try:
    import torch as torch
except ImportError as error:
    raise StepError("the package torch is missing", hint="Install it: pip install torch.") from error


def failed_step(
    error: Exception, states: Sequence[Tensor], inputs: Sequence[Tensor], cell: Module | None, is_left_out: bool
) -> StepError:
    """The error for a step that fails. It says the sizes that the step got, dtypes if these do not fit, and what to do.

    Args:
        inputs: of all steps, [T, N, ...].
        is_left_out: True if init is left out, so that states are zeros.
    """
    text = str(error).partition("\n")[0].removesuffix(".")
    if "data-dependent" in text or "SymInt" in text:
        problem = "a step computes with sizes that follow from data, as with how many elements a mask picks"
        other = "Use torch.where; or name a mask once, m = y > 0; z = y[m], and put elements back: y[m] = f(z)."
        return StepError(problem, came=text, hint=other)
    zeros = " of zeros, as init is left out" if is_left_out else ""
    sizes = ", ".join(str([*x.shape]) for x in states), ", ".join(str([*x.shape[1:]]) for x in inputs) or None
    came = f"states {sizes[0]}{zeros}, and inputs {sizes[1]} of a step"
    dtypes = _dtypes(states, inputs, cell) if "dtype" in text or "scalar type" in text else ""
    hint = ONE_DTYPE if dtypes else _what_to_do(error, states, inputs, cell, is_left_out)
    return StepError(f"the step fails with {type(error).__name__}: {text}", came=came + dtypes, hint=hint)


def _dtypes(states: Sequence[Tensor], inputs: Sequence[Tensor], cell: Module | None) -> str:
    """Dtypes of states, inputs and the first parameter of each dtype."""
    named = {f"state_{i}": x.dtype for i, x in enumerate(states)} | {
        f"input_{i}": x.dtype for i, x in enumerate(inputs)
    }
    parameters = {} if cell is None else {x.dtype: f"cell.{name}" for name, x in [*cell.named_parameters()][::-1]}
    named |= {name: dtype for dtype, name in parameters.items()}
    return "".join(f", {name} {dtype}" for name, dtype in named.items())


def _what_to_do(
    error: Exception, states: Sequence[Tensor], inputs: Sequence[Tensor], cell: Module | None, is_left_out: bool
) -> str | None:
    width, batches = getattr(cell, "hidden_size", None), {state.shape[0] for state in states if state.dim() > 1}
    if "leaf Variable that requires grad is being used in an in-place operation" in str(error):
        return IN_PLACE
    if "does not require grad and does not have a grad_fn" in str(error):  # raised by torch.autograd.grad
        return BY_HAND
    if is_left_out:  # a RuntimeError comes from sizes
        return None if type(error) is RuntimeError else GIVE_INIT
    if inputs and all(x.dim() > 2 and {x.shape[0]} == batches != {x.shape[1]} for x in inputs):
        N, T = inputs[0].shape[:2]
        rows = f"xs {[*inputs[0].shape]} is read as {N} steps of {T} rows"
        turned = "For [N, T, ...] use RNN(batch_first=True), or transpose xs."
        return f"Inputs are time-major, [T, N, ...]: {rows}. {turned}"
    wanted = [inputs[0].shape[1], width] if inputs and inputs[0].dim() > 2 and isinstance(width, int) else None
    if wanted and any([*state.shape] != wanted for state in states):
        is_layered = any(state.dim() == 3 for state in states)
        return f"The states of this cell are {wanted}" + ", without the axis of layers that nn.GRU has." * is_layered
    return None
