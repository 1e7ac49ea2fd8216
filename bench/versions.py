"""`python -m bench.versions PYTHON`: rnnops here beside the rnnops that another Python has installed, case by case.

Each version computes in a process of its own; blocks of both take turns, first one, then the other first. What is told
of a case is the median of the ratios of neighbouring blocks, with the interval that holds it in 96 of 100 runs: of nine
ratios the second and the eighth. A version is slower where the whole interval says so. Results are compared bit by bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from statistics import median
from typing import Any

from bench.environment import limit_threads

ROUNDS, QUICK_ROUNDS = 9, 3
SECONDS, QUICK_SECONDS = (0.03, 0.12), (0.0, 0.01)  # of a block: before what counts, and counted


class Child:
    """A version in a process of its own, which makes a contender and times blocks of it."""

    def __init__(self, python: str, folder: str, words: Sequence[str]) -> None:
        command = [python, "-m", "bench.versions", "--child", *words]
        environment = {**os.environ, "PYTHONPATH": folder}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
        )

    def ask(self, **words: Any) -> dict[str, Any]:
        """Send a line; the answer. Raises RuntimeError where the process has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def answers(threads: int, seconds: tuple[float, float], clock: Callable[[], float]) -> Iterator[Any]:
    """What a child does with each line that it gets."""
    from bench.cases import cases_of
    from bench.contender import Bench, Settings, make_contender
    from bench.timing import time_block

    settings = Settings(threads=threads)
    cases, call = {case.name: case for case in cases_of("cpu", False)}, None
    for line in sys.stdin:
        asked = json.loads(line)
        if "case" not in asked:
            yield {"seconds": time_block(call, *seconds, clock)}
            continue
        call = None  # its memory goes before that of the next is made
        entry = next(entry for entry in cases[asked["case"]].entries if entry.label == asked["label"])
        try:
            contender = make_contender(entry, Bench(settings))
            found = contender.results(contender.call(0)) if contender.results else {}
        except Exception as error:  # of an older version
            yield {"error": f"{type(error).__name__}: {error}"}
            continue
        call = lambda made=contender: made.call(0)  # noqa: E731
        yield {"digest": digest(found)}


def digest(arrays: dict[str, Any]) -> str:
    """What equal results have in common."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(name.encode() + arrays[name].tobytes())
    return found.hexdigest()


@contextmanager
def children(pythons: Sequence[str], words: Sequence[str]) -> Iterator[list[Child]]:
    """A process for each version; this benchmark is what they import, and each has its own rnnops."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(Path(__file__).parent, Path(folder, "bench"))
        made = [Child(python, folder, words) for python in pythons]
        try:
            yield made
        finally:
            for child in made:
                child.end()


def compare(case: str, label: str, both: list[Child], rounds: int) -> str:
    """A line on one contender."""
    made = [child.ask(case=case, label=label) for child in both]
    wrong = [one["error"] for one in made if "error" in one]
    if wrong:
        return f"{case}, {label}: {'; '.join(wrong)}"
    ratios, seconds = [], [0.0, 0.0]
    for turn in range(rounds):
        for i in (0, 1) if turn % 2 else (1, 0):
            seconds[i] = both[i].ask()["seconds"]
        ratios.append(seconds[0] / seconds[1])
    low, middle, high = sorted(ratios)[1], median(ratios), sorted(ratios)[-2]
    verdict = "SLOWER" if low > 1 else "faster" if high < 1 else "-"
    bits = "same bits" if made[0]["digest"] == made[1]["digest"] else "other bits"
    return f"{middle:5.2f} [{low:.2f}, {high:.2f}] {verdict:6} {bits:10} {seconds[0] * 1e3:9.3f} ms  {case}, {label}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=__doc__)
    parser.add_argument("python", nargs="?", default=sys.executable, help="the Python that has the other version")
    parser.add_argument("--only", default="", help="cases that have this in their names; * and ? as in a shell")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processor-time", action="store_true", help="count time of the processor: on busy machines")
    parser.add_argument("--quick", action="store_true", help="short rounds, which say little")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    limit_threads(options.threads)
    if options.child:
        clock = time.process_time if options.processor_time else time.perf_counter
        for answer in answers(options.threads, QUICK_SECONDS if options.quick else SECONDS, clock):
            print(json.dumps(answer), flush=True)
        return 0
    print("median of the ratios here / there, its interval, and how long it takes here")
    words = ["--threads", str(options.threads), *(["--quick"] if options.quick else [])]
    words += ["--processor-time"] if options.processor_time else []
    with children([sys.executable, options.python], words) as both:
        for case, label in chosen(options.only):
            print(compare(case, label, both, QUICK_ROUNDS if options.quick else ROUNDS), flush=True)
    return 0


def chosen(pattern: str) -> Iterator[tuple[str, str]]:
    """Cases that measure time, and their contenders that are rnnops on processors."""
    from bench.cases import cases_of
    from bench.contender import ENGINES

    ours = {name for name, engine in ENGINES.items() if engine.module == "rnnops_engine"} - {"reference"} | {"preset"}
    for case in cases_of("cpu", False):
        if case.measure == "time" and not case.apart and fnmatch(case.name, f"*{pattern}*"):
            for entry in case.entries:
                if entry.engine in ours:
                    yield case.name, entry.label


if __name__ == "__main__":
    sys.exit(main())
