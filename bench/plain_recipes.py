"""Recipes in plain PyTorch, after papers whose code is not a package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn import Module

from bench.problems import Size
from bench.recipes import Log, Scan, Training


def by_adam(module: Module, loss: Callable[[], Tensor], rate: float = 1e-3) -> Training:
    """What trains a module on one batch."""
    optimizer = torch.optim.Adam(module.parameters(), rate)

    def train(steps: int, log: Log) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
            log(value)

    return module, train


class Rssm(Module):
    """A recurrent state-space model with normal states (Hafner and others 2019, "Learning Latent Dynamics")."""

    def __init__(self, seen: int, actions: int, H: int) -> None:
        super().__init__()
        Z = H // 2
        self.embed, self.cell = nn.Linear(Z + actions, H), nn.GRUCell(H, H)
        self.prior = nn.Sequential(nn.Linear(H, H), nn.ELU(), nn.Linear(H, 2 * Z))
        self.posterior = nn.Sequential(nn.Linear(H + seen, H), nn.ELU(), nn.Linear(H, 2 * Z))
        self.decoder = nn.Sequential(nn.Linear(H + Z, H), nn.ELU(), nn.Linear(H, seen))

    @staticmethod
    def normal(numbers: Tensor) -> torch.distributions.Normal:
        mean, scale = numbers.chunk(2, -1)
        return torch.distributions.Normal(mean, F.softplus(scale) + 0.1)

    def forward(self, carry: Any, x: Any) -> Any:
        h, z = carry
        action, seen, noise = x
        h = self.cell(F.elu(self.embed(torch.cat([z, action], -1))), h)
        prior, posterior = self.normal(self.prior(h)), self.normal(self.posterior(torch.cat([h, seen], -1)))
        z = posterior.mean + posterior.stddev * noise
        divergence = torch.distributions.kl_divergence(posterior, prior).sum(-1)
        return (h, z), (torch.cat([h, z], -1), divergence)


def state_space_model(scan: Scan, size: Size) -> Training:
    """The step draws no numbers: its noise is an input, the same in both ways."""
    T, N, H = size.T, size.N, size.H
    model = Rssm(H, 4, H)
    actions, seen, noise = torch.randn(T, N, 4), torch.randn(T, N, H), torch.randn(T, N, H // 2)

    def loss() -> Tensor:
        first = torch.zeros(N, H), torch.zeros(N, H // 2)
        _, (features, divergence) = scan(model, first, (actions, seen, noise))
        return (model.decoder(features) - seen).square().mean() + divergence.clamp(min=1.0).mean()

    return by_adam(model, loss)


class Block(Module):
    """Two layers of a gated unit and a norm."""

    def __init__(self, H: int) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(H, 4 * H), nn.Linear(2 * H, H), nn.RMSNorm(H)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.up(x).chunk(2, -1)
        return self.norm(x + self.down(F.silu(gate) * up))


class Recursive(Module):
    """Answers y and reasons z, which are refined T times for each answer (Jolicoeur-Martineau 2025, "Tiny Recursive
    Model"); gradients flow through the last answer.
    """

    def __init__(self, scan: Scan, T: int, H: int) -> None:
        super().__init__()
        self.block, self.scan, self.T = nn.Sequential(Block(H), Block(H)), scan, T

    def refine(self, carry: Any, _: Any) -> Any:
        x, y, z = carry
        return (x, y, self.block(x + y + z)), None

    def recursion(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        (_, _, z), _ = self.scan(self.refine, (x, y, z), None, steps=self.T)
        return self.block(y + z), z

    def forward(self, x: Tensor) -> Tensor:
        y = z = torch.zeros_like(x)
        with torch.no_grad():
            for _ in range(2):
                y, z = self.recursion(x, y, z)
        return self.recursion(x, y, z)[0]


def recursive_model(scan: Scan, size: Size) -> Training:
    model = Recursive(scan, 6, size.H)
    x, target = torch.randn(2, size.N * size.T, size.H).unbind()
    return by_adam(model, lambda: (model(x) - target).square().mean())


class LinearRecurrentUnit(Module):
    """A block with a diagonal recurrence of complex numbers, as pairs of real ones (Orvieto and others 2023)."""

    def __init__(self, scan: Scan, H: int) -> None:
        super().__init__()
        radius, angle = torch.rand(H) * 0.09 + 0.9, torch.rand(H) * torch.pi / 10
        self.rate, self.angle = nn.Parameter((-radius.log()).log()), nn.Parameter(angle.log())
        self.gain = nn.Parameter((1 - radius**2).sqrt().log())
        self.into, self.out = nn.Linear(H, 2 * H, bias=False), nn.Linear(2 * H, H)
        self.skip = nn.Parameter(torch.ones(H))
        self.norm, self.gate, self.scan = nn.LayerNorm(H), nn.Linear(H, 2 * H), scan

    def forward(self, xs: Tensor) -> Tensor:
        normed = self.norm(xs)
        driven = self.into(normed) * self.gain.exp().repeat(2)
        size, angle = (-self.rate.exp()).exp(), self.angle.exp()
        first = driven.new_zeros(*driven.shape[1:])
        real, imaginary = size * angle.cos(), size * angle.sin()

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            a, b = h.chunk(2, -1)
            h = torch.cat([real * a - imaginary * b, imaginary * a + real * b], -1) + x
            return h, h

        _, states = self.scan(step, first, driven)
        return xs + F.glu(self.gate(F.gelu(self.out(states) + self.skip * normed)), -1)


def linear_recurrent_unit(scan: Scan, size: Size) -> Training:
    model = nn.Sequential(LinearRecurrentUnit(scan, size.H), LinearRecurrentUnit(scan, size.H))
    xs, target = torch.randn(2, size.T, size.N, size.H).unbind()
    return by_adam(model, lambda: (model(xs) - target).square().mean())
