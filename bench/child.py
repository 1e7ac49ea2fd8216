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
    from bench.contender import Settings, make_contender
    from bench.problems import Problem, Size

    settings = Settings(device=options.device, threads=options.threads)
    problem = Problem(options.net, Size.parse(options.size), tuple(options.recompute))
    short = problem.at(replace(problem.size, T=min(2, problem.size.T)))
    make_contender(options.engine, short, "training", settings).call()
    contender = make_contender(options.engine, problem, "training", settings)
    gc.collect()
    reset_peak()
    before = status_bytes("VmRSS")
    returned = contender.call()
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
    from bench.nets import make_feeds
    from bench.problems import Problem, Size
    from bench.rnnops_engine import compile_net

    problem = Problem(options.net, Size.parse(options.size), tuple(options.recompute))
    feeds, output_gradients = make_feeds(problem)
    _, pullback = compile_net(problem, options.device, options.threads).vjp(feeds)
    pullback(output_gradients)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
