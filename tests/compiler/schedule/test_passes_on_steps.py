"""Each pass on a step does what its fixture file shows: a net, and the lines of its step before and after the pass.

`python tests/compiler/schedule/test_passes_on_steps.py` writes the lines of all fixtures anew, to be read by people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import ndiff
from pathlib import Path

import pytest
from scan_cases import training_scans

import rnnops as ro
from rnnops.compiler.lower.scan import LoweredStep, Scan
from rnnops.compiler.schedule import plan_step
from rnnops.compiler.schedule.plan_step import first_step, lowered_step, staged

PASSES = Path(__file__).with_name("passes")
TABLES = {"rows apart": plan_step.ROWS_APART, "rows together": plan_step.ROWS_TOGETHER}
ELSEWHERE = {"check_rings", "drop_unread"}  # it changes nothing; nets of this size come pruned, see test_stages
PLAN_TABLES = {"compacted": plan_step.COMPACTED, "with all rows": plan_step.WITH_ALL_ROWS}


def cases() -> Iterator[tuple[str, str]]:
    """Name of a pass, and one of its fixtures: a title, what is planned how, a net, `-->`, lines."""
    for file in sorted(PASSES.glob("*.txt")):
        yield from ((file.stem, case.strip("\n")) for case in re.split(r"^====+$", file.read_text(), flags=re.M))


def parts_of(case: str) -> tuple[str, str]:
    """What is above `-->`, and the lines below it."""
    head, _, lines = case.partition("\n-->")
    return head.strip("\n"), lines.strip("\n")


def scan_of(case: str) -> tuple[Scan, str]:
    """The scan of a fixture, and the tables that run on it: `forward, rows apart, compacted: xs=[4, 3, 2] ...`."""
    how = case.split("\n")[1]
    kinds = {
        name: (dtype or "float64", tuple(map(int, sizes.split(", "))))
        for name, dtype, sizes in re.findall(r"(\w+)=(\w*)\[(.*?)\]", how)
    }
    net = ro.parse_net(parts_of(case)[0].split("\n", 2)[2])
    forward, backward = training_scans(net, **kinds)
    return (backward if how.startswith("backward") else forward)[0].compiled.scan, how


def lines_of(name: str, case: str) -> str:
    """The lines of a step before and after a pass, those that are gone marked with -, new ones with +."""
    scan, how = scan_of(case)
    (table,) = (passes for kind, passes in TABLES.items() if kind in how)
    step = first_step(scan, lowered_step(scan), "" if "apart" in how else "they are mixed")
    for step_pass in table:
        before, step = step, step_pass(step)
        if step_pass.__name__ == name and (str(before) != str(step) or step_pass is table[-1]):
            return changes(str(before), str(step))
    return plan_lines(name, scan, how, step)


def plan_lines(name: str, scan: Scan, how: str, step: LoweredStep) -> str:
    """The same for a pass on plans."""
    plan = staged(step)
    (table,) = (passes for kind, passes in PLAN_TABLES.items() if kind in how)
    for plan_pass in table:
        before, plan = plan, plan_pass(scan, plan)
        if plan_pass.__name__ == name:
            return changes(str(before), str(plan))
    raise AssertionError(f"no pass '{name}' changes this step")


def changes(before: str, after: str) -> str:
    marked = ndiff(before.splitlines(), after.splitlines())
    return "\n".join(line.rstrip() for line in marked if not line.startswith("?"))


@pytest.mark.parametrize(("name", "case"), [pytest.param(*case, id=f"{case[0]}: {case[1][:40]}") for case in cases()])
def test_a_pass_does_what_its_fixture_shows(name: str, case: str) -> None:
    assert lines_of(name, case) == parts_of(case)[1]


def test_every_pass_has_a_fixture() -> None:
    tables = [*TABLES.values(), *PLAN_TABLES.values()]
    names = {one.__name__ for table in tables for one in table}
    assert names - ELSEWHERE == {file.stem for file in PASSES.glob("*.txt")}


def write_fixtures() -> None:
    written: dict[str, list[str]] = {}
    for name, case in cases():
        written.setdefault(name, []).append(f"{parts_of(case)[0]}\n\n-->\n\n{lines_of(name, case)}\n")
    for name, texts in written.items():
        PASSES.joinpath(f"{name}.txt").write_text("\n====\n\n".join(texts))


if __name__ == "__main__":
    write_fixtures()
