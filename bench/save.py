"""A run on the disk: `bench.json`, `bench.txt` and, with matplotlib, `bench.png`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.budgets import plot_budgets
from bench.cases import LONG
from bench.measure import CaseResult
from bench.problems import Problem


def save(results: Sequence[CaseResult], machine: Mapping[str, str], text: str, folder: Path) -> list[str]:
    """Write everything; returns what was written and, where there is no plot, why."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(as_json(results, machine), indent=1) + "\n")
    (folder / "bench.txt").write_text(text + "\n")
    written = [f"wrote {folder / name}" for name in ("bench.json", "bench.txt")]
    try:
        from bench.plot import plot
    except ImportError as error:
        return [*written, f"no plot: wanted matplotlib, which does not import ({error}); it is in the extra 'bench'"]
    written.append(f"wrote {plot(results, machine, folder / 'bench.png')}")
    budgets = plot_budgets(results, Problem("lstm", LONG), folder / "budgets.png")
    return [*written, *([f"wrote {budgets}"] if budgets else [])]


def as_json(results: Sequence[CaseResult], machine: Mapping[str, str]) -> dict[str, Any]:
    """All numbers, those of each round too."""
    return {"machine": dict(machine), "cases": [case_as_json(result) for result in results]}


def case_as_json(result: CaseResult) -> dict[str, Any]:
    figures = [{**asdict(figure), "met": figure.met} for figure in result.figures]
    return {**asdict(result), "name": result.name, "figures": figures}
