"""What is asked of `torch.cuda`, all of it: tests that have no GPU answer in its place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def is_on_card(tensor: Tensor) -> bool:
    """Whether a tensor lies on a CUDA device."""
    return tensor.is_cuda


def device_of(tensor: Tensor) -> torch.device:
    """Where a tensor lies."""
    return tensor.device


def current_device() -> int:
    """The number of the device that is current in this thread."""
    return torch.cuda.current_device()


def current_stream(device: torch.device) -> Any:
    """The stream into which this thread's work on a device goes."""
    return torch.cuda.current_stream(device)


def is_capturing() -> bool:
    """Whether `torch.cuda.graph` captures what goes into the stream that is current."""
    return torch.cuda.is_current_stream_capturing()


def memory(nbytes: int, device: torch.device) -> Tensor:
    """Memory of a device, from PyTorch's pool, for the stream that is current, or of the graph that is captured."""
    return torch.empty(max(nbytes, 1), dtype=torch.uint8, device=device)
