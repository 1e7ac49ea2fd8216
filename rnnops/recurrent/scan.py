"""`cell` and `scan`: a Python function of one step, and one line that runs it over sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from inspect import Parameter, signature
from typing import Any, NoReturn

import numpy as np

from rnnops.errors import RecurrentError, did_you_mean, named_arguments
from rnnops.net.blob import Blob, Operand
from rnnops.net.net import Net, common_net
from rnnops.ops.base import stop_gradient
from rnnops.ops.comparison import cast, where
from rnnops.ops.indexing import select_valid
from rnnops.ops.movement import squeeze
from rnnops.ops.shapes import shape
from rnnops.recurrent.op import recurrent_net
from rnnops.types import FLOATS, Array, dtype_name

LENGTHS, TIMESTEP = "seq_lengths", "timestep"  # inputs of a cell that is used with lengths=
STEPS = "steps"  # the input T of a cell that is used with truncate= and reverse=True
TIMESTEP_DTYPE = "int32"
OPTIONS = ("lengths", "reverse", "steps", "scope", "recompute", "state_shapes", "forward_only", "truncate")  # of `scan`
NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class CellFunction:
    """A step as a function of blobs. A call appends its ops to the net of these blobs, as a call of any function does.

    Args:
        function: a function of blobs, as `ro.cell` takes it.
        timestep: name of the argument that gets the number of the step; None if there is none.
        dtypes: argument -> dtype, of arguments that are not float.

    Attributes:
        net: the cell, for `recurrent_net`.
        sequences, states, parameters: names of its arguments, by kind.
        outputs: names of its results that are not states.
        fixed: names of arguments with defaults, which are not blobs.
    """

    def __init__(self, function: Callable[..., Any], timestep: str | None, dtypes: Mapping[str, str]) -> None:
        if not callable(function):
            problem = "a cell is made of a function of one step"
            raise RecurrentError(problem, wanted="def step(x, h, *, w): ...", came=type(function).__name__)
        update_wrapper(self, function)
        self.name = getattr(function, "__name__", type(function).__name__)
        if not isinstance(dtypes, Mapping):
            self.fail("dtypes is not a dict", wanted='dtypes={"ids": "int32"}', came=repr(dtypes)[:60])
        self.function, self.timestep, self.dtypes = function, timestep, dict(dtypes)
        self.arguments, self.parameters, self.fixed = self._told_apart()
        self.net = self._written(ends=False)
        returned = self.net.output_blobs
        self.states = tuple(name for name in self.arguments if name in returned)
        self.sequences = tuple(name for name in self.arguments if name not in returned)
        self.outputs = tuple(name for name in returned if name not in self.states)

    def fail(self, problem: str, blob: str | None = None, **details: Any) -> NoReturn:
        """Raise a RecurrentError that names the cell.

        Args:
            problem, blob, details: parts of the error.

        Raises:
            RecurrentError: always.
        """
        raise RecurrentError(problem, net=self.name, blob=blob, **details)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Append the ops of one step.

        Args:
            arguments, options: as the function takes them.

        Returns:
            What the function returns.
        """
        return self.function(*arguments, **options)

    def __repr__(self) -> str:
        kinds = ("sequences", "states", "parameters", "outputs")
        parts = [f"{kind} {', '.join(getattr(self, kind))}" for kind in kinds if getattr(self, kind)]
        return f"<cell {self.name}: {'; '.join(parts)}>"

    def __str__(self) -> str:
        return str(self.net)

    def _signature(self) -> Mapping[str, Parameter]:
        """Arguments of the function. Raises RecurrentError if Python does not know them."""
        try:
            return signature(self.function).parameters
        except (TypeError, ValueError):
            self.fail("the arguments of this function are not known", wanted="def step(x, h, *, w): ...")

    def _told_apart(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Three tuples of names: sequences and states; parameters; arguments with a default."""
        given = self._signature()
        for name, one in given.items():
            if one.kind not in NAMED:
                self.fail("a cell names each of its arguments", blob=name, wanted="no *args, no **kwargs, no /")
            if name in OPTIONS or (name in (LENGTHS, TIMESTEP) and name != self.timestep):
                self.fail("an argument has the name of an option of ro.scan", blob=name, hint="Give it another name.")
        kinds = {name: one.kind for name, one in given.items() if one.default is Parameter.empty}
        for name in (*self.dtypes, *([self.timestep] if self.timestep else [])):
            if name not in kinds:
                self.fail("the cell has no such argument", blob=name, wanted=", ".join(kinds))
        if dtype_name(self.dtypes.get(str(self.timestep), TIMESTEP_DTYPE)) != TIMESTEP_DTYPE:
            came = repr(self.dtypes[str(self.timestep)])
            self.fail("the timestep argument must be int32", blob=self.timestep, wanted=TIMESTEP_DTYPE, came=came)
        names = [name for name in kinds if name != self.timestep]
        arguments = tuple(name for name in names if kinds[name] is not Parameter.KEYWORD_ONLY)
        return (
            arguments,
            tuple(name for name in names if name not in arguments),
            tuple(name for name in given if name not in kinds),
        )

    def _written(self, ends: bool, truncate: int | None = None, reverse: bool = False) -> Net:
        """The net of a step, written by a new call of the function.

        Args:
            ends: whether the net has the inputs `seq_lengths` and timestep. Past a row's end states then stay, and
                other outputs are 0.
            truncate: gradients of states stop after this many steps; None if they do not stop.
            reverse: with `truncate`, the net also has the input `steps`.
        """
        net = Net(self.name)
        net.labels.in_functions = True  # the function has returned before the net is used
        blobs = {name: net.input(name, self.dtypes.get(name)) for name in (*self.arguments, *self.parameters)}
        steps = (
            {self.timestep or TIMESTEP: net.input(self.timestep or TIMESTEP, TIMESTEP_DTYPE)}
            if ends or truncate or self.timestep
            else {}
        )
        if truncate:
            (t,), T = steps.values(), net.input(STEPS, TIMESTEP_DTYPE) if reverse else None
            kept = truncated([blobs[name] for name in self.states], truncate, t, T)
            blobs.update(zip(self.states, kept, strict=True))
        returned = self._returned({**blobs, **(steps if self.timestep else {})})
        if ends:
            (t,), lengths = steps.values(), net.input(LENGTHS, "int32")
            returned = {
                name: select_valid(blob, blobs.get(name, blob), lengths, t, drop=name not in self.arguments)
                for name, blob in returned.items()
            }
        net.outputs(**returned)
        return net.snapshot()

    def _returned(self, blobs: Mapping[str, Blob]) -> dict[str, Blob]:
        """The result of the function. Raises RecurrentError for anything but a dict of blobs by name."""
        returned = self.function(**blobs)
        wanted = "dict(h=..., y=...): states under their arguments' names"
        if not isinstance(returned, Mapping) or not returned:
            self.fail("a cell returns its new states and outputs by name", wanted=wanted, came=type(returned).__name__)
        for name, value in returned.items():
            if not isinstance(name, str) or not isinstance(value, Blob):
                came = f"{type(name).__name__}: {type(value).__name__}"
                self.fail("a cell returns blobs by name", blob=str(name), wanted=wanted, came=came)
            if name in self.fixed:
                hint = f"Without one it starts from what ro.scan(..., {name}=) is given."
                self.fail("a state must have no default: a default is fixed for all steps", blob=name, hint=hint)
            if name in self.parameters or name == self.timestep:
                hint = "A state stands before the `*` of the arguments."
                self.fail("a parameter is not a state", blob=name, wanted=" or ".join(self.arguments), hint=hint)
        return dict(returned)


@partial(named_arguments, hints={name: f"{name}= is an option of ro.scan." for name in OPTIONS})
def cell(
    function: Callable[..., Any] | None = None,
    /,
    *,
    timestep: str | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> Any:
    """Make a cell of a function of one step, for `ro.scan`; a decorator, with options or without.

    Args:
        function: a function of blobs. Sequences and states are its first arguments, parameters stand after `*`. An
            argument with a default is a plain Python value. The function returns a dict: a state has the name of its
            argument, anything else is an output. It runs when the cell is made.
        timestep: name of an argument that gets the number of the step, int32 `[1]`.
        dtypes: argument -> dtype, of arguments that are not float.

    Returns:
        A `CellFunction`. A call with blobs appends its ops to their net. Its `net` is the cell for `ro.recurrent_net`;
        `print` shows this net.

    Raises:
        RecurrentError: the arguments or results of the function do not fit the rules above.

    Example:
        >>> @ro.cell
        ... def step(x, h, *, w_x, w_h):
        ...     return dict(h=ro.tanh(x @ w_x + h @ w_h))
        >>> step
        <cell step: sequences x; states h; parameters w_x, w_h>
        >>> step.sequences, step.states, step.parameters
        (('x',), ('h',), ('w_x', 'w_h'))
    """
    if function is None:
        return lambda written: CellFunction(written, timestep, dtypes or {})
    return CellFunction(function, timestep, dtypes or {})


Y = "y"  # the only output of a cell that returns one


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
    truncate: int | None = None,
    **bound: Operand,
) -> tuple[dict[str, Blob], Any]:
    """Step a cell over sequences: `states, ys = ro.scan(step, xs, h=h0)`.

    Args:
        cell: a cell that `ro.cell` made.
        sequences: `[T, N, ...]` each, in the order of the cell's arguments; or by name.
        lengths: `[N] int32`, a blob or an array: the number of steps of each row. After them a row's states stay, and
            its outputs are 0.
        reverse: run from the last step to the first.
        steps: T, if there is no sequence.
        scope: prefix of the names of results and parameters. Two layers of one cell need two scopes.
        recompute: `.named` blobs of the cell that the backward pass computes again.
        state_shapes: state -> sizes of its feature axes; needed if a state does not have exactly one.
        forward_only: there is no gradient, and nothing is kept for it.
        truncate: gradients of states do not flow back over the start of step k, 2k, ... in the order that steps run.
        bound: by argument: an initial state for each state, `[N, ...]` or `[D]`, a blob or an array; sequences;
            parameters. A parameter that is not given is found in the net by its name, `<scope>/<name>` with a scope, or
            becomes an input of that name.

    Returns:
        `(last, steps)`. `last` is a dict of the last states, `[N, ...]`. `steps` has all steps, `[T, N, ...]`. It is a
        blob where `y` is the only output besides states. Else it is a dict of the outputs besides states, or of the
        states where there are none.

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
        came, hint = type(cell).__name__, _cell_hint(cell)
        raise RecurrentError("this is not a cell", wanted="what ro.cell makes", came=came, hint=hint)
    over = _sequences(cell, sequences, bound)
    _check_names(cell, bound)
    net = common_net([*over.values(), *bound.values(), lengths])
    given = {name: net.operands([value], cell.dtypes.get(name))[0] for name, value in bound.items()}
    stepped, ends = _ending(net, cell, over, lengths, truncate, reverse, steps)
    results = recurrent_net(
        net,
        stepped,
        inputs=list(over.items()),
        initial_cell_inputs=[(name, given[name]) for name in cell.states],
        links={name: name for name in cell.states},
        timestep=cell.timestep or (None if stepped is cell.net else TIMESTEP),
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
    return BlobsByName(cell, last), _steps(cell, every)


class BlobsByName(dict[str, Blob]):
    """Results of a scan by name. An unknown name is an error that lists the names."""

    def __init__(self, cell: CellFunction, results: Mapping[str, Blob]) -> None:
        super().__init__(results)
        self._cell = cell

    def __missing__(self, name: str) -> NoReturn:
        hint = _not_returned(name) if name in self._cell.sequences else did_you_mean(name, self)
        self._cell.fail("the scan has no such result", blob=str(name), wanted=", ".join(self) or "none", hint=hint)


def _sequences(cell: CellFunction, given: Sequence[Blob], bound: dict[str, Operand]) -> dict[str, Blob]:
    """Sequences by name. Takes those that are given by name out of `bound`. Raises RecurrentError for too many or too
    few."""
    named = {name: bound.pop(name) for name in cell.sequences if name in bound}
    left = [name for name in cell.sequences if name not in named]
    if len(given) != len(left):
        wanted = ", ".join(left) or "none"
        hint = (
            f"States go by name: {', '.join(f'{name}=' for name in cell.states)}." if len(given) > len(left) else None
        )
        cell.fail("wrong number of sequences", wanted=f"{len(left)} ({wanted})", came=len(given), hint=hint)
    found = {**dict(zip(left, given, strict=True)), **named}
    for name, blob in found.items():
        if not isinstance(blob, Blob):
            cell.fail("a sequence is not a blob", blob=name, came=type(blob).__name__, hint=_not_returned(name))
    return {name: found[name] for name in cell.sequences}  # type: ignore[misc]


def _not_returned(name: str) -> str:
    """The hint for an argument that may be meant as a state."""
    is_sequence = f"The cell does not return '{name}', so it is a sequence."
    return f"{is_sequence} A state is returned: dict({name}=...). A parameter stands after `*`."


def truncated(states: Sequence[Blob], every: int, t: Blob, steps: Blob | None) -> list[Blob]:
    """The states of a step. Gradients do not pass through them at steps `every`, `2 * every`, ...

    Args:
        t: `[1] int32`, the number of the step.
        steps: `[1] int32`, T; None if steps run from the first to the last.
    """
    ran = t if steps is None else steps - 1 - t
    is_border = (ran % every == 0) & (ran > 0)
    return [where(is_border, stop_gradient(h), h) if h.dtype in FLOATS else h for h in states]


def steps_of(sequence: Blob) -> Blob:
    """T as `[1] int32`."""
    return cast(shape(sequence, 0, 1), TIMESTEP_DTYPE)


def _ending(
    net: Net, cell: CellFunction, over: Mapping[str, Blob], lengths: Any, truncate: Any, reverse: bool, steps: Any
) -> tuple[Net, dict[str, Blob]]:
    """The net of the cell for these options, and the blobs for its inputs `seq_lengths` and `steps`."""
    if truncate is not None and (not isinstance(truncate, int) or isinstance(truncate, bool) or truncate < 1):
        cell.fail("truncate= is not a number of steps", wanted="an integer of 1 or more", came=repr(truncate)[:60])
    if lengths is None and truncate is None:
        return cell.net, {}
    read = {} if lengths is None else {LENGTHS: _lengths(net, cell, lengths)}
    if truncate is not None and reverse:
        number = np.array([steps or 0])  # without sequences and steps, `recurrent_net` raises an error later
        known = [steps_of(blob) for blob in over.values()][:1] or net.operands([number], TIMESTEP_DTYPE)
        read[STEPS] = known[0]
    return cell._written(lengths is not None, truncate, reverse), read


def _lengths(net: Net, cell: CellFunction, lengths: Blob | Array) -> Blob:
    """The lengths of rows as a blob. Raises RecurrentError if it is not int32."""
    (blob,) = net.operands([lengths], "int32")
    if blob.dtype != "int32":
        hint = f'Declare it as net.input("{blob.name}", "int32"); arrays of any integers are fed to that.'
        cell.fail("lengths have another dtype", blob=blob.name, wanted="int32", came=blob.dtype, hint=hint)
    return blob


def _parameters(net: Net, cell: CellFunction, given: Mapping[str, Blob], scope: str | None) -> dict[str, Blob]:
    """Parameters of the cell that are given. With a scope, also all others: blobs named `<scope>/<name>`, which become
    new inputs if the net does not have them."""
    found = {name: given[name] for name in cell.parameters if name in given}
    for name in cell.parameters if scope else ():
        if name not in found:
            own = net.scoped(f"{scope}/{name}")
            there = own in net and net.is_capturable(own)
            found[name] = net.blob(own) if there else net.input(f"{scope}/{name}", cell.dtypes.get(name))
    return found


def _cell_hint(value: object) -> str:
    """A hint for a value that is given instead of a cell."""
    if isinstance(value, Net):
        return f"Give {value.name} in place of {value.name}.net: ro.scan takes cells, ro.recurrent_net takes nets."
    if hasattr(value, "apply_over_sequence"):
        return "Ready cells step by cell.apply_over_sequence(net, xs)."
    return "Put @ro.cell before the function."


def _check_names(cell: CellFunction, bound: Mapping[str, Operand]) -> None:
    """Raise RecurrentError for unknown arguments, and for states without an initial value."""
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
    """A hint for an argument that has a default, and is given to a scan."""
    made = f"make the cell in a function of it, def make({name}): ... return ro.cell({cell.name})"
    hint = f"Its '{name}' has a default, which is read when the cell is made. For other values {made}."
    return hint if name in cell.fixed else None


def _steps(cell: CellFunction, every: Mapping[str, Blob]) -> Any:
    """The second result of a scan."""
    if cell.outputs == (Y,):
        return every[Y]
    return BlobsByName(cell, {name: every[name] for name in cell.outputs or cell.states})
