"""JAX: the cell under `lax.scan`, a whole pass as one jitted function, with `jax.checkpoint` or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.cells import EPSILON
from bench.contender import Contender, Settings, gradient_of
from bench.nets import make_feeds, user_net
from bench.problems import Arrays, Problem

Feeds = dict[str, Any]
States = tuple[Any, ...]
Step = Callable[[Feeds, States, Any], States]


def lstm_states(gates: Any, c_prev: Any) -> States:
    i, f, o, g = jnp.split(gates, 4, axis=-1)
    c_t = jax.nn.sigmoid(f) * c_prev + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c_t), c_t


def lstm(p: Feeds, states: States, x_t: Any) -> States:
    h_prev, c_prev = states
    return lstm_states(x_t @ p["w_x"] + h_prev @ p["w_h"] + p["b"], c_prev)


def milstm(p: Feeds, states: States, x_t: Any) -> States:
    h_prev, c_prev = states
    x = x_t @ p["w_x"] + p["b_x"]
    projected = h_prev @ p["w_h"] + p["b_h"]
    return lstm_states((p["alpha"] * x + p["beta1"]) * projected + (p["beta2"] * x + p["b"]), c_prev)


def layer_norm_lstm(p: Feeds, states: States, x_t: Any) -> States:
    h_prev, c_prev = states
    gates = x_t @ p["w_x"] + h_prev @ p["w_h"] + p["b"]
    mean, variance = gates.mean(-1, keepdims=True), gates.var(-1, keepdims=True)
    return lstm_states((gates - mean) * jax.lax.rsqrt(variance + EPSILON) * p["scale"] + p["shift"], c_prev)


def gru(p: Feeds, states: States, x_t: Any) -> States:
    (h_prev,) = states
    x_reset, x_update, x_new = jnp.split(x_t @ p["w_x"] + p["b_x"], 3, axis=-1)
    h_reset, h_update, h_new = jnp.split(h_prev @ p["w_h"] + p["b_h"], 3, axis=-1)
    reset, update = jax.nn.sigmoid(x_reset + h_reset), jax.nn.sigmoid(x_update + h_update)
    return (update * h_prev + (1.0 - update) * jnp.tanh(x_new + reset * h_new),)


def attention_decoder(p: Feeds, states: States, x_t: Any) -> States:
    h_prev, c_prev, context_prev = states
    gates = x_t @ p["w_x"] + h_prev @ p["w_h"] + context_prev @ p["w_context"] + p["b"]
    h_t, c_t = lstm_states(gates, c_prev)
    energies = (jnp.tanh(p["weighted"] + (h_t @ p["w_query"] + p["b_query"])[:, None]) @ p["v"])[:, :, 0]
    return h_t, c_t, (jax.nn.softmax(energies, axis=-1)[:, None] @ p["encoder_rows"])[:, 0]


CELLS: dict[str, Step] = {
    "lstm": lstm,
    "milstm": milstm,
    "layer_norm_lstm": layer_norm_lstm,
    "gru": gru,
    "attention_decoder": attention_decoder,
}


def with_encoder_rows(feeds: Feeds) -> Feeds:
    """The encoder batch first, and the part of the energies that no step changes."""
    if "encoder" not in feeds:
        return feeds
    rows = jnp.swapaxes(feeds["encoder"], 0, 1)
    return {**feeds, "encoder_rows": rows, "weighted": rows @ feeds["w_encoder"] + feeds["b_encoder"]}


def scan(problem: Problem, mode: str, settings: Settings) -> Contender:
    return _contender(problem, mode, CELLS[problem.net])


def checkpointed_scan(problem: Problem, mode: str, settings: Settings) -> Contender:
    """Backward computes each step again from its states."""
    return _contender(problem, mode, jax.checkpoint(CELLS[problem.net]))


def _contender(problem: Problem, mode: str, step: Step) -> Contender:
    arguments = tuple(jax.device_put(arrays) for arrays in make_feeds(problem))
    run = compiled_pass(problem.net, mode, step, arguments)
    return Contender(lambda: jax.block_until_ready(run(*arguments)), lambda returned: _named_results(*returned))


def compiled_pass(net: str, mode: str, step: Step, arguments: tuple[Feeds, Feeds]) -> Any:
    """A pass compiled for such arguments, feeds and gradients of outputs: outputs, and in training gradients."""
    outputs_of = scan_outputs(net, step)

    def forward(feeds: Feeds, output_gradients: Feeds) -> tuple[Feeds, Feeds]:
        return outputs_of(feeds), {}

    def training(feeds: Feeds, output_gradients: Feeds) -> tuple[Feeds, Feeds]:
        outputs, pullback = jax.vjp(outputs_of, feeds)
        rest = {name: jnp.zeros_like(output) for name, output in outputs.items() if name not in output_gradients}
        return outputs, pullback({**output_gradients, **rest})[0]

    return jax.jit(training if mode == "training" else forward).lower(*arguments).compile()


def scan_outputs(net: str, step: Step) -> Callable[[Feeds], Feeds]:
    """Outputs by name, from feeds by name, of a cell under `lax.scan`."""
    states = user_net(net).states

    def outputs_of(feeds: Feeds) -> Feeds:
        given = with_encoder_rows(feeds)

        def body(current: States, x_t: Any) -> tuple[States, States]:
            new = step(given, current, x_t)
            return new, tuple(value for value, state in zip(new, states, strict=True) if state.whole)

        last, stacked = jax.lax.scan(body, tuple(given[state.initial] for state in states), given["xs"])
        whole = iter(stacked)
        return {s.output: next(whole) if s.whole else value[None] for s, value in zip(states, last, strict=True)}

    return outputs_of


def _named_results(outputs: Feeds, gradients: Feeds) -> Arrays:
    named = {**outputs, **{gradient_of(name): value for name, value in gradients.items()}}
    return {name: np.asarray(value) for name, value in named.items()}
