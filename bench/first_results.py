"""Ten cells from nothing to their first results: rnnops beside JAX's jit, each cell written once for both.

A cell is a function of a namespace of ops, of an input, states and parameters; `rnnops` and `jax.numpy` are given the
names that cells use. What counts is all that a user waits for: the net or the trace, the compiler, the first results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

import rnnops as ro
from bench.contender import Contender, Settings, gradient_of
from bench.problems import Arrays, Problem, Shape

Step = Callable[..., tuple[Any, ...]]


def rnn(m: Any, x: Any, h: Any, w: Any, u: Any, b: Any) -> tuple[Any, ...]:
    return (m.tanh(x @ w + h @ u + b),)


def gated(m: Any, z: Any, c: Any) -> tuple[Any, Any]:
    i, f, o, g = m.split(z)
    c = m.sigmoid(f) * c + m.sigmoid(i) * m.tanh(g)
    return m.sigmoid(o) * m.tanh(c), c


def lstm(m: Any, x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> tuple[Any, ...]:
    return gated(m, x @ w + h @ u + b, c)


def peephole_lstm(m: Any, x: Any, h: Any, c: Any, w: Any, u: Any, b: Any, p: Any, q: Any) -> tuple[Any, ...]:
    i, f, o, g = m.split(x @ w + h @ u + b)
    new = m.sigmoid(f + p * c) * c + m.sigmoid(i + q * c) * m.tanh(g)
    return m.sigmoid(o + p * new) * m.tanh(new), new


def layer_norm_lstm(m: Any, x: Any, h: Any, c: Any, w: Any, u: Any, b: Any, scale: Any) -> tuple[Any, ...]:
    z = x @ w + h @ u
    z = z - m.mean(z)
    return gated(m, z / m.sqrt(m.mean(z * z) + 1e-4) * scale + b, c)


def milstm(m: Any, x: Any, h: Any, c: Any, w: Any, u: Any, b: Any, alpha: Any, beta: Any) -> tuple[Any, ...]:
    z, r = x @ w, h @ u
    return gated(m, alpha * z * r + beta * (z + r) + b, c)


def slstm(m: Any, x: Any, h: Any, c: Any, n: Any, top: Any, w: Any, u: Any, b: Any) -> tuple[Any, ...]:
    i, f, o, g = m.split(x @ w + h @ u + b)
    new = m.maximum(f + top, i)
    forget, enter = m.exp(f + top - new), m.exp(i - new)
    c, n = forget * c + enter * m.tanh(g), forget * n + enter
    return m.sigmoid(o) * c / n, c, n, new


def minimal_gated(m: Any, x: Any, h: Any, w: Any, v: Any, u: Any, q: Any) -> tuple[Any, ...]:
    f = m.sigmoid(x @ w + h @ u)
    return ((1.0 - f) * h + f * m.tanh(x @ v + (f * h) @ q),)


def gru(m: Any, x: Any, h: Any, w: Any, v: Any, y: Any, u: Any, q: Any, s: Any) -> tuple[Any, ...]:
    reset, update = m.sigmoid(x @ w + h @ u), m.sigmoid(x @ v + h @ q)
    return (update * h + (1.0 - update) * m.tanh(x @ y + reset * (h @ s)),)


def independent(m: Any, x: Any, h: Any, w: Any, p: Any, b: Any) -> tuple[Any, ...]:
    return (m.maximum(x @ w + p * h + b, 0.1 * h),)


def attentive(m: Any, x: Any, h: Any, w: Any, u: Any, q: Any, s: Any) -> tuple[Any, ...]:
    seen = m.softmax(h @ q) * x
    return (m.tanh(seen @ w + h @ u + m.exp(-(h * h)) @ s),)


@dataclass(frozen=True)
class Cell:
    """A cell, and what it takes.

    Args:
        states: how many.
        matrices: columns of each product's weights, in H, by name.
        vectors: sizes of the other parameters, in H.
    """

    step: Step
    states: int
    matrices: dict[str, int]
    vectors: dict[str, int]

    def shapes(self, problem: Problem) -> dict[str, Shape]:
        size = problem.size
        states = {f"state{k}": (size.N, size.H) for k in range(self.states)}
        matrices = {name: (size.H, columns * size.H) for name, columns in self.matrices.items()}
        vectors = {name: (columns * size.H,) for name, columns in self.vectors.items()}
        return {"xs": (size.T, size.N, size.H), **states, **matrices, **vectors}


FOUR, ONE = {"w": 4, "u": 4}, dict.fromkeys
CELLS = {
    "RNN": Cell(rnn, 1, ONE("wu", 1), {"b": 1}),
    "LSTM": Cell(lstm, 2, FOUR, {"b": 4}),
    "peephole LSTM": Cell(peephole_lstm, 2, FOUR, {"b": 4, "p": 1, "q": 1}),
    "layer norm LSTM": Cell(layer_norm_lstm, 2, FOUR, {"b": 4, "scale": 4}),
    "MILSTM": Cell(milstm, 2, FOUR, {"b": 4, "alpha": 4, "beta": 4}),
    "sLSTM": Cell(slstm, 4, FOUR, {"b": 4}),
    "minimal gated unit": Cell(minimal_gated, 1, ONE("wvuq", 1), {}),
    "GRU": Cell(gru, 1, ONE("wvyuqs", 1), {}),
    "independent RNN": Cell(independent, 1, {"w": 1}, {"p": 1, "b": 1}),
    "attentive RNN": Cell(attentive, 1, ONE("wuqs", 1), {}),
}
RNNOPS = SimpleNamespace(
    tanh=ro.tanh, sigmoid=ro.sigmoid, exp=ro.exp, sqrt=ro.sqrt, maximum=ro.max,
    split=lambda z: ro.split(z, 4, axis=-1), mean=lambda z: ro.reduce_mean(z, axes=[-1]),
    softmax=lambda z: ro.softmax(z, axis=-1),
)  # fmt: skip


def feeds_of(problem: Problem) -> tuple[Arrays, Any]:
    """Feeds, and the gradient of the first state over time."""
    random, cell = np.random.default_rng(0), CELLS[problem.net]
    feeds = {
        name: (random.normal(size=shape) * (1.0 if len(shape) == 3 else shape[0] ** -0.5)).astype("float32")
        for name, shape in cell.shapes(problem).items()
    }
    if problem.net == "sLSTM":
        feeds["state2"] = np.abs(feeds["state2"]) + 1.0  # what it divides by
    return feeds, random.normal(size=feeds["xs"].shape).astype("float32")


def ours(problem: Problem, mode: str, settings: Settings) -> Contender:
    """The cell as a net."""
    cell = CELLS[problem.net]
    step, net = ro.Net("cell"), ro.Net("net")
    states = [f"state{k}" for k in range(cell.states)]
    parameters = [*cell.matrices, *cell.vectors]
    x, inside = step.input("x"), step.inputs(*states, *parameters)
    step.outputs(**{f"new{k}": blob for k, blob in enumerate(cell.step(RNNOPS, x, *inside))})
    initial = [(name, net.input(name)) for name in states]
    aliases = {name: f"new{k}" for k, name in enumerate(states)}
    y, *_ = ro.recurrent_net(net, step, [("x", net.input("xs"))], initial, aliases)
    net.outputs(y=y)
    run, (feeds, gradient) = ro.compile(net, threads=settings.threads), feeds_of(problem)

    def training() -> Any:
        outputs, pullback = run.vjp(feeds)
        return outputs, pullback({"y": gradient})

    return Contender(training if mode == "training" else lambda: (run(feeds), {}), _named)


def jax(problem: Problem, mode: str, settings: Settings) -> Contender:
    """The cell under `lax.scan`, jitted."""
    import jax.numpy as jnp
    from jax import jit, lax, nn, vjp

    cell, (feeds, gradient) = CELLS[problem.net], feeds_of(problem)
    given = SimpleNamespace(
        tanh=jnp.tanh, sigmoid=nn.sigmoid, exp=jnp.exp, sqrt=jnp.sqrt, maximum=jnp.maximum, softmax=nn.softmax,
        split=lambda z: jnp.split(z, 4, axis=-1), mean=lambda z: z.mean(-1, keepdims=True),
    )  # fmt: skip

    def outputs_of(fed: Any) -> Any:
        parameters = [fed[name] for name in (*cell.matrices, *cell.vectors)]

        def body(states: Any, x: Any) -> Any:
            new = cell.step(given, x, *states, *parameters)
            return new, new[0]

        return {"y": lax.scan(body, tuple(fed[f"state{k}"] for k in range(cell.states)), fed["xs"])[1]}

    def training(fed: Any, dy: Any) -> Any:
        outputs, pullback = vjp(outputs_of, fed)
        return outputs, pullback({"y": dy})[0]

    run = jit(training if mode == "training" else lambda fed, dy: (outputs_of(fed), {}))

    def call() -> Any:
        outputs, gradients = run(feeds, gradient)
        return ({k: np.asarray(v) for k, v in part.items()} for part in (outputs, gradients))

    return Contender(call, lambda returned: _named(tuple(returned)))


def _named(returned: Any) -> Arrays:
    outputs, gradients = returned
    return {"y": outputs["y"], **{gradient_of(name): value for name, value in gradients.items()}}
