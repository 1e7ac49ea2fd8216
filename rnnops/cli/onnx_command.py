"""`rnnops onnx`: what an ONNX file holds, and how it runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnops.cli.hints import in_options
from rnnops.cli.onnx_report import print_outline, print_reading
from rnnops.lazy import LazyModule

if TYPE_CHECKING:
    from rnnops import onnx as onnx_files
    from rnnops.cli import onnx_file, onnx_runs
else:  # other commands do without the package onnx
    onnx_files = LazyModule("rnnops.onnx")
    onnx_file, onnx_runs = LazyModule("rnnops.cli.onnx_file"), LazyModule("rnnops.cli.onnx_runs")

HELP = "say what an ONNX file holds, draw it, and run it beside ONNX Runtime"
RIGHT, DIFFERENT, NOT_READ = 0, 1, 3
EXIT_CODES = """\
exit codes: 0 the file can be read, and all that was asked for was right; 1 a difference is larger than the tolerance;
2 for an error, in one line; 3 it is an ONNX file that rnnops does not read: the report says why; 130 where Ctrl-C ended
it."""
TOLERANCE = 1e-4


@dataclass(frozen=True)
class OnnxOptions:
    """The command line of `rnnops onnx`.

    Args:
        constants: input -> its value from now on.
        sizes: name of an open size and the size, or of an input of which the file says no axes and its shape.
        ranges: input -> lowest and highest number that is fed.
        states: output=input, as they were given; steps: the open size that counts steps.
        draw: where a picture goes.
        plan, check, speed, stream: what is asked for.
        tolerance: of differences, over the largest value; seed: of feeds.
    """

    file: Path
    constants: Mapping[str, Any]
    sizes: tuple[tuple[str, tuple[int, ...]], ...]
    ranges: Mapping[str, tuple[float, float]]
    states: tuple[str, ...]
    steps: str | None
    draw: Path | None
    plan: bool
    check: bool
    speed: bool
    stream: bool
    tolerance: float
    seed: int


def add_onnx(commands: Any) -> None:
    """Add the command to a parser's commands."""
    parser = commands.add_parser("onnx", help=HELP, description=f"{HELP}.", epilog=EXIT_CODES)
    parser.add_argument("file", type=Path, metavar="FILE", help="an ONNX file")
    again = "; may be given again"
    value = f"value of an input that decides sizes or branches: numbers{again}"
    parser.add_argument("--constants", type=constant, action="append", default=[], metavar="NAME=1,2", help=value)
    size = f"an open size, by its name, or INPUT.AXIS where it has none: the file is read as though it had it{again}"
    parser.add_argument("--sizes", type=_sizes, action="append", default=[], metavar="NAME=SIZE", help=size)
    bounds = f"lowest and highest number that is fed; else floats are normal, integers 0 or 1{again}"
    parser.add_argument("--range", type=_range, action="append", default=[], metavar="INPUT=LOW,HIGH", help=bounds)
    parser.add_argument("--seed", type=_count, default=0, metavar="N", help="of what is fed (default: %(default)s)")
    _add_work(parser.add_argument_group("what is done beside the report"))


def _add_work(group: Any) -> None:
    group.add_argument("--draw", type=Path, metavar="FILE.svg", help="draw the net")
    group.add_argument("--plan", action="store_true", help="print how the net is computed, with its sizes")
    group.add_argument("--check", action="store_true", help="compare outputs with those of ONNX Runtime")
    group.add_argument("--speed", action="store_true", help="time a call of both, one thread each")
    stream = "run it call by call, its states handed on, compare with other ways to do so, and time a call"
    group.add_argument("--stream", action="store_true", help=stream)
    state = "a state: what --stream feeds back; what recurrences begin and end with, if left out; may be given again"
    group.add_argument("--state", action="append", default=[], metavar="OUTPUT=INPUT", help=state)
    steps = "the size that counts steps, which stays open: --stream feeds one at a time, beside one call of them all"
    group.add_argument("--steps", metavar="NAME", help=steps)
    limit = "the largest difference that is right, over the largest value (default: %(default)g)"
    group.add_argument("--tolerance", type=_positive, default=TOLERANCE, metavar="X", help=limit)


def read_onnx_options(given: Mapping[str, Any]) -> OnnxOptions:
    """Options from parsed arguments."""
    others = {field.name: given[field.name] for field in fields(OnnxOptions) if field.name in given}
    others |= {"constants": dict(given["constants"]), "sizes": tuple(given["sizes"])}
    return OnnxOptions(**others, ranges=dict(given["range"]), states=tuple(given["state"]))


def onnx(options: OnnxOptions) -> int:
    """Print the report, do what is asked for, and return the exit code."""
    file = onnx_file.read_file(options)
    print_outline(options.file, file.outline)
    try:
        model = onnx_files.load_model(options.file, dict(options.constants), file.fixed)
    except onnx_files.OnnxError as error:
        print_reading(file.outline, None, in_options(str(error)))
        return NOT_READ
    print_reading(file.outline, model, "")
    return RIGHT if onnx_runs.OnnxRuns(options, file, model).all() else DIFFERENT


def constant(text: str) -> tuple[str, Any]:
    """A name and a value, for argparse: a number, or a list of them."""
    name, values = _named(text, "NAME=1,2")
    numbers = [_number(one) for one in values.split(",")]
    return name, numbers if len(numbers) > 1 else numbers[0]


def _sizes(text: str) -> tuple[str, tuple[int, ...]]:
    """A name and sizes, for argparse."""
    name, values = _named(text, "NAME=16")
    return name, tuple(_count(size) for size in values.split(","))


def _range(text: str) -> tuple[str, tuple[float, float]]:
    """A name and two numbers, for argparse."""
    name, values = _named(text, "INPUT=0,1")
    bounds: Sequence[float] = [float(_number(one)) for one in values.split(",")]
    if len(bounds) != 2 or not bounds[0] <= bounds[1] or bounds[1] - bounds[0] == float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: wanted two numbers, the lower one first")
    return name, (bounds[0], bounds[1])


def _named(text: str, wanted: str) -> tuple[str, str]:
    """What is before the last = and behind it."""
    name, equals, values = text.rpartition("=")
    if not equals or not name or not values:
        raise argparse.ArgumentTypeError(f"{text}: wanted {wanted}")
    return name, values


def _number(text: str) -> int | float | bool:
    """A number, or `true` and `false`."""
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return int(text)
    except ValueError:
        return float(text)


def _count(text: str) -> int:
    """An int of 0 or more."""
    if (value := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def _positive(text: str) -> float:
    """A float above 0."""
    if not 0 < (value := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no finite number above 0")
    return value
