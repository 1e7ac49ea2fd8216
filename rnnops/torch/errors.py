"""Errors of the PyTorch front end.

**Package.** The door to the package `torch`: a clear error where it is missing.
"""

from __future__ import annotations

from rnnops.errors import RnnopsError

SEED_OUTSIDE = "Seed by torch.manual_seed before the call, or give the noise as an input."
SHARDED = "Put fully_shard around the RNN, or a module that holds it, and not around its cell."


class StepError(RnnopsError):
    """A step does what cannot be translated, or is called with tensors that it cannot take.

    Example:
        >>> import torch
        >>> try:
        ...     ro.torch.scan(lambda h, x: (h + x if h.sum() > 0 else h, h), torch.zeros(4, 8), torch.ones(5, 4, 8))
        ... except ro.torch.StepError as error:
        ...     print(error.hint)
        Choose by torch.where, or give the answers to all such tests in order: assume=[False].
    """


class SelfCheckError(StepError):
    """The translated step and PyTorch's own do not agree: the step does what its graph does not show.

    It is raised before first use, in place of a wrong number, and names the output or the gradient.

    Example:
        >>> issubclass(ro.torch.SelfCheckError, ro.torch.StepError)
        True
    """


class UnseenWarning(UserWarning):
    """A step reads something that rnnops cannot compare before each call, such as a file or the clock.

    It is given once for each thing that is read. `RNN(..., recheck=n)` looks whether results are still right.

    Example:
        >>> issubclass(ro.torch.UnseenWarning, UserWarning)
        True
    """


try:
    import torch as torch
except ImportError as error:
    raise StepError("the package torch is missing", hint="Install it: pip install torch.") from error
