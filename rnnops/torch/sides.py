"""Sides: where the tensors of a recurrence lie, and what runs there."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rnnops.torch import cuda_calls
from rnnops.torch.cuda_side import CudaSide
from rnnops.torch.errors import StepError
from rnnops.torch.host_side import HOST, HostSide

Side = HostSide | CudaSide


def side_of(tensors: Sequence[Tensor]) -> Side:
    """Where states, inputs and lengths lie: the CUDA device that one is on, and all have to be, else the host."""
    if not any(map(cuda_calls.is_on_card, tensors)):  # most calls
        return HOST
    found = dict.fromkeys(map(cuda_calls.device_of, tensors))
    card = next(device for device in found if device.type == "cuda")
    if len(found) > 1:
        raise StepError(
            "states and inputs lie on two devices",
            wanted="all on one, as the module",
            came=" and ".join(map(str, found)),
            hint=f"Move them: x.to('{card}').",
        )
    return CudaSide(card)
