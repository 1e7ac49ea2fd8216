"""The lists of cases beside the default tier name tests that exist: renamed, one would run again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import LISTS, listed, pattern_of
from each import check_each

HERE = Path(__file__).parent


@pytest.mark.parametrize("mark", LISTS)
def test_lines_name_tests(mark: str) -> None:
    check_each(listed(mark), assert_test_is_there)


def assert_test_is_there(line: str) -> None:
    file, _, test = line.partition("::")
    definition = rf"^def {pattern_of(test.partition('[')[0])}\("
    assert re.search(definition, (HERE / file).read_text(encoding="utf-8"), re.MULTILINE)
