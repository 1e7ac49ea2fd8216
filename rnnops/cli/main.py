"""The command line: `rnnops train [TEXT ...]`, `rnnops export MODEL FOLDER` and `rnnops onnx FILE`.

First come the parsers of all commands, then the readers of option values, which raise ArgumentTypeError for wrong
texts. At the end is `rnnops export`, which writes a model as files that run without Python.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnops import VERSION
from rnnops.cells import CELLS
from rnnops.cli import trainer
from rnnops.cli.corpus import DEFAULT_BYTES
from rnnops.cli.language_model import DTYPES, LanguageModel, Settings, SettingsError, in_options, is_own, option
from rnnops.cli.train import show, train
from rnnops.cli.trainer import TrainOptions
from rnnops.compiler import DEVICES, compile as compile_net
from rnnops.compiler.api.stream_parts import open_axes, single_frames
from rnnops.compiler.api.stream_states import FRAMES
from rnnops.compiler.api.streamed_net import StreamedNet, streamed_net
from rnnops.errors import ArgumentError, FeedError, RnnopsError, SaveError
from rnnops.net.net import Net
from rnnops.types import FLOAT, Array, Shape, Type, type_of
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops import onnx as onnx_files
    from rnnops.cli import onnx_command
    from rnnops.compiler.run.export_native import ExportedFiles
    from rnnops.onnx import node as onnx_node, open_sizes
    from rnnops.onnx.open_sizes import Dims
else:  # training does without the package onnx
    onnx_files, onnx_node = LazyModule("rnnops.onnx"), LazyModule("rnnops.onnx.node")
    onnx_command, open_sizes = LazyModule("rnnops.cli.onnx_command"), LazyModule("rnnops.onnx.open_sizes")

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
TOLERANCE = 1e-4  # of `rnnops onnx`
SOURCES = ("object", "c99")
WEIGHTS = ("int8",)
LENGTH_BYTES = 8  # a safetensors file begins with the length of its header, which is JSON


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    started = time.monotonic()
    given = vars(_parser().parse_args(arguments))
    command = given.pop("command")
    try:
        if command == "onnx":
            return onnx_command.report(OnnxOptions(**given))
        return export(ExportOptions(**given)) if command == "export" else train(read_options(given), started)
    except RnnopsError as error:
        print(f"rnnops: error: {in_options(' '.join(str(error).split()), command)}", file=sys.stderr)
        return WRONG
    except BrokenPipeError:  # the reader has ended, as with `| head`; this also stops an error when Python exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_READ_ON
    except KeyboardInterrupt:
        print("rnnops: interrupted", file=sys.stderr)
        return INTERRUPTED


def read_options(given: dict[str, Any]) -> TrainOptions:
    """Options from parsed arguments. Settings that were not given come from the defaults or the checkpoint later."""
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


@dataclass(frozen=True)
class StateOptions:
    """Options of a command with states.

    Args:
        states: texts OUTPUT=INPUT, as they were given.
    """

    states: Sequence[str]

    def links(self, net: str, outputs: Iterable[str], inputs: Iterable[str]) -> dict[str, str]:
        """Output -> input of the states. Raises ArgumentError for a text that is not such a pair."""
        return dict(pair_of(text, net, outputs, inputs) for text in self.states)


@dataclass(frozen=True)
class OnnxOptions(StateOptions):
    """The command line of `rnnops onnx`.

    Args:
        constants: (input, its fixed value).
        sizes: (open size, its number), or (input without a shape in the file, its shape).
        ranges: (input, lowest and highest number that is fed).
        steps: the open size that counts steps.
        draw: path of the picture.
        rows: (the open size that counts rows, number of rows) of --rows; the name is "" for the only open size.
        plan, check, speed, stream: whether these are asked for.
        tolerance: the largest difference, divided by the largest value.
        seed: seed of feeds.
    """

    file: Path
    constants: Sequence[tuple[str, Any]]
    sizes: Sequence[tuple[str, Shape]]
    ranges: Sequence[tuple[str, tuple[float, float]]]
    steps: str | None
    draw: Path | None
    rows: tuple[str, int] | None
    plan: bool
    check: bool
    speed: bool
    stream: bool
    tolerance: float
    seed: int


@dataclass(frozen=True)
class ExportOptions(StateOptions):
    """The command line of `rnnops export`.

    Args:
        shapes: (input, its shape).
        constants: (input of an ONNX file, its fixed value).
        steps: the size that counts frames; a call has a chunk of them.
        weights: the format of weights of products; None for floats.
    """

    model: Path
    folder: Path
    name: str | None
    shapes: Sequence[tuple[str, Shape]]
    constants: Sequence[tuple[str, Any]]
    steps: str | None
    source: str
    weights: str | None


def pair_of(text: str, net: str, outputs: Iterable[str], inputs: Iterable[str]) -> tuple[str, str]:
    """`OUTPUT=INPUT` as two names, which may have `=` in them. Raises ArgumentError for other texts."""
    pairs = [(output, name) for output in outputs for name in inputs if f"{output}={name}" == text]
    if len(pairs) != 1:
        wanted = f"OUTPUT=INPUT of outputs {', '.join(outputs)} and inputs {', '.join(inputs)}"
        raise ArgumentError("--state names no pair", net=net, wanted=wanted, came=text)
    return pairs[0]


def number_reader(kind: Callable[[str], Any], fits: Callable[[Any], bool], wanted: str) -> Callable[[str], Any]:
    """A reader of option values that are numbers.

    Args:
        kind: makes a number of a text.
        fits: returns True for an allowed number.
        wanted: the allowed numbers in words.
    """

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
    """`NAME=1,2` as name and list of numbers, or as name and number if there is only one."""
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
    """Add an option that may be given several times. Its values are a list."""
    text = f"{said}; may be given again"
    parser.add_argument(option, type=read, action="append", default=[], metavar=metavar, help=text, dest=dest)


def _named(text: str, wanted: str) -> tuple[str, str]:
    """`NAME=TEXT` as two texts; the name may have `=` in it."""
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


@dataclass(frozen=True)
class ReadModel:
    """A net that can be exported.

    Args:
        params: values of inputs that are parameters.
        shapes: shapes of other inputs, if the file has them or there are natural ones.
        open_shapes: shapes of inputs with sizes that the file leaves open.
        dtype: of floats.
        notes: lines for people.
    """

    net: Net
    params: Mapping[str, Array]
    shapes: Mapping[str, tuple[int, ...]]
    open_shapes: Mapping[str, str]
    dtype: str
    notes: tuple[str, ...] = ()


def read_model(
    path: Path,
    shapes: Mapping[str, Shape] | None = None,
    constants: Mapping[str, Any] | None = None,
    steps: str | None = None,
) -> ReadModel:
    """Read a file. Raises an RnnopsError if it is neither an ONNX file nor a checkpoint of `rnnops train`.

    Args:
        shapes, constants: shapes and values of inputs, with which an ONNX file is read.
        steps: a size that stays open.
    """
    try:
        with path.open("rb") as file:
            start = file.read(LENGTH_BYTES + 1)
    except OSError as error:
        raise SaveError(f"{path} cannot be read ({error.strerror})") from error
    return _checkpoint(path) if start[LENGTH_BYTES:] == b"{" else _onnx(path, shapes or {}, constants or {}, steps)


def _onnx(path: Path, shapes: Mapping[str, Shape], constants: Mapping[str, Any], steps: str | None) -> ReadModel:
    with onnx_node.about(str(path)):
        dims = open_sizes.dims_of_inputs(onnx_node.read_proto(path)[0].graph)
    names = [*open_sizes.names_of_open_sizes(dims)]
    if steps is not None and steps not in names:
        hint = "A file that fixes the axis of frames is exported anew, with the axis open (dynamic_axes of PyTorch)."
        raise FeedError("--steps names no open size", wanted=", ".join(names) or "none", came=steps, hint=hint)
    fixed = {size: number for size, number in _given_sizes(dims, shapes).items() if size != steps}
    model = onnx_files.load_model(path, dict(constants), fixed)
    left = [spec.name for spec in model.net.input_specs if spec.name not in model.params and spec.shape is None]
    sizes = {name: ["?" if size is None else str(size) for size in model.shapes.get(name, ("...",))] for name in left}
    notes = () if model.dtype == "float32" else (f"the file has floats of {model.dtype}, and so has the program",)
    return ReadModel(model.net, model.params, {}, {name: ",".join(sizes[name]) for name in left}, model.dtype, notes)


def _given_sizes(inputs: Mapping[str, Dims | None], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Numbers for the sizes that a file leaves open, from given shapes. Branches of the net may depend on them."""
    found: dict[str, int] = {}
    for name, dims in inputs.items():
        if dims is not None and len(shapes.get(name, ())) == len(dims):
            for axis, size in open_sizes.open_sizes(name, dims).items():
                found.setdefault(size, shapes[name][axis])
    return {size: number for size, number in found.items() if number > 0}


def _checkpoint(path: Path) -> ReadModel:
    """The language model with its averaged parameters, for one character of one stream."""
    saved = trainer.load(path)
    if is_own(saved.settings.cell):
        raise SettingsError(f"the checkpoint {path} has a cell of your own", hint="Export it from Python.")
    model = LanguageModel(replace(saved.settings, device="cpu"), len(saved.alphabet))
    average = saved.restore(model).average
    net = model.graphs["forward"].traced.net
    with model.using_params(average):
        params = {name: array.copy() for name, array in model.arrays.items() if name in net.input_names}
    characters, *others = (name for name in net.input_names if name not in params)
    sizes = [array.shape for array in model.start_states(1)]
    shapes = {characters: (1, 1), **dict(zip(others, sizes, strict=True))}
    note = f"characters are numbered by their place in {json.dumps(saved.alphabet)}"
    return ReadModel(net, params, shapes, {}, saved.settings.dtype, (note,))


def export(options: ExportOptions) -> int:
    """Write the files, print how they are used, and return the exit code."""
    given = dict(options.shapes)
    model = read_model(options.model, given, dict(options.constants), options.steps)
    shapes = {**model.shapes, **given}
    _check_shapes(model, shapes)
    inputs = [name for name in model.net.input_names if name not in model.params]
    states: dict[str, str] | StreamedNet
    states = options.links(model.net.name, model.net.output_blobs, inputs)
    if options.steps is not None:
        model, shapes, states = _streamed(model, options.steps, shapes, states)
    run = compile_net(model.net).bind(**model.params, weights=options.weights)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        files = run.export_native(
            options.folder, shapes, name=options.name, states=states, dtype=model.dtype, source=options.source
        )
    notes = [f"warning: {one.message}" for one in warned if one.category is UserWarning]
    if options.steps is None and not model.shapes:  # an ONNX file
        notes += _single_frames(options, shapes)
    _print_files(files, (*model.notes, *notes))
    return 0


def _streamed(
    model: ReadModel, steps: str, shapes: Mapping[str, Shape], states: Mapping[str, str]
) -> tuple[ReadModel, dict[str, Shape], StreamedNet]:
    """The model for a chunk of frames, the shapes of its inputs, and its streamed net."""
    named = {name: enumerate(sizes.split(",")) for name, sizes in model.open_shapes.items()}
    axes = {(name, axis) for name, sizes in named.items() for axis, size in sizes if size == steps}
    dims = {n: tuple(steps if (n, i) in axes else size for i, size in enumerate(sizes)) for n, sizes in shapes.items()}
    known = {name: array.shape for name, array in model.params.items()}
    found = streamed_net(model.net, steps, {**dims, **known}, states)
    counts = {shapes[name][axis] for name, axis in found.axes.items()}
    if len(counts) > 1 or any(count % found.chunk for count in counts):
        came = ", ".join(map(str, sorted(counts)))
        raise FeedError("--shape: no chunk of frames", wanted=f"a multiple of {found.chunk} for all inputs", came=came)
    frames, inputs = max(counts), [name for name in found.net.input_names if name not in model.params]
    made = {name: tuple(frames if size == FRAMES else int(size) for size in found.shapes[name]) for name in inputs}
    return replace(model, net=found.net), made, found


def _single_frames(options: ExportOptions, shapes: Mapping[str, Shape]) -> list[str]:
    """A warning of ops that see one frame in each call: the file is read once more, with its sizes open."""
    try:
        model = onnx_files.load_model(options.model, dict(options.constants))
    except RnnopsError:  # sizes decide branches
        return []
    sizes: dict[str, Any] = {**model.shapes, **shapes}
    ones = {
        name: [size if sizes[name][axis] == 1 else 0 for axis, size in enumerate(dims)]
        for name, dims in model.shapes.items()
    }
    kinds = {name: type_of(array) for name, array in model.params.items()}
    given = {name: Type(_dtype(model, name), tuple(sizes[name])) for name in model.net.input_names if name not in kinds}
    text = single_frames(model.net, {**kinds, **given}, given, open_axes(ones), model.dtype)
    return [f"warning: {text}"] if text else []


def _dtype(model: onnx_files.OnnxModel, name: str) -> str:
    dtype = model.net.dtype_of(name)
    return model.dtype if dtype == FLOAT else dtype


def _print_files(files: ExportedFiles, notes: tuple[str, ...]) -> None:
    code = files.source or files.object
    assert code is not None
    show(f"wrote {code}, {files.header.name}, {files.weights.name} and {files.manifest.name}")
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
    unknown = ", ".join(name for name in shapes if name not in model.net.input_names)
    if unknown:
        wanted = f"one of {', '.join(model.open_shapes or model.net.input_names)}"
        raise FeedError("--shape: the net has no such input", net=model.net.name, blob=unknown, wanted=wanted)
    left = {name: sizes for name, sizes in model.open_shapes.items() if name not in shapes}
    if left:
        given = " ".join(f"--shape {name}={sizes}" for name, sizes in left.items())
        hint = f"Give {given}, with a number for each size."
        raise FeedError("the file leaves sizes open", net=model.net.name, blob=", ".join(left), hint=hint)


if __name__ == "__main__":
    sys.exit(main())
