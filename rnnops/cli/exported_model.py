"""What `rnnops export` reads: an ONNX file, or a checkpoint of `rnnops train`, as a net with its parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnops.cli import state as states
from rnnops.cli.cells import is_own
from rnnops.cli.language_model import LanguageModel
from rnnops.cli.settings import SettingsError
from rnnops.errors import SaveError
from rnnops.lazy import LazyModule
from rnnops.net import Net
from rnnops.types import Array, Shape

if TYPE_CHECKING:
    from rnnops import onnx as onnx_files
    from rnnops.onnx import open_sizes, outline
else:  # training does without the package onnx
    onnx_files = LazyModule("rnnops.onnx")
    open_sizes, outline = LazyModule("rnnops.onnx.open_sizes"), LazyModule("rnnops.onnx.outline")

LENGTH_BYTES = 8  # a safetensors file begins with the length of its header, which is JSON


@dataclass(frozen=True)
class ReadModel:
    """A net that can be exported.

    Args:
        params: values of inputs.
        shapes: of the other inputs, where the file says them or a call has natural ones.
        open_shapes: of inputs that have sizes of which the file says but names, or nothing.
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
    path: Path, shapes: Mapping[str, Shape] | None = None, constants: Mapping[str, Any] | None = None
) -> ReadModel:
    """Read a file. Raises an RnnopsError for what is neither an ONNX file nor a checkpoint of `rnnops train`.

    Args:
        shapes: of inputs, constants: values of inputs, with which an ONNX file is read.
    """
    try:
        with path.open("rb") as file:
            start = file.read(LENGTH_BYTES + 1)
    except OSError as error:
        raise SaveError(f"{path} cannot be read ({error.strerror})") from error
    return _checkpoint(path) if start[LENGTH_BYTES:] == b"{" else _onnx(path, shapes or {}, constants or {})


def _onnx(path: Path, shapes: Mapping[str, Shape], constants: Mapping[str, Any]) -> ReadModel:
    model = onnx_files.load_model(path, dict(constants), _sizes(path, shapes))
    left = [spec.name for spec in model.net.input_specs if spec.name not in model.params and spec.shape is None]
    sizes = {name: ["?" if size is None else str(size) for size in model.shapes.get(name, ("...",))] for name in left}
    return ReadModel(model.net, model.params, {}, {name: ",".join(sizes[name]) for name in left}, model.dtype)


def _sizes(path: Path, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The sizes that a file leaves open, as shapes have them: branches may follow from these."""
    found: dict[str, int] = {}
    with onnx_files.errors.about(str(path)):
        graph = outline.read_proto(path)[0].graph
    for name, dims in open_sizes.dims_of_inputs(graph).items():
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
