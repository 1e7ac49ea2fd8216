"""Two processes train a model whose parameters are sharded, beside one on the whole batch; prints how far they differ.

    torchrun --standalone --nproc-per-node 2 tests/pytorch/sharded_training.py (root | rnn | cell)

The word says what has a shard of its own beside the whole model.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import rnnops.torch as rt

T, N, D, H, STEPS = 6, 4, 3, 8, 10


class Tagger(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.rnn, self.last = torch.nn.Linear(D, 5), rt.RNN(torch.nn.LSTMCell(5, H)), torch.nn.Linear(H, 2)

    def forward(self, xs: Any) -> Any:
        return self.last(self.rnn(torch.relu(self.first(xs)))[0])


def made() -> Any:
    torch.manual_seed(0)
    return Tagger()


def train(model: Any, rows: slice) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(1)
    for _ in range(STEPS):
        xs, wanted = torch.randn(T, N, D), torch.randn(T, N, 2)
        optimizer.zero_grad()
        (model(xs[:, rows]) - wanted[:, rows]).square().mean().backward()
        optimizer.step()


def main(what: str) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    alone, sharded, mesh = made(), made(), init_device_mesh("cpu", (world,))
    for part in {"root": (), "rnn": (sharded.rnn,), "cell": (sharded.rnn.cell,)}[what]:
        fully_shard(part, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    train(alone, slice(None))
    train(sharded, slice(rank * N // world, (rank + 1) * N // world))
    pairs = zip(alone.parameters(), sharded.parameters(), strict=True)
    apart = max((one - other.full_tensor()).abs().max().item() for one, other in pairs)
    sys.stdout.write(f"apart: {apart}\n")  # at once: two processes write here
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
