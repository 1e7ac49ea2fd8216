"""`python -m bench.recipes`: trainings as people write them, beside their own loops.

    OPENBLAS_NUM_THREADS=1 python -m bench.recipes [--only PATTERN] [--size T,N,H]

A recipe makes its model with a `scan`: `rnnops.torch.scan`, or a Python loop. All else is the same, so that tests
compare losses and parameters after 20 steps. Times are processor time of one thread: medians of steps, rounds in
turns. Recipes whose package is missing are left out, by name.
"""

from __future__ import annotations

import argparse
import fnmatch
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from time import process_time
from typing import Any

from bench.environment import limit_threads
from bench.problems import Size

ROUNDS, WARM, COUNTED = 5, 3, 8  # training steps of a round
SIZE = Size(50, 16, 64)
Scan = Callable[..., tuple[Any, Any]]  # as `rnnops.torch.scan`: step, first carry, inputs, options


@dataclass
class Log:
    """Losses of training steps, and the processor's time at the end of each."""

    losses: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def __call__(self, loss: Any) -> None:
        self.losses.append(float(loss))
        self.times.append(process_time())

    @property
    def seconds(self) -> float:
        """Of a step."""
        return median(after - before for before, after in zip(self.times[:-1], self.times[1:], strict=True))


Training = tuple[Any, Callable[[int, Log], None]]  # a module, and what trains it for so many steps


@dataclass(frozen=True)
class Recipe:
    """A training.

    Args:
        module: of `bench`, in which `name` makes a `Training` from a scan and a size.
        packages: that must be installed.
        near: how far losses and parameters may be from those of the loop, relative and absolute.
        size: that is timed.
    """

    module: str
    name: str
    packages: tuple[str, ...] = ("torch",)
    near: float = 1e-4
    size: Size = SIZE

    @property
    def missing(self) -> list[str]:
        return [package for package in self.packages if find_spec(package) is None]

    def make(self, scan: Scan, size: Size) -> Training:
        """The same model and the same data at each call."""
        import_module("torch").manual_seed(0)
        training: Training = getattr(import_module(f"bench.{self.module}"), self.name)(scan, size)
        return training


def of_package(name: str, *packages: str, near: float = 1e-4, size: Size = SIZE) -> Recipe:
    return Recipe("package_recipes", name, packages, near, size)


RECIPES: Mapping[str, Recipe] = {
    "recurrent PPO, sb3-contrib": of_package("sb3_ppo", "sb3_contrib"),
    "recurrent PPO, torchrl": of_package("torchrl_ppo", "torchrl"),
    "convolutional spiking net, snntorch": of_package("spiking_net", "snntorch", size=Size(25, 16, 16)),
    "GRU under bf16-mixed, Lightning": of_package("lightning", "lightning", near=0.02),
    "RSSM": Recipe("plain_recipes", "state_space_model"),
    "TRM": Recipe("plain_recipes", "recursive_model"),
    "LRU block": Recipe("plain_recipes", "linear_recurrent_unit"),
}


def python_scan(step: Callable[..., Any], carry: Any, xs: Any = None, *, steps: int = 0, **options: Any) -> Any:
    """What users write: a step at a time, results stacked in the end."""
    pytree, torch = import_module("torch.utils._pytree"), import_module("torch")
    leaves, tree = pytree.tree_flatten(xs)
    rows = zip(*[leaf.unbind(0) for leaf in leaves], strict=True) if xs is not None else [[None]] * steps
    ys = []
    for row in rows:
        carry, y = step(carry, pytree.tree_unflatten(list(row), tree))
        ys.append(y)
    return carry, pytree.tree_map(lambda *parts: None if parts[0] is None else torch.stack(parts), *ys)


def scans() -> dict[str, Scan]:
    return {"loop": python_scan, "rnnops": import_module("rnnops.torch").scan}


def measured(recipe: Recipe, size: Size) -> dict[str, float]:
    """Seconds of a training step, in a loop and compiled."""
    trains = {way: recipe.make(scan, size)[1] for way, scan in scans().items()}
    found: dict[str, list[float]] = {way: [] for way in trains}
    for train in trains.values():
        train(WARM, Log())
    for _ in range(ROUNDS):
        for way, train in trains.items():
            log = Log()
            train(1 + COUNTED, log)
            found[way].append(log.seconds)
    return {way: median(seconds) for way, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recipes", description="trainings beside their own loops")
    parser.add_argument("--only", default="*", help="recipes of such names; * and ? as in a shell")
    parser.add_argument("--size", type=Size.parse, help="T,N,H of all recipes")
    given = parser.parse_args()
    limit_threads(1)
    warnings.simplefilter("ignore")
    print(f"{'recipe':36} {'T,N,H':>10} {'loop, ms':>9} {'rnnops, ms':>10} {'times':>6}")
    for name, recipe in RECIPES.items():
        if not fnmatch.fnmatch(name, given.only):
            continue
        if recipe.missing:
            print(f"{name:36} left out: {', '.join(recipe.missing)} is not installed")
            continue
        import_module("torch").set_num_threads(1)
        size = given.size or recipe.size
        found = measured(recipe, size)
        times = " ".join(f"{1000 * found[way]:{width}.2f}" for way, width in (("loop", 9), ("rnnops", 10)))
        print(f"{name:36} {size!s:>10} {times} {found['loop'] / found['rnnops']:6.2f}", flush=True)


if __name__ == "__main__":
    main()
