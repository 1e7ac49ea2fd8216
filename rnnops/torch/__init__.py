"""PyTorch cells as compiled recurrences: `scan` and `RNN`, inside the program that they live in."""

from rnnops.torch.errors import (
    SelfCheckError as SelfCheckError,
    StepError as StepError,
    UnseenWarning as UnseenWarning,
    torch as _torch,  # first: a clear error where it is missing
)

try:
    from rnnops.torch.rnn import RNN as RNN, scan as scan
except (ImportError, AttributeError) as _error:  # of private parts, such as those behind vmap
    _came = f"{_torch.__version__}: {_error}"
    raise StepError("rnnops.torch does not know this PyTorch", wanted="PyTorch 2.13", came=_came) from _error
