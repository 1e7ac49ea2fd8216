"""Train a PyTorch model with an rnnops recurrence on several processes or machines; go on where a killed run stopped.

    python examples/pytorch_many_processes.py --folder run
    torchrun --standalone --nproc-per-node 2 --max-restarts 9 examples/pytorch_many_processes.py --folder run

Each process takes its share of every batch, DistributedDataParallel averages the gradients, and the numbers are those
of one process on the whole batch. If one dies torchrun starts all anew, and they go on from the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import rnnops.torch as rt

T, N, D, H = 20, 8, 5, 16
PATIENCE = 30  # seconds; gloo itself may wait for ever where others were killed, so who waits longer ends, too


class Adder(torch.nn.Module):
    """Sums up the numbers that a second feature marks, by a GRU and a layer that reads its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.last = rt.RNN(torch.nn.GRUCell(D, H)), torch.nn.Linear(H, 1)

    def forward(self, xs: Tensor) -> Tensor:
        _, state = self.rnn(xs)
        return self.last(state)[:, 0]


def batch(step: int) -> tuple[Tensor, Tensor]:
    """The whole batch of a step: sequences [T, N, D], and what is to be found [N]."""
    xs = torch.rand(T, N, D, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return xs, (xs[..., 0] * (xs[..., 1] > 0.8)).sum(0)


def save(path: Path, state: dict[str, object]) -> None:
    """Write a checkpoint as a whole or not at all."""
    torch.save(state, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def train(folder: Path, steps: int) -> None:
    """Train for so many steps in all, from the checkpoint if there is one."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    torch.manual_seed(0)
    model = Adder().double()
    optimizer, path, first = torch.optim.Adam(model.parameters(), 0.01), folder / "checkpoint.pt", 0
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    run = DistributedDataParallel(model) if world > 1 else model
    for step in range(first, steps):
        xs, wanted = batch(step)
        loss = (run(xs[:, rank::world]) - wanted[rank::world]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            save(path, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1})
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the checkpoint lies")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if "RANK" in os.environ:  # under torchrun
        signal.alarm(PATIENCE)
        dist.init_process_group("gloo")
        signal.alarm(0)
        (options.folder / f"process_{dist.get_rank()}").write_text(str(os.getpid()))
    train(options.folder, options.steps)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
