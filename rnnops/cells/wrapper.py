"""WrapperCell: a cell around one other cell, with that cell's states and names."""

from __future__ import annotations

from rnnops.blob import Blob
from rnnops.cells.base import RNNCell
from rnnops.net import Net


class WrapperCell(RNNCell):
    """Passes everything on to the cell inside; subclasses change what they are for."""

    def __init__(self, cell: RNNCell) -> None:
        super().__init__(cell.name, cell.forward_only, cell.initializer)
        self.cell, self.is_named, self.input_name = cell, cell.is_named, cell.input_name

    def get_state_names(self) -> list[str]:
        return self.cell.get_state_names()

    def get_state_dims(self) -> list[int]:
        return self.cell.get_state_dims()

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

    def create_initial_state(self, net: Net, index: int) -> Blob:
        return self.cell.create_initial_state(net, index)
