"""`rnnops export`: a model as files that need no Python where they run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnops.cli import trainer as states
from rnnops.cli.language_model import LanguageModel, SettingsError, is_own
from rnnops.cli.onnx_command import pair_of
from rnnops.cli.train import show
from rnnops.compiler import compile as compile_net
from rnnops.compiler.api.stream_parts import open_axes, single_frames
from rnnops.compiler.api.stream_states import FRAMES
from rnnops.compiler.api.streamed_net import StreamedNet, streamed_net
from rnnops.errors import FeedError, RnnopsError, SaveError
from rnnops.net.net import Net
from rnnops.types import FLOAT, Array, Shape, Type, type_of
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops import onnx as onnx_files
    from rnnops.compiler.run.export_native import ExportedFiles
    from rnnops.onnx import node as onnx_node, open_sizes
    from rnnops.onnx.open_sizes import Dims
else:  # training does without the package onnx
    onnx_files, onnx_node = LazyModule("rnnops.onnx"), LazyModule("rnnops.onnx.node")
    open_sizes = LazyModule("rnnops.onnx.open_sizes")

LENGTH_BYTES = 8  # a safetensors file begins with the length of its header, which is JSON


@dataclass(frozen=True)
class ReadModel:
    """A net that can be exported.

    Args:
        params: values of inputs.
        shapes: of the other inputs, where the file says them or a call has natural ones.
        open_shapes: of inputs with sizes that the file gives by name only, or not at all.
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
    """Read a file. Raises an RnnopsError for what is neither an ONNX file nor a checkpoint of `rnnops train`.

    Args:
        shapes: of inputs, constants: values of inputs, with which an ONNX file is read.
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
    fixed = {size: number for size, number in _sizes(dims, shapes).items() if size != steps}
    model = onnx_files.load_model(path, dict(constants), fixed)
    left = [spec.name for spec in model.net.input_specs if spec.name not in model.params and spec.shape is None]
    sizes = {name: ["?" if size is None else str(size) for size in model.shapes.get(name, ("...",))] for name in left}
    notes = () if model.dtype == "float32" else (f"the file has floats of {model.dtype}, and so has the program",)
    return ReadModel(model.net, model.params, {}, {name: ",".join(sizes[name]) for name in left}, model.dtype, notes)


def _sizes(inputs: Mapping[str, Dims | None], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The sizes that a file leaves open, as shapes have them: branches may follow from these."""
    found: dict[str, int] = {}
    for name, dims in inputs.items():
        if dims is not None and len(shapes.get(name, ())) == len(dims):
            for axis, size in open_sizes.open_sizes(name, dims).items():
                found.setdefault(size, shapes[name][axis])
    return {size: number for size, number in found.items() if number > 0}


def _checkpoint(path: Path) -> ReadModel:
    """The language model with its averaged parameters, for one character of one stream."""
    saved = states.load(path)
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


SOURCES = ("object", "c99")
WEIGHTS = ("int8",)


@dataclass(frozen=True)
class ExportOptions:
    """The command line of `rnnops export`.

    Args:
        shapes: of inputs; constants: inputs of an ONNX file with their values from now on.
        states: output=input, as they were given.
        steps: the size that counts frames; a call has a chunk of them.
        weights: what weights of products are kept as; None for floats.
    """

    model: Path
    folder: Path
    name: str | None
    shapes: Sequence[tuple[str, Shape]]
    constants: Sequence[tuple[str, Any]]
    states: Sequence[str]
    steps: str | None
    source: str
    weights: str | None


def export(options: ExportOptions) -> int:
    """Write the files, say how they are used, and return the exit code."""
    given = dict(options.shapes)
    model = read_model(options.model, given, dict(options.constants), options.steps)
    shapes = {**model.shapes, **given}
    _check_shapes(model, shapes)
    inputs = [name for name in model.net.input_names if name not in model.params]
    states: dict[str, str] | StreamedNet
    states = dict(pair_of(text, model.net.name, model.net.output_blobs, inputs) for text in options.states)
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
    """The model for a chunk of frames, shapes of its inputs, and the streamed net that it is."""
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
