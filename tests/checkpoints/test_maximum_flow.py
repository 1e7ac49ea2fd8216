"""Flows and components of random graphs, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, maximum_flow

from rnnops.checkpoints.slot_schedule import FlowNet
from rnnops.util import strong_components, weak_components

SEEDS = range(60)


def random_arcs(seed: int) -> tuple[int, list[tuple[int, int]], np.random.Generator]:
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 30))
    arcs = random.integers(0, count, (int(random.integers(1, 4 * count)), 2))
    return count, [(int(a), int(b)) for a, b in dict.fromkeys(map(tuple, arcs.tolist()))], random


@pytest.mark.parametrize("seed", SEEDS)
def test_flows(seed: int) -> None:
    count, arcs, random = random_arcs(seed)
    arcs = [(a, b) for a, b in arcs if a != b] or [(0, 1)]
    capacities = [int(one) for one in random.integers(1, 20, len(arcs))]
    net = FlowNet(count)
    for (a, b), capacity in zip(arcs, capacities, strict=True):
        net.add(a, b, capacity)
    rows, columns = zip(*arcs, strict=True)
    graph = csr_array(coo_array((np.array(capacities, np.int32), (rows, columns)), shape=(count, count)))
    assert net.fill(0, count - 1) == maximum_flow(graph, 0, count - 1).flow_value
    cut = net.reaching(count - 1)
    assert 0 not in cut
    through = sum(c for (a, b), c in zip(arcs, capacities, strict=True) if a not in cut and b in cut)
    assert through == maximum_flow(graph, 0, count - 1).flow_value, "what reaches the end is cut off by a smallest cut"


def test_capacities_beyond_64_bits() -> None:
    net = FlowNet(3)
    net.add(0, 1, 2**70)
    net.add(1, 2, 2**69 + 1)
    assert net.fill(0, 2) == 2**69 + 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("find", "kind"), [(strong_components, "strong"), (weak_components, "weak")])
def test_components(seed: int, find: object, kind: str) -> None:
    count, arcs, _ = random_arcs(seed)
    rows, columns = zip(*arcs, strict=True)
    graph = coo_array((np.ones(len(arcs)), (rows, columns)), shape=(count, count))
    _, wanted = connected_components(graph, directed=True, connection=kind)
    came = find(count, arcs)  # type: ignore[operator]
    assert len(set(zip(came, wanted.tolist(), strict=True))) == len(set(came)) == len(set(wanted.tolist()))


def test_a_long_chain_needs_no_recursion() -> None:
    assert len(set(strong_components(50_000, [(i, i + 1) for i in range(49_999)]))) == 50_000
    assert set(weak_components(50_000, [(i + 1, i) for i in range(49_999)])) == {0}
