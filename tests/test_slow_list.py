"""The list of slow cases names tests that exist: a renamed test would else run again, or its list grow stale."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import pattern_of, slow_cases

HERE = Path(__file__).parent


@pytest.mark.parametrize("line", slow_cases())
def test_lines_name_tests(line: str) -> None:
    file, _, test = line.partition("::")
    definition = rf"^def {pattern_of(test.partition('[')[0])}\("
    assert re.search(definition, (HERE / file).read_text(encoding="utf-8"), re.MULTILINE)
