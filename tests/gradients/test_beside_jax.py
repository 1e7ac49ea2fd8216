"""Products with the Hessian beside JAX's `jvp(grad)`: cells of the benchmark's kinds, and every preset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import rnnops as ro
from bench import kinds_of_cells
from bench.kinds import in_doubles, jax_outputs, net_of
from bench.preset_engine import CELL, PREFIX, feeds_of, jax_cell, net_of as preset_net, preset_of, starts_of
from bench.problems import Problem, Size

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytestmark = pytest.mark.slow

Arrays = dict[str, np.ndarray]
SURROGATES = {"lif", "alif"}  # their gradient is none of a function, so JAX's has another tangent
COMPILED = [*kinds_of_cells.KINDS][::8]  # "cpu" and "reference" are compared by other tests
TOLERANCE = 1e-9  # of the largest number of an array


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def assert_same(
    net: ro.Net, feeds: Arrays, output: str, function: Callable[[Mapping[str, Any]], Any], device: str = "reference"
) -> None:
    """Compare gradients and products of a weighted sum of an output, for a direction of all feeds at once."""
    rng = np.random.default_rng(1)
    vectors = {name: rng.normal(size=array.shape) for name, array in feeds.items()}
    weights = rng.normal(size=np.shape(function(feeds)))
    slopes = jax.grad(lambda given: (function(given) * weights).sum())
    wanted = jax.jvp(slopes, (feeds,), (vectors,))
    _, *found = ro.compile(net, device=device).hvp(feeds, vectors, {output: weights})
    for mine, theirs in zip(found, wanted, strict=True):
        for name, array in mine.items():
            bound = TOLERANCE * (1 + np.abs(theirs[name]).max())
            np.testing.assert_allclose(array, theirs[name], rtol=0, atol=bound, err_msg=name)


@pytest.mark.parametrize("kind", kinds_of_cells.KINDS)
def test_cells_of_many_kinds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, only in {"STEPS": 4, "BATCHES": 2, "WIDTHS": 8}.items():
        monkeypatch.setattr(kinds_of_cells, name, (only,))
    cell = in_doubles(kinds_of_cells.KINDS[kind](np.random.default_rng(0)))
    net, feeds = net_of(cell)
    outputs = jax_outputs(cell)

    def function(given: Mapping[str, Any]) -> Any:
        states = {name: given[f"{name}0"] for name in cell.states}
        return outputs({name: given[name] for name in cell.parameters}, states, given["xs"])

    assert_same(net, feeds, "ys", function, "cpu" if kind in COMPILED else "reference")


@pytest.mark.parametrize("name", [name for name in ro.cells.CELLS if name not in SURROGATES])
def test_every_preset(name: str) -> None:
    problem = Problem(f"{PREFIX}{name}", Size(4, 3, 8))
    feeds = {blob: array.astype(np.float64) for blob, array in feeds_of(problem)[0].items()}
    cell, starts = jax_cell(name), starts_of(preset_of(problem))

    def function(given: Mapping[str, Any]) -> Any:
        parameters = {blob.removeprefix(f"{CELL}/"): array for blob, array in given.items()}
        states = [jax.numpy.broadcast_to(given[start], (3, *given[start].shape)) for start in starts]
        return cell(parameters, given["xs"], *states)

    assert_same(preset_net(problem), feeds, "y", function)
