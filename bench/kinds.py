"""`python -m bench.kinds`: cells of 75 kinds in random sizes, beside PyTorch's eager loop and JAX's scan.

    OPENBLAS_NUM_THREADS=1 python -m bench.kinds [--seeds 0:300] [--only PATTERN] [--without jax] [--device cuda]

A kind is a step as people write it: one function over the operations of a library, so that all three compute the same.
A seed draws a kind, sizes, plain and awkward ones, and numbers. Values and gradients of all parameters are compared
before anything is timed, once more in float64 where they differ. Times are of calls, processor time of one thread,
medians of blocks in turns. The table of all seeds goes to `bench/results/kinds.json`. On another device than "cpu" only
numbers are compared, with PyTorch's on the CPU.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench import kinds_of_cells
from bench.environment import limit_threads
from bench.kinds_of_cells import Cell, Maker

RESULTS = Path(__file__).with_name("results") / "kinds.json"
BLOCK_SECONDS, ROUNDS = 0.02, 5
WARM_CALLS = 6  # a step is recorded at its second call, and replayed from its third
SETTLE = 0.01  # seconds until threads of the library before rest; then an untimed call
TOLERANCE = 2e-3  # of the largest number: sums of other orders, over many steps, in float32
Call = Callable[[], object]


@dataclass(frozen=True)
class Contender:
    """A library's calls for one cell, and what they gave once: outputs, and gradients by parameter."""

    forward: Call
    training: Call
    outputs: Any
    gradients: Mapping[str, Any]


def net_of(cell: Cell) -> tuple[Any, dict[str, Any]]:
    """The cell over a sequence as a net with the output `ys`, and its feeds."""
    import rnnops as ro
    from bench.kinds_of_cells import RnnopsOps

    step = ro.Net("cell")
    p = {name: step.input(name) for name in cell.parameters}
    s = {name: step.input(name) for name in cell.states}
    new, y = cell.step(RnnopsOps(), p, s, step.input("x"))
    links = {name: f"{name}_t" for name in cell.states}
    step.outputs(y=y, **{links[name]: blob for name, blob in new.items()})
    net = ro.Net("kinds")
    xs = net.input("xs")
    initial = [(name, net.input(f"{name}0")) for name in cell.states]
    shapes = {name: array.shape[1:] for name, array in cell.states.items()}
    results = ro.recurrent_net(net, step, [("x", xs)], initial, links, state_shapes=shapes)
    net.outputs(ys=next(blob for blob in results if blob.name.startswith("y")))
    return net, {"xs": cell.xs, **{f"{name}0": array for name, array in cell.states.items()}, **cell.parameters}


def of_rnnops(cell: Cell, device: str = "cpu") -> Contender:
    """The cell as a net, compiled for one thread of the CPU or for another device."""
    import rnnops as ro

    net, feeds = net_of(cell)
    run = ro.compile(net, device=device, threads=1 if device == "cpu" else None)
    names = list(cell.parameters)

    def training() -> tuple[Any, Any]:
        out, pullback = run.vjp(feeds, wrt=names)
        return out["ys"], pullback({"ys": cell.dys})

    outputs, gradients = training()
    return Contender(lambda: run(feeds), training, outputs, gradients)


def of_torch(cell: Cell) -> Contender:
    """PyTorch's eager loop."""
    import torch

    from bench.kinds_of_cells import TorchOps

    torch.set_num_threads(1)
    o = TorchOps()
    p = {name: torch.tensor(array, requires_grad=True) for name, array in cell.parameters.items()}
    s0, xs, dys = (
        {name: torch.tensor(a) for name, a in cell.states.items()},
        torch.tensor(cell.xs),
        torch.tensor(cell.dys),
    )

    def loop() -> Any:
        s, ys = s0, []
        for x in xs:
            s, y = cell.step(o, p, s, x)
            ys.append(y)
        return torch.stack(ys)

    def forward() -> Any:
        with torch.no_grad():
            return loop()

    def training() -> tuple[Any, Any]:
        ys = loop()
        return ys, torch.autograd.grad(ys, list(p.values()), dys)

    ys, grads = training()
    return Contender(forward, training, ys.detach().numpy(), dict(zip(p, (g.numpy() for g in grads), strict=True)))


def jax_outputs(cell: Cell) -> Callable[..., Any]:
    """JAX's scan over the cell: a function of parameters and states by name, and of the sequence."""
    import jax

    from bench.kinds_of_cells import JaxOps

    o = JaxOps()
    return lambda p, s0, xs: jax.lax.scan(lambda s, x: cell.step(o, p, s, x), s0, xs)[1]


def of_jax(cell: Cell) -> Contender:
    """JAX's scan, compiled."""
    import jax

    outputs = jax_outputs(cell)
    s0, xs, p, dys = (jax.tree.map(jax.numpy.asarray, one) for one in (cell.states, cell.xs, cell.parameters, cell.dys))

    def with_gradients(p: Any, s0: Any, xs: Any, dys: Any) -> Any:
        ys, pullback = jax.vjp(lambda p: outputs(p, s0, xs), p)
        return ys, pullback(dys)[0]

    forward, training = jax.jit(outputs), jax.jit(with_gradients)
    ys, grads = training(p, s0, xs, dys)
    return Contender(
        lambda: jax.block_until_ready(forward(p, s0, xs)),
        lambda: jax.block_until_ready(training(p, s0, xs, dys)),
        np.asarray(ys),
        {name: np.asarray(array) for name, array in grads.items()},
    )


Libraries = Mapping[str, Callable[[Cell], Contender]]
LIBRARIES: Libraries = {"rnnops": of_rnnops, "torch": of_torch, "jax": of_jax}


def difference(ours: Contender, theirs: Contender) -> float:
    """The largest difference of outputs and gradients, in shares of the largest number of each."""
    pairs = [(ours.outputs, theirs.outputs), *((ours.gradients[n], g) for n, g in theirs.gradients.items())]
    return max(float(np.max(np.abs(a - b)) / (1e-6 + np.max(np.abs(b)))) for a, b in pairs)


def difference_in_doubles(cell: Cell, ours: Callable[[Cell], Contender]) -> float:
    """The difference from PyTorch in float64: a recurrence may amplify rounding by as much as its values change."""
    wide = in_doubles(cell)
    return difference(ours(wide), of_torch(wide))


def in_doubles(cell: Cell) -> Cell:
    return replace(cell, **{name: _wide(getattr(cell, name)) for name in ("parameters", "states", "xs", "dys")})


def _wide(numbers: Any) -> Any:
    if isinstance(numbers, Mapping):
        return {name: _wide(array) for name, array in numbers.items()}
    return numbers.astype(np.float64)


def seconds_of(calls: Mapping[str, Call]) -> dict[str, float]:
    """Seconds of each call, medians of blocks in turns."""
    counts = {name: max(1, int(BLOCK_SECONDS / warm_seconds(call))) for name, call in calls.items()}
    found = {name: list[float]() for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            time.sleep(SETTLE)
            call()
            start = time.process_time()
            for _ in range(counts[name]):
                call()
            found[name].append((time.process_time() - start) / counts[name])
    return {name: median(times) for name, times in found.items()}


def warm_seconds(call: Call) -> float:
    """The least seconds of a few calls: the first ones compile and record."""

    def seconds() -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    return max(min(seconds() for _ in range(WARM_CALLS)), 1e-6)


def measured(seed: int, kind: str, cell: Cell, libraries: Libraries, timed: bool) -> dict[str, Any]:
    """A row of the table: differences, and seconds where they are asked for."""
    made = {name: make(cell) for name, make in libraries.items()}
    differences = {name: difference(made["rnnops"], one) for name, one in made.items() if name != "rnnops"}
    if max(differences.values(), default=0.0) > TOLERANCE and "torch" in made:
        differences = {"torch": difference_in_doubles(cell, libraries["rnnops"])}
    row: dict[str, Any] = {"seed": seed, "kind": kind, "sizes": cell.sizes, "differences": differences}
    for what in ("forward", "training") if timed else ():
        row[what] = seconds_of({name: getattr(one, what) for name, one in made.items()})
    return row


def differs(row: Mapping[str, Any]) -> bool:
    return max(row["differences"].values(), default=0.0) > TOLERANCE


def text_of(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return f"{row['seed']:4} {row['kind']:28} {row['error'][:140]}"
    parts = [f"{row['seed']:4} {row['kind']:28} {row['sizes']:18}"]
    for what in ("forward", "training") if "training" in row else ():
        ours = row[what]["rnnops"]
        others = " ".join(f"{name} {row[what][name] / ours:6.2f}" for name in row[what] if name != "rnnops")
        parts.append(f"{what} {1e3 * ours:8.3f} ms, {others}")
    worst = max(row["differences"].values(), default=0.0)
    return " | ".join([*parts, f"{worst:.0e}{' DIFFERS' if differs(row) else ''}"])


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Medians and least of ratios, of what is right."""
    right = [row for row in rows if "error" not in row]
    yield f"{len(right)} of {len(rows)} cells run, {sum(map(differs, right))} differ"
    for what in ("forward", "training"):
        for other in ("torch", "jax"):
            times = [row[what] for row in right if other in row.get(what, ())]
            ratios = sorted(one[other] / one["rnnops"] for one in times)
            if ratios:
                below = sum(ratio < 1 for ratio in ratios)
                yield f"{other} / rnnops, {what}: median {median(ratios):.2f}, least {ratios[0]:.2f}, {below} below 1"


def drawn(seed: int) -> tuple[str, Maker]:
    """The kind of a seed: each is drawn once in as many seeds as there are kinds."""
    names = list(kinds_of_cells.KINDS)
    return names[seed % len(names)], kinds_of_cells.KINDS[names[seed % len(names)]]


def main() -> None:
    parser = argparse.ArgumentParser(description="rnnops beside PyTorch and JAX, on cells of many kinds")
    parser.add_argument("--seeds", default="0:300", help="FIRST:LAST")
    parser.add_argument("--only", default="*", help="kinds that have this name; * and ? as in a shell")
    parser.add_argument("--without", nargs="*", default=[], help="libraries that are left out")
    parser.add_argument("--device", default="cpu", help="of rnnops; only numbers are compared where it is not cpu")
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    if on_cpu:
        limit_threads(1)
    libraries = {n: m for n, m in LIBRARIES.items() if n not in options.without and (n == "rnnops" or find_spec(n))}
    libraries["rnnops"] = partial(of_rnnops, device=options.device)
    rows: list[dict[str, Any]] = []
    for seed in range(*map(int, options.seeds.split(":"))):
        kind, maker = drawn(seed)
        if not fnmatch.fnmatch(kind, options.only):
            continue
        try:
            rows.append(measured(seed, kind, maker(np.random.default_rng(seed)), libraries, on_cpu))
        except Exception as error:
            rows.append({"seed": seed, "kind": kind, "error": f"{type(error).__name__}: {error}"})
        print(text_of(rows[-1]), flush=True)
    print("\n".join(summary(rows)))
    if options.only == "*" and on_cpu:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any("error" in row or differs(row) for row in rows))


if __name__ == "__main__":
    main()
