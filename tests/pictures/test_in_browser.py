"""Pictures in a real browser: every text is where it should be and readable, and says what the words say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import BROWSER
from each import check_each
from gallery import GALLERY, HOSTILE
from picture_browser import measured

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.net.drawing import Drawing
from rnnops.svg import Picture

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
DOCS = Path(__file__).parent.parent.parent / "docs" / "pictures"
READABLE = 4.5  # of contrast, for texts of this size


def pictures() -> dict[str, Picture]:
    found: dict[str, Picture] = {}
    for name, make in GALLERY.items():
        net, shapes = make()
        run = ro.compile(net, threads=2, tuning=Options())
        plan = run.plan(shapes)
        found |= {f"net {name}": net.draw(), f"saved {name}": plan.draw_net(), f"schedule {name}": plan.draw()}
        found[f"memory {name}"] = plan.memory_curve()
        if name in ("lstm", "mlstm", "hostile"):
            found[f"budget {name}"] = run.budget_curve(shapes)
    net, shapes = GALLERY["lstm"]()
    found["shut lstm"] = net.draw(opened=False, **shapes)
    return found


@pytest.fixture(scope="module")
def drawn() -> dict[str, Picture]:
    return pictures()


@pytest.fixture(scope="module")
def light(drawn: dict[str, Picture], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    sections = {name: picture._repr_html_() for name, picture in drawn.items()}
    return measured(tmp_path_factory.mktemp("light"), sections, {name: one.svg for name, one in drawn.items()})


def test_no_text_leaves_its_box_or_lies_on_another(light: dict[str, Any]) -> None:
    def check(name: str) -> None:
        for one in light["sections"][name]["pictures"]:
            assert not one["problems"], one["problems"][:6]

    check_each(light["sections"], check)


def test_no_text_of_the_docs_lies_on_another(tmp_path: Path) -> None:
    drawn = {path.stem: path.read_text(encoding="utf-8") for path in DOCS.glob("*.svg")}
    sections = measured(tmp_path, drawn, {})["sections"]

    def check(name: str) -> None:
        problems = sections[name]["pictures"][0]["problems"]
        assert not problems, problems[:6]

    assert len(sections) > 10
    check_each(sections, check)


def test_texts_are_readable_by_day_and_by_night(
    light: dict[str, Any], drawn: dict[str, Picture], tmp_path: Path
) -> None:
    chosen = {
        name: drawn[name]._repr_html_() for name in ("saved lstm", "schedule tagger", "memory tagger", "budget lstm")
    }
    dark = measured(tmp_path, chosen, {}, dark=True)
    assert (light["dark"], dark["dark"]) == (False, True)
    for page in (light, dark):
        check_each(page["sections"], lambda name, of=page: _is_readable(of["sections"][name]))  # type: ignore[misc]
    papers = [page["sections"]["saved lstm"]["pictures"][0]["colours"]["paper"] for page in (light, dark)]
    assert papers[0] != papers[1]


def _is_readable(section: dict[str, Any]) -> None:
    for one in section["pictures"]:
        assert one["contrast"] >= READABLE, one["contrast"]


def test_they_are_files_of_their_own(light: dict[str, Any]) -> None:
    for name, (section, size) in {n: (light["sections"][n], light["images"][n]) for n in light["images"]}.items():
        assert size == section["pictures"][0]["size"], name
        assert min(size) > 50, name


def test_drawings_show_what_their_words_say(light: dict[str, Any], drawn: dict[str, Picture]) -> None:
    for name, picture in drawn.items():
        if isinstance(picture, Drawing):
            shown = light["sections"][name]["pictures"][0]
            assert all(text in picture.text for text in shown["texts"]), name
            boxes = [box for box in picture.boxes.values() if box.inner is None]
            assert {line for box in boxes for line in box.lines} <= set(shown["texts"]), name


def opens(details: dict[str, Any]) -> bool:
    """Whether a part is not seen at first, and then is."""
    before, after = details["before"], details["after"]
    return not before["seen"] and bool(after["seen"]) and after["height"] > before["height"] + 10


def test_words_open_below(light: dict[str, Any], drawn: dict[str, Picture]) -> None:
    for name, picture in drawn.items():
        last = light["sections"][name]["details"][-1]
        assert last["title"] == "in words"
        assert opens(last), name
        assert last["text"] == picture.text, name


def test_shut_recurrences_open(light: dict[str, Any]) -> None:
    cell, words = light["sections"]["shut lstm"]["details"]
    assert cell["title"] == "RecurrentNetwork of cell 'lstm/step': " + ", ".join(
        f"lstm/{state}_t_{which}" for state in ("hidden", "cell") for which in ("all", "last")
    )
    assert opens(cell)
    assert "MatMul" not in words["text"]
    outer, inner = (one["texts"] for one in light["sections"]["shut lstm"]["pictures"])
    assert "MatMul" in inner
    assert "MatMul" not in outer


def test_colours_tell_what_is_kept_and_computed_again(light: dict[str, Any]) -> None:
    colours = light["sections"]["saved lstm"]["pictures"][0]["colours"]
    looks = ("op kept", "op recomputed", "op", "input", "sequence", "state kept", "parameter", "output")
    assert len({colours[f"box {look}"] for look in looks}) == len(looks)
    fills = {colours[f"box {look}"].rpartition(" rgb")[0] for look in ("op", "op kept", "op recomputed")}
    assert len(fills) == 1, "borders tell it"


def test_names_are_text_and_never_run(light: dict[str, Any]) -> None:
    assert not light["ran"]
    for kind in ("net", "saved", "schedule", "memory", "budget"):
        section = light["sections"][f"{kind} hostile"]
        assert section["scripts"] == 0
        assert HOSTILE in section["pictures"][0]["label"], kind
        assert HOSTILE in section["text"], kind


def test_pages_around_stay_as_they_were(light: dict[str, Any]) -> None:
    assert light["foreign"] == ["16px", "rgb(0, 0, 0)", "rgb(0, 0, 0)"]


def test_nothing_is_loaded_from_elsewhere(drawn: dict[str, Picture]) -> None:
    for name, picture in drawn.items():
        markup = picture._repr_html_().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not [word for word in ("http", "href", "src=", "url(", "@import", " id=") if word in markup], name


def test_those_who_do_not_see_are_told(light: dict[str, Any], drawn: dict[str, Picture]) -> None:
    for name, picture in drawn.items():
        shown = light["sections"][name]["pictures"][0]
        assert (shown["role"], shown["label"], shown["tips"][0]) == ("img", picture.title, picture.title)  # type: ignore[attr-defined]
