"""The file that `rnnops onnx` is about, and hints in words of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rnnops.onnx.compare import check_names, one_size
from rnnops.onnx.open_sizes import Dims, dims_of_inputs, fix_sizes, names_of_open_sizes
from rnnops.onnx.outline import Outline, outline, read_proto
from rnnops.onnx.package import GraphProto, OnnxError, about
from rnnops.types import Shape

if TYPE_CHECKING:
    from rnnops.cli.onnx_command import OnnxOptions


@dataclass(frozen=True)
class OnnxFile:
    """A file as it is looked at.

    Args:
        graph, outline: the file's, with the sizes that are fixed.
        shapes: of the inputs, as the file itself has them.
        fixed: open size -> its number, with which the file is read.
        given: these, and sizes of inputs without a shape in the file, or of the size that counts steps.
    """

    graph: GraphProto
    outline: Outline
    shapes: dict[str, Dims | None]
    fixed: dict[str, int]
    given: dict[str, Shape]


def read_file(options: OnnxOptions) -> OnnxFile:
    """Read a file's protobuf. Raises OnnxError where it is none, and for sizes that are none of its open ones."""
    with about(str(options.file)):  # also what texts that are no UTF-8 raise
        model, nbytes = read_proto(options.file)
        shapes, given = dims_of_inputs(model.graph), once(options.sizes)
        check_names(shapes, given)
        named = [name for name in names_of_open_sizes(shapes) if name in given and name != options.steps]
        fixed = fix_sizes(model.graph, {name: one_size(name, given[name]) for name in named}, dict(options.constants))
        return OnnxFile(model.graph, outline(model, nbytes), shapes, fixed, given)


def once(sizes: tuple[tuple[str, Shape], ...]) -> dict[str, Shape]:
    """Sizes by name. Raises OnnxError where one is given two numbers."""
    found: dict[str, Shape] = {}
    for name, shape in sizes:
        if found.setdefault(name, shape) != shape:
            raise OnnxError(f"'{name}' is one size", wanted="one number", came=f"{list(found[name])} and {list(shape)}")
    return found


def shapes_of_feeds(file: OnnxFile, names: Mapping[str, object]) -> tuple[dict[str, Dims | None], dict[str, Shape]]:
    """The shapes of the inputs in the file, with the given sizes filled in."""
    shapes = {name: file.shapes.get(name) for name in names}
    theirs = {*names_of_open_sizes(shapes), *names}
    return shapes, {name: shape for name, shape in file.given.items() if name in theirs}
