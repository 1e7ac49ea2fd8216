"""`python -m bench --device cuda --first-minutes`: the first ten minutes on a GPU, written down as they go by.

Each process has a time limit: one that hangs is ended with all that it has started, and the next one goes on. Results
are written after each. This process touches no device.

Exit status: 0 where all went well that could be tried, 1 where something failed, hung or was not reached, 2 without a
device. A tool that is not installed, or that the machine does not let work, is said and is not a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from bench.contender import Settings
from bench.first_minutes.steps import (
    MODEL,
    NO_TESTS,
    PROFILER,
    RESULT,
    SANITIZER,
    TESTER,
    Part,
    Step,
    all_steps,
    errors_found,
    only_skipped,
    refusal,
)
from bench.record import write_both
from bench.report import table_of
from bench.resume import ResumeError, find, now, revision
from bench.watch import ROOT, environment

SECONDS = 585.0  # ten minutes, with what a process may take to go when it is ended
OK, FAILED, HUNG, MISSING, UNREACHED = STATUSES = "ok", "failed", "hung", "missing", "not reached"
WORDS, TAIL = 300, 200  # characters of a line of the page; lines of what a process has printed
KIND = "first-minutes"
GRACE = 10.0  # seconds for a process to go when it is ended


@dataclass
class Outcome:
    """What came of a part.

    Args:
        status: one of the five words.
        why: where it is not `OK`.
        seconds: that it took; `when` it ended.
        result: what it told.
        tail: its last lines; all that it printed where a tool looked at it.
    """

    step: str
    label: str
    command: str
    status: str
    why: str = ""
    seconds: float = 0.0
    when: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    tail: list[str] = field(default_factory=list)


def run_first_minutes(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Go through all steps; the exit status."""
    run = FirstMinutes(options, words)
    if options.list:
        print(plan_of(run.steps, run.seconds))
        return 0
    return run.go()


class FirstMinutes:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace, words: Sequence[str]) -> None:
        self.options, self.tiny = options, options.scale == "tiny"
        self.start = time.monotonic()
        self.seconds = SECONDS if options.seconds is None else options.seconds
        self.steps = all_steps(self.tiny, options.output)
        self.command, self.today = shlex.join(["python", "-m", "bench", *words]), date.today().isoformat()
        settings = Settings("cuda", tiny=self.tiny)
        self.variables = {**environment(settings), "PYTHONUNBUFFERED": "1"}  # lines come out when they are printed
        self.outcomes: list[Outcome] = []
        self.known: dict[tuple[str, str], Outcome] = {}
        self.machine: dict[str, Any] = {}
        self.revision = revision()
        self.path = Path()

    def go(self) -> int:
        look, *others = self.steps
        self.take(look, self.end)
        try:
            self.open()
        except ResumeError as error:
            print(error, file=sys.stderr)
            return 2
        device = self.told("device")
        deadline = self.start + look.seconds
        for step in others:
            deadline = self.start + self.seconds if step.rest else min(deadline + step.seconds, self.end)
            self.take(step, deadline, "" if device else "no device")
        print(self.save(), f"wrote {self.path}", f"wrote {self.path.with_suffix('.md')}", sep="\n")
        if not device:
            why = self.told("missing") or self.outcomes[0].why
            print(f"no usable GPU: {why}; --scale tiny needs none", file=sys.stderr)
            return 2
        return int(any(one.status in (FAILED, HUNG, UNREACHED) for one in self.outcomes))

    @property
    def end(self) -> float:
        return self.start + self.seconds

    def told(self, what: str) -> Any:
        """What the first process has told."""
        return self.outcomes[0].result.get(what)

    def open(self) -> None:
        """A file for the results, or the newest of this machine, of which what was reached is not done again.

        Raises ResumeError where that file is of other sources.
        """
        self.machine = next((one.result["machine"] for one in self.outcomes if "machine" in one.result), {})
        self.machine = self.machine or {"gpu": self.told("device") or "none"}
        on, restart = self.options.resume, self.options.restart
        found = find(self.machine, self.revision, self.today, self.options.output, KIND, on, restart)
        self.path = found.path
        saved = [Outcome(**one) for one in found.saved.get("outcomes", ())]
        self.known = {(one.step, one.label): one for one in saved if one.status != UNREACHED}
        self.save()

    def take(self, step: Step, deadline: float, reason: str = "") -> None:
        """All parts of a step, as far as time goes."""
        if step.first:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                done = pool.map(lambda part: self.outcome(step, part, deadline, reason), step.first)
                for outcome in done:
                    self.note(outcome)
        for part in step.parts:
            self.note(self.outcome(step, part, deadline, reason))

    def outcome(self, step: Step, part: Part, deadline: float, reason: str) -> Outcome:
        """What came of a part, now or in a run before."""
        if (step.title, part.label) in self.known:
            return self.known[step.title, part.label]
        outcome = Outcome(step.title, part.label, shlex.join(part.command), UNREACHED)
        left = deadline - time.monotonic()
        if reason or left < 1.0:
            outcome.why = reason or "time was up"
        elif part.missing:
            outcome.status, outcome.why = MISSING, part.missing
        else:
            run_part(part, min(part.seconds, left), outcome, self.variables)
        return outcome

    def note(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        spent = time.monotonic() - self.start
        words = f"{outcome.step}: {outcome.label}: {outcome.status} {outcome.why}".rstrip()
        print(f"[{spent:.0f} s] {words[:WORDS]}", file=sys.stderr, flush=True)
        if self.path != Path():
            self.save()

    def save(self) -> str:
        """Write both files; the page."""
        spent = round(time.monotonic() - self.start, 1)
        head = {
            "date": self.today, "command": self.command, "seconds": spent, "machine": self.machine,
            "revision": self.revision,
        }  # fmt: skip
        outcomes = [*self.outcomes, *self.ahead()]
        text = page(head, outcomes)
        write_both(self.path, {**head, "outcomes": [asdict(one) for one in outcomes]}, text)
        return text

    def ahead(self) -> list[Outcome]:
        """What is known from a run before, and this one has not come to: a run that is killed loses none of it."""
        there = {(one.step, one.label) for one in self.outcomes}
        return [one for key, one in self.known.items() if key not in there]


def run_part(part: Part, seconds: float, outcome: Outcome, variables: dict[str, str]) -> None:
    """Run one process, and put down what came of it."""
    start = time.monotonic()
    words = ["--seconds", f"{max(1.0, seconds - GRACE):.0f}"] if part.told else []
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        status = run_process([*part.command, *words], seconds, log, variables)
        outcome.seconds, outcome.when = round(time.monotonic() - start, 2), now()
        log.seek(0)
        text = log.read()
    lines = text.splitlines()
    for line in lines:
        if line.startswith(RESULT):
            with suppress(json.JSONDecodeError):  # cut in the midst of a line
                outcome.result.update(json.loads(line.removeprefix(RESULT)))
    printed = [line for line in lines if not line.startswith(RESULT)]
    outcome.tail = printed if part.tool == PROFILER else printed[-TAIL:]
    outcome.status, outcome.why = judged(part, status, text, outcome, seconds)


def run_process(command: Sequence[str], seconds: float, log: Any, variables: dict[str, str]) -> int | str:
    """The exit status of a process; words where there is none. It is ended with all that it has started."""
    try:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return str(error)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return ""
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # the driver may hold it: the next one goes on all the same
                process.wait(GRACE)


def judged(part: Part, status: int | str, text: str, outcome: Outcome, seconds: float) -> tuple[str, str]:
    """How a process went, and why it did not go well."""
    if status == "":
        return MISSING if part.optional else HUNG, f"still running after {seconds:.0f} s"
    if isinstance(status, str):
        return MISSING, status
    if part.tool:
        refused = refusal(text)
        if refused:
            return MISSING, f"{part.tool} does not work here: {refused}"
    if part.tool == SANITIZER:
        found = errors_found(text)
        if found is None:
            return MISSING, f"{part.tool} came to no result: {last_words(outcome.tail)}"
        outcome.result["errors"] = found
        if found:
            return FAILED, f"{found} errors"
    if part.tool == TESTER and status in (0, NO_TESTS):
        skipped = "there are no such tests" if status == NO_TESTS else only_skipped(text)
        if skipped:
            return MISSING, skipped
    wrong = outcome.result.get("wrong") or ("results are not finite" if outcome.result.get("finite") is False else "")
    if wrong:
        return FAILED, wrong
    if status == 0 and "not_there" in outcome.result:
        return MISSING, outcome.result["not_there"]
    return (OK, "") if status == 0 else (FAILED, f"it ended with {status}: {last_words(outcome.tail)}")


def last_words(lines: Iterable[str]) -> str:
    return next((line.strip() for line in reversed([*lines]) if line.strip()), "it printed nothing")


def plan_of(steps: Sequence[Step], seconds: float) -> str:
    """The processes of all steps, and a table of the seconds that steps have: they add up to those of the run."""
    lines = [f"{s.title}:\n  " + "\n  ".join(shlex.join(p.command) for p in (*s.first, *s.parts)) for s in steps]
    rows, sum_ = [("step", "processes", "s", "until, s")], 0.0
    for step in steps:
        own = seconds - sum_ if step.rest else step.seconds
        sum_ += own
        count = f"{len(step.parts)}" + (f", and {len(step.first)} side by side" if step.first else "")
        rows.append((step.title, count, f"{own:.0f}", f"{sum_:.0f}"))
    return "\n".join([*lines, "", table_of(rows)])


def model_table(outcomes: Sequence[Outcome]) -> list[str]:
    """The cost model beside what was measured, so that it can be corrected."""
    rows = [("loop", "measured, us a step", "predicted", "measured / predicted", "for")]
    told = ((one.label, *pair) for one in outcomes for pair in one.result.items())
    for label, name, found in told:
        if name.startswith(MODEL) and isinstance(found, dict):
            loop = f"{[*label.split(), ''][1]}, {name.removeprefix(MODEL).strip()}"
            for direction in (key for key in found if key != "for"):
                values = (found[direction][key] for key in ("measured", "predicted", "ratio"))
                shown = ("-" if value is None else f"{value:.3g}" for value in values)
                rows.append((f"{loop} {direction}", *shown, found["for"]))
    return ["## Cost model beside the device", table_of(rows)] if len(rows) > 1 else []


def page(head: dict[str, Any], outcomes: Sequence[Outcome]) -> str:
    """What a reader should know, in Markdown: what went wrong first."""
    machine = head["machine"]
    counts = Counter(one.status for one in outcomes)
    blocks = [
        f"# First minutes on a GPU: {machine.get('gpu', 'unknown')}",
        f"- {head['date']}: `{head['command']}`, {head['seconds']:.0f} s",
        ", ".join(f"{name} {value}" for name, value in {**machine, "commit": head["revision"]["commit"]}.items()),
        ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status]),
    ]
    for title, mark, statuses in (("Wrong", "**", (FAILED, HUNG)), ("Not done", "", (MISSING, UNREACHED))):
        bad = [one for one in outcomes if one.status in statuses]
        lines = [f"- {one.step}: {one.label}: {mark}{one.status}{mark}: {one.why}" for one in bad]
        blocks += [f"## {title}", "\n".join(lines)] if lines else []
    blocks += model_table(outcomes)
    for step in dict.fromkeys(one.step for one in outcomes):
        blocks += [
            f"## {step}",
            table_of([("", "", "s", "when", ""), *(row(one) for one in outcomes if one.step == step)]),
        ]
    return "\n\n".join(block for block in blocks if block)


def row(one: Outcome) -> tuple[str, ...]:
    told = "; ".join(f"{name}: {value}" for name, value in one.result.items() if name != "machine")
    words = " ".join(told.split()) or last_words(one.tail)
    return one.label, one.status, f"{one.seconds:.1f}", one.when, words[: 3 * WORDS].replace("|", "/")
