"""Code blocks of Markdown pages: they run in order, in one namespace, and print what the page shows.

- A block of `python` runs, unless it begins with `# name.py`: then it is that file, as `/* name.c */` is in C.
- A block of `text` directly after a block of `python` or `sh` is what that prints. Other blocks of `sh` do not run.
- Numbers with a fraction may differ by one in the last digit shown. `...` stands for the rest of a line, and as a line
  for any lines.
- On the pages of `SHOWN`, and of the guide, every block that prints is followed by its text.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from decimal import Decimal
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

SHOWN = ("README.md", "cells.md", "cookbook.md", "quickstart.md", "serving.md")
BLOCK = re.compile(r"```(python|sh|c)\n(.*?)```(?:\n\n?```text\n(.*?)```)?", re.S)
FILE = re.compile(r"(?:# (\w+\.py)|/\* (\w+\.c) \*/)\n")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")
TOKEN = re.compile(rf"{NUMBER.pattern}|\s+|.")


def run_code_blocks(page: Path, without: re.Pattern[str] | None = None) -> dict[str, Any]:
    """Run a page's blocks in the current folder, but for those in which a pattern is found.

    Returns:
        The namespace of its Python blocks.

    Raises:
        AssertionError: a block prints something else than the page shows.
    """
    namespace: dict[str, Any] = {"__name__": page.stem}
    for kind, code, shown in BLOCK.findall(page.read_text()):
        if without is None or not without.search(code):
            printed = _printed(page, kind, code, bool(shown), namespace)
            if printed is not None and (shown or page.name in SHOWN or page.parent.name == "guide"):
                check_printed(shown, printed)
    return namespace


def _printed(page: Path, kind: str, code: str, shown: bool, namespace: dict[str, Any]) -> str | None:
    """The text that a block prints; None where it does not run."""
    if named := FILE.match(code):
        Path(named[1] or named[2]).write_text(code)
    elif kind == "python":
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(page), "exec"), namespace)  # our own documents
        return printed.getvalue()
    elif kind == "sh" and shown and all(map(_can_run, code.splitlines())):
        paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-e"], input=code, capture_output=True, text=True, env={**os.environ, "PATH": paths}
        )
        assert done.returncode == 0, f"{code}{done.stderr}"
        return done.stdout
    return None


def _can_run(line: str) -> bool:
    """True if the machine has the program of a command, and the packages that its Python file imports."""
    program, *arguments = line.split()
    if program != "python":
        return program.startswith("./") or shutil.which(program) is not None
    source = Path(arguments[0]).read_text()
    imported = re.findall(r"^(?:import|from) (\w+)", source, re.M)
    return all(Path(f"{name}.py").exists() or find_spec(name) for name in imported)


def check_printed(shown: str, printed: str) -> None:
    """Raise AssertionError where a page shows something else than its code prints."""
    wanted, came = shown.splitlines(), printed.splitlines()
    pairs = zip_longest(wanted, came, fillvalue="")
    wrong = [f"shown:   {one}\nprinted: {other}" for one, other in pairs if not _same_line(one, other)]
    assert _same_lines(wanted, came), "\n".join(wrong)


def _same_lines(shown: Sequence[str], printed: Sequence[str]) -> bool:
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(_same_lines(shown[1:], printed[place:]) for place in range(len(printed) + 1))
    return bool(printed) and _same_line(shown[0], printed[0]) and _same_lines(shown[1:], printed[1:])


def _same_line(shown: str, printed: str) -> bool:
    begin, cut, _ = shown.strip().partition("...")
    wanted, came = TOKEN.findall(begin), TOKEN.findall(printed.strip())
    came = came[: len(wanted)] if cut else came
    return len(wanted) == len(came) and all(map(_same_token, wanted, came))


def _same_token(shown: str, printed: str) -> bool:
    if not (NUMBER.fullmatch(shown) and NUMBER.fullmatch(printed)):
        return shown == printed or (shown + printed).isspace()
    digits = Decimal(shown).as_tuple().exponent
    unit = Decimal(1).scaleb(digits) if isinstance(digits, int) and digits < 0 else 0
    return abs(Decimal(shown) - Decimal(printed)) <= unit
