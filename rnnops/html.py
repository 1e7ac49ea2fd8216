"""What notebooks show: texts and tables as HTML, with every text escaped."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.lazy import LazyModule

html = LazyModule("html")
CELL = ' style="text-align: left; font-family: monospace"'


def preformatted(text: str) -> str:
    """A text as it is, line by line."""
    return f'<pre style="white-space: pre">{html.escape(text)}</pre>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table with a caption above it, numbers and texts as they are."""
    top = "".join(f"<th{CELL}>{html.escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td{CELL}>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    above = f'<caption style="caption-side: top">{html.escape(caption)}</caption>'
    return f"<table>{above}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def scrolled(markup: str) -> str:
    """Markup that keeps its width, where a page is narrower."""
    return f'<div style="overflow-x: auto">{markup}</div>'


def folded(title: str, markup: str) -> str:
    """Markup that opens below its title."""
    return f"<details><summary>{html.escape(title)}</summary>{markup}</details>"
