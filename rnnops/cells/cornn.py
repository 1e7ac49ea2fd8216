"""CoRNNCell, oscillators that are coupled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell, finite
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import tanh


@register_cell
class CoRNNCell(SizedCell):
    """Coupled oscillators, with their place y and their velocity z as states.

    The damping is explicit in time::

        force = x @ i2h_w.T + i2h_b + concat([y_prev, z_prev], axis=-1) @ hidden_w.T
        z = z_prev + dt * (tanh(force) - gamma * y_prev - epsilon * z_prev)
        y = y_prev + dt * z

    Rusch and Mishra 2021, "Coupled oscillatory recurrent neural network", arXiv 2010.00951, equation 3.

    States:

    - `hidden_t [N, H]`: y, the output
    - `velocity_t [N, H]`: z

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `hidden_w [H, 2H]`: xavier
    - `i2h_b [H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        dt: length of a step in time; this and the next two are those of the paper for sequential MNIST.
        gamma: how strongly a place is drawn back.
        epsilon: damping of the velocity.
        forget_bias: not read; there is no gate.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: dt, gamma or epsilon is no finite number, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.CoRNNCell(3, 4, dt=0.05)
        >>> y, (y_all, y_last, z_all, z_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, z_last.shape
        ((7, 2, 4), (1, 2, 4))
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
        self.dt, self.gamma, self.epsilon = (finite(one, key, self.name) for key, one in given.items())

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
