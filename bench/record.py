"""A run on the disk: a JSON file with all numbers and a page beside it, written case by case.

A run on a GPU never writes over the file of another one; a run on processors writes `bench.json` anew. With `--resume`
either goes on in the newest of its machine and day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import Any

from bench.case import CUDA, Case
from bench.counting import Work
from bench.goals import Measured
from bench.judge import CaseResult
from bench.report import page


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
    cases: dict[str, CaseResult] = field(default_factory=dict)
    unreached: list[str] = field(default_factory=list)

    def in_order(self, table: Iterable[Case]) -> list[CaseResult]:
        """Results in the order of the table."""
        return [self.cases[case.name] for case in table if case.name in self.cases]


def result_of(case: Case, measured: Iterable[Mapping[str, Any]], error: str, others: float = 0.0) -> CaseResult:
    """A result from what a worker or a file says."""
    rows = tuple(map(measured_of, measured))
    figures = tuple(goal({one.label: one for one in rows}) for goal in case.goals) if rows else ()
    steps = case.entries[0].problem.size.T if case.devices == CUDA else 0
    return CaseResult(case.group, case.setting, rows, figures, error, others, steps)


def measured_of(words: Mapping[str, Any]) -> Measured:
    known = {name: words[name] for name in (one.name for one in fields(Measured)) if name in words}
    work = Work(**known["work"]) if known.get("work") else None
    return Measured(**{**known, "rounds": tuple(known.get("rounds", ())), "work": work})


def paths_of(machine: Mapping[str, str], date: str, folder: Path, kind: str = "cuda") -> tuple[Path | None, Path]:
    """The newest file of a machine and day, and a name for the next: `cuda-nvidia-h200-2030-01-31.json`, `...-2`.

    Without a GPU both are `bench.json`.
    """
    if "gpu" not in machine:
        path = folder / "bench.json"
        return path if path.exists() else None, path
    gpu = re.sub(r"[^a-z0-9]+", "-", machine["gpu"].lower()).strip("-")
    newest = None
    for number in count(1):
        path = folder / f"{kind}-{gpu}-{date}{f'-{number}' if number > 1 else ''}.json"
        if not path.exists():
            return newest, path
        newest = path
    raise AssertionError("there is always a next number")


def save_record(record: Record, path: Path, table: list[Case]) -> str:
    """Write both files; the page."""
    results = record.in_order(table)
    text = page(results, record.machine, record.rates, record.runs, record.unreached)
    write_both(path, as_json(record, results), text)
    return text


def write_both(path: Path, words: Mapping[str, Any], text: str) -> None:
    """A run that is cut leaves the files of the last case, or these, and no half of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for place, written in ((path, json.dumps(words, indent=1)), (path.with_suffix(".md"), text)):
        half = place.with_name(f"{place.name}.half")
        half.write_text(written + "\n")
        half.replace(place)


def as_json(record: Record, results: Iterable[CaseResult]) -> dict[str, Any]:
    cases = [
        {**asdict(result), "name": result.name, "figures": [{**asdict(one), "met": one.met} for one in result.figures]}
        for result in results
    ]
    return {
        "machine": record.machine, "rates": record.rates, "runs": record.runs, "cases": cases,
        "unreached": record.unreached,
    }  # fmt: skip


def load_record(path: Path, table: Iterable[Case]) -> Record:
    """What was saved before, of cases that are still in the table."""
    saved, by_name = json.loads(path.read_text()), {case.name: case for case in table}
    cases = {
        one["name"]: result_of(by_name[one["name"]], one["measured"], one["error"], one.get("others", 0.0))
        for one in saved["cases"]
        if one["name"] in by_name
    }
    return Record(saved["machine"], saved.get("rates", {}), saved.get("runs", []), cases)
