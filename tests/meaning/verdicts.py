"""What a recipe gives: "cpu" beside "reference", or two programs of one meaning, both on "cpu"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from cell_text import Feed
from program_runs import (
    SEED,
    TOLERANCE,
    Arrays,
    compiled,
    feeds_of,
    finite,
    gradients_for,
    largest,
    net_of,
    results,
    worst,
    wrt_of,
)
from program_text import FORMS, Program, fits, write_program
from recipe import Recipe

import rnnops as ro

FAILED = ("differs", "crashes", "refused on cpu")
HUGE = 1e6  # results beyond that say nothing
BESIDE = "beside the reference"


@dataclass(frozen=True)
class Verdict:
    """What came of a check.

    Args:
        kind: "same", "unfit" (the relation does not hold for such programs), "refused" (a named error on both
            devices), "not finite", "unstable" (results that rounding decides), or one of `FAILED`.
        detail: in words.
        text: the second program of a relation.
    """

    kind: str
    detail: str = ""
    text: str = ""

    @property
    def failed(self) -> bool:
        return self.kind in FAILED


class UnfitError(Exception):
    """A relation does not hold for this program."""


@dataclass(frozen=True)
class Base:
    """A program and what it gave on "cpu", for relations."""

    recipe: Recipe
    program: Program
    net: ro.Net
    run: ro.Run
    feeds: Arrays
    out: Arrays
    wanted: Arrays  # gradients of outputs
    grads: Arrays


Pairs = list[tuple[str, Arrays, Arrays]]  # (what, got, wanted)
Relation = Callable[[Base, Random], Pairs]
RELATIONS: dict[str, Relation] = {}


def examine(recipe: Recipe, relation: str = BESIDE, salt: int = 0) -> Verdict:
    """Run a recipe and compare.

    Args:
        recipe: of the program.
        relation: a key of `RELATIONS`, or `BESIDE` for the reference.
        salt: seed of what the relation draws.
    """
    if relation != BESIDE:
        base = _base(recipe)
        return base if isinstance(base, Verdict) else _related(base, relation, salt)
    try:
        net = net_of(write_program(recipe))
        feeds = feeds_of(write_program(recipe), recipe)
        wanted = results(compiled(net, recipe, "reference"), feeds, recipe)
    except ro.RnnopsError as error:
        return Verdict("refused", f"{type(error).__name__}: {error}")
    if not finite(*wanted) or largest(*wanted) > HUGE:
        return Verdict("not finite")
    return _judged(lambda: _beside(net, feeds, recipe, wanted))


def _judged(check: Callable[[], Verdict]) -> Verdict:
    """What a check on "cpu" says, or what its error does."""
    try:
        return check()
    except (ro.BudgetError, ro.CheckpointError) as error:
        return Verdict("refused", f"{type(error).__name__}: {error}")
    except UnfitError as reason:
        return Verdict("unfit", str(reason))
    except ro.RnnopsError as error:
        return Verdict("refused on cpu", f"{type(error).__name__}: {error}")
    except Exception as error:
        return Verdict("crashes", f"{type(error).__name__}: {error}")


def _beside(net: ro.Net, feeds: Arrays, recipe: Recipe, wanted: tuple[Arrays, Arrays]) -> Verdict:
    got = results(compiled(net, recipe, "cpu"), feeds, recipe)
    found, name, kind = max(
        (*worst(one, other), kind) for one, other, kind in zip(got, wanted, ("output", "gradient"), strict=True)
    )
    if found <= TOLERANCE[recipe.dtype]:
        return Verdict("same")
    if found <= 100 * _change(net, feeds, recipe, wanted):
        return Verdict("unstable", f"{kind} of {name}: {found:.1e}")
    return Verdict("differs", f"{kind} {name} by {found:.1e} of its largest element")


def _change(net: ro.Net, feeds: Arrays, recipe: Recipe, wanted: tuple[Arrays, Arrays]) -> float:
    """How much results change when feeds change by rounding."""
    noise, changed = np.random.default_rng(0), {}
    for name, array in feeds.items():
        changed[name] = array
        if array.dtype.kind == "f":
            around = 1 + 4 * np.finfo(array.dtype).eps * noise.normal(size=array.shape)
            changed[name] = np.asarray(array * around, array.dtype)  # a product of 0-d arrays is not an array
    others = results(compiled(net, recipe, "reference"), changed, recipe)
    return max(worst(one, other)[0] for one, other in zip(others, wanted, strict=True))


def _base(recipe: Recipe) -> Base | Verdict:
    """What a program gives on "cpu"; a verdict where it gives nothing to compare with."""
    try:
        program = write_program(recipe)
        net, feeds = net_of(program), feeds_of(program, recipe)
        run = compiled(net, recipe, "cpu")
        out, pullback = run.vjp(feeds, seed=SEED, wrt=wrt_of(net, feeds, recipe))
        wanted = gradients_for(out, recipe)
        out = {name: array.copy() for name, array in out.items()}
        grads = pullback(wanted)
    except ro.RnnopsError as error:
        return Verdict("refused", f"{type(error).__name__}: {error}")
    if not finite(out, grads) or largest(out, grads) > HUGE:
        return Verdict("not finite")
    return Base(recipe, program, net, run, feeds, out, wanted, grads)


def _related(base: Base, relation: str, salt: int) -> Verdict:
    _second[:] = [""]
    return _judged(lambda: _compared(base, RELATIONS[relation](base, Random(f"{relation} {salt}"))))


def _compared(base: Base, pairs: Pairs) -> Verdict:
    (found, name), what = max((worst(got, given), called) for called, got, given in pairs)
    if found <= 100 * TOLERANCE[base.recipe.dtype]:
        return Verdict("same")
    if found <= 1e4 * _change(base.net, base.feeds, base.recipe, (base.out, base.grads)):
        return Verdict("unstable", f"{what} {name}: {found:.1e}")
    return Verdict("differs", f"{what} {name} by {found:.1e} of its largest element", _second[-1])


_second: list[str] = []  # text of the last program that a relation has made


def relation(function: Relation) -> Relation:
    """Enter a relation under its name."""
    RELATIONS[function.__name__] = function
    return function


def again(base: Base, program: Program, **options: Any) -> tuple[Arrays, Arrays]:
    """Outputs and gradients of another program for the same feeds."""
    _second[:] = [program.text]
    if set(program.feeds) != set(base.program.feeds):
        raise UnfitError("other inputs")
    recipe = replace(base.recipe, options=tuple({**dict(base.recipe.options), **options}.items()))
    return results(compiled(net_of(program), recipe, "cpu"), base.feeds, recipe)


def both(base: Base, got: tuple[Arrays, Arrays]) -> Pairs:
    return [("output", got[0], base.out), ("gradient", got[1], base.grads)]


@relation
def rewritten(base: Base, r: Random) -> Pairs:
    """Each line in another way of one meaning: distributed, associated, transposed twice, plus 0 times something."""
    got = again(base, write_program(base.recipe, Random(r.getrandbits(32))))
    flags = {name for name, feed in base.program.feeds.items() if feed.kind == "flags"}  # a choice by them has no slope
    kept = [{name: array for name, array in grads.items() if name not in flags} for grads in (got[1], base.grads)]
    return [("output", got[0], base.out), ("gradient", kept[0], kept[1])]


def _form(name: str) -> None:
    def in_form(base: Base, r: Random) -> Pairs:
        if not fits(name, base.program, base.recipe):
            raise UnfitError(name)
        return both(base, again(base, write_program(base.recipe, None, name)))

    RELATIONS[name] = in_form


for _name in FORMS:
    if _name != "plain":
        _form(_name)


def _axis(axes: str, kind: str) -> int | None:
    return axes.index(kind) if kind in axes else None


def _taken(array: np.ndarray, axes: str, places: np.ndarray) -> np.ndarray:
    axis = _axis(axes, "N")
    return array if axis is None else np.ascontiguousarray(np.take(array, places, axis=axis))


@relation
def rows_permuted(base: Base, r: Random) -> Pairs:
    """Rows of all feeds in another order: rows of all results in that order."""
    if base.program.draws:
        raise UnfitError("random numbers belong to rows")
    places = np.array(r.sample(range(base.recipe.sizes[1]), base.recipe.sizes[1]))
    kinds = {name: feed.axes for name, feed in base.program.feeds.items()}
    feeds = {name: _taken(array, kinds[name], places) for name, array in base.feeds.items()}
    out, pullback = base.run.vjp(feeds, seed=SEED, wrt=wrt_of(base.net, feeds, base.recipe))
    axes = base.program.outputs
    grads = pullback({name: _taken(array, axes[name], places) for name, array in base.wanted.items()})
    return [
        ("output", out, {name: _taken(array, axes[name], places) for name, array in base.out.items()}),
        ("gradient", grads, {name: _taken(array, kinds[name], places) for name, array in base.grads.items()}),
    ]


@relation
def rows_added(base: Base, r: Random) -> Pairs:
    """Two rows more, of which no gradient comes back: nothing changes for the others."""
    T, N, D = base.recipe.sizes
    if base.program.draws or base.program.mixes_rows:
        raise UnfitError("rows meet")
    return _larger(base, replace(base.recipe, sizes=(T, N + 2, D)), "N", N)


@relation
def steps_added(base: Base, r: Random) -> Pairs:
    """Three steps more, of which no gradient comes back: nothing changes for those before."""
    T, N, D = base.recipe.sizes
    recipe = base.recipe
    if (
        base.program.draws
        or base.program.mixes_steps
        or len(recipe.layers) > 1
        or any(layer.reverse for layer in recipe.layers)
    ):
        raise UnfitError("what comes later matters")
    return _larger(base, replace(recipe, sizes=(T + 3, N, D)), "T", T)


def _larger(base: Base, recipe: Recipe, kind: str, size: int) -> Pairs:
    """The program of a larger size along an axis, beside what the smaller one gave for outputs that have the axis."""
    program = write_program(recipe)
    axes = {name: one for name, one in base.program.outputs.items() if kind in one}
    if set(program.feeds) != set(base.program.feeds) or program.outputs != base.program.outputs or not axes:
        raise UnfitError("another program at another size")
    _second[:] = [program.text]
    feeds = {name: _padded(base.feeds[name], feed, kind, recipe) for name, feed in program.feeds.items()}
    if any(feeds[name].shape != feed.shape for name, feed in program.feeds.items()):
        raise UnfitError("another program at another size")
    run = compiled(net_of(program), recipe, "cpu")
    names = wrt_of(run.net, feeds, recipe)
    out, pullback = run.vjp(feeds, seed=SEED, wrt=names)
    given = {name: base.wanted[name] for name in axes if name in base.wanted}
    wide = {}
    for name, array in given.items():
        wide[name] = np.zeros_like(out[name])
        wide[name][_first(axes[name], kind, size)] = array
    _, other = base.run.vjp(base.feeds, seed=SEED, wrt=names)
    grads, wanted = pullback(wide), other(given)
    cut = {name: grads[name][_first(program.feeds[name].axes, kind, size)] for name in grads}
    return [
        (
            "output",
            {name: out[name][_first(axes[name], kind, size)] for name in axes},
            {name: base.out[name] for name in axes},
        ),
        ("gradient", cut, wanted),
    ]


def _first(axes: str, kind: str, size: int) -> tuple[slice, ...]:
    axis = _axis(axes, kind)
    return () if axis is None else (slice(None),) * axis + (slice(size),)


def _padded(array: np.ndarray, feed: Feed, kind: str, recipe: Recipe) -> np.ndarray:
    """The array with more along an axis: copies of what it has, in another order."""
    axis = _axis(feed.axes, kind)
    if axis is None or array.shape[axis] == feed.shape[axis]:
        return array
    more = np.arange(feed.shape[axis] - array.shape[axis]) % array.shape[axis]
    return np.ascontiguousarray(np.concatenate([array, np.take(array, more[::-1], axis=axis)], axis=axis))


@relation
def gradients_add_up(base: Base, r: Random) -> Pairs:
    """The pullback is linear: of two gradients, of each output by itself."""
    names = wrt_of(base.net, base.feeds, base.recipe)

    def pulled(given: Arrays) -> Arrays:
        return base.run.vjp(base.feeds, seed=SEED, wrt=names)[1](given)

    twice = pulled({name: -2.0 * array for name, array in base.wanted.items()})
    apart = [pulled({name: array}) for name, array in base.wanted.items()]
    total = {name: np.asarray(sum(one[name] for one in apart)) for name in base.grads}
    return [
        ("gradient of -2 times", twice, {name: np.asarray(-2.0 * array) for name, array in base.grads.items()}),
        ("sum of gradients", total, base.grads),
    ]


@relation
def kept_otherwise(base: Base, r: Random) -> Pairs:
    """Other choices of what is kept, of threads, tiles and vectors."""
    changed = {"checkpoints": r.choice([None, "all", "speed", "memory"]), "threads": r.choice([1, 2, 3])}
    changed |= {"tile": r.choice([1, 2, 4]), "width": r.choice([128, 256, 512]), "recycle": r.random() < 0.5}
    changed |= {"memory_budget": None, "around": r.choice(["", "none", "rows", "rows", "all"])}
    if changed["checkpoints"] is None:
        changed["memory_budget"] = r.choice([None, 0.5, 1.0])
    try:
        return both(base, again(base, base.program, **changed))
    except ro.BudgetError as error:
        raise UnfitError("no such budget") from error


@relation
def some_inputs(base: Base, r: Random) -> Pairs:
    """Gradients of a few inputs alone are what they are among all."""
    names = sorted(base.grads)
    chosen = r.sample(names, r.randrange(1, len(names) + 1))
    grads = base.run.vjp(base.feeds, seed=SEED, wrt=chosen)[1](base.wanted)
    return [("gradient", grads, {name: base.grads[name] for name in chosen})]


@relation
def called_plainly(base: Base, r: Random) -> Pairs:
    """A call without a pullback, and a run with parameters bound."""
    out = base.run(base.feeds, seed=SEED, training=True)
    fixed = {name: array for name, array in base.feeds.items() if name.startswith("p")}
    bound = base.run.bind(**fixed)
    rest = {name: array for name, array in base.feeds.items() if name not in fixed}
    found = [bound(rest, seed=SEED, training=True) for _ in range(3)] if rest else []
    return [("output", out, base.out), *(("bound output", one, base.out) for one in found)]


@relation
def other_sizes(base: Base, r: Random) -> Pairs:
    """The same run at other sizes, whose plan is filled in, beside the reference."""
    T, N, D = base.recipe.sizes
    recipe = replace(base.recipe, sizes=(T + r.choice([1, 2, 5]), N, D))
    program = write_program(recipe)
    if program.text != base.program.text:
        raise UnfitError("another program at another size")
    feeds = feeds_of(program, recipe)
    wanted = results(compiled(base.net, recipe, "reference"), feeds, recipe)
    if not finite(*wanted) or largest(*wanted) > HUGE:
        raise UnfitError("not finite")
    got = results(base.run, feeds, recipe)
    return [("output", got[0], wanted[0]), ("gradient", got[1], wanted[1])]


def draw_relation(recipe: Recipe, seed: int) -> tuple[str, Verdict]:
    """A relation that fits the recipe, and what came of it."""
    base = _base(replace(recipe, dtype="float64"))
    if isinstance(base, Verdict):
        return "relations", base
    r = Random(f"relation {seed}")
    for name in r.sample(list(RELATIONS), len(RELATIONS)):
        verdict = _related(base, name, seed)
        if verdict.kind != "unfit":
            return name, verdict
    return "none", Verdict("unfit")
