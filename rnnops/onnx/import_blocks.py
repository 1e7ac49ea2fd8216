"""How DepthToSpace and SpaceToDepth of ONNX become reshapes and a transposition."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.blob import Blob
from rnnops.onnx.node import Node, Rule
from rnnops.onnx.probes import fixed_dims
from rnnops.ops.movement import concat, reshape, transpose
from rnnops.ops.shapes import shape

MODES = ("DCR", "CRD")


def depth_to_space(node: Node) -> Sequence[Blob]:
    """Channels become blocks of an image; in mode CRD those of a block are next to each other."""
    x, size, channels, mode = settings(node)
    if channels % size**2:
        node.fail("channels are whole blocks", wanted=f"a multiple of {size**2}", came=channels)
    rest = channels // size**2
    batch, image = shape(x, 0, 1), shape(x, 2)
    inner = [size, size, rest] if mode == "DCR" else [rest, size, size]
    split = reshape(x, concat(batch, node.net.constant(inner, "int64"), image, axis=0), allowzero=1)
    turned = transpose(split, [0, 3, 4, 1, 5, 2] if mode == "DCR" else [0, 1, 4, 2, 5, 3])
    wide = image * size
    return (reshape(turned, concat(batch, node.net.constant([rest], "int64"), wide, axis=0), allowzero=1),)


def space_to_depth(node: Node) -> Sequence[Blob]:
    """Blocks of an image become channels."""
    x, size, channels, mode = settings(node)
    batch, height, width = shape(x, 0, 1), shape(x, 2, 3) / size, shape(x, 3) / size
    block = [size]
    depth, rows, columns = (node.net.constant(list(sizes), "int64") for sizes in ([channels], block, block))
    split = reshape(x, concat(batch, depth, height, rows, width, columns, axis=0), allowzero=1)
    turned = transpose(split, [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4])
    deep = node.net.constant([channels * size**2], "int64")
    return (reshape(turned, concat(batch, deep, height, width, axis=0), allowzero=1),)


def settings(node: Node) -> tuple[Blob, int, int, str]:
    """The image, the side of a block, the channels, which must be fixed, and the mode."""
    x, size, mode = node.input(0), node.required("blocksize", "int"), node.attr("mode", "string", "DCR")
    known = node.known(x)
    dims = fixed_dims(known) if known else ()
    channels = dims[1] if len(dims) == 4 else None
    if not isinstance(channels, int) or size < 1 or mode not in MODES:
        node.fail(
            "no image of blocks",
            wanted="four axes, a fixed number of channels, a blocksize of 1 or more, mode DCR or CRD",
            came=f"{list(dims)}, {size}, {mode}",
        )
    return x, size, channels, mode


BLOCK_RULES: dict[str, Rule] = {"DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth}
