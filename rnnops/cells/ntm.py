"""NTMCell, the neural Turing machine, with one head of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.gated import GATES, by_gate
from rnnops.cells.sized import SizedCell, count_of, register_cell
from rnnops.cells.step import Step
from rnnops.ops.activation import sigmoid, softplus, tanh
from rnnops.ops.arithmetic import sqrt
from rnnops.ops.movement import concat, split, unsqueeze
from rnnops.ops.normalization import softmax
from rnnops.ops.reduction import reduce_sum

SMALL = 1e-8  # where lengths and weights may be zero
NUMBERS = (1, 1, 3, 1)  # of a head: strength, gate, shift, power


@register_cell
class NTMCell(SizedCell):
    """Neural Turing machine: an LSTM that reads from a memory and writes to it, with one head for each.

    The LSTM reads x and what was read before; its parts are in LSTM's order::

        i, f, o, g = split(x @ i2h_w.T + i2h_b + concat([h_prev, s_prev]) @ gates_t_w.T, 4)
        c = sigmoid(f + forget_bias) * c_prev + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    `h @ heads_w.T + heads_b` has, for the reading head, then for the writing head, the key `[width]`, the strength, the
    gate, the shift `[3]` and the power, and last what is erased and added, `[width]` each. From a head's place before,
    `w_prev`, its place in a memory M is::

        content = softmax(softplus(strength) * cosine(tanh(key), M))
        mixed = sigmoid(gate) * content + (1 - sigmoid(gate)) * w_prev
        shifted = mixed moved round by -1, 0 and 1 slots, weighted by softmax(shift)
        w = shifted ** (1 + softplus(power)), over its sum

    The writing head is placed in `M_prev`, the reading head in M::

        M = M_prev * (1 - outer(w_write, sigmoid(erase))) + outer(w_write, tanh(add))
        s = w_read @ M
        y = concat([h, s])

    Graves, Wayne and Danihelka 2014, "Neural Turing machines", arXiv 1410.5401, equations 2 to 9.

    States:

    - `hidden_t [N, H]`: h
    - `cell_t [N, H]`: c
    - `memory_t [N, slots, width]`: M
    - `reading_place_t [N, slots]`: w_read
    - `writing_place_t [N, slots]`: w_write
    - `seen_t [N, width]`: s

    The output is `y [N, H + width]`, which is no state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [4H, H + width]`, `heads_w [4 width + 12, H]`: xavier
    - `i2h_b [4H]`, `heads_b [4 width + 12]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        slots: rows of the memory.
        width: of a row.
        forget_bias: added to f.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: slots or width is no size, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.NTMCell(3, 4, slots=6, width=5)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, states[5].shape
        ((7, 2, 9), (1, 2, 6, 5))
    """

    default_name: ClassVar[str] = "ntm"

    def __init__(self, input_size: int, hidden_size: int, *, slots: int = 16, width: int = 8, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.slots, self.width = count_of(slots, "slots", self.name), count_of(width, "width", self.name)

    def get_state_names(self) -> list[str]:
        states = ("hidden", "cell", "memory", "reading_place", "writing_place", "seen")
        return [f"{self.name}/{state}_t" for state in states]

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        H, slots = (self.hidden_size,), (self.slots,)
        return [H, H, (self.slots, self.width), slots, slots, (self.width,)]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size] * 2 + [self.slots * self.width] + [self.slots] * 2 + [self.width]

    def get_output_dim(self) -> int:
        return self.hidden_size + self.width

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{name}" for name in ("gates_t_w", "heads_w", "heads_b")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        h_prev, c_prev, M_prev, reading, writing, seen = states
        h_t, c_t = self._controller(step, x_t, h_prev, c_prev, [(seen, self.width), *extra])
        sizes = [*(self.width, *NUMBERS) * 2, self.width, self.width]
        *heads, erase, add = split(step.linear(h_t, f"{self.name}/heads", self.hidden_size, sum(sizes)), sizes, axis=-1)
        count = 1 + len(NUMBERS)
        writing_t = place(M_prev, writing, *heads[count:])
        at = unsqueeze(writing_t, [2])
        M_t = M_prev * (1.0 - at * unsqueeze(sigmoid(erase), [1])) + at * unsqueeze(tanh(add), [1])
        reading_t = place(M_t, reading, *heads[:count])
        seen_t = reduce_sum(unsqueeze(reading_t, [2]) * M_t, axes=[1], keepdims=0)
        output = step.masked_output(concat([h_t, seen_t], axis=-1))
        return output, self.kept(step, [h_t, c_t, M_t, reading_t, writing_t, seen_t], states)

    def _controller(
        self, step: Step, x_t: Blob, h_prev: Blob, c_prev: Blob, extra: Sequence[tuple[Blob, int]]
    ) -> tuple[Blob, Blob]:
        H, size = self.hidden_size, len(GATES) * self.hidden_size
        gates = step.linear(x_t, self.input_name, self.input_size, size)
        gates = gates + step.product(h_prev, f"{self.name}/gates_t", H, size, extra)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        gate = by_gate(gates)
        c_t = sigmoid(gate["f"] + self.forget_bias) * c_prev + sigmoid(gate["i"]) * tanh(gate["g"])
        return sigmoid(gate["o"]) * tanh(c_t), c_t


def place(memory: Blob, before: Blob, key: Blob, strength: Blob, gate: Blob, shift: Blob, power: Blob) -> Blob:
    """Where a head looks, `[N, slots]`: equations 5 to 9, from what its rows gave before their nonlinearity."""
    products = reduce_sum(memory * unsqueeze(tanh(key), [1]), axes=[2], keepdims=0)
    lengths = sqrt(
        reduce_sum(memory * memory, axes=[2], keepdims=0) * reduce_sum(tanh(key) * tanh(key), axes=[1]) + SMALL
    )
    by_content = softmax(softplus(strength) * products / lengths, axis=-1)
    mixed = sigmoid(gate) * by_content + (1.0 - sigmoid(gate)) * before
    left, stay, right = split(softmax(shift, axis=-1), 3, axis=-1)
    shifted = left * concat([mixed[:, 1:], mixed[:, :1]], axis=-1) + stay * mixed
    shifted = shifted + right * concat([mixed[:, -1:], mixed[:, :-1]], axis=-1)
    sharp = (shifted + SMALL) ** (1.0 + softplus(power))
    return sharp / reduce_sum(sharp, axes=[1])
