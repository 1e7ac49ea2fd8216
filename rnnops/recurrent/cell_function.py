"""`cell`: a Python function of one step as a cell net."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from inspect import Parameter, signature
from typing import Any, NoReturn

from rnnops.arguments import named_arguments
from rnnops.blob import Blob
from rnnops.errors import RecurrentError
from rnnops.net import Net
from rnnops.ops import select_valid
from rnnops.types import dtype_name

LENGTHS, TIMESTEP = "seq_lengths", "timestep"  # inputs of cells whose rows end
TIMESTEP_DTYPE = "int32"
OPTIONS = ("lengths", "reverse", "steps", "scope", "recompute", "state_shapes", "forward_only")  # of `scan`
NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class CellFunction:
    """A step as a function of blobs; called, it appends its ops to the net of these blobs, as any function does.

    Args:
        function: of blobs, as `ro.cell` takes it.
        timestep: name of the argument that gets the number of the step, None for none.
        dtypes: argument -> dtype, where that is not float.

    Attributes:
        net: the cell, for `recurrent_net`.
        sequences, states, parameters: names of its arguments, by what they are.
        outputs: names of what it returns besides states.
        fixed: names of arguments with defaults, which are no blobs.
    """

    def __init__(self, function: Callable[..., Any], timestep: str | None, dtypes: Mapping[str, str]) -> None:
        if not callable(function):
            problem = "a cell is made of a function of one step"
            raise RecurrentError(problem, wanted="def step(x, h, *, w): ...", came=type(function).__name__)
        update_wrapper(self, function)
        self.name = getattr(function, "__name__", type(function).__name__)
        if not isinstance(dtypes, Mapping):
            self.fail("dtypes is no dict", wanted='dtypes={"ids": "int32"}', came=repr(dtypes)[:60])
        self.function, self.timestep, self.dtypes = function, timestep, dict(dtypes)
        self.arguments, self.parameters, self.fixed = self._told_apart()
        self.net = self._written(ends=False)
        returned = self.net.output_blobs
        self.states = tuple(name for name in self.arguments if name in returned)
        self.sequences = tuple(name for name in self.arguments if name not in returned)
        self.outputs = tuple(name for name in returned if name not in self.states)

    def with_ends(self) -> Net:
        """The cell with `seq_lengths` and a timestep: past the end of a row states stay, and other outputs are 0."""
        return self._written(ends=True)

    def fail(self, problem: str, blob: str | None = None, **details: Any) -> NoReturn:
        """Raise a RecurrentError that names the cell.

        Args:
            problem, blob, details: of the error.

        Raises:
            RecurrentError: always.
        """
        raise RecurrentError(problem, net=self.name, blob=blob, **details)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Append the ops of one step.

        Args:
            arguments, options: of the function.

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
        """Arguments of the function. Raises RecurrentError where Python does not know them."""
        try:
            return signature(self.function).parameters
        except (TypeError, ValueError):
            self.fail("the arguments of this function are not known", wanted="def step(x, h, *, w): ...")

    def _told_apart(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Names of sequences and states, of parameters, and of what has a default, which is a value of Python's."""
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
            self.fail(
                "the number of a step has a dtype of its own", blob=self.timestep, wanted=TIMESTEP_DTYPE, came=came
            )
        names = [name for name in kinds if name != self.timestep]
        arguments = tuple(name for name in names if kinds[name] is not Parameter.KEYWORD_ONLY)
        return (
            arguments,
            tuple(name for name in names if name not in arguments),
            tuple(name for name in given if name not in kinds),
        )

    def _written(self, ends: bool) -> Net:
        net = Net(self.name)
        net.labels.in_functions = True  # the function ends before the net is of use
        blobs = {name: net.input(name, self.dtypes.get(name)) for name in (*self.arguments, *self.parameters)}
        steps = (
            {self.timestep or TIMESTEP: net.input(self.timestep or TIMESTEP, TIMESTEP_DTYPE)}
            if ends or self.timestep
            else {}
        )
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
        """What the function returns. Raises RecurrentError for anything but a dict of blobs by name."""
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
                self.fail("a state has no default, which is a value of all steps", blob=name, hint=hint)
            if name in self.parameters or name == self.timestep:
                hint = "A state stands before the `*` of the arguments."
                self.fail("a parameter is no state", blob=name, wanted=" or ".join(self.arguments), hint=hint)
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
        function: of blobs: sequences and states first, parameters after `*`; what has a default stays a value of
            Python's. It returns a dict: a state under the name of its argument, anything else is an output. It runs
            when the cell is made.
        timestep: name of an argument that gets the number of the step, int32 `[1]`.
        dtypes: argument -> dtype, where that is not float.

    Returns:
        A `CellFunction`. Called with blobs it appends its ops to their net; its `net` is the cell for
        `ro.recurrent_net`, and is what it prints.

    Raises:
        RecurrentError: the function is no cell: what it takes or returns does not fit the rules above.

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
