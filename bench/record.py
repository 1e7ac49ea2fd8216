"""A run on the disk: a JSON file with all numbers and a page beside it, written case by case.

A run on a GPU never writes over the file of another one; a run on processors writes `bench.json` anew. `resume.py` says
where a run goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
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
        revision: of `resume.py`, by which all of it was measured.
        runs: date and command of each run that measured something.
        cases: name -> result.
        unreached: names of cases that no run got to.
        begun: the name of the case that is being measured.
    """

    machine: dict[str, str] = field(default_factory=dict)
    revision: dict[str, str] = field(default_factory=dict)
    rates: dict[str, Any] = field(default_factory=dict)
    runs: list[dict[str, str]] = field(default_factory=list)
    cases: dict[str, CaseResult] = field(default_factory=dict)
    unreached: list[str] = field(default_factory=list)
    begun: str = ""

    def in_order(self, table: Iterable[Case]) -> list[CaseResult]:
        """Results in the order of the table."""
        return [self.cases[case.name] for case in table if case.name in self.cases]


def result_of(
    case: Case, measured: Iterable[Mapping[str, Any]], error: str, others: float = 0.0, when: str = "", how: str = ""
) -> CaseResult:
    """A result from what a worker or a file says."""
    rows = tuple(one for one in map(measured_of, measured) if not one.source)
    if rows:
        rows += tuple(
            Measured(o.label, o.seconds, precision=o.precision, tf32="-", source=o.source) for o in case.published
        )
    figures = tuple(goal({one.label: one for one in rows}) for goal in case.goals) if rows else ()
    steps = case.entries[0].problem.size.T if case.devices == CUDA else 0
    return CaseResult(case.group, case.setting, rows, figures, error, others, steps, when, how)


def measured_of(words: Mapping[str, Any]) -> Measured:
    known = {name: words[name] for name in (one.name for one in fields(Measured)) if name in words}
    work = Work(**known["work"]) if known.get("work") else None
    return Measured(**{**known, "rounds": tuple(known.get("rounds", ())), "work": work})


def save_record(record: Record, path: Path, table: list[Case]) -> str:
    """Write both files; the page."""
    results = record.in_order(table)
    machine = {**record.machine, **({"commit": record.revision["commit"]} if record.revision else {})}
    text = page(results, machine, record.rates, record.runs, record.unreached)
    write_both(path, as_json(record, results), text)
    return text


def write_both(path: Path, words: Mapping[str, Any], text: str) -> None:
    """A run that is cut leaves the files of the last case, or these, and no half of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for place, written in ((path, json.dumps(words, indent=1)), (path.with_suffix(".md"), text)):
        half = place.with_name(f"{place.name}.half")
        with half.open("w") as file:
            file.write(written + "\n")
            file.flush()
            os.fsync(file.fileno())  # the name changes only when the words are on the disk
        half.replace(place)


def as_json(record: Record, results: Iterable[CaseResult]) -> dict[str, Any]:
    cases = [
        {**asdict(result), "name": result.name, "figures": [{**asdict(one), "met": one.met} for one in result.figures]}
        for result in results
    ]
    return {
        "machine": record.machine, "revision": record.revision, "rates": record.rates, "runs": record.runs,
        "cases": cases, "unreached": record.unreached, "begun": record.begun,
    }  # fmt: skip


def load_record(saved: Mapping[str, Any], table: Iterable[Case]) -> Record:
    """What was saved before, of cases that are still in the table."""
    by_name = {case.name: case for case in table}
    cases = {
        one["name"]: result_of(
            by_name[one["name"]], one["measured"], one["error"],
            one.get("others", 0.0), one.get("when", ""), one.get("how", ""),
        )
        for one in saved["cases"]
        if one["name"] in by_name
    }  # fmt: skip
    return Record(saved["machine"], saved.get("revision", {}), saved.get("rates", {}), saved.get("runs", []), cases)
