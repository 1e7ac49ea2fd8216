"""Layouts of random graphs: boxes below those that they read and apart; edges begin and end at them."""

from __future__ import annotations

import numpy as np

from rnnops.svg import DrawingLayout, Size, lay_out

Edges = list[tuple[str, str]]


def random_graph(seed: int) -> tuple[dict[str, Size], Edges]:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 25))
    sizes = {str(i): (float(random.integers(10, 200)), float(random.integers(10, 60))) for i in range(count)}
    pairs = [(str(a), str(b)) for b in range(count) for a in range(b) if random.random() < 3 / count]
    return sizes, pairs


def assert_laid_out(sizes: dict[str, Size], edges: Edges, layout: DrawingLayout) -> None:
    assert layout.boxes.keys() == sizes.keys()
    for one, (x, y) in layout.boxes.items():
        width, height = sizes[one]
        assert x >= -1e-6
        assert x + width <= layout.width + 1e-6
        assert y + height <= layout.height + 1e-6
        for other, (a, b) in layout.boxes.items():
            apart = x + width < a or a + sizes[other][0] < x or y + height < b or b + sizes[other][1] < y
            assert one == other or apart, f"{one} lies on {other}"
    for source, target in edges:
        (x, y), (a, b) = layout.boxes[source], layout.boxes[target]
        assert y + sizes[source][1] < b
        first, *_, last = layout.ways[source, target]
        assert np.isclose(first[1], y + sizes[source][1])
        assert np.isclose(last[1], b)
        assert x <= first[0] <= x + sizes[source][0]
        assert a <= last[0] <= a + sizes[target][0]


def test_random_graphs() -> None:
    for seed in range(60):
        sizes, edges = random_graph(seed)
        assert_laid_out(sizes, edges, lay_out(sizes, edges))


def test_nothing_and_one() -> None:
    assert lay_out({}, []) == DrawingLayout({}, {}, 0.0, 0.0)
    assert lay_out({"a": (10.0, 5.0)}, []).boxes == {"a": (0.0, 0.0)}


def test_what_reads_nothing_lies_above_its_first_reader() -> None:
    size = (10.0, 10.0)
    layout = lay_out(dict.fromkeys("abdc", size), [("a", "b"), ("b", "c"), ("d", "c")])
    assert layout.boxes["d"][1] == layout.boxes["b"][1]


def test_what_follows_from_boxes_of_its_own_lies_above_its_reader() -> None:
    size = (10.0, 10.0)
    edges = [("x", "a"), ("a", "b"), ("b", "c"), ("w", "t"), ("t", "c")]
    layout = lay_out(dict.fromkeys(["x", "w", "t", "a", "b", "c"], size), edges)
    assert layout.boxes["t"][1] == layout.boxes["b"][1]
    assert layout.boxes["w"][1] == layout.boxes["a"][1]


def test_long_edges_are_straight_where_there_is_room() -> None:
    size = (10.0, 10.0)
    edges = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e")]
    way = lay_out(dict.fromkeys("abcde", size), edges).ways["a", "e"]
    assert len({x for x, _ in way[1:-1]}) == 1
