"""SizedCell: what the cells with an input size and a hidden size share."""

from __future__ import annotations

from rnnops.cells.base import Initializer, RNNCell
from rnnops.ops.base import number


class SizedCell(RNNCell):
    """A cell of `hidden_size` features in every state and in its output.

    Args:
        input_size: D; hidden_size: H.
        forget_bias: added to the forget gate before its sigmoid, by cells that have one.
        memory_optimization: gates are computed again on the backward pass; only states are stored.
        drop_states: states are zero past a row's end, instead of what they were.
        name, forward_only, initializer: as RNNCell's.
    """

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
