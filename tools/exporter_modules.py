"""Recurrent modules of PyTorch in all their variants: the cases of `tools.exporter_matrix`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

D, H, P = 32, 64, 16  # features of the inputs and the states, and those of a projection
KINDS: dict[str, Any] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


@dataclass(frozen=True)
class Case:
    """One module and one exporter.

    Args:
        form: `module` for PyTorch's own layers; else how a cell of one's own is repeated, whose states are one array.
        states: whether initial states are inputs; projected: whether the LSTM has proj_size.
    """

    exporter: str
    form: str
    kind: str
    layers: int = 1
    directions: int = 1
    batch_first: bool = False
    projected: bool = False
    states: bool = False
    packed: bool = False

    def __str__(self) -> str:
        words = [self.exporter, self.form, self.kind, f"{self.layers}x{self.directions}"]
        flags = ("batch_first", "projected", "states", "packed")
        return " ".join([*words, *(flag for flag in flags if getattr(self, flag))])

    @property
    def open_axes(self) -> dict[str, dict[int, str]]:
        """Input -> its open axes."""
        found = {"x": {0: "N", 1: "T"} if self.batch_first else {0: "T", 1: "N"}}
        states = ("h", "c")[: self.count_of_states] if self.form == "module" else ("h",)
        found |= {name: {1: "N"} for name in states}
        return found | ({"lengths": {0: "N"}} if self.packed else {})

    @property
    def count_of_states(self) -> int:
        return (1 + (self.kind == "LSTM")) * self.states

    def feeds(self, t: int, n: int) -> dict[str, torch.Tensor]:
        """Inputs of a run."""
        rows = self.layers * self.directions if self.form == "module" else self.count_of_states
        shapes = {"x": (n, t, D) if self.batch_first else (t, n, D), "h": (rows, n, P if self.projected else H)}
        shapes["c"] = (rows, n, H)
        lengths = torch.arange(t, t - n, -1)
        return {name: lengths if name == "lengths" else torch.randn(shapes[name]) for name in self.open_axes}


def all_cases() -> Iterator[Case]:
    """The matrix."""
    flags = (False, True)
    for exporter, kind in itertools.product(("dynamo", "script"), KINDS):
        for layers, directions, *more in itertools.product((1, 2), (1, 2), flags, flags, flags, flags):
            if kind == "LSTM" or not more[1]:
                yield Case(exporter, "module", kind, layers, directions, *more)
        for form in FORMS_OF[exporter]:
            yield Case(exporter, form, kind, states=True)


class Layers(nn.Module):
    """Layers of PyTorch as a case says; the results are y and the last states."""

    def __init__(self, case: Case, rnn: nn.Module | None = None) -> None:
        super().__init__()
        more = {"proj_size": P} if case.projected else {}
        options = {"batch_first": case.batch_first, "bidirectional": case.directions == 2, **more}
        self.rnn, self.case = rnn or KINDS[case.kind](D, H, case.layers, **options), case

    def forward(self, x: Any, h: Any = None, c: Any = None, lengths: Any = None) -> Any:
        states = h if c is None else (h, c)
        if lengths is not None:
            x = pack_padded_sequence(x, lengths, batch_first=self.case.batch_first)
        y, last = self.rnn(x, states)
        y = y if lengths is None else pad_packed_sequence(y, batch_first=self.case.batch_first)[0]
        return y, *(last if isinstance(last, tuple) else (last,))


class Loop(nn.Module):
    """A cell of one's own with the weights of a layer of PyTorch, in a Python loop; subclasses repeat it otherwise."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.rnn, self.kind, self.count = KINDS[case.kind](D, H), case.kind, case.count_of_states
        self.w, self.r, self.b, self.rb = self.rnn.all_weights[0]

    def step(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The states after a step; c stays as it is where the cell has none."""
        w, r = x @ self.w.t() + self.b, h @ self.r.t() + self.rb
        if self.kind == "RNN":
            return torch.tanh(w + r), c
        if self.kind == "GRU":
            w_r, w_z, w_n = w.chunk(3, 1)
            r_r, r_z, r_n = r.chunk(3, 1)
            z = torch.sigmoid(w_z + r_z)
            return (1.0 - z) * torch.tanh(w_n + torch.sigmoid(w_r + r_r) * r_n) + z * h, c
        i, f, g, o = (w + r).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h, c, steps = h[0], h[-1], []
        for t in range(x.size(0)):
            h, c = self.step(x[t], h, c)
            steps.append(h)
        return torch.stack(steps), torch.stack([h, c][: self.count])


def copies(states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """States, none of which is a view: loops of PyTorch refuse these."""
    return tuple(states[k].clone() for k in range(states.size(0)))


class WhileLoop(Loop):
    """The same as `while_loop`, which writes in an array of all steps."""

    def forward(self, x: Any, h: Any) -> Any:
        def body(t: Any, steps: Any, *states: Any) -> Any:
            x_t = torch.index_select(x, 0, t.reshape(1)).squeeze(0)
            states = self.step(x_t, states[0], states[-1])[: self.count]
            return t + 1, torch.index_put(steps, (t,), states[0]), *states

        start = torch.tensor(0), x.new_zeros(x.size(0), x.size(1), H), *copies(h)
        _, steps, *last = torch.while_loop(lambda t, *_: t < x.size(0), body, start)
        return steps, torch.stack(last)


class Scan(Loop):
    """The same as `scan`."""

    def forward(self, x: Any, h: Any) -> Any:
        def body(states: Any, x_t: Any) -> Any:
            states = self.step(x_t, states[0], states[-1])[: self.count]
            return states, states[0].clone()

        last, steps = scan(body, copies(h), x)
        return steps, torch.stack(last)


FORMS = {"module": Layers, "loop": Loop, "while_loop": WhileLoop, "scan": Scan, "scripted_loop": Loop}
FORMS_OF = {"dynamo": ("loop", "while_loop", "scan"), "script": ("loop", "scripted_loop")}
