"""mLSTM chunk by chunk in PyTorch: what a matrix state costs where steps of a chunk are products of matrices.

All steps of a chunk attend to each other, weighted by the gates between them in log space, and to the state before the
chunk; states go from chunk to chunk (chunkwise-parallel linear attention: Hua and others 2022, Yang and others 2024).
Arrays lie as products want them: rows and heads first, then chunks, steps, features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rnnops.types import Array

SEQUENCES, STATES = ("seq_q", "seq_k", "seq_v", "seq_o", "seq_i", "seq_f"), ("C0", "n0", "top0")
CHUNKS = (32, 64, 128)  # steps


def chunkwise(torch: Any, given: Mapping[str, Any]) -> Any:
    """The outputs of mLSTM `[rows, chunks, steps, features]` of sequences laid out so, and of states `[rows, ...]`."""
    q, k, v, o, i, f = (given[name] for name in SEQUENCES)
    i, f = i[..., 0], f[..., 0]
    through = torch.nn.functional.logsigmoid(f).cumsum(-1)  # log decay from a chunk's start through each step
    whole = through[..., -1:]
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    paths = (through[..., :, None] - through[..., None, :] + i[..., None, :]).masked_fill(later, -math.inf)
    to_end = whole - through + i
    tops, before, after = given["top0"], [], []
    for total, top in zip(whole.unbind(1), to_end.amax(-1, keepdim=True).unbind(1), strict=True):
        before.append(tops)
        tops = torch.maximum(tops + total, top)
        after.append(tops)
    top_before, top_after = torch.stack(before, 1), torch.stack(after, 1)
    top = torch.maximum(top_before + through, paths.amax(-1))
    entering = k * torch.exp(to_end - top_after)[..., None]
    decay = torch.exp(top_before + whole - top_after)
    C, n = _at_starts(torch, given["C0"], given["n0"], decay, entering.transpose(-1, -2) @ v, entering.sum(-2))
    ahead = torch.exp(top_before + through - top)[..., None]
    scores = (q @ k.transpose(-1, -2)) * torch.exp(paths - top[..., None])
    seen = (q @ C) * ahead + scores @ v
    norm = (q @ n[..., None]) * ahead + scores.sum(-1, keepdim=True)
    return torch.sigmoid(o) * seen / norm.abs().clamp(min=1.0)


def _at_starts(torch: Any, C: Any, n: Any, decay: Any, products: Any, sums: Any) -> tuple[Any, Any]:
    """The states before each chunk."""
    matrices, vectors = [], []
    for kept, product, total in zip(decay.unbind(1), products.unbind(1), sums.unbind(1), strict=True):
        matrices.append(C)
        vectors.append(n)
        C, n = kept[..., None] * C + product, kept * n + total
    return torch.stack(matrices, 1), torch.stack(vectors, 1)


def chunkwise_runs(feeds: Mapping[str, Array], threads: int, steps: int) -> dict[str, Callable[[], Any]]:
    """A forward pass, and a training step, of feeds as `bench.matrix_states` has them, none of parts of chunks.

    Args:
        steps: of a chunk.
    """
    T, N, H, _ = feeds["seq_q"].shape
    if T % steps:
        return {}
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(threads)
    given = {
        name: torch.tensor(feeds[name]).permute(1, 2, 0, 3).reshape(N * H, T // steps, steps, -1).contiguous()
        for name in SEQUENCES
    }
    given |= {name: torch.tensor(feeds[name]).flatten(0, 1) for name in STATES}
    learnt = {name: tensor.clone().requires_grad_() for name, tensor in given.items()}

    def forward() -> Any:
        with torch.no_grad():
            return chunkwise(torch, given)

    def training() -> Any:
        for tensor in learnt.values():
            tensor.grad = None
        chunkwise(torch, learnt).sum().backward()
        return {name: tensor.grad for name, tensor in learnt.items()}

    return {"forward": forward, "training": training}
