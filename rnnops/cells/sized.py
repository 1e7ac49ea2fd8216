"""SizedCell: what the cells with an input size and a hidden size share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.base import Initializer, RNNCell
from rnnops.cells.step import Step
from rnnops.ops.base import number
from rnnops.ops.movement import split


class SizedCell(RNNCell):
    """A cell of `hidden_size` features in every state and in its output.

    Args:
        input_size: D; hidden_size: H.
        forget_bias: added to the forget gate before its sigmoid, by cells that have one.
        memory_optimization: gates are computed again on the backward pass; only states are stored.
        drop_states: states are zero past a row's end, instead of what they were.
        name, forward_only, initializer: as RNNCell's.

    A subclass with options of its own takes those and `**options`, which it hands on; its signature has both.
    `training_options` are those with which `rnnops train` makes a cell.
    """

    training_options: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__signature__ = _joined(signature(cls.__init__), signature(cls.__mro__[1]))  # type: ignore[attr-defined]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        forget_bias: float = 0.0,
        memory_optimization: bool = False,
        drop_states: bool = False,
        name: str | None = None,
        forward_only: bool = False,
        initializer: Initializer | None = None,
    ) -> None:
        super().__init__(name, forward_only, initializer)
        self.input_size, self.hidden_size = input_size, hidden_size
        self.forget_bias = number(forget_bias, f"forget_bias of '{self.name}'")
        self.memory_optimization, self.drop_states = memory_optimization, drop_states

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/hidden_t"]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size] * len(self.get_state_names())

    def get_output_dim(self) -> int:
        return self.hidden_size

    def projected(
        self, step: Step, x_t: Blob, parts: int, recompute_as: str = "", extra: Sequence[tuple[Blob, int]] = ()
    ) -> list[Blob]:
        """`W x + b` in so many parts, `[N, H]` each, from one product with `i2h_w [parts H, D]` and `i2h_b [parts H]`.

        Args:
            recompute_as: a label, where the cell's gates are this product, to be computed again on the backward pass.
        """
        product = step.linear(x_t, self.input_name, self.input_size, parts * self.hidden_size, extra)
        if recompute_as:
            step.labelled(product, f"{self.name}/{recompute_as}", self.memory_optimization)
        return list(split(product, parts, axis=-1)) if parts > 1 else [product]

    def kept(self, step: Step, new: Sequence[Blob], previous: Sequence[Blob]) -> list[Blob]:
        """New states, which past a row's end are what they were, or zero with `drop_states`."""
        return [step.masked(*pair, self.drop_states) for pair in zip(new, previous, strict=True)]


def _joined(own: Signature, of_base: Signature) -> Signature:
    """A signature without self, and with the arguments of a base where it takes any further options."""
    kept = [one for one in list(own.parameters.values())[1:] if one.kind is not Parameter.VAR_KEYWORD]
    if len(kept) + 1 < len(own.parameters):
        names = {one.name for one in kept}
        further = [one for one in of_base.parameters.values() if one.name not in names]
        kept += [one.replace(kind=Parameter.KEYWORD_ONLY) for one in further]
    return Signature(kept)
