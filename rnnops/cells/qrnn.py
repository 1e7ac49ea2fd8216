"""QRNNCell, the quasi-recurrent cell: a convolution of width 2 and a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh


@register_cell
class QRNNCell(SizedCell):
    """Quasi-recurrent cell: a convolution of width 2 over time, and fo-pooling.

    With `x_prev` the input of the step before; the parts are in this order, candidate, forget, output::

        v, f, o = split(concat([x, x_prev], axis=-1) @ i2h_w.T + i2h_b, 3)
        f = sigmoid(f + forget_bias)
        c = f * c_prev + (1 - f) * tanh(v)
        y = sigmoid(o) * c

    Bradbury and others 2017, "Quasi-recurrent neural networks", arXiv 1611.01576, equations 1 and 4.

    States:

    - `cell_t [N, H]`: c
    - `input_t [N, D]`: x, which is `x_prev` in the next step; it begins with zeros in the paper

    The output is `y [N, H]`, which is no state.

    Trained parameters, below the cell's name:

    - `i2h_w [3H, 2D]`: xavier
    - `i2h_b [3H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        forget_bias: added to f.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.QRNNCell(3, 4)
        >>> y, (c_all, c_last, x_all, x_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, x_last.shape
        ((7, 2, 4), (1, 2, 3))
    """

    default_name: ClassVar[str] = "qrnn"

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/cell_t", f"{self.name}/input_t"]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size, self.input_size]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        c_prev, x_prev = states
        candidate, forget, out = self.projected(step, x_t, 3, "gates_t", [(x_prev, self.input_size), *extra])
        f = sigmoid(forget + self.forget_bias)
        c_t = f * c_prev + (1.0 - f) * tanh(candidate)
        return step.masked_output(sigmoid(out) * c_t), self.kept(step, [c_t, x_t], states)
