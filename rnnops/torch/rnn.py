"""`scan` and `RNN`, and deep copies of models whose steps are functions.

Deep copies of step functions: `copy.deepcopy` does not copy functions, so a copied step that closes over modules would
go on using the original's modules. Here the copied step closes over copies. Global modules, and objects that cannot be
copied, stay shared with the original, and a warning names them.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import operator
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch._dynamo.eval_frame import OptimizedModule
from torch.nn import Module

import rnnops as ro
from rnnops.compiler.api.planned_run import PlannedRun
from rnnops.errors import check_flags
from rnnops.torch.arguments import (
    LEAF,
    StepFunction,
    TensorTree,
    checked_answers,
    checked_axis,
    checked_count,
    checked_lengths,
    checked_options,
    inputs_of,
    is_packed,
    packed_as,
    pad_packed,
    repeatable,
    tensors_of,
    with_steps,
)
from rnnops.torch.code_reads import reads_of, refuse_scripted
from rnnops.torch.errors import GIVE_INIT, StepError, UnseenWarning
from rnnops.torch.prepare import CompiledStep, PlainLoop, Prepared, settings_of
from rnnops.torch.run_scan import (
    Given,
    ScanRequest,
    code_of,
    compiled_for,
    prepared_for,
    repeated,
    run_scan,
    states_taken,
    step_of,
    widened_scan,
)
from rnnops.torch.traced import on_host
from rnnops.types import Array

SCAN_TAKES = "rnnops.torch.scan takes a function."
HINT = "Give a method as the step: rnnops.torch.RNN(cell, self._step)."


def copied_step(step: Any, memo: dict[int, Any]) -> Any:
    """A step of a copied module.

    Args:
        memo: copies that were made before, by the ids of the originals. It is the `memo` of `copy.deepcopy`.
    """
    if isinstance(step, types.FunctionType):
        return _copied_function(step, memo)
    return _copied("the step", step, memo)


def _copied_function(function: types.FunctionType, memo: dict[int, Any]) -> types.FunctionType:
    if id(function) in memo:
        found: types.FunctionType = memo[id(function)]
        return found
    memo[id(function)] = function  # before the closure is copied, as the function may close over itself
    _warn_of_globals(function, memo)
    names = function.__code__.co_freevars
    cells = [_copied_cell(name, cell, memo) for name, cell in zip(names, function.__closure__ or (), strict=True)]
    defaults = _copied("a default", function.__defaults__, memo)
    named = _copied("a default", function.__kwdefaults__, memo)
    is_same = all(map(operator.is_, cells, function.__closure__ or ())) and defaults is function.__defaults__
    if is_same and named == function.__kwdefaults__:
        return function
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, defaults, tuple(cells))
    made.__kwdefaults__, made.__qualname__ = named, function.__qualname__
    made.__module__, made.__doc__ = function.__module__, function.__doc__
    made.__dict__.update(function.__dict__)
    memo[id(function)] = made
    return made


def _copied_cell(name: str, cell: types.CellType, memo: dict[int, Any]) -> types.CellType:
    """Copies a closure's cell. Returns the same cell if its content needs no copy."""
    try:
        content = cell.cell_contents
    except ValueError:  # the name of this cell has no value yet
        return cell
    made = _copied(f"'{name}'", content, memo)
    return cell if made is content else types.CellType(made)


def _copied(what: str, value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, types.FunctionType):
        return _copied_function(value, memo)
    if isinstance(value, types.ModuleType):
        return value
    try:
        return copy.deepcopy(value, memo)
    except Exception as error:
        text = f"the copy of an rnnops.torch.RNN goes on using {what} of the original ({type(value).__name__})"
        warnings.warn(f"{text}, which cannot be copied: {error}. {HINT}", UnseenWarning, stacklevel=2)
        return value


def _warn_of_globals(function: types.FunctionType, memo: dict[int, Any]) -> None:
    for name in sorted(reads_of(function.__code__).globals):
        value = function.__globals__.get(name)
        if isinstance(value, Module) and id(value) in memo:
            text = f"the copy of an rnnops.torch.RNN goes on using the original {type(value).__name__}"
            warnings.warn(f"{text}, which its step reads as the global {name!r}. {HINT}", UnseenWarning, stacklevel=2)


OWN_CELLS = (torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell)
KEPT = 64  # number of steps that `scan` remembers. Each is kept with the objects that it closes over.
_known: dict[Any, Prepared] = {}
# id of the step's code -> (the code, the calls). The code is kept alive, so that no other code gets its id.
_recent: dict[Any, tuple[Any, dict[Any, Any]]] = {}


class RNN(Module):
    """A PyTorch cell module that is run over time, compiled and joined to PyTorch's autograd:

    `ys, carry = rnn(xs, init)`.

    The step is traced once, without data. Before its first use, two steps and their gradients are compared with
    PyTorch's own. The module has the cell as a child, so that optimizers, `state_dict` and `train` work as before.

    Args:
        cell: any module, unmodified.
        step: `step(cell, carry, x) -> (carry, y)`. If left out, `cell(x, carry)` is called. It returns the carry, or
            (output, carry). y is then the first state, or the output.
        batch_first: True if inputs and results are [N, T, ...].
        reverse: True to go from the last step to the first.
        batch_axis: batch axis of the states. If left out, it is the first axis that has the inputs' batch size and
            along which the step keeps rows apart.
        truncate: number of steps k after which gradients of states end. The states at steps k, 2k, ... act as if they
            were detached.
        assume: answers to `if tensor:` in the step, in order.
        recheck: run the self-check again at every n-th call. Use it for steps that read values that cannot be compared.
        **options: options of `rnnops.compile`: `checkpoints`, `memory_budget`, `precision`, `residuals`, `threads`.

    Raises:
        StepError: the cell is not a module, an option is unknown, or (in a call) the step cannot be translated.
        SelfCheckError: (in a call) the translated step differs from PyTorch's own.

    Example:
        >>> import torch
        >>> rnn = ro.torch.RNN(torch.nn.GRUCell(3, 4))
        >>> ys, h = rnn(torch.ones(7, 2, 3))
        >>> ys.sum().backward()
        >>> ys.shape, h.shape, rnn.cell.weight_hh.grad.shape
        (torch.Size([7, 2, 4]), torch.Size([2, 4]), torch.Size([12, 4]))
    """

    def __init__(
        self,
        cell: Module,
        step: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
        *,
        batch_first: bool = False,
        reverse: bool = False,
        batch_axis: int | None = None,
        truncate: int | None = None,
        assume: Sequence[bool] = (),
        recheck: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        cell = cell._orig_mod if isinstance(cell, OptimizedModule) else cell  # rnnops compiles the step itself
        if not isinstance(cell, Module):
            hint = f"Give an instance: {cell.__name__}(...)." if isinstance(cell, type) else SCAN_TAKES
            raise StepError("the cell is not a module", wanted="a torch.nn.Module", came=type(cell).__name__, hint=hint)
        for module in cell.modules():
            refuse_scripted(module)
        if step is None:
            _refuse_whole(cell)
            _refuse_order(cell)
        check_flags("RNN", batch_first=batch_first)
        self.cell, self.step = cell, cell_step if step is None else require_step(step)
        self.batch_first, self.batch_axis = batch_first, checked_axis(batch_axis)
        settings = settings_of(reverse, truncate, checked_options(options))
        self._assume, self._settings = checked_answers(assume), settings
        self._recheck, self._calls = checked_count("recheck", recheck), 0
        self._prepared: dict[Any, Prepared] = {}
        self._made: ScanRequest | None = None  # the request of the last call
        self._taken: tuple[Module, Any, int] | None = None  # a cell, its step, and the number of states that they take
        self._number = _number(self)

    def forward(
        self, xs: Any, init: Any = None, lengths: Tensor | None = None, steps: int | None = None
    ) -> tuple[Any, Any]:
        """Results of all steps, and the last carry.

        Args:
            xs: a tensor [T, N, ...], or nested tuples, lists and dicts of such tensors. Leaves may be None. With
                `batch_first`, tensors are [N, T, ...]. A PackedSequence is treated as `torch.nn.LSTM` treats it.
            init: states [N, H], nested as the step takes them. If left out, they are zeros. The cell then needs an
                attribute `hidden_size`, and takes one tensor or a tuple of two.
            lengths: integers [N]. After a row's end its results are zero and its state stays.
            steps: T, if xs is None. The step then gets None as x.

        Returns:
            The step's y, stacked over time, and the carry. For a PackedSequence the results are packed too.

        Raises:
            StepError: kernels cannot take a tensor, or the step cannot be translated.
            SelfCheckError: the translated step differs from PyTorch's own.
        """
        if "_is_replica" in self.__dict__:
            hint = "Use torch.nn.parallel.DistributedDataParallel, a process for each device."
            raise StepError("rnnops.torch.RNN does not support torch.nn.DataParallel", hint=hint)
        if torch.jit.is_tracing():
            hint = "ro.onnx.export(rnn, path, shapes=...) writes a file, after a call."
            raise StepError("torch.jit.trace, and torch.onnx.export by it, do not take an rnnops.torch.RNN", hint=hint)
        if torch.compiler.is_dynamo_compiling():
            leaves = pytree.tree_leaves((xs, init))
            is_between = is_packed(xs) or any(isinstance(x, Tensor) and x.is_cuda for x in leaves)
            if is_between and not torch.compiler.is_exporting():
                return between_graphs(self, xs, init, lengths, steps)
            if torch.compiler.is_exporting():
                torch._dynamo.graph_break("torch.export needs strict=False for an rnnops.torch.RNN")
            named = self.cell.named_parameters(remove_duplicate=False), self.cell.named_buffers(remove_duplicate=False)
            held = {name: tensor for tensors in named for name, tensor in tensors}
            _guard_values(self.cell)
            given = {"xs": xs, "init": init, "lengths": lengths, "steps": steps}
            # None cannot be a value in a graph
            present = {name: value for name, value in given.items() if value is not None}
            return in_graph(self._number, present, held)
        return self.over_time(xs, init, lengths, steps)

    def forget(self) -> None:
        """Drop all traces. The next call traces and checks the step again.

        Example:
            >>> import torch
            >>> rnn = ro.torch.RNN(torch.nn.GRUCell(3, 4))
            >>> ys, h = rnn(torch.ones(7, 2, 3))
            >>> rnn.forget()
            >>> torch.equal(rnn(torch.ones(7, 2, 3))[0], ys)
            True
        """
        self._prepared.clear()
        self._made = self._taken = None

    @property
    def net(self) -> ro.Net:
        """The net of the step that was translated last. Parameters are inputs, with their names in `state_dict`.

        Raises:
            StepError: no step was translated yet.
        """
        return self._last().translation.net

    def get_params(self) -> dict[str, Array]:
        """Values of all tensors that the step of `net` closes over. Keys are the names of the net's inputs.

        Raises:
            StepError: no step was translated yet.

        Example:
            >>> import torch
            >>> rnn = ro.torch.RNN(torch.nn.GRUCell(3, 4, bias=False))
            >>> ys, h = rnn(torch.ones(7, 2, 3))
            >>> {name: value.shape for name, value in rnn.get_params().items()}
            {'cell.weight_ih': (12, 3), 'cell.weight_hh': (12, 4)}
        """
        last = self._last()
        count, fed = len(last.numbers), last.translation.as_fed
        names = last.translation.names[len(last.translation.names) - count :]
        return {name: on_host(fed(name, last.closed_over_now(i))).detach().numpy() for i, name in enumerate(names)}

    def _last(self) -> CompiledStep:
        compiled = [compiled for prepared in self._prepared.values() for compiled in prepared.compiled.values()]
        if not compiled:
            raise StepError("nothing was traced yet", hint="Call the module, or its plan(xs, init).")
        last = compiled[-1]
        if isinstance(last, PlainLoop):
            last.refuse("there is no net")
        return last

    def plan(
        self, xs: Any, init: Any = None, lengths: Any = None, backward: bool = True, steps: int | None = None
    ) -> PlannedRun:
        """The plan of a call with such tensors: loops, memory and generated source. Only the tensors' shapes are read.

        Args:
            xs, init, lengths, steps: as in `forward`.
            backward: True for the plan of training.

        Raises:
            StepError: as in `forward`.
        """
        check_flags("plan", backward=backward)
        if is_packed(xs):
            xs, lengths = pad_packed(xs, lengths)
        else:
            xs = self._turned(xs)
        step, given, made = self._asked(xs, init, lengths, steps)
        given, made = widened_scan(given, made)
        compiled, _ = compiled_for(prepared_for(given, made, self._prepared), step_of(step, given, made), given, made)
        if isinstance(compiled, PlainLoop):
            compiled.refuse("there is no plan")
        return compiled.plan(given.tensors, backward)

    def over_time(
        self, xs: Any, init: Any, lengths: Any, steps: Any, held: Mapping[str, Tensor] | None = None
    ) -> tuple[Any, Any]:
        """`forward`, for calls that no graph compiler traces.

        Args:
            xs, init, lengths, steps: as in `forward`.
            held: the tensors of a graph that stand for the cell's parameters and buffers, by name.

        Raises:
            StepError: as in `forward`.
        """
        if is_packed(xs):
            rows, ends = pad_packed(xs, lengths)
            carry, ys = self._over_rows(rows, init, ends, steps, held)
            return packed_as(xs, ys, ends), carry
        xs = self._turned(xs)
        sequence = None if held else repeatable(xs, init, lengths, steps)
        found = None if sequence is None else self._repeated(sequence, init)
        carry, ys = self._over_rows(xs, init, lengths, steps, held) if found is None else found
        return self._turned(ys), carry

    def _turned(self, tree: Any) -> Any:
        """Swaps the axes N and T if `batch_first` is set: inputs become time-major, results batch-major."""
        if not self.batch_first:
            return tree
        is_one = isinstance(tree, Tensor)  # most trees are one tensor
        return _turned(tree) if is_one else pytree.tree_map_only(Tensor, _turned, tree, is_leaf=is_packed)

    def _over_rows(
        self, xs: Any, init: Any, lengths: Any, steps: Any, held: Mapping[str, Tensor] | None
    ) -> tuple[Any, Any]:
        """Returns the last carry and the results of all steps. Inputs and results are time-major."""
        step, given, made = self._asked(xs, init, lengths, steps, held)
        return run_scan(step, given, made, self._prepared)

    def _repeated(self, xs: Any, init: Any) -> tuple[Any, Any] | None:
        """Returns the results if this call repeats an earlier one, else None."""
        cell: Any = self._modules["cell"]  # faster than `self.cell`, which goes through `__getattr__`
        made = self._known_request(cell)
        if made is None or not made.recent:
            return None
        return repeated(made, self._zeros(cell, TensorTree([xs], LEAF), made) if init is None else init, xs)

    def _asked(
        self, xs: Any, init: Any, lengths: Any, steps: Any, held: Mapping[str, Tensor] | None = None
    ) -> tuple[StepFunction, Given, ScanRequest]:
        inputs, made = inputs_of(xs, steps), self._request(self.cell, held or {})
        carry = tensors_of("states", self._zeros(self.cell, inputs, made) if init is None else init)
        inputs = with_steps(inputs, carry, steps, self.batch_axis)
        return self._one_step, Given(carry, inputs, checked_lengths(lengths, inputs.leaves[0])), made

    def _zeros(self, cell: Any, inputs: TensorTree, made: ScanRequest) -> Any:
        """Makes states of zeros for a cell with `hidden_size`. Raises StepError for other cells."""
        width = getattr(cell, "hidden_size", None)
        if not inputs.leaves:
            raise StepError("init is left out, and there are no inputs to tell N", hint=GIVE_INIT)
        if not isinstance(width, int):
            raise StepError("init is left out, and the cell does not say what its states are", hint=GIVE_INIT)
        # No trial is needed for most cells. A trial would also call hooks.
        if isinstance(cell, OWN_CELLS) or _has_hooks(cell):
            count = 2 if isinstance(cell, torch.nn.LSTMCell) else 1
        else:
            count = self._states_taken(cell, inputs, width, made)
        zeros = inputs.leaves[0].new_zeros(inputs.leaves[0].shape[1], width)
        return zeros if count == 1 else (zeros,) * count

    def _states_taken(self, cell: Module, inputs: TensorTree, width: int, made: ScanRequest) -> int:
        """Returns the number of states that a cell takes. The cell is tried once."""
        known = self._taken
        if known is None or known[0] is not cell or known[1] is not self.step:
            count = states_taken(self._one_step, inputs, width, made)
            self._taken = known = cell, self.step, count
        return known[2]

    def _one_step(self, carry: Any, x: Any) -> tuple[Any, Any]:
        return self.step(self.cell, carry, x)

    def _known_request(self, cell: Module) -> ScanRequest | None:
        """Returns the request of the call before if this call has the same cell, step and settings, else None."""
        made = self._made
        if made is None or made.roots["cell"] is not cell or made.roots["step"] is not self.step:
            return None
        is_same = made.settings == self._settings.now() and made.batch_axis == self.batch_axis
        return made if is_same else None

    def _request(self, cell: Module, held: Mapping[str, Tensor]) -> ScanRequest:
        known = None if held else self._known_request(cell)
        if known is not None:
            return known
        self._calls += self._recheck is not None
        again = self._recheck is not None and self._calls % self._recheck == 0
        recent: Any = {} if self._recheck is None and not held else None
        roots = {"step": self.step, "cell": cell}
        made = ScanRequest(roots, self._settings.now(), self._assume, self.batch_axis, cell, held, again, recent)
        self._made = None if recent is None else made
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": {}, "_made": None, "_taken": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> RNN:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        state = copy.deepcopy({name: value for name, value in self.__getstate__().items() if name != "step"}, memo)
        made.__setstate__({**state, "step": copied_step(self.step, memo)})
        return made

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"_recheck": None, "_calls": 0, "_made": None, "_taken": None, **state})
        self._number = _number(self)


_modules: WeakValueDictionary[int, RNN] = WeakValueDictionary()
_count = itertools.count()


def _number(rnn: RNN) -> int:
    number = next(_count)
    _modules[number] = rnn
    return number


@torch.compiler.disable(reason="torch.compile takes an rnnops.torch.RNN of CUDA tensors into no graph")
def between_graphs(rnn: RNN, xs: Any, init: Any, lengths: Any, steps: Any) -> tuple[Any, Any]:
    """Runs a module between two graphs of Dynamo."""
    return rnn.over_time(xs, init, lengths, steps)


@torch._dynamo.nonstrict_trace
def in_graph(number: int, given: dict[str, Any], held: dict[str, Tensor]) -> tuple[Any, Any]:
    """Runs a module inside a graph. The graph holds its parameters and buffers, and Dynamo does not trace into it.

    Args:
        given: arguments of `forward` that are not None.
    """
    named = {name: given.get(name) for name in ("xs", "init", "lengths", "steps")}
    return _modules[number].over_time(**named, held=held)


def _guard_values(cell: Module) -> None:
    """Reads the plain values that a cell holds. Dynamo then makes a new graph if a value changes."""
    for module in cell.modules():
        for value in module.__dict__.values():
            if type(value) in (bool, int, float, str):
                _ = value == value


def _has_hooks(cell: Module) -> bool:
    return any(module._forward_hooks or module._forward_pre_hooks for module in cell.modules())


def _turned(x: Tensor) -> Tensor:
    return x.transpose(0, 1)


RETURNED = "its state, or (output, state)"


def cell_step(cell: Module, carry: Any, x: Any) -> tuple[Any, Any]:
    """Calls a cell as `cell(x, carry)`. The cell returns the carry, or `(output, carry)`."""
    result = cell(x, carry)
    if result is None:
        raise StepError("the cell returns None", wanted=RETURNED, hint="Has forward a return?")
    if pytree.tree_structure(result) == pytree.tree_structure(carry):
        return result, result if isinstance(result, Tensor) else pytree.tree_leaves(result)[0]
    if isinstance(result, tuple | list) and len(result) != 2:
        raise StepError("the cell returns too much or too little", wanted=RETURNED, came=f"{len(result)} results")
    output, carry = result
    return carry, output


def _refuse_whole(cell: Module) -> None:
    """Raise StepError for a module that loops over time itself."""
    if not isinstance(cell, torch.nn.RNNBase):
        return
    kind, sizes = type(cell).__name__, f"({cell.input_size}, {cell.hidden_size})"
    hint = f"Make a torch.nn.{kind}Cell{sizes} of each layer; its parameters are the layer's, without '_l0'."
    raise StepError(
        "the cell is a whole recurrence", wanted="a module of one step", came=f"nn.{kind}{sizes}", hint=hint
    )


OF_STATES, OF_INPUTS = {"h", "hx", "hidden", "state", "states", "carry"}, {"x", "xt", "x_t", "input", "inputs"}


def _refuse_order(cell: Module) -> None:
    """Raise StepError if the argument names of a cell say that its state comes first."""
    try:
        names = [*inspect.signature(cell.forward).parameters][:2]
    except (TypeError, ValueError):  # `forward` is C code and has no signature
        return
    if len(names) == 2 and names[0] in OF_STATES and names[1] in OF_INPUTS:
        step = f"step=lambda cell, {names[0]}, x: (cell({names[0]}, x),) * 2"
        hint = f"For a cell that returns its state: RNN(cell, {step})."
        came = f"forward({', '.join(names)})"
        raise StepError("a cell is called as cell(x, state), and this one takes its state first", came=came, hint=hint)


def require_step(step: Any) -> Callable[..., tuple[Any, Any]]:
    """Returns the step. Raises StepError if it is not a function."""
    if not callable(step):
        raise StepError("the step is not a function", wanted="step(carry, x) -> (carry, y)", came=type(step).__name__)
    return cast(Callable[..., tuple[Any, Any]], step)


@torch.compiler.disable(reason="torch.compile takes an rnnops.torch.RNN into its graph, but not rnnops.torch.scan")
def scan(
    step: StepFunction,
    init: Any,
    xs: Any = None,
    *,
    lengths: Tensor | None = None,
    steps: int | None = None,
    reverse: bool = False,
    batch_axis: int | None = None,
    truncate: int | None = None,
    assume: Sequence[bool] = (),
    **options: Any,
) -> tuple[Any, Any]:
    """Run a step function of PyTorch code over time, compiled and joined to autograd: `carry, y = step(carry, x)`.

    Tensors that the step closes over get gradients too. They may differ from call to call.

    Args:
        step: `step(carry, x) -> (carry, y)`. carry, x and y are tensors, None, or nested tuples, lists and dicts.
        init: the carry before the first step, [N, ...].
        xs: [T, N, ...], or a PackedSequence. Results of a PackedSequence are packed too.
        lengths: integers [N]. After a row's end its results are zero and its carry stays.
        steps: T, if xs is None. The step then gets None as x.
        reverse: True to go from the last step to the first.
        batch_axis: batch axis of the carry. If left out, it is the first axis that has the inputs' batch size and along
            which the step keeps rows apart.
        truncate: number of steps k after which gradients of the carry end. The carry at steps k, 2k, ... acts as if it
            were detached.
        assume: answers to `if tensor:` in the step, in order.
        **options: options of `rnnops.compile`: `checkpoints`, `memory_budget`, `precision`, `residuals`, `threads`.

    Returns:
        The last carry, and the results of all steps, [T, ...].

    Raises:
        StepError: the step is not a function or cannot be translated, an option is unknown, or tensors do not fit.
        SelfCheckError: the translated step differs from PyTorch's own.

    Example:
        >>> import torch
        >>> w = torch.full((3, 3), 0.1, requires_grad=True)
        >>> h, hs = ro.torch.scan(lambda h, x: (torch.tanh(h @ w + x),) * 2, torch.zeros(2, 3), torch.ones(7, 2, 3))
        >>> hs.sum().backward()
        >>> hs.shape, w.grad.shape
        (torch.Size([7, 2, 3]), torch.Size([3, 3]))
    """
    require_step(step)
    settings = settings_of(reverse, truncate, checked_options(options)).now()
    how = settings, checked_answers(assume), checked_axis(batch_axis)
    code = code_of(step)
    _, recent = _recent.setdefault((id(code), *how), (code, {}))
    made = ScanRequest({"step": step}, *how, recent=recent)
    packed = xs if is_packed(xs) else None
    if packed is not None:
        xs, lengths = pad_packed(packed, lengths)
    sequence = repeatable(xs, init, lengths, steps) if recent else None
    result = None if sequence is None else repeated(made, init, sequence)
    if result is None:
        carry = tensors_of("states", init)
        inputs = with_steps(inputs_of(xs, steps), carry, steps, made.batch_axis)
        given = Given(carry, inputs, checked_lengths(lengths, inputs.leaves[0]))
        result = run_scan(step, given, made, _known)
    for known in (_known, _recent):
        while len(known) > KEPT:
            known.pop(next(iter(known)), None)
    return result if packed is None else (result[0], packed_as(packed, result[1], lengths))
