"""`check_forward_mode`: derivatives in a direction against gradients, without finite differences.

For directions `v` of inputs and weights `u` of outputs, `<u, J v>` and `<J^T u, v>` are the same number. `run.jvp`
gives `J v`, and the pullback of `run.vjp` gives `J^T u`. The check takes one pass of each, and holds in float32 too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnops.net.net import Net
from rnnops.testing.gradient_check import (
    CheckError,
    Device,
    difference,
    float_outputs,
    output_grads,
    require_net_and_feeds,
    run_on,
    tolerance_of,
)
from rnnops.types import Array


def check_forward_mode(
    net: Net,
    feeds: Mapping[str, Any],
    device: Device = "cpu",
    *,
    wrt: Any = None,
    seed: int | None = None,
    training: bool = True,
) -> float:
    """Compare `run.jvp` with `run.vjp`: both must give the same derivative of weighted outputs in one direction.

    A number is the sum of products of weights and derivatives. The two numbers may differ by the relative part of
    `TOLERANCES` times the sum of the absolute values of all these products: 1e-5 in float32, 1e-12 in float64.
    Outputs of `jvp` must be those of `vjp` within `TOLERANCES`.

    Args:
        net: with float inputs and outputs.
        feeds: input name -> array, all floats float32 or all float64.
        device: a name for `ro.compile`, or a function that makes a run of a net.
        wrt: float inputs that move; all of them if left out.
        seed: of random ops.
        training: whether Dropout is active.

    Returns:
        The difference of the two numbers, divided by the sum of the absolute values of all products.

    Raises:
        CheckError: they differ by more than is allowed.
        FeedError: feeds do not fit.
        GradientError: the net cannot be differentiated.

    Example:
        >>> net = ro.Net("n")
        >>> x, h, w = net.inputs("x", "h", "w")
        >>> net.outputs(y=ro.tanh(x + h @ w))
        >>> ro.testing.check_forward_mode(net, {"x": np.ones((2, 3)), "h": np.ones((2, 3)), "w": np.eye(3)}) < 1e-12
        True
    """
    require_net_and_feeds(net, feeds)
    run: Any = run_on(net, device)
    outputs, pullback = run.vjp(feeds, seed=seed, training=training, wrt=wrt)
    weights = output_grads(outputs, float_outputs(net, outputs, None))
    outputs = {name: array.copy() for name, array in outputs.items()}  # which were lent
    grads = pullback(weights)
    directions = output_grads(grads, [*grads][::-1])
    found, moved = run.jvp(feeds, directions, seed=seed, training=training)
    for name, array in outputs.items():
        if not difference(found[name], array) <= tolerance_of(array.dtype).limit(array):
            raise CheckError("run.jvp gives another output than run.vjp", net=net.name, blob=name)
    ahead, behind = _terms(weights, moved), _terms(directions, grads)
    total = float(np.abs(ahead).sum() + np.abs(behind).sum())
    error = abs(float(ahead.sum() - behind.sum())) / (total or 1.0)
    limit = max((tolerance_of(array.dtype).relative for array in grads.values()), default=0.0)
    if not error <= limit:
        problem = f"run.jvp and run.vjp disagree, by {error:.3g} of all terms where {limit:.3g} is allowed"
        raise CheckError(problem, net=net.name, wanted=f"{behind.sum():.9g}", came=f"{ahead.sum():.9g}")
    return error


def _terms(left: Mapping[str, Array], right: Mapping[str, Array]) -> Array:
    """Products of all elements of the arrays of the same name, in float64."""
    pairs = [(array.astype(np.float64), right[name]) for name, array in left.items()]
    return np.concatenate([np.zeros(0), *((a * b).ravel() for a, b in pairs)])
