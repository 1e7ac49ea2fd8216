"""Cells of the library by hand in JAX: work that does not see a state is outside of `lax.scan`.

Each takes parameters by name, without the cell's, a sequence `[T, N, D]` and states, and gives all outputs. Equations
and papers stand with the cells themselves (docs/cells.md). Sums over a memory `[N, heads, d, d]` are `einsum`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import relu, sigmoid, silu, softmax, softplus

from bench.cells import EPSILON
from rnnops.cells.continuous import memory_matrices

Params = Mapping[str, Any]


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * scale + shift


def linear(p: Params, name: str, *parts: Any) -> Any:
    """`[parts] W^T + b`, where there is a bias."""
    x = parts[0] if len(parts) == 1 else jnp.concatenate(parts, -1)
    return x @ p[f"{name}_w"].T + p.get(f"{name}_b", 0.0)


def split(x: Any, parts: int, axis: int = -1) -> list[Any]:
    return list(jnp.split(x, parts, axis))


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


def lem(p: Params, xs: Any, y: Any, z: Any) -> Any:
    def step(y: Any, z: Any, x: Any) -> tuple[Any, ...]:
        x, out = jnp.split(x, [3 * y.shape[-1]], -1)
        slow, fast, candidate = split(x + linear(p, "gates_t", y), 3)
        a, b = sigmoid(slow), sigmoid(fast)
        z = (1.0 - a) * z + a * jnp.tanh(candidate)
        y = (1.0 - b) * y + b * jnp.tanh(out + linear(p, "slow", z))
        return y, y, z

    return over_time(step, (y, z), linear(p, "i2h", xs))


def fast_grnn(p: Params, xs: Any, h: Any) -> Any:
    enter, leak = sigmoid(p["enter"]), sigmoid(p["leak"])

    def step(h: Any, x: Any) -> tuple[Any, ...]:
        gates = x + linear(p, "gates_t", h)
        z = sigmoid(gates + p["update_b"])
        h = (enter * (1.0 - z) + leak) * jnp.tanh(gates + p["i2h_b"]) + z * h
        return h, h

    return over_time(step, (h,), xs @ p["i2h_w"].T)


def pairs(re: Any, im: Any, a: Any, b: Any, u: Any, w: Any) -> Any:
    """What LRU and S5 share: a and b are the factor of the states, u and w what comes in, all pairs of real arrays."""

    def step(re: Any, im: Any, u: Any, w: Any) -> tuple[Any, ...]:
        re, im = a * re - b * im + u, a * im + b * re + w
        return jnp.concatenate([re, im], -1), re, im

    return over_time(step, (re, im), u, w)


def lru(p: Params, xs: Any, re: Any, im: Any) -> Any:
    nu, theta, gamma = jnp.exp(p["eigenvalues"])
    u, w = split(linear(p, "i2h", xs), 2)
    seen = pairs(re, im, jnp.exp(-nu) * jnp.cos(theta), jnp.exp(-nu) * jnp.sin(theta), gamma * u, gamma * w)
    return linear(p, "read", seen) + linear(p, "skip", xs)


def s5(p: Params, xs: Any, re: Any, im: Any) -> Any:
    values = p["eigenvalue_re"] + 1j * p["eigenvalue_im"]
    a = jnp.exp(values * jnp.exp(p["log_step"]))
    factor = jnp.expm1(values * jnp.exp(p["log_step"])) / values
    u, w = split(linear(p, "i2h", xs), 2)
    fed = factor.real * u - factor.imag * w, factor.real * w + factor.imag * u
    return 2.0 * linear(p, "read", pairs(re, im, a.real, a.imag, *fed)) + linear(p, "skip", xs)


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


HEADS = 4  # of all cells that have heads
READ = "nhkv,nhk->nhv"


def by_head(x: Any) -> Any:
    """`[..., H]` as `[..., heads, d]`."""
    return x.reshape(*x.shape[:-1], HEADS, -1)


def joined(x: Any) -> Any:
    return x.reshape(*x.shape[:-2], -1)


def unit(x: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def normalized(x: Any, epsilon: float = 1e-5) -> Any:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + epsilon)


def root_normalized(x: Any, epsilon: float = 1e-5) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + epsilon)


def outer(key: Any, value: Any) -> Any:
    return key[..., None] * value[..., None, :]


def slstm(p: Params, xs: Any, h: Any, c: Any, n: Any, m: Any) -> Any:
    weights = jnp.stack([p[f"gates_{head}_w"] for head in range(HEADS)])

    def step(h: Any, c: Any, n: Any, m: Any, x: Any) -> tuple[Any, ...]:
        own = jnp.einsum("nkd,kgd->nkg", by_head(h), weights).reshape(len(h), HEADS, 4, -1)
        i, f, o, g = split(x + own.swapaxes(1, 2).reshape(x.shape), 4)
        kept = m - softplus(-f)
        m = jnp.maximum(kept, i)
        forget, enter = jnp.exp(kept - m), jnp.exp(i - m)
        c, n = forget * c + enter * jnp.tanh(g), forget * n + enter
        h = sigmoid(o) * c / n
        return h, h, c, n, m

    return over_time(step, (h, c, n, m), linear(p, "i2h", xs))


def mlstm(p: Params, xs: Any, C: Any, n: Any, m: Any) -> Any:
    q, k, v, out = split(linear(p, "i2h", xs), 4)
    q, k, v = by_head(q), by_head(k) * (k.shape[-1] // HEADS) ** -0.5, by_head(v)
    i, f = split(xs @ p["gates_t_w"].T + jnp.concatenate([p["enter_b"], p["forget_b"]]), 2)

    def step(C: Any, n: Any, m: Any, q: Any, k: Any, v: Any, i: Any, kept: Any) -> tuple[Any, ...]:
        kept = m + kept
        m = jnp.maximum(kept, i)
        forget, enter = jnp.exp(kept - m), jnp.exp(i - m)
        C, n = forget[..., None] * C + outer(enter * k, v), forget * n + enter * k
        norm = jnp.maximum(jnp.abs((n * q).sum(-1, keepdims=True)), jnp.exp(-m))
        return jnp.einsum(READ, C, q) / norm, C, n, m

    seen = over_time(step, (C, n, m), q, k, v, i[..., None], -softplus(-f)[..., None])
    return sigmoid(out) * joined(seen)


def mlstm_sigmoid(p: Params, xs: Any, C: Any) -> Any:
    q, k, v, out = split(linear(p, "i2h", xs), 4)
    i, f = split(sigmoid(xs @ p["gates_t_w"].T + jnp.concatenate([p["enter_b"], p["forget_b"]]))[..., None], 2, -2)

    def step(C: Any, q: Any, k: Any, v: Any, f: Any) -> tuple[Any, ...]:
        C = f[..., None] * C + outer(k, v)
        return jnp.einsum(READ, C, q), C

    q = by_head(q) * (q.shape[-1] // HEADS) ** -0.5
    seen = over_time(step, (C,), q, i * by_head(k), by_head(v), f)
    return sigmoid(out) * joined(root_normalized(seen, 1e-6)) * p["norm_scale"]


def block_gru(p: Params, xs: Any, h: Any) -> Any:
    weights = jnp.stack([p[f"gates_{head}_w"] for head in range(HEADS)])

    def step(h: Any, x: Any) -> tuple[Any, ...]:
        own = jnp.einsum("nkd,kgd->nkg", by_head(h), weights).reshape(len(h), HEADS, 3, -1)
        gates = x + own.swapaxes(1, 2).reshape(x.shape)
        reset, candidate, update = split(normalized(gates) * p["gates_t_norm_scale"] + p["gates_t_norm_bias"], 3)
        enter = sigmoid(update - 1.0)
        h = enter * jnp.tanh(sigmoid(reset) * candidate) + (1.0 - enter) * h
        return h, h

    return over_time(step, (h,), linear(p, "i2h", xs))


def hgrn2(p: Params, xs: Any, S: Any) -> Any:
    q, f, v = map(by_head, split(linear(p, "i2h", xs), 3))
    left = sigmoid(f)

    def step(S: Any, q: Any, left: Any, v: Any) -> tuple[Any, ...]:
        S = left[..., None] * S + outer(1.0 - left, v)
        return jnp.einsum(READ, S, q), S

    return root_normalized(joined(over_time(step, (S,), silu(q), left, v))) * p["norm_scale"]


def mamba2(p: Params, xs: Any, h: Any) -> Any:
    H, S = xs.shape[-1], h.shape[-2]
    z, u, B, C, t = jnp.split(linear(p, "i2h", xs), np.cumsum([H, H, S, S]), -1)
    u, t = by_head(silu(u)), softplus(t + p["step_b"])[..., None]

    def step(h: Any, u: Any, B: Any, C: Any, decay: Any) -> tuple[Any, ...]:
        h = decay[..., None] * h + B[:, None, :, None] * u[..., None, :]
        return jnp.einsum("nhsv,ns->nhv", h, C), h

    seen = over_time(step, (h,), t * u, silu(B), silu(C), jnp.exp(-jnp.exp(p["decay_log"])[:, None] * t))
    return root_normalized(joined(seen + p["pass_w"][:, None] * u) * silu(z)) * p["norm_scale"]


def linear_attention(p: Params, xs: Any, S: Any, decay: Any = None, constant: Any = None) -> Any:
    """What retention and GLA share: the gate and the norm are not a part of the loop."""
    q, k, v, gate = split(linear(p, "i2h", xs), 4)
    q = by_head(q) * (q.shape[-1] // HEADS) ** -0.5

    def step(S: Any, q: Any, k: Any, v: Any, *decay: Any) -> tuple[Any, ...]:
        S = (decay[0][..., None] if decay else constant) * S + outer(k, v)
        return jnp.einsum(READ, S, q), S

    seen = over_time(step, (S,), q, by_head(k), by_head(v), *([] if decay is None else [decay]))
    return silu(gate) * joined(normalized(seen)) * p["norm_scale"]


def retention(p: Params, xs: Any, S: Any) -> Any:
    left = 1.0 - 2.0 ** (-5.0 - np.arange(HEADS))
    return linear_attention(p, xs, S, constant=jnp.asarray(left.reshape(-1, 1, 1), xs.dtype))


def gla(p: Params, xs: Any, S: Any) -> Any:
    gate = linear(p, "decay", linear(p, "low", xs))
    return linear_attention(p, xs, S, decay=by_head(jnp.exp(softplus(-gate) / -16.0)))


def corrected(p: Params, xs: Any, S: Any, parts: list[Any], *decay: Any) -> Any:
    """What both delta nets share; decay: of each step, if there is one."""
    q, k, v = (by_head(part) for part in parts)
    q, k, beta = unit(silu(q)), unit(silu(k)), sigmoid(linear(p, "beta", xs))[..., None]

    def step(S: Any, q: Any, k: Any, v: Any, beta: Any, *decay: Any) -> tuple[Any, ...]:
        S = decay[0] * S if decay else S
        S = S + outer(k, beta * (v - jnp.einsum(READ, S, k)))
        return jnp.einsum(READ, S, q), S

    return joined(root_normalized(over_time(step, (S,), q, k, v, beta, *decay))) * p["norm_scale"]


def delta_net(p: Params, xs: Any, S: Any) -> Any:
    return corrected(p, xs, S, split(linear(p, "i2h", xs), 3))


def gated_delta_net(p: Params, xs: Any, S: Any) -> Any:
    *parts, gate = split(linear(p, "i2h", xs), 4)
    decay = jnp.exp(-jnp.exp(p["decay_log"]) * softplus(linear(p, "decay", xs)))
    return silu(gate) * corrected(p, xs, S, parts, decay[..., None, None])


def kda(p: Params, xs: Any, S: Any) -> Any:
    q, k, v = split(linear(p, "i2h", xs), 3)
    rate = softplus(linear(p, "decay", linear(p, "decay_low", xs)))
    decay = jnp.exp(-jnp.exp(p["decay_log"])[:, None] * by_head(rate))
    return sigmoid(linear(p, "gate", linear(p, "gate_low", xs))) * corrected(
        p, xs, S, [q, k, silu(v)], decay[..., None]
    )


def gated_delta_product(p: Params, xs: Any, S: Any) -> Any:
    n = len(p["beta_b"]) // HEADS
    q, *parts, gate = split(linear(p, "i2h", xs), 2 + 2 * n)
    decay = jnp.exp(-jnp.exp(p["decay_log"]) * softplus(linear(p, "decay", xs)))[..., None, None]
    keys, values = [unit(by_head(silu(key))) for key in parts[:n]], [by_head(value) for value in parts[n:]]
    rates = split(2.0 * sigmoid(linear(p, "beta", xs))[..., None], n, -2)

    def step(S: Any, q: Any, decay: Any, *given: Any) -> tuple[Any, ...]:
        S = decay * S
        for k, v, rate in zip(given[:n], given[n : 2 * n], given[2 * n :], strict=True):
            S = S + outer(k, rate * (v - jnp.einsum(READ, S, k)))
        return jnp.einsum(READ, S, q), S

    seen = over_time(step, (S,), unit(by_head(silu(q))), decay, *keys, *values, *rates)
    return silu(gate) * joined(root_normalized(seen)) * p["norm_scale"]


def ttt_linear(p: Params, xs: Any, S: Any) -> Any:
    q, k, v = map(by_head, split(linear(p, "i2h", xs), 3))
    scale, shift = by_head(p["norm_scale"]), by_head(p["norm_bias"])
    rate = sigmoid(linear(p, "rate", xs))[..., None] / q.shape[-1]

    def step(S: Any, q: Any, k: Any, target: Any, rate: Any) -> tuple[Any, ...]:
        z = jnp.einsum(READ, S + p["start_w"], k)
        root, z = jnp.sqrt(z.var(-1, keepdims=True) + 1e-5), normalized(z)
        g = (z * scale + shift - target) * scale
        slope = (g - g.mean(-1, keepdims=True) - z * (g * z).mean(-1, keepdims=True)) / root
        S = S - outer(rate * k, slope)
        return jnp.einsum(READ, S + p["start_w"], q), S

    return joined(q + normalized(over_time(step, (S,), q, k, v - k, rate)) * scale + shift)


def selective_ssm(p: Params, xs: Any, h: Any) -> Any:
    u, S = linear(p, "i2h", xs), h.shape[-1]
    low, B, C = jnp.split(linear(p, "select", u), [p["delta_w"].shape[1], p["delta_w"].shape[1] + S], -1)
    A = -jnp.exp(p["decay_log"]) * jnp.arange(1.0, S + 1.0, dtype=xs.dtype)

    def step(h: Any, u: Any, delta: Any, B: Any, C: Any) -> tuple[Any, ...]:
        h = jnp.exp(delta[..., None] * A) * h + outer(delta * u, B)
        return jnp.einsum("nhs,ns->nh", h, C), h

    return over_time(step, (h,), u, softplus(linear(p, "delta", low)), B, C) + p["pass_w"] * u


def rwkv7(p: Params, xs: Any, S: Any, before: Any) -> Any:
    moved = jnp.concatenate([before[None], xs[:-1]]) - xs
    plain: Callable[[str], Any] = lambda mix: linear(p, mix, xs + moved * p[f"{mix}_mix"])  # noqa: E731
    low: Callable[[str], Any] = lambda mix: linear(p, f"{mix}_low", xs + moved * p[f"{mix}_mix"])  # noqa: E731
    r, k, v = plain("receptance"), plain("key"), plain("value")
    w = jnp.exp(-np.exp(-0.5) * sigmoid(linear(p, "decay", jnp.tanh(low("decay")))))
    a = sigmoid(linear(p, "rate", low("rate")))
    z, k = unit(by_head(k * p["removal_scale"])), k * (1.0 + (a - 1.0) * p["replace_scale"])

    def step(S: Any, r: Any, w: Any, k: Any, v: Any, z: Any, a: Any) -> tuple[Any, ...]:
        S = w[..., None] * S - outer(a * z, jnp.einsum(READ, S, z)) + outer(k, v)
        return jnp.einsum(READ, S, r), S

    seen = over_time(step, (S,), by_head(r), by_head(w), by_head(k), by_head(v), z, by_head(a))
    seen = joined(normalized(seen, 1e-5 * z.shape[-1])) * p["norm_scale"] + p["norm_bias"]
    bonus = by_head(r * k * p["bonus"]).sum(-1, keepdims=True) * by_head(v)
    return (seen + joined(bonus)) * linear(p, "gate", sigmoid(low("gate")))


def ntm(p: Params, xs: Any, h: Any, c: Any, M: Any, reading: Any, writing: Any, seen: Any) -> Any:
    width = M.shape[-1]
    ends = np.cumsum([*(width, 1, 1, 3, 1) * 2, width])

    def step(h: Any, c: Any, M: Any, reading: Any, writing: Any, seen: Any, x: Any) -> tuple[Any, ...]:
        h, c = lstm_states(x + linear(p, "gates_t", h, seen), c)
        *heads, erase, add = jnp.split(linear(p, "heads", h), ends, -1)
        writing = place(M, writing, *heads[5:])
        M = M * (1.0 - outer(writing, sigmoid(erase))) + outer(writing, jnp.tanh(add))
        reading = place(M, reading, *heads[:5])
        seen = jnp.einsum("nsw,ns->nw", M, reading)
        return jnp.concatenate([h, seen], -1), h, c, M, reading, writing, seen

    return over_time(step, (h, c, M, reading, writing, seen), linear(p, "i2h", xs))


def place(M: Any, before: Any, key: Any, strength: Any, gate: Any, shift: Any, power: Any) -> Any:
    """Where a head looks, `[N, slots]`."""
    key = jnp.tanh(key)
    lengths = jnp.sqrt((M * M).sum(-1) * (key * key).sum(-1, keepdims=True) + 1e-8)
    by_content = softmax(softplus(strength) * jnp.einsum("nsw,nw->ns", M, key) / lengths)
    mixed = sigmoid(gate) * by_content + (1.0 - sigmoid(gate)) * before
    left, stay, right = split(softmax(shift), 3)
    shifted = left * jnp.roll(mixed, -1, -1) + stay * mixed + right * jnp.roll(mixed, 1, -1)
    sharp = (shifted + 1e-8) ** (1.0 + softplus(power))
    return sharp / sharp.sum(-1, keepdims=True)
