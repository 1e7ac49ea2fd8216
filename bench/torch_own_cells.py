"""Recurrent cells in plain PyTorch, as users write them who find no such cell in a package."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, Parameter

States = tuple[Tensor, Tensor]


class PeepholeLSTM(Module):
    """An LSTM whose gates see the cell state, each through a weight of its own."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.from_input, self.from_state = Linear(features, 4 * width), Linear(width, 4 * width, bias=False)
        self.peephole = Parameter(0.3 * torch.randn(3, width))

    def forward(self, x: Tensor, states: States) -> States:
        h, c = states
        i, f, g, o = (self.from_input(x) + self.from_state(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f + self.peephole[0] * c) * c + torch.sigmoid(i + self.peephole[1] * c) * torch.tanh(g)
        return torch.sigmoid(o + self.peephole[2] * c) * torch.tanh(c), c


class MinimalGatedUnit(Module):
    """A GRU with its two gates made one."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.gate, self.candidate = Linear(features + width, width), Linear(features + width, width)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        f = torch.sigmoid(self.gate(torch.cat([x, h], dim=-1)))
        return h + f * (torch.tanh(self.candidate(torch.cat([x, f * h], dim=-1))) - h)


class LayerNormLSTM(Module):
    """An LSTM that normalizes what its gates and its output are made of."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.from_input, self.from_state = Linear(features, 4 * width), Linear(width, 4 * width, bias=False)
        self.gates_norm, self.state_norm = LayerNorm(4 * width), LayerNorm(width)

    def forward(self, x: Tensor, states: States) -> States:
        h, c = states
        i, f, g, o = self.gates_norm(self.from_input(x) + self.from_state(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(self.state_norm(c)), c
