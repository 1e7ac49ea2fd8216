"""`scan` and `RNN`: a step of PyTorch code over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.nn import Module

from rnnops.torch.errors import StepError
from rnnops.torch.layout import layout_of
from rnnops.torch.prepare import Prepared, Settings, Step
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

    def forward(self, xs: Any, init: Any = None, lengths: Tensor | None = None) -> tuple[Any, Any]:
        """Results of all steps, and the last carry."""
        check_tensors("inputs", xs)
        if self.batch_first:
            xs = pytree.tree_map(lambda x: x.transpose(0, 1), xs)
        carry = zeros_for(self.cell, xs) if init is None else init
        carry, ys = self._scan(carry, xs, lengths)
        return (pytree.tree_map(lambda y: y.transpose(0, 1), ys) if self.batch_first else ys), carry

    def _scan(self, init: Any, xs: Any, lengths: Tensor | None) -> tuple[Any, Any]:
        def step(carry: Any, x: Any) -> tuple[Any, Any]:
            return self.step(self.cell, carry, x)

        settings = Settings(self._reverse, self._options)
        made = Made((self.cell,), fingerprint((self.cell,)), settings, self._assume, self.batch_axis)
        return run_scan(step, init, xs, checked_lengths(lengths), made, self._prepared)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": {}}


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
    """

    modules: tuple[Module, ...]
    key: Any
    settings: Settings
    assume: tuple[bool, ...]
    batch_axis: int
    tensors: tuple[Tensor, ...] = ()


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
    shapes = (made.batch_axis, *[state.shape for state in states], *[sequence.shape[1:] for sequence in inputs])
    compiled = found.for_shapes(shapes, lengths is not None, lambda: layout_of(states, inputs, made.batch_axis))
    last, steps = compiled(states, inputs, lengths, made.tensors)
    flat = found.step.function
    assert isinstance(flat, _Flat)
    return pytree.tree_unflatten(last, carry_tree), pytree.tree_unflatten(steps, flat.result_tree)


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
