"""SRUCell, the simple recurrent unit."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell, finite
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.errors import NetError
from rnnops.ops.activation import sigmoid
from rnnops.ops.movement import split

LARGEST_BIAS = 80.0  # the root of its exponential is a float32


@register_cell
class SRUCell(SizedCell):
    """Simple recurrent unit: a recurrence by elements, and a highway from the input to the output.

    The parts are in this order, candidate, forget, highway and what takes the place of x; where D is H there are three,
    and p is x::

        v, f, r, p = split(x @ i2h_w.T, 4)
        f = sigmoid(f + forget_v * c_prev + forget_b + forget_bias)
        r = sigmoid(r + highway_v * c_prev + highway_b)
        c = f * c_prev + (1 - f) * v
        y = r * c + (1 - r) * p * sqrt(1 + 2 * exp(highway_bias))

    Lei and others 2018, "Simple recurrent units for highly parallelizable recurrence", arXiv 1709.02755, equations 1 to
    4, the scale of the highway: section 3.2.

    States:

    - `cell_t [N, H]`: c

    The output is `y [N, H]`, which is no state.

    Trained parameters, below the cell's name, where D is not H:

    - `i2h_w [4H, D]`: xavier; it has 3H rows where D is H
    - `forget_v [H]`, `highway_v [H]`: xavier
    - `forget_b [H]`: zeros
    - `highway_b [H]`: `highway_bias`

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        highway_bias: where `highway_b` starts, at most 80; it scales the highway.
        forget_bias: added to f.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: highway_bias is no finite number, or above 80, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.SRUCell(4, 4)
        >>> y, (c_all, c_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 4)))
        >>> y.shape, c_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "sru"

    def __init__(self, input_size: int, hidden_size: int, *, highway_bias: float = 0.0, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.highway_bias = finite(highway_bias, "highway_bias", self.name)
        if not self.highway_bias <= LARGEST_BIAS:
            wanted = f"at most {LARGEST_BIAS}"
            raise NetError(
                "this scale of the highway is no finite number", blob=self.name, wanted=wanted, came=highway_bias
            )

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/cell_t"]

    def get_input_params(self) -> list[str]:
        return [f"{self.input_name}_w"]

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{name}" for name in ("forget_v", "highway_v", "forget_b", "highway_b")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (c_prev,), (D, H) = states, (self.input_size, self.hidden_size)
        parts = 3 if D == H else 4
        product = step.product(x_t, self.input_name, D, parts * H, extra)
        step.labelled(product, f"{self.name}/gates_t", self.memory_optimization)
        value, forget, highway, *passed = split(product, parts, axis=-1)
        f = sigmoid(self._gate(step, "forget", forget, c_prev, 0.0) + self.forget_bias)
        r = sigmoid(self._gate(step, "highway", highway, c_prev, self.highway_bias))
        c_t = f * c_prev + (1.0 - f) * value
        scale = sqrt(1.0 + 2.0 * exp(self.highway_bias))
        h_t = r * c_t + (1.0 - r) * (scale * (passed[0] if passed else x_t))
        return step.masked_output(h_t), self.kept(step, [c_t], states)

    def _gate(self, step: Step, gate: str, value: Blob, c_prev: Blob, bias: float) -> Blob:
        seen = step.parameter(f"{self.name}/{gate}_v", (self.hidden_size,), "xavier") * c_prev
        return value + seen + step.parameter(f"{self.name}/{gate}_b", (self.hidden_size,), bias)
