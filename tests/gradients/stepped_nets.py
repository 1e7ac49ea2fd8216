"""Small cells and the nets around them, for gradient checks of `recurrent_net`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rnnops as ro

T, N, D = 4, 3, 2


def plain_cell(name: str = "cell") -> ro.Net:
    """`h = tanh(x w + 0.5 h' u)` with references w and u."""
    cell = ro.Net(name)
    x_t, h_prev, w, u = cell.inputs("x_t", "h_prev", "w", "u")
    cell.outputs(h_t=ro.tanh((x_t @ w + (h_prev @ u) * 0.5).named("gates")))
    return cell


def stepped(
    cell: ro.Net,
    net: ro.Net | None = None,
    sequences: Sequence[tuple[str, ro.Blob]] | None = None,
    states: Sequence[str] = ("h_prev",),
    links: Any = None,
    **options: Any,
) -> ro.Net:
    """A net around one recurrence: `xs`, an initial value for each state, every result an output."""
    net = net or ro.Net("model")
    sequences = [("x_t", net.input("xs"))] if sequences is None else sequences
    initial = [(name, net.input(f"{name}_0")) for name in states]
    links = {"h_prev": "h_t"} if links is None else links
    results = ro.recurrent_net(net, cell, sequences, initial, links, **options)
    net.outputs(*results)
    return net


SHAPES = {"w": (D, D), "u": (D, D)}
