"""The smallest set of blobs from which others follow: a minimum vertex cut.

Every blob is a vertex that costs its bytes to keep. Sources are blobs that cannot be computed again, targets blobs that
must be at hand; the cut separates them. Of all smallest cuts the one nearest to the targets is taken, which leaves the
least to compute again. Solved as maximum flow (Ford and Fulkerson 1956).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from rnnops.checkpoints.maximum_flow import FlowNet
from rnnops.sizes import settled


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
    arcs = [(2 * index[a] + 1, 2 * index[b]) for a, b in dict.fromkeys(edges)]
    starts = [2 * index[name] for name in dict.fromkeys(sources)]
    ends = [2 * index[name] + 1 for name in sorted(wanted)]
    find = partial(_cut, [size is None for size in cost.values()], arcs, starts, ends)
    cut: frozenset[int] = settled(find, [max(1, size) for size in cost.values() if size is not None])
    return {name for name, i in index.items() if i in cut}


def _cut(
    without_cost: Sequence[bool],
    edges: Iterable[tuple[int, int]],
    sources: Iterable[int],
    targets: Iterable[int],
    cost: Sequence[int],
) -> tuple[frozenset[int], bool]:
    """Blobs to keep, by number, and that what a cut costs is linear in the costs of blobs.

    Args:
        without_cost: whether each blob must not be kept.
        edges, sources, targets: between the vertices of the graph.
        cost: of each blob that may be kept.
    """
    infinite, sizes, count = sum(cost) + 1, iter(cost), len(without_cost)
    source, sink = 2 * count, 2 * count + 1
    net = FlowNet(sink + 1)
    for i, never in enumerate(without_cost):
        net.add(2 * i, 2 * i + 1, infinite if never else next(sizes))
    for start, end in edges:
        net.add(start, end, infinite)
    for vertex in sources:
        net.add(source, vertex, infinite)
    for vertex in targets:
        net.add(vertex, sink, infinite)
    if net.fill(source, sink) >= infinite:
        raise ValueError("no finite cut: a blob that must not be kept cannot be computed again")
    reaches_sink = net.reaching(sink)
    return frozenset(i for i in range(count) if 2 * i + 1 in reaches_sink and 2 * i not in reaches_sink), True
