"""Nets of the benchmark by name: a cell over a sequence, the shapes of what it is fed, and what comes out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import rnnops as ro
from bench import cells, large_cells
from bench.problems import ENCODER_STEPS, Problem, Shape, Size
from bench.random_cells import RandomCell

RANDOM = "random_"
INTEGERS = ("seq_lengths", "t")
ENCODER = ("encoder", "w_encoder", "b_encoder")  # what is read before all steps, and what is made of it
ENCODED = ("encoder_rows", "weighted_rows")


@dataclass(frozen=True)
class State:
    """A state of a cell: `previous` in, `new` out, starts as `initial`.

    Args:
        output: what it is called outside; all of it with `whole`, else its last step. Empty where it stays inside.
    """

    previous: str
    new: str
    initial: str
    output: str
    whole: bool = True


H, C = State("h_prev", "h_t", "h0", "y"), State("c_prev", "c_t", "c0", "c_last", whole=False)
CONTEXT = State("context_prev", "context_t", "context0", "context")
REMEMBERED = (
    State("memory", "remembered", "h0", "y"),
    State("carry", "carried", "c0", "c_last", whole=False),
)


@dataclass(frozen=True)
class UserNet:
    """A cell and how it is stepped.

    Args:
        cell: of `cells.py`, or a step net that is made in another way.
        matrices: parameters with H rows, and their columns in H; one column for 0. `vectors`: the others, in H.
        sequences: cell input -> sequence.
    """

    cell: Callable[..., Any]
    matrices: Mapping[str, int]
    vectors: Mapping[str, int]
    states: tuple[State, ...] = (H, C)
    sequences: Mapping[str, str] = field(default_factory=lambda: {"x_t": "xs"})

    @property
    def differentiated(self) -> tuple[str, ...]:
        """The outputs that get a gradient."""
        return tuple(state.output for state in self.states if state.whole)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of what the cell takes: a step of each sequence, states, all else."""
        taken = list(inspect.signature(self.cell).parameters.values())[1:]
        if not taken or taken[-1].kind is not taken[-1].VAR_POSITIONAL:
            return tuple(one.name for one in taken)
        return (*self.sequences, *(state.previous for state in self.states), *self.parameters(1))

    @property
    def others(self) -> tuple[str, ...]:
        """What it takes beside sequences and states."""
        return self.inputs[len(self.sequences) + len(self.states) :]

    @property
    def encoder(self) -> bool:
        return "encoder_rows" in self.others

    @property
    def lengths(self) -> bool:
        return "seq_lengths" in self.others

    def parameters(self, H: int) -> dict[str, Shape]:
        matrices: dict[str, Shape] = {name: (H, columns * H or 1) for name, columns in self.matrices.items()}
        return {**matrices, **{name: (columns * H,) for name, columns in self.vectors.items()}}

    def shapes(self, size: Size) -> dict[str, Shape]:
        """Of all feeds, by name."""
        sequences: dict[str, Shape] = dict.fromkeys(self.sequences.values(), (size.T, size.N, size.H))
        states: dict[str, Shape] = {state.initial: (size.N, size.H) for state in self.states}
        more: dict[str, Shape] = {"encoder": (ENCODER_STEPS, size.N, size.H)} if self.encoder else {}
        if self.lengths:
            more["seq_lengths"] = (size.N,)
        return {**sequences, **states, **self.parameters(size.H), **more}

    def step(self) -> ro.Net:
        """The cell as a net."""
        net = ro.Net(f"{self.cell.__name__}_step")
        given = [net.input(name, "int32" if name in INTEGERS else None) for name in self.inputs]
        new = self.cell(cells.RNNOPS, *given)
        net.outputs(**{state.new: blob for state, blob in zip(self.states, new, strict=True)})
        return net

    def build(self, name: str, recompute: tuple[str, ...]) -> ro.Net:
        """The outer net."""
        net, cell = ro.Net(name), self.step()
        references = {}
        if self.encoder:
            references = dict(zip(ENCODED, cells.encoder_rows(cells.RNNOPS, *net.inputs(*ENCODER)), strict=True))
        results = ro.recurrent_net(
            net,
            cell,
            inputs=[(inner, net.inputs(outer)) for inner, outer in self.sequences.items()],
            initial_cell_inputs=[(state.previous, net.inputs(state.initial)) for state in self.states],
            links={state.previous: state.new for state in self.states},
            timestep="t" if self.lengths else None,
            recompute_blobs_on_backward=list(recompute),
            references=references,
        )
        for k, state in enumerate(self.states):
            if state.output:
                net.outputs(**{state.output: results[2 * k if state.whole else 2 * k + 1]})
        return net


class RandomNet(UserNet):
    """A net of a random cell, which makes its step by itself."""

    def step(self) -> ro.Net:
        net: ro.Net = self.cell().net
        return net


FOUR, FIVE = {"w_x": 4, "w_h": 4}, dict.fromkeys(("b_x", "b_h", "alpha", "beta1", "beta2"), 4)
DECODER = {**FOUR, "w_context": 4, "w_query": 1, "w_encoder": 1, "v": 0}


def short(cell: Callable[..., Any], states: int, matrices: str, columns: int, **vectors: int) -> UserNet:
    """A net of a cell that is timed until its first results; only its first state comes out."""
    _, sequence, *names = inspect.signature(cell).parameters
    starts = zip(names[:states], ("h0", "c0", "norm0", "top0"), ("y", "", "", ""), strict=False)
    inside = tuple(State(name, f"new_{name}", initial, output, bool(output)) for name, initial, output in starts)
    return UserNet(cell, dict.fromkeys(matrices.split(), columns), vectors, inside, {sequence: "xs"})


NETS = {
    "lstm": UserNet(cells.lstm, FOUR, {"b": 4}),
    "lstm_with_lengths": UserNet(cells.lstm_with_lengths, FOUR, {"b": 4}),
    "milstm": UserNet(cells.milstm, FOUR, {"b": 4, **FIVE}),
    "layer_norm_lstm": UserNet(cells.layer_norm_lstm, FOUR, {"b": 4, "scale": 4, "shift": 4}),
    "gru": UserNet(cells.gru, {"w_x": 3, "w_h": 3}, {"b_x": 3, "b_h": 3}, (H,)),
    "coupled": UserNet(cells.coupled, {"w_x": 3, "w_h": 3}, {"b": 3}),
    "attention_decoder": UserNet(
        cells.attention_decoder, DECODER, {"b": 4, "b_query": 1, "b_encoder": 1}, (H, C, CONTEXT)
    ),
    "renamed": UserNet(cells.renamed, {"kernel": 4, "recurrent": 4}, {"offset": 4}, REMEMBERED, {"seen": "xs"}),
    "permuted": UserNet(cells.permuted, FOUR, {"b": 4}),
    "softsign": UserNet(cells.softsign, FOUR, {"b": 4}),
    "one_more_op": UserNet(cells.one_more_op, FOUR, {"b": 4}),
    "second_sequence": UserNet(
        cells.second_sequence, {**FOUR, "w_z": 4}, {"b": 4}, sequences={"x_t": "xs", "z_t": "zs"}
    ),
}
FIRST = {
    "RNN": short(cells.rnn, 1, "w w_h", 1, b=1),
    "LSTM": short(cells.lstm, 2, "w_x w_h", 4, b=4),
    "peephole LSTM": short(cells.peephole_lstm, 2, "w w_h", 4, b=4, p=1, q=1),
    "layer norm LSTM": short(cells.normalized_lstm, 2, "w w_h", 4, b=4, scale=4),
    "MILSTM": short(cells.plain_milstm, 2, "w w_h", 4, b=4, alpha=4, beta=4),
    "sLSTM": short(cells.slstm, 4, "w w_h", 4, b=4),
    "minimal gated unit": short(cells.minimal_gated, 1, "w w_v w_h w_q", 1),
    "GRU": short(cells.gru_of_six, 1, "w w_v w_y w_h w_q w_s", 1),
    "independent RNN": short(cells.independent, 1, "w", 1, p=1, b=1),
    "attentive RNN": short(cells.attentive, 1, "w w_h w_q w_s", 1),
}


def layered(cell: Callable[..., Any], count: int, states: int, matrices: str, columns: int, vectors: str) -> UserNet:
    """A net of a cell of many layers; only its last state comes out."""
    numbered = [f"{k:03}" for k in range(count)]
    inside = tuple(
        State(f"h{k}", f"new_h{k}", f"h0_{k}", "" if k < states - 1 else "y", k == states - 1) for k in range(states)
    )
    of_kinds = ({f"{kind}{k}": columns for kind in kinds.split() for k in numbered} for kinds in (matrices, vectors))
    return UserNet(cell, *of_kinds, inside)


MANY_OPS = {
    "100 Linear and tanh": layered(large_cells.chained_linear, large_cells.LINEARS, 1, "w", 1, "b"),
    "300 elementwise ops": UserNet(
        large_cells.elementwise, {}, {"p": 1}, (State("h", "new_h", "h0", "y"),), {"x": "xs"}
    ),
    "30 GRUs": layered(large_cells.stacked_gru, large_cells.LAYERS, large_cells.LAYERS, "w_x w_h", 3, "b_x b_h"),
}


@cache
def user_net(name: str) -> UserNet:
    """A net of the tables, or `random_<seed>`."""
    return (
        random_net(int(name.removeprefix(RANDOM))) if name.startswith(RANDOM) else {**NETS, **FIRST, **MANY_OPS}[name]
    )


def random_net(seed: int) -> UserNet:
    cell = RandomCell(seed)
    states = tuple(
        State(f"s{k}_prev", f"s{k}_t", initial, output)
        for k, (initial, output) in zip(range(len(cell.states)), (("h0", "y"), ("c0", "c")), strict=False)
    )
    vectors = {"b": cell.widths.pop("b")}
    return RandomNet(lambda: RandomCell(seed), cell.widths, vectors, states)


def build_net(problem: Problem) -> ro.Net:
    return user_net(problem.net).build(problem.net, problem.recompute)
