"""The smallest recipe that still fails: parts are left out as long as it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from recipe import Layer, Recipe

TRIES = 150


def shrink(recipe: Recipe, fails: Callable[[Recipe], bool], tries: int = TRIES) -> Recipe:
    """Leave out what can be left out.

    Args:
        recipe: that fails.
        fails: whether a recipe does.
        tries: at most so many recipes are tried.
    """
    while True:
        for smaller in _smaller(recipe):
            tries -= 1
            if tries < 0:
                return recipe
            if fails(smaller):
                recipe = smaller
                break
        else:
            return recipe


def _smaller(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes with one thing less, the largest things first."""
    for place in range(len(recipe.layers)):
        if len(recipe.layers) > 1:
            yield replace(recipe, layers=_without(recipe.layers, place))
    for kind in ("before", "after"):
        for place in range(len(getattr(recipe, kind))):
            yield replace(recipe, **{kind: _without(getattr(recipe, kind), place)})
    for place, layer in enumerate(recipe.layers):
        for less in _smaller_layers(layer):
            yield replace(recipe, layers=(*recipe.layers[:place], less, *recipe.layers[place + 1 :]))
    for name, _ in recipe.options:
        yield replace(recipe, options=tuple(pair for pair in recipe.options if pair[0] != name))
    if recipe.outputs > 1:
        yield replace(recipe, outputs=recipe.outputs // 2)
        yield replace(recipe, outputs=recipe.outputs - 1)
    if recipe.dtype != "float64":
        yield replace(recipe, dtype="float64")
    for place, size in enumerate(recipe.sizes):
        for less in {1, 2, size - 1}:
            if 0 < less < size:
                yield replace(recipe, sizes=(*recipe.sizes[:place], less, *recipe.sizes[place + 1 :]))


def _smaller_layers(layer: Layer) -> Iterator[Layer]:
    for place in range(len(layer.motifs)):
        yield replace(layer, motifs=_without(layer.motifs, place))
    for place in range(1, len(layer.states)):
        yield replace(layer, states=_without(layer.states, place))
    for place in range(len(layer.sequences)):
        yield replace(layer, sequences=_without(layer.sequences, place))
    if layer.outputs:
        yield replace(layer, outputs=layer.outputs - 1)
    for flag in ("reverse", "lengths", "recompute", "timestep"):
        if getattr(layer, flag):
            yield replace(layer, **{flag: False})
    for place, state in enumerate(layer.states):
        if state.start != "rows":
            plainer = replace(state, start="rows")
            yield replace(layer, states=(*layer.states[:place], plainer, *layer.states[place + 1 :]))


def _without(parts: tuple, place: int) -> tuple:
    return (*parts[:place], *parts[place + 1 :])
