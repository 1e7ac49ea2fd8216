"""Pictures of nets: SVG that holds what the words say, whatever names hold; colours; sizes; files."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rejection import rejects

import rnnops as ro
from rnnops.pictures.drawing import Drawing

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


def colours(drawing: Drawing) -> list[str]:
    """Of boxes; the paper comes first, and the legend last."""
    rects = [*ElementTree.fromstring(drawing.svg).iter(f"{SVG}rect")]
    assert rects[0].get("class") == "paper"
    return [rect.get("class", "") for rect in rects if rect.get("rx") in ("4", "12")]


def test_a_box_for_each_input_op_and_output() -> None:
    drawing = net().draw()
    assert texts(drawing).count("Split axis=-1, num_outputs=2") == 1
    assert {"net model", "xs", "w", "gates", "RecurrentNetwork of cell 'cell'", "y", "last"} <= set(texts(drawing))
    assert colours(drawing).count("recomputed") == 1
    assert colours(drawing).count("parameter") == 1
    assert "gates" not in texts(net().draw(opened=False))


def test_sizes_are_those_of_the_shapes() -> None:
    drawing = net().draw(xs=(7, 3, 4))
    outer = {"[7, 3, 4]", "[4, 4]", "h_all [7, 3, 4]", "squeeze_0 [3, 4]"}
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
    assert {"checkpoint", "constant"} <= set(colours(drawing))
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
    assert len(colours(made.draw())) > 100
    assert texts(ro.Net("empty").draw()) == ["net empty"]
