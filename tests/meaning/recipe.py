"""What a program is made of: sizes, layers, motifs with seeds of their own, options. Any part may be left out.

A recipe is data: `draw_recipe(seed)` is the same at every call, and each motif draws from its own seed, so that a
recipe without one of its motifs is a recipe, too. That is what `shrink.py` lives on.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from motif_list import draw_motif

Part = tuple[str, int]  # a motif and its seed


@dataclass(frozen=True)
class State:
    """A state of a cell.

    Args:
        shape: of its features: one axis, none, or two.
        start: "rows" [N, ...], "features" [D], "zeros", "tied" (the start of the state before it), "last" (of the
            layer below) or "made" (from an input).
        window: how many steps the cell sees of it.
    """

    shape: tuple[int, ...]
    start: str = "rows"
    window: int = 1


@dataclass(frozen=True)
class Layer:
    """A cell and its scan.

    Args:
        seed: of what is not a motif's.
        motifs: of its step, in order.
        states: of the cell.
        sequences: what it reads, of "x" (the last sequence around), "first" (the input), "i" (integers), "m" (flags),
            "g" (a small matrix for each row).
        outputs: how many values beside states it gives.
        reverse, lengths, recompute, timestep: of the scan.
    """

    seed: int
    motifs: tuple[Part, ...]
    states: tuple[State, ...]
    sequences: tuple[str, ...]
    outputs: int = 1
    reverse: bool = False
    lengths: bool = False
    recompute: bool = False
    timestep: bool = False


@dataclass(frozen=True)
class Recipe:
    """A program: layers, what stands around them, sizes, and how it is run.

    Args:
        seed: of what is not a part's.
        sizes: T, N, D.
        classes: of integers.
        layers: from below; a layer reads what is around, which earlier layers have added to.
        before, after: motifs around the layers.
        dtype: of floats.
        outputs: at most so many.
        options: of `compile` and `vjp`, as pairs.
    """

    seed: int
    sizes: tuple[int, int, int]
    classes: int
    layers: tuple[Layer, ...]
    before: tuple[Part, ...] = ()
    after: tuple[Part, ...] = ()
    dtype: str = "float64"
    outputs: int = 4
    options: tuple[tuple[str, Any], ...] = ()


def draw_recipe(seed: int, small: bool = False) -> Recipe:
    """The recipe of a seed: of any size, or one of a layer with up to three motifs."""
    r = Random(f"recipe {seed}")
    sizes = (r.choice([1, 2, 3, 3, 4, 5]), r.choice([1, 2, 3, 3, 5]), r.choice([1, 2, 3, 4, 5]))
    chance = r.random()
    if chance < 0.05:
        sizes = (r.choice([6, 9]), r.choice([1, 7, 17]), r.choice([8, 16, 19]))
    elif chance < 0.1:
        sizes = (r.choice([17, 51, 51]), *sizes[1:])  # where segments and joined products begin
    count = 1 if small else r.choices([1, 2, 3], [70, 25, 5])[0]
    layers = tuple(_layer(r, sizes[2], place, 2 if small else 5 if count == 1 else 3) for place in range(count))
    most = [0] if small else [0, 0, 1, 2]
    around = _parts(r, r.choice(most), anywhere=True), _parts(r, r.choice([0, *most]), anywhere=True)
    dtype = "float64" if r.random() < 0.75 else "float32"
    options = _options(r)
    if any(name == "memory_budget" for name, _ in options):
        sizes = (r.choice([6, 9, 16]), *sizes[1:])  # for parts to be had
    if small:
        options = tuple(pair for pair in options if pair[0] != "around")
    return Recipe(
        r.getrandbits(32), sizes, r.choice([2, 3, 6]), layers, *around, dtype, r.choice([1, 2, 4, 8]), options
    )


def _parts(r: Random, count: int, anywhere: bool = False) -> tuple[Part, ...]:
    return tuple((draw_motif(r, anywhere), r.getrandbits(32)) for _ in range(count))


def _layer(r: Random, width: int, place: int, most: int) -> Layer:
    shapes: list[State] = []
    for number in range(r.choices([1, 2, 3], [60, 30, 10])[0]):
        shape = r.choices(
            [(r.choice([width, width, 1, 2, 3]),), (r.choice([1, 2, 3]), r.choice([1, 2])), (), (16, 33)],
            [80, 13, 6, 1],
        )[0]
        starts = ["rows"] * 5 + ["zeros", "made"] + ["features"] * (len(shape) == 1)
        starts += ["tied"] * (2 if number else 0) + ["last"] * (3 if place else 0)
        window = r.choice([2, 3]) if len(shape) == 1 and r.random() < 0.08 else 1
        shapes.append(State(shape, r.choice(starts) if window == 1 else "rows", window))
    sequences = [
        name
        for name, share in (("x", 0.85), ("first", 0.15), ("i", 0.45), ("m", 0.2), ("g", 0.1))
        if r.random() < share
    ]
    windows = any(state.window > 1 for state in shapes)
    return Layer(
        r.getrandbits(32), _parts(r, r.randrange(1, most + 1)), tuple(shapes), tuple(sequences), r.choice([0, 1, 1, 2]),
        r.random() < 0.2, r.random() < 0.2 and not windows, r.random() < 0.3, r.random() < 0.3,
    )  # fmt: skip


def _options(r: Random) -> tuple[tuple[str, Any], ...]:
    options: dict[str, Any] = {}
    if r.random() < 0.5:
        options["checkpoints"] = r.choice(
            ["all", "speed", "memory", ["mat_mul*", "one_hot*"], ["add*", "tanh*"], ["mul*", "sigmoid*", "p*"]]
        )
    elif r.random() < 0.2:
        options["memory_budget"] = r.choice([0.3, 0.5, 0.8, 1.0])
    options["threads"] = r.choice([1, 1, 2, 3])
    if r.random() < 0.15:
        options["recycle"] = False
    if r.random() < 0.5:
        options["width"] = r.choice([128, 256])
    if r.random() < 0.5:
        options["tile"] = r.choice([1, 2, 3])
    if r.random() < 0.4:
        options["around"] = "all" if r.random() < 0.2 else "rows"
    if r.random() < 0.35:
        options["wrt"] = "parameters"  # as in training: sequences are data
    elif r.random() < 0.15:
        options["wrt"] = r.getrandbits(16)
    if r.random() < 0.2:
        options["some_gradients"] = r.getrandbits(16)
    return tuple(options.items())
