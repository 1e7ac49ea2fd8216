"""Random numbers of a step: PyTorch's random functions, written by uniform numbers alone.

A trace then has one random op, `rand_like`, and a self-check can give the step of PyTorch the numbers that the
translated step draws. Normal numbers follow Box and Muller (Annals of Mathematical Statistics 29, 1958). Limits: what
is not in `FUNCTIONS` (`multinomial`, dropout of whole features, ...) stays what it is, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody has it
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rnnops.ops.random import as_floats
from rnnops.philox import uniform_rows

Draw = Callable[[Tensor], Tensor]


class RandomFunctions(TorchFunctionMode):
    """Random functions draw uniform numbers by `draw`, which gets a tensor of the shape that is wanted."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self._draw = draw

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = FUNCTIONS.get(func)
        return func(*args, **(kwargs or {})) if made is None else made(self._draw, *args, **(kwargs or {}))


class OwnDraws:
    """The uniform numbers of a translated step: those of a seed, for the random ops of a step in their order."""

    def __init__(self, seed: int) -> None:
        self._seed, self._t, self._ordinal = seed, 0, 0

    def at_step(self, t: int) -> OwnDraws:
        """From the first op of a step on."""
        self._t, self._ordinal = t, 0
        return self

    def __call__(self, like: Tensor) -> Tensor:
        rows, size = (like.shape[0], like[0].numel()) if like.dim() and like.shape[0] else (1, like.numel())
        drawn = uniform_rows(self._seed, self._ordinal, self._t, rows, size).reshape(tuple(like.shape))
        self._ordinal += 1
        dtype = np.float32 if like.dtype == torch.float32 else np.float64
        return torch.from_numpy(as_floats(drawn, dtype)).to(like.device, like.dtype)


def _normal_numbers(draw: Draw, like: Tensor) -> Tensor:
    radius = (-2.0 * torch.log1p(-draw(like))).sqrt()
    return radius * torch.cos(2.0 * pi * draw(like))


def _rand(draw: Draw, *size: Any, **options: Any) -> Tensor:
    return draw(torch.empty(*size, **_kept(options)))


def _rand_like(draw: Draw, x: Tensor, **options: Any) -> Tensor:
    return draw(torch.empty_like(x, **_kept(options)))


def _randn(draw: Draw, *size: Any, **options: Any) -> Tensor:
    return _normal_numbers(draw, torch.empty(*size, **_kept(options)))


def _randn_like(draw: Draw, x: Tensor, **options: Any) -> Tensor:
    return _normal_numbers(draw, torch.empty_like(x, **_kept(options)))


def _normal(draw: Draw, mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Tensor:
    if size is not None:
        like = torch.empty(size, **_kept(options))
    else:
        like = torch.empty_like(mean if isinstance(mean, Tensor) else std)
    return mean + std * _normal_numbers(draw, like)


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in ("dtype", "device")}


def _bernoulli(draw: Draw, x: Tensor, p: float | None = None, **_: Any) -> Tensor:
    return (draw(torch.empty_like(x)) < (x if p is None else p)).to(x.dtype)


def _dropout(draw: Draw, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not training or p == 0:
        return x
    kept = (draw(torch.empty_like(x)) >= p).to(x.dtype)
    result = x * kept * (1.0 / (1.0 - p)) if p < 1 else x * 0.0
    return x.copy_(result) if inplace else result


def _dropout_in_place(draw: Draw, x: Tensor, p: float, training: bool) -> Tensor:
    return _dropout(draw, x, p, training, inplace=True)


def _alpha_dropout(draw: Draw, x: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Klambauer and others, NeurIPS 2017: dropped elements are what SELU has at minus infinity; mean 0, variance 1."""
    if not training or p == 0:
        return x
    low, kept = -1.7580993408473766, (draw(torch.empty_like(x)) >= p).to(x.dtype)
    scale = ((1 - p) * (1 + p * low**2)) ** -0.5
    result = scale * (x * kept + low * (1 - kept)) - scale * low * p
    return x.copy_(result) if inplace else result


def _uniform_in_place(draw: Draw, x: Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> Tensor:
    return x.copy_(low + (high - low) * draw(x))


def _normal_in_place(draw: Draw, x: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return x.copy_(mean + std * _normal_numbers(draw, x))


def _bernoulli_in_place(draw: Draw, x: Tensor, p: Any = 0.5, **_: Any) -> Tensor:
    return x.copy_((draw(x) < p).to(x.dtype))


def _exponential_in_place(draw: Draw, x: Tensor, rate: float = 1.0, **_: Any) -> Tensor:
    return x.copy_(-torch.log1p(-draw(x)) / rate)


def _randint(draw: Draw, low: int, high: Any = None, size: Any = None, **options: Any) -> Tensor:
    if size is None:
        low, high, size = 0, low, high
    like = torch.empty(size, device=options.get("device"))
    return (low + torch.floor(draw(like) * (high - low))).to(options.get("dtype") or torch.int64)


def _gumbel_softmax(
    draw: Draw, x: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Jang, Gu, Poole, ICLR 2017; a hard choice has the gradient of the soft one."""
    exponential = -torch.log1p(-draw(torch.empty_like(x)))
    noise = -torch.log(exponential.clamp_min(torch.finfo(x.dtype).tiny))
    soft = torch.softmax((x + noise) / tau, dim)
    if not hard:
        return soft
    places = torch.arange(soft.shape[dim], device=x.device).reshape(
        [-1 if axis == dim % soft.dim() else 1 for axis in range(soft.dim())]
    )
    choice = (places == soft.argmax(dim, keepdim=True)).to(soft.dtype)
    return choice - soft.detach() + soft


FUNCTIONS: dict[Any, Callable[..., Tensor]] = {
    torch.rand: _rand,
    torch.rand_like: _rand_like,
    torch.randint: _randint,
    torch.randn: _randn,
    torch.randn_like: _randn_like,
    torch.normal: _normal,
    torch.bernoulli: _bernoulli,
    torch.Tensor.bernoulli: _bernoulli,
    torch.dropout: _dropout,
    torch.dropout_: _dropout_in_place,
    torch.Tensor.uniform_: _uniform_in_place,
    torch.Tensor.normal_: _normal_in_place,
    torch.Tensor.bernoulli_: _bernoulli_in_place,
    torch.Tensor.exponential_: _exponential_in_place,
    F.dropout: _dropout,
    F.alpha_dropout: _alpha_dropout,
    F.gumbel_softmax: _gumbel_softmax,
}
