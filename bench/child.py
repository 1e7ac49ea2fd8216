"""`python -m bench.child memory|compile ENGINE NET SIZE`: measures one thing in a fresh process, prints the number."""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import replace
from pathlib import Path

from bench.environment import limit_threads

STATUS, RESET_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("memory", "compile"))
    parser.add_argument("engine")
    parser.add_argument("net")
    parser.add_argument("size")
    parser.add_argument("--recompute", action="append", default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    limit_threads(options.threads)
    print(peak_bytes(options) if options.what == "memory" else seconds_to_gradients(options))


def peak_bytes(options: argparse.Namespace) -> int:
    """Peak of one training step minus what was resident before it; libraries are warm from a step of T = 2."""
    from bench.case import Entry
    from bench.contender import Bench, Settings, make_contender
    from bench.problems import Problem, Size

    settings = Settings(device=options.device, threads=options.threads)
    problem = Problem(options.net, Size.parse(options.size), tuple(options.recompute))
    short = problem.at(replace(problem.size, T=min(2, problem.size.T)))
    make_contender(Entry("short", options.engine, short), Bench(settings)).call(0)
    contender = make_contender(Entry("whole", options.engine, problem), Bench(settings))
    gc.collect()
    reset_peak()
    before = status_bytes("VmRSS")
    returned = contender.call(0)
    peak = status_bytes("VmHWM") - before
    del returned
    return peak


def reset_peak() -> None:
    """Forget the peak of importing and compiling, where the kernel lets a process do that."""
    try:
        RESET_PEAK.write_text("5")
    except OSError:
        return


def status_bytes(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def seconds_to_gradients(options: argparse.Namespace) -> float:
    """From `import rnnops` to the first gradients of a net."""
    import numba  # noqa: F401 - not counted: whoever uses numba pays for it anyway

    start = time.perf_counter()
    import rnnops as ro
    from bench.data import make_feeds
    from bench.nets import build_net
    from bench.problems import Problem, Size

    problem = Problem(options.net, Size.parse(options.size), tuple(options.recompute))
    feeds, heads = make_feeds(problem)
    _, pullback = ro.compile(build_net(problem), device=options.device, threads=options.threads).vjp(feeds)
    pullback(heads)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
