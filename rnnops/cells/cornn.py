"""Coupled oscillatory cell (Rusch and Mishra 2021, arXiv 2010.00951, equation 3, with the damping explicit in time).

`z = z' + dt (tanh(W y' + Z z' + V x + b) - gamma y' - epsilon z')`, `y = y' + dt z`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import tanh
from rnnops.ops.base import number


@register_cell
class CoRNNCell(SizedCell):
    """Oscillators, with their place y, the output, and their velocity z as states.

    Args:
        dt: of a step; gamma: frequency; epsilon: damping. The defaults are those of the paper for sequential MNIST.

    Parameters: `i2h_w [H, D]`, `i2h_b [H]`, `hidden_w [H, 2H]` of `[y'; z']`.
    """

    default_name: ClassVar[str] = "cornn"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        dt: float = 0.042,
        gamma: float = 2.7,
        epsilon: float = 4.7,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        given = {"dt": dt, "gamma": gamma, "epsilon": epsilon}
        self.dt, self.gamma, self.epsilon = (number(one, f"{key} of '{self.name}'") for key, one in given.items())

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/hidden_t", f"{self.name}/velocity_t"]

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/hidden_w"]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (y_prev, z_prev), H = states, self.hidden_size
        (x,) = self.projected(step, x_t, 1)
        force = x + step.product(y_prev, f"{self.name}/hidden", H, H, [(z_prev, H), *extra])
        step.labelled(force, f"{self.name}/gates_t", self.memory_optimization)
        z_t = z_prev + self.dt * (tanh(force) - self.gamma * y_prev - self.epsilon * z_prev)
        new = self.kept(step, [y_prev + self.dt * z_t, z_t], states)
        return new[0], new
