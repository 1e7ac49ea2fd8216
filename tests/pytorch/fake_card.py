"""A CUDA device of PyTorch's that is not there: tensors of the CPU that say they lie on it, its stream, its pool.

With numba's simulator below, which computes on memory of the host, values are right; with a driver that writes down
what it is asked for (`fake_driver.py`), streams and copies can be counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rnnops.torch import sides

CARD, STREAM = torch.device("cuda", 0), 7


class FakeCard:
    """What `torch.cuda` answers, and what it was asked for.

    Args:
        current: the number of the device that is current.
        captures: whether a graph is being captured.
        elsewhere: addresses of tensors that lie on the CPU.
        lent: memory of its pool, as tensors of bytes that make NaN.
    """

    def __init__(self) -> None:
        self.current, self.captures = 0, False
        self.elsewhere: set[int] = set()
        self.lent: list[Any] = []

    def device_of(self, tensor: Any) -> torch.device:
        return torch.device("cpu") if tensor.data_ptr() in self.elsewhere else CARD

    def memory(self, nbytes: int, device: torch.device) -> Any:
        assert device == CARD
        made = torch.full((max(nbytes, 1),), 255, dtype=torch.uint8)
        self.lent.append(made)
        return made

    def owns(self, tensor: Any) -> bool:
        return any(tensor.untyped_storage().data_ptr() == one.untyped_storage().data_ptr() for one in self.lent)


@contextmanager
def fake_card() -> Iterator[FakeCard]:
    """All tensors lie on a device."""
    card = FakeCard()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sides, "is_on_card", lambda tensor: card.device_of(tensor) == CARD)
        patch.setattr(sides, "device_of", card.device_of)
        patch.setattr(sides, "memory", card.memory)
        patch.setattr(sides, "current_device", lambda: card.current)
        patch.setattr(sides, "is_capturing", lambda: card.captures)
        patch.setattr(sides, "current_stream", lambda device: SimpleNamespace(cuda_stream=STREAM))
        yield card
