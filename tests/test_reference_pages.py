"""The reference pages list every public name once, and say the same of the command line as it says of itself."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from public_names import public_names

from rnnops.cli.main import _parser

PAGES = sorted((Path(__file__).parent.parent / "docs" / "reference").glob("*.md"))
ENTRY = re.compile(r"^\.\. (?:auto(?:function|class|exception)|py:data):: (\S+)$", re.M)
TORCH = {f"rnnops.torch.{name}" for name in ("RNN", "scan", "SelfCheckError", "StepError", "UnseenWarning")}


def test_every_public_name_has_one_entry() -> None:
    entries = Counter(name for page in PAGES for name in ENTRY.findall(page.read_text()))
    assert not [name for name, times in entries.items() if times > 1]
    public = {name for name in entries if "compiler" not in name}  # what runs give back is shown where it lies
    assert public == {*public_names(), *TORCH}


def test_the_command_line_page_has_every_option_once() -> None:
    page = (PAGES[0].parent / "command_line.md").read_text()
    commands = _parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    for name, parser in commands.items():
        section = page.split(f"## rnnops {name}\n")[1].split("\n## ")[0]
        cells = " ".join(re.findall(r"^\| (`.*?) \| ", section, re.M))
        options = [action.option_strings[-1] if action.option_strings else action.metavar for action in parser._actions]
        assert sorted(re.findall(r"`([^` ]+)[^`]*`", cells)) == sorted(options[1:]), name  # but for --help
