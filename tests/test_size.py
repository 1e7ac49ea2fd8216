"""The library stays below the caps of `tools/size.py`, whose measures count what they say."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest

TOOL: dict[str, Any] = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "size.py"))
TEXT = '''"""A docstring
of two lines."""

import rnnops.b  # a comment

# a comment


class One:
    """Another one."""

    text = """no docstring,
of two lines"""


def f(
    x,
): return "one line of code of three"
'''


def source(folder: Path, name: str, text: str) -> Any:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return TOOL["Source"](path, text, ast.parse(text))


def test_the_library_stays_below_its_caps() -> None:
    found = TOOL["passed"](TOOL["measures"](TOOL["sources"]()), TOOL["caps"]())
    assert not found, "\n".join(found)


def test_lines_of_code_are_those_without_docstrings_and_comments(tmp_path: Path) -> None:
    assert TOOL["lines_of_code"](source(tmp_path, "a.py", TEXT)) == 7


def test_a_small_file_has_one_importer_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOL["Source"].module.fget.__globals__, "ROOT", tmp_path)
    a = source(tmp_path, "rnnops/a.py", TEXT)
    b = source(tmp_path, "rnnops/b.py", "class One: pass\n")
    both = source(tmp_path, "rnnops/c.py", "from rnnops import b\n")
    assert TOOL["small_files"]([a, b]) == ["rnnops.b"]
    assert TOOL["small_files"]([a, b, both]) == []
    assert TOOL["names_used_twice"]([a, b]) == {"One": 2}


def test_a_measure_above_its_cap_is_named() -> None:
    assert TOOL["passed"]({"files": 3, "lines": 5}, {"files": 2, "lines": 5}) == ["files is 3; the cap is 2"]
