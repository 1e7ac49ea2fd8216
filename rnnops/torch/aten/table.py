"""The table of aten ops: how each is written with ops of rnnops, and what a rule can ask of its node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, fx

import rnnops as ro
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.torch.errors import ONE_DTYPE, StepError

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}  # name of an aten op, without its overload -> its rule
KINDS = {torch.bool: "bool", torch.int32: "int32", torch.int64: "int64", torch.int8: "int8", torch.uint8: "uint8"}


BY_PARTS = "Write complex numbers as pairs of reals there: x.real, x.imag, and torch.complex of the results."  # a hint


def rule(*names: str, table: dict[str, Rule] = RULES) -> Callable[[Rule], Rule]:
    """Register `function(node, *arguments)`. Arguments are blobs for tensors, and integers for sizes.

    Arguments that are neither tensors nor sizes come as the graph has them.
    """

    def put(function: Rule) -> Rule:
        table.update(dict.fromkeys(names, function))
        return function

    return put


@dataclass(frozen=True)
class AtenNode:
    """One op of a traced step while it is written as ops of a net.

    Args:
        net: the net that gets the ops.
        node: the node of the graph that is translated.
        float_dtype: float dtype of the run. Tensors of another float dtype are refused.
        size: makes a number of a size of the graph.
        draw: makes uniform random numbers in [0, 1) of a shape, for ops that need them.
    """

    net: Net
    node: fx.Node
    float_dtype: torch.dtype
    size: Callable[[Any], int]
    draw: Callable[[fx.Node, Sequence[int]], Blob]

    @property
    def name(self) -> str:
        """The aten op's name without its overload."""
        return op_name(self.node)

    def result(self, i: int | None = None) -> Tensor:
        """The result's dtype and shape, as a tensor without data."""
        value: Any = self.node.meta["val"]
        return value if i is None else value[i]

    def operand(self, i: int) -> Any:
        """Dtype and shape of an operand, as a tensor without data. A number stays a number."""
        value = self.node.args[i]
        return value.meta["val"] if isinstance(value, fx.Node) else value

    def shape(self, tensor: Tensor) -> list[int]:
        return [self.size(size) for size in tensor.shape]

    @property
    def out_shape(self) -> list[int]:
        return self.shape(self.result())

    def shape_of(self, i: int) -> list[int]:
        return self.shape(self.operand(i))

    def kind(self, dtype: torch.dtype) -> str:
        """The name in rnnops of a dtype. For complex dtypes: of their parts.

        Raises StepError for a dtype that rnnops lacks.
        """
        if dtype.to_real() == self.float_dtype:
            return "float"
        if dtype in KINDS:
            return KINDS[dtype]
        hint = ONE_DTYPE
        wanted = f"{self.float_dtype}, bool or integers"
        self.fail("a tensor of a dtype that this run does not have", wanted=wanted, came=dtype, hint=hint)

    @property
    def out_kind(self) -> str:
        return self.kind(self.result().dtype)

    def blob(self, value: Any, kind: str | None = None) -> Blob:
        """A blob of a kind, by default the kind of the result. Numbers become constants."""
        kind = kind or self.out_kind
        if isinstance(value, Blob):
            return value if value.dtype == kind else ro.cast(value, kind)
        number = {"float": float, "bool": bool}.get(kind, int)(value)
        return self.net.constant(number, kind)

    def number_or_blob(self, value: Any, kind: str | None = None) -> Any:
        """As `blob`, but a number stays a number, for ops that take numbers."""
        return self.blob(value, kind) if isinstance(value, Blob) else value

    def full(self, value: Any, shape: Sequence[int], kind: str) -> Blob:
        """A blob of this shape that is filled with one number."""
        if kind != "bool":
            return ro.constant_of_shape(self.net, list(shape), value, kind)
        return ro.cast(ro.constant_of_shape(self.net, list(shape), int(bool(value)), "int64"), kind)

    def spread(self, value: Any) -> Blob:
        """An operand or a number as a blob of the result's shape."""
        tensors = (given.meta["val"] for given in self.node.all_input_nodes)
        same = all(self.shape(tensor) == self.out_shape for tensor in tensors if isinstance(tensor, Tensor))
        return self.blob(value) if same and isinstance(value, Blob) else ro.expand(self.blob(value), self.out_shape)

    def known(self, name: str, value: Any, *wanted: Any) -> None:
        """Raise StepError if an argument has a value that is not translated."""
        if value not in wanted:
            self.fail(f"argument {name} is not translated", wanted=" or ".join(map(repr, wanted)), came=repr(value))

    def fail(self, problem: str, **details: Any) -> NoReturn:
        """Raise a StepError that names the op and the line of the step that it comes from."""
        raise StepError(problem, op=f"{self.node.target}", blob=self.node.name, **details)


def op_name(node: fx.Node) -> str:
    """`add` for `aten.add.Tensor`."""
    packet: Any = node.target
    return str(packet.overloadpacket._qualified_op_name).split("::")[1]


def normal_axis(axis: int, rank: int) -> int:
    """The number of an axis, counted from the front."""
    return axis % rank if rank else 0


def array_of(tensor: Tensor) -> Any:
    """The numbers of a tensor that is known before the run."""
    return np.array(tensor.detach().cpu().resolve_neg().resolve_conj().numpy())
