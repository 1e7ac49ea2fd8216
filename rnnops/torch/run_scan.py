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
from rnnops.torch.plain_loop import run_plainly
from rnnops.torch.prepare import Compiled, PlainLoop, Prepared, Settings
from rnnops.torch.sides import side_of
from rnnops.torch.stand_ins import given_tensors, is_in_graph, outside_of_graphs
from rnnops.torch.traced import Step
from rnnops.torch.walk import static_walk
from rnnops.torch.watch import tensor_at

StepFunction = Callable[[Any, Any], tuple[Any, Any]]


class Made(NamedTuple):
    """How a scan was asked for.

    Args:
        roots: what the step is made of, by name.
        cell: a module whose tensors a graph may have.
        held: what a graph has in place of its parameters and buffers, by name.
        check_again: whether the self-check runs at this call.
    """

    roots: Mapping[str, Any]
    settings: Settings
    assume: tuple[bool, ...]
    batch_axis: int
    cell: Module | None = None
    held: Mapping[str, Tensor] = MappingProxyType({})
    check_again: bool = False


class Given(NamedTuple):
    """What a scan runs over."""

    carry: Tensors
    xs: Tensors
    lengths: Tensor | None

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.carry.leaves, *self.xs.leaves]


def prepared_for(given: Given, made: Made, known: dict[Any, Prepared]) -> Prepared:
    """What was made of a step with these structures and dtypes, which is kept in `known`."""
    code = _code_of(made.roots["step"])
    kinds = tuple((tensor.dtype, tensor.dim()) for tensor in given.leaves)
    side = side_of(given.leaves if given.lengths is None else [*given.leaves, given.lengths])
    key = (side, given.carry.tree, given.xs.tree, kinds, made.settings, made.assume, id(code))
    found = known.get(key)
    if found is None:
        found = known.setdefault(key, Prepared(made.settings, side, code))
    return found


def _code_of(step: Any) -> Any:
    """What all functions share that one `def` or `lambda` makes."""
    step = getattr(step, "__func__", step)
    return getattr(step, "__code__", None) or type(step)


def run_scan(step: StepFunction, given: Given, made: Made, known: dict[Any, Prepared]) -> tuple[Any, Any]:
    """The last carry, and the results of all steps."""
    prepared = prepared_for(given, made, known)
    in_graph = is_in_graph(given.leaves)
    if in_graph and prepared.side.kind == "cuda":
        hint = "Export the module on the CPU; torch.compile runs it between two graphs."
        raise StepError("a graph takes no recurrence of CUDA tensors", hint=hint)
    run = run_in_graph if in_graph else run_now
    last, steps, tree = run(prepared, step_of(step, given, made), given, made)
    return given.carry.nested(last), pytree.tree_unflatten(steps, tree)


def step_of(step: StepFunction, given: Given, made: Made) -> Step:
    """A step as a function of tensors."""
    return Step(FlatStep(step, given.carry, given.xs), len(given.carry.leaves), made.roots, made.assume)


def run_now(prepared: Prepared, step: Step, given: Given, made: Made) -> tuple[list[Tensor], list[Tensor], Any]:
    """Last states, results of all steps, and the structure of these."""
    compiled, reached = compiled_for(prepared, step, given, made)
    states, inputs = given.carry.leaves, given.xs.leaves
    if isinstance(compiled, PlainLoop):
        last, steps = run_plainly(step.function, states, inputs, given.lengths, compiled.reverse, made.batch_axis)
        return last, steps, getattr(step.function, "result_tree", None)
    if made.check_again:
        prepared.check_again(step, layout_of(states, inputs, made.batch_axis), compiled, reached)
    return *compiled.over_time(states, inputs, given.lengths, reached), compiled.trace.result_tree


def compiled_for(prepared: Prepared, step: Step, given: Given, made: Made) -> tuple[Compiled | PlainLoop, list[Tensor]]:
    """The step compiled for the sizes of these tensors, and the tensors that it reads."""
    states, inputs, axis = given.carry.leaves, given.xs.leaves, made.batch_axis
    shapes = (axis, *[state.shape for state in states], *[sequence.shape[1:] for sequence in inputs])
    return prepared.for_shapes(step, shapes, given.lengths is not None, lambda: layout_of(states, inputs, axis))


def run_in_graph(prepared: Prepared, step: Step, given: Given, made: Made) -> tuple[list[Tensor], list[Tensor], Any]:
    """What `run_now` gives as one op of a graph, prepared for the sizes at which the graph is made."""
    count, axis = len(given.carry.leaves), made.batch_axis
    cells = [] if made.cell is None else [made.cell]
    with outside_of_graphs([*cells, *static_walk(made.roots).modules]):
        examples = [_example(tensor) for tensor in given.leaves]
        layout = layout_of(examples[:count], examples[count:], axis)
        compiled, _ = prepared.for_shapes(step, layout, given.lengths is not None, lambda: layout)
    if isinstance(compiled, PlainLoop):
        compiled.refuse("torch.compile and torch.export take no such step")
    if compiled.traced.effects.where:
        hint = "Carry it as a state, or call the module outside of a graph."
        raise StepError("in a graph, a step sets what is no state", came=compiled.traced.effects.where, hint=hint)
    for number, tensor in enumerate(given.leaves):
        rows = {axis % max(tensor.dim(), 1) if number < count else 1} if compiled.trace.symbols else set()
        _fix_sizes(tensor, rows if number < count else {0, *rows})
    with given_tensors(made.cell, made.held):
        reached = [tensor_at(slot) for slot in compiled.traced.watch.slots]
    in_graph = tuple(is_in_graph([tensor]) for tensor in reached)
    call = Call(
        *(prepared, step, count, len(given.xs.leaves), given.lengths is not None, axis, compiled.traced),
        *(in_graph, _is_whole(compiled, reached, in_graph)),
    )
    if not made.held:  # Dynamo would hide the error, so that its graphs raise it when they run
        call.check_whole()
    closed_over = [x if is_given else given.leaves[0] for x, is_given in zip(reached, in_graph, strict=True)]
    tensors = [*given.leaves, *([] if given.lengths is None else [given.lengths]), *closed_over]
    results = call_opaque(call, tensors, compiled.is_random)
    return results[:count], results[count:], compiled.trace.result_tree


def _is_whole(compiled: Compiled, reached: Sequence[Tensor], in_graph: Sequence[bool]) -> bool:
    """Whether a graph has all tensors that a step uses, but for those without gradients."""
    used = zip(compiled.numbers, compiled.translation.closed_over, strict=True)
    return all(
        not x.requires_grad if place is None else in_graph[place] or not reached[place].requires_grad
        for place, x in used
    )


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
