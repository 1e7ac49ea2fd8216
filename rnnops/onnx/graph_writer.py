"""A graph while it is written: nodes in order, names that are free, constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import numpy as np

from rnnops.onnx.package import NodeProto, ValueInfoProto, helper
from rnnops.onnx.tensors import element_type, write_tensor
from rnnops.schema import Call
from rnnops.types import Array, Shape

FLOAT_ATTRIBUTES = ("alpha", "beta", "gamma", "epsilon", "momentum")


@dataclass
class GraphWriter:
    """Writes the nodes of one graph.

    Args:
        opset: the version of the op set; float_dtype: what `"float"` is in the file.
        open_sizes: made-up sizes that stand for those the file leaves open.
        names: blob of the net -> name in the file, where they differ.
        taken: names in this graph and those around it; below: in graphs inside it.
        done: keys of ops that others have written along with themselves.
    """

    opset: int
    float_dtype: str
    taken: set[str]
    open_sizes: frozenset[int] = frozenset()
    below: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    done: set[str] = field(default_factory=set)

    def name(self, blob: str) -> str:
        """A blob's name in the file."""
        return self.names.get(blob, blob)

    def fresh(self, name: str) -> str:
        """A name that is not taken, here, around or below; it is from then on."""
        names = chain([name], (f"{name}_{k}" for k in count(1)))
        found = next(free for free in names if free not in self.taken and free not in self.below)
        self.taken.add(found)
        return found

    def inner(self) -> GraphWriter:
        """A writer of a graph inside this one."""
        return GraphWriter(self.opset, self.float_dtype, set(self.taken), self.open_sizes)

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Write a node; inputs and outputs are names in the file, inputs left out at the end are not written."""
        for key in FLOAT_ATTRIBUTES:
            if key in attributes:
                attributes[key] = float(attributes[key])
        given = {key: value for key, value in attributes.items() if value is not None}
        name = next(filter(None, outputs), op)
        self.nodes.append(helper.make_node(op, trimmed(inputs), list(outputs), name=name, **given))

    def result(self, op: str, inputs: Sequence[str], hint: str, **attributes: Any) -> str:
        """Write a node with one output and return its name."""
        name = self.fresh(hint)
        self.node(op, inputs, [name], **attributes)
        return name

    def constant(self, value: Any, dtype: str, hint: str) -> str:
        """Write a Constant and return its name."""
        array: Array = np.asarray(value, dtype)
        return self.result("Constant", [], hint, value=write_tensor(array, ""))

    def sizes(self, sizes: Sequence[int], hint: str) -> str:
        """Write a list of sizes or axes and return its name."""
        return self.constant(list(sizes), "int64", hint)

    def inputs_of(self, call: Call) -> list[str]:
        """Names of an op's inputs."""
        return [self.name(name) if name else "" for name in call.op.inputs]

    def outputs_of(self, call: Call) -> list[str]:
        """Names of an op's outputs."""
        return [self.name(name) if name else "" for name in call.op.outputs]


def trimmed(names: Sequence[str]) -> list[str]:
    """Names without empty ones at the end."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def value_info(name: str, dtype: str, dims: Sequence[int | str | None]) -> ValueInfoProto:
    """A typed name; None is a size without a name."""
    return helper.make_tensor_value_info(name, element_type(dtype), list(dims))


def named_dims(shapes: tuple[Shape, Shape], names: Mapping[tuple[int, int], str]) -> list[int | str | None]:
    """Sizes that are equal with both choices of made-up sizes, or the names that these stand for."""
    return [a if a == b else names.get((a, b)) for a, b in zip(*shapes, strict=True)]
