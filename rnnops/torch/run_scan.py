"""Running a scan: what was prepared for its structure, now or as one op of a graph that is being made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.nn import Module

from rnnops.torch.arguments import Tensors, tensors_of
from rnnops.torch.errors import StepError
from rnnops.torch.layout import layout_of
from rnnops.torch.opaque import Call, call_opaque
from rnnops.torch.prepare import Compiled, Prepared, Settings, Step, tensor_at
from rnnops.torch.sides import side_of
from rnnops.torch.stand_ins import given_tensors, is_in_graph, outside_of_graphs

StepFunction = Callable[[Any, Any], tuple[Any, Any]]


class Made(NamedTuple):
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
    held: Mapping[str, Tensor] = MappingProxyType({})


class Given(NamedTuple):
    """What a scan runs over."""

    carry: Tensors
    xs: Tensors
    lengths: Tensor | None

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.carry.leaves, *self.xs.leaves]


def prepared_for(step: StepFunction, given: Given, made: Made, known: dict[Any, Prepared]) -> Prepared:
    """What was made of a step with these structures and dtypes, which is kept in `known`."""
    kinds = tuple((tensor.dtype, tensor.dim()) for tensor in given.leaves)
    side = side_of(given.leaves if given.lengths is None else [*given.leaves, given.lengths])
    key = (side, given.carry.tree, given.xs.tree, kinds, made.key, made.settings, made.assume)
    if key not in known:
        flat = FlatStep(step, given.carry, given.xs)
        known[key] = Prepared(Step(flat, made.modules, made.tensors, made.assume), made.settings, side)
    return known[key]


def run_scan(step: StepFunction, given: Given, made: Made, known: dict[Any, Prepared]) -> tuple[Any, Any]:
    """The last carry, and the results of all steps."""
    prepared = prepared_for(step, given, made, known)
    in_graph = is_in_graph(given.leaves)
    if in_graph and prepared.side.kind == "cuda":
        hint = "Export the module on the CPU; torch.compile runs it between two graphs."
        raise StepError("a graph takes no recurrence of CUDA tensors", hint=hint)
    run = run_in_graph if in_graph else run_now
    last, steps = run(prepared, given, made)
    assert isinstance(prepared.step.function, FlatStep)
    return given.carry.nested(last), pytree.tree_unflatten(steps, prepared.step.function.result_tree)


def run_now(prepared: Prepared, given: Given, made: Made) -> tuple[list[Tensor], list[Tensor]]:
    """Last states, and results of all steps."""
    compiled = compiled_for(prepared, given, made)
    return compiled(given.carry.leaves, given.xs.leaves, given.lengths, made.tensors)


def compiled_for(prepared: Prepared, given: Given, made: Made) -> Compiled:
    """The step compiled for the sizes of these tensors."""
    states, inputs, axis = given.carry.leaves, given.xs.leaves, made.batch_axis
    shapes = (axis, *[state.shape for state in states], *[sequence.shape[1:] for sequence in inputs])
    return prepared.for_shapes(shapes, given.lengths is not None, lambda: layout_of(states, inputs, axis))


def run_in_graph(prepared: Prepared, given: Given, made: Made) -> tuple[list[Tensor], list[Tensor]]:
    """What `run_now` gives as one op of a graph, prepared for the sizes at which the graph is made."""
    count, axis = len(given.carry.leaves), made.batch_axis
    with outside_of_graphs(made.modules):
        examples = [_example(tensor) for tensor in given.leaves]
        layout = layout_of(examples[:count], examples[count:], axis)
        compiled = prepared.for_shapes(layout, given.lengths is not None, lambda: layout)
    for number, tensor in enumerate(given.leaves):
        rows = {axis % max(tensor.dim(), 1) if number < count else 1} if compiled.trace.symbols else set()
        _fix_sizes(tensor, rows if number < count else {0, *rows})
    with given_tensors(made.modules, made.held):
        reached = [tensor_at(place, made.tensors) for place in prepared.step.reached()]
    is_whole = _is_whole(compiled, reached)
    call = Call(prepared, count, len(given.xs.leaves), given.lengths is not None, axis, compiled.trace, is_whole)
    if not made.held:  # Dynamo would hide the error, so that its graphs raise it when they run
        call.check_whole()
    closed_over = [tensor if is_in_graph([tensor]) else given.leaves[0] for tensor in reached]  # what is not used
    tensors = [*given.leaves, *([] if given.lengths is None else [given.lengths]), *closed_over]
    results = call_opaque(call, tensors, compiled.is_random)
    return results[:count], results[count:]


def _is_whole(compiled: Compiled, reached: list[Tensor]) -> bool:
    """Whether a graph has all tensors that a step uses, but for constants."""
    used = zip(compiled.positions, compiled.translation.closed_over, strict=True)
    return all(not x.requires_grad if place is None else is_in_graph([reached[place]]) for place, x in used)


def _example(tensor: Tensor) -> Tensor:
    """A tensor without data, of the sizes that a graph's tensor has where the graph is made."""
    sizes = [size.node.hint if isinstance(size, torch.SymInt) else size for size in tensor.shape]
    return torch.empty(sizes, dtype=tensor.dtype, device="meta")


def _fix_sizes(tensor: Tensor, free: set[int]) -> None:
    """Tie the graph to a tensor's sizes, but for some axes: the step was traced for them."""
    for axis, size in enumerate(tensor.shape):
        if axis not in free:
            int(size)


class FlatStep:
    """A step of nested structures as a function of tensors."""

    def __init__(self, step: StepFunction, carry: Tensors, xs: Tensors) -> None:
        self.step, self._carry_tree, self._input_tree = step, carry.tree, xs.tree
        self.result_tree: Any = None

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        count = self._carry_tree.num_leaves
        carry, y = self.step(
            pytree.tree_unflatten(list(tensors[:count]), self._carry_tree),
            pytree.tree_unflatten(list(tensors[count:]), self._input_tree),
        )
        states, results = tensors_of("results of the step", carry), tensors_of("results of the step", y)
        if states.tree != self._carry_tree:
            raise StepError("a step changes the structure of its carry", wanted=self._carry_tree, came=states.tree)
        self.result_tree = results.tree
        return [*states.leaves, *results.leaves]
