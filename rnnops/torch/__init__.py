"""PyTorch cells as compiled recurrences: `scan` and `RNN`, inside the program that they live in."""

from rnnops.torch.errors import (
    SelfCheckError as SelfCheckError,
    StepError as StepError,
    UnseenWarning as UnseenWarning,
    torch as _torch,  # first, so that a missing torch gives a clear error
)

try:
    from rnnops.torch.rnn import RNN as RNN, scan as scan
except (ImportError, AttributeError) as _error:  # a private part of PyTorch, such as the parts behind vmap, is missing
    _came = f"{_torch.__version__}: {_error}"
    raise StepError("rnnops.torch does not know this PyTorch", wanted="PyTorch 2.13", came=_came) from _error
