"""A layered layout of a directed graph without cycles (Sugiyama, Tagawa and Toda, IEEE Trans. SMC 11(2), 1981).

Boxes lie in layers, each below those that it reads; an edge over several layers has a place in each; the order within
layers is found by means of neighbours' places, in sweeps down and up; then boxes move towards their neighbours.

Limits: a few hundred boxes; crossings are few, not fewest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

SWEEPS = 8  # down and up in turn; pictures change little after
GAP, LAYER_GAP, WAY = 16.0, 34.0, 8.0  # between boxes, between layers, and the width of a place of an edge
NEAR = 12  # places of an edge that are looked at for where it may go straight
CORNER = 40.0  # from the sides of a box, where edges neither begin nor end

Size = tuple[float, float]
Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Where boxes and edges lie.

    Args:
        boxes: key -> upper left corner.
        ways: (source, target) -> points from the lower side of one box to the upper side of the other.
    """

    boxes: dict[str, Point]
    ways: dict[tuple[str, str], list[Point]]
    width: float
    height: float


def lay_out(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]]) -> Layout:
    """Places of boxes of certain sizes.

    Args:
        sizes: key -> width and height, each key after those that it reads.
        edges: (source, target) by key.
    """
    layer_of = _layers(sizes, edges)
    chains = {edge: _chain(edge, layer_of) for edge in dict.fromkeys(edges)}
    widths = {key: width for key, (width, _) in sizes.items()}
    widths |= {place: WAY for chain in chains.values() for place in chain[1:-1]}
    layers = _filled(layer_of, chains)
    links = [pair for chain in chains.values() for pair in pairwise(chain)]
    above, below = _neighbours(links, 1), _neighbours(links, 0)
    _order(layers, above, below)
    centers = _centers(layers, widths, above, below)
    _straighten(layers, chains, widths, centers)
    return _placed(layers, sizes, centers, widths, chains)


def _layers(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The layer of each box: one below the lowest that it reads.

    What reads nothing lies one above its first reader, as does what follows from such boxes of its own alone.
    """
    reads = _neighbours(edges, 1)
    layers: dict[str, int] = {}
    for key in sizes:
        layers[key] = 1 + max((layers[source] for source in reads.get(key, ())), default=-1)
    read_by, loose = _neighbours(edges, 0), set[str]()
    for key in sizes:
        if all(source in loose and len(read_by[source]) == 1 for source in reads.get(key, ())):
            loose.add(key)
    for key in reversed([*sizes]):
        if key in loose and key in read_by:
            layers[key] = min(layers[reader] for reader in read_by[key]) - 1
    return layers


def _neighbours(pairs: Sequence[tuple[str, str]], side: int) -> dict[str, list[str]]:
    """For each key on one side of pairs, those on the other."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(pair[side], []).append(pair[1 - side])
    return found


def _chain(edge: tuple[str, str], layer_of: Mapping[str, int]) -> list[str]:
    """An edge as places, one in each layer that it passes."""
    source, target = edge
    passed = range(layer_of[source] + 1, layer_of[target])
    return [source, *(f"{source}\n{target}\n{layer}" for layer in passed), target]


def _filled(layer_of: Mapping[str, int], chains: Mapping[tuple[str, str], list[str]]) -> list[list[str]]:
    """Boxes and places of edges by layer."""
    layers: list[list[str]] = [[] for _ in range(1 + max(layer_of.values(), default=-1))]
    for key, layer in layer_of.items():
        layers[layer].append(key)
    for (source, _), chain in chains.items():
        for offset, place in enumerate(chain[1:-1], layer_of[source] + 1):
            layers[offset].append(place)
    return layers


def _order(layers: list[list[str]], above: Mapping[str, list[str]], below: Mapping[str, list[str]]) -> None:
    """Sort each layer by the mean place of neighbours above, then below, and so on."""
    places = {key: float(i) for layer in layers for i, key in enumerate(layer)}
    for sweep in range(SWEEPS):
        neighbours = below if sweep % 2 else above
        for layer in layers[::-1] if sweep % 2 else layers:
            layer.sort(key=lambda key, near=neighbours: _mean(places, near.get(key, [key])))  # type: ignore[misc]
            places.update((key, float(i)) for i, key in enumerate(layer))


def _mean(places: Mapping[str, float], keys: Sequence[str]) -> float:
    return sum(places[key] for key in keys) / len(keys)


def _centers(
    layers: Sequence[Sequence[str]],
    widths: Mapping[str, float],
    above: Mapping[str, list[str]],
    below: Mapping[str, list[str]],
) -> dict[str, float]:
    """Horizontal centers: side by side at first, then towards neighbours as far as there is room."""
    centers: dict[str, float] = {}
    for layer in layers:
        x = 0.0
        for key in layer:
            centers[key] = x + widths[key] / 2
            x += widths[key] + GAP
    for sweep in range(2 * SWEEPS):
        neighbours = below if sweep % 2 else above
        for layer in layers:
            wanted = [_mean(centers, neighbours.get(key, [key])) for key in layer]
            centers.update(zip(layer, _apart(wanted, [widths[key] for key in layer]), strict=True))
    return centers


def _apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Centers near those wanted, in the same order and without overlap: the mean of pushing right and pushing left."""

    def pushed(centers: Sequence[float], sizes: Sequence[float]) -> list[float]:
        found: list[float] = []
        for i, center in enumerate(centers):
            least = found[-1] + (sizes[i - 1] + sizes[i]) / 2 + GAP if found else center
            found.append(max(center, least))
        return found

    right = pushed(wanted, widths)
    left = [-center for center in pushed([-center for center in wanted[::-1]], widths[::-1])][::-1]
    return [(a + b) / 2 for a, b in zip(right, left, strict=True)]


def _straighten(
    layers: Sequence[Sequence[str]],
    chains: Mapping[tuple[str, str], list[str]],
    widths: Mapping[str, float],
    centers: dict[str, float],
) -> None:
    """Move the places of each long edge below each other, as many at a time as there is room for."""
    beside: dict[str, tuple[str | None, str | None]] = {}
    for layer in layers:
        beside.update(zip(layer, zip([None, *layer], [*layer[1:], None], strict=False), strict=True))

    def straight(x: float, keys: Sequence[str]) -> int:
        """How many places from the first on may lie there."""
        free = takewhile(lambda key: _has_room(x, key, beside[key], widths, centers), keys)
        return sum(1 for _ in free)

    for source, *between, target in chains.values():
        while between:
            near = [centers[key] for key in (source, target, *between[:NEAR])]
            count, _, x = max((straight(x, between), -abs(x - centers[between[0]]), x) for x in near)
            centers.update(dict.fromkeys(between[:count], x))
            source, between = between[max(count, 1) - 1], between[max(count, 1) :]


def _has_room(
    x: float,
    key: str,
    beside: tuple[str | None, str | None],
    widths: Mapping[str, float],
    centers: Mapping[str, float],
) -> bool:
    """Whether a place may have its center there."""
    left, right = beside
    far_left = left is None or x - centers[left] >= (widths[left] + widths[key]) / 2 + GAP
    return far_left and (right is None or centers[right] - x >= (widths[right] + widths[key]) / 2 + GAP)


def _placed(
    layers: Sequence[Sequence[str]],
    sizes: Mapping[str, Size],
    centers: Mapping[str, float],
    widths: Mapping[str, float],
    chains: Mapping[tuple[str, str], list[str]],
) -> Layout:
    """Corners and ways, moved so that all is right of 0."""
    left = min((centers[key] - widths[key] / 2 for key in centers), default=0.0)
    tops: dict[str, float] = {}
    heights: dict[str, float] = {}
    y = 0.0
    for layer in layers:
        height = max((sizes[key][1] for key in layer if key in sizes), default=0.0)
        tops.update((key, y) for key in layer)
        heights.update((key, height) for key in layer)
        y += height + LAYER_GAP
    boxes = {key: (centers[key] - widths[key] / 2 - left, tops[key]) for key in sizes}
    ways = {}
    for edge, chain in chains.items():
        source, *between, target = chain
        points = [(_port(source, chain[1], widths, centers) - left, tops[source] + sizes[source][1])]
        for place in between:
            points += [(centers[place] - left, tops[place]), (centers[place] - left, tops[place] + heights[place])]
        ways[edge] = [*points, (_port(target, chain[-2], widths, centers) - left, tops[target])]
    right = max((centers[key] + widths[key] / 2 for key in centers), default=0.0)
    return Layout(boxes, ways, right - left, max(y - LAYER_GAP, 0.0))


def _port(box: str, other: str, widths: Mapping[str, float], centers: Mapping[str, float]) -> float:
    """Where an edge begins or ends at a box: as near to its other end as may be."""
    reach = max(widths[box] / 2 - CORNER, 0.0)
    return min(max(centers[other], centers[box] - reach), centers[box] + reach)
