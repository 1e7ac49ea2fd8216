"""Arguments of a scan: structures of tensors, their layout, and stand-ins for traced tensors.

**Layout**: shapes and dtypes of a recurrence's tensors, and their batch axes. If all states and inputs have a batch
axis of one size, it becomes the batch of the recurrence. Else the recurrence has a batch of one row that holds
everything. The result is the same, but threads cannot share out rows. The batch axis of a state has the size N of the
inputs `[T, N, ...]`. If several axes have this size, the step decides (`prepare.py`).
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
    """Dtype and shape of a tensor in one step, and its batch axis, if there is one."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    batch_axis: int | None

    @property
    def batch(self) -> int | None:
        """Batch size; None without a batch axis."""
        return None if self.batch_axis is None else self.shape[self.batch_axis]

    def to_front(self) -> list[int]:
        """Order of axes that moves the batch axis to the front."""
        assert self.batch_axis is not None
        others = [axis for axis in range(len(self.shape)) if axis != self.batch_axis]
        return [self.batch_axis, *others]

    def back(self) -> list[int]:
        """Order of axes that undoes `to_front`."""
        order = self.to_front()
        return [order.index(axis) for axis in range(len(order))]

    def of_batch(self, size: int) -> TensorKind:
        """The same kind with another batch size."""
        shape = tuple(size if axis == self.batch_axis else own for axis, own in enumerate(self.shape))
        return replace(self, shape=shape)

    def without_data(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype)


@dataclass(frozen=True)
class TensorLayout:
    """States and inputs of a recurrence as one step sees them. `device` is where the step makes new tensors."""

    states: tuple[TensorKind, ...]
    inputs: tuple[TensorKind, ...]
    device: torch.device = CPU

    @cached_property
    def batch(self) -> int | None:
        """Batch size; None if the recurrence has one row that holds everything."""
        sizes = {kind.batch for kind in (*self.states, *self.inputs)}
        return sizes.pop() if len(sizes) == 1 else None

    def rows(self) -> list[tuple[torch.dtype, int | None, tuple[int, ...]]]:
        """The layout without its batch size."""
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
        """The layout with another batch size."""
        states, inputs = (tuple(kind.of_batch(size) for kind in kinds) for kinds in (self.states, self.inputs))
        return replace(self, states=states, inputs=inputs)


TRIED = 4  # number of layouts at most


def layouts_of(states: Sequence[Tensor], inputs: Sequence[Tensor], batch_axis: int | None) -> list[TensorLayout]:
    """Layouts that the states and the inputs `[T, N, ...]` may have. A layout of one row comes last, if there is any.

    Args:
        batch_axis: axis of the states, if it is known. Else each axis of length N is a candidate. States of one shape
            have the same axis.

    Raises StepError if no state has the given axis.
    """
    ranks = sorted({state.dim() for state in states})
    if batch_axis and not any(-rank <= batch_axis < rank for rank in ranks):  # scalars have no axis 0
        wanted = f"an axis of states with {' or '.join(map(str, ranks))} axes"
        raise StepError("no state has the axis of batch_axis=", wanted=wanted, came=batch_axis)
    shapes = dict.fromkeys(tuple(state.shape) for state in states)
    batches = {sequence.shape[1] if sequence.dim() > 1 else None for sequence in inputs}
    fit = [[n for n, size in enumerate(shape) if {size} == batches] or [0] for shape in shapes]
    choices = islice(product(*fit), 1 if batches <= {0, 1} else TRIED) if batch_axis is None else ()
    found = [_layout(states, inputs, dict(zip(shapes, axes, strict=True))) for axes in choices]
    plain = _layout(states, inputs, dict.fromkeys(shapes, batch_axis or 0))
    whole = [layout for layout in found if layout.batch is not None]
    return whole if plain in whole else [*whole, plain]


def _layout(states: Sequence[Tensor], inputs: Sequence[Tensor], axes: Mapping[tuple[int, ...], int]) -> TensorLayout:
    """The layout with the given batch axis for each shape of a state. Tensors with too few axes have no batch."""

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
OF_CALLS = ("init", "lengths", "steps")  # arguments of calls, which people give to `RNN` by mistake


PLAIN = (Tensor, Parameter)
LEAF = pytree.tree_structure(0)


class TensorTree(NamedTuple):
    """The tensors of a nested structure, and the structure itself."""

    leaves: list[Tensor]
    tree: Any


class Uneven(NamedTuple):
    """A structure with a leaf that is None (no tensor), or a complex tensor (two real tensors).

    Args:
        counts: number of real tensors of each leaf.
    """

    tree: Any
    counts: tuple[int, ...]

    def all_leaves(self, leaves: Sequence[Tensor]) -> list[Tensor | None]:
        """The leaves of the structure, made from its real tensors."""
        found = iter(leaves)
        return [joined([next(found) for _ in range(count)]) for count in self.counts]


def joined(tensors: Sequence[Tensor], is_complex: bool = True) -> Any:
    """Makes a leaf of its real tensors.

    Two tensors are the parts of a complex leaf, or of a real one of pairs `[..., 2]`.
    """
    if len(tensors) == 2:
        return torch.complex(*tensors) if is_complex else torch.stack(list(tensors), -1)
    return tensors[0] if tensors else None


def _split(leaf: Tensor | None) -> list[Tensor]:
    """Splits a leaf into its real tensors: none for None, two for a complex leaf."""
    if leaf is None or not leaf.is_complex():
        return [] if leaf is None else [leaf]
    leaf = leaf.resolve_conj()
    return [leaf.real, leaf.imag]


def nested(leaves: list[Tensor], tree: Any) -> Any:
    """Puts tensors into a structure."""
    if tree is LEAF:  # the most frequent case
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
    """The real tensors of a nested structure. Raises StepError for a leaf that is neither a tensor nor None."""
    kind = type(tree)
    if kind in PLAIN and not tree.is_complex():
        return TensorTree([tree], LEAF)
    if kind is tuple and {*map(type, tree)}.issubset(PLAIN) and not any(map(Tensor.is_complex, tree)):
        return TensorTree([*tree], tuple_of(len(tree)))
    leaves, structure = pytree.tree_flatten(tree, is_leaf=is_packed)
    for leaf in leaves:
        if not isinstance(leaf, Tensor) and leaf is not None:
            raise StepError(f"{what} must be tensors or None", came=f"{type(leaf).__name__} {leaf!r}"[:60])
    parts = [_split(leaf) for leaf in leaves]
    counts = tuple(map(len, parts))
    is_even = {*counts} <= {1}
    return TensorTree([x for part in parts for x in part], structure if is_even else Uneven(structure, counts))


NO_INPUT = Uneven(LEAF, (0,))


def check_complex(carry: Any, after: Any) -> None:
    """Raise StepError if two structures of a carry differ only in which states are complex."""
    (before, counts), (tree, found) = (x if isinstance(x, Uneven) else (x, (1,) * x.num_leaves) for x in (carry, after))
    for number, (count, now) in enumerate(zip(counts, found, strict=False) if before == tree else ()):
        if {count, now} == {1, 2}:
            wanted, came = ("a real tensor", "a complex one") if now == 2 else ("a complex tensor", "a real one")
            hint = "Begin with the dtype that the step gives: torch.zeros(N, H, dtype=torch.cfloat)."
            raise StepError(f"state {number} changes its kind in a step", wanted=wanted, came=came, hint=hint)


StepFunction = Callable[[Any, Any], tuple[Any, Any]]


class FlatStep:
    """A step of nested structures, as a function of flat tensors.

    Args:
        wide: the dtype to which narrower floats are widened within the step; None for no widening.
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
    """Inputs of a scan. Raises StepError if neither the inputs nor `steps=` give T, or if they differ."""
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
    """Inputs that give T and N. Without inputs, the result is integers [T, N] that the step does not see.

    N is then the size of a state's axis: of `batch_axis`, else of the first axis of the state with the fewest axes.
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
    """Options of a scan. Raises StepError for an unknown option."""
    for name in options:
        if name not in OPTIONS:
            hint = f"It is an argument of the call: rnn(xs, {name}=...)." if name in OF_CALLS else None
            raise StepError(f"no such option: {name}=", wanted=", ".join(f"{known}=" for known in OPTIONS), hint=hint)
    return options


def checked_answers(assume: Any) -> tuple[bool, ...]:
    """Answers to `if tensor:`. Raises StepError if `assume` is not a sequence of bools."""
    if not isinstance(assume, Sequence) or not all(isinstance(answer, bool) for answer in assume):
        raise StepError("assume= is not a list of answers", wanted="True and False, in order", came=repr(assume)[:60])
    return tuple(assume)


def checked_axis(axis: Any) -> int | None:
    """The batch axis; None if it has to be found. Raises StepError for other values."""
    if axis is not None and (not isinstance(axis, int) or isinstance(axis, bool)):
        raise StepError("batch_axis= is not an axis", wanted="an integer", came=repr(axis)[:60])
    return axis


def checked_count(name: str, count: Any, least: int = 1) -> Any:
    """A number of steps or calls, or None. Raises StepError for other values."""
    if count is None or (isinstance(count, int | SymInt) and not isinstance(count, bool) and count >= least):
        return count
    raise StepError(f"{name}= must be an integer of {least} or more", came=repr(count)[:60])


def repeatable(xs: Any, init: Any, lengths: Any, steps: Any) -> Any:
    """The inputs of a call that may repeat an earlier one (T if there are no inputs). None for other calls."""
    if steps is None:
        return xs if lengths is None and type(xs) in PLAIN else None
    return steps if xs is None and init is not None and lengths is None and type(steps) is int else None


def is_packed(xs: Any) -> bool:
    """True for a PackedSequence."""
    return isinstance(xs, PackedSequence)


def pad_packed(xs: PackedSequence, lengths: Any) -> tuple[Tensor, Tensor]:
    """Pads a PackedSequence. Returns inputs [T, N, ...] and lengths [N], in the caller's order of rows.

    Raises StepError if the caller gave lengths too.
    """
    if lengths is not None:
        raise StepError("a PackedSequence has lengths already", blob="lengths", hint="Leave lengths= out.")
    return pad_packed_sequence(xs)


def packed_as(xs: PackedSequence, ys: Any, lengths: Tensor) -> Any:
    """Packs results [T, N, ...] as the inputs are packed. Raises StepError for results without rows."""
    order = xs.sorted_indices

    def packed(y: Tensor) -> PackedSequence:
        if y.dim() < 2 or y.shape[1] != len(lengths):
            wanted = f"[T, {len(lengths)}, ...]"
            raise StepError("a result without rows cannot be packed", wanted=wanted, came=[*y.shape])
        y = y if order is None else y.index_select(1, order)
        ends = lengths if order is None else lengths[order.cpu()]
        # `.data` has the gradients of y
        data = pack_padded_sequence(torch.view_as_real(y) if y.is_complex() else y, ends).data
        data = torch.view_as_complex(data) if y.is_complex() else data
        return PackedSequence(data, xs.batch_sizes, order, xs.unsorted_indices)

    return pytree.tree_map_only(Tensor, packed, ys)


def checked_lengths(lengths: Any, x: Tensor) -> Tensor | None:
    """Lengths as int32, one for each row of `x [T, N, ...]`. Takes a list of integers, or a tensor of any integer type.

    Lengths may lie on another device than the inputs. They are copied then.

    Raises StepError for other values.
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
    """True if a graph is being made of the ops on these tensors."""
    return any(isinstance(tensor, FakeTensor | FunctionalTensor) for tensor in tensors)


@contextmanager
def outside_of_graphs(modules: Sequence[Module]) -> Iterator[None]:
    """Within this context ops run at once. Parameters and buffers without values get random values."""
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
                # scripted modules have no dict to change
                stack.enter_context(swapped(held, others) if others else nullcontext())
        yield


@contextmanager
def given_tensors(cell: Module | None, named: Mapping[str, Tensor]) -> Iterator[None]:
    """A module gets the parameters and buffers of a graph."""
    with ExitStack() as stack:
        for name, child in cell.named_modules() if named and cell is not None else ():
            for held in (child._parameters, child._buffers):
                full = {key: f"{name}.{key}" if name else key for key in held}
                stack.enter_context(swapped(held, {key: named[path] for key, path in full.items() if path in named}))
        yield


@contextmanager
def swapped(held: dict[str, Any], others: Mapping[str, Tensor]) -> Iterator[None]:
    """A dict gets other tensors under its names."""
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
