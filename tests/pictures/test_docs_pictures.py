"""Pictures in documents: those that the tool draws, small, and all of them shown."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

from rnnops.pictures.svg import SMALL

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "pictures.md"
LARGEST = 40_000  # bytes of a picture in a document


def test_they_are_what_the_tool_draws() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "draw_docs.py"))
    drawn, files = tool["pictures"](), {path.stem: path for path in (ROOT / "docs" / "pictures").glob("*.svg")}
    assert drawn.keys() <= files.keys()
    for name, picture in drawn.items():
        text = files[name].read_text(encoding="utf-8")
        assert ElementTree.fromstring(text).get("width") == ElementTree.fromstring(picture.svg).get("width"), name
        assert _words(text) == _words(picture.svg), f"python tools/draw_docs.py draws {name} anew"


def test_all_are_small_and_shown() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"\]\((?:docs/)?pictures/(\w+)\.svg\)", page.read_text())}
    files = [*(ROOT / "docs" / "pictures").iterdir()]
    assert shown == {path.stem for path in files}
    assert max(path.stat().st_size for path in files) < LARGEST


def _words(svg: str) -> list[str]:
    """Texts without numbers, some of which depend on the processor."""
    texts = (text.text or "" for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))
    return [word for text in texts if (word := re.sub(r"[\d .,…-]+|[KM]iB", "", text))]


def test_the_page_shows_the_net_that_the_tool_draws() -> None:
    lines = [line.strip() for line in (ROOT / "tools" / "draw_docs.py").read_text().splitlines()]
    shared = [line for line in lines if line.startswith(("h_all", "scores", "net.outputs", "T, N, D"))]
    assert len(shared) == 4
    page = _without_breaks(PAGE.read_text())
    assert all(_without_breaks(line) in page for line in shared)


def _without_breaks(code: str) -> str:
    return re.sub(r"\s|,(?=\s*\))", "", code)


def test_texts_are_read_on_narrow_pages() -> None:
    """A picture is a link to itself, where its small texts have less than 9 pixels in one 400 pixels wide."""
    for page in (ROOT / "docs").glob("*.md"):
        for link, name in re.findall(r"(\[?)!\[[^]]*\]\((pictures/\w+\.svg)\)", page.read_text()):
            width = float(ElementTree.parse(page.parent / name).getroot().get("width", 0))
            linked = link and f"]({name})]({name})" in page.read_text()
            assert linked or SMALL * 400 / width >= 9, (page.name, name)
