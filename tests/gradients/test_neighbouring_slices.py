"""Gradients of slices that are neighbours are joined; those that overlap or leave places out are padded and added."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro

CUTS = {
    "gates in order": ([(0, 2), (2, 4), (4, 6)], True),
    "gates in any order": ([(4, 6), (0, 3), (3, 4)], True),
    "an overlap": ([(0, 4), (3, 6)], False),
    "a gap": ([(0, 2), (3, 6)], False),
    "no end": ([(0, 2), (2, 5)], False),
    "one twice": ([(0, 3), (0, 3), (3, 6)], True),
}


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("read_whole", [False, True])
@pytest.mark.parametrize("name", CUTS)
def test_sums_of_slices(name: str, read_whole: bool, axis: int) -> None:
    cuts, joined = CUTS[name]
    net = ro.Net("cuts")
    x = net.input("x")
    first = ro.tanh(x)
    parts = [ro.slice(first, [begin], [end], [axis]) for begin, end in cuts]
    results = [ro.reduce_sum(part * part * (i + 1.0), keepdims=0) for i, part in enumerate(parts)]
    results += [ro.reduce_sum(first, keepdims=0)] if read_whole else []
    total = results[0]
    for result in results[1:]:
        total = total + result
    net.outputs(y=total)
    feeds = {"x": np.random.default_rng(0).normal(size=(6, 6))}
    for device in ("reference", "cpu"):
        run = ro.compile(net, device=device)
        _, pullback = run.vjp(feeds)
        grad = pullback({"y": np.ones(())})["x"]
        hidden = np.tanh(feeds["x"])
        wanted = np.full((6, 6), float(read_whole))
        for i, (begin, end) in enumerate(cuts):
            place = (slice(None),) * axis + (slice(begin, end),)
            wanted[place] += 2.0 * (i + 1) * hidden[place]
        np.testing.assert_allclose(grad, wanted * (1 - hidden**2), 1e-12)
    gradient_net = str(ro.compile(net, device="reference").plan(x=(6, 6)).plan.backward.net)
    assert ("Concat" in gradient_net) == joined
    assert ("Pad" in gradient_net) != joined


def test_layers_get_their_own_gradients() -> None:
    """Layer by layer, what the slices of a later layer add to a blob is the same as at once."""
    net = ro.Net("layers")
    x, w = net.input("x"), net.input("w")
    with net.in_layer("first"):
        hidden = ro.tanh(x @ w)
    with net.in_layer("second"):
        a, b = ro.slice(hidden, [0], [3], [1]), ro.slice(hidden, [3], [6], [1])
        y = a * b
    net.outputs(y=y)
    rng = np.random.default_rng(1)
    feeds = {"x": rng.normal(size=(2, 4)), "w": rng.normal(size=(4, 6))}
    run = ro.compile(net, device="reference")
    at_once = run.vjp(feeds)[1]({"y": np.ones((2, 3))})
    found = {}
    for names, _, grads, _ in run.vjp(feeds)[1].layers({"y": np.ones((2, 3))}):
        found.update(grads if isinstance(grads, dict) else dict(zip(names, grads, strict=True)))
    for name, grad in at_once.items():
        np.testing.assert_array_equal(found[name], grad)
