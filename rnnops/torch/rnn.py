"""`scan` and `RNN`: a step of PyTorch code over time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.nn import Module

from rnnops.torch.errors import StepError
from rnnops.torch.layout import layout_of
from rnnops.torch.opaque import Call, call_opaque
from rnnops.torch.prepare import Prepared, Settings, Step, tensor_at
from rnnops.torch.stand_ins import given_tensors, is_in_graph, outside_of_graphs
from rnnops.torch.surroundings import fingerprint, surroundings_of

StepFunction = Callable[[Any, Any], tuple[Any, Any]]
OPTIONS = ("checkpoints", "memory_budget", "threads")  # of `rnnops.compile`
KEPT = 64  # steps that `scan` remembers, with what they close over
_known: dict[Any, Prepared] = {}


class RNN(Module):
    """A cell module over time: `ys, carry = rnn(xs, init)`.

    Args:
        cell: any module, unmodified; it is a child, so that its parameters are found where they were.
        step: `step(cell, carry, x) -> (carry, y)`; left out, `cell(x, carry)` is called, which gives the carry, or an
            output and the carry, and y is the first state, or the output.
        batch_first: whether inputs and results are `[N, T, ...]`.
        reverse: from the last step to the first.
        batch_axis: of the states.
        assume: answers to `if tensor:` in the step.
        options: of `rnnops.compile`: `checkpoints`, `memory_budget`, `threads`.
    """

    def __init__(
        self,
        cell: Module,
        step: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
        *,
        batch_first: bool = False,
        reverse: bool = False,
        batch_axis: int = 0,
        assume: Sequence[bool] = (),
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(cell, Module):
            hint = "rnnops.torch.scan takes a function."
            raise StepError("the cell is no module", wanted="a torch.nn.Module", came=type(cell).__name__, hint=hint)
        self.cell, self.step = cell, step or cell_step
        self.batch_first, self.batch_axis = batch_first, batch_axis
        self._assume, self._reverse, self._options = tuple(assume), reverse, checked_options(options)
        self._prepared: dict[Any, Prepared] = {}
        self._number = _number(self)

    def forward(self, xs: Any, init: Any = None, lengths: Tensor | None = None) -> tuple[Any, Any]:
        """Results of all steps, and the last carry."""
        if torch.compiler.is_dynamo_compiling():
            if torch.compiler.is_exporting():
                torch._dynamo.graph_break("torch.export takes an rnnops.torch.RNN with strict=False alone")
            held = {**dict(self.cell.named_parameters()), **dict(self.cell.named_buffers())}
            given = {"init": init, "lengths": lengths}
            present = {name: value for name, value in given.items() if value is not None}  # None is no value there
            return in_graph(self._number, xs, present, held)
        return self.over_time(xs, init, lengths)

    def over_time(self, xs: Any, init: Any, lengths: Any, held: Mapping[str, Tensor] | None = None) -> tuple[Any, Any]:
        """What `forward` gives where no compiler reads it.

        Args:
            held: what a graph has in place of the cell's parameters and buffers, by name.
        """
        check_tensors("inputs", xs)
        if self.batch_first:
            xs = pytree.tree_map(lambda x: x.transpose(0, 1), xs)
        carry = zeros_for(self.cell, xs) if init is None else init
        carry, ys = self._scan(carry, xs, lengths, held)
        return (pytree.tree_map(lambda y: y.transpose(0, 1), ys) if self.batch_first else ys), carry

    def _scan(self, init: Any, xs: Any, lengths: Any, held: Mapping[str, Tensor] | None) -> tuple[Any, Any]:
        def step(carry: Any, x: Any) -> tuple[Any, Any]:
            return self.step(self.cell, carry, x)

        settings = Settings(self._reverse, self._options)
        made = Made((self.cell,), fingerprint((self.cell,)), settings, self._assume, self.batch_axis, held=held or {})
        return run_scan(step, init, xs, checked_lengths(lengths), made, self._prepared)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._number = _number(self)


_modules: WeakValueDictionary[int, RNN] = WeakValueDictionary()
_count = itertools.count()


def _number(rnn: RNN) -> int:
    number = next(_count)
    _modules[number] = rnn
    return number


@torch._dynamo.nonstrict_trace
def in_graph(number: int, xs: Any, given: dict[str, Any], held: dict[str, Tensor]) -> tuple[Any, Any]:
    """What a module gives whose parameters and buffers are a graph's; Dynamo does not look inside.

    Args:
        given: `init` and `lengths`, where they are.
    """
    return _modules[number].over_time(xs, given.get("init"), given.get("lengths"), held)


def cell_step(cell: Module, carry: Any, x: Any) -> tuple[Any, Any]:
    """One call of a cell that takes `(x, carry)` and gives the carry, or `(output, carry)`."""
    result = cell(x, carry)
    if pytree.tree_structure(result) == pytree.tree_structure(carry):
        return result, result if isinstance(result, Tensor) else pytree.tree_leaves(result)[0]
    output, carry = result
    return carry, output


def zeros_for(cell: Module, xs: Any) -> Any:
    """States of zeros for a cell that says how wide they are. Raises StepError for others."""
    width = getattr(cell, "hidden_size", None)
    x = pytree.tree_leaves(xs)[0]
    if not isinstance(width, int):
        raise StepError("init is left out, and the cell does not say what its states are", hint="Give init=.")
    zeros = x.new_zeros(x.shape[1], width)
    return (zeros, zeros) if isinstance(cell, torch.nn.LSTMCell) else zeros


@torch.compiler.disable(reason="torch.compile takes an rnnops.torch.RNN into its graph, and no rnnops.torch.scan")
def scan(
    step: StepFunction,
    init: Any,
    xs: Any,
    *,
    lengths: Tensor | None = None,
    reverse: bool = False,
    batch_axis: int = 0,
    assume: Sequence[bool] = (),
    **options: Any,
) -> tuple[Any, Any]:
    """Step a function over time: `carry, y = step(carry, x)` for each `x` of `xs [T, N, ...]`.

    Returns: the last carry, and the results of all steps `[T, ...]`.
    """
    if not callable(step):
        raise StepError("the step is no function", wanted="step(carry, x) -> (carry, y)", came=type(step).__name__)
    check_tensors("inputs", xs)
    found = surroundings_of(step)
    settings = Settings(reverse, checked_options(options))
    made = Made(tuple(found.modules), found.key(), settings, tuple(assume), batch_axis, tuple(found.tensors))
    result = run_scan(step, init, xs, checked_lengths(lengths), made, _known)
    while len(_known) > KEPT:
        _known.pop(next(iter(_known)), None)
    return result


def checked_options(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Options of a scan. Raises StepError for those that it does not have."""
    for name in options:
        if name not in OPTIONS:
            raise StepError(f"no such option: {name}=", wanted=", ".join(f"{known}=" for known in OPTIONS))
    return tuple(sorted(options.items()))


def check_tensors(what: str, tree: Any) -> None:
    """Raise StepError where a nested structure holds something else than tensors."""
    other = next((leaf for leaf in pytree.tree_leaves(tree) if not isinstance(leaf, Tensor)), None)
    if other is not None or (what == "inputs" and not pytree.tree_leaves(tree)):
        raise StepError(f"{what} are tensors, and one is none", came=f"{type(other).__name__} {other!r}"[:60])


def checked_lengths(lengths: Any) -> Tensor | None:
    """Lengths as int32, of a list of integers or a tensor of any integer type. Raises StepError for others."""
    if lengths is None:
        return None
    given = torch.as_tensor(lengths)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise StepError("lengths are no integers", blob="lengths", came=given.dtype)
    return given.to(torch.int32)


@dataclass(frozen=True)
class Made:
    """How a scan was asked for.

    Args:
        modules, tensors: that the step reaches.
        key: what else its trace depends on.
        held: what a graph has in place of the first module's parameters and buffers, by name.
    """

    modules: tuple[Module, ...]
    key: Any
    settings: Settings
    assume: tuple[bool, ...]
    batch_axis: int
    tensors: tuple[Tensor, ...] = ()
    held: Mapping[str, Tensor] = field(default_factory=dict)


def run_scan(
    step: StepFunction, init: Any, xs: Any, lengths: Tensor | None, made: Made, prepared: dict[Any, Prepared]
) -> tuple[Any, Any]:
    """The scan of a step, with what was prepared for it before."""
    states, carry_tree = pytree.tree_flatten(init)
    inputs, input_tree = pytree.tree_flatten(xs)
    check_tensors("states", states)
    kinds = tuple((tensor.dtype, tensor.dim()) for tensor in (*states, *inputs))
    key = (carry_tree, input_tree, kinds, made.key, made.settings, made.assume)
    if key not in prepared:
        flattened = Step(_Flat(step, carry_tree, input_tree), made.modules, made.tensors, made.assume)
        prepared[key] = Prepared(flattened, made.settings)
    found = prepared[key]
    run = run_in_graph if is_in_graph((*states, *inputs)) else run_now
    last, steps = run(found, states, inputs, lengths, made)
    flat = found.step.function
    assert isinstance(flat, _Flat)
    return pytree.tree_unflatten(last, carry_tree), pytree.tree_unflatten(steps, flat.result_tree)


def run_now(
    found: Prepared, states: list[Tensor], inputs: list[Tensor], lengths: Tensor | None, made: Made
) -> tuple[list[Tensor], list[Tensor]]:
    """Last states, and results of all steps."""
    shapes = (made.batch_axis, *[state.shape for state in states], *[sequence.shape[1:] for sequence in inputs])
    compiled = found.for_shapes(shapes, lengths is not None, lambda: layout_of(states, inputs, made.batch_axis))
    return compiled(states, inputs, lengths, made.tensors)


def run_in_graph(
    found: Prepared, states: list[Tensor], inputs: list[Tensor], lengths: Tensor | None, made: Made
) -> tuple[list[Tensor], list[Tensor]]:
    """What `run_now` gives as one op of a graph, prepared for the sizes at which the graph is made."""
    if made.tensors:
        hint = "Use rnnops.torch.RNN, whose module holds what the step needs."
        raise StepError("a scan that closes over tensors is part of a graph", hint=hint)
    with outside_of_graphs(made.modules):
        examples = [without_symbols(tensor) for tensor in (*states, *inputs)]
        layout = layout_of(examples[: len(states)], examples[len(states) :], made.batch_axis)
        compiled = found.for_shapes(layout, lengths is not None, lambda: layout)
    call = Call(found, len(states), len(inputs), lengths is not None, made.batch_axis, layout.batch is not None)
    with given_tensors(made.modules, made.held):
        closed_over = [tensor_at(place, made.tensors) for place in found.step.reached()]
    tensors = [*states, *inputs, *([] if lengths is None else [lengths]), *closed_over]
    results = call_opaque(call, tensors, compiled.is_random)
    return results[: len(states)], results[len(states) :]


def without_symbols(tensor: Tensor) -> Tensor:
    """A tensor without data, of the sizes that a graph's tensor has where the graph is made."""
    sizes = [size.node.hint if isinstance(size, torch.SymInt) else size for size in tensor.shape]
    return torch.empty(sizes, dtype=tensor.dtype, device="meta")


class _Flat:
    """A step of pytrees as a function of tensors."""

    def __init__(self, step: StepFunction, carry_tree: Any, input_tree: Any) -> None:
        self.step, self.carry_tree, self.input_tree = step, carry_tree, input_tree
        self.result_tree: Any = None

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        count = self.carry_tree.num_leaves
        carry, y = self.step(
            pytree.tree_unflatten(list(tensors[:count]), self.carry_tree),
            pytree.tree_unflatten(list(tensors[count:]), self.input_tree),
        )
        states, tree = pytree.tree_flatten(carry)
        if tree != self.carry_tree:
            raise StepError("a step changes the structure of its carry", wanted=self.carry_tree, came=tree)
        results, self.result_tree = pytree.tree_flatten(y)
        check_tensors("results of the step", [*states, *results])
        return [*states, *results]
