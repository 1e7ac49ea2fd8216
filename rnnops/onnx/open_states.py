"""States of a net's recurrences as inputs and outputs of the net, so that it can go on where it stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rnnops.net import Net
from rnnops.onnx.errors import OnnxError
from rnnops.op import Input, Op
from rnnops.recurrent.recurrence import Recurrence
from rnnops.scopes import free_name


@dataclass(frozen=True)
class OpenNet:
    """A net whose states are inputs and outputs.

    Args:
        net: the net.
        links: output -> the state that it is at the next call.
        closed: the net as it was, which gives last states, too, and, by the names of states, what they begin with.
    """

    net: Net
    links: dict[str, str]
    closed: Net


def open_states(net: Net) -> OpenNet:
    """A net with the states of its recurrences open.

    rewrite: `h_all, _ = RecurrentNetwork(x, zeros, ...)`  -->  `h_all, last = RecurrentNetwork(x, state, ...)`, with
    `state` an input of the net and `last` an output.

    Raises OnnxError where there are none, one reads its sequence backwards, or one reads several steps of a state.
    """
    taken = {*net.input_names, *net.output_blobs, *(name for op in net.ops for name in op.outputs)}
    links: dict[str, str] = {}
    initial: dict[str, str] = {}
    pairs = [_opened(op, net.name, taken, links, initial) for op in net.ops]
    if not links:
        raise OnnxError("it has no recurrence, so that no step follows from the one before")
    specs = [*net.input_specs, *(Input(name, net.dtype_of(blob)) for name, blob in initial.items())]
    outputs = {**net.output_blobs, **{name: name for name in links}}
    opened = net.with_ops([op for _, op in pairs], outputs, specs).snapshot()
    closed = net.with_ops([op for op, _ in pairs], {**outputs, **initial}).snapshot()
    return OpenNet(opened, links, closed)


def _opened(op: Op, net: str, taken: set[str], links: dict[str, str], initial: dict[str, str]) -> tuple[Op, Op]:
    """An op that gives its last states, and the same that begins with inputs of the net; others as they are.

    Args:
        taken: names that new ones must differ from; links, initial: where names of states go.
    """
    if op.type != "RecurrentNetwork":
        return op, op
    recurrence = Recurrence(op, net)
    if recurrence.reverse:
        hint = "Nothing streams it step by step: call it for whole sequences, or for windows of them."
        problem = "it reads its sequence backwards, so that its first step needs the last"
        raise OnnxError(problem, op=op.label, hint=hint)
    inputs, outputs, first = list(op.inputs), list(op.outputs), len(recurrence.sequences)
    for place, state in enumerate(recurrence.states):
        if state.window != 1 or state.offset not in (None, 0):
            raise OnnxError("it reads several steps of a state", op=op.label, blob=state.input)
        name = free_name(f"{op.key}/{state.input}", taken)
        last = outputs[2 * place + 1] = outputs[2 * place + 1] or free_name(f"{op.key}/{state.output}_last", taken)
        initial[name], inputs[first + place], links[last] = inputs[first + place], name, name
    giving = replace(op, outputs=tuple(outputs))
    return giving, replace(giving, inputs=tuple(inputs))
