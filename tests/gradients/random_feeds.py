"""Feeds for gradient checks of cells, and results as bits."""

from __future__ import annotations

from typing import Any

import numpy as np

import rnnops as ro

Array = np.ndarray


def random_feeds(net: ro.Net, **given: Any) -> dict[str, Array]:
    """Float64 feeds for all inputs of a net.

    Args:
        given: shapes of float inputs that are not parameters (`/` in a name written as `__`), or arrays.
    """
    generator = np.random.Generator(np.random.PCG64(len(net.input_names)))
    given = {name.replace("__", "/"): value for name, value in given.items()}
    feeds = {}
    for spec in net.input_specs:
        value = given.get(spec.name, spec.shape)
        assert value is not None, spec.name
        feeds[spec.name] = value if isinstance(value, np.ndarray) else generator.uniform(-1.2, 1.2, value)
    return feeds


def bits(net: ro.Net | ro.Run, feeds: dict[str, Array], **options: Any) -> dict[str, bytes]:
    """Outputs, and gradients for output gradients that differ in every element, of a net or a run."""
    run = ro.compile(net, device="reference") if isinstance(net, ro.Net) else net
    out, pullback = run.vjp(feeds, **options)
    floats = {name: array for name, array in out.items() if array.dtype.kind == "f"}
    weights = {name: np.cos(np.arange(array.size)).reshape(array.shape) for name, array in floats.items()}
    grads = pullback(weights)
    return {name: array.tobytes() for name, array in [*out.items(), *(("grad " + k, v) for k, v in grads.items())]}
