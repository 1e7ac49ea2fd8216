"""PyTorch cells as compiled recurrences: `scan` and `RNN`, inside the program that they live in."""

from rnnops.torch.errors import (
    SelfCheckError as SelfCheckError,
    StepError as StepError,
    UnseenWarning as UnseenWarning,
    torch as _torch,  # noqa: F401 - first: a clear error where it is missing
)
from rnnops.torch.rnn import RNN as RNN, scan as scan
