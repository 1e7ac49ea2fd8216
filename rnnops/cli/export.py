"""`rnnops export`: a model as files that need no Python where they run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnops.cli.exported_model import ReadModel, read_model
from rnnops.cli.onnx_command import constant
from rnnops.cli.report import show
from rnnops.compiler import compile as compile_net
from rnnops.errors import FeedError, SaveError

if TYPE_CHECKING:
    from rnnops.compiler.export.export_native import ExportedFiles

HELP = "write a model as an object file or C99 source, a C header and weights"
SOURCES = ("object", "c99")
WEIGHTS = ("int8",)


@dataclass(frozen=True)
class ExportOptions:
    """The command line of `rnnops export`.

    Args:
        shapes: of inputs, by name; constants: input of an ONNX file -> its value from now on.
        states: output=input, as they were given.
        weights: what weights of products are kept as; None for floats.
    """

    model: Path
    folder: Path
    name: str | None
    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, Any]
    states: tuple[str, ...]
    source: str
    weights: str | None


def add_export(commands: Any) -> None:
    """Add the command to a parser's commands."""
    parser = commands.add_parser("export", help=HELP, description=f"{HELP}.")
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file, or a checkpoint of `rnnops train`")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go; made if it is not there")
    parser.add_argument("--name", metavar="NAME", help="that files and functions begin with (default: the net's)")
    shape = "sizes of an input, where the file leaves them open; may be given again"
    parser.add_argument("--shape", type=_shape, action="append", default=[], metavar="INPUT=1,1,40", help=shape)
    value = "value of an input of an ONNX file that decides sizes or branches: numbers; may be given again"
    parser.add_argument("--constants", type=constant, action="append", default=[], metavar="NAME=1,2", help=value)
    state = "an output that the next call takes as an input: both stay in memory; may be given again"
    parser.add_argument("--state", action="append", default=[], metavar="OUTPUT=INPUT", help=state)
    source = "code for this processor, or C99 for others (default: %(default)s)"
    parser.add_argument("--source", choices=SOURCES, default="object", help=source)
    kept = "weights of products as whole numbers of a byte, with a scale for each column; floats if left out"
    parser.add_argument("--weights", choices=WEIGHTS, help=kept)


def read_export_options(given: Mapping[str, Any]) -> ExportOptions:
    """Options from parsed arguments."""
    shapes, states = dict(given["shape"]), tuple(given["state"])
    files = given["model"], given["folder"], given["name"]
    return ExportOptions(*files, shapes, dict(given["constants"]), states, given["source"], given["weights"])


def export(options: ExportOptions) -> int:
    """Write the files, say how they are used, and return the exit code."""
    model = read_model(options.model, options.shapes, options.constants)
    shapes = {**model.shapes, **options.shapes}
    _check_shapes(model, shapes)
    states = dict(_state(model, text) for text in options.states)
    source = None if options.source == "object" else options.source
    run = compile_net(model.net).bind(**model.params, weights=options.weights)
    try:
        files = run.export_native(
            options.folder, shapes, name=options.name, states=states, dtype=model.dtype, source=source
        )
    except OSError as error:
        raise SaveError(f"{options.folder} cannot be written ({error})") from error
    _print_files(files, model.notes)
    return 0


def _print_files(files: ExportedFiles, notes: tuple[str, ...]) -> None:
    code = files.source or files.object
    assert code is not None
    show(f"wrote {code}, {files.header.name} and {files.weights.name}")
    flags, library = ("-std=c99 -O2 ", " -lm") if files.source else ("", "")
    show(f"build: cc {flags}-I{files.header.parent} PROGRAM.c {code}{library}")
    for name, word in (*files.inputs.items(), *files.outputs.items()):
        if name != word:
            show(f"in C {name} is {word}")
    for note in notes:
        show(note)
    body = files.header.read_text("ascii").split("enum {")[1].split("#ifdef")[0]
    show(f"\nenum {{{body.rstrip()}")


def _check_shapes(model: ReadModel, shapes: Mapping[str, tuple[int, ...]]) -> None:
    left = {name: sizes for name, sizes in model.open_shapes.items() if name not in shapes}
    if left:
        given = " ".join(f"--shape {name}={sizes}" for name, sizes in left.items())
        hint = f"Give {given}, with a number for each size."
        raise FeedError("the file leaves sizes open", net=model.net.name, blob=", ".join(left), hint=hint)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """A name and sizes, for argparse; none behind the = are those of a number."""
    name, equals, sizes = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text}: wanted INPUT=1,1,40")
    found = tuple(int(size) for size in sizes.split(",")) if sizes else ()
    if any(size < 0 for size in found):
        raise argparse.ArgumentTypeError(f"{text}: a size is negative")
    return name, found


def _state(model: ReadModel, text: str) -> tuple[str, str]:
    """An output and an input of the net. Raises FeedError where a text names no pair of them, or two."""
    splits = [(text[:i], text[i + 1 :]) for i, sign in enumerate(text) if sign == "="]
    outputs, inputs = [*model.net.output_blobs], [name for name in model.net.input_names if name not in model.params]
    pairs = [pair for pair in splits if pair[0] in outputs and pair[1] in inputs]
    if len(pairs) != 1:
        wanted = f"OUTPUT=INPUT of outputs {', '.join(outputs)} and inputs {', '.join(inputs)}"
        raise FeedError("--state names no pair", net=model.net.name, wanted=wanted, came=text)
    return pairs[0]
