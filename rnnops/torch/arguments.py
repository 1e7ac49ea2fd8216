"""Arguments of a scan: structures of tensors, their layout, and stand-ins for traced tensors.

**Layout**: what the tensors of a recurrence look like, and how they lie in the net that runs it. Where all states and
inputs have a batch axis of one size the batch is the recurrence's own. Else a step is one row: the result is the same,
but rows are not shared out among threads. The batch axis of a state is one of the size that inputs `[T, N, ...]` have;
where several are, the step decides (`prepare.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice, product
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch import SymInt, Tensor, inference_mode
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor, maybe_get_bdim
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn import Module, Parameter
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.overrides import _pop_mode_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from rnnops.torch.errors import StepError
from rnnops.torch.step_modes import Widened, has_gradients, widened

CPU = torch.device("cpu")


@dataclass(frozen=True)
class TensorKind:
    """Dtype and shape of one step's tensor, and the axis of its batch, if it has one."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    batch_axis: int | None

    @property
    def batch(self) -> int | None:
        """The size of the batch."""
        return None if self.batch_axis is None else self.shape[self.batch_axis]

    def to_front(self) -> list[int]:
        """The order of axes that puts the batch first."""
        assert self.batch_axis is not None
        others = [axis for axis in range(len(self.shape)) if axis != self.batch_axis]
        return [self.batch_axis, *others]

    def back(self) -> list[int]:
        """The order of axes that undoes `to_front`."""
        order = self.to_front()
        return [order.index(axis) for axis in range(len(order))]

    def of_batch(self, size: int) -> TensorKind:
        """The same with a batch of another size."""
        shape = tuple(size if axis == self.batch_axis else own for axis, own in enumerate(self.shape))
        return replace(self, shape=shape)

    def without_data(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype)


@dataclass(frozen=True)
class TensorLayout:
    """States and inputs of a recurrence, as one step sees them, and the device of tensors that the step makes."""

    states: tuple[TensorKind, ...]
    inputs: tuple[TensorKind, ...]
    device: torch.device = CPU

    @cached_property
    def batch(self) -> int | None:
        """The size of the batch; None where a step is one row."""
        sizes = {kind.batch for kind in (*self.states, *self.inputs)}
        return sizes.pop() if len(sizes) == 1 else None

    def rows(self) -> list[tuple[torch.dtype, int | None, tuple[int, ...]]]:
        """The layout without the batch size."""
        return [
            (
                kind.dtype,
                kind.batch_axis,
                tuple(size for axis, size in enumerate(kind.shape) if axis != kind.batch_axis),
            )
            for kind in self.kinds
        ]

    @property
    def kinds(self) -> tuple[TensorKind, ...]:
        return (*self.states, *self.inputs)

    def of_batch(self, size: int) -> TensorLayout:
        """The layout with a batch of another size."""
        states, inputs = (tuple(kind.of_batch(size) for kind in kinds) for kinds in (self.states, self.inputs))
        return replace(self, states=states, inputs=inputs)


TRIED = 4  # layouts at most


def layouts_of(states: Sequence[Tensor], inputs: Sequence[Tensor], batch_axis: int | None) -> list[TensorLayout]:
    """The layouts that states, and inputs `[T, N, ...]`, may have; the last one makes a step one row, if any does.

    Args:
        batch_axis: of the states, if it is known. Else states of one shape have one of the axes that are as long as N.

    Raises StepError where no state has the axis that is said to be the batch's.
    """
    ranks = sorted({state.dim() for state in states})
    if batch_axis and not any(-rank <= batch_axis < rank for rank in ranks):  # scalars have no axis 0
        wanted = f"an axis of states with {' or '.join(map(str, ranks))} axes"
        raise StepError("batch_axis= is an axis of no state", wanted=wanted, came=batch_axis)
    shapes = dict.fromkeys(tuple(state.shape) for state in states)
    batches = {sequence.shape[1] if sequence.dim() > 1 else None for sequence in inputs}
    fit = [[n for n, size in enumerate(shape) if {size} == batches] or [0] for shape in shapes]
    choices = islice(product(*fit), 1 if batches <= {0, 1} else TRIED) if batch_axis is None else ()
    found = [_layout(states, inputs, dict(zip(shapes, axes, strict=True))) for axes in choices]
    plain = _layout(states, inputs, dict.fromkeys(shapes, batch_axis or 0))
    whole = [layout for layout in found if layout.batch is not None]
    return whole if plain in whole else [*whole, plain]


def _layout(states: Sequence[Tensor], inputs: Sequence[Tensor], axes: Mapping[tuple[int, ...], int]) -> TensorLayout:
    """The layout with a batch axis for each shape of a state; a tensor with too few axes has no batch."""

    def kind(tensor: Tensor, shape: tuple[int, ...], axis: int) -> TensorKind:
        rank = len(shape)
        return TensorKind(tensor.dtype, shape, axis % rank if -rank <= axis < rank else None)

    return TensorLayout(
        tuple(kind(state, tuple(state.shape), axes[tuple(state.shape)]) for state in states),
        tuple(kind(sequence, tuple(sequence.shape[1:]), 0) for sequence in inputs),
        next((tensor.device for tensor in (*states, *inputs) if tensor.device.type == "cuda"), CPU),
    )


LONGEST = 2**31 - 1
OPTIONS = ("checkpoints", "memory_budget", "precision", "residuals", "threads")  # of `rnnops.compile`
OF_CALLS = ("init", "lengths", "steps")  # which people give when they make the module


PLAIN = (Tensor, Parameter)
LEAF = pytree.tree_structure(0)


class TensorTree(NamedTuple):
    """The tensors of a nested structure, and the structure."""

    leaves: list[Tensor]
    tree: Any


class Uneven(NamedTuple):
    """A structure in which some leaves are None, and some are complex tensors, which have two real ones.

    Args:
        counts: how many tensors each leaf has.
    """

    tree: Any
    counts: tuple[int, ...]

    def all_leaves(self, leaves: Sequence[Tensor]) -> list[Tensor | None]:
        """The leaves of the structure."""
        found = iter(leaves)
        return [joined([next(found) for _ in range(count)]) for count in self.counts]


def joined(tensors: Sequence[Tensor], is_complex: bool = True) -> Any:
    """The leaf of these real tensors; two are the parts of a complex one, or of one of pairs `[..., 2]`."""
    if len(tensors) == 2:
        return torch.complex(*tensors) if is_complex else torch.stack(list(tensors), -1)
    return tensors[0] if tensors else None


def _split(leaf: Tensor | None) -> list[Tensor]:
    """The real tensors of a leaf."""
    if leaf is None or not leaf.is_complex():
        return [] if leaf is None else [leaf]
    leaf = leaf.resolve_conj()
    return [leaf.real, leaf.imag]


def nested(leaves: list[Tensor], tree: Any) -> Any:
    """Tensors in a structure."""
    if tree is LEAF:  # most are, and calls are frequent
        return leaves[0]
    if isinstance(tree, Uneven):
        return pytree.tree_unflatten(tree.all_leaves(leaves), tree.tree)
    return tuple(leaves) if tree is tuple_of(len(leaves)) else pytree.tree_unflatten(leaves, tree)


def shown(tree: Any, count: int) -> str:
    """A structure as text."""
    words: list[Any] = ["tensor"] * count
    if isinstance(tree, Uneven):
        words, tree = [(None, "tensor", "complex tensor")[n] for n in tree.counts], tree.tree
    return f"{nested(words, tree)}".replace("'", "")


@cache
def tuple_of(count: int) -> Any:
    """The structure of a tuple of tensors."""
    return pytree.tree_structure((0,) * count)


def tensors_of(what: str, tree: Any) -> TensorTree:
    """The real tensors of a nested structure. Raises StepError where it holds something else, except for None."""
    kind = type(tree)
    if kind in PLAIN and not tree.is_complex():
        return TensorTree([tree], LEAF)
    if kind is tuple and {*map(type, tree)}.issubset(PLAIN) and not any(map(Tensor.is_complex, tree)):
        return TensorTree([*tree], tuple_of(len(tree)))
    leaves, structure = pytree.tree_flatten(tree, is_leaf=is_packed)
    for leaf in leaves:
        if not isinstance(leaf, Tensor) and leaf is not None:
            raise StepError(f"{what} are tensors, and one is not", came=f"{type(leaf).__name__} {leaf!r}"[:60])
    parts = [_split(leaf) for leaf in leaves]
    counts = tuple(map(len, parts))
    is_even = {*counts} <= {1}
    return TensorTree([x for part in parts for x in part], structure if is_even else Uneven(structure, counts))


NO_INPUT = Uneven(LEAF, (0,))


def check_complex(carry: Any, after: Any) -> None:
    """Raise StepError where the structures of a carry differ only in which states are complex."""
    (before, counts), (tree, found) = (x if isinstance(x, Uneven) else (x, (1,) * x.num_leaves) for x in (carry, after))
    for number, (count, now) in enumerate(zip(counts, found, strict=False) if before == tree else ()):
        if {count, now} == {1, 2}:
            wanted, came = ("a real tensor", "a complex one") if now == 2 else ("a complex tensor", "a real one")
            hint = "Begin with the dtype that the step gives: torch.zeros(N, H, dtype=torch.cfloat)."
            raise StepError(f"state {number} is not what it was after a step", wanted=wanted, came=came, hint=hint)


StepFunction = Callable[[Any, Any], tuple[Any, Any]]


class FlatStep:
    """A step of nested structures as a function of tensors.

    Args:
        wide: the dtype in which it computes with narrower floats, if any.
    """

    def __init__(self, step: StepFunction, carry: TensorTree, xs: TensorTree, wide: torch.dtype | None) -> None:
        self.wide = wide
        self.step, self._carry_tree, self._input_tree = step, carry.tree, xs.tree
        self._states = len(carry.leaves)
        self.result_tree: Any = None

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        carried, given = list(tensors[: self._states]), list(tensors[self._states :])
        with nullcontext() if self.wide is None else Widened(self.wide):
            result: Any = self.step(nested(carried, self._carry_tree), nested(given, self._input_tree))
        if not isinstance(result, tuple | list) or len(result) != 2:
            kind = "one tensor" if isinstance(result, Tensor) else type(result).__name__
            came = f"{kind} of {len(result)}" if isinstance(result, tuple | list) else kind
            raise StepError("a step returns its carry and its result", wanted="(carry, y)", came=came)
        carry, y = result
        states, results = tensors_of("results of the step", carry), tensors_of("results of the step", y)
        if states.tree != self._carry_tree:
            check_complex(self._carry_tree, states.tree)
            hint = (
                "Give init as a tuple, if the step returns one."
                if isinstance(nested(carried, self._carry_tree), list)
                else None
            )
            wanted, came = shown(self._carry_tree, len(carried)), shown(states.tree, len(states.leaves))
            raise StepError("a step changes the structure of its carry", wanted=wanted, came=came, hint=hint)
        self.result_tree = results.tree
        leaves = [*states.leaves, *results.leaves]
        return leaves if self.wide is None else [widened(x, self.wide) for x in leaves]


def inputs_of(xs: Any, steps: Any) -> TensorTree:
    """Inputs of a scan. Raises StepError where neither they nor `steps=` say T, or both do and differ."""
    inputs = tensors_of("inputs", xs)
    checked_count("steps", steps, 0)
    if not inputs.leaves and steps is None:
        wanted, hint = "a tensor [T, N, ...], or a structure of such", "Without inputs give steps=."
        raise StepError("there are no inputs", wanted=wanted, came=repr(xs)[:60], hint=hint)
    if inputs.leaves and steps not in (None, *inputs.leaves[0].shape[:1]):
        wanted, came = f"inputs [{steps}, ...]", [*inputs.leaves[0].shape]
        raise StepError("steps= disagrees with the inputs", wanted=wanted, came=came)
    return inputs


def with_steps(inputs: TensorTree, carry: TensorTree, steps: Any, batch_axis: int | None) -> TensorTree:
    """Inputs that say T and N: where there are none, integers [T, N] that the step does not see.

    N is as long as an axis of the states: `batch_axis`, else the first one of the state with the fewest axes.
    """
    if inputs.leaves:
        return inputs
    if not carry.leaves:
        raise StepError("there are neither inputs nor states", wanted="init=, tensors [N, ...]")
    state, axis = min(carry.leaves, key=lambda x: x.dim() or LONGEST), batch_axis or 0
    counted = state.new_zeros((steps, *state.shape[axis:][:1]), dtype=torch.int32)
    tree = inputs.tree if isinstance(inputs.tree, Uneven) else Uneven(inputs.tree, ())
    return TensorTree([counted], tree)


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a scan. Raises StepError for those that it does not have."""
    for name in options:
        if name not in OPTIONS:
            hint = f"It is an argument of the call: rnn(xs, {name}=...)." if name in OF_CALLS else None
            raise StepError(f"no such option: {name}=", wanted=", ".join(f"{known}=" for known in OPTIONS), hint=hint)
    return options


def checked_answers(assume: Any) -> tuple[bool, ...]:
    """Answers to `if tensor:`. Raises StepError for what is not a list of them."""
    if not isinstance(assume, Sequence) or not all(isinstance(answer, bool) for answer in assume):
        raise StepError("assume= is not a list of answers", wanted="True and False, in order", came=repr(assume)[:60])
    return tuple(assume)


def checked_axis(axis: Any) -> int | None:
    """The axis of the batch, None for one to be found. Raises StepError for what is neither."""
    if axis is not None and (not isinstance(axis, int) or isinstance(axis, bool)):
        raise StepError("batch_axis= is not an axis", wanted="an integer", came=repr(axis)[:60])
    return axis


def checked_count(name: str, count: Any, least: int = 1) -> Any:
    """A number of steps or calls, or None. Raises StepError for what is neither."""
    if count is None or (isinstance(count, int | SymInt) and not isinstance(count, bool) and count >= least):
        return count
    raise StepError(f"{name}= must be an integer of {least} or more", came=repr(count)[:60])


def repeatable(xs: Any, init: Any, lengths: Any, steps: Any) -> Any:
    """The sequence, or T without one, of a call that may be as one before; None for others."""
    if steps is None:
        return xs if lengths is None and type(xs) in PLAIN else None
    return steps if xs is None and init is not None and lengths is None and type(steps) is int else None


def is_packed(xs: Any) -> bool:
    """True for a PackedSequence."""
    return isinstance(xs, PackedSequence)


def padded(xs: PackedSequence, lengths: Any) -> tuple[Tensor, Tensor]:
    """Inputs [T, N, ...] and lengths [N] of packed rows, in the caller's order of rows.

    Raises StepError where there are lengths already.
    """
    if lengths is not None:
        raise StepError("a PackedSequence has lengths already", blob="lengths", hint="Leave lengths= out.")
    return pad_packed_sequence(xs)


def packed_as(xs: PackedSequence, ys: Any, lengths: Tensor) -> Any:
    """Results [T, N, ...] of all steps, packed as the inputs are. Raises StepError for results without rows."""
    order = xs.sorted_indices

    def packed(y: Tensor) -> PackedSequence:
        if y.dim() < 2 or y.shape[1] != len(lengths):
            wanted = f"[T, {len(lengths)}, ...]"
            raise StepError("a result without rows cannot be packed", wanted=wanted, came=[*y.shape])
        y = y if order is None else y.index_select(1, order)
        ends = lengths if order is None else lengths[order.cpu()]
        data = pack_padded_sequence(torch.view_as_real(y) if y.is_complex() else y, ends).data  # has their gradients
        data = torch.view_as_complex(data) if y.is_complex() else data
        return PackedSequence(data, xs.batch_sizes, order, xs.unsorted_indices)

    return pytree.tree_map_only(Tensor, packed, ys)


def checked_lengths(lengths: Any, x: Tensor) -> Tensor | None:
    """Lengths as int32, of a list of integers or a tensor of any integer type, one for each row of `x [T, N, ...]`.

    They may be on another device than the inputs, and are copied then.

    Raises StepError for others.
    """
    if lengths is None:
        return None
    given = torch.as_tensor(lengths)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise StepError("lengths are not integers", blob="lengths", came=given.dtype)
    if given.dim() != 1 or x.dim() < 2 or given.shape[0] != x.shape[1]:
        wanted = f"one for each of the {x.shape[1]} rows" if x.dim() > 1 else "inputs [T, N, ...]"
        raise StepError("lengths do not fit the inputs", blob="lengths", wanted=wanted, came=list(given.shape))
    return given.to(x.device, torch.int64).clamp(0, LONGEST).to(torch.int32)


def is_in_graph(tensors: Sequence[Tensor]) -> bool:
    """True if a graph is being made of what is done with these tensors."""
    return any(isinstance(tensor, FakeTensor | FunctionalTensor) for tensor in tensors)


@contextmanager
def outside_of_graphs(modules: Sequence[Module]) -> Iterator[None]:
    """Ops run at once in here, and parameters and buffers without values have random ones."""
    with ExitStack() as stack:
        while torch._C._len_torch_function_stack():
            stack.enter_context(_pop_mode_temporarily())
        stack.enter_context(_disable_current_modes())
        stack.enter_context(unset_fake_temporarily())
        stack.enter_context(inference_mode(False))
        stack.enter_context(with_values([module for root in modules for module in root.modules()]))
        yield


@contextmanager
def with_values(modules: Sequence[Module]) -> Iterator[None]:
    """Parameters and buffers have values: random ones in a graph, those of one place within `torch.func.vmap`."""
    made: dict[int, Tensor] = {}
    with ExitStack() as stack:
        for module in {id(module): module for module in modules}.values():
            for held in (module._parameters, module._buffers):
                for tensor in held.values():
                    if id(tensor) not in made and tensor is not None and _has_no_value(tensor):
                        made[id(tensor)] = _value_of(tensor)
                others = {name: made[id(x)] for name, x in held.items() if id(x) in made}
                stack.enter_context(swapped(held, others) if others else nullcontext())  # scripted modules have no dict
        yield


@contextmanager
def given_tensors(cell: Module | None, named: Mapping[str, Tensor]) -> Iterator[None]:
    """A module has a graph's parameters and buffers."""
    with ExitStack() as stack:
        for name, child in cell.named_modules() if named and cell is not None else ():
            for held in (child._parameters, child._buffers):
                full = {key: f"{name}.{key}" if name else key for key in held}
                stack.enter_context(swapped(held, {key: named[path] for key, path in full.items() if path in named}))
        yield


@contextmanager
def swapped(held: dict[str, Any], others: Mapping[str, Tensor]) -> Iterator[None]:
    """A dict has other tensors under its names."""
    before = dict(held)
    held.update(others)
    try:
        yield
    finally:
        held.update(before)


def _has_no_value(tensor: Tensor) -> bool:
    return isinstance(tensor, FakeTensor | FunctionalTensor) or is_functorch_wrapped_tensor(tensor)


def _value_of(tensor: Tensor) -> Tensor:
    while is_functorch_wrapped_tensor(tensor):
        axis = maybe_get_bdim(tensor)
        tensor = get_unwrapped(tensor)
        tensor = tensor if axis < 0 else tensor.select(axis, 0)
    return _like(tensor) if _has_no_value(tensor) else tensor.detach()


def _like(tensor: Tensor) -> Tensor:
    shape = [int(size) for size in tensor.shape]
    if not has_gradients(tensor):
        return torch.zeros(shape, dtype=tensor.dtype)
    made = torch.rand(shape, dtype=tensor.dtype)
    return Parameter(made, tensor.requires_grad) if isinstance(tensor, Parameter) else made
