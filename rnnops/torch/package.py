"""The door to the package `torch`: a clear error where it is missing."""

from __future__ import annotations

from rnnops.torch.errors import StepError

try:
    import torch as torch
except ImportError as error:
    raise StepError("the package torch is missing", hint="Install it by pip install 'rnnops[torch]'.") from error
