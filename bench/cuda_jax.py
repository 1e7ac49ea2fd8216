"""JAX on a CUDA device: the cell under `lax.scan`, products of float32 in float32 and not, as by default, in TF32."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others need memory too; read when jax starts

import jax
import jax.numpy as jnp

from bench.contender import MissingPeerError
from bench.cuda_cases import CudaEntry
from bench.cuda_data import Data, Placed
from bench.cuda_peers import CudaContender, named
from bench.cuda_place import Place, to_host
from bench.jax_engine import CELLS, compiled_pass


def scan(entry: CudaEntry, data: Data, place: Place) -> CudaContender:
    """A whole pass as one jitted function. Raises MissingPeerError where JAX has no device."""
    if jax.default_backend() not in ("gpu", "cuda"):
        raise MissingPeerError(f"JAX {jax.__version__} computes on '{jax.default_backend()}', not on a CUDA device")
    sets = [(arrays_of(one.feeds), arrays_of(one.heads)) for one in data.sets]
    with jax.default_matmul_precision("highest"):
        run = compiled_pass(entry.problem.net, entry.mode, CELLS[entry.problem.net], sets[0])

    wait: Callable[[Any], Any] = jax.block_until_ready

    def call(k: int) -> Any:
        return wait(run(*sets[k % len(sets)]))

    return CudaContender(call, named, waits=True, planned=lambda: planned_bytes(run))


def arrays_of(placed: Placed) -> Placed:
    """Arrays of JAX, in the same memory where the other library lends it."""
    return {name: array_of(array) for name, array in placed.items()}


def array_of(array: Any) -> Any:
    return jnp.from_dlpack(array) if hasattr(array, "__dlpack__") else jax.device_put(to_host(array))


def planned_bytes(run: Any) -> int:
    """What XLA plans to allocate beside arguments."""
    plan = run.memory_analysis()
    return int(plan.temp_size_in_bytes + plan.output_size_in_bytes)
