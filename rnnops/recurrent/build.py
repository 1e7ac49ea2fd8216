"""`recurrent_net`: binds a cell to blobs of an outer net and appends the RecurrentNetwork op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnops.arguments import named_arguments
from rnnops.blob import Blob
from rnnops.errors import RecurrentError
from rnnops.net import Net
from rnnops.recurrent import op as _op
from rnnops.recurrent.binder import Binder
from rnnops.recurrent.recurrence import Link

Binding = Sequence[tuple[str, Blob]]


@named_arguments
def recurrent_net(
    net: Net,
    cell_net: Net,
    inputs: Binding,
    initial_cell_inputs: Binding,
    links: Mapping[str, str | Link],
    timestep: str | None = None,
    scope: str | None = None,
    outputs_with_grads: Sequence[int | str] | None = None,
    recompute_blobs_on_backward: str | Blob | Sequence[str | Blob] | None = None,
    forward_only: bool = False,
    *,
    references: Mapping[str, Blob] | None = None,
    steps: int | None = None,
    reverse: bool = False,
    state_shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> tuple[Blob, ...]:
    """Step a cell over time, as `ro.scan` does: for t = 0..T-1 it reads `xs[t]` and its states, and writes its outputs.

    Args:
        net: that gets the recurrence.
        cell_net: a net of one step; later changes of it do not matter.
        inputs: (cell input, sequence `[T, N, ...]`), any number; the cell reads `[N, ...]`.
        initial_cell_inputs: (state input, initial value `[D]`, `[N, D]` or `[L, N, D]`), one for each state, in order.
        links: state input -> the cell output that it reads one step later, or a `ro.Link`.
        timestep: the cell input (int32) that gets `[t]`.
        scope: prefix of the results' names and of inputs made for the cell's references.
        outputs_with_grads: positions or names of results that may get a gradient; left out, all may.
        recompute_blobs_on_backward: cell blobs that are not stored but computed again on the backward pass.
        forward_only: the op has no gradient and keeps nothing.
        references: cell input -> outer blob; others are found by name (`<scope>/<name>`, then `<name>`) among inputs,
            parameters and `.named` blobs, else become new inputs of the outer net.
        steps: T, where no sequence says it.
        reverse: run from T-1 to 0; `_all[t]` still belongs to time t.
        state_shapes: state input -> sizes of its feature axes, where they are not one axis `D`; None for an open one.

    Returns:
        `<output>_all [T, N, ...], <output>_last [1, N, ...]` for each state in order, then for other outputs.

    Raises:
        RecurrentError: names, links, states or lists do not fit the cell.
        NetError: a blob is of another net, or a name is taken.
        TypeRuleError: once shapes are known, they do not fit the cell.

    Example:
        >>> cell = ro.Net("cell")
        >>> x, h = cell.inputs("x", "h")
        >>> cell.outputs(h_t=x + 0.5 * h)
        >>> net = ro.Net("n")
        >>> xs, h0 = net.inputs("xs", "h0")
        >>> h_all, h_last = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], links={"h": "h_t"})
        >>> net.outputs(y=h_all)
        >>> ro.compile(net, device="reference")({"xs": np.ones((3, 1, 1)), "h0": np.zeros((1, 1))})["y"][:, 0, 0]
        array([1.  , 1.5 , 1.75])
    """
    if not isinstance(net, Net):
        raise RecurrentError("the outer net is no net", wanted="a ro.Net", came=type(net).__name__)
    binder = Binder(net, cell_net, scope)
    sequences = binder.bind(binder.listed("inputs", inputs), "sequence")
    initials = binder.bind(binder.listed("initial_cell_inputs", initial_cell_inputs), "initial state")
    states = binder.states(initials, binder.table("links", links), binder.table("state_shapes", state_shapes or {}))
    binder.take_timestep(timestep)
    bound = binder.references(binder.table("references", references or {}))
    outputs = binder.output_names(states)
    attributes = {
        "cell": binder.cell,
        "inputs": tuple(sequences),
        "states": states,
        "references": tuple(bound),
        "timestep": timestep,
        "steps": binder.checked_steps(steps),
        "reverse": binder.flag("reverse", reverse) or None,
        "recompute": binder.recompute(recompute_blobs_on_backward, states),
        "outputs_with_grads": binder.with_grads(outputs_with_grads, outputs),
        "forward_only": binder.flag("forward_only", forward_only) or None,
    }
    binder.check_reverse(reverse, states)
    return _appended(net, [*sequences.values(), *initials.values(), *bound.values()], attributes, binder, outputs)


def _appended(
    net: Net, blobs: Sequence[Blob], attributes: Mapping[str, Any], binder: Binder, outputs: Sequence[str]
) -> tuple[Blob, ...]:
    """The results of the recurrence, less the attributes that say nothing."""
    told = {name: value for name, value in attributes.items() if value not in (None, ())}
    return net.append(_op.recurrent_network.name, blobs, told, binder.result_names(outputs))
