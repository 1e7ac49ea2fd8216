"""The smallest set of blobs from which others follow: a minimum vertex cut.

Every blob is a vertex that costs its bytes to keep. Sources are blobs that cannot be computed again, targets blobs that
must be at hand; the cut separates them. Of all smallest cuts the one nearest to the targets is taken, which leaves the
least to compute again. Solved as maximum flow (Ford and Fulkerson 1956) by SciPy.

Limit: SciPy's flow has 32-bit capacities, so sizes that add up to 2^30 and more are divided by a common factor first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from rnnops.sizes import settled

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
    infinite = [size is None for size in cost.values()]
    arcs = sorted({(2 * index[a] + 1, 2 * index[b]) for a, b in edges})
    starts, ends = {2 * index[name] for name in sources}, {2 * index[name] + 1 for name in wanted}
    find = partial(_cut, infinite, arcs, sorted(starts), sorted(ends))
    cut: frozenset[int] = settled(find, [size for size in cost.values() if size is not None])
    return {name for name, i in index.items() if i in cut}


def _cut(
    without_cost: Sequence[bool],
    edges: Iterable[tuple[int, int]],
    sources: Iterable[int],
    targets: Iterable[int],
    cost: Sequence[int],
) -> tuple[frozenset[int], bool]:
    """Blobs to keep, by number, and whether what a cut costs is linear in the costs of blobs.

    Args:
        without_cost: whether each blob must not be kept.
        edges, sources, targets: between the vertices of the graph.
        cost: of each blob that may be kept.
    """
    divisor = max(1, -(-sum(cost) // (LIMIT // 2)))
    capacity = [max(1, -(-size // divisor)) for size in cost]  # at least 1, and their sum below the limit
    infinite, sizes, count = sum(capacity) + 1, iter(capacity), len(without_cost)
    source, sink = 2 * count, 2 * count + 1
    arcs = [(2 * i, 2 * i + 1, infinite if never else next(sizes)) for i, never in enumerate(without_cost)]
    arcs += [(start, end, infinite) for start, end in edges]
    arcs += [(source, vertex, infinite) for vertex in sources]
    arcs += [(vertex, sink, infinite) for vertex in targets]
    graph = _matrix(arcs, sink + 1)
    flow = maximum_flow(graph, source, sink)
    if flow.flow_value >= infinite:
        raise ValueError("no finite cut: a blob that must not be kept cannot be computed again")
    reaches_sink = _reaching(graph - flow.flow, sink)
    cut = frozenset(i for i in range(count) if 2 * i + 1 in reaches_sink and 2 * i not in reaches_sink)
    return cut, divisor == 1


def _matrix(arcs: list[tuple[int, int, int]], n: int) -> csr_array:
    rows, columns, values = (np.array(column, dtype=np.int32) for column in zip(*arcs, strict=True))
    return csr_array(coo_array((values, (rows, columns)), shape=(n, n)))


def _reaching(residual: csr_array, sink: int) -> set[int]:
    """Vertices from which the sink can be reached by arcs with capacity left."""
    backwards = csr_array(residual.T > 0).astype(np.int32)
    order = breadth_first_order(backwards, sink, directed=True, return_predecessors=False)
    return {int(vertex) for vertex in order}
