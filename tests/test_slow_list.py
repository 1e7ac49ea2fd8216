"""The list of slow cases names tests that exist: a renamed test would else run again, or its list grow stale."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import pattern_of, slow_cases
from each import check_each

HERE = Path(__file__).parent


def test_lines_name_tests() -> None:
    check_each(slow_cases(), assert_test_is_there)


def assert_test_is_there(line: str) -> None:
    file, _, test = line.partition("::")
    definition = rf"^def {pattern_of(test.partition('[')[0])}\("
    assert re.search(definition, (HERE / file).read_text(encoding="utf-8"), re.MULTILINE)
