"""Legendre memory unit (Voelker, Kajic and Eliasmith 2019, equations 1 to 7).

`u = e_x x + e_h h' + e_m m'`, `m = A m' + B u`, `h = tanh(W_x x + W_h h' + W_m m)`. A and B hold the last `theta` steps
of u as d Legendre polynomials: the paper's closed form in continuous time, made discrete by holding u for a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.errors import NetError
from rnnops.ops.activation import tanh
from rnnops.ops.base import number
from rnnops.ops.movement import transpose
from rnnops.types import Array


@register_cell
class LMUCell(SizedCell):
    """A cell with a hidden state `[N, H]` and a linear memory `[N, d]` of one signal.

    Args:
        order: d; H if left out.
        theta: how many steps the memory reaches back.

    Parameters: `i2h_w [H, D]`, `i2h_b [H]`, `hidden_w [H, H]`, `memory_w [H, d]`, and the encoders `signal_x_w [1, D]`,
    `signal_h_w [1, H]` and `signal_m_w [1, d]`, of which the last starts with zeros, as in the paper.
    """

    default_name: ClassVar[str] = "lmu"

    def __init__(
        self, input_size: int, hidden_size: int, *, order: int | None = None, theta: float = 64.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.order = hidden_size if order is None else order
        self.theta = number(theta, f"theta of '{self.name}'")
        if self.theta <= 0:
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
