"""Many random programs: on "cpu" beside the reference, and beside programs that mean the same.

Usage: python tests/meaning/sweep.py [FIRST] [COUNT] [--small] [--every K] [--optimised K]
       [--shrink N] [--log FILE]

Seeds FIRST to FIRST + COUNT - 1 are tried, so a sweep may be run in pieces. 10 000 seeds take about an hour of one
core. Odd seeds are small programs. Each third seed also tries a relation. Each twentieth is compiled with LLVM's
optimisations, the others without.

Each failure is printed with its smallest program, and a summary comes last. The exit status is 1 where there were
failures. `--log` also writes to a file. It names each seed before the seed is tried: if the process dies, the last
line says where.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--small", action="store_true", help="the small programs that CI tries")
    parser.add_argument("--every", type=int, default=3, help="each so many seeds also try a relation; 0: none does")
    parser.add_argument(
        "--optimised", type=int, default=20, help="each so many seeds are compiled as usual; 0: none is"
    )
    parser.add_argument("--shrink", type=int, default=3, help="so many failures are made small")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rnnops-sweep-") as folder:
        os.environ["RNNOPS_CACHE_DIR"] = folder  # for programs that are compiled as usual
        return sweep(options)


def sweep(options: argparse.Namespace) -> int:
    """Try the seeds; 1 where one failed."""
    import seeds
    from quick_code import rare_collections, unoptimised

    counts: Counter[str] = Counter()
    failures, begun, said = 0, time.monotonic(), time.monotonic()
    for seed in range(options.first, options.first + options.count):
        _log(options.log, f"seed {seed}")
        usual = options.optimised and seed % options.optimised == 0
        with nullcontext() if usual else unoptimised(), rare_collections():
            tried = list(seeds.try_seed(seed, options.small or seed % 2 > 0, options.every))
        for name, verdict, recipe in tried:
            detail = f" ({verdict.detail[:70]})" if verdict.kind == "refused" else ""
            counts[f"{name}: {verdict.kind}{detail}"] += 1
            if verdict.failed:
                failures += 1
                text = seeds.report(seed, name, verdict, recipe, smallest=failures <= options.shrink)
                print(text, flush=True)
                _log(options.log, text)
        if time.monotonic() - said > 30:
            said = time.monotonic()
            print(f"{seed + 1 - options.first} seeds, {failures} failures, {said - begun:.0f} s", flush=True)
    summary = "\n".join(f"  {count:6} {name}" for name, count in sorted(counts.items()))
    total = f"seeds {options.first} to {options.first + options.count - 1}: {sum(counts.values())} checks, "
    total += (
        f"{failures} failures, {time.monotonic() - begun:.0f} s, {time.process_time():.0f} s of processor\n{summary}"
    )
    print(total)
    _log(options.log, total)
    return int(failures > 0)


def _log(path: Path | None, text: str) -> None:
    if path:
        with path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
