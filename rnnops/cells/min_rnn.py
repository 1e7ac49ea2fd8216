"""MinGRUCell and MinLSTMCell: minimal gated cells, whose gates see the input alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.arguments import check_flags
from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import relu, sigmoid
from rnnops.ops.extrema import min as minimum


class MinimalCell(SizedCell):
    """What both cells share.

    Args:
        positive: candidates go through g, so that states stay positive where they begin so.
        forget_bias: added to the gate that keeps the state.
    """

    def __init__(self, input_size: int, hidden_size: int, *, positive: bool = False, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        check_flags(type(self).__name__, positive=positive)
        self.positive = positive

    def candidate(self, value: Blob) -> Blob:
        """g of a candidate; its two halves meet at 0, and `sigmoid(min(v, 0)) + relu(v)` is both.

        Args:
            value: [N, H].
        """
        return sigmoid(minimum(value, 0.0)) + relu(value) if self.positive else value


@register_cell
class MinGRUCell(MinimalCell):
    """GRU without a reset gate and without a recurrent product: its gate sees the input alone.

    The parts are in this order, update and candidate::

        u, v = split(x @ i2h_w.T + i2h_b, 2)
        z = sigmoid(u - forget_bias)
        h = (1 - z) * h_prev + z * g(v)

    `g(v)` is v, or with `positive` it is `v + 0.5` for `v >= 0` and `sigmoid(v)` below.

    Feng and others 2024, "Were RNNs all we needed?", arXiv 2410.01201, section 3.1.4; `positive`: appendix B.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [2H, D]`: xavier
    - `i2h_b [2H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        positive: whether candidates go through g, so that states stay positive where they begin so.
        forget_bias: taken off the gate that lets the candidate in, so that the state is kept.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.MinGRUCell(3, 4)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "min_gru"

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        update, value = self.projected(step, x_t, 2, "gates_t", extra)
        z = sigmoid(update - self.forget_bias)
        new = self.kept(step, [(1.0 - z) * states[0] + z * self.candidate(value)], states)
        return new[0], new


@register_cell
class MinLSTMCell(MinimalCell):
    """LSTM without a cell state and without a recurrent product: its gates see the input alone.

    The parts are in this order, forget, input and candidate; the two gates are made to add up to 1::

        f, i, v = split(x @ i2h_w.T + i2h_b, 3)
        f, i = sigmoid(f + forget_bias), sigmoid(i)
        h = f / (f + i) * h_prev + i / (f + i) * g(v)

    `g(v)` is v, or with `positive` it is `v + 0.5` for `v >= 0` and `sigmoid(v)` below.

    Feng and others 2024, "Were RNNs all we needed?", arXiv 2410.01201, section 3.2.4; `positive`: appendix B.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`: xavier
    - `i2h_b [3H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        positive: whether candidates go through g, so that states stay positive where they begin so.
        forget_bias: added to f.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.MinLSTMCell(3, 4, positive=True)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "min_lstm"

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        forget, enter, value = self.projected(step, x_t, 3, "gates_t", extra)
        f, i = sigmoid(forget + self.forget_bias), sigmoid(enter)
        share = i / (f + i)
        new = self.kept(step, [states[0] + share * (self.candidate(value) - states[0])], states)
        return new[0], new
