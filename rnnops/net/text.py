"""Nets as text: `format_net`, which `str(net)` calls; `rnnops.net.parse` reads the text back.

    net my_lstm(x_t, h_prev, w: param[4, 3] = xavier, lengths: int32)
        matmul_0 = MatMul(x_t, h_prev)
        *i, f = Split(matmul_0, axis=-1, num_outputs=2) @ gates
        return h_t=i, f

Here `i` was given its name with `.named`, which `*` marks (`^` would mark a checkpoint), and the Split belongs to layer
`gates`. `_` stands for an optional input left out and for an output that is not wanted. Names that are not plain words
stand in double quotes. Nets inside attributes stand in braces, indented. After the head of a net whose sizes are known
while it is built comes its float dtype. What follows `#` is a comment: after an op the variables that held its results
where the net was written, under a RecurrentNetwork what each blob of the cell is bound to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnops.net.schema import schema_of
from rnnops.types import FLOAT

if TYPE_CHECKING:
    from rnnops.net.net import Net
    from rnnops.net.op import Initializer, Input, Op

PLAIN_NAME = re.compile(r"[A-Za-z_][\w./-]*\Z", re.ASCII)
RESERVED = ("_", "return")  # words that mean something where a name may stand
INDENT = "    "


def format_net(net: Net, labelled: bool = True) -> str:
    """A listing of the net that `parse_net` reads back.

    Args:
        labelled: whether variables that held blobs are shown, as comments; two nets are the same without them.
    """
    dtype = f": {net.float_dtype}" if net.float_dtype else ""
    head = f"net {format_name(net.name)}({', '.join(map(format_input, net.input_specs))}){dtype}"
    lines = [head, *(INDENT + line for op in net.ops for line in _format_op(net, op, labelled))]
    outputs = ", ".join(
        format_name(blob) if name == blob else f"{format_name(name)}={format_name(blob)}"
        for name, blob in net.output_blobs.items()
    )
    return "\n".join([*lines, f"{INDENT}return {outputs}".rstrip()])


def format_name(name: str) -> str:
    """A name as it stands in text: bare if it is a plain word, else quoted."""
    return name if PLAIN_NAME.match(name) and name not in RESERVED else format_value(name)


def format_input(spec: Input) -> str:
    name, shape = format_name(spec.name), "" if spec.shape is None else format_value(spec.shape)
    if spec.initializer is not None:
        dtype = "" if spec.dtype == FLOAT else f" {spec.dtype}"
        return f"{name}: param{dtype}{shape} = {_format_initializer(spec.initializer)}"
    return name if spec.dtype == FLOAT and not shape else f"{name}: {spec.dtype}{shape}"


def _format_initializer(initializer: Initializer) -> str:
    numbers = [format_value(float(number)) for number in initializer.numbers]
    return f"({', '.join([initializer.kind, *numbers])})" if numbers else initializer.kind


def _format_op(net: Net, op: Op, labelled: bool) -> Iterator[str]:
    arguments = [format_name(name) if name else "_" for name in op.inputs]
    nets = {key: value for key, value in op.attributes.items() if is_net(value)}
    arguments += [f"{key}={format_value(value)}" for key, value in op.attributes.items() if key not in nets]
    targets = ", ".join(_format_target(net, name) for name in op.outputs)
    layer = f" @ {format_name(op.layer)}" if op.layer else ""
    line = f"{targets} = {op.type}({', '.join(arguments)}){layer}"
    label = net.labels.said(op.outputs) if labelled else ""
    yield line + (" {" if nets else "") + (f"  {label}" if label else "")
    for note in schema_of(op.type).notes(op):
        yield f"{INDENT}# {note}"
    for key, nested in nets.items():
        yield f"{INDENT}{key} ="
        yield from (2 * INDENT + inner for inner in format_net(nested, labelled).split("\n"))
    if nets:
        yield "}"


def _format_target(net: Net, name: str) -> str:
    # op outputs are not inputs, so those that a cell may find by name are those that were `.named`
    marks = ("^" if name in net.checkpoints else "") + ("*" if net.is_capturable(name) else "")
    return marks + format_name(name) if name else "_"


def is_net(value: object) -> bool:
    """True if an attribute is a net (without importing Net, which imports this module)."""
    return hasattr(value, "input_specs") and hasattr(value, "ops")


def format_value(value: Any) -> str:
    """An attribute as text: JSON, with `NaN`/`Infinity`, and arrays as `array(dtype, [shape], [values])`."""
    if isinstance(value, np.ndarray):
        return f"array({value.dtype.name}, {list(value.shape)}, {json.dumps(value.ravel().tolist())})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(format_value, value))}]"
    # signs that are not printable are escaped: some of them would end the line
    plain = value.item() if isinstance(value, np.generic) else value
    return json.dumps(plain, ensure_ascii=isinstance(plain, str) and not plain.isprintable())
