"""The command line: `rnnops train [TEXT ...]`, `rnnops export MODEL FOLDER` and `rnnops onnx FILE`.

A reader of an option takes the text of a value, and raises ArgumentTypeError for others.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from math import inf
from pathlib import Path
from typing import Any

from rnnops import VERSION
from rnnops.cells import CELLS
from rnnops.cli.corpus import DEFAULT_BYTES
from rnnops.cli.export import SOURCES, WEIGHTS, ExportOptions, export
from rnnops.cli.language_model import DTYPES, Settings, option
from rnnops.cli.onnx_command import TOLERANCE, OnnxOptions, in_options, onnx
from rnnops.cli.train import train
from rnnops.cli.trainer import TrainOptions
from rnnops.compiler import DEVICES
from rnnops.errors import RnnopsError
from rnnops.types import Shape

DEFAULT_TIME_LIMIT, DEFAULT_SAMPLE = 150.0, 400
INTERRUPTED, NOT_READ_ON, WRONG = 130, 141, 2

WORDS = {"true": True, "false": False}
TRAIN_HELP = "train a character language model on text files, directories of them, or Python's own sources"
EXPORT_HELP = "write a model as an object file or C99 source, a C header, weights and a manifest"
ONNX_HELP = "say what an ONNX file holds, draw it, and run it beside ONNX Runtime"
TRAIN_EXIT_CODES = """\
exit codes: 0 trained, also where Ctrl-C or SIGTERM ended the training: it is saved where --save or --resume names a
file, and the summary is printed; 2 for an error, in one line; 130 where Ctrl-C came before or after the training, or
came twice."""
ONNX_EXIT_CODES = """\
exit codes: 0 the file can be read, and all that was asked for was right; 1 a difference is larger than the tolerance;
2 for an error, in one line; 3 it is an ONNX file that rnnops does not read: the report says why; 130 where Ctrl-C ended
it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    started = time.monotonic()
    given = vars(_parser().parse_args(arguments))
    command = given.pop("command")
    try:
        if command == "onnx":
            return onnx(OnnxOptions(**given))
        return export(ExportOptions(**given)) if command == "export" else train(read_options(given), started)
    except RnnopsError as error:
        print(f"rnnops: error: {in_options(' '.join(str(error).split()), command)}", file=sys.stderr)
        return WRONG
    except BrokenPipeError:  # the reader has ended, as behind `| head`; nor does Python try again at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_READ_ON
    except KeyboardInterrupt:
        print("rnnops: interrupted", file=sys.stderr)
        return INTERRUPTED


def read_options(given: dict[str, Any]) -> TrainOptions:
    """Options from parsed arguments; settings that were not given are left to the defaults or the checkpoint."""
    names = [field.name for field in fields(Settings)]
    settings = {name: given[name] for name in names if given[name] is not None}
    others = {name: value for name, value in given.items() if name not in names}
    limit = others.pop("time_limit")
    if limit is None and others["steps"] is None:
        limit = DEFAULT_TIME_LIMIT
    return TrainOptions(**{**others, "text": tuple(others["text"])}, settings=settings, time_limit=limit or None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rnnops", description="Recurrent network operators.")
    parser.add_argument("--version", action="version", version=f"rnnops {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    train_parser = commands.add_parser("train", help=TRAIN_HELP, description=f"{TRAIN_HELP}.", epilog=TRAIN_EXIT_CODES)
    train_parser.add_argument("text", nargs="*", type=Path, metavar="TEXT", help="a text file or a directory of them")
    _add_model(train_parser.add_argument_group("model and training; a resumed run has those of its checkpoint"))
    _add_run(train_parser.add_argument_group("this run"))
    _add_results(train_parser.add_argument_group("files and results"))
    _add_export(commands)
    _add_onnx(commands)
    return parser


def _add_model(group: argparse._ArgumentGroup) -> None:
    presets = ", ".join(CELLS)
    helps: dict[str, str] = {
        "cell": f"{presets}, or module:function, called with (input_size, hidden_size, name) for an RNNCell",
        "layers": "cells on top of each other",
        "hidden": "features of a state",
        "batch": "streams of text side by side",
        "seq_length": "characters of each stream in one step of training",
        "learning_rate": "Adam's, at its highest",
        "clip": "limit of the global gradient norm",
        "dropout": "part of each layer's output that is zeroed in training",
        "dtype": "of parameters and states: " + " or ".join(DTYPES),
        "device": "where it runs: " + " or ".join(DEVICES),
        "precision": "what operands of products are rounded to: float32, bfloat16; on CUDA also tfloat32, float16",
        "seed": "of parameters, dropout and the sample",
        "evaluate_every": "steps between points of the held-out curve",
    }
    for setting in fields(Settings):
        kind = type(setting.default)
        help_text = f"{helps[setting.name]} (default: {setting.default})"
        word = {int: "N", float: "X"}.get(kind, "NAME")
        group.add_argument(option(setting.name), type=kind, metavar=word, help=help_text)
    size = "bytes of text that are read, 0 for all"
    group.add_argument("--max-bytes", type=count, metavar="N", help=f"{size} (default: {DEFAULT_BYTES})")


def _add_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--recompute", action="store_true", help="compute gates again instead of storing them")
    threads = "threads (default: one for each core; on the reference device, for NumPy's products, 1)"
    group.add_argument("--threads", type=positive_count, metavar="N", help=threads)
    covers = "for the whole command: reading, compiling, training, evaluation and sample"
    limit = f"{covers}; 0 for none (default: {DEFAULT_TIME_LIMIT:g}, or none with --steps)"
    group.add_argument("--time-limit", type=not_negative, metavar="SECONDS", help=limit)
    steps = "stop at this step, counted over resumed runs too"
    group.add_argument("--steps", type=count, metavar="N", help=steps)


def _add_results(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--save", type=Path, metavar="FILE", help="checkpoint to write (default: that of --resume)")
    group.add_argument("--resume", type=Path, metavar="FILE", help="checkpoint to go on from")
    every = "seconds between checkpoints, 0 for one after each step (default: %(default)g)"
    group.add_argument("--checkpoint-every", type=not_negative, default=10.0, metavar="SECONDS", help=every)
    length = "characters to generate at the end (default: %(default)s)"
    group.add_argument("--sample", type=count, default=DEFAULT_SAMPLE, metavar="N", help=length)
    heat = "of the sample; 0 takes the likeliest character (default: %(default)s)"
    group.add_argument("--temperature", type=not_negative, default=0.7, metavar="X", help=heat)
    kept = "score the held-out text with weights of products kept as int8, too"
    group.add_argument("--weights", choices=WEIGHTS, help=kept)
    group.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the learning curve")


def _add_export(commands: Any) -> None:
    """Add the command to a parser's commands."""
    parser = commands.add_parser("export", help=EXPORT_HELP, description=f"{EXPORT_HELP}.")
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file, or a checkpoint of `rnnops train`")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go; made if it is not there")
    parser.add_argument("--name", metavar="NAME", help="that files and functions begin with (default: the net's)")
    said = "sizes of an input, where the file leaves them open"
    add_repeated(parser, "--shape", "INPUT=1,1,40", shape, said, "shapes")
    value = "value of an input of an ONNX file that decides sizes or branches: numbers"
    add_repeated(parser, "--constants", "NAME=1,2", constant, value, "constants")
    state = "an output that the next call takes as an input: both stay in memory"
    add_repeated(parser, "--state", "OUTPUT=INPUT", str, state, "states")
    steps = "the open size that counts frames: the program reads them in chunks, of the size that --shape says"
    parser.add_argument("--steps", metavar="NAME", help=steps)
    source = "code for this processor, or C99 for others (default: %(default)s)"
    parser.add_argument("--source", choices=SOURCES, default="object", help=source)
    kept = "weights of products as whole numbers of a byte, with a scale for each column; floats if left out"
    parser.add_argument("--weights", choices=WEIGHTS, help=kept)


def _add_onnx(commands: Any) -> None:
    """Add the command to a parser's commands."""
    parser = commands.add_parser("onnx", help=ONNX_HELP, description=f"{ONNX_HELP}.", epilog=ONNX_EXIT_CODES)
    parser.add_argument("file", type=Path, metavar="FILE", help="an ONNX file")
    value = "value of an input that decides sizes or branches: numbers"
    add_repeated(parser, "--constants", "NAME=1,2", constant, value, "constants")
    size = "an open size, by its name, or INPUT.AXIS where it has none: the file is read as though it had it"
    add_repeated(parser, "--sizes", "NAME=SIZE", sizes, size, "sizes")
    said = "lowest and highest number that is fed; else floats are normal, integers 0 or 1"
    add_repeated(parser, "--range", "INPUT=LOW,HIGH", bounds, said, "ranges")
    fed = "of what is fed (default: %(default)s)"
    parser.add_argument("--seed", type=count, default=0, metavar="N", help=fed)
    _add_onnx_work(parser.add_argument_group("what is done beside the report"))


def _add_onnx_work(group: Any) -> None:
    group.add_argument("--draw", type=Path, metavar="FILE.svg", help="draw the net")
    group.add_argument("--plan", action="store_true", help="print how the net is computed, with its sizes")
    group.add_argument("--check", action="store_true", help="compare outputs with those of ONNX Runtime")
    group.add_argument("--speed", action="store_true", help="time a call of both, one thread each")
    stream = "run it call by call, its states handed on, compare with other ways to do so, and time a call"
    group.add_argument("--stream", action="store_true", help=stream)
    state = "a state: what --stream feeds back; what recurrences begin and end with, if left out"
    add_repeated(group, "--state", "OUTPUT=INPUT", str, state, "states")
    steps = "the size that counts steps, which stays open: --stream feeds one at a time, beside one call of them all"
    group.add_argument("--steps", metavar="NAME", help=steps)
    said = "feed K rows at once and one by one, compare, and name the op that mixes rows; NAME is their open size"
    group.add_argument("--rows", type=rows, metavar="[NAME=]K", help=said)
    limit = "the largest difference that is right, over the largest value (default: %(default)g)"
    group.add_argument("--tolerance", type=positive, default=TOLERANCE, metavar="X", help=limit)


def number_reader(kind: Callable[[str], Any], fits: Callable[[Any], bool], wanted: str) -> Callable[[str], Any]:
    """A reader of numbers."""

    def read(text: str) -> Any:
        with suppress(ValueError):
            value = kind(text)
            if fits(value):
                return value
        raise ArgumentTypeError(f"{text!r} is not {wanted}")

    return read


count = number_reader(int, lambda value: value >= 0, "an integer of 0 or more")
positive_count = number_reader(int, lambda value: value >= 1, "an integer of 1 or more")
not_negative = number_reader(float, lambda value: 0 <= value < inf, "a finite number of 0 or more")
positive = number_reader(float, lambda value: 0 < value < inf, "a finite number above 0")


def shape(text: str) -> tuple[str, Shape]:
    """`INPUT=1,1,40` as name and sizes; `INPUT=` has none."""
    if len(text) > 1 and text.endswith("="):
        return text[:-1], ()
    return _sizes(text, "INPUT=1,1,40")


def sizes(text: str) -> tuple[str, Shape]:
    """`NAME=16` as name and sizes."""
    return _sizes(text, "NAME=16")


def rows(text: str) -> tuple[str, int]:
    """`NAME=4` or `4` as name and number."""
    name, _, number = text.rpartition("=")
    return name, count(number)


def constant(text: str) -> tuple[str, Any]:
    """`NAME=1,2` as name and numbers, a number where there is one."""
    name, values = _named(text, "NAME=1,2")
    numbers = [_value(one) for one in values.split(",")]
    return name, numbers if len(numbers) > 1 else numbers[0]


def bounds(text: str) -> tuple[str, tuple[float, float]]:
    """`INPUT=0,1` as name and numbers, the lower one first."""
    name, values = _named(text, "INPUT=0,1")
    low_high: Sequence[float] = [float(_value(one)) for one in values.split(",")]
    if len(low_high) != 2 or not low_high[0] <= low_high[1] or low_high[1] - low_high[0] == inf:
        raise ArgumentTypeError(f"{text}: wanted two numbers, the lower one first")
    return name, (low_high[0], low_high[1])


def add_repeated(parser: Any, option: str, metavar: str, read: Callable[[str], Any], said: str, dest: str) -> None:
    """Add an option that may be given again; its values are a list."""
    text = f"{said}; may be given again"
    parser.add_argument(option, type=read, action="append", default=[], metavar=metavar, help=text, dest=dest)


def _named(text: str, wanted: str) -> tuple[str, str]:
    """A name, which may have `=` in it, and what is said of it."""
    name, _, value = text.rpartition("=")
    if not name or not value:
        raise ArgumentTypeError(f"{text}: wanted {wanted}")
    return name, value


def _sizes(text: str, wanted: str) -> tuple[str, Shape]:
    name, values = _named(text, wanted)
    try:
        return name, tuple(map(count, values.split(",")))
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{text}: {error}") from error


def _value(text: str) -> int | float | bool:
    """A number, or `true` and `false`."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    raise ArgumentTypeError(f"{text!r} is not a number, true or false")


if __name__ == "__main__":
    sys.exit(main())
