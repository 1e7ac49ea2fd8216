"""JAX: the cell under `lax.scan`, a whole pass as one jitted function, with `jax.checkpoint` or without.

On a CUDA device products of float32 are in float32 and not, as by default, in TF32.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.case import Entry
from bench.cells import encoder_rows
from bench.contender import Bench, Contender, MissingPeerError, named
from bench.data import Placed
from bench.jax_cells import layer_norm
from bench.nets import ENCODED, ENCODER, user_net
from bench.place import to_host

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others need memory too; read when jax starts

States = tuple[Any, ...]
Step = Callable[..., States]


OPS = SimpleNamespace(
    sigmoid=jax.nn.sigmoid, tanh=jnp.tanh, exp=jnp.exp, sqrt=jnp.sqrt, maximum=jnp.maximum, softmax=jax.nn.softmax,
    split=lambda x, parts: jnp.split(x, parts, axis=-1), mean=lambda x: x.mean(-1, keepdims=True),
    layer_norm=layer_norm, named=lambda x, name: x, expand=lambda x: x[:, None], squeeze=jnp.squeeze,
    swap=lambda x: jnp.swapaxes(x, 0, 1),
)  # fmt: skip


def scan(entry: Entry, bench: Bench, is_checkpointed: bool = False) -> Contender:
    """A whole pass. Raises MissingPeerError where JAX has no device that is wanted.

    Args:
        is_checkpointed: whether backward computes each step again from its states.
    """
    if bench.settings.is_cuda and jax.default_backend() not in ("gpu", "cuda"):
        raise MissingPeerError(f"JAX {jax.__version__} computes on '{jax.default_backend()}', not on a CUDA device")
    sets = [(arrays_of(one.feeds), arrays_of(one.heads)) for one in bench.data(entry.problem).sets]
    cell = user_net(entry.problem.net).cell

    def step(*given: Any) -> States:
        new: States = cell(OPS, *given)
        return new

    with jax.default_matmul_precision("highest" if bench.settings.is_cuda else None):
        outputs_of = over_steps(entry.problem.net, jax.checkpoint(step) if is_checkpointed else step)
        run = compiled_pass(outputs_of, entry.is_training, sets[0])
    wait: Callable[[Any], Any] = jax.block_until_ready

    def call(k: int) -> Any:
        return wait(run(*sets[k % len(sets)]))

    return Contender(call, named, waits=True, planned=lambda: planned_bytes(run))


def compiled_pass(outputs_of: Callable[[Placed], Placed], training: bool, arguments: tuple[Placed, Placed]) -> Any:
    """A pass compiled for such arguments, feeds and gradients of outputs: outputs, and in training gradients."""

    def forward_pass(feeds: Placed, heads: Placed) -> tuple[Placed, Placed]:
        return outputs_of(feeds), {}

    def training_step(feeds: Placed, heads: Placed) -> tuple[Placed, Placed]:
        outputs, pullback = jax.vjp(outputs_of, feeds)
        rest = {name: jnp.zeros_like(output) for name, output in outputs.items() if name not in heads}
        return outputs, pullback({**heads, **rest})[0]

    return jax.jit(training_step if training else forward_pass).lower(*arguments).compile()


def over_steps(net: str, step: Step) -> Callable[[Placed], Placed]:
    """Outputs by name, from feeds by name, of a cell under `lax.scan`."""
    states, others = user_net(net).states, user_net(net).others

    def outputs_of(feeds: Placed) -> Placed:
        if ENCODER[0] in feeds:
            before = encoder_rows(OPS, *(feeds[name] for name in ENCODER))
            feeds = {**feeds, **dict(zip(ENCODED, before, strict=True))}

        def body(current: States, x_t: Any) -> tuple[States, States]:
            new = step(x_t, *current, *(feeds[name] for name in others))
            return new, tuple(value for value, state in zip(new, states, strict=True) if state.whole)

        last, stacked = jax.lax.scan(body, tuple(feeds[state.initial] for state in states), feeds["xs"])
        whole = iter(stacked)
        outputs = {s.output: next(whole) if s.whole else value[None] for s, value in zip(states, last, strict=True)}
        return {name: output for name, output in outputs.items() if name}

    return outputs_of


def arrays_of(placed: Placed) -> Placed:
    """Arrays of JAX, in the same memory where the other library lends it."""
    return {name: array_of(array) for name, array in placed.items()}


def array_of(array: Any) -> Any:
    is_lent = hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray)
    return jnp.from_dlpack(array) if is_lent else jax.device_put(to_host(array))


def planned_bytes(run: Any) -> int:
    """What XLA plans to allocate beside arguments."""
    plan = run.memory_analysis()
    return int(plan.temp_size_in_bytes + plan.output_size_in_bytes)
