"""Random steps of PyTorch code: ops, views, changes in place, constants, `no_grad`, surrogates, integer states."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody has it
from torch import Tensor

H = 6
Op = Callable[..., Tensor]


class Surrogate(torch.autograd.Function):
    """A step, differentiated as the arc tangent."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad / (1 + (2 * x) ** 2)


def _assigned(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 1:3] = x[:, 3:5] * 2
    return x


def _masked(x: Tensor) -> Tensor:
    x = x.clone()
    x[x > 0.5] = 0.5
    return x


def _in_place(x: Tensor) -> Tensor:
    y = x * 1.5
    y.add_(0.1).mul_(x.sigmoid())
    y[:, 0].neg_()
    return y


def _without_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = x.abs().mean(-1, keepdim=True) + 1
    return x / scale


def _filled(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], H, dtype=x.dtype)
    out[:, ::2] = x[:, ::2]
    return out


UNARY: Sequence[Op] = (
    torch.tanh,
    torch.sigmoid,
    torch.relu,
    torch.sin,
    torch.cos,
    torch.atan,
    torch.abs,
    torch.neg,
    torch.square,
    F.silu,
    F.gelu,
    F.softplus,
    F.elu,
    F.leaky_relu,
    F.logsigmoid,
    F.hardtanh,
    F.mish,
    F.softsign,
    F.selu,
    lambda x: torch.exp(-x.abs()),
    lambda x: torch.log1p(x.abs()),
    lambda x: torch.expm1(x.clamp(-2, 1)),
    lambda x: torch.sqrt(x * x + 0.3),
    lambda x: torch.rsqrt(x * x + 0.3),
    lambda x: (x * x + 1).reciprocal(),
    lambda x: torch.softmax(x, -1),
    lambda x: torch.log_softmax(x, -1),
    lambda x: F.normalize(x + 3, dim=-1),
    lambda x: F.layer_norm(x, (H,)),
    lambda x: x - x.mean(-1, keepdim=True),
    lambda x: x / (x.std(-1, keepdim=True) + 1),
    lambda x: torch.cumsum(x, -1) / H,
    lambda x: x.flip(-1),
    lambda x: x.roll(1, -1),
    lambda x: torch.round(x) * 0.1 + x,
    lambda x: x.topk(3, -1)[0].repeat(1, 2),
    lambda x: x.max(-1, keepdim=True)[0] - x,
    lambda x: x.detach() * 0.5 + x,
    lambda x: x.amax(-1, keepdim=True) * 0.3 + x,
    lambda x: x.logsumexp(-1, keepdim=True) - x,
    torch.sign,
    torch.floor,
    lambda x: x.view(-1, 2, 3).transpose(1, 2).reshape(-1, H),
    lambda x: torch.cat(x.chunk(2, -1)[::-1], -1),
    lambda x: torch.stack([x[:, i] for i in (3, 1, 4, 0, 5, 2)], -1),
    lambda x: x.unsqueeze(1).expand(-1, 3, -1).sum(1) / 3,
    lambda x: torch.where(x > 0, x, 0.2 * x),
    lambda x: x.masked_fill(x < -1, -1.0),
    lambda x: x.clamp(-0.7, 0.9),
    lambda x: F.pad(x[:, 1:-1], (1, 1)),
    lambda x: x * torch.tensor([0.5, -1.0, 0.3, 1.0, 0.7, -0.2], dtype=x.dtype),
    lambda x: x * torch.arange(H) * 0.2,
    lambda x: x @ torch.eye(H, dtype=x.dtype).flip(0),
    lambda x: torch.remainder(x, 1.3),
    lambda x: x.to(torch.int64).to(x.dtype) * 0.3 + x * 0.5,
    lambda x: (x > x.flip(-1)).to(x.dtype) + x * 0.1,
    lambda x: torch.tril(x.unsqueeze(-1) * x.unsqueeze(-2)).sum(-1) / H,
    lambda x: torch.fmod(x, 0.8),
    torch.trunc,
    lambda x: torch.einsum("ni,nj->nij", x, x).mean(1),
    lambda x: F.one_hot(x.argmax(-1), H).to(x.dtype) + x * 0.2,
    lambda x: torch.linalg.vector_norm(x, dim=-1, keepdim=True) * 0.2 + x,
    lambda x: x.gather(-1, x.argmin(-1, True)) + x,
    lambda x: x.index_select(-1, torch.tensor([1, 0, 2, 5, 4, 3])),
    lambda x: x[:, [5, 4, 3, 2, 1, 0]],
    lambda x: torch.nan_to_num(x),
    lambda x: x.pow(3) * 0.1,
    lambda x: 2.0 ** -x.abs(),
    lambda x: torch.lerp(x, -x, 0.3),
    lambda x: torch.addcmul(x, x, x, value=0.1),
    lambda x: x.prod(-1, keepdim=True) * 0.1 + x,
    lambda x: x.var(-1, keepdim=True) + x,
    Surrogate.apply,
    _assigned,
    _masked,
    _in_place,
    _without_grad,
    _filled,
)
BINARY: Sequence[Op] = (
    torch.add,
    torch.sub,
    torch.mul,
    torch.maximum,
    torch.minimum,
    lambda a, b: a / (b * b + 1),
    lambda a, b: torch.atan2(a, b.abs() + 0.1),  # elsewhere it jumps by the sign of a zero
    lambda a, b: torch.where(a > b, a, b * 0.5),
    lambda a, b: torch.cat([a[:, :3], b[:, 3:]], -1),
    torch.logaddexp,
    lambda a, b: torch.lerp(a, b, 0.25),
    lambda a, b: torch.bmm(a.unsqueeze(2), b.unsqueeze(1)).mean(1),
    lambda a, b: (a * b).sum(-1, keepdim=True) * 0.2 + a,
    lambda a, b: torch.baddbmm(a[:, None], b[:, None], torch.eye(H, dtype=a.dtype).expand(a.shape[0], H, H))[:, 0],
)


class RandomStep:
    """`step(carry, x) -> (carry, y)` for a carry of two float states and a counter, of so many random ops.

    Args:
        seed: says which ops, and the weights that the step closes over.
    """

    def __init__(self, seed: int, count: int = 7) -> None:
        draw = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        self.weights = [
            torch.randn(H, H, generator=generator, dtype=torch.float64).mul(0.4).requires_grad_() for _ in range(2)
        ]
        self.ops: list[tuple[Op, tuple[int, ...]]] = []
        for made in range(count):
            values = 3 + made
            kind = draw.random()
            if kind < 0.55:
                self.ops.append((draw.choice(UNARY), (draw.randrange(values),)))
            elif kind < 0.8:
                self.ops.append((draw.choice(BINARY), (draw.randrange(values), draw.randrange(values))))
            else:
                weight = draw.randrange(2)
                product = lambda x, w=weight: torch.tanh(x @ self.weights[w])  # noqa: E731 - a line of the program
                self.ops.append((product, (draw.randrange(values),)))
        self.last = (draw.randrange(3, 3 + count), draw.randrange(3, 3 + count))

    def __call__(self, carry: Any, x: Tensor) -> Any:
        a, b, step = carry
        values = [a, b, x]
        for op, places in self.ops:
            values.append(op(*[values[place] for place in places]))
        first, second = (torch.tanh(values[place]) for place in self.last)
        even = (step % 2 == 0).unsqueeze(-1)
        return (torch.where(even, first, a * 0.9), second, step + 1), {"y": values[-1], "count": step * 2}
