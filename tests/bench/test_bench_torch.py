"""The benchmark of `rnnops.torch` at tiny sizes: contenders agree, and cases run in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module

import pytest

from bench.case import Case, Entry
from bench.cases import all_cases
from bench.contender import Settings
from bench.goals import Measured
from bench.measure import Measurement
from bench.package_cells import CELLS
from bench.problems import Problem, Size
from bench.torch_cases import torch_cases

OTHER_CELLS = tuple(CELLS)[2:]  # than two that always run
FAST = Settings(threads=1, rounds=1, settle=0.0, counted=0.001, patience=0.0)


def tiny(size: Size) -> Size:
    return Size(min(3, size.T), min(2, size.N), 4)


def without(case: Case, names: Iterable[str]) -> Case:
    """A case without the contenders of some problems, in this process."""
    kept = tuple(entry for entry in case.entries if entry.problem.net not in names)
    return replace(case, entries=kept, apart=False)


def rows_of(case: Case) -> list[Measured]:
    """What is measured of a case in which nothing is wrong."""
    it = Measurement(case, FAST)
    rows = it.measured()
    assert it.wrong == []
    return rows


def test_names_of_cases_begin_with_torch_and_no_others_have_it() -> None:
    ours = [case.name for case in torch_cases(lambda size: size)]
    assert all(name.startswith("torch ") for name in ours)
    assert [case.name for case in all_cases() if "torch" in case.name] == ours


@pytest.mark.filterwarnings("ignore")  # what other libraries deprecate is not ours to mend
@pytest.mark.parametrize("case", list(torch_cases(tiny)), ids=lambda case: case.name.replace(" ", "_"))
def test_contenders_agree(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr("bench.measure.FIRST_CALLS", 1)
    case = without(case, OTHER_CELLS)
    rows = rows_of(case)
    assert all(one.value for one in rows if "torchrl" not in one.label)
    figures = [goal({one.label: one for one in rows}) for goal in case.goals]
    assert all(figure.value is not None for figure in figures if figure.goal is not None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHER_CELLS)
def test_other_cells_agree(name: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    problem = Problem(name, Size(3, 2, 8))
    rows = rows_of(Case("g", "s", (Entry("loop", "Python loop", problem), Entry("rnnops", "rt.RNN", problem))))
    assert all(one.value or "left out" in one.missing for one in rows)


def test_every_cell_has_a_builder() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    builders = vars(import_module("bench.cell_builders"))
    assert all(callable(builders[cell.builder]) for cell in CELLS.values())


def test_a_missing_package_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setitem(sys.modules, "ncps", None)
    monkeypatch.setitem(sys.modules, "ncps.torch", None)
    (row,) = rows_of(Case("g", "s", (Entry("loop", "Python loop", Problem("ncps LTCCell", Size(2, 2, 4))),)))
    assert row.missing.startswith("cells of ncps are left out: ")
