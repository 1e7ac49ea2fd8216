"""PyTorch's own loop over a step, for steps that no one graph stands for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rnnops.torch.traced import FlatStep


def run_plainly(
    function: FlatStep,
    states: Sequence[Tensor],
    inputs: Sequence[Tensor],
    lengths: Tensor | None,
    reverse: bool,
    batch_axis: int,
) -> tuple[list[Tensor], list[Tensor]]:
    """Last states, and results of all steps."""
    carried, rows, steps = list(states), [], inputs[0].shape[0]
    for t in reversed(range(steps)) if reverse else range(steps):
        results = list(function(*carried, *[sequence[t] for sequence in inputs]))
        found, ys = results[: len(states)], results[len(states) :]
        if lengths is not None:
            live = t < lengths
            found = [_where(live, new, old, batch_axis) for new, old in zip(found, carried, strict=True)]
            ys = [_where(live, y, torch.zeros_like(y), 0) for y in ys]
        carried = found
        rows.append(ys)
    if reverse:
        rows.reverse()
    return carried, [torch.stack(list(column)) for column in zip(*rows, strict=True)]


def _where(live: Tensor, new: Tensor, old: Tensor, axis: int) -> Tensor:
    if not -new.dim() <= axis < new.dim():
        return new
    shape = [1] * new.dim()
    shape[axis] = len(live)
    return torch.where(live.reshape(shape), new, old)
