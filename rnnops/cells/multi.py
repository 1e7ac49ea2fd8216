"""MultiRNNCell: a stack of cells as one cell, with residual connections between layers."""

from __future__ import annotations

from collections.abc import Sequence, Set

from rnnops.blob import Blob
from rnnops.cells.base import RNNCell
from rnnops.cells.step import Step
from rnnops.errors import NetError
from rnnops.net import Net


class MultiRNNCell(RNNCell):
    """A stack of cells as one cell: a layer reads the output of the layer below it.

    The output of a residual layer is added to its input before it goes up. Where the last layers are residual, the
    stack's output is the sum of their outputs and of that of the layer below. The states are those of all layers,
    bottom first.

    Args:
        cells: from the bottom up; each needs a name of its own.
        residual_output_layers: numbers of the residual layers, from 1; none if left out.
        name: of the stack; parameters have the names of the cells.

    Raises:
        NetError: cells are no list of cells, two share a name, or a residual layer is not there or differs in size from
            the one below.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cells = [ro.cells.LSTMCell(3, 4, name="bottom"), ro.cells.GRUCell(4, 4, name="top")]
        >>> stack = ro.cells.MultiRNNCell(cells, residual_output_layers=[1])
        >>> y, states = stack.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, stack.get_state_names()
        ((7, 2, 4), ['bottom/hidden_t', 'bottom/cell_t', 'top/hidden_t'])
    """

    default_name = "stack"

    def __init__(
        self, cells: Sequence[RNNCell], residual_output_layers: Sequence[int] | None = None, name: str | None = None
    ) -> None:
        if not isinstance(cells, Sequence) or not cells or not all(isinstance(cell, RNNCell) for cell in cells):
            raise NetError("a stack needs a list of cells, at least one", blob=name, came=repr(cells))
        super().__init__(name, any(cell.forward_only for cell in cells))
        layers = () if residual_output_layers is None else residual_output_layers
        if not isinstance(layers, Sequence | Set) or isinstance(layers, str):
            raise NetError("residual_output_layers is no list", blob=self.name, came=repr(layers))
        self.cells, self.residual = list(cells), tuple(layers)
        self._check()

    def _check(self) -> None:
        names = [cell.name for cell in self.cells]
        if len(set(names)) < len(names):
            raise NetError(
                "cells of a stack share a name", blob=self.name, came=", ".join(names), hint="Give each its name=."
            )
        for layer in self.residual:
            if not isinstance(layer, int) or not 0 < layer < len(self.cells):
                raise NetError(
                    "no such residual layer", blob=self.name, wanted=f"1 to {len(self.cells) - 1}", came=layer
                )
            below, own = self.cells[layer - 1].get_output_dim(), self.cells[layer].get_output_dim()
            if below != own:
                raise NetError(
                    f"residual layer {layer} differs in size from the one below", blob=self.name, wanted=below, came=own
                )

    def get_state_names(self) -> list[str]:
        return [name for cell in self.cells for name in cell.get_state_names()]

    def get_state_dims(self) -> list[int]:
        return [size for cell in self.cells for size in cell.get_state_dims()]

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [shape for cell in self.cells for shape in cell.get_state_shapes()]

    def get_output_dim(self) -> int:
        return self.cells[-1].get_output_dim()

    def get_output_state_index(self) -> int:
        return (
            len(self.get_state_names())
            - len(self.cells[-1].get_state_names())
            + self.cells[-1].get_output_state_index()
        )

    def get_input_params(self) -> list[str]:
        return [name for cell in self.cells for name in cell.get_input_params()]

    def get_recurrent_params(self) -> list[str]:
        return [name for cell in self.cells for name in cell.get_recurrent_params()]

    def prepare_input(self, net: Net, input_blob: Blob) -> Blob:
        return self.cells[0].prepare_input(net, input_blob)

    def prepare(self, net: Net) -> None:
        for cell in self.cells:
            cell.prepare(net)

    def inner_cells(self) -> Sequence[RNNCell]:
        return self.cells

    def default_initial_states(self, net: Net) -> list[Blob]:
        return [state for cell in self.cells for state in cell.initial_states(net, None)]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        remaining, new = list(states), []
        layer_input, output = x_t, x_t
        for layer, cell in enumerate(self.cells):
            count = len(cell.get_state_names())
            own, remaining = remaining[:count], remaining[count:]
            output, own_new = cell.step(step, layer_input, own, extra if layer == 0 else ())
            layer_input = output = output + layer_input if layer in self.residual else output
            new += own_new
        return output, new
