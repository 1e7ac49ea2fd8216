"""The benchmark of `rnnops.torch` at tiny sizes: contenders agree, and cases run in processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module

import pytest

from bench.apart import measure_apart, without_thread_variables
from bench.case import Case, Entry
from bench.cases import all_cases
from bench.cell_names import CELL_NAMES
from bench.contender import Settings
from bench.environment import THREAD_VARIABLES
from bench.goals import Added, Measured, OfSum, OverPairs
from bench.load import Quiet
from bench.measure import measure_here, run_case
from bench.problems import Problem, Size
from bench.torch_cases import torch_cases

OTHER_CELLS = CELL_NAMES[2:]  # than two that always run
FAST = Settings(threads=1, rounds=1, settle=0.0, counted=0.001, patience=0.0)
TABLE = {"a": Measured("a", 1.0), "b": Measured("b", 4.0), "c": Measured("c", 2.0), "gone": Measured("gone", None)}


def tiny(size: Size) -> Size:
    return Size(min(3, size.T), min(2, size.N), 4)


def without(case: Case, names: Iterable[str]) -> Case:
    """A case without the contenders of some problems, in this process."""
    kept = tuple(entry for entry in case.entries if entry.problem.net not in names)
    return replace(case, entries=kept, apart=False)


def test_names_of_cases_begin_with_torch_and_no_others_have_it() -> None:
    ours = [case.name for case in torch_cases(lambda size: size)]
    assert all(name.startswith("torch ") for name in ours)
    assert [case.name for case in all_cases(lambda size: size) if "torch" in case.name] == ours


@pytest.mark.filterwarnings("ignore")  # what other libraries deprecate is not ours to mend
@pytest.mark.parametrize("case", list(torch_cases(tiny)), ids=lambda case: case.name.replace(" ", "_"))
def test_contenders_agree(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr("bench.measure.FIRST_CALLS", 1)
    result = run_case(without(case, OTHER_CELLS), FAST)
    assert not result.error
    assert all(one.value for one in result.measured if "torchrl" not in one.label)
    assert all(figure.value is not None for figure in result.figures if figure.goal is not None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHER_CELLS)
def test_other_cells_agree(name: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    problem = Problem(name, Size(3, 2, 8))
    result = run_case(Case("g", "s", (Entry("loop", "Python loop", problem), Entry("rnnops", "rt.RNN", problem))), FAST)
    assert not result.error
    assert all(one.value or "left out" in one.missing for one in result.measured)


def test_names_are_those_of_the_cells() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert list(import_module("bench.package_cells").CELLS) == list(CELL_NAMES)


def test_a_missing_package_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setitem(sys.modules, "ncps", None)
    monkeypatch.setitem(sys.modules, "ncps.torch", None)
    result = run_case(Case("g", "s", (Entry("loop", "Python loop", Problem("ncps LTCCell", Size(2, 2, 4))),)), FAST)
    assert not result.error
    assert result.measured[0].missing.startswith("cells of ncps are left out: ")


def test_a_case_runs_apart_without_numbers_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in THREAD_VARIABLES:
        monkeypatch.setenv(variable, "1")
    with without_thread_variables():
        assert not os.environ.keys() & set(THREAD_VARIABLES)
    assert os.environ.keys() >= set(THREAD_VARIABLES)
    settings, quiet = replace(FAST, device="reference"), Quiet(0.0)
    (one,) = measure_apart(
        measure_here, Case("g", "s", (Entry("r", "rnnops", Problem("lstm", Size(2, 2, 4))),)), settings, quiet
    )
    assert one.label == "r"
    assert one.value
    assert quiet.counted_seconds > 0
    with pytest.raises(KeyError, match="nobody"):
        measure_apart(
            measure_here, Case("g", "s", (Entry("r", "nobody", Problem("lstm", Size(2, 2, 4))),)), settings, quiet
        )


def test_figures_of_pairs_sums_and_differences() -> None:
    pairs = (("a", "b"), ("a", "c"), ("gone", "b"), ("a", "gone"))
    median, least = OverPairs(pairs, 3.5).figure(TABLE), OverPairs(pairs, 2.0, least=True).figure(TABLE)
    assert (median.name, median.value, median.met) == ("median of 2 ratios", 3.0, False)
    assert (least.value, least.met) == (2.0, True)
    assert OfSum("b", ("a", "c"), 1.1).figure(TABLE).value == pytest.approx(4 / 3)
    assert OfSum("b", ("a", "gone"), 1.1).figure(TABLE).value is None
    assert Added("b", "a", 3.0).figure(TABLE).met
    assert not Added("b", "gone", 3.0).figure(TABLE).met
