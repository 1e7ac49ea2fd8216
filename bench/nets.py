"""Nets of the benchmark by name: a cell over a sequence, the shapes of what it is fed, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import rnnops as ro
from bench import cells, variants
from bench.problems import ENCODER_STEPS, Arrays, Problem, Shape, Size, draw_feeds, draw_output_gradients
from bench.random_cells import RandomCell

RANDOM = "random_"


@dataclass(frozen=True)
class State:
    """A state of a cell: `previous` in, `new` out, starts as `initial`.

    Args:
        output: what it is called outside; all of it with `whole`, else its last step.
    """

    previous: str
    new: str
    initial: str
    output: str
    whole: bool = True


H, C = State("h_prev", "h_t", "h0", "y"), State("c_prev", "c_t", "c0", "c_last", whole=False)
CONTEXT = State("context_prev", "context_t", "context0", "context")
NO_REFERENCES: Callable[[ro.Net], Mapping[str, ro.Blob]] = lambda net: {}  # noqa: E731


@dataclass(frozen=True)
class UserNet:
    """A cell and how it is stepped.

    Args:
        step: makes the cell.
        parameters: (H) -> shapes by name.
        sequences: cell input -> sequence.
        references: appends what the outer net computes once for all steps; cell input -> blob.
    """

    step: Callable[[], ro.Net]
    parameters: Callable[[int], dict[str, Shape]]
    states: tuple[State, ...] = (H, C)
    sequences: Mapping[str, str] = field(default_factory=lambda: {"x_t": "xs"})
    references: Callable[[ro.Net], Mapping[str, ro.Blob]] = NO_REFERENCES
    encoder: bool = False
    lengths: bool = False

    @property
    def differentiated(self) -> tuple[str, ...]:
        """The outputs that get a gradient."""
        return tuple(state.output for state in self.states if state.whole)

    def shapes(self, size: Size) -> dict[str, Shape]:
        """Of all feeds, by name."""
        sequences: dict[str, Shape] = dict.fromkeys(self.sequences.values(), (size.T, size.N, size.H))
        states: dict[str, Shape] = {state.initial: (size.N, size.H) for state in self.states}
        more: dict[str, Shape] = {"encoder": (ENCODER_STEPS, size.N, size.H)} if self.encoder else {}
        if self.lengths:
            more["seq_lengths"] = (size.N,)
        return {**sequences, **states, **self.parameters(size.H), **more}

    def build(self, name: str, recompute: tuple[str, ...]) -> ro.Net:
        """The outer net."""
        net, cell = ro.Net(name), self.step()
        results = ro.recurrent_net(
            net,
            cell,
            inputs=[(inner, net.inputs(outer)) for inner, outer in self.sequences.items()],
            initial_cell_inputs=[(state.previous, net.inputs(state.initial)) for state in self.states],
            links={state.previous: state.new for state in self.states},
            timestep="t" if self.lengths else None,
            recompute_blobs_on_backward=list(recompute),
            references=self.references(net),
        )
        for k, state in enumerate(self.states):
            net.outputs(**{state.output: results[2 * k if state.whole else 2 * k + 1]})
        return net


def lstm_parameters(H: int) -> dict[str, Shape]:
    return {"w_x": (H, 4 * H), "w_h": (H, 4 * H), "b": (4 * H,)}


def milstm_parameters(H: int) -> dict[str, Shape]:
    biases: dict[str, Shape] = dict.fromkeys(("b_x", "b_h", "alpha", "beta1", "beta2"), (4 * H,))
    return {**lstm_parameters(H), **biases}


def layer_norm_lstm_parameters(H: int) -> dict[str, Shape]:
    return {**lstm_parameters(H), "scale": (4 * H,), "shift": (4 * H,)}


def gru_parameters(H: int) -> dict[str, Shape]:
    return {"w_x": (H, 3 * H), "b_x": (3 * H,), "w_h": (H, 3 * H), "b_h": (3 * H,)}


def renamed_parameters(H: int) -> dict[str, Shape]:
    return {"kernel": (H, 4 * H), "recurrent": (H, 4 * H), "offset": (4 * H,)}


def two_sequence_parameters(H: int) -> dict[str, Shape]:
    return {**lstm_parameters(H), "w_z": (H, 4 * H)}


def decoder_parameters(H: int) -> dict[str, Shape]:
    query: dict[str, Shape] = {"w_query": (H, H), "b_query": (H,), "v": (H, 1)}
    return {**lstm_parameters(H), "w_context": (H, 4 * H), **query, "w_encoder": (H, H), "b_encoder": (H,)}


def encoder_rows(net: ro.Net) -> dict[str, ro.Blob]:
    """The encoder [S, N, H] batch first, and the part of the energies that no step changes."""
    encoder, w_encoder, b_encoder = net.inputs("encoder", "w_encoder", "b_encoder")
    rows = ro.transpose(encoder, perm=[1, 0, 2])
    return {"encoder_rows": rows, "weighted_rows": rows @ w_encoder + b_encoder}


REMEMBERED = (
    State("memory", "remembered", "h0", "y"),
    State("carry", "carried", "c0", "c_last", whole=False),
)
NETS = {
    "lstm": UserNet(cells.lstm, lstm_parameters),
    "lstm_with_lengths": UserNet(cells.lstm_with_lengths, lstm_parameters, lengths=True),
    "milstm": UserNet(cells.milstm, milstm_parameters),
    "layer_norm_lstm": UserNet(cells.layer_norm_lstm, layer_norm_lstm_parameters),
    "gru": UserNet(cells.gru, gru_parameters, (H,)),
    "attention_decoder": UserNet(
        cells.attention_decoder, decoder_parameters, (H, C, CONTEXT), references=encoder_rows, encoder=True
    ),
    "renamed": UserNet(variants.renamed, renamed_parameters, REMEMBERED, {"seen": "xs"}),
    "permuted": UserNet(variants.permuted, lstm_parameters),
    "softsign": UserNet(variants.softsign, lstm_parameters),
    "one_more_op": UserNet(variants.one_more_op, lstm_parameters),
    "second_sequence": UserNet(variants.second_sequence, two_sequence_parameters, sequences={"x_t": "xs", "z_t": "zs"}),
}


@cache
def user_net(name: str) -> UserNet:
    """A net of the table, or `random_<seed>`."""
    return random_net(int(name.removeprefix(RANDOM))) if name.startswith(RANDOM) else NETS[name]


def random_net(seed: int) -> UserNet:
    cell = RandomCell(seed)
    states = tuple(
        State(f"s{k}_prev", f"s{k}_t", initial, output)
        for k, (initial, output) in zip(range(len(cell.states)), (("h0", "y"), ("c0", "c")), strict=False)
    )

    def parameters(H: int) -> dict[str, Shape]:
        widths = {name: parts * H for name, parts in cell.widths.items()}
        return {name: (width,) if name == "b" else (H, width) for name, width in widths.items()}

    return UserNet(lambda: RandomCell(seed).net, parameters, states)


def build_net(problem: Problem) -> ro.Net:
    return user_net(problem.net).build(problem.net, problem.recompute)


def make_feeds(problem: Problem) -> tuple[Arrays, Arrays]:
    """Feeds, and the gradients of outputs."""
    net = user_net(problem.net)
    feeds = draw_feeds(net.shapes(problem.size), problem.size)
    return feeds, draw_output_gradients(net.differentiated, feeds, problem.size)
