"""`python -m tools.real_models [WORD ...]`: checks all files of the table, or those with a word in their names.

With --speed the files that can be read are timed in place of that. Exit status 0: all are as the table says, or as fast
as is wanted; 1: one is not; 2: all that were looked at are, and a file or ONNX Runtime is not there to be had. Files
for which --within leaves no time are skipped by name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rnnops.kernels.cpu.processor import cache_folder
from rnnops.onnx.compare import OURS, THEIRS
from tools.real_models.checks import Row, check_file
from tools.real_models.runtime import is_there, run_onnxruntime
from tools.real_models.speed import Speed, Times, summary, time_file
from tools.real_models.table import RealFile, read_table
from tools.real_models.wheels import UnreachableError, WheelError, Wheels

RIGHT, WRONG, UNREACHED = 0, 1, 2
COLUMNS = "{:<74} {:>9} {:>9} {:>9}  {}"
TIMES = "{:<74} {:>10} {:>10} {:>6} {:>10} {:>10} {:>6}  {}"
Look = Callable[[RealFile, Path], int]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.real_models", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names of packages or files; all without any")
    parser.add_argument("--cache", type=Path, default=cache_folder() / "onnx_files", help="where files are kept")
    parser.add_argument("--speed", action="store_true", help="time what can be read beside ONNX Runtime")
    limit = "begin no file, and end downloads, after so many seconds; the smallest files come first then"
    parser.add_argument("--within", type=float, metavar="SECONDS", help=limit)
    given = parser.parse_args(arguments)
    chosen = [one for one in read_table() if not given.words or any(word in one.name for word in given.words)]
    if not is_there():
        print(f"not reached: there is no ONNX Runtime, so that {len(chosen)} files are not looked at")
        return UNREACHED
    with Wheels(given.cache, given.within) as wheels:
        if given.within is not None:
            chosen.sort(key=lambda entry: entry.bytes)
        return time_all(chosen, wheels) if given.speed else check_all(chosen, wheels)


def status_of(found: set[int]) -> int:
    """The exit status of all files: a wrong one counts more than one that is not reached."""
    return next((status for status in (WRONG, UNREACHED) if status in found), RIGHT)


def check_all(chosen: list[RealFile], wheels: Wheels) -> int:
    """Check files; the exit status."""
    print(COLUMNS.format("file", "error", "gradient", "again", "verdict"))
    return status_of({look_at(entry, wheels, check_one) for entry in chosen})


def time_all(chosen: list[RealFile], wheels: Wheels) -> int:
    """Time files that can be read; the exit status."""
    print(
        TIMES.format("file, ms of a call and of a step", "rnnops", "theirs", "ratio", "rnnops", "theirs", "ratio", "")
    )
    speeds: list[Speed] = []
    found = {look_at(one, wheels, lambda *file: time_one(*file, speeds)) for one in chosen}
    lines, right = summary(speeds)
    print("\n".join(lines))
    return status_of(found if right else {*found, WRONG})


def look_at(entry: RealFile, wheels: Wheels, look: Look) -> int:
    """Do something with one file; the exit status that it asks for."""
    if wheels.time_is_over():
        print(f"skipped: {entry.name}: no time is left", flush=True)
        return RIGHT
    try:
        return look(entry, wheels.file(entry))
    except UnreachableError as error:
        print(f"not reached: {error}", flush=True)
        return UNREACHED
    except WheelError as error:
        problem = str(error)
    except Exception as error:  # a table of all files is worth more than the first that fails
        problem = f"{type(error).__name__}: {error}".replace("\n", " ")
    print_row(Row(entry.name, problem))
    return WRONG


def check_one(entry: RealFile, path: Path) -> int:
    """Check one file."""
    row = check_file(entry, path, run_onnxruntime)
    print_row(row)
    return RIGHT if row.is_right else WRONG


def print_row(row: Row) -> None:
    numbers = ("" if number is None else f"{number:.1e}" for number in (row.error, row.gradient, row.again))
    print(COLUMNS.format(row.name, *numbers, row.verdict), flush=True)


def time_one(entry: RealFile, path: Path, speeds: list[Speed]) -> int:
    """Time one file."""
    if entry.refused:
        print(f"{entry.name:<74} cannot be read: {entry.refused}")
        return RIGHT
    speeds.append(speed := time_file(entry, path))
    note = "quantised: not counted" if speed.quantised else ""
    print(TIMES.format(speed.name, *in_cells(speed.call), *in_cells(speed.step), note).rstrip(), flush=True)
    return RIGHT


def in_cells(times: Times | None) -> tuple[str, str, str]:
    """Milliseconds of each, and the ratio."""
    if times is None:
        return "", "", ""
    return f"{1e3 * times[OURS]:.4f}", f"{1e3 * times[THEIRS]:.4f}", f"{times[THEIRS] / times[OURS]:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
