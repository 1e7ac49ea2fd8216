"""The smallest set of blobs from which others follow: a minimum vertex cut.

Every blob is a vertex that costs its bytes to keep. Sources are blobs that cannot be computed again, targets blobs that
must be at hand; the cut separates them. Of all smallest cuts the one nearest to the targets is taken, which leaves the
least to compute again. Solved as maximum flow (Ford and Fulkerson 1956) by SciPy.

Limit: SciPy's flow has 32-bit capacities, so sizes that add up to 2^30 and more are divided by a common factor first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

LIMIT = 2**30


def minimum_cut(
    cost: Mapping[str, int | None], edges: Iterable[tuple[str, str]], sources: Iterable[str], targets: Iterable[str]
) -> set[str]:
    """Blobs to keep.

    Args:
        cost: bytes of each blob, None where it must not be kept.
        edges: (blob read, blob computed from it).
        sources: blobs that cannot be computed again.
        targets: blobs that must be kept or follow from what is kept.

    Returns: the cut; raises ValueError where a source that is also a target must not be kept.
    """
    wanted = set(targets)
    if not wanted:
        return set()
    index = {name: i for i, name in enumerate(cost)}
    capacity = _scaled([size for size in cost.values() if size is not None])
    infinite = sum(capacity) + 1
    sizes = iter(capacity)
    source, sink = 2 * len(index), 2 * len(index) + 1
    arcs = [(2 * i, 2 * i + 1, infinite if cost[name] is None else next(sizes)) for name, i in index.items()]
    arcs += [(2 * index[a] + 1, 2 * index[b], infinite) for a, b in set(edges)]
    arcs += [(source, 2 * index[name], infinite) for name in set(sources)]
    arcs += [(2 * index[name] + 1, sink, infinite) for name in wanted]
    graph = _matrix(arcs, sink + 1)
    flow = maximum_flow(graph, source, sink)
    if flow.flow_value >= infinite:
        raise ValueError("no finite cut: a blob that must not be kept cannot be computed again")
    reaches_sink = _reaching(graph - flow.flow, sink)
    return {name for name, i in index.items() if 2 * i + 1 in reaches_sink and 2 * i not in reaches_sink}


def _scaled(sizes: list[int]) -> list[int]:
    """Capacities of at least 1 whose sum stays below the limit."""
    divisor = max(1, -(-sum(sizes) // (LIMIT // 2)))
    return [max(1, -(-size // divisor)) for size in sizes]


def _matrix(arcs: list[tuple[int, int, int]], n: int) -> csr_array:
    rows, columns, values = (np.array(column, dtype=np.int32) for column in zip(*arcs, strict=True))
    return csr_array(coo_array((values, (rows, columns)), shape=(n, n)))


def _reaching(residual: csr_array, sink: int) -> set[int]:
    """Vertices from which the sink can be reached by arcs with capacity left."""
    backwards = csr_array(residual.T > 0).astype(np.int32)
    order = breadth_first_order(backwards, sink, directed=True, return_predecessors=False)
    return {int(vertex) for vertex in order}
