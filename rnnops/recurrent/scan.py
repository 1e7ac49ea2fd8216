"""`scan`: a cell that was written as a function, stepped over sequences; `recurrent_net` in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnops.arguments import did_you_mean, named_arguments
from rnnops.blob import Blob, Operand
from rnnops.errors import RecurrentError
from rnnops.net import Net, common_net
from rnnops.ops import squeeze
from rnnops.recurrent.build import recurrent_net
from rnnops.recurrent.cell_function import LENGTHS, TIMESTEP, CellFunction
from rnnops.types import Array

Y = "y"  # the output that stands alone


@named_arguments
def scan(
    cell: CellFunction,
    /,
    *sequences: Blob,
    lengths: Blob | Array | None = None,
    reverse: bool = False,
    steps: int | None = None,
    scope: str | None = None,
    recompute: str | Sequence[str] = (),
    state_shapes: Mapping[str, Sequence[int]] | None = None,
    forward_only: bool = False,
    **bound: Operand,
) -> tuple[dict[str, Blob], Any]:
    """Step a cell over sequences: `states, ys = ro.scan(step, xs, h=h0)`.

    Args:
        cell: what `ro.cell` made.
        sequences: `[T, N, ...]` each, in the order of the cell's arguments; or by name.
        lengths: `[N] int32`, a blob or an array, where rows end: past it a row's states stay, and its outputs are 0.
        reverse: from the last step to the first.
        steps: T, where there is no sequence.
        scope: prefix of the names of results and parameters: two layers of one cell have two scopes.
        recompute: blobs of the cell that were `.named`, which are computed again on the backward pass.
        state_shapes: state -> sizes of its feature axes, where they are not one axis.
        forward_only: no gradient, and nothing kept for one.
        bound: by argument: an initial state for each state, `[N, ...]` or `[D]`, a blob or an array; sequences;
            parameters. One that is not given is found in the net by its name, `<scope>/<name>` with a scope, or becomes
            an input of that name.

    Returns:
        The last states `[N, ...]` by name, and all steps `[T, N, ...]` of what the cell returned as `y`; of all it
        returned
        besides states, by name, where that is more or other than `y`; of its states, by name, where it is nothing.

    Raises:
        RecurrentError: arguments do not fit the cell.
        NetError: none of the arguments is a blob, they are of several nets, or a name is taken.
        TypeRuleError: once shapes are known, they do not fit the cell.

    Example:
        >>> @ro.cell
        ... def smooth(x, h, *, a):
        ...     return dict(h=a * h + (1.0 - a) * x)
        >>> net = ro.Net("n")
        >>> last, every = ro.scan(smooth, net.input("xs"), h=net.input("h0"))
        >>> net.outputs(h=every["h"], last=last["h"])
        >>> feeds = {"xs": np.ones((3, 1, 1)), "h0": np.zeros((1, 1)), "a": np.array(0.5)}
        >>> {name: array.ravel() for name, array in ro.compile(net, device="reference")(feeds).items()}
        {'h': array([0.5  , 0.75 , 0.875]), 'last': array([0.875])}
    """
    if not isinstance(cell, CellFunction):
        hint = "Put @ro.cell before the function; ro.recurrent_net steps nets."
        raise RecurrentError("this is no cell", wanted="what ro.cell makes", came=type(cell).__name__, hint=hint)
    over = _sequences(cell, sequences, bound)
    _check_names(cell, bound)
    net = common_net([*over.values(), *bound.values(), lengths])
    given = {name: net.operands([value], cell.dtypes.get(name))[0] for name, value in bound.items()}
    ends = {} if lengths is None else {LENGTHS: _lengths(net, cell, lengths)}
    results = recurrent_net(
        net,
        cell.net if lengths is None else cell.with_ends(),
        inputs=list(over.items()),
        initial_cell_inputs=[(name, given[name]) for name in cell.states],
        links={name: name for name in cell.states},
        timestep=cell.timestep or (TIMESTEP if ends else None),
        scope=scope,
        recompute_blobs_on_backward=recompute,
        forward_only=forward_only,
        references={**_parameters(net, cell, given, scope), **ends},
        steps=steps,
        reverse=reverse,
        state_shapes=state_shapes,
    )
    every = dict(zip((*cell.states, *cell.outputs), results[::2], strict=True))
    last = {name: squeeze(blob, [0]) for name, blob in zip(cell.states, results[1::2], strict=False)}
    return last, _steps(cell, every)


def _sequences(cell: CellFunction, given: Sequence[Blob], bound: dict[str, Operand]) -> dict[str, Blob]:
    """Sequences by name, those given by name taken out of what is bound. Raises RecurrentError for more or fewer."""
    named = {name: bound.pop(name) for name in cell.sequences if name in bound}
    left = [name for name in cell.sequences if name not in named]
    if len(given) != len(left):
        wanted = ", ".join(left) or "none"
        hint = (
            f"States go by name: {', '.join(f'{name}=' for name in cell.states)}." if len(given) > len(left) else None
        )
        cell.fail("other sequences than the cell has", wanted=f"{len(left)} ({wanted})", came=len(given), hint=hint)
    found = {**dict(zip(left, given, strict=True)), **named}
    for name, blob in found.items():
        if not isinstance(blob, Blob):
            hint = f"The cell does not return '{name}', so it is a sequence. A state is returned: dict({name}=...)."
            cell.fail("a sequence is no blob", blob=name, came=type(blob).__name__, hint=hint)
    return {name: found[name] for name in cell.sequences}  # type: ignore[misc]


def _lengths(net: Net, cell: CellFunction, lengths: Blob | Array) -> Blob:
    """Where rows end, as a blob. Raises RecurrentError for one of another dtype."""
    (blob,) = net.operands([lengths], "int32")
    if blob.dtype != "int32":
        hint = f'Declare it as net.input("{blob.name}", "int32"); arrays of any integers are fed to that.'
        cell.fail("lengths are of another dtype", blob=blob.name, wanted="int32", came=blob.dtype, hint=hint)
    return blob


def _parameters(net: Net, cell: CellFunction, given: Mapping[str, Blob], scope: str | None) -> dict[str, Blob]:
    """Parameters that are given, and those of a scope: another layer's, of a plain name, are none of them."""
    found = {name: given[name] for name in cell.parameters if name in given}
    for name in cell.parameters if scope else ():
        if name not in found:
            own = net.scoped(f"{scope}/{name}")
            there = own in net and net.is_capturable(own)
            found[name] = net.blob(own) if there else net.input(f"{scope}/{name}", cell.dtypes.get(name))
    return found


def _check_names(cell: CellFunction, bound: Mapping[str, Operand]) -> None:
    """Raise RecurrentError for arguments that the cell has not, and for states without a value to start from."""
    known = (*cell.sequences, *cell.states, *cell.parameters)
    for name in bound:
        if name not in known:
            hint = _fixed_hint(cell, name) or did_you_mean(name, known)
            cell.fail("the cell has no such argument", blob=name, wanted=", ".join(known), hint=hint)
    missing = [name for name in cell.states if name not in bound]
    if missing:
        hint = f"Give {', '.join(f'{name}=' for name in missing)}, such as net.input or zeros of [N, D]."
        cell.fail("a state has no initial value", blob=missing[0], wanted="an array or a blob", hint=hint)


def _fixed_hint(cell: CellFunction, name: str) -> str | None:
    """What to do where an argument with a default is given."""
    made = f"make the cell in a function of it, def make({name}): ... return ro.cell({cell.name})"
    hint = f"Its '{name}' has a default, which is read when the cell is made. For other values {made}."
    return hint if name in cell.fixed else None


def _steps(cell: CellFunction, every: Mapping[str, Blob]) -> Any:
    """All steps of what a scan gives as its second result."""
    if cell.outputs == (Y,):
        return every[Y]
    return {name: every[name] for name in cell.outputs or cell.states}
