"""Cells of the library with heads or matrices as states, by hand in JAX, as `jax_cells.py` has the others.

States are `[N, heads, d, d]` and what docs/cells.md says; sums over a memory are `einsum`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid, silu, softmax, softplus

from bench.jax_cells import Params, linear, lstm_states, over_time, split

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


def root_normalized(x: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


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
