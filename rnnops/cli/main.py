"""The command line: `rnnops train [TEXT ...]`, `rnnops export MODEL FOLDER` and `rnnops onnx FILE`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rnnops import VERSION
from rnnops.cells import CELLS
from rnnops.cli import readers
from rnnops.cli.corpus import DEFAULT_BYTES
from rnnops.cli.export import WEIGHTS, ExportOptions, add_export, export
from rnnops.cli.language_model import DTYPES, Settings, option
from rnnops.cli.onnx_command import OnnxOptions, add_onnx, onnx
from rnnops.cli.readers import in_options
from rnnops.cli.train import train
from rnnops.cli.trainer import TrainOptions
from rnnops.compiler import DEVICES
from rnnops.errors import RnnopsError

DEFAULT_TIME_LIMIT, DEFAULT_SAMPLE = 150.0, 400
INTERRUPTED, NOT_READ_ON, WRONG = 130, 141, 2

TRAIN_HELP = "train a character language model on text files, directories of them, or Python's own sources"
EXIT_CODES = """\
exit codes: 0 trained, also where Ctrl-C or SIGTERM ended the training: it is saved where --save or --resume names a
file, and the summary is printed; 2 for an error, in one line; 130 where Ctrl-C came before or after the training, or
came twice."""


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
    train_parser = commands.add_parser("train", help=TRAIN_HELP, description=f"{TRAIN_HELP}.", epilog=EXIT_CODES)
    train_parser.add_argument("text", nargs="*", type=Path, metavar="TEXT", help="a text file or a directory of them")
    _add_model(train_parser.add_argument_group("model and training; a resumed run has those of its checkpoint"))
    _add_run(train_parser.add_argument_group("this run"))
    _add_results(train_parser.add_argument_group("files and results"))
    add_export(commands)
    add_onnx(commands)
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
    group.add_argument("--max-bytes", type=readers.count, metavar="N", help=f"{size} (default: {DEFAULT_BYTES})")


def _add_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--recompute", action="store_true", help="compute gates again instead of storing them")
    threads = "threads (default: one for each core; on the reference device, for NumPy's products, 1)"
    group.add_argument("--threads", type=readers.positive_count, metavar="N", help=threads)
    covers = "for the whole command: reading, compiling, training, evaluation and sample"
    limit = f"{covers}; 0 for none (default: {DEFAULT_TIME_LIMIT:g}, or none with --steps)"
    group.add_argument("--time-limit", type=readers.not_negative, metavar="SECONDS", help=limit)
    steps = "stop at this step, counted over resumed runs too"
    group.add_argument("--steps", type=readers.count, metavar="N", help=steps)


def _add_results(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--save", type=Path, metavar="FILE", help="checkpoint to write (default: that of --resume)")
    group.add_argument("--resume", type=Path, metavar="FILE", help="checkpoint to go on from")
    every = "seconds between checkpoints, 0 for one after each step (default: %(default)g)"
    group.add_argument("--checkpoint-every", type=readers.not_negative, default=10.0, metavar="SECONDS", help=every)
    length = "characters to generate at the end (default: %(default)s)"
    group.add_argument("--sample", type=readers.count, default=DEFAULT_SAMPLE, metavar="N", help=length)
    heat = "of the sample; 0 takes the likeliest character (default: %(default)s)"
    group.add_argument("--temperature", type=readers.not_negative, default=0.7, metavar="X", help=heat)
    kept = "score the held-out text with weights of products kept as int8, too"
    group.add_argument("--weights", choices=WEIGHTS, help=kept)
    group.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the learning curve")


if __name__ == "__main__":
    sys.exit(main())
