"""WrapperCell: a cell around one other cell, with that cell's states and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.base import RNNCell, require_cell
from rnnops.net import Net


class WrapperCell(RNNCell):
    """Passes everything on to the cell inside; subclasses change what they are for."""

    owns_name: ClassVar[bool] = False

    def __init__(self, cell: RNNCell) -> None:
        require_cell(cell)
        super().__init__(cell.name, cell.forward_only)
        self.cell, self.is_named, self.input_name = cell, cell.is_named, cell.input_name

    def get_state_names(self) -> list[str]:
        return self.cell.get_state_names()

    def get_state_dims(self) -> list[int]:
        return self.cell.get_state_dims()

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return self.cell.get_state_shapes()

    def get_output_dim(self) -> int:
        return self.cell.get_output_dim()

    def get_output_state_index(self) -> int:
        return self.cell.get_output_state_index()

    def get_input_params(self) -> list[str]:
        return self.cell.get_input_params()

    def get_recurrent_params(self) -> list[str]:
        return self.cell.get_recurrent_params()

    def prepare_input(self, net: Net, input_blob: Blob) -> Blob:
        return self.cell.prepare_input(net, input_blob)

    def prepare(self, net: Net) -> None:
        self.cell.prepare(net)

    def inner_cells(self) -> Sequence[RNNCell]:
        return (self.cell,)

    def default_initial_states(self, net: Net) -> list[Blob]:
        return self.cell.initial_states(net, None)
