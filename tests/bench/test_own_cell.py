"""The cell that README shows is the one that the benchmark's first table times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from page_blocks import run_code_blocks

import rnnops as ro
from bench.cases import all_cases
from bench.data import make_feeds
from bench.nets import build_net
from bench.problems import Problem, Size

README = Path(__file__).parents[2] / "README.md"


def test_readme_and_benchmark_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    net = run_code_blocks(README)["net"]
    problem = Problem("coupled", Size(5, 3, 4))
    feeds, _ = make_feeds(problem)
    ours, timed = (ro.compile(one, device="reference")(feeds) for one in (net, build_net(problem)))
    assert ours.keys() == timed.keys() == {"y", "c_last"}
    for name in ours:
        np.testing.assert_array_equal(ours[name], timed[name].reshape(ours[name].shape))


def test_table_of_readme_is_that_case() -> None:
    assert '--only "own cell*"`' in README.read_text()
    assert sum(case.group.startswith("own cell") for case in all_cases()) == 6
