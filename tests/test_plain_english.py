"""Texts stay below the caps of `tools/plain_english.py`, whose patterns find what they name."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

TOOL: dict[str, Any] = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "plain_english.py"))
FOUND = {
    "begins-with-what": "What a row is of.",
    "begins-with-whether": "Whether a row is over.",
    "is-no": "This is no blob.",
    "alone": "It takes blobs alone.",
    "beside": "A net beside another.",
    "nobody": "A blob that nobody reads.",
    "of-which": "Ops, of which one is random.",
    "likewise": "Tensors likewise.",
    "long-sentences": "word " * 31 + "end.",
}
PLAIN = "The row count. There is no net.\n\nIt is no longer used: " + "word " * 20 + "end; " + "word " * 20 + "end."


def test_texts_stay_below_their_caps() -> None:
    counts = {name: len(where) for name, where in TOOL["places"](TOOL["texts"]()).items()}
    above = TOOL["SIZE"]["passed"](counts, TOOL["caps"]())
    assert not above, "\n".join(above)


@pytest.mark.parametrize("pattern", FOUND)
def test_each_pattern_is_found(pattern: str) -> None:
    found = TOOL["places"]([("a.py", 1, FOUND[pattern])])
    assert [name for name, where in found.items() if where] == [pattern]


def test_plain_text_has_none() -> None:
    assert not any(TOOL["places"]([("a.py", 1, PLAIN)]).values())


def test_docstrings_comments_and_errors_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOL["texts_of_python"].__globals__, "ROOT", tmp_path)
    path = tmp_path / "a.py"
    path.write_text('"""Module."""\nx = "a string"  # a comment\n\n\ndef f():\n    raise ValueError("an error")\n')
    assert [text for _, _, text in TOOL["texts_of_python"](path)] == ["a comment", "Module.", "an error"]


def test_code_and_tables_of_pages_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOL["texts_of_markdown"].__globals__, "ROOT", tmp_path)
    path = tmp_path / "a.md"
    path.write_text("# Title\n\nText.\n\n```python\ncode\n```\n\n| a | b |\n|---|---|\n| c | d |\n\n- an item\n")
    assert [text for _, _, text in TOOL["texts_of_markdown"](path)] == ["Text.", "- an item"]
