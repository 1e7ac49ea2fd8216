"""Edges of drawings run beside boxes and texts, go on within recurrences, and lead from new values back to states."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from each import check_each
from gallery import GALLERY
from geometry import Area, Line, Point, Seen, seen_in

import rnnops as ro
from rnnops.net.drawing import Drawing
from rnnops.testing import random_net

SLACK = 1.0  # pixels: numbers in pictures are rounded
SEEDS = 6


def pieces(line: Line) -> np.ndarray:
    """Points of a line at most some pixels apart."""
    found = [
        np.linspace(one, other, int(abs(np.subtract(one, other)).sum()) // 4 + 2)
        for one, other in pairwise(line.points)
    ]
    return np.concatenate(found)


def crossed(line: Line, areas: list[Area], sides: np.ndarray) -> list[Area]:
    """The boxes or texts that a line runs behind; boxes that it lies in are not.

    Args:
        sides: [areas, 4], the sides of the areas.
    """
    points = pieces(line)[:, None]
    low, high = sides[:, :2] + SLACK, sides[:, 2:] - SLACK
    inside = ((low < points) & (points < high)).all(axis=2).any(axis=0)
    return [areas[i] for i in np.flatnonzero(inside) if areas[i].said or areas[i].within[-1] not in line.within]


def assert_free(seen: Seen) -> None:
    areas = [*seen.boxes, *seen.texts]
    sides = np.array([(one.left, one.top, one.right, one.bottom) for one in areas])
    for line in seen.lines:
        found = crossed(line, areas, sides)
        assert not found, (line.kind, line.points[0], line.points[-1], found)


def joints(seen: Seen) -> list[Point]:
    """Where lines within recurrences begin at their upper sides."""
    tops = {round(box.top) for box in seen.boxes if "recurrence" in box.kind}
    within = [line for line in seen.lines if len(line.within) > 4 and line.kind == "way"]
    return [line.points[0] for line in within if round(line.points[0][1]) in tops]


def assert_joined(drawing: Drawing, seen: Seen) -> None:
    """Each input of a cell that is bound to a blob has a line that begins where another one ends."""
    found, ends = joints(seen), [line.points[-1] for line in seen.lines]
    assert len(found) >= sum(len(box.joined) for box in drawing.boxes.values() if box.kind == "recurrence")
    for x, y in found:
        assert any(abs(x - a) < SLACK and abs(y - b) < SLACK for a, b in ends), (x, y)


def assert_turned(drawing: Drawing, seen: Seen) -> None:
    """As many dashed lines as there are states, each from an output up to a state."""
    count = sum(len(one.turns) for one in all_in(drawing))
    turns = [line for line in seen.lines if line.kind == "way next"][: count or None]
    assert len(turns) == count
    boxes = {kind: [box for box in seen.boxes if kind in box.kind] for kind in ("output", "state")}
    for line in turns:
        (x, y), (a, b) = line.points[0], line.points[-1]
        assert any(box.left < x < box.right and abs(box.top - y) < SLACK for box in boxes["output"])
        assert any(box.left < a < box.right and abs(box.bottom - b) < SLACK for box in boxes["state"])


def all_in(drawing: Drawing) -> Iterator[Drawing]:
    yield drawing
    for box in drawing.boxes.values():
        if box.inner is not None:
            yield from all_in(box.inner)


def assert_readable(drawing: Drawing) -> None:
    seen = seen_in(drawing.svg)
    assert_free(seen)
    assert_joined(drawing, seen)
    assert_turned(drawing, seen)


def deep() -> ro.Net:
    """A recurrence in the step of another one, both passed by edges."""

    @ro.cell
    def inner(x, h, *, w):  # type: ignore[no-untyped-def]
        return {"h": np.tanh(x + h @ w)}

    @ro.cell
    def outer(x, s, *, w, v):  # type: ignore[no-untyped-def]
        _, steps = ro.scan(inner, ro.transpose(x, [1, 0, 2]), h=s, w=w)
        return {"s": np.tanh(steps["h"][-1] @ v + s)}

    net = ro.Net("deep")
    xs, w, v, late = net.input("xs", shape=(5, 2, 3, 4)), *(net.parameter(name, (4, 4)) for name in ("w", "v", "late"))
    _, steps = ro.scan(outer, xs, s=net.input("s0", shape=(2, 4)), w=w, v=v)
    net.outputs(y=steps["s"] @ late.T + xs.sum(axis=2))
    return net


def test_nets_of_the_gallery_and_within_others() -> None:
    assert_readable(deep().draw())
    assert sum(len(one.turns) for one in all_in(deep().draw())) == 2
    for make in GALLERY.values():
        net, shapes = make()
        assert_readable(net.draw(**shapes))
        assert_readable(net.draw(views=True, **shapes))
        assert_readable(ro.compile(net, threads=1).plan(shapes).draw_net())


def test_all_cells() -> None:
    def check(name: str) -> None:
        net = ro.Net(name)
        cell = ro.cells.CELLS[name](6, 8, name=name)
        net.outputs(y=cell.apply_over_sequence(net, net.input("x"))[0] * net.parameter("scale", (1,)))
        assert_readable(net.draw(x=(5, 2, 6)))

    check_each(ro.cells.CELLS, check)


@pytest.mark.parametrize("views", [False, True])
def test_random_nets(views: bool) -> None:
    check_each(range(SEEDS), lambda seed: assert_readable(random_net(seed).net.draw(views=views)))


def test_a_state_that_stays() -> None:
    cell = ro.Net("cell")
    x, h, s = cell.inputs("x", "h", "s")
    cell.outputs(h_t=ro.tanh(x + h), s_t=s)
    net = ro.Net("net")
    results = ro.recurrent_net(
        net,
        cell,
        [("x", net.input("xs"))],
        [(name, net.input(f"{name}0")) for name in "hs"],
        {"h": "h_t", "s": "s_t"},
    )
    net.outputs(results[0], results[2])
    drawing = net.draw()
    assert_readable(drawing)
    (inner,) = (box.inner for box in drawing.boxes.values() if box.inner)
    assert inner.turns == {"input h": "output h_t", "input s": "output s_t"}
    assert "state s <- s0, next step s_t" in drawing.text
    assert "output s_t <- s" in drawing.text


def test_a_weight_read_after_a_recurrence_lies_where_that_ends() -> None:
    boxes = seen_in(deep().draw(views=True).svg).boxes
    recurrence = max((box for box in boxes if "recurrence" in box.kind), key=lambda box: box.bottom - box.top)
    weights = [box for box in boxes if "parameter" in box.kind and box.right < recurrence.left < box.right + 100]
    assert [round(box.bottom - recurrence.bottom) for box in weights] == [0, 0], "a box of two borders"
