"""LMUCell, the Legendre memory unit, and the matrices of its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell, count_of
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.errors import NetError
from rnnops.ops.activation import tanh
from rnnops.ops.base import number
from rnnops.ops.movement import transpose
from rnnops.types import Array


@register_cell
class LMUCell(SizedCell):
    """Legendre memory unit: a hidden state, and a linear memory of the last `theta` steps of one signal.

    The memory holds the signal u as d Legendre polynomials; A and B are the paper's closed form in continuous time,
    made discrete by holding u for a step::

        u = x @ signal_x_w.T + h_prev @ signal_h_w.T + m_prev @ signal_m_w.T
        m = m_prev @ A.T + u * B
        h = tanh(x @ i2h_w.T + i2h_b + h_prev @ hidden_w.T + m @ memory_w.T)

    Voelker, Kajić and Eliasmith 2019, "Legendre memory units", NeurIPS, equations 1 to 7.

    States:

    - `hidden_t [N, H]`: h, the output
    - `memory_t [N, d]`: m

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `hidden_w [H, H]`, `memory_w [H, d]`: xavier
    - `signal_x_w [1, D]`, `signal_h_w [1, H]`: xavier
    - `signal_m_w [1, d]`: zeros, as in the paper
    - `i2h_b [H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        order: d; H if left out.
        theta: how many steps the memory reaches back, more than 0.
        forget_bias: not read; there is no gate.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: order is no size, or theta no number above 0, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LMUCell(3, 4, order=6, theta=100.0)
        >>> y, (h_all, h_last, m_all, m_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, m_last.shape
        ((7, 2, 4), (1, 2, 6))
    """

    default_name: ClassVar[str] = "lmu"

    def __init__(
        self, input_size: int, hidden_size: int, *, order: int | None = None, theta: float = 64.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.order = hidden_size if order is None else count_of(order, "order", self.name)
        self.theta = number(theta, f"theta of '{self.name}'")
        if not self.theta > 0:
            raise NetError("the window of a memory is positive", blob=self.name, wanted="theta > 0", came=theta)

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/hidden_t", f"{self.name}/memory_t"]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size, self.order]

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{name}_w" for name in ("hidden", "memory", "signal_x", "signal_h", "signal_m")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        h_prev, m_prev = states
        H, d = self.hidden_size, self.order
        seen = step.parameter(f"{self.name}/signal_m_w", (1, d), "zeros")
        signal = step.product(x_t, f"{self.name}/signal_x", self.input_size, 1)
        signal = signal + step.product(h_prev, f"{self.name}/signal_h", H, 1) + m_prev @ transpose(seen, perm=[1, 0])
        A, B = memory_matrices(d, self.theta)
        kept = m_prev @ step.constant(f"{self.name}/memory_transition", A.T)
        m_t = kept + signal * step.constant(f"{self.name}/memory_input", B)
        (x,) = self.projected(step, x_t, 1)
        x = x + step.product(h_prev, f"{self.name}/hidden", H, H, extra)
        gates = step.labelled(
            x + step.product(m_t, f"{self.name}/memory", d, H), f"{self.name}/gates_t", self.memory_optimization
        )
        new = self.kept(step, [tanh(gates), m_t], states)
        return new[0], new


def memory_matrices(order: int, theta: float) -> tuple[Array, Array]:
    """A `[d, d]` and B `[d]` of a step: equation 2, and its solution where u is held for the step."""
    row, column = np.arange(order)[:, None], np.arange(order)[None, :]
    A = np.where(row < column, -1.0, (-1.0) ** (row - column + 1)) * (2 * row + 1) / theta
    B = (-1.0) ** row * (2 * row + 1) / theta
    both = exponential(np.block([[A, B], [np.zeros((1, order + 1))]]))
    return both[:order, :order], both[:order, order]


def exponential(matrix: Array) -> Array:
    """exp of a matrix: its series, of the matrix halved until that converges fast, squared as often."""
    halvings = max(0, int(np.ceil(np.log2(max(np.abs(matrix).sum(axis=0).max(), 1e-300)))) + 2)
    term = result = np.eye(len(matrix))
    for k in range(1, 20):
        term = term @ (matrix / 2.0**halvings) / k
        result = result + term
    return np.linalg.matrix_power(result, 2**halvings)
