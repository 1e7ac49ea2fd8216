"""RNNCell, the base of all cells, and Step, with which a cell writes one step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, ClassVar, NoReturn

from rnnops.errors import NetError, check_flags, named_options
from rnnops.net.blob import Blob
from rnnops.net.net import Net, require_net
from rnnops.net.op import absolute_names, check_name
from rnnops.ops.indexing import select_valid
from rnnops.ops.movement import concat, transpose
from rnnops.recurrent import recurrent_net
from rnnops.types import Array

Extra = Sequence[tuple[Blob, int]]  # (blob, feature size): more blobs that a product reads besides its operand
Stepped = tuple[Blob, list[Blob]]  # the output of a step, and the new states


@dataclass
class Step:
    """One step while a cell's `step` writes it. It gives parameters, products and masks.

    Args:
        net: the step net. For a single step, or an unrolled one, it is the outer net.
        outer: the outer net if `net` is a step net, else None.
        seq_lengths: [N] int32, or None if all rows have full length.
        timestep: [1] int32, needed with lengths.
        prefix: prefix of the names of labelled blobs (`timestep_3/` in an unrolled net).
        recompute: names of labelled blobs that cells with memory optimization want to recompute instead of store.
        references: name in the step net -> blob of the outer net.

    Raises:
        NetError: (from its methods) a parameter of this name has another shape already.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> step = ro.cells.Step(net)
        >>> h = step.linear(net.input("x", shape=(2, 3)), "dense", 3, 4)
        >>> h.shape, [spec.name for spec in net.parameters]
        ((2, 4), ['dense_w', 'dense_b'])
    """

    net: Net
    outer: Net | None = None
    seq_lengths: Blob | None = None
    timestep: Blob | None = None
    prefix: str = ""
    recompute: list[str] = field(default_factory=list)
    references: dict[str, Blob] = field(default_factory=dict)

    def parameter(self, name: str, shape: Sequence[int], init: object) -> Blob:
        """A parameter by its absolute name. An existing one is returned.

        Args:
            name: the absolute name. Open scopes do not apply.
            shape: its shape.
            init: as for `Net.parameter`: `"zeros"`, `"xavier"`, a number, ...

        Raises:
            NetError: it exists with another shape.
        """
        return parameter(self.net, name, shape, init)

    def outer_blob(self, name: str, blob: Blob) -> Blob:
        """The blob of the step net that stands for a blob of the outer net.

        Args:
            name: the blob's name in the step net.
            blob: a blob of the outer net.
        """
        if self.outer is None:
            return blob
        self.references[name] = blob
        with absolute_names():
            return self.net.blob(name) if name in self.net else self.net.input(name, blob.dtype)

    def constant(self, name: str, array: Array) -> Blob:
        """An array that is the same at every step.

        It becomes a blob of the outer net, so that steps do not make it again.

        Args:
            name: its name in the step net.
            array: its value.
        """
        return self.outer_blob(name, (self.net if self.outer is None else self.outer).constant(array))

    def linear(self, x: Blob, name: str, dim_in: int, dim_out: int, extra: Extra = ()) -> Blob:
        """`[x; extra] W^T + b` with parameters `<name>_w [dim_out, dim_in + extra]`, xavier, and `<name>_b [dim_out]`,
        zeros.

        Args:
            x: [N, dim_in].
            name: prefix of the parameters' names.
            dim_in: features of x.
            dim_out: features of the result.
            extra: (blob, feature size) of more blobs that the product reads, such as attention's context.

        Returns:
            A blob, [N, dim_out].
        """
        return self.product(x, name, dim_in, dim_out, extra) + self.parameter(f"{name}_b", (dim_out,), "zeros")

    def product(
        self, x: Blob, name: str, dim_in: int, dim_out: int, extra: Extra = (), init: object = "xavier"
    ) -> Blob:
        """As `linear`, without a bias.

        Args:
            x, name, dim_in, dim_out, extra: as in `linear`.
            init: start values of the weights, as for `Net.parameter`.

        Returns:
            A blob, [N, dim_out].
        """
        for blob, size in extra:
            x, dim_in = concat([x, blob], axis=-1), dim_in + size
        weight = self.parameter(f"{name}_w", (dim_out, dim_in), init)
        return x @ transpose(weight, perm=[1, 0])

    def labelled(self, blob: Blob, name: str, recompute: bool = False) -> Blob:
        """Names a blob. With `recompute`, the blob is computed again in the backward pass.

        Args:
            blob: the blob.
            name: the wanted name. A number is added if it is taken.
            recompute: True to compute the blob again instead of storing it.

        Returns:
            The blob.
        """
        base = self.prefix + name
        candidates = (base if k == 0 else f"{base}_{k}" for k in count())
        with absolute_names():
            blob.named(next(candidate for candidate in candidates if candidate not in self.net))
        if recompute:
            self.recompute.append(blob.name)
        return blob

    def masked(self, new: Blob, previous: Blob, drop: bool) -> Blob:
        """A state that stays past a row's end, or becomes zero with `drop`.

        Args:
            new: [N, ...].
            previous: [N, ...], of the same shape.
            drop: True for zero instead of `previous`.
        """
        if self.seq_lengths is None or self.timestep is None:
            return new
        return select_valid(new, previous, self.seq_lengths, self.timestep, drop=drop)

    def masked_output(self, output: Blob) -> Blob:
        """An output that is zero past a row's end, for outputs that are not states.

        Args:
            output: [N, ...].
        """
        return self.masked(output, output, drop=True)


def require_blob(value: object, what: str, cell: str, net: str | None = None) -> None:
    """Raise NetError for an argument of a cell that is not a blob."""
    if not isinstance(value, Blob):
        raise NetError(f"{what} is not a blob", net=net, blob=cell, came=type(value).__name__)


def parameter(net: Net, name: str, shape: Sequence[int], init: object) -> Blob:
    """A parameter of a net by its absolute name. An existing one is returned.

    Raises NetError if the existing one has another shape, as for a cell of the same name with other sizes.
    """
    with absolute_names():
        if name not in net:
            return net.parameter(name, shape, init)
    there = next((spec for spec in net.input_specs if spec.name == name), None)
    if there is None or there.shape not in (None, tuple(shape)):
        came = "the result of an op" if there is None else there.shape
        problem, hint = "the name of this parameter is taken by another blob", "Give the cell a name of its own."
        raise NetError(problem, net=net.name, blob=name, wanted=tuple(shape), came=came, hint=hint)
    return net.blob(name)


NAMED = object()  # value for names that users gave; several cells may share them
Initializer = Callable[[Net, "RNNCell"], Sequence[Blob]]


class RNNCell(ABC):
    """Base of all cells. A subclass writes one step, and the base runs it over a sequence.

    `SizedCell` is easier for cells with an input size and a hidden size. A subclass defines at least `get_state_names`,
    `get_state_dims`, `get_output_dim` and `step`.

    Args:
        name: absolute prefix of parameter names. Cells of one given name share their parameters in a net. The default
            is the class's `default_name`, and a second cell with that name in a net is an error.
        forward_only: True for a recurrence without a gradient.
        initializer: a function of (net, cell) that is called if no initial states are given. It returns a list of
            blobs, `[H]`, `[N, H]` or `[1, N, H]` each. By default initial states are parameters `[H]` that start with
            zeros.
        init: initial values of parameters, by name or pattern below the cell's name, as for `Net.set_init`.

    Raises:
        NetError: name is not a name, or initializer is not a function.
        ArgumentError: an argument is unknown or missing.

    Example:
        >>> class Sum(ro.cells.RNNCell):
        ...     default_name = "sum"
        ...     def get_state_names(self):
        ...         return [f"{self.name}/total_t"]
        ...     def get_state_dims(self):
        ...         return [3]
        ...     def get_output_dim(self):
        ...         return 3
        ...     def step(self, step, x_t, states, extra=()):
        ...         total = step.masked(states[0] + x_t, states[0], drop=False)
        ...         return total, [total]
        >>> net = ro.Net("model", sizes_for="float32")
        >>> y, states = Sum().apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> net.outputs(y=y)
        >>> run = ro.compile(net, device="reference")
        >>> run(ro.init_params(net, 0), x=np.ones((7, 2, 3), "float32"))["y"][-1]
        array([[7., 7., 7.],
               [7., 7., 7.]], dtype=float32)
    """

    default_name: ClassVar[str] = "cell"
    owns_name: ClassVar[bool] = True  # False: the cell takes the name of the cell inside

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = named_options(vars(cls)["__init__"])  # type: ignore[method-assign]

    def __init__(
        self,
        name: str | None = None,
        forward_only: bool = False,
        initializer: Initializer | None = None,
        init: Mapping[str, object] | None = None,
    ) -> None:
        self.is_named = name is not None
        self.name = check_name(name if name is not None else self.default_name, "cell").strip("/")
        self.input_name = f"{self.name}/i2h"
        if initializer is not None and not callable(initializer):
            wanted = "a function of (net, cell) that returns blobs"
            self.fail("the initializer is not a function", wanted=wanted, came=repr(initializer))
        check_flags(type(self).__name__, forward_only=forward_only)
        self.forward_only, self.initializer, self._init = forward_only, initializer, init

    # -- what a subclass defines ---------------------------------------------------------------------------------

    @abstractmethod
    def get_state_names(self) -> list[str]:
        """Absolute names of the states, in order."""

    @abstractmethod
    def get_state_dims(self) -> list[int]:
        """Feature sizes of the states: how many numbers a row of each state has."""

    @abstractmethod
    def get_output_dim(self) -> int:
        """Feature size of the output."""

    @abstractmethod
    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        """Writes one step.

        Args:
            step: the step under construction. It gives parameters and products.
            x_t: [N, D].
            states: one blob for each state: `[N, H]`, or `[N, ...]` for a state with more axes.
            extra: (blob, feature size) of more blobs that the recurrent product reads, such as attention's context.

        Returns:
            The output, [N, O], and a list of the new states.
        """

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        """Feature axes of the states. By default each state has one."""
        return [(size,) for size in self.get_state_dims()]

    def get_output_state_index(self) -> int:
        """The number of the state to which the output belongs."""
        return 0

    def get_input_params(self) -> list[str]:
        """Names of parameters that are multiplied with the input."""
        return [f"{self.input_name}_w", f"{self.input_name}_b"]

    def get_recurrent_params(self) -> list[str]:
        """Names of parameters that are used with the states, also biases."""
        return []

    def prepare_input(self, net: Net, input_blob: Blob) -> Blob:
        """A hook on the whole input sequence, before the recurrence.

        Plans join products of the input without it.

        Args:
            net: the outer net.
            input_blob: [T, N, D].

        Returns:
            The sequence that the recurrence reads instead, [T, N, ...].
        """
        return input_blob

    def prepare(self, net: Net) -> None:  # noqa: B027 - a hook: most cells need nothing here
        """A hook for values that are computed once, outside of the recurrence (attention's encoder side).

        Args:
            net: the outer net.
        """

    def inner_cells(self) -> Sequence[RNNCell]:
        """The cells inside this one."""
        return ()

    def default_initial_states(self, net: Net) -> list[Blob]:
        """Initial states if none are given. By default they are trainable zeros, `[H]`.

        Args:
            net: the outer net.

        Returns:
            One blob for each state.
        """
        shapes = zip(self.get_state_names(), self.get_state_shapes(), strict=True)
        return [parameter(net, initial_name(name), shape, "zeros") for name, shape in shapes]

    # -- what users call -----------------------------------------------------------------------------------------

    def __call__(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuses a call, because a cell is applied to a net instead.

        Args:
            arguments, options: any.

        Raises:
            NetError: always. It says what to use.
        """
        hint = "Use cell.apply_over_sequence(net, x), cell.apply(...) for a step, or ro.model.RNN(cell) in models."
        self.fail("a cell is not called", hint=hint)

    def apply(
        self, net: Net, input_t: Blob, seq_lengths: Blob | None, states: Sequence[Blob], timestep: Blob | None = None
    ) -> Stepped:
        """Writes one step in the outer net, for decoding.

        Args:
            net: the outer net.
            input_t: [N, D].
            seq_lengths: [N] int32, or None.
            states: one blob for each state, `[N, H]`.
            timestep: [1] int32, the number of the step. Needed with seq_lengths.

        Returns:
            The output, [N, O], and a list of the new states, `[N, H]` each.

        Raises:
            NetError: the number of states is wrong, lengths come without a timestep, or the net has another cell of
                this name.
        """
        self._claim(net)
        self._check_states(net, states)
        if (seq_lengths is None) != (timestep is None):
            self.fail("lengths need a timestep, and a timestep needs lengths", net)
        self.prepare(net)
        result = self.step(Step(net, None, seq_lengths, timestep), input_t, states)
        self._start(net)
        return result

    def apply_over_sequence(
        self,
        net: Net,
        inputs: Blob,
        seq_lengths: Blob | None = None,
        initial_states: Sequence[Blob] | None = None,
        outputs_with_grads: Sequence[int] | None = None,
        reverse: bool = False,
    ) -> tuple[Blob, tuple[Blob, ...]]:
        """Runs the cell over a sequence.

        Args:
            net: the outer net.
            inputs: [T, N, D].
            seq_lengths: [N] int32, or None for full length.
            initial_states: one for each state, `[H]`, `[N, H]` or `[1, N, H]`. By default the initializer makes them.
            outputs_with_grads: positions in the returned states that may get gradients, by default all. An output that
                is not a state may always get one.
            reverse: True to go from the last step to the first. Each row starts at its own end.

        Returns:
            The output, [T, N, O], and a tuple with all values, [T, N, H], and the last one, [1, N, H], of each state.

        Raises:
            NetError: the number of states is wrong, lengths are not an int32 blob, or the net has another cell of this
                name.
            RecurrentError: an input, states or positions do not fit the cell.
            TypeRuleError: sizes do not fit. Sizes that are not known yet are checked by the run.
        """
        self._claim(net)
        check_lengths(net, seq_lengths)
        inputs = self.prepare_input(net, inputs)
        self.prepare(net)
        states = self.initial_states(net, initial_states)
        step, output_name = self._written_step(net, seq_lengths)
        names = self.get_state_names()
        bindings = {
            spec.name: parameter(net, spec.name, spec.shape or (), spec.initializer) for spec in step.net.parameters
        } | step.references
        with absolute_names():
            results = recurrent_net(
                net,
                step.net,
                inputs=[("input_t", inputs)],
                initial_cell_inputs=[(f"{name}_prev", state) for name, state in zip(names, states, strict=True)],
                links={f"{name}_prev": name for name in names},
                timestep="timestep" if seq_lengths is not None else None,
                scope=self._result_scope(net),
                outputs_with_grads=_with_output(outputs_with_grads, len(names), output_name),
                recompute_blobs_on_backward=step.recompute,
                forward_only=self.forward_only,
                references=bindings,
                reverse=reverse,
                state_shapes=self._axes_beyond_one(),
            )
        self._start(net)
        last = 2 * len(names)
        output = results[last] if output_name not in names else results[2 * names.index(output_name)]
        return output, results[:last]

    def initial_states(self, net: Net, given: Sequence[Blob] | None) -> list[Blob]:
        """The given initial states, or those of the initializer.

        Args:
            net: the outer net.
            given: one blob for each state, or None.

        Returns:
            A list of blobs, one for each state.

        Raises:
            NetError: the number of states is wrong.
        """
        if given is None:
            given = self.default_initial_states(net) if self.initializer is None else self.initializer(net, self)
        states = [given] if isinstance(given, Blob) else given
        self._check_states(net, states)
        return list(states)

    # -- parts ---------------------------------------------------------------------------------------------------

    def fail(self, problem: str, net: Net | None = None, **details: Any) -> NoReturn:
        """Raises a NetError that names this cell.

        Args:
            problem: what is wrong.
            net: the net, if it is known.
            **details: `wanted`, `came` and `hint`.
        """
        raise NetError(problem, net=None if net is None else net.name, blob=self.name, **details)

    def _claim(self, net: Net) -> None:
        """Raise NetError if a cell without a name of its own would share its parameters with another cell."""
        require_net(net)
        for cell in self.inner_cells():
            cell._claim(net)
        owner = NAMED if self.is_named else self
        if self.owns_name and net.claims.setdefault(self.name, owner) is not owner:
            hint = "Give each its name=, or use one cell twice to share."
            self.fail("two cells without a name would share their parameters", net, hint=hint)

    def _start(self, net: Net) -> None:
        """Sets the initial values in `init`, of this cell and of the cells inside."""
        for cell in self.inner_cells():
            cell._start(net)
        if self._init is not None:
            before = dict(net.starts)
            net.set_init(self._init, self.name)
            if clash := [name for name, start in before.items() if net.starts[name] != start]:
                hint = "Give init= to one of the cells of this name, or equal values to all."
                self.fail("cells of one name have different init=", net, came=", ".join(clash), hint=hint)

    def _check_states(self, net: Net, states: Sequence[Blob]) -> None:
        names = self.get_state_names()
        if not isinstance(states, Sequence) or not all(isinstance(state, Blob) for state in states):
            self.fail("states must be a list of blobs", net, came=repr(states))
        if len(states) != len(names):
            self.fail("wrong number of states", net, wanted=f"{len(names)} ({', '.join(names)})", came=len(states))

    def _written_step(self, net: Net, seq_lengths: Blob | None) -> tuple[Step, str]:
        """Writes the step net and declares its outputs. Returns it with the name of the cell's output."""
        cell_net = Net(f"{self.name}/step")
        with absolute_names():
            x_t = cell_net.input("input_t")
            previous = [cell_net.input(f"{name}_prev") for name in self.get_state_names()]
            step = Step(cell_net, net)
            if seq_lengths is not None:
                require_blob(seq_lengths, "seq_lengths", self.name, net.name)
                step.seq_lengths = step.outer_blob("seq_lengths", seq_lengths)
                step.timestep = cell_net.input("timestep", "int32")
            output, states = self.step(step, x_t, previous)
            cell_net.outputs(**dict(zip(self.get_state_names(), states, strict=True)))
            for name, state in zip(self.get_state_names(), states, strict=True):
                if state is output:
                    return step, name
            cell_net.outputs(**{f"{self.name}/output": output})
        return step, f"{self.name}/output"

    def _axes_beyond_one(self) -> dict[str, tuple[int, ...]]:
        """Feature axes of the states that are not vectors, by their inputs in the step net."""
        shapes = zip(self.get_state_names(), self.get_state_shapes(), strict=True)
        return {f"{name}_prev": shape for name, shape in shapes if len(shape) != 1}

    def _result_scope(self, net: Net) -> str | None:
        """None for the first use of the cell in a net, then `apply_1`, `apply_2`, ..."""
        first = f"{self.get_state_names()[0]}_all"
        scopes = chain([None], (f"apply_{k}" for k in count(1)))
        return next(scope for scope in scopes if (f"{scope}/{first}" if scope else first) not in net)


def require_cell(value: object) -> None:
    """Raise NetError for a value that is not a cell."""
    if not isinstance(value, RNNCell):
        raise NetError("this is not a cell", wanted="a cell", came=type(value).__name__)


def initial_name(state: str) -> str:
    """The name of the first value of a state: `lstm/hidden_t` -> `lstm/initial_hidden_state`."""
    prefix, _, name = state.rpartition("/")
    return f"{prefix}/initial_{name.removesuffix('_t')}_state"


def _with_output(given: Sequence[int] | None, states: int, output: str) -> list[int] | None:
    """Positions that may get gradients: the given ones, and the output's own if it is not a state."""
    if given is None or not isinstance(given, Sequence):
        return given  # recurrent_net raises the error
    return [*given, *([2 * states] if output.endswith("/output") else [])]


def check_lengths(net: Net, lengths: Blob | None) -> None:
    """Raise NetError for lengths that are not an int32 blob."""
    if isinstance(lengths, Blob) and lengths.dtype != "int32":
        hint = f'Declare it as net.input("{lengths.name}", "int32").'
        raise NetError("lengths must be int32", net=net.name, blob=lengths.name, came=lengths.dtype, hint=hint)
