"""`python -m bench.child memory|compile JSON`: measures one thing in a fresh process, prints what it found.

It imports nothing that counts before it has to.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.environment import limit_threads

STATUS, RESET_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
Words = dict[str, Any]  # engine, net, size, recompute, device, threads


def main(what: str, words: Words) -> None:
    limit_threads(words["threads"])
    print(json.dumps({"memory": peak_bytes, "compile": seconds_to_gradients}[what](words)))


def peak_bytes(words: Words) -> int:
    """Peak of one training step minus what was resident before it; libraries are warm from a step of T = 2."""
    from bench.case import Entry
    from bench.contender import Bench, Settings, make_contender

    settings, problem = Settings(words["device"], words["threads"]), problem_of(words)
    short = problem.at(replace(problem.size, T=min(2, problem.size.T)))
    make_contender(Entry("short", words["engine"], short), Bench(settings)).call(0)
    contender = make_contender(Entry("whole", words["engine"], problem), Bench(settings))
    gc.collect()
    reset_peak()
    before = status_bytes("VmRSS")
    returned = contender.call(0)
    peak = status_bytes("VmHWM") - before
    del returned
    return peak


def problem_of(words: Words) -> Any:
    from bench.problems import Problem, Size

    return Problem(words["net"], Size.parse(words["size"]), tuple(words["recompute"]))


def reset_peak() -> None:
    """Forget the peak of importing and compiling, where the kernel lets a process do that."""
    try:
        RESET_PEAK.write_text("5")
    except OSError:
        return


def status_bytes(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def seconds_to_gradients(words: Words) -> list[float]:
    """Seconds by the clock, and of the processor, of `import rnnops` and of compiling a net up to its first gradients.

    NumPy is imported before; feeds are made between the two, and not counted.
    """
    import numpy  # noqa: F401

    start = now()
    import rnnops as ro

    ro.compile  # noqa: B018 - what is loaded when it is wanted
    imported = now() - start
    from bench.data import make_feeds
    from bench.nets import build_net

    problem = problem_of(words)
    (feeds, heads), net = make_feeds(problem), build_net(problem)
    start = now()
    _, pullback = ro.compile(net, device=words["device"], threads=words["threads"]).vjp(feeds)
    pullback(heads)
    return [float(seconds) for seconds in imported + now() - start]


def now() -> Any:
    """The clock, and the processor time of this process."""
    import numpy as np

    return np.array([time.perf_counter(), time.process_time()])


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
