"""A run of the CUDA benchmark on the disk: a JSON file with all numbers and a page beside it, written case by case.

A run never writes over the file of another one; with `--resume` it goes on in the newest of its machine and day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import Any

from bench.cuda_cases import CudaCase
from bench.cuda_measure import CudaMeasured
from bench.cuda_report import CudaResult, page


@dataclass
class Record:
    """Everything that a page is made of.

    Args:
        runs: date and command of each run that measured something.
        cases: name -> result.
        unreached: names of cases that no run got to.
    """

    machine: dict[str, str] = field(default_factory=dict)
    rates: dict[str, Any] = field(default_factory=dict)
    runs: list[dict[str, str]] = field(default_factory=list)
    cases: dict[str, CudaResult] = field(default_factory=dict)
    unreached: list[str] = field(default_factory=list)

    def in_order(self, table: Iterable[CudaCase]) -> list[CudaResult]:
        """Results in the order of the table."""
        return [self.cases[case.name] for case in table if case.name in self.cases]


def result_of(case: CudaCase, measured: Iterable[Mapping[str, Any]], error: str) -> CudaResult:
    """A result from what a worker or a file says."""
    known = {one.name for one in fields(CudaMeasured)}
    rows = [{name: value for name, value in one.items() if name in known} for one in measured]
    ready = tuple(CudaMeasured(**{**row, "rounds": tuple(row.get("rounds", ()))}) for row in rows)
    figures = tuple(goal.figure({one.label: one for one in ready}) for goal in case.goals) if ready else ()
    return CudaResult(case.group, case.setting, ready, figures, error, problem=case.problem)


def paths_of(machine: Mapping[str, str], date: str, folder: Path, kind: str = "cuda") -> tuple[Path | None, Path]:
    """The newest file of a machine and day, and a name for the next: `cuda-nvidia-h200-2030-01-31.json`, `...-2`."""
    gpu = re.sub(r"[^a-z0-9]+", "-", machine.get("gpu", "unknown").lower()).strip("-")
    newest = None
    for number in count(1):
        path = folder / f"{kind}-{gpu}-{date}{f'-{number}' if number > 1 else ''}.json"
        if not path.exists():
            return newest, path
        newest = path
    raise AssertionError("there is always a next number")


def save_record(record: Record, path: Path, table: list[CudaCase]) -> str:
    """Write both files; the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    results = record.in_order(table)
    text = page(results, record.machine, record.rates, record.runs, record.unreached)
    replace(path, json.dumps(as_json(record, results), indent=1) + "\n")
    replace(path.with_suffix(".md"), text + "\n")
    return text


def replace(path: Path, text: str) -> None:
    """A run that is cut leaves the file of the last case, or this one, and no half of it."""
    half = path.with_name(f"{path.name}.half")
    half.write_text(text)
    half.replace(path)


def as_json(record: Record, results: Iterable[CudaResult]) -> dict[str, Any]:
    cases = []
    for result in results:
        figures = [{**asdict(figure), "met": figure.met} for figure in result.figures]
        measured = [asdict(one) for one in result.measured]
        cases.append({"name": result.name, "error": result.error, "measured": measured, "figures": figures})
    return {
        "machine": record.machine, "rates": record.rates, "runs": record.runs, "cases": cases,
        "unreached": record.unreached,
    }  # fmt: skip


def load_record(path: Path, table: Iterable[CudaCase]) -> Record:
    """What was saved before, of cases that are still in the table."""
    saved, by_name = json.loads(path.read_text()), {case.name: case for case in table}
    cases = {
        one["name"]: result_of(by_name[one["name"]], one["measured"], one["error"])
        for one in saved["cases"]
        if one["name"] in by_name
    }
    return Record(saved["machine"], saved["rates"], saved["runs"], cases)
