"""Steps of 75 kinds for `bench/kinds.py`, as functions over the operations of a library, and these operations.

A step gets operations, parameters and states by name, and the input of a step; it gives new states by name, and an
output. States have the batch first. Numbers stay small: what is new goes through tanh, or is a mean of what was there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
Step = Callable[[Any, Mapping[str, Any], Mapping[str, Any], Any], tuple[dict[str, Any], Any]]
STEPS, BATCHES = (1, 5, 17, 40, 64), (1, 2, 5, 16, 32, 33, 64)
WIDTHS = (8, 17, 32, 48, 64, 100, 128, 200)


@dataclass(frozen=True)
class Cell:
    """A cell of some sizes with its numbers."""

    sizes: str
    parameters: dict[str, Array]
    states: dict[str, Array]
    xs: Array
    dys: Array
    step: Step


Maker = Callable[[np.random.Generator], Cell]
KINDS: dict[str, Maker] = {}


class Sizes:
    """Sizes that a seed draws, and what is made of them: parameters by shape, states, a cell."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.T, self.N = rng, int(rng.choice(STEPS)), int(rng.choice(BATCHES))
        self.H = int(rng.choice(WIDTHS))

    def one_of(self, *numbers: int) -> int:
        return int(self.rng.choice(numbers))

    def numbers(self, shape: Sequence[int], scale: float) -> Array:
        return (self.rng.normal(size=shape) * scale).astype("float32")


def kind(name: str) -> Callable[[Callable[[Sizes], tuple[dict[str, Any], dict[str, Any], Sequence[int], Step]]], Any]:
    """Take a kind in: a function of sizes that gives shapes of parameters, of states, of x, and the step.

    A parameter's shape may come with how many numbers a sum over it has; else its last axis but one says so.
    """

    def added(function: Any) -> Any:
        def make(rng: np.random.Generator) -> Cell:
            sizes = Sizes(rng)
            parameters, states, x, step = function(sizes)
            fans = {n: s if isinstance(s[0], tuple) else (s, s[-2] if len(s) > 1 else 4) for n, s in parameters.items()}
            numbers = {name: sizes.numbers(shape, fan**-0.5) for name, (shape, fan) in fans.items()}
            first = {name: sizes.numbers((sizes.N, *shape), 0.3) for name, shape in states.items()}
            xs = sizes.numbers((sizes.T, sizes.N, *x), 1.0)
            _, y = step(NumpyShapes(), numbers, first, xs[0])
            dys = sizes.numbers((sizes.T, *np.shape(y)), 1.0)
            text = f"{sizes.T},{sizes.N},{'x'.join(map(str, next(iter(states.values()))))}"
            return Cell(text, numbers, first, xs, dys, step)

        KINDS[name] = make
        return function

    return added


# -- operations -------------------------------------------------------------------------------------------------------


class JaxOps:
    """Operations of JAX; those of NumPy's names are NumPy's, too."""

    def __init__(self) -> None:
        import jax
        import jax.numpy as xp

        self.jax, self.xp = jax, xp

    def __getattr__(self, name: str) -> Any:
        return getattr(self.xp, name)

    def sigmoid(self, x: Any) -> Any:
        return 0.5 * (self.xp.tanh(0.5 * x) + 1)

    def softplus(self, x: Any) -> Any:
        return self.xp.log1p(self.xp.exp(x))

    def relu(self, x: Any) -> Any:
        return self.xp.maximum(x, 0)

    def softmax(self, x: Any, axis: int) -> Any:
        e = self.xp.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        return self.xp.concatenate(parts, axis)

    def sum(self, x: Any, axis: int, keepdims: bool = False) -> Any:
        return x.sum(axis, keepdims=keepdims)

    def mean(self, x: Any, axis: int, keepdims: bool = False) -> Any:
        return x.mean(axis, keepdims=keepdims)

    def max(self, x: Any, axis: int, keepdims: bool = False) -> Any:
        return x.max(axis, keepdims=keepdims)

    def shaped(self, x: Any, *sizes: int) -> Any:
        return x.reshape(x.shape[0], *sizes)

    def turned(self, x: Any, *order: int) -> Any:
        return x.transpose(order)

    def conv(self, x: Any, w: Any, axes: int, dilation: int = 1, groups: int = 1) -> Any:
        """Of odd kernels, with as many places as before."""
        pads = [(dilation * (k // 2),) * 2 for k in w.shape[2:]]
        return self.jax.lax.conv_general_dilated(
            x, w, (1,) * axes, pads, rhs_dilation=(dilation,) * axes, feature_group_count=groups
        )

    def kth(self, x: Any, k: int) -> Any:
        """The k-th largest of each row."""
        return self.jax.lax.top_k(x, k)[0][..., -1:]


class NumpyShapes(JaxOps):
    """The same in NumPy, for shapes only: a convolution is what it is given."""

    def __init__(self) -> None:
        self.xp = np

    def conv(self, x: Any, w: Any, axes: int, dilation: int = 1, groups: int = 1) -> Any:
        return np.zeros((x.shape[0], w.shape[0], *x.shape[2:]), x.dtype)

    def kth(self, x: Any, k: int) -> Any:
        return np.sort(x, -1)[..., -k, None]


class TorchOps(JaxOps):
    """Operations of PyTorch."""

    def __init__(self) -> None:
        import torch

        self.xp = torch
        self.sigmoid, self.softplus, self.relu = torch.sigmoid, torch.nn.functional.softplus, torch.relu

    def softmax(self, x: Any, axis: int) -> Any:
        return x.softmax(axis)

    def max(self, x: Any, axis: int, keepdims: bool = False) -> Any:
        return x.amax(axis, keepdim=keepdims)

    def turned(self, x: Any, *order: int) -> Any:
        return x.permute(order)

    def conv(self, x: Any, w: Any, axes: int, dilation: int = 1, groups: int = 1) -> Any:
        function = self.xp.nn.functional.conv1d if axes == 1 else self.xp.nn.functional.conv2d
        return function(x, w, padding="same", dilation=dilation, groups=groups)

    def kth(self, x: Any, k: int) -> Any:
        return self.xp.topk(x, k).values[..., -1:]


class RnnopsOps(JaxOps):
    """Operations of rnnops."""

    def __init__(self) -> None:
        import rnnops as ro

        self.xp = ro
        self.sigmoid, self.softplus, self.relu = ro.sigmoid, ro.softplus, ro.relu

    def softmax(self, x: Any, axis: int) -> Any:
        return self.xp.softmax(x, axis=axis)

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        return self.xp.concat(*parts, axis=axis)

    def stack(self, parts: Sequence[Any], axis: int) -> Any:
        return self.xp.concat(*(self.xp.unsqueeze(part, [axis]) for part in parts), axis=axis)

    def shaped(self, x: Any, *sizes: int) -> Any:
        return self.xp.reshape(x, [0, *sizes])

    def turned(self, x: Any, *order: int) -> Any:
        return self.xp.transpose(x, list(order))

    def flip(self, x: Any, axes: Sequence[int]) -> Any:
        return self.xp.slice(x, [-1], [-(2**40)], list(axes), [-1])

    def conv(self, x: Any, w: Any, axes: int, dilation: int = 1, groups: int = 1) -> Any:
        return self.xp.conv(x, w, auto_pad="SAME_UPPER", dilations=[dilation] * axes, group=groups)

    def kth(self, x: Any, k: int) -> Any:
        return self.xp.topk(x, k)[0][..., k - 1 :]


# -- kinds ------------------------------------------------------------------------------------------------------------

Update = Callable[[Any, Any, Any, Any], Any]


def one_state(update: Update) -> Step:
    """A step of one state `h`, which is its output."""

    def step(o: Any, p: Any, s: Any, x: Any) -> tuple[dict[str, Any], Any]:
        h = update(o, p, s["h"], x)
        return {"h": h}, h

    return step


def simple(name: str, shapes: Callable[[Sizes], Any], update: Callable[[Sizes], Update]) -> None:
    """A kind of one state, from shapes of parameters, of the state and of x."""

    def made(z: Sizes) -> Any:
        parameters, state, x = shapes(z)
        return parameters, {"h": state}, x, one_state(update(z))

    kind(name)(made)


def dense(name: str, update: Update, parts: int = 1) -> None:
    """A kind with one matrix, of as many rows as the state has features."""
    simple(name, lambda z: ({"w": (z.H, parts * z.H)}, (z.H,), (z.H,)), lambda z: update)


dense("rows @ matrix", lambda o, p, h, x: o.tanh(h @ p["w"] + x))
dense("rows @ matrix turned", lambda o, p, h, x: o.tanh(h @ o.turned(p["w"], 1, 0) + x))
dense("features turned round", lambda o, p, h, x: o.tanh(o.flip(h, (1,)) @ p["w"] + x))
dense("masked weight", lambda o, p, h, x: o.tanh(h @ (p["w"] * o.tanh(9 * p["w"])) + x))
dense("antisymmetric weight", lambda o, p, h, x: h + 0.1 * o.tanh(h @ (p["w"] - o.turned(p["w"], 1, 0)) + x))
dense("softmax of a weight", lambda o, p, h, x: o.tanh(h @ o.softmax(p["w"], -1) + x))
dense("softplus of a weight", lambda o, p, h, x: o.tanh(0.02 * (h @ o.softplus(p["w"])) + x))
dense("weight over its norm", lambda o, p, h, x: o.tanh(h @ (p["w"] / o.sqrt(o.sum(p["w"] * p["w"], 0, True))) + x))
dense("mean of the batch", lambda o, p, h, x: o.tanh(h @ p["w"] + o.mean(h, 0, True) + x))
dense("gated by what comes", lambda o, p, h, x: o.tanh((h * o.sigmoid(x)) @ p["w"] + x))
dense("powers", lambda o, p, h, x: o.tanh(h @ p["w"] + 0.3 * h * h - 0.1 * h * h * h + x))
dense("thresholds", lambda o, p, h, x: 0.5 * h + o.relu(o.tanh(h @ p["w"] + x)))
dense("running sum", lambda o, p, h, x: o.tanh(o.cumsum(o.softmax(h @ p["w"] + x, -1), 1)))
dense("smoothed steps", lambda o, p, h, x: 0.9 * h + 0.1 * o.tanh(h @ p["w"] + x))
dense("three steps within", lambda o, p, h, x: rounds(o, p, h, x, 3))
dense("Runge-Kutta", lambda o, p, h, x: runge_kutta(lambda y: o.tanh(y @ p["w"] + x) - y, h))
dense("soft spikes", lambda o, p, h, x: 0.9 * h * (1 - o.sigmoid(4 * h - 2)) + 0.3 * (h @ p["w"]) + 0.3 * x)
dense("normed rows", lambda o, p, h, x: o.tanh(normed(o, h @ p["w"] + x)))
dense("distance to the mean", lambda o, p, h, x: o.tanh((h - o.mean(h, 1, True)) @ p["w"] + x))


def rounds(o: Any, p: Any, h: Any, x: Any, count: int) -> Any:
    for _ in range(count):
        h = o.tanh(h @ p["w"] + x)
    return h


def runge_kutta(f: Callable[[Any], Any], h: Any, dt: float = 0.1) -> Any:
    a = f(h)
    b = f(h + (dt / 2) * a)
    c = f(h + (dt / 2) * b)
    return h + (dt / 6) * (a + 2 * b + 2 * c + f(h + dt * c))


def normed(o: Any, x: Any) -> Any:
    centred = x - o.mean(x, -1, True)
    return centred / o.sqrt(o.mean(centred * centred, -1, True) + 1e-5)


def cut(x: Any, H: int, i: int) -> Any:
    return x[:, i * H : (i + 1) * H]


simple("joined @ matrix", lambda z: ({"w": (2 * z.H, z.H)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(o.concat([x, h], 1) @ p["w"]))  # fmt: skip
simple("low rank", lambda z: ({"u": (z.H, 4), "v": (4, z.H)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(h @ p["u"] @ p["v"] + x))  # fmt: skip
simple("matrix @ column", lambda z: ({"w": (z.H, z.H)}, (z.H, 1), (z.H, 1)),
       lambda z: lambda o, p, h, x: o.tanh(p["w"] @ h + x))  # fmt: skip
simple("every second feature", lambda z: ({"w": (z.H, 2 * z.H)}, (2 * z.H,), (2 * z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(h[:, ::2] @ p["w"] + x))  # fmt: skip
simple("half of the features", lambda z: ({"w": (z.H, 2 * z.H)}, (2 * z.H,), (2 * z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(h[:, z.H :] @ p["w"] + x))  # fmt: skip
simple("rolled features", lambda z: ({"w": (z.H, z.H)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(o.concat([h[:, 1:], h[:, :1]], 1) @ p["w"] + x))  # fmt: skip
simple("shuffled features", lambda z: ({"w": (4 * z.H, 4 * z.H)}, (4 * z.H,), (4 * z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(o.shaped(o.turned(o.shaped(h, 4, z.H), 0, 2, 1), 4 * z.H) @ p["w"] + x)
       )  # fmt: skip
simple("several rows each", lambda z: ({"w": (z.H, z.H)}, (4, z.H), (4, z.H)),
       lambda z: lambda o, p, h, x: o.tanh(h @ p["w"] + x))  # fmt: skip
simple("many rows each", lambda z: ({"w": (16, 16)}, (z.H, 16), (z.H, 16)),
       lambda z: lambda o, p, h, x: o.tanh(h @ p["w"] + x))  # fmt: skip
simple("a matrix for each head", lambda z: ({"w": (4, z.H, z.H)}, (4, z.H), (4, z.H)),
       lambda z: lambda o, p, h, x: o.tanh(o.einsum("nhd,hde->nhe", h, p["w"]) + x))  # fmt: skip
simple("a small matrix for each head", lambda z: ({"w": (z.H, 8, 8)}, (z.H, 8), (z.H, 8)),
       lambda z: lambda o, p, h, x: o.tanh(o.einsum("nhd,hde->nhe", h, p["w"]) + x))  # fmt: skip
simple("experts, mean", lambda z: ({"w": (4, z.H, z.H)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(o.mean(o.einsum("nh,ehk->nek", h, p["w"]), 1) + x))  # fmt: skip
simple("experts, gated", lambda z: ({"w": (4, z.H, z.H), "g": (z.H, 4)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(
           o.einsum("ne,enk->nk", o.softmax(x @ p["g"], -1), o.einsum("nh,ehk->enk", h, p["w"]))))  # fmt: skip
simple("mixed weights", lambda z: ({"w": (3, z.H, z.H), "g": (z.H, 3)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(
           o.einsum("nk,nkh->nh", o.softmax(h @ p["g"], -1), o.einsum("nd,kdh->nkh", h, p["w"])) + x))  # fmt: skip
simple("queue, flat", lambda z: ({"w": (4 * z.H, z.H)}, (4, z.H), (z.H,)),
       lambda z: lambda o, p, h, x: pushed(o, h, o.tanh(o.shaped(h, 4 * z.H) @ p["w"] + x)))  # fmt: skip
simple("queue, two folded axes", lambda z: ({"w": ((4, z.H, z.H), 4 * z.H)}, (4, z.H), (z.H,)),
       lambda z: lambda o, p, h, x: pushed(o, h, o.tanh(o.einsum("nkh,khe->ne", h, p["w"]) + x)))  # fmt: skip
simple("bilinear", lambda z: ({"w": ((8, z.H, z.H), 8 * z.H)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(o.einsum("ni,ijk,nj->nk", x[:, :8], p["w"], h) + x))  # fmt: skip
simple("graph", lambda z: ({"a": (z.H, z.H)}, (z.H, 16), (z.H, 16)),
       lambda z: lambda o, p, h, x: o.tanh(o.einsum("vw,nwd->nvd", p["a"], h) + x))  # fmt: skip
simple("graph and weight", lambda z: ({"a": (z.H, z.H), "w": (16, 16)}, (z.H, 16), (z.H, 16)),
       lambda z: lambda o, p, h, x: o.tanh(o.softmax(p["a"], -1) @ h @ p["w"] + x))  # fmt: skip
simple("both sides", lambda z: ({"u": (24, 24), "v": (16, 16)}, (24, 16), (24, 16)),
       lambda z: lambda o, p, h, x: o.tanh(p["u"] @ h @ p["v"] + x))  # fmt: skip
simple("both sides, one einsum", lambda z: ({"u": (24, 24), "v": (16, 16)}, (24, 16), (24, 16)),
       lambda z: lambda o, p, h, x: o.tanh(o.einsum("ij,njk,kl->nil", p["u"], h, p["v"]) + x))  # fmt: skip
simple("a state with itself", lambda z: ({"w": (1, z.H)}, (12, z.H), (12, z.H)),
       lambda z: lambda o, p, h, x: o.tanh((h @ o.turned(h, 0, 2, 1)) @ h * (0.1 * p["w"]) + x))  # fmt: skip
simple("attention among slots", lambda z: ({"q": (32, 16), "k": (32, 16), "v": (32, 32)}, (12, 32), (12, 32)),
       lambda z: lambda o, p, h, x: o.tanh(
           o.softmax((h @ p["q"]) @ o.turned(h @ p["k"], 0, 2, 1), -1) @ (h @ p["v"]) + x))  # fmt: skip
simple("attention to a memory", lambda z: ({"m": (50, z.H), "w": (z.H, z.H)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(
           o.softmax(h @ o.turned(p["m"], 1, 0), -1) @ p["m"] + x @ p["w"]))  # fmt: skip
simple("attention to what comes", lambda z: ({"q": (z.H, 16), "w": (16, z.H)}, (z.H,), (20, 16)),
       lambda z: lambda o, p, h, x: o.tanh(
           o.einsum("ns,nsd->nd", o.softmax(o.einsum("nd,nsd->ns", h @ p["q"], x), -1), x) @ p["w"] + h))  # fmt: skip
simple("convolution of rows", lambda z: ({"w": ((8, 8, 3), 24)}, (8, z.H), (8, z.H)),
       lambda z: lambda o, p, h, x: o.tanh(o.conv(h, p["w"], 1) + x))  # fmt: skip
simple("convolution of images", lambda z: ({"w": ((8, 8, 3, 3), 72)}, (8, 10, 10), (8, 10, 10)),
       lambda z: lambda o, p, h, x: o.tanh(o.conv(h, p["w"], 2) + x))  # fmt: skip
simple("wide convolution, dilated", lambda z: ({"w": ((8, 8, 5), 40)}, (8, z.H + 16), (8, z.H + 16)),
       lambda z: lambda o, p, h, x: o.tanh(o.conv(h, p["w"], 1, 2) + x))  # fmt: skip
simple("convolution in groups", lambda z: ({"w": ((16, 8, 3), 24)}, (16, z.H), (16, z.H)),
       lambda z: lambda o, p, h, x: o.tanh(o.conv(h, p["w"], 1, 1, 2) + x))  # fmt: skip
simple("convolution by channel", lambda z: ({"d": ((16, 1, 3), 3), "w": (16, 16)}, (16, z.H), (16, z.H)),
       lambda z: lambda o, p, h, x: o.tanh(
           o.einsum("oc,ncl->nol", p["w"], o.conv(h, p["d"], 1, 1, 16)) + x))  # fmt: skip
simple("Kronecker product", lambda z: ({"a": (12, 12), "b": (20, 20)}, (240,), (240,)),
       lambda z: lambda o, p, h, x: o.tanh(
           o.shaped(o.einsum("ij,njk,kl->nil", p["a"], o.shaped(h, 12, 20), p["b"]), 240) + x))  # fmt: skip
simple("blocks on the diagonal", lambda z: ({"w": (6, 20, 20)}, (120,), (120,)),
       lambda z: lambda o, p, h, x: o.tanh(
           o.shaped(o.einsum("ngi,gij->ngj", o.shaped(h, 6, 20), p["w"]), 120) + x))  # fmt: skip
simple("butterfly", lambda z: ({"w": (2, 2, 64)}, (128,), (128,)),
       lambda z: lambda o, p, h, x: o.tanh(
           o.shaped(o.einsum("nik,ijk->nkj", o.shaped(h, 2, 64), p["w"]), 128) + x))  # fmt: skip
simple("radial basis", lambda z: ({"c": (30, z.H), "w": (30, z.H)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: o.tanh(o.exp(
           0.2 * (h @ o.turned(p["c"], 1, 0)) - 0.1 * o.sum(h * h, 1, True)) @ p["w"] * 0.3 + x))  # fmt: skip
simple("largest few", lambda z: ({"w": (z.H, z.H)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: largest(o, o.tanh(h @ p["w"] + x), 4))  # fmt: skip
simple("a fifth of the features", lambda z: ({"w": (z.H, z.H)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: largest(o, o.tanh(h @ p["w"] + x), max(1, z.H // 5)))  # fmt: skip
simple("highway of three", lambda z: ({"w": (3, z.H, 2 * z.H)}, (z.H,), (z.H,)), lambda z: highway(z.H))
simple("fast weights", lambda z: ({"w": (16, 3 * 16)}, (16, 16), (16,)), lambda z: fast_weights(False))
simple("delta rule", lambda z: ({"w": (32, 3 * 32)}, (32, 32), (32,)), lambda z: fast_weights(True, 32))
simple("covariance", lambda z: ({"a": (24, 24)}, (24, 24), (24,)),
       lambda z: lambda o, p, h, x: o.tanh(p["a"] @ h @ o.turned(p["a"], 1, 0) + 0.1 * o.shaped(x, 1, 24))
       )  # fmt: skip
simple("soft stack", lambda z: ({"w": (z.H, z.H), "a": (z.H, 3)}, (6, z.H), (z.H,)), lambda z: soft_stack(z.H))
simple("stack of layers", lambda z: ({"w": (3, 2 * z.H, z.H)}, (3, z.H), (z.H,)), lambda z: layers(z.H, 3))
simple("diagonal", lambda z: ({"a": (1, z.H), "b": (z.H, z.H)}, (z.H,), (z.H,)),
       lambda z: lambda o, p, h, x: o.sigmoid(p["a"]) * h + o.tanh(x @ p["b"]))  # fmt: skip


def pushed(o: Any, queue: Any, new: Any) -> Any:
    return o.concat([queue[:, 1:], o.stack([new], 1)], 1)


def largest(o: Any, x: Any, k: int) -> Any:
    return x * o.sigmoid(50 * (x - o.kth(x, k)))


def highway(H: int) -> Update:
    def update(o: Any, p: Any, h: Any, x: Any) -> Any:
        for i in range(3):
            both = h @ p["w"][i] + (o.concat([x, x], 1) if i == 0 else 0)
            gate = o.sigmoid(cut(both, H, 1))
            h = gate * o.tanh(cut(both, H, 0)) + (1 - gate) * h
        return h

    return update


def fast_weights(delta: bool, D: int = 16) -> Update:
    def update(o: Any, p: Any, S: Any, x: Any) -> Any:
        every = o.tanh(x @ p["w"])
        k, v, gate = (cut(every, D, i) for i in range(3))
        v = v - o.einsum("nij,nj->ni", S, k) * 0.2 if delta else v
        return 0.9 * S + 0.1 * o.einsum("ni,nj->nij", v * gate, k)

    return update


def soft_stack(H: int) -> Update:
    def update(o: Any, p: Any, S: Any, x: Any) -> Any:
        new, act = o.tanh(x @ p["w"] + S[:, 0]), o.softmax(x @ p["a"], -1)
        push = o.concat([o.stack([new], 1), S[:, :-1]], 1)
        pop = o.concat([S[:, 1:], 0 * S[:, :1]], 1)
        return sum(o.shaped(act[:, i : i + 1], 1, 1) * part for i, part in enumerate((push, pop, S)))

    return update


def layers(H: int, count: int) -> Update:
    def update(o: Any, p: Any, h: Any, x: Any) -> Any:
        new = []
        for i in range(count):
            x = o.tanh(o.concat([x, h[:, i]], 1) @ p["w"][i])
            new.append(x)
        return o.stack(new, 1)

    return update


def gates(o: Any, p: Any, h: Any, x: Any, H: int, count: int) -> list[Any]:
    every = x @ p["u"] + h @ p["w"] + p["b"]
    return [cut(every, H, i) for i in range(count)]


def gated(name: str, count: int, update: Callable[..., Any], cells: bool = False) -> None:
    """A kind of gates of `x @ u + h @ w + b`, with a cell state beside h or without."""

    def made(z: Sizes) -> Any:
        H = z.H
        parameters = {"u": (H, count * H), "w": (H, count * H), "b": ((count * H,), 100)}

        def step(o: Any, p: Any, s: Any, x: Any) -> tuple[dict[str, Any], Any]:
            found = update(o, s, x, *gates(o, p, s["h"], x, H, count))
            return found, found["h"]

        return parameters, {"h": (H,), **({"c": (H,)} if cells else {})}, (H,), step

    kind(name)(made)


def lstm(o: Any, s: Any, x: Any, i: Any, f: Any, g: Any, q: Any) -> dict[str, Any]:
    c = o.sigmoid(f + 1) * s["c"] + o.sigmoid(i) * o.tanh(g)
    return {"h": o.sigmoid(q) * o.tanh(c), "c": c}


def lem(o: Any, s: Any, x: Any, a: Any, b: Any, g: Any, q: Any) -> dict[str, Any]:
    dt, dz = 0.5 * o.sigmoid(a), 0.5 * o.sigmoid(b)
    c = (1 - dt) * s["c"] + dt * o.tanh(g)
    return {"h": (1 - dz) * s["h"] + dz * o.tanh(q + c), "c": c}


def minimal(o: Any, s: Any, x: Any, f: Any, g: Any) -> dict[str, Any]:
    gate = o.sigmoid(f)
    return {"h": gate * s["h"] + (1 - gate) * o.tanh(g)}


gated("LSTM", 4, lstm, True)
gated("LSTM, normed", 4, lambda o, s, x, *g: lstm(o, s, x, *(normed(o, one) for one in g)), True)
gated("LSTM, multiplied", 4, lambda o, s, x, *g: lstm(o, s, x, *(one * o.tanh(x) + one for one in g)), True)
gated("LEM", 4, lem, True)
gated("minimal gates", 2, minimal)
gated("ordered gates", 2, lambda o, s, x, f, g: minimal(o, s, x, 6 * o.cumsum(o.softmax(f, -1), 1) - 3, g))
gated("plain and bias", 1, lambda o, s, x, g: {"h": o.tanh(g)})
gated("two signs", 2, lambda o, s, x, a, b: {"h": o.tanh(a) * o.sigmoid(b) + 0.5 * s["h"]})
gated("oscillators", 1, lambda o, s, x, g: oscillators(o, s, g), True)
gated("rotated pairs", 2, lambda o, s, x, a, b: rotated(o, s, a, b), True)


def oscillators(o: Any, s: Any, g: Any) -> dict[str, Any]:
    c = s["c"] + 0.1 * (o.tanh(g) - s["h"] - 0.5 * s["c"])
    return {"h": s["h"] + 0.1 * c, "c": c}


def rotated(o: Any, s: Any, a: Any, b: Any) -> dict[str, Any]:
    cos, sin = o.cos(o.tanh(b)), o.sin(o.tanh(b))
    return {"h": 0.9 * (cos * s["h"] - sin * s["c"]) + 0.1 * o.tanh(a), "c": 0.9 * (sin * s["h"] + cos * s["c"])}


def gru(z: Sizes) -> Any:
    H = z.H
    parameters = {"u": (H, 3 * H), "w": (H, 2 * H), "v": (H, H)}

    def update(o: Any, p: Any, h: Any, x: Any) -> Any:
        own, there = x @ p["u"], h @ p["w"]
        reset, gate = (o.sigmoid(cut(own, H, i) + cut(there, H, i)) for i in range(2))
        return gate * h + (1 - gate) * o.tanh(cut(own, H, 2) + (reset * h) @ p["v"])

    return parameters, {"h": (H,)}, (H,), one_state(update)


def conv_lstm(z: Sizes) -> Any:
    parameters = {"w": ((32, 16, 3, 3), 144)}

    def step(o: Any, p: Any, s: Any, x: Any) -> tuple[dict[str, Any], Any]:
        every = o.conv(o.concat([x, s["h"]], 1), p["w"], 2)
        found = lstm(o, s, x, *(every[:, 8 * i : 8 * i + 8] for i in range(4)))
        return found, found["h"]

    return parameters, {"h": (8, 12, 12), "c": (8, 12, 12)}, (8, 12, 12), step


def linear_attention(z: Sizes) -> Any:
    G, D = 4, z.one_of(8, 16, 32)
    parameters = {"w": (G * D, 3 * G * D), "a": (1, G)}

    def step(o: Any, p: Any, s: Any, x: Any) -> tuple[dict[str, Any], Any]:
        q, k, v = (o.tanh(o.shaped(cut(x @ p["w"], G * D, i), G, D)) for i in range(3))
        S = o.shaped(o.sigmoid(p["a"]), G, 1, 1) * s["S"] + 0.1 * o.einsum("ngd,nge->ngde", k, v)
        return {"S": S}, o.shaped(o.einsum("ngd,ngde->nge", q, S), G * D)

    return parameters, {"S": (G, D, D)}, (G * D,), step


kind("GRU")(gru)
kind("ConvLSTM")(conv_lstm)
kind("linear attention")(linear_attention)
