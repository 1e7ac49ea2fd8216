"""UnrolledCell: copies of a cell in the outer net instead of a recurrence, for comparison and tiny T."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnops.arguments import check_flags
from rnnops.blob import Blob
from rnnops.cells.base import RNNCell
from rnnops.cells.step import Step
from rnnops.cells.wrapper import WrapperCell
from rnnops.errors import NetError
from rnnops.net import Net
from rnnops.ops.movement import concat, split, squeeze, unsqueeze
from rnnops.ops.shapes import constant_of_shape, shape


class UnrolledCell(WrapperCell):
    """A cell written out T times in the outer net, instead of as a recurrence; all copies share their parameters.

    It computes what the cell computes; the net has T times as many ops. Its name, states and parameters
    are those of the cell inside.

    Args:
        cell: the cell to unroll.
        T: number of steps, fixed, 1 or more.

    Raises:
        NetError: T is no integer of 1 or more, or cell is no cell.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.UnrolledCell(ro.cells.BasicRNNCell(3, 4), 7)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, sum(op.type == "Tanh" for op in net.ops)
        ((7, 2, 4), 7)
    """

    def __init__(self, cell: RNNCell, T: int) -> None:
        super().__init__(cell)
        if not isinstance(T, int) or isinstance(T, bool) or T < 1:
            raise NetError("an unrolled cell needs a number of steps", blob=cell.name, wanted="1 or more", came=T)
        self.T = T

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        return self.cell.step(step, x_t, states, extra)

    def apply_over_sequence(
        self,
        net: Net,
        inputs: Blob,
        seq_lengths: Blob | None = None,
        initial_states: Sequence[Blob] | None = None,
        outputs_with_grads: Sequence[int] | None = None,
        reverse: bool = False,
    ) -> tuple[Blob, tuple[Blob, ...]]:
        """Write T steps of the cell.

        Args:
            net: the outer net.
            inputs: [T, N, D].
            seq_lengths: [N] int32, None for full length.
            initial_states: one for each state, `[H]`, `[N, H]` or `[1, N, H]`; the initializer's if left out.
            outputs_with_grads: not supported: gradients flow to every output that receives one.
            reverse: from the last step to the first; each row from its own end.

        Returns:
            As `RNNCell.apply_over_sequence`.

        Raises:
            NetError: outputs_with_grads is given, and as `RNNCell.apply_over_sequence`.
        """
        if outputs_with_grads is not None:
            raise NetError(
                "outputs_with_grads needs a recurrence", net=net.name, blob=self.name, hint="Leave it out here."
            )
        check_flags(type(self).__name__, reverse=reverse)
        self._claim(net)
        inputs = self.prepare_input(net, inputs)
        self.prepare(net)
        given = zip(self.initial_states(net, initial_states), self.get_state_shapes(), strict=True)
        current = [self._with_rows(net, inputs, state, len(shape)) for state, shape in given]
        steps, outputs = [], []
        order = list(enumerate(split(inputs, [1] * self.T, axis=0)))[:: -1 if reverse else 1]
        for t, x_t in order:
            timestep = net.constant(np.array([t], np.int32))
            context = Step(net, None, seq_lengths, timestep, f"timestep_{t}/")
            output, current = self.cell.step(context, squeeze(x_t, [0]), current)
            outputs.append(unsqueeze(output, [0]))
            steps.append([unsqueeze(state, [0]) for state in current])
        columns = [list(column) for column in zip(*steps, strict=True)]
        states = [blob for column in columns for blob in (_over_time(column, reverse), column[-1])]
        return _over_time(outputs, reverse), tuple(states)

    def _with_rows(self, net: Net, inputs: Blob, state: Blob, axes: int) -> Blob:
        """An initial state `[H]`, `[N, H]` or `[1, N, H]` as `[N, H]`, by broadcasting; H may be several axes."""
        one, features = net.constant(np.array([1], np.int64)), net.constant(np.ones(axes, np.int64))
        zeros = constant_of_shape(net, concat([one, shape(inputs, start=1, end=2), features], axis=0))
        return squeeze(state + zeros, [0])


def _over_time(executed: list[Blob], reverse: bool) -> Blob:
    """Steps in the order in which they ran as one sequence."""
    return concat(executed[:: -1 if reverse else 1], axis=0)
