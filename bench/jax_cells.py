"""Cells of the library with vectors as states, by hand in JAX: what does not see a state is outside of `lax.scan`.

Each takes parameters by name, without the cell's, a sequence `[T, N, D]` and states `[N, H]`, and gives all outputs.
Equations and papers stand with the cells themselves (docs/cells.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.nn import relu, sigmoid, softplus

from bench.jax_engine import layer_norm
from rnnops.cells.continuous import memory_matrices

Params = Mapping[str, Any]
Cell = Callable[..., Any]


def linear(p: Params, name: str, *parts: Any) -> Any:
    """`[parts] W^T + b`, where there is a bias."""
    x = parts[0] if len(parts) == 1 else jnp.concatenate(parts, -1)
    return x @ p[f"{name}_w"].T + p.get(f"{name}_b", 0.0)


def split(x: Any, parts: int) -> list[Any]:
    return list(jnp.split(x, parts, -1))


def over_time(step: Callable[..., tuple[Any, ...]], states: tuple[Any, ...], *sequences: Any) -> Any:
    """All outputs of `step(*states, *sequences) -> output, *states`."""

    def body(carry: tuple[Any, ...], now: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        y, *new = step(*carry, *now)
        return tuple(new), y

    return jax.lax.scan(body, states, sequences)[1]


def lstm_states(gates: Any, c: Any) -> tuple[Any, Any]:
    i, f, o, g = split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
    return sigmoid(o) * jnp.tanh(c), c


def lstm(p: Params, xs: Any, h: Any, c: Any, normalized: Callable[[Any], Any] = lambda gates: gates) -> Any:
    def step(h: Any, c: Any, x: Any) -> tuple[Any, ...]:
        h, c = lstm_states(normalized(x + linear(p, "gates_t", h)), c)
        return h, h, c

    return over_time(step, (h, c), linear(p, "i2h", xs))


def normalization(p: Params) -> Callable[[Any], Any]:
    return lambda gates: layer_norm(gates, p["gates_t_norm_scale"], p["gates_t_norm_bias"])


def layer_norm_lstm(p: Params, xs: Any, h: Any, c: Any) -> Any:
    return lstm(p, xs, h, c, normalization(p))


def milstm(p: Params, xs: Any, h: Any, c: Any, normalized: Callable[[Any], Any] = lambda gates: gates) -> Any:
    def step(h: Any, c: Any, x: Any) -> tuple[Any, ...]:
        gates = (p["alpha"] * x + p["beta1"]) * linear(p, "prev_t", h) + (p["beta2"] * x + p["b"])
        h, c = lstm_states(normalized(gates), c)
        return h, h, c

    return over_time(step, (h, c), linear(p, "i2h", xs))


def layer_norm_milstm(p: Params, xs: Any, h: Any, c: Any) -> Any:
    return milstm(p, xs, h, c, normalization(p))


def peephole_lstm(p: Params, xs: Any, h: Any, c: Any) -> Any:
    def step(h: Any, c: Any, x: Any) -> tuple[Any, ...]:
        i, f, o, g = split(x + linear(p, "gates_t", h), 4)
        c = sigmoid(f + p["peephole_f"] * c) * c + sigmoid(i + p["peephole_i"] * c) * jnp.tanh(g)
        h = sigmoid(o + p["peephole_o"] * c) * jnp.tanh(c)
        return h, h, c

    return over_time(step, (h, c), linear(p, "i2h", xs))


def projected_lstm(p: Params, xs: Any, h: Any, c: Any) -> Any:
    def step(h: Any, c: Any, x: Any) -> tuple[Any, ...]:
        wide, c = lstm_states(x + linear(p, "gates_t", h), c)
        h = linear(p, "projection", wide)
        return h, h, c

    return over_time(step, (h, c), linear(p, "i2h", xs))


def gru(p: Params, xs: Any, h: Any) -> Any:
    """The two gates that see the same state are one product."""
    both = {f"gates_{part}": jnp.concatenate([p[f"{gate}_gate_t_{part}"] for gate in ("reset", "update")])
            for part in "wb"}  # fmt: skip

    def step(h: Any, x: Any) -> tuple[Any, ...]:
        x_gates, x_out = jnp.split(x, [2 * h.shape[-1]], -1)
        reset, update = split(sigmoid(x_gates + linear(both, "gates", h)), 2)
        h = update * h + (1.0 - update) * jnp.tanh(x_out + linear(p, "output_gate_t", reset * h))
        return h, h

    return over_time(step, (h,), linear(p, "i2h", xs))


def basic_rnn(p: Params, xs: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, ...]:
        h = jnp.tanh(x + linear(p, "gates_t", h))
        return h, h

    return over_time(step, (h,), linear(p, "i2h", xs))


def indrnn(p: Params, xs: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, ...]:
        h = relu(x + p["recurrent_w"] * h)
        return h, h

    return over_time(step, (h,), linear(p, "i2h", xs))


def min_gru(p: Params, xs: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, ...]:
        update, value = split(x, 2)
        z = sigmoid(update)
        h = (1.0 - z) * h + z * value
        return h, h

    return over_time(step, (h,), linear(p, "i2h", xs))


def min_lstm(p: Params, xs: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, ...]:
        forget, enter, value = split(x, 3)
        f, i = sigmoid(forget), sigmoid(enter)
        h = h + i / (f + i) * (value - h)
        return h, h

    return over_time(step, (h,), linear(p, "i2h", xs))


def sru(p: Params, xs: Any, c: Any) -> Any:
    def step(c: Any, projected: Any, x: Any) -> tuple[Any, ...]:
        value, forget, highway = split(projected, 3)
        f = sigmoid(forget + p["forget_v"] * c + p["forget_b"])
        r = sigmoid(highway + p["highway_v"] * c + p["highway_b"])
        c = f * c + (1.0 - f) * value
        return r * c + (1.0 - r) * (3.0**0.5 * x), c

    return over_time(step, (c,), linear(p, "i2h", xs), xs)


def qrnn(p: Params, xs: Any, c: Any, before: Any) -> Any:
    def step(c: Any, x: Any) -> tuple[Any, ...]:
        candidate, forget, out = split(x, 3)
        f = sigmoid(forget)
        c = f * c + (1.0 - f) * jnp.tanh(candidate)
        return sigmoid(out) * c, c

    return over_time(step, (c,), linear(p, "i2h", xs, jnp.concatenate([before[None], xs[:-1]])))


def cornn(p: Params, xs: Any, y: Any, z: Any) -> Any:
    def step(y: Any, z: Any, x: Any) -> tuple[Any, ...]:
        force = jnp.tanh(x + linear(p, "hidden", y, z))
        z = z + 0.042 * (force - 2.7 * y - 4.7 * z)
        y = y + 0.042 * z
        return y, y, z

    return over_time(step, (y, z), linear(p, "i2h", xs))


def rg_lru(p: Params, xs: Any, h: Any) -> Any:
    u = linear(p, "i2h", xs)

    def step(h: Any, u: Any, gates: Any) -> tuple[Any, ...]:
        recurrence, enter = split(sigmoid(gates), 2)
        log_a = -8.0 * softplus(-p["recurrent_w"]) * recurrence
        h = jnp.exp(log_a) * h + jnp.sqrt(-jnp.expm1(2.0 * log_a)) * (enter * u)
        return h, h

    return over_time(step, (h,), u, linear(p, "gates_t", u))


def lmu(p: Params, xs: Any, h: Any, m: Any) -> Any:
    A, B = (jnp.asarray(matrix, xs.dtype) for matrix in memory_matrices(m.shape[-1], 64.0))

    def step(h: Any, m: Any, x: Any, signal: Any) -> tuple[Any, ...]:
        signal = signal + linear(p, "signal_h", h) + linear(p, "signal_m", m)
        m = m @ A.T + signal * B
        h = jnp.tanh(x + linear(p, "hidden", h) + linear(p, "memory", m))
        return h, h, m

    return over_time(step, (h, m), linear(p, "i2h", xs), linear(p, "signal_x", xs))


def ltc(p: Params, xs: Any, v: Any) -> Any:
    leak, dt = softplus(p["leak"]), 1.0 / 6.0

    def step(v: Any, x: Any) -> tuple[Any, ...]:
        for _ in range(6):
            f = sigmoid(x + linear(p, "gates_t", v))
            v = (v + dt * f * p["target"]) / (1.0 + dt * (leak + f))
        return v, v

    return over_time(step, (v,), linear(p, "i2h", xs))


def cfc(p: Params, xs: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, ...]:
        backbone = 1.7159 * jnp.tanh(0.666 * (x + linear(p, "hidden", h)))
        first, second, rate, shift = split(linear(p, "heads", backbone), 4)
        passed = sigmoid(rate + shift)
        h = (1.0 - passed) * jnp.tanh(first) + passed * jnp.tanh(second)
        return h, h

    return over_time(step, (h,), linear(p, "i2h", xs))


@jax.custom_jvp
def spike(above: Any) -> Any:
    """1 where it is positive, else 0."""
    return (above > 0).astype(above.dtype)


@spike.defjvp
def surrogate(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    return spike(*primals), 0.3 * relu(1.0 - jnp.abs(primals[0])) * tangents[0]


def lif(p: Params, xs: Any, z: Any, v: Any) -> Any:
    def step(z: Any, v: Any, x: Any) -> tuple[Any, ...]:
        v = 0.9512 * v + (1.0 - 0.9512) * (x + linear(p, "spikes", z)) - z
        z = spike(v - 1.0)
        return z, z, v

    return over_time(step, (z, v), linear(p, "i2h", xs))


def alif(p: Params, xs: Any, z: Any, v: Any, u: Any) -> Any:
    def step(z: Any, v: Any, u: Any, x: Any) -> tuple[Any, ...]:
        v = 0.9512 * v + (1.0 - 0.9512) * (x + linear(p, "spikes", z)) - (1.0 + 1.8 * u) * z
        u = 0.995 * u + (1.0 - 0.995) * z
        level = 1.0 + 1.8 * u
        z = spike((v - level) / level)
        return z, z, v, u

    return over_time(step, (z, v, u), linear(p, "i2h", xs))
