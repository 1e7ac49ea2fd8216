"""Cells whose state is a matrix, beside JAX's scan: medians of interleaved runs, `python -m bench.matrix_states`.

Each cell is written once, as a function of a namespace of ops that rnnops and JAX both give. `--rows 1 --steps 4096
--only mlstm` has a long sequence, beside PyTorch chunk by chunk.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter, sleep
from types import SimpleNamespace
from typing import Any

import numpy as np

import rnnops as ro
from bench.chunkwise import CHUNKS, chunkwise_runs
from bench.problems import Arrays

ROUNDS, SETTLE, MLSTM = 15, 0.2, "mlstm"  # rounds, seconds, the cell that PyTorch has chunk by chunk
Shapes = Mapping[str, tuple[int, ...]]
RNNOPS = SimpleNamespace(
    sigmoid=ro.sigmoid, exp=ro.exp, softplus=ro.softplus, maximum=ro.max, abs=ro.abs,
    expand=lambda x, axis: ro.unsqueeze(x, [axis]), sum=lambda x, axis: ro.reduce_sum(x, axes=[axis], keepdims=0),
)  # fmt: skip


def mlstm(m: Any, q: Any, k: Any, v: Any, i: Any, f: Any, o: Any, C: Any, n: Any, top: Any) -> tuple[Any, ...]:
    """A matrix memory with exponential gates (Beck and others 2024)."""
    kept = top - m.softplus(-f)
    new = m.maximum(kept, i)
    forget, enter = m.exp(kept - new), m.exp(i - new)
    C = m.expand(forget, 3) * C + m.expand(enter * k, 3) * m.expand(v, 2)
    n = forget * n + enter * k
    norm = m.expand(m.maximum(m.abs(m.sum(n * q, 2)), 1.0), 2)
    return m.sigmoid(o) * m.sum(C * m.expand(q, 3), 2) / norm, C, n, new


def delta_net(m: Any, q: Any, k: Any, v: Any, a: Any, b: Any, S: Any) -> tuple[Any, ...]:
    """A gated delta net (Yang and others 2024)."""
    left = m.expand(m.sigmoid(a), 3) * S
    new = m.sigmoid(b) * (v - m.sum(left * m.expand(k, 3), 2))
    S = left + m.expand(k, 3) * m.expand(new, 2)
    return m.sum(S * m.expand(q, 3), 2), S


def selective(m: Any, x: Any, d: Any, b: Any, c: Any, h: Any, A: Any) -> tuple[Any, ...]:
    """A selective state space (Gu and Dao 2023)."""
    step = m.softplus(d)
    h = m.exp(m.expand(step, 2) * A) * h + m.expand(step * x, 2) * m.expand(b, 1)
    return m.sum(h * m.expand(c, 1), 2), h


@dataclass(frozen=True)
class Cell:
    """A cell, and the shapes of one row of a step of its sequences and states, and of what all steps share."""

    step: Callable[..., tuple[Any, ...]]
    sequences: Shapes
    states: Shapes
    shared: Shapes

    def net(self) -> ro.Net:
        """The cell over time, which gives its first result of all steps."""
        cell, net = ro.Net("cell"), ro.Net("net")
        given = cell.inputs(*self.sequences, *self.states, *self.shared)
        y, *states = self.step(RNNOPS, *(given if len(self.sequences) + len(self.states) > 1 else [given]))
        cell.outputs(y=y, **{f"{name}_t": blob for name, blob in zip(self.states, states, strict=True)})
        every, *_ = ro.recurrent_net(
            net, cell, [(name, net.input(f"seq_{name}")) for name in self.sequences],
            [(name, net.input(f"{name}0")) for name in self.states], {name: f"{name}_t" for name in self.states},
            state_shapes=dict(self.states),
        )  # fmt: skip
        net.outputs(y=every.net.blob("y_all"))
        return net

    def feeds(self, T: int, N: int) -> Arrays:
        """Random feeds."""
        rng = np.random.default_rng(0)
        shapes = {f"seq_{name}": (T, N, *shape) for name, shape in self.sequences.items()}
        shapes |= {f"{name}0": (N, *shape) for name, shape in self.states.items()}
        found = {name: 0.2 * rng.normal(size=shape) for name, shape in shapes.items()}
        found |= {name: -np.exp(rng.normal(size=shape)) for name, shape in self.shared.items()}
        return {name: array.astype(np.float32) for name, array in found.items()}


def cells(heads: int = 4, width: int = 64, channels: int = 256, states: int = 16) -> dict[str, Cell]:
    """The table of cells."""
    vector, gate, matrix = (heads, width), (heads, 1), (heads, width, width)
    of_mlstm = {**dict.fromkeys("qkv", vector), "i": gate, "f": gate, "o": vector}
    of_delta = {**dict.fromkeys("qkv", vector), "a": gate, "b": gate}
    of_selective = {"x": (channels,), "d": (channels,), "b": (states,), "c": (states,)}
    return {
        "mlstm": Cell(mlstm, of_mlstm, {"C": matrix, "n": vector, "top": gate}, {}),
        "delta_net": Cell(delta_net, of_delta, {"S": matrix}, {}),
        "selective": Cell(selective, of_selective, {"h": (channels, states)}, {"A": (channels, states)}),
    }


def rnnops_runs(cell: Cell, feeds: Arrays, threads: int, **options: Any) -> dict[str, Callable[[], Any]]:
    """A forward pass, and a training step."""
    run = ro.compile(cell.net(), threads=threads, **options)
    head = np.ones_like(run(feeds)["y"])
    return {"forward": lambda: run(feeds), "training": lambda: run.vjp(feeds)[1]({"y": head})}


def jax_runs(cell: Cell, feeds: Arrays) -> dict[str, Callable[[], Any]]:
    """The same of JAX; nothing where it is not installed."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return {}
    ops = SimpleNamespace(
        sigmoid=jax.nn.sigmoid, exp=jnp.exp, softplus=jax.nn.softplus, maximum=jnp.maximum, abs=jnp.abs,
        expand=jnp.expand_dims, sum=lambda x, axis: x.sum(axis),
    )  # fmt: skip

    def outputs(given: Any) -> Any:
        def step(states: Any, now: Any) -> Any:
            y, *new = cell.step(ops, *now, *states, *(given[name] for name in cell.shared))
            return tuple(new), y

        start = tuple(given[f"{name}0"] for name in cell.states)
        return jax.lax.scan(step, start, tuple(given[f"seq_{name}"] for name in cell.sequences))[1]

    placed = {name: jnp.asarray(array) for name, array in feeds.items()}
    forward, gradient = jax.jit(outputs), jax.jit(jax.grad(lambda given: outputs(given).sum()))
    return {
        "forward": lambda: forward(placed).block_until_ready(),
        "training": lambda: jax.block_until_ready(gradient(placed)),
    }


def measure(
    T: int = 256,
    N: int = 8,
    threads: int = 2,
    rounds: int = ROUNDS,
    table: Mapping[str, Cell] | None = None,
    beside_jax: bool = True,
) -> dict[tuple[str, str, str], float]:
    """Milliseconds by cell, pass and contender."""
    found: dict[tuple[str, str, str], float] = {}
    for name, cell in (cells() if table is None else table).items():
        feeds = cell.feeds(T, N)
        contenders = {
            "rnnops": rnnops_runs(cell, feeds, threads),
            "rnnops, all steps kept": rnnops_runs(cell, feeds, threads, checkpoints="all"),
            **({"JAX": jax_runs(cell, feeds)} if beside_jax else {}),
            **(
                {f"chunks of {steps}": chunkwise_runs(feeds, threads, steps) for steps in CHUNKS}
                if name == MLSTM
                else {}
            ),
        }
        times: dict[tuple[str, str, str], list[float]] = {}
        for _ in range(rounds + 1):
            for label, runs in contenders.items():
                for what, run in runs.items():
                    sleep(SETTLE)  # JAX's threads stay awake after their work
                    run()
                    start = perf_counter()
                    run()
                    times.setdefault((name, what, label), []).append(1000 * (perf_counter() - start))
        found.update((key, median(values[1:])) for key, values in times.items())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.matrix_states", description=__doc__)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="a cell")
    parser.add_argument("--without-jax", action="store_true")
    given = parser.parse_args()
    table = {name: cell for name, cell in cells().items() if given.only in name}
    found = measure(given.steps, given.rows, given.threads, given.rounds, table, not given.without_jax)
    for (name, what, label), milliseconds in found.items():
        print(f"{name} {what}, {label}: {milliseconds:.2f} ms")


if __name__ == "__main__":
    main()
