"""The site of the docs: it builds without a warning, links of its pages lead somewhere, and it works in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import brightness, page_after_scripts

DOCS = Path(__file__).parent.parent / "docs"
WIDTHS = (390, 1280)  # of a phone and of a desk, in pixels
FLAGS = ("-W", "--keep-going", "-q")
SPHINX = "import sys; from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
pytestmark = pytest.mark.packages  # the extra `docs`


class Page(HTMLParser):
    """What a page links to, and the places in it that links can name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.links += [link for name in ("href", "src") if (link := found.get(name)) and tag != "form"]
        self.anchors |= {found.get("id") or "", (found.get("name") or "") if tag == "a" else ""}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason="the extra `docs` is not installed")
    return built(tmp_path_factory.mktemp("site"))


def built(folder: Path, docs: Path = DOCS) -> Path:
    """The site, made as the command of docs/contributing.md makes it."""
    command = [sys.executable, "-c", SPHINX, *FLAGS, str(docs), str(folder / "site")]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder / "site"


def broken(site: Path) -> list[str]:
    """Links to files that are not there, to places that no page has, and addresses that are none."""
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                fits = parts.scheme in ("http", "https") and "." in parts.netloc and " " not in link
            else:
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                known = pages.get(target)
                fits = target.is_file() and (known is None or unquote(parts.fragment) in known.anchors)
            if not fits:
                found.append(f"{path.relative_to(site.resolve())}: {link}")
    return found


def test_links_lead_somewhere(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 30
    assert not broken(site)


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here"><a href="b.html#no"><a href="c.html"><a href="https:/x">'
    )
    (tmp_path / "b.html").write_text('<a name="yes"><a href="a.html#here"><img src="none.png">')
    wrong = ["a.html: b.html#no", "a.html: c.html", "a.html: https:/x", "b.html: none.png"]
    assert sorted(broken(tmp_path)) == wrong


def test_a_wrong_link_of_a_page_ends_the_build(site: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(DOCS / "conf.py", docs)
    (docs / "index.md").write_text("# A\n\n[b](b.md)\n")
    with pytest.raises(AssertionError, match=r"b\.md"):
        built(tmp_path, docs)


def test_every_page_and_public_name_is_there(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file()
    ops = (site / "reference" / "ops.html").read_text()
    assert 'id="rnnops.tanh"' in ops
    assert "Hyperbolic tangent" in ops
    assert 'id="rnnops.torch.RNN"' in (site / "reference" / "torch.html").read_text()
    runs = (site / "reference" / "runs.html").read_text()
    assert [
        name for name in ("Run.bind", "Run.plan", "Run.vjp", "Pullback.layers") if f'id="rnnops.{name}"' not in runs
    ] == []
    cells = (site / "reference" / "cells.html").read_text()
    assert "\\*" not in cells  # signs that are markup elsewhere
    assert "**options" in re.sub("<[^>]*>", "", cells)
    assert (site / "_images" / "memory_budget.png").is_file()
    pages = (site / "pictures.html", *(site / "guide").glob("*.html"))
    text = "".join(page.read_text() for page in pages)
    linked = re.findall(r'<a ([^>]*)><span [^>]*><img alt="[^"]*" src="[./]*_images/', text)
    assert len(linked) == 17
    assert not [one for one in linked if "download=" in one], "they open"


def test_equations_of_docstrings_are_shown_as_they_are(site: Path) -> None:
    cells = (site / "reference" / "cells.html").read_text()
    assert "recurrent_w" in cells
    assert "\\*" not in cells


def test_the_first_page_and_the_search_work_in_a_browser(site: Path) -> None:
    assert "Where to go" in page_after_scripts((site / "index.html").as_uri())
    results = page_after_scripts(f"{(site / 'search.html').as_uri()}?q=LSTMCell")
    assert "reference/cells.html#rnnops.cells.LSTMCell" in results


def cut(site: Path) -> dict[str, list[str]]:
    """Page and width -> what a reader does not see: the page scrolls sideways, or a part ends without a scroll bar."""
    names = json.dumps([str(path.relative_to(site)) for path in sorted(site.rglob("*.html"))])
    page, script = site / "measured.html", (Path(__file__).parent / "pages.js").read_text()
    tell = 'document.getElementById("found").textContent = JSON.stringify(found)'
    run = f"measure({names}, {list(WIDTHS)}).then((found) => {{ {tell}; }});"
    page.write_text(f'<!DOCTYPE html><body><pre id="found"></pre><script>{script}{run}</script></body>')
    told = re.search(r'<pre id="found">(.*?)</pre>', page_after_scripts(page.as_uri()), re.S)
    page.unlink()
    found: dict[str, list[str]] = json.loads(html.unescape(told[1] if told else ""))
    return found


def test_nothing_is_cut_on_small_and_on_large_screens(site: Path) -> None:
    assert cut(site) == {}


def test_cut_parts_are_found(tmp_path: Path) -> None:
    wide = '<table><tr><td><div style="width: 700px">a</div></table>'
    for name, style in (("scrolls", "auto"), ("hides", "hidden"), ("shows", "visible")):
        text = f'<body style="margin: 0"><article><div style="overflow: {style}">{wide}</div></article>'
        (tmp_path / f"{name}.html").write_text(f"<!DOCTYPE html>{text}")
    found = cut(tmp_path)
    assert {name: [one.split(":")[0] for one in told] for name, told in found.items()} == {
        "hides.html at 390": ["TABLE is cut"],
        "shows.html at 390": ["the page is 706 pixels wide", "TABLE is cut"],
    }


def test_pages_are_light_or_dark_as_the_user_prefers(site: Path, tmp_path: Path) -> None:
    page = (site / "reference" / "runs.html").as_uri()
    assert brightness(page, tmp_path, dark=False) > 0.8
    assert brightness(page, tmp_path, dark=True) < 0.3
