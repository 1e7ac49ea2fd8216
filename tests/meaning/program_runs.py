"""Programs that run: text to net, feeds, outputs and gradients on a device, and how results are compared."""

from __future__ import annotations

import fnmatch
import re
from random import Random
from typing import Any

import numpy as np
from cell_text import Feed
from program_text import Program
from recipe import Recipe

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options

Arrays = dict[str, np.ndarray]
TOLERANCE = {"float64": 1e-9, "float32": 3e-4}
TUNED = ("width", "tile", "around")
SEQUENCES = ("x", "flags", "grid")
SEED = 7  # of random numbers in programs


def net_of(program: Program) -> ro.Net:
    """Run the text of a program."""
    names: dict[str, Any] = {}
    exec(compile(program.text, "<program>", "exec"), names)
    return names["net"]


def fill(feed: Feed, name: str, seed: int, dtype: str) -> np.ndarray:
    """The array of an input: of its name and the seed alone."""
    r = np.random.default_rng([seed, *name.encode()])
    if feed.kind == "int":
        return r.integers(0, int(feed.scale), feed.shape).astype("int32")
    if feed.kind == "lengths":
        return r.integers(0, int(feed.scale) + 1, feed.shape).astype("int32")
    if feed.kind == "flags":
        return r.integers(0, 2, feed.shape).astype(dtype)
    return np.asarray(feed.scale * r.normal(size=feed.shape), dtype)


def feeds_of(program: Program, recipe: Recipe) -> Arrays:
    return {name: fill(feed, name, recipe.seed, recipe.dtype) for name, feed in program.feeds.items()}


def gradients_for(out: Arrays, recipe: Recipe) -> Arrays:
    """A gradient for each output, or for some of them where the recipe says so."""
    made = {}
    for name in with_gradients(list(out), recipe):
        r = np.random.default_rng([recipe.seed, *name.encode()])
        made[name] = np.asarray(r.normal(size=out[name].shape), out[name].dtype)
    return made


def with_gradients(names: list[str], recipe: Recipe) -> list[str]:
    """Outputs that get a gradient."""
    some = dict(recipe.options).get("some_gradients")
    return names if some is None or len(names) < 2 else sorted(Random(some).sample(sorted(names), len(names) - 1))


def compiled(net: ro.Net, recipe: Recipe, device: str) -> ro.Run:
    """The net on a device, with the options of the recipe."""
    options = dict(recipe.options)
    if device == "reference":
        return ro.compile(net, device="reference")
    tuned = {key: options[key] for key in TUNED if key in options}
    threads = options.get("threads", 1)
    tuning = Options(threads=threads, recycle=options.get("recycle", True), **tuned) if tuned else None
    if isinstance(options.get("checkpoints"), list):
        options["checkpoints"] = _known(net, options["checkpoints"])
    given = {key: options[key] for key in ("checkpoints", "memory_budget", "recycle", "threads") if key in options}
    return ro.compile(net, device="cpu", tuning=tuning, **given)


def _known(net: ro.Net, patterns: list[str]) -> Any:
    """Of patterns those that name what an op of the net or of a cell in it makes; None where none does."""
    made = re.findall(r"^ *([\w/, *]+) = \w+\(", str(net), re.MULTILINE)
    names = [name.strip(" *") for line in made for name in line.split(",")]
    return [one for one in patterns if fnmatch.filter(names, one)] or None


def wrt_of(net: ro.Net, feeds: Arrays, recipe: Recipe) -> list[str] | None:
    """Inputs whose gradients are asked for: all, those that are not sequences, or some."""
    chosen = dict(recipe.options).get("wrt")
    floats = sorted(name for name, array in feeds.items() if array.dtype.kind == "f")
    if chosen == "parameters":
        return [name for name in floats if name not in SEQUENCES] or None
    return None if chosen is None else Random(chosen).sample(floats, max(1, len(floats) // 2))


def results(run: ro.Run, feeds: Arrays, recipe: Recipe) -> tuple[Arrays, Arrays]:
    """Outputs and gradients."""
    out, pullback = run.vjp(feeds, seed=SEED, wrt=wrt_of(run.net, feeds, recipe))
    return out, pullback(gradients_for(out, recipe))


def worst(got: Arrays, wanted: Arrays) -> tuple[float, str]:
    """The largest difference, relative to the largest element of its array, and which array it is."""
    if set(got) != set(wanted):
        return float("inf"), f"names {sorted(set(got) ^ set(wanted))}"
    found = (0.0, "")
    for name, array in wanted.items():
        other = np.asarray(got[name])
        if other.shape != array.shape or other.dtype != array.dtype:
            return float("inf"), f"{name}: {other.dtype}{other.shape} for {array.dtype}{array.shape}"
        if not array.size:
            continue
        scale = float(np.abs(array).max()) + 1e-2
        difference = float(np.abs(other.astype("float64") - array).max())
        found = max(found, ((difference / scale) if np.isfinite(difference) else float("inf"), name))
    return found


def finite(*groups: Arrays) -> bool:
    return all(
        bool(np.isfinite(array).all()) for group in groups for array in group.values() if array.dtype.kind == "f"
    )


def largest(*groups: Arrays) -> float:
    return max((float(np.abs(array).max()) for group in groups for array in group.values() if array.size), default=0.0)
