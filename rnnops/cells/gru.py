"""GRUCell, the gated recurrent unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.arguments import check_flags
from rnnops.blob import Blob
from rnnops.cells.gates import GRU_GATES, by_gate
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh


@register_cell
class GRUCell(SizedCell):
    """Gated recurrent unit.

    The parts of the input are in this order, reset, update, output::

        xr, xu, xo = split(x @ i2h_w.T + i2h_b, 3)
        r = sigmoid(xr + h_prev @ reset_gate_t_w.T + reset_gate_t_b)
        u = sigmoid(xu + h_prev @ update_gate_t_w.T + update_gate_t_b)
        o = tanh(xo + (r * h_prev) @ output_gate_t_w.T + output_gate_t_b)
        h = u * h_prev + (1 - u) * o

    With `linear_before_reset`, as cuDNN, PyTorch and, by an attribute of that name, ONNX have it, the candidate is
    `o = tanh(xo + r * (h_prev @ output_gate_t_w.T + output_gate_t_b))`.

    Cho and others 2014, "Learning phrase representations using RNN encoder-decoder", arXiv 1406.1078, equations 5 to 8.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`, `reset_gate_t_w [H, H]`, `update_gate_t_w [H, H]`, `output_gate_t_w [H, H]`: xavier
    - `i2h_b [3H]`, `reset_gate_t_b [H]`, `update_gate_t_b [H]`, `output_gate_t_b [H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        forget_bias: not read; there is no forget gate.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.
        linear_before_reset: whether the reset gate comes after the recurrent product.

    Raises:
        NetError: as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.GRUCell(3, 4, linear_before_reset=True)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "gru"

    def __init__(self, input_size: int, hidden_size: int, *, linear_before_reset: bool = False, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        check_flags(type(self).__name__, linear_before_reset=linear_before_reset)
        self.linear_before_reset = linear_before_reset

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{gate}_gate_t_{part}" for gate in GRU_GATES for part in ("w", "b")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (h_prev,) = states
        x = step.linear(x_t, self.input_name, self.input_size, len(GRU_GATES) * self.hidden_size)
        x_gate = by_gate(x, GRU_GATES)
        reset = sigmoid(self._gate(step, "reset", self._product(step, "reset", h_prev, extra) + x_gate["reset"]))
        update = sigmoid(self._gate(step, "update", self._product(step, "update", h_prev, extra) + x_gate["update"]))
        if self.linear_before_reset:
            candidate = reset * self._product(step, "output", h_prev, extra)
        else:
            candidate = self._product(step, "output", reset * h_prev, extra)
        output = tanh(self._gate(step, "output", candidate + x_gate["output"]))
        h_t = step.masked(update * h_prev + (1.0 - update) * output, h_prev, self.drop_states)
        return h_t, [h_t]

    def _product(self, step: Step, gate: str, h: Blob, extra: Sequence[tuple[Blob, int]]) -> Blob:
        return step.linear(h, f"{self.name}/{gate}_gate_t", self.hidden_size, self.hidden_size, extra)

    def _gate(self, step: Step, gate: str, blob: Blob) -> Blob:
        return step.labelled(blob, f"{self.name}/{gate}_gate_t", self.memory_optimization)
