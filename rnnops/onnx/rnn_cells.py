"""One step of ONNX's LSTM, GRU and RNN as cells.

Weights come transposed, `w [D, G H]` and `r [H, G H]` for G gates; the biases are sums or, for a GRU with
`linear_before_reset`, two. With lengths, `y` is zero past a row's end and states stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rnnops.blob import Blob
from rnnops.net import Net
from rnnops.onnx.activations import Activation
from rnnops.ops.extrema import clip
from rnnops.ops.movement import split
from rnnops.ops.select import select_valid

Gates = dict[str, Blob]


@dataclass(frozen=True)
class Kind:
    """What one of the three ops is made of.

    Args:
        states: their names; activations: names of the functions where the node gives none.
        write: writes a step, given the cell; returns the new states.
    """

    op: str
    states: tuple[str, ...]
    activations: tuple[str, ...]
    write: Callable[[Cell], Sequence[Blob]]


@dataclass
class Cell:
    """A cell while it is written.

    Args:
        functions: the activations; bound: names of its inputs beside x, states and lengths (`w`, `r`, `b`, ...).
        threshold: what the inputs of activations are clipped to, None for no clipping.
        input_forget: the forget gate of an LSTM is one minus its input gate.
        linear_before_reset: of a GRU: the product goes before the reset gate.
        layout: the node is batch-major, which the cell does not notice and its name tells.
    """

    kind: Kind
    functions: Sequence[Activation]
    bound: Sequence[str]
    lengths: bool = False
    threshold: float | None = None
    input_forget: bool = False
    linear_before_reset: bool = False
    layout: bool = False

    def build(self) -> Net:
        """The net of one step. Outputs are the states and, with lengths, `y`."""
        self.net = Net(self.title)
        self.x, *self.states = (self.net.input(name) for name in ("x", *map(previous, self.kind.states)))
        self.blobs: Gates = {name: self.net.input(name) for name in self.bound}
        new = self.kind.write(self)
        if self.lengths:
            new = self._masked(new)
        self.net.outputs(**dict(zip(self.kind.states, new, strict=True)))
        return self.net

    @property
    def title(self) -> str:
        """The cell's name, which says what it is: `LSTM Sigmoid Tanh Tanh clip=0.5`."""
        words = [self.kind.op, *map(str, self.functions)]
        words += [f"clip={self.threshold!r}"] if self.threshold is not None else []
        flags = {"input_forget": self.input_forget, "linear_before_reset": self.linear_before_reset}
        flags["layout"] = self.layout
        return " ".join([*words, *(name for name, on in flags.items() if on)])

    def act(self, i: int, x: Blob) -> Blob:
        """The i-th activation, of clipped x."""
        return self.functions[i](x if self.threshold is None else clip(x, -self.threshold, self.threshold))

    def biased(self, x: Blob, name: str) -> Blob:
        """x and a bias, where the cell has it."""
        return x + self.blobs[name] if name in self.blobs else x

    def peep(self, x: Blob, name: str, state: Blob) -> Blob:
        """x and a state through a peephole, where the cell has it."""
        return x + self.blobs[name] * state if name in self.blobs else x

    def _masked(self, new: Sequence[Blob]) -> list[Blob]:
        """States that stay what they were past a row's end; declares `y`, which is zero there."""
        lengths, t = self.net.input("sequence_lens", "int32"), self.net.input("timestep", "int32")
        y = select_valid(new[0], self.states[0], lengths, t, drop=1)
        kept = [select_valid(blob, old, lengths, t) for blob, old in zip(new, self.states, strict=True)]
        self.net.outputs(y=y)
        return kept


def previous(state: str) -> str:
    """The cell input that reads a state."""
    return f"{state}_prev"


def lstm(cell: Cell) -> Sequence[Blob]:
    """`c = f c' + i g`, `h = o h(c)`, with peepholes from c' to i and f, and from c to o."""
    h_prev, c_prev = cell.states
    gates = cell.biased(cell.x @ cell.blobs["w"] + h_prev @ cell.blobs["r"], "b")
    i, o, f, g = split(gates, 4, axis=-1)
    i = cell.act(0, cell.peep(i, "p_i", c_prev))
    f = 1.0 - i if cell.input_forget else cell.act(0, cell.peep(f, "p_f", c_prev))
    c = f * c_prev + i * cell.act(1, g)
    o = cell.act(0, cell.peep(o, "p_o", c))
    return o * cell.act(2, c), c


def gru(cell: Cell) -> Sequence[Blob]:
    """`h = (1 - z) g + z h'`, where the reset gate multiplies h' or, linear before reset, the product with it."""
    (h_prev,) = cell.states
    x_z, x_r, x_g = split(cell.biased(cell.x @ cell.blobs["w"], "b"), 3, axis=-1)
    if cell.linear_before_reset:
        h_z, h_r, h_g = split(cell.biased(h_prev @ cell.blobs["r"], "rb"), 3, axis=-1)
    else:
        h_z, h_r = split(h_prev @ cell.blobs["r_zr"], 2, axis=-1)
    z, r = cell.act(0, x_z + h_z), cell.act(0, x_r + h_r)
    g = cell.act(1, x_g + (r * h_g if cell.linear_before_reset else (r * h_prev) @ cell.blobs["r_g"]))
    return ((1.0 - z) * g + z * h_prev,)


def rnn(cell: Cell) -> Sequence[Blob]:
    """`h = f(x w + h' r + b)`."""
    (h_prev,) = cell.states
    return (cell.act(0, cell.biased(cell.x @ cell.blobs["w"] + h_prev @ cell.blobs["r"], "b")),)


KINDS = {
    "LSTM": Kind("LSTM", ("h", "c"), ("Sigmoid", "Tanh", "Tanh"), lstm),
    "GRU": Kind("GRU", ("h",), ("Sigmoid", "Tanh"), gru),
    "RNN": Kind("RNN", ("h",), ("Tanh",), rnn),
}


def has_title(name: str) -> bool:
    """Whether a cell's name is of the form that `Cell.title` gives."""
    kind, *words = name.split(" ")
    return kind in KINDS and len(words) >= len(KINDS[kind].activations)
