"""Backward passes by layers, with a consumer that spoils all it is given, as tests compare them with plain ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import rnnops as ro
from rnnops.compiler.run.layer_plan import layered_backward
from rnnops.testing.gradient_check import output_grads

Arrays = dict[str, np.ndarray]
Run = tuple[list[list[str]], Arrays, list[Arrays]]


def start(run: ro.Run, feeds: Mapping[str, np.ndarray], wrt: Any = None) -> tuple[ro.Pullback, Arrays]:
    """A pullback, and gradients for all float outputs that take one."""
    out, pullback = run.vjp(dict(feeds), seed=3, wrt=wrt)
    plan = pullback._plan.gradient
    return pullback, output_grads(out, [name for name in plan.output_grads if name not in plan.refused])


def plain(run: ro.Run, feeds: Mapping[str, np.ndarray], wrt: Any = None) -> Arrays:
    pullback, dy = start(run, feeds, wrt)
    return pullback(dy)


def by_layers(run: ro.Run, feeds: Mapping[str, np.ndarray], wrt: Any = None, **arguments: Any) -> Run:
    """Names, gradients and layer gradients of each layer; everything yielded is overwritten once it is copied."""
    fed = {name: array.copy() for name, array in feeds.items()}
    pullback, dy = start(run, fed, wrt)
    given = {name: array.copy() for name, array in dy.items()}
    names, grads, layer_grads = [], {}, []
    for params, values, param_grads, of_inputs in pullback.layers(dy, **arguments):
        assert all(fed[name] is value for name, value in zip(params, values, strict=True))
        assert not grads.keys() & set(params)
        names.append(params)
        grads.update({name: grad.copy() for name, grad in zip(params, param_grads, strict=True)})
        layer_grads.append({name: grad.copy() for name, grad in of_inputs.items()})
        for array in (*values, *param_grads, *of_inputs.values()):
            array[...] = np.nan
    for name, array in dy.items():
        assert array.tobytes() == given[name].tobytes(), f"the gradient of {name} was changed"
    return names, grads, layer_grads


def layers_of(run: ro.Run, feeds: Mapping[str, np.ndarray], wrt: Any = None) -> list[tuple[str, ...]]:
    """What each layer is called, the last one first."""
    pullback, _ = start(run, feeds, wrt)
    return [layer.names for layer in layered_backward(pullback._plan).layers]
