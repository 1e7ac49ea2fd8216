"""Pictures in documents: small, all of them shown, and read on narrow pages. `tests/test_docs.py` draws them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from rnnops.svg import SMALL

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "pictures"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LARGEST = 40_000  # bytes of a picture in a document


def shown() -> Iterator[tuple[Path, Path, bool]]:
    """Each page with a picture that it shows, and True if the picture is a link to itself."""
    for page in PAGES:
        for link, name, to in re.findall(r"(\[?)!\[[^]]*\]\(([^)]*\.svg)\)(?:\]\(([^)]*)\))?", page.read_text()):
            yield page, (page.parent / name).resolve(), bool(link) and to == name


def test_all_are_small_and_shown() -> None:
    files = [*FOLDER.iterdir()]
    assert {picture for _, picture, _ in shown()} == {path.resolve() for path in files}
    assert max(path.stat().st_size for path in files) < LARGEST


def test_pages_of_the_guide_have_a_picture_and_are_short() -> None:
    pages = [page for page in PAGES if page.parent.name == "guide"]
    assert {page for page, _, _ in shown()} >= set(pages)
    assert [page.name for page in pages if page.read_text().count("\n") > 110] == []


def test_texts_are_read_on_narrow_pages() -> None:
    """A picture is a link to itself, where its small texts have less than 9 pixels in one 340 pixels wide."""
    for page, picture, linked in shown():
        width = float(ElementTree.parse(picture).getroot().get("width", 0))
        assert linked or page.name == "README.md" or SMALL * 340 / width >= 9, (page.name, picture.name)
