"""The smallest set of blobs from which others follow: a minimum vertex cut.

Every blob is a vertex that costs its bytes to keep. Sources are blobs that cannot be computed again, targets blobs that
must be at hand; the cut separates them. Of all smallest cuts the one nearest to the targets is taken, which leaves the
least to compute again. Solved as maximum flow (Ford and Fulkerson 1956).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rnnops.checkpoints.maximum_flow import FlowNet


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
    infinite = sum(max(1, size) for size in cost.values() if size is not None) + 1
    source, sink = 2 * len(index), 2 * len(index) + 1
    net = FlowNet(sink + 1)
    for name, i in index.items():
        size = cost[name]
        net.add(2 * i, 2 * i + 1, infinite if size is None else max(1, size))
    for a, b in dict.fromkeys(edges):
        net.add(2 * index[a] + 1, 2 * index[b], infinite)
    for name in dict.fromkeys(sources):
        net.add(source, 2 * index[name], infinite)
    for name in sorted(wanted):
        net.add(2 * index[name] + 1, sink, infinite)
    if net.fill(source, sink) >= infinite:
        raise ValueError("no finite cut: a blob that must not be kept cannot be computed again")
    reaches_sink = net.reaching(sink)
    return {name for name, i in index.items() if 2 * i + 1 in reaches_sink and 2 * i not in reaches_sink}
