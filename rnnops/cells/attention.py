"""Cells that attend: decoders with attention to an encoder, and the neural Turing machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rnnops.cells.base import Extra, RNNCell, Step, Stepped, parameter, require_blob, require_cell
from rnnops.cells.gated import GATES, LSTMCell, MILSTMCell, gate_inputs
from rnnops.cells.sized import ShapedCell, count_of, register_cell
from rnnops.cells.wrappers import CompoundCell
from rnnops.errors import check_flags
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.ops.activation import sigmoid, softplus, tanh
from rnnops.ops.arithmetic import sqrt
from rnnops.ops.comparison import cast, less, where
from rnnops.ops.movement import concat, split, squeeze, transpose, unsqueeze
from rnnops.ops.normalization import softmax
from rnnops.ops.reduction import reduce_sum
from rnnops.ops.shapes import constant_of_shape, range as range_, shape

# An energy whose exponential is 0 in float32 and float64. It is finite, so that a row without valid steps stays finite.
MASKED = -1e30
ATTENTION_TYPES = ("regular", "recurrent", "dot", "soft_coverage")


@dataclass
class Encoder:
    """The encoder's side in the outer net, batch first. It is computed once."""

    outputs: Blob  # [N, S, E]
    weighted: Blob | None = None  # [N, S, E]
    coverage: Blob | None = None  # [N, S, E]
    mask: Blob | None = None  # [N, S], 1 where a step is valid


class AttentionCell(CompoundCell):
    """A decoder cell that attends to the encoder at each step, and reads the resulting context in the next step.

    A step of the decoder reads x and the context before, `ctx_prev`; from its output h, energies of all encoder steps s
    make weights, and these a new context::

        e_s = v . tanh(W_e enc_s + b_e + W_d h + b_d)                        # "regular"
        e_s = v . tanh(W_e enc_s + b_e + W_d h + b_d + W_c ctx_prev + b_c)       # "recurrent"
        e_s = enc_s . h, or enc_s . (W_d h + b_d) where sizes differ         # "dot"
        e_s = v . tanh(W_e enc_s + b_e + W_d h + b_d
                       + cov_prev_s (W_cov enc_s + b_cov))                       # "soft_coverage"
        a = softmax(e) over the valid steps
        ctx = sum of a_s enc_s,   cov = cov_prev + a

    Regular: Bahdanau, Cho and Bengio 2014, arXiv 1409.0473; recurrent: arXiv 1601.03317; dot: Luong, Pham and Manning
    2015, arXiv 1508.04025; soft coverage: Tu and others 2016, arXiv 1601.04811.

    States: the decoder's, then

    - `attention_weighted_encoder_context_t [N, E]`: the context
    - `coverage_t [N, S]`: the coverage, only for soft coverage; it starts with zeros that are not a parameter

    The output joins the decoder's output and the context, `[N, H + E]`. It is not a state. Past a decoder row's end the
    decoder's states stay, but the context goes on changing.

    Trained parameters, below the cell's name. The decoder's own come in addition; its recurrent product has E more
    columns:

    - `weighted_encoder_outputs_w [E, E]`, `weighted_encoder_outputs_b [E]`: W_e, b_e. Not for dot, and not with
      `weighted_encoder_outputs`
    - `weighted_decoder_hidden_state_w [E, H]`, `weighted_decoder_hidden_state_b [E]`: W_d, b_d. For dot only if H is
      not E
    - `weighted_prev_attention_context_w [E, E]`, `weighted_prev_attention_context_b [E]`: W_c, b_c. For recurrent only
    - `coverage_weights_w [E, E]`, `coverage_weights_b [E]`: W_cov, b_cov. For soft coverage only
    - `attention_logits_w [1, E]`: v. Not for dot

    Weights start as xavier, biases with zeros.

    Args:
        encoder_output_dim: features of the encoder's outputs, E.
        encoder_outputs: [S, N, E].
        encoder_lengths: [N] int32, or None if all rows have length S. A row of length 0 has a context of zeros.
        decoder_cell: any cell with a product that reads `extra`.
        decoder_state_dim: H, size of the decoder's output.
        attention_type: `"regular"`, `"recurrent"`, `"dot"` or `"soft_coverage"`.
        weighted_encoder_outputs: [S, N, E], `W_e enc + b_e`, if it was computed elsewhere.
        attention_memory_optimization: True to compute energies (before their sum over features) again in the backward
            pass.
        name: absolute prefix of parameter names, by default `attention`.
        forward_only: True for a recurrence without a gradient.

    Raises:
        NetError: attention_type is unknown, decoder_state_dim is not the decoder's, or an argument is not a blob or not
            a cell. When the cell is applied: the decoder does not read `extra`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> x, encoded = net.input("x", shape=(7, 2, 3)), net.input("encoded", shape=(5, 2, 6))
        >>> decoder = ro.cells.GRUCell(3, 4, name="decoder")
        >>> cell = ro.cells.AttentionCell(6, encoded, None, decoder, 4, "regular")
        >>> y, states = cell.apply_over_sequence(net, x)
        >>> y.shape
        (7, 2, 10)
    """

    default_name = "attention"

    def __init__(
        self,
        encoder_output_dim: int,
        encoder_outputs: Blob,
        encoder_lengths: Blob | None,
        decoder_cell: RNNCell,
        decoder_state_dim: int,
        attention_type: str,
        weighted_encoder_outputs: Blob | None = None,
        attention_memory_optimization: bool = False,
        name: str | None = None,
        forward_only: bool = False,
    ) -> None:
        require_cell(decoder_cell)
        flags = {"attention_memory_optimization": attention_memory_optimization, "forward_only": forward_only}
        check_flags(type(self).__name__, **flags)
        super().__init__(name, forward_only or decoder_cell.forward_only)
        optional = {"encoder_lengths": encoder_lengths, "weighted_encoder_outputs": weighted_encoder_outputs}
        given = {what: blob for what, blob in optional.items() if blob is not None}
        for what, blob in {"encoder_outputs": encoder_outputs, **given}.items():
            require_blob(blob, what, self.name)
        if not isinstance(attention_type, str) or attention_type not in ATTENTION_TYPES:
            self.fail("unknown attention type", wanted=f"one of {', '.join(ATTENTION_TYPES)}", came=attention_type)
        size = decoder_cell.get_output_dim()
        if not isinstance(decoder_state_dim, int) or decoder_state_dim != size:
            self.fail("decoder_state_dim is not the size of the decoder's output", wanted=size, came=decoder_state_dim)
        self.encoder_output_dim, self.decoder_state_dim = encoder_output_dim, decoder_state_dim
        self.encoder_outputs, self.encoder_lengths = encoder_outputs, encoder_lengths
        self.weighted_encoder_outputs = weighted_encoder_outputs
        self._cells, self.attention_type = (decoder_cell,), attention_type
        self.memory_optimization = attention_memory_optimization
        self._encoder: Encoder | None = None

    # -- names and sizes -----------------------------------------------------------------------------------------

    def get_state_names(self) -> list[str]:
        own = [f"{self.name}/attention_weighted_encoder_context_t"]
        return [*super().get_state_names(), *own, *([f"{self.name}/coverage_t"] if self._covers else [])]

    def get_state_dims(self) -> list[int]:
        return [*super().get_state_dims(), self.encoder_output_dim, *([0] if self._covers else [])]

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        own = self.get_state_dims()[len(super().get_state_dims()) :]
        return [*super().get_state_shapes(), *((size,) for size in own)]

    def get_output_dim(self) -> int:
        return self.decoder_state_dim + self.encoder_output_dim

    @property
    def _covers(self) -> bool:
        return self.attention_type == "soft_coverage"

    # -- outside the recurrence ----------------------------------------------------------------------------------

    def prepare(self, net: Net) -> None:
        if self._encoder is not None:
            return
        super().prepare(net)
        E, outputs = self.encoder_output_dim, self.encoder_outputs
        outer, encoder = Step(net), Encoder(_batch_first(outputs))
        if self.attention_type != "dot":
            weighted = self.weighted_encoder_outputs
            encoder.weighted = _batch_first(
                outer.linear(outputs, f"{self.name}/weighted_encoder_outputs", E, E) if weighted is None else weighted
            )
        if self._covers:
            encoder.coverage = _batch_first(outer.linear(outputs, f"{self.name}/coverage_weights", E, E))
        if self.encoder_lengths is not None:
            encoder.mask = valid_steps(outputs, self.encoder_lengths)
        self._encoder = encoder

    def default_initial_states(self, net: Net) -> list[Blob]:
        name = f"{self.name}/initial_attention_weighted_encoder_context_state"
        own = [parameter(net, name, (self.encoder_output_dim,), "zeros")]
        return [*super().default_initial_states(net), *own, *([self.zero_coverage(net)] if self._covers else [])]

    def zero_coverage(self, net: Net) -> Blob:
        """Coverage before the first step: zeros [N, S].

        Args:
            net: the outer net.
        """
        S, N = shape(self.encoder_outputs, start=0, end=1), shape(self.encoder_outputs, start=1, end=2)
        return constant_of_shape(net, concat([N, S], axis=0))

    def initial_states(self, net: Net, given: Sequence[Blob] | None) -> list[Blob]:
        if given is not None and self._covers and len(given) == len(self.get_state_names()) - 1:
            given = [*given, self.zero_coverage(net)]
        return super().initial_states(net, given)

    # -- one step ------------------------------------------------------------------------------------------------

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (decoder,) = self.inner_cells()
        count = len(decoder.get_state_names())
        context, coverage = states[count], states[count + 1] if self._covers else None
        h_t, new = decoder.step(step, x_t, states[:count], [(context, self.encoder_output_dim), *extra])
        if not any(context.name in op.inputs for op in step.net.ops):
            problem = "the decoder cell does not read `extra`, so that it never sees the context"
            decoder.fail(problem, step.net, hint="Join `extra` to what its product reads.")
        weights = self._weights(step, self._energies(step, h_t, context, coverage))
        outputs = self._encoder_blob(step, "outputs")
        context_t = squeeze(unsqueeze(weights, [1]) @ outputs, [1])
        new = [*new, context_t, *([coverage + weights] if coverage is not None else [])]
        return concat([h_t, context_t], axis=-1), new

    def _energies(self, step: Step, h_t: Blob, context: Blob, coverage: Blob | None) -> Blob:
        """Energies [N, S], before the mask."""
        E, H = self.encoder_output_dim, self.decoder_state_dim
        if self.attention_type == "dot":
            query = h_t if H == E else step.linear(h_t, f"{self.name}/weighted_decoder_hidden_state", H, E)
            return squeeze(self._encoder_blob(step, "outputs") @ unsqueeze(query, [2]), [2])
        query = step.linear(h_t, f"{self.name}/weighted_decoder_hidden_state", H, E)
        if self.attention_type == "recurrent":
            query = query + step.linear(context, f"{self.name}/weighted_prev_attention_context", E, E)
        total = self._encoder_blob(step, "weighted") + unsqueeze(query, [1])
        if coverage is not None:
            total = total + unsqueeze(coverage, [2]) * self._encoder_blob(step, "coverage")
        total = step.labelled(total, f"{self.name}/decoder_hidden_encoder_outputs_sum", self.memory_optimization)
        v = step.parameter(f"{self.name}/attention_logits_w", (1, E), "xavier")
        return squeeze(tanh(total) @ transpose(v, perm=[1, 0]), [2])

    def _weights(self, step: Step, energies: Blob) -> Blob:
        """Weights [N, S]: softmax over the valid steps. A row without valid steps has zeros."""
        if self.encoder_lengths is None:
            return softmax(energies, axis=-1)
        mask = self._encoder_blob(step, "mask")
        return softmax(where(mask, energies, MASKED), axis=-1) * cast(mask, "float")

    def _encoder_blob(self, step: Step, part: str) -> Blob:
        if self._encoder is None:
            self.fail("call apply or apply_over_sequence, which prepare the encoder's side")
        return step.outer_blob(f"{self.name}/encoder_{part}", getattr(self._encoder, part))


def valid_steps(outputs: Blob, lengths: Blob) -> Blob:
    """[N, S] bool from outputs [S, ...] and lengths [N]: True if step s of row n is valid."""
    S = cast(squeeze(shape(outputs, start=0, end=1), [0]), lengths.dtype)
    return less(unsqueeze(range_(0, S, 1), [0]), unsqueeze(lengths, [1]))


def _batch_first(x: Blob) -> Blob:
    return transpose(x, perm=[1, 0, 2])


class LSTMWithAttentionCell(AttentionCell):
    """AttentionCell around an LSTM, `<name>/decoder`.

    Args:
        encoder_output_dim, encoder_outputs, encoder_lengths: as in `AttentionCell`.
        decoder_input_dim: features of x, D.
        decoder_state_dim: size of the decoder's output, H.
        attention_type, weighted_encoder_outputs, attention_memory_optimization: as in `AttentionCell`.
        forget_bias: of the LSTM.
        lstm_memory_optimization: `memory_optimization` of the LSTM.
        drop_states: of the LSTM.
        name, forward_only: as in `AttentionCell`. The default name is `lstm_with_attention`.

    Raises:
        NetError: as in `AttentionCell` and `LSTMCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> x, encoded = net.input("x", shape=(7, 2, 3)), net.input("encoded", shape=(5, 2, 6))
        >>> cell = ro.cells.LSTMWithAttentionCell(6, encoded, None, 3, 4, "dot")
        >>> y, states = cell.apply_over_sequence(net, x)
        >>> y.shape
        (7, 2, 10)
    """

    default_name = "lstm_with_attention"
    decoder_class: Callable[..., RNNCell] = LSTMCell

    def __init__(
        self,
        encoder_output_dim: int,
        encoder_outputs: Blob,
        encoder_lengths: Blob | None,
        decoder_input_dim: int,
        decoder_state_dim: int,
        attention_type: str,
        weighted_encoder_outputs: Blob | None = None,
        forget_bias: float = 0.0,
        lstm_memory_optimization: bool = False,
        attention_memory_optimization: bool = False,
        drop_states: bool = False,
        name: str | None = None,
        forward_only: bool = False,
    ) -> None:
        decoder = type(self).decoder_class(
            decoder_input_dim,
            decoder_state_dim,
            forget_bias=forget_bias,
            memory_optimization=lstm_memory_optimization,
            drop_states=drop_states,
            name=f"{name or self.default_name}/decoder",
            forward_only=forward_only,
        )
        required = (encoder_output_dim, encoder_outputs, encoder_lengths, decoder, decoder_state_dim, attention_type)
        super().__init__(*required, weighted_encoder_outputs, attention_memory_optimization, name, forward_only)


class MILSTMWithAttentionCell(LSTMWithAttentionCell):
    """AttentionCell around an MILSTM, `<name>/decoder`.

    Args:
        encoder_output_dim, encoder_outputs, encoder_lengths: as in `AttentionCell`.
        decoder_input_dim: features of x, D.
        decoder_state_dim: size of the decoder's output, H.
        attention_type, weighted_encoder_outputs, attention_memory_optimization: as in `AttentionCell`.
        forget_bias: of the MILSTM.
        lstm_memory_optimization: `memory_optimization` of the MILSTM.
        drop_states: of the MILSTM.
        name, forward_only: as in `AttentionCell`. The default name is `milstm_with_attention`.

    Raises:
        NetError: as in `AttentionCell` and `MILSTMCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> x, encoded = net.input("x", shape=(7, 2, 3)), net.input("encoded", shape=(5, 2, 6))
        >>> cell = ro.cells.MILSTMWithAttentionCell(6, encoded, None, 3, 4, "regular")
        >>> y, states = cell.apply_over_sequence(net, x)
        >>> y.shape
        (7, 2, 10)
    """

    default_name = "milstm_with_attention"
    decoder_class = MILSTMCell


SMALL = 1e-8  # added where lengths and sums of weights may be zero
NUMBERS = (1, 1, 3, 1)  # how many numbers a head has of each: strength, gate, shift, power


@register_cell
class NTMCell(ShapedCell):
    """Neural Turing machine: an LSTM with a memory. One head reads the memory, another one writes to it.

    The LSTM reads x and the vector that was read before. Its parts are in LSTM's order::

        i, f, o, g = split(x @ i2h_w.T + i2h_b + concat([h_prev, s_prev]) @ gates_t_w.T, 4)
        c = sigmoid(f + forget_bias) * c_prev + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    `h @ heads_w.T + heads_b` has the numbers of the reading head, then those of the writing head. Each head has the key
    `[width]`, the strength, the gate, the shift `[3]` and the power. Last come the numbers that are erased and those
    that are added, `[width]` each. A head's place in a memory M follows from its place before, `w_prev`::

        content = softmax(softplus(strength) * cosine(tanh(key), M))
        mixed = sigmoid(gate) * content + (1 - sigmoid(gate)) * w_prev
        shifted = mixed moved round by -1, 0 and 1 slots, weighted by softmax(shift)
        w = shifted ** (1 + softplus(power)), over its sum

    The writing head finds its place in `M_prev`, the reading head in M::

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

    The output is `y [N, H + width]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [4H, H + width]`, `heads_w [4 width + 12, H]`: xavier
    - `i2h_b [4H]`, `heads_b [4 width + 12]`: zeros

    Args:
        slots: rows of the memory.
        width: features of a row.
        forget_bias: added to f.

    Raises:
        NetError: slots or width is not a size, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.NTMCell(3, 4, slots=6, width=5)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, states[5].shape
        ((7, 2, 9), (1, 2, 6, 5))
    """

    default_name: ClassVar[str] = "ntm"
    state_names = ("hidden_t", "cell_t", "memory_t", "reading_place_t", "writing_place_t", "seen_t")
    recurrent_params = ("gates_t_w", "heads_w", "heads_b")

    def __init__(self, input_size: int, hidden_size: int, *, slots: int = 16, width: int = 8, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.slots, self.width = count_of(slots, "slots", self.name), count_of(width, "width", self.name)

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        H, slots = (self.hidden_size,), (self.slots,)
        return [H, H, (self.slots, self.width), slots, slots, (self.width,)]

    def get_output_dim(self) -> int:
        return self.hidden_size + self.width

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
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

    def _controller(self, step: Step, x_t: Blob, h_prev: Blob, c_prev: Blob, extra: Extra) -> tuple[Blob, Blob]:
        H, size = self.hidden_size, len(GATES) * self.hidden_size
        gates = step.linear(x_t, self.input_name, self.input_size, size)
        gates = gates + step.product(h_prev, f"{self.name}/gates_t", H, size, extra)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        gate = gate_inputs(gates)
        c_t = sigmoid(gate["f"] + self.forget_bias) * c_prev + sigmoid(gate["i"]) * tanh(gate["g"])
        return sigmoid(gate["o"]) * tanh(c_t), c_t


def place(memory: Blob, before: Blob, key: Blob, strength: Blob, gate: Blob, shift: Blob, power: Blob) -> Blob:
    """The place of a head, `[N, slots]`: equations 5 to 9. Arguments are its numbers before their nonlinearity."""
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
