"""Output for people: HTML in notebooks, progress bars in terminals."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar

from rnnops.util import LazyModule

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


Item = TypeVar("Item")
logging = LazyModule("logging")  # which is wanted where a compile takes long
LONG = 1.0  # seconds, from which on a compile is told of


def is_terminal() -> bool:
    """True if standard error is a terminal that has a width; on others a bar would stay invisible."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):  # no terminal, or no file at all
        return False


def tqdm_or_none() -> Any:
    """The function `tqdm`, None where the package is missing."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm


def with_bar(items: Iterable[Item], what: str, unit: str) -> Iterable[Item]:
    """The items one by one, with a bar that counts them where there is a terminal."""
    tqdm = tqdm_or_none() if is_terminal() else None
    if tqdm is None:
        return items
    shown: Iterable[Item] = tqdm(items, desc=what, unit=unit, leave=False)
    return shown


@contextmanager
def told_if_long(what: str) -> Iterator[None]:
    """Say what was compiled where it took long: a line of the logger `rnnops`, on standard error by default."""
    start = perf_counter()
    yield
    seconds = perf_counter() - start
    if seconds > LONG:
        text = "compiled %s in %.1f s; run.warm_up(...) compiles before the first call"
        logging.getLogger("rnnops").warning(text, what, seconds)
