"""Pictures of nets: SVG that holds what the words say, whatever names hold; colours; sizes; files."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from each import check_each
from rejection import rejects

import rnnops as ro
from rnnops import svg
from rnnops.compiler.report.costs import BudgetCurve, Estimate, PassProfile, Profile
from rnnops.compiler.report.memory_timeline import MemoryCurve
from rnnops.compiler.report.schedule import Schedule
from rnnops.net.drawing import Drawing, Marks, draw_typed
from rnnops.net.text import format_subscript

SVG = "{http://www.w3.org/2000/svg}"


@ro.cell
def cell(x: Any, h: Any, *, w: Any) -> dict[str, Any]:
    gates = (x + h @ w).named("gates")
    a, b = ro.split(gates, 2, axis=-1)
    return {"h": np.tanh(ro.concat(b, a, axis=-1))}


def net() -> ro.Net:
    made = ro.Net("model")
    states, ys = ro.scan(cell, made.input("xs"), h=np.zeros(4), w=made.parameter("w", (4, 4)), recompute="gates")
    made.outputs(y=ys["h"], last=states["h"])
    return made


def texts(drawing: Drawing) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(drawing.svg).iter(f"{SVG}text")]


def looks(drawing: Drawing) -> list[str]:
    """Kind and mark of each box, with those of the legend; a state and a parameter have a second border."""
    paper, *rects = ElementTree.fromstring(drawing.svg).iter(f"{SVG}rect")
    assert paper.get("class") == "paper"
    assert all(rect.get("class", "").startswith("box ") for rect in rects)
    return [rect.get("class", "").removeprefix("box ") for rect in rects]


def test_a_box_for_each_input_op_and_output() -> None:
    drawing = net().draw()
    assert texts(drawing).count("Split axis=-1, num_outputs=2") == 1
    assert {"net model", "xs", "w", "gates", "RecurrentNetwork of cell 'cell'", "y", "last"} <= set(texts(drawing))
    assert looks(drawing).count("op recomputed") == 2, "one, and the legend"
    assert looks(drawing).count("parameter") == 6, "outside, within, and the legend, with two borders each"
    assert looks(drawing).count("state") == 4
    assert looks(drawing).count("sequence") == 2
    assert "gates" not in texts(net().draw(opened=False))


def test_sizes_are_those_of_the_shapes() -> None:
    drawing = net().draw(xs=(7, 3, 4))
    outer = {"[7, 3, 4]", "[4, 4]", "h_all [7, 3, 4]", "h_last [1, 3, 4]"}
    assert outer | {"[3, 4]", "gates [3, 4]", "b: split_1 [3, 2], a: split_0 [3, 2]"} <= set(texts(drawing)), (
        "outside of cells and in them"
    )
    assert "output y <- h_all [7, 3, 4]" in str(drawing)
    rejects(ro.TypeRuleError, lambda: net().draw(xs=(7, 3, 5)), "cell")


def test_words_say_what_the_picture_shows() -> None:
    drawing = net().draw(xs=(7, 3, 4))
    said = str(drawing)
    assert all(text in said for text in texts(drawing))
    assert "recomputed Add: gates [3, 4] <- x, mat_mul_0 [3, 4]" in said
    assert drawing._repr_svg_() == drawing.svg
    assert drawing.text == said


def test_names_are_text() -> None:
    made = ro.Net("<script>")
    made.outputs(y=ro.tanh(made.input("a&<b>")))
    assert {"net <script>", "a&<b>"} <= set(texts(made.draw()))


def test_checkpoints_and_constants_have_colours() -> None:
    made = ro.Net("coloured")
    made.outputs(y=made.checkpoint(ro.tanh(made.input("x") + np.ones(300))))
    drawing = made.draw()
    assert {"op checkpoint", "constant"} <= set(looks(drawing))
    assert max(map(len, texts(drawing))) < 100, "long values are cut"


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "net.svg"
    net().draw().save(file)
    assert file.read_text() == net().draw().svg
    with pytest.raises(OSError, match="no folder"):
        net().draw().save(tmp_path / "nowhere" / "net.svg")


def test_nets_of_many_ops() -> None:
    made = ro.Net("long")
    x = made.input("x")
    made.outputs(y=ro.LSTM(made, x, None, None, 3, 4, static_rnn_unroll_size=12)[0])
    assert len(looks(made.draw())) > 100
    assert texts(ro.Net("empty").draw()) == ["net empty"]


def test_inputs_of_a_cell_have_shapes_of_their_own() -> None:
    """Without colours: corners, and a second border."""

    def shape(kind: str) -> tuple[float, ...]:
        drawn = ElementTree.fromstring(f"<g>{svg.box(0, 0, 60, 40, kind)}</g>")
        return tuple(float(rect.get(name, 0)) for rect in drawn for name in ("x", "y", "rx"))

    kinds = ("sequence", "state", "parameter", "op")
    assert len({shape(kind) for kind in kinds}) == len(kinds)
    drawing = net().draw()
    assert {"sequence", "state", "parameter", "next step"} <= set(texts(drawing)), "the legend"
    assert "state h: [3, 4] <- constant_0 [4], next step h" in net().draw(xs=(7, 3, 4)).text
    assert "parameter w: [4, 4] <- w" in net().draw(xs=(7, 3, 4)).text


def test_a_parameter_is_bound_to_one_result_of_several() -> None:
    cell, outer = ro.Net("cell"), ro.Net("outer")
    h, x, a, b = cell.inputs("h", "x", "a", "b")
    cell.outputs(h_t=x * a + h * b)
    xs, h0, both = outer.inputs("xs", "h0", "both")
    references = dict(zip("ab", ro.split(both, 2, axis=0), strict=True))
    outer.outputs(ro.recurrent_net(outer, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, references=references)[0])
    text = outer.draw().text
    assert "parameter a <- split_0" in text
    assert "parameter b <- split_1" in text


def test_marks_are_borders() -> None:
    """A box has the inside of its kind, whatever the backward pass does with it."""
    rules = svg.STYLE.split("@media")
    for kind, mark in product(svg.SHAPES, svg.MARKS):
        fill = re.findall(rf"\.box\.{kind} {{ fill: (#\w+) }}", rules[0])
        assert fill == [svg.COLOURS[kind][0]]
        assert svg.COLOURS[mark][1] != svg.COLOURS[kind][1], "borders differ"
        assert len(re.findall(rf"\.box\.{mark}[ ,].*stroke-width: 2.5", rules[0])) == 1
    assert list(svg.COLOURS).index("kept") > max(map(list(svg.COLOURS).index, svg.SHAPES)), "the last border counts"


def viewed() -> ro.Net:
    made = ro.Net("views")
    x = made.input("x", shape=(2, 3, 4))
    turned = ro.transpose(ro.reshape(x, [6, 4]), [1, 0])
    made.outputs(y=ro.tanh(turned), z=ro.reshape(turned, [-1]), s=ro.reshape(x, ro.shape(x)))
    return made


def test_edges_go_through_views() -> None:
    hidden, shown = viewed().draw(), viewed().draw(views=True)
    assert [box.lines[0] for box in shown.boxes.values() if box.kind == "op"].count("Reshape shape=[6, 4]") == 1
    assert "op Tanh: tanh_0 [4, 6] <- transpose_0 [4, 6]" in hidden.text, "it has axes in another order"
    assert "output z <- transpose_0 [4, 6]" in hidden.text
    assert "output z <- reshape_1 [24]" in shown.text
    assert "Reshape shape=[6, 4]" not in texts(hidden)
    assert "Reshape" in hidden.text, "one that reads sizes, too, is drawn"
    rejects(ro.ArgumentError, lambda: viewed().draw(views=2), "views")  # type: ignore[arg-type]


def test_a_mark_of_a_view_is_one_of_what_it_views() -> None:
    made = ro.Net("model")
    made.outputs(y=ro.exp(made.checkpoint(ro.reshape(ro.tanh(made.input("x")), [-1]))))
    assert "checkpoint Tanh: tanh_0" in made.draw().text
    marked = {"reshape_0": "recomputed"}
    drawn = draw_typed(made, {}, marks=Marks(marked))
    assert "recomputed" not in drawn.text, "to give it another shape costs nothing"


def test_slices_are_written_as_in_python() -> None:
    made = ro.Net("slices")
    x = made.input("x", shape=(6, 7, 8))
    written = {
        "[-1]": x[-1], "[2:5]": x[2:5], "[:, 1:, ::2]": x[:, 1:, ::2], "[..., -1]": x[..., -1], "[-1:]": x[-1:],
        "[::-1]": x[::-1], "[1, 2:]": x[1, 2:], "[:, -3:-1]": x[:, -3:-1],
    }  # fmt: skip
    made.outputs(**{f"y{i}": one for i, one in enumerate(written.values())})
    drawing = made.draw()
    for i, text in enumerate(written):
        (maker,) = (source for source, target in drawing.edges if target == f"output y{i}")
        assert drawing.boxes[maker].lines[0] == f"Slice {text}"
    assert "op Slice [-1]: squeeze_0 [7, 8] <- x" in drawing.text, "with the sizes that it then has"
    assert "op Slice [-1:]: slice_0 [1, 7, 8] <- x" in made.draw(views=True).text
    known = {"starts": (0, 1), "ends": (2**63 - 1, 4), "axes": (0, -1), "steps": (1, 2)}
    assert format_subscript(known) == "[:, ..., 1:4:2]"
    assert format_subscript({"starts": (3,), "ends": (4,)}, (0,)) == "[3]"


def test_pictures_of_nothing() -> None:
    made = ro.Net("nothing")
    made.outputs(y=made.input("x", shape=(2, 3)))
    run = ro.compile(made, threads=2)
    plan = run.plan()
    drawn = [made.draw(), plan.draw_net(), plan.draw(), plan.memory_curve(), run.budget_curve({})]
    drawn += [Drawing("empty", {}), MemoryCurve("empty", ()), Schedule("empty", ()), budget_of_nothing()]
    check_each(drawn, lambda one: ElementTree.fromstring(one.svg) is not None and bool(one._repr_html_() + one.text))
    profile = Profile(1, 0, PassProfile("forward", 0.0, ()))
    assert "0.000" in str(profile)
    assert "0.000" in profile._repr_html_()
    assert "around ops" in str(run.profile(x=np.zeros((2, 3), "float32"), rounds=1))


def budget_of_nothing() -> BudgetCurve:
    nothing = Estimate("all", 0, 0.0)
    return BudgetCurve("empty", (nothing,), nothing)
