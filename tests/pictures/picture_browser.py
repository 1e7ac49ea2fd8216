"""A browser without a window: it loads a page, runs the script that measures it, and gives back what that found."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from browser import BROWSER

OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=2400,2000")
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"
FOUND = re.compile(r'<pre id="found">(.*?)</pre>', re.S)
SCRIPT = (Path(__file__).parent / "measure.js").read_text()


def measured(folder: Path, sections: dict[str, str], images: dict[str, str], dark: bool = False) -> dict[str, Any]:
    """What a browser finds on a page.

    Args:
        folder: for the page and its images.
        sections: name -> markup of the page, as a notebook would have it.
        images: name -> SVG that is shown as a file of its own.
        dark: whether the reader likes pages dark.

    Returns: what `measure.js` says of all sections and images.
    """
    parts = [f'<section data-name="{html.escape(name)}">{markup}</section>' for name, markup in sections.items()]
    for number, (name, svg) in enumerate(images.items()):
        (folder / f"{number}.svg").write_text(svg, encoding="utf-8")
        parts.append(f'<img data-name="{html.escape(name)}" src="{number}.svg">')
    foreign = '<svg id="foreign" width="50" height="20"><rect width="9" height="9"/><text y="9">a</text></svg>'
    page = folder / "page.html"
    head = '<!DOCTYPE html><html><head><meta charset="utf-8"></head><body>'
    page.write_text(
        f'{head}{foreign}{"".join(parts)}<pre id="found"></pre><script>{SCRIPT}</script></body></html>',
        encoding="utf-8",
    )
    command = [str(BROWSER), *OPTIONS, DARK if dark else LIGHT, f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    found = FOUND.search(done.stdout)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    return result
