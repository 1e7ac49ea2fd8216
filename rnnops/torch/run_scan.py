"""Runs a scan: at once, or as one opaque op, which torch.compile and torch.export put into their graphs unchanged.

An op of a graph takes only tensors and numbers. So a call is known by a number, and the pullback for its backward pass
lies in a table. The key is the address of a token, a tensor that the graph keeps. The entry goes when the token is
freed. A copy of the token has another address and finds no entry: the forward pass then runs again. Sizes of batch and
time may be symbols of the graph. The step is then compiled for each batch size that comes.

Limits: numbers hold for one process, and a call is kept until the process ends. In eager mode such an op costs more
than `autograd.RecurrenceFunction`, which runs there.
"""

from __future__ import annotations

import copy
import secrets
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Module

from rnnops.errors import RnnopsError
from rnnops.torch.arguments import (
    LEAF,
    NO_INPUT,
    FlatStep,
    StepFunction,
    TensorTree,
    given_tensors,
    is_in_graph,
    joined,
    layouts_of,
    nested,
    outside_of_graphs,
    tuple_of,
)
from rnnops.torch.autograd import check_surroundings, check_traceable, outside_of_transforms
from rnnops.torch.errors import StepError, failed_step
from rnnops.torch.prepare import PREPARING, CompiledStep, PlainLoop, Prepared, RepeatedStep, ScanSettings, run_plainly
from rnnops.torch.sides import SEEDS, as_array, as_tensor, side_of
from rnnops.torch.step_modes import NARROW
from rnnops.torch.traced import TorchStep, TracedStep, tried
from rnnops.torch.walk import static_walk
from rnnops.torch.watch import tensor_at


@dataclass(frozen=True)
class ScanCall:
    """The order of an opaque op's tensors: states, inputs, lengths (if any), then tensors that a step may close over.

    Args:
        states, inputs: their numbers.
        step: the step, which is traced again for sizes that need it.
        traced: the trace for the sizes at which the graph was made. The op gets the tensors in its slots.
        given: for each slot, True if the graph has its tensor. Other tensors are read when the op runs.
        is_whole: True if the graph has all tensors that the step uses.
    """

    prepared: Prepared
    step: TorchStep
    states: int
    inputs: int
    lengths: bool
    batch_axis: int | None
    traced: TracedStep
    given: tuple[bool, ...]
    is_whole: bool

    def check_whole(self) -> None:
        """Raise StepError if a step uses a tensor that its graph does not have. Such a tensor would get no gradient."""
        if not self.is_whole:
            hint = "Hold them as parts of the cell that rnnops.torch.RNN is given."
            raise StepError("in a graph, a step reaches tensors that do not belong to its cell", hint=hint)

    def compiled(self, tensors: Sequence[Tensor]) -> CompiledStep:
        """The step compiled for the sizes of these tensors."""
        states, inputs = tensors[: self.states], tensors[self.states : self.states + self.inputs]
        shapes = (self.batch_axis, *[state.shape for state in states], *[x.shape[1:] for x in inputs])
        layouts = partial(layouts_of, states, inputs, self.batch_axis)
        compiled, _ = self.prepared.for_shapes(self.step, shapes, self.lengths, layouts)
        if isinstance(compiled, PlainLoop):
            compiled.refuse("a graph takes no such step")
        return compiled

    def places(self, compiled: CompiledStep) -> list[int | None]:
        """For each input of the net: its place among the op's tensors. None if the graph does not have the tensor."""
        first = self.states + self.inputs + self.lengths
        slots = [None if number is None else self._slot(compiled, number) for number in compiled.numbers]
        return [*range(first), *(first + slot if slot is not None and self.given[slot] else None for slot in slots)]

    def _slot(self, compiled: CompiledStep, number: int) -> int:
        """The slot of this op for a tensor of another trace."""
        if compiled.traced is self.traced:
            return number
        place = self.traced.number_of(compiled.traced, number)
        if place is None:
            hint = "Call the module with this batch size before, outside of the graph, or make a graph for it."
            where = compiled.traced.where(number)
            raise StepError(f"a graph does not have {where}, which this size needs", hint=hint)
        return place

    def feeds(self, compiled: CompiledStep, tensors: Sequence[Tensor]) -> dict[str, Any]:
        """The feeds of the net, from the op's tensors."""
        first, fed = self.states + self.inputs + self.lengths, {}
        for i, (name, place) in enumerate(zip(compiled.translation.names, self.places(compiled), strict=True)):
            tensor = compiled.closed_over_now(i - first) if place is None else tensors[place]
            fed[name] = as_array(name, compiled.translation.as_fed(name, tensor))
        return fed

    def result_kinds(self, tensors: Sequence[Tensor]) -> list[tuple[torch.dtype, tuple[Any, ...]]]:
        """Dtype and shape of each last state, and of each result of all steps, for sizes that may be symbols."""
        sequence, trace = tensors[self.states], self.traced.trace
        assert trace is not None
        kinds = trace.result_kinds(sequence.shape[1] if trace.symbols else None)
        return [*kinds[: self.states], *((kind, (sequence.shape[0], *shape)) for kind, shape in kinds[self.states :])]


_calls: dict[int, ScanCall] = {}
_numbers: dict[Any, int] = {}
_pullbacks: dict[int, Any] = {}


def call_opaque(call: ScanCall, tensors: Sequence[Tensor], is_random: bool) -> list[Tensor]:
    """Last states, then results of all steps.

    Args:
        tensors: in the order of `ScanCall`.
    """
    check_surroundings()
    grads = torch.is_grad_enabled()
    wanted = [grads and tensor.requires_grad for tensor in tensors]
    seed = torch.randint(SEEDS, ()) if is_random else None
    return recurrence(list(tensors), wanted, seed, _number_of(call))[:-1]


def _number_of(call: ScanCall) -> int:
    how = call.states, call.inputs, call.lengths, call.batch_axis, call.is_whole
    key = (id(call.prepared), id(call.traced), id(call.step), *how)
    if key not in _numbers:
        # random, so that a graph of another process that is loaded here finds nothing
        _numbers[key] = secrets.randbits(62)
        _calls[_numbers[key]] = call
    return _numbers[key]


def call_of(number: int) -> ScanCall:
    """The call of a number. Raises StepError for a number of another process."""
    if number not in _calls:
        raise StepError(
            "this graph holds a recurrence of another process, and only that process has its step",
            op="rnnops::recurrence",
            hint="Export the module again in this process, or save its state_dict and build it anew.",
        )
    return _calls[number]


@torch.library.custom_op("rnnops::recurrence", mutates_args=())
def recurrence(tensors: list[Tensor], wanted: list[bool], seed: Tensor | None, call: int) -> list[Tensor]:
    """Last states, results of all steps, and the token of the pullback.

    Args:
        wanted: for each tensor, True if its gradient is wanted. Without any, nothing is kept.
    """
    out, pullback, compiled = _forward(tensors, wanted, seed, call)
    token = np.zeros(1, np.int64)
    if pullback is not None:
        _pullbacks[token.ctypes.data] = pullback
        weakref.finalize(token, _pullbacks.pop, token.ctypes.data, None)
    seen: set[str] = set()
    results = []
    for name in _output_names(compiled):
        # no two results may be one array
        array = np.array(out[name]) if name in seen else np.ascontiguousarray(out[name])
        seen.add(name)
        results.append(as_tensor(array.reshape(out[name].shape)))
    return [*results, torch.from_numpy(token)]


@recurrence.register_fake
def _(tensors: list[Tensor], wanted: list[bool], seed: Tensor | None, call: int) -> list[Tensor]:
    kinds = call_of(call).result_kinds(tensors)
    return [*(tensors[0].new_empty(shape, dtype=kind) for kind, shape in kinds), torch.empty(1, dtype=torch.int64)]


def _forward(tensors: Sequence[Tensor], wanted: Sequence[bool], seed: Tensor | None, call: int) -> tuple[Any, ...]:
    call_of(call).check_whole()
    compiled = call_of(call).compiled(tensors)
    feeds, number = call_of(call).feeds(compiled, tensors), 0 if seed is None else int(seed)
    places = zip(compiled.translation.names, call_of(call).places(compiled), strict=True)
    names = tuple(name for name, place in places if place is not None and wanted[place])
    if names:
        return *compiled.run.vjp(feeds, wrt=names, seed=number), compiled
    return compiled.run(feeds, seed=number, training=True), None, compiled


def _output_names(compiled: CompiledStep) -> tuple[str, ...]:
    return (*compiled.translation.last, *compiled.translation.steps)


@torch.library.custom_op("rnnops::recurrence_backward", mutates_args=())
def recurrence_backward(
    grads: list[Tensor],
    present: list[bool],
    tensors: list[Tensor],
    outputs: list[Tensor],
    wanted: list[bool],
    seed: Tensor | None,
    call: int,
) -> list[Tensor]:
    """Gradients of the tensors that want one.

    Args:
        grads: gradients of those outputs that have one. `present` says which.
        outputs: results of the forward op, the token last. The pullback reads their memory, so they must live until
            now.
    """
    pullback, compiled = _pullbacks.pop(outputs[-1].data_ptr(), None), call_of(call).compiled(tensors)
    if pullback is None:  # a second backward pass
        _, pullback, _ = _forward(tensors, wanted, seed, call)
    given: dict[str, Any] = {}
    names = (name for name, here in zip(_output_names(compiled), present, strict=True) if here)
    for name, grad in zip(names, grads, strict=True):
        array = as_array(name, grad)
        given[name] = given[name] + array if name in given else array
    found = {} if pullback is None else pullback(given)
    places = zip(call_of(call).places(compiled), compiled.translation.names, strict=True)
    named: dict[int | None, list[Tensor]] = {}  # a complex tensor has two parts
    for place, name in places:
        if name in found:
            named.setdefault(place, []).append(as_tensor(found[name]))
    return [
        joined(named[i], tensor.is_complex()).to(tensor.dtype).contiguous() if i in named else torch.zeros_like(tensor)
        for i, tensor in enumerate(tensors)
        if wanted[i]
    ]


@recurrence_backward.register_fake
def _(
    grads: list[Tensor], present: list[bool], tensors: list[Tensor], outputs: list[Tensor], wanted: list[bool],
    seed: Tensor | None, call: int,
) -> list[Tensor]:  # fmt: skip
    return [tensor.new_empty(tensor.shape) for tensor, want in zip(tensors, wanted, strict=True) if want]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, ctx.wanted, seed, ctx.call = inputs
    ctx.count, ctx.is_random = len(tensors), seed is not None
    ctx.save_for_backward(*tensors, *([seed] if ctx.is_random else []), *output)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*[tensor for tensor in output if not tensor.is_floating_point()])


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> Any:
    tensors, rest = ctx.saved_tensors[: ctx.count], list(ctx.saved_tensors[ctx.count :])
    seed = rest.pop(0) if ctx.is_random else None
    present = [grad is not None for grad in grads[:-1]]
    given = [grad for grad in grads[:-1] if grad is not None]
    found = iter(recurrence_backward(given, present, list(tensors), rest, ctx.wanted, seed, ctx.call) if given else ())
    return [next(found, None) if want else None for want in ctx.wanted], None, None, None


recurrence.register_autograd(_backward, setup_context=_keep)


KEPT_CALLS = 8  # number of kinds of tensors for which a call is remembered


class ScanRequest(NamedTuple):
    """The settings of a scan.

    Args:
        roots: the step and its cell, by name.
        cell: a module whose tensors a graph may have.
        held: the tensors of a graph that stand for the cell's parameters and buffers, by name.
        check_again: True if this call repeats the self-check.
        recent: earlier calls, by their kinds. None if no call is remembered.
        wide: the float dtype in which a step with narrower tensors computes; None for no widening.
        unwidened: the arguments before they were widened. Results are then rounded to the dtypes of PyTorch's own
            loop. None if results are not rounded.
    """

    roots: Mapping[str, Any]
    settings: ScanSettings
    assume: tuple[bool, ...]
    batch_axis: int | None
    cell: Module | None = None
    held: Mapping[str, Tensor] = MappingProxyType({})
    check_again: bool = False
    recent: dict[Any, RepeatedStep] | None = None
    wide: torch.dtype | None = None
    unwidened: Given | None = None


class Given(NamedTuple):
    """The arguments of a scan."""

    carry: TensorTree
    xs: TensorTree
    lengths: Tensor | None

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.carry.leaves, *self.xs.leaves]

    @property
    def tensors(self) -> list[Tensor]:
        return self.leaves if self.lengths is None else [*self.leaves, self.lengths]

    @property
    def kind(self) -> Any:
        """A key for `repeated`, which finds an earlier call of this kind. None if such calls are not remembered."""
        (states, carry), (inputs, xs), lengths = self
        kind = type(states[0]) if carry is LEAF else tuple if carry is tuple_of(len(states)) else None
        is_plain = kind is not None and xs in (LEAF, NO_INPUT) and lengths is None
        length = len(inputs[0]) if xs == NO_INPUT else inputs[0].shape
        return (kind, len(states), length, torch.is_grad_enabled()) if is_plain else None


def prepared_for(given: Given, made: ScanRequest, known: dict[Any, Prepared]) -> Prepared:
    """The prepared step for these structures and dtypes. It is kept in `known`."""
    code = code_of(made.roots["step"])
    kinds = tuple((tensor.dtype, tensor.dim()) for tensor in given.leaves)
    side = side_of(given.tensors)
    key = (side, given.carry.tree, given.xs.tree, kinds, made.settings, made.assume, id(code))
    found = known.get(key)
    if found is None:
        found = known.setdefault(key, Prepared(made.settings, side, code))
    return found


def code_of(step: Any) -> Any:
    """The code that all functions of one `def` or `lambda` share."""
    step = getattr(step, "__func__", step)
    return getattr(step, "__code__", None) or type(step)


def repeated(made: ScanRequest, init: Any, xs: Any) -> tuple[Any, Any] | None:
    """The results of `run_scan` if this call repeats an earlier one, else None. Without inputs, xs is T."""
    recent: Any = made.recent
    states = [*init] if type(init) is tuple else [init]
    step = recent.get((type(init), len(states), xs if type(xs) is int else xs.shape, torch.is_grad_enabled()))
    known = step is not None and forward_ad._current_level < 0  # the comparison of tensors does not see tangents
    out = step.outputs(made.roots, [*states, xs if step.counted is None else step.counted]) if known else None
    if out is None:
        return None
    carry = tuple(out[: len(states)]) if type(init) is tuple else out[0]
    return carry, nested(out[len(states) :], step.result_tree)


def widened_scan(given: Given, made: ScanRequest) -> tuple[Given, ScanRequest]:
    """A scan in float32 or float64, for tensors that are narrower, or under autocast. Other scans stay as they are.

    Autocast becomes `autocast_to` of the settings, which a net gets as its option `precision=`. On the CPU this holds
    for bfloat16 only. A scan in float64 never rounds products.
    """
    kind, floats = side_of(given.tensors).kind, {x.dtype for x in given.leaves if x.is_floating_point()}
    wide = torch.float64 if torch.float64 in floats else torch.float32
    is_autocast, is_mixed = torch.is_autocast_enabled(kind), _is_narrower(made.cell, floats)
    if not is_autocast and not is_mixed and floats.isdisjoint(NARROW):
        return given, made
    settings, dtype = made.settings, torch.get_autocast_dtype(kind)
    if is_autocast and wide == torch.float32 and (dtype == torch.bfloat16 or kind == "cuda"):
        settings = settings._replace(autocast_to=dtype)
    carry, xs = (
        TensorTree([x.to(wide) if x.dtype in NARROW else x for x in tree.leaves], tree.tree)
        for tree in (given.carry, given.xs)
    )
    before = None if is_mixed else given  # PyTorch's own loop would refuse such a mixture
    return Given(carry, xs, given.lengths), made._replace(settings=settings, recent=None, wide=wide, unwidened=before)


def _is_narrower(cell: Module | None, floats: set[torch.dtype]) -> bool:
    """True for a cell with parameters of float32 or less, if all float arguments are float64."""
    is_double = floats == {torch.float64} and cell is not None
    return is_double and any(x.dtype in (torch.float32, *NARROW) for x in cell.parameters())  # type: ignore[union-attr]


def loop_dtypes(step: TorchStep, made: ScanRequest, prepared: Prepared) -> list[torch.dtype] | None:
    """The dtypes of last states and results in PyTorch's own loop. Up to three steps of the loop run once to find them.

    None if results are not rounded.
    """
    given, kind = made.unwidened, prepared.side.kind
    if given is None:
        return None
    autocast_to = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    steps = min(int(given.xs.leaves[0].shape[0]), 3)
    key = (*[x.dtype for x in given.leaves], autocast_to, steps, id(prepared.traces[0]))
    if key not in prepared.loop_dtypes:
        with PREPARING, outside_of_transforms(), outside_of_graphs([] if made.cell is None else [made.cell]):
            prepared.loop_dtypes[key] = _loop_dtypes(_as_given(step), given, made, steps)
    return prepared.loop_dtypes[key]


def _as_given(step: TorchStep) -> TorchStep:
    """The step without widening, in the dtypes that its tensors have."""
    function: Any = copy.copy(step.function)
    function.wide = None
    return step._replace(function=function)


def _rounded(results: Sequence[Tensor], dtypes: Sequence[torch.dtype] | None) -> list[Tensor]:
    return [*results] if dtypes is None else [x.to(dtype) for x, dtype in zip(results, dtypes, strict=True)]


def _loop_dtypes(step: TorchStep, given: Given, made: ScanRequest, steps: int) -> list[torch.dtype]:
    examples, count = [_example(x) if is_in_graph([x]) else x for x in given.leaves], len(given.carry.leaves)
    states, inputs = examples[:count], examples[count:]
    layout, found = layouts_of(states, inputs, made.batch_axis)[-1], list[torch.dtype]()
    for _ in range(max(steps, 1)):
        try:
            dtypes = [x.dtype for x in tried(step, layout)]
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise error if isinstance(error, RnnopsError) else _failed(error, given, made) from error
        found = [*dtypes[:count], *map(torch.promote_types, found[count:] or dtypes[count:], dtypes[count:])]
        kinds = zip(layout.states, dtypes, strict=False)
        layout = replace(layout, states=tuple(replace(kind, dtype=dtype) for kind, dtype in kinds))
    return found if steps else [*(x.dtype for x in states), *found[count:]]


def run_scan(step: StepFunction, given: Given, made: ScanRequest, known: dict[Any, Prepared]) -> tuple[Any, Any]:
    """The last carry, and the results of all steps."""
    given, made = widened_scan(given, made)
    prepared = prepared_for(given, made, known)
    in_graph = is_in_graph(given.leaves)
    if in_graph and prepared.side.kind == "cuda":
        hint = "Export the module on the CPU; torch.compile runs it between two graphs."
        raise StepError("a graph takes no recurrence of CUDA tensors", hint=hint)
    run = run_in_graph if in_graph else run_now
    last, steps, tree = run(prepared, step_of(step, given, made), given, made)
    return nested(last, given.carry.tree), nested(steps, tree)


def step_of(step: StepFunction, given: Given, made: ScanRequest) -> TorchStep:
    """A step as a function of tensors."""
    return TorchStep(FlatStep(step, given.carry, given.xs, made.wide), len(given.carry.leaves), made.roots, made.assume)


TRIED_ROWS = 3  # not two, as a cell may take two rows apart as a pair


def states_taken(step: StepFunction, xs: TensorTree, width: int, made: ScanRequest) -> int:
    """Number of states [N, H] that a step takes: two as a tuple, or one tensor. Raises StepError if neither fits."""
    check_surroundings()
    failed, refused = dict[int, tuple[Exception, Given]](), None
    with PREPARING, outside_of_transforms(), outside_of_graphs([] if made.cell is None else [made.cell]):
        examples = [_example(x) if is_in_graph([x]) else x for x in xs.leaves]
        for rows in dict.fromkeys((TRIED_ROWS, examples[0].shape[1])):
            inputs = [torch.empty((1, rows, *x.shape[2:]), dtype=x.dtype, device=x.device) for x in examples]
            for count in (2, 1) if rows != 2 else (2,):
                states = [inputs[0].new_empty(rows, width)] * count
                given = Given(TensorTree(states, LEAF if count == 1 else tuple_of(count)), xs, None)
                layout = layouts_of(states, inputs, made.batch_axis)[-1]
                try:
                    results = tried(step_of(step, given, made), layout)[:count]
                except StepError as error:  # the step took these states, and did something else that is refused
                    refused = refused or error
                except Exception as error:  # the user's code got states that it may not take
                    failed[count] = error, given
                else:
                    if all(result.shape == state.shape for result, state in zip(results, states, strict=True)):
                        return count
                    failed[count] = ValueError("states change their shape"), given
    if refused is not None:
        raise refused
    check_traceable()
    of_sizes = [failed[count] for count in (1, 2) if type(failed[count][0]) is RuntimeError]
    cause, given = [*of_sizes, failed[1]][0]
    raise _failed(cause, given, made, True) from cause


def _failed(error: Exception, given: Given, made: ScanRequest, is_left_out: bool = False) -> StepError:
    """The error for a step that fails.

    Args:
        is_left_out: True if init was left out, so that states are zeros.
    """
    # the step sees no leaves that are None
    inputs = [x for x in pytree.tree_leaves(nested(given.xs.leaves, given.xs.tree)) if x is not None]
    return failed_step(error, given.carry.leaves, inputs, made.cell, is_left_out)


def run_now(
    prepared: Prepared, step: TorchStep, given: Given, made: ScanRequest
) -> tuple[list[Tensor], list[Tensor], Any]:
    """Runs the scan at once. Returns last states, results of all steps, and the structure of the results."""
    compiled, reached = compiled_for(prepared, step, given, made)
    states, inputs = given.carry.leaves, given.xs.leaves
    if isinstance(compiled, PlainLoop):
        if made.unwidened is not None:
            step, states, inputs = _as_given(step), made.unwidened.carry.leaves, made.unwidened.xs.leaves
        last, steps = run_plainly(step.function, states, inputs, given.lengths, compiled.reverse, compiled.axes)
        return last, steps, getattr(step.function, "result_tree", None)
    dtypes = loop_dtypes(step, made, prepared)
    reached = [*reached, *compiled.traced.computed_now().values()]
    if made.check_again:
        prepared.check_again(step, layouts_of(states, inputs, made.batch_axis), compiled, reached)
    last, steps = compiled.over_time(states, inputs, given.lengths, reached)
    step_again = None if made.recent is None or given.kind is None else compiled.step_again(given.leaves, reached)
    if made.recent is not None and step_again is not None:
        step_again.counted = given.xs.leaves[0] if given.xs.tree == NO_INPUT else None
        while len(made.recent) >= KEPT_CALLS:
            made.recent.pop(next(iter(made.recent)), None)
        made.recent[given.kind] = step_again
    results = _rounded([*last, *steps], dtypes)
    return results[: len(last)], results[len(last) :], compiled.trace.result_tree


def compiled_for(
    prepared: Prepared, step: TorchStep, given: Given, made: ScanRequest
) -> tuple[CompiledStep | PlainLoop, list[Tensor]]:
    """The step compiled for the sizes of these tensors, and the tensors that it reads."""
    states, inputs, axis = given.carry.leaves, given.xs.leaves, made.batch_axis
    shapes = (axis, *[state.shape for state in states], *[sequence.shape[1:] for sequence in inputs])
    try:
        with outside_of_transforms():
            return prepared.for_shapes(
                step, shapes, given.lengths is not None, lambda: layouts_of(states, inputs, axis)
            )
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, RnnopsError):
            raise
        check_traceable()
        raise _failed(error, given, made) from error


def run_in_graph(
    prepared: Prepared, step: TorchStep, given: Given, made: ScanRequest
) -> tuple[list[Tensor], list[Tensor], Any]:
    """`run_now` as one op of a graph. It is prepared for the sizes at which the graph is made."""
    count, axis = len(given.carry.leaves), made.batch_axis
    cells = [] if made.cell is None else [made.cell]
    with outside_of_graphs([*cells, *static_walk(made.roots).modules]):
        examples = [_example(tensor) for tensor in given.leaves]
        layouts = layouts_of(examples[:count], examples[count:], axis)
        compiled, _ = prepared.for_shapes(step, (*layouts,), given.lengths is not None, lambda: layouts)
    if isinstance(compiled, PlainLoop):
        compiled.refuse("torch.compile and torch.export take no such step")
    if compiled.traced.effects.where:
        hint = "Carry it as a state, or call the module outside of a graph."
        raise StepError("in a graph, a step sets more than its carry", came=compiled.traced.effects.where, hint=hint)
    for number, tensor in enumerate(given.leaves):
        own = compiled.trace.layout.states[number].batch_axis if number < count else 1
        rows = {own} if compiled.trace.symbols and own is not None else set()
        _fix_sizes(tensor, rows if number < count else {0, *rows})
    with given_tensors(made.cell, made.held):
        traced = compiled.traced
        reached = [*map(tensor_at, traced.watch.slots), *traced.computed_now().values()]
    in_graph = tuple(is_in_graph([tensor]) for tensor in reached)
    call = ScanCall(
        *(prepared, step, count, len(given.xs.leaves), given.lengths is not None, axis, compiled.traced),
        *(in_graph, _is_whole(compiled, reached, in_graph)),
    )
    if not made.held:  # with Dynamo the error would be hidden here, so the graph raises it when it runs
        call.check_whole()
    closed_over = [x if is_given else given.leaves[0] for x, is_given in zip(reached, in_graph, strict=True)]
    tensors = [*given.tensors, *closed_over]
    dtypes = loop_dtypes(step, made, prepared)
    results = _rounded(call_opaque(call, tensors, compiled.is_random), dtypes)
    return results[:count], results[count:], compiled.trace.result_tree


def _is_whole(compiled: CompiledStep, reached: Sequence[Tensor], in_graph: Sequence[bool]) -> bool:
    """True if a graph has all tensors that a step uses and that need gradients."""
    used = zip(compiled.numbers, compiled.translation.closed_over, strict=True)
    return all(
        not x.requires_grad if place is None else in_graph[place] or not reached[place].requires_grad
        for place, x in used
    )


def _example(tensor: Tensor) -> Tensor:
    """A tensor without data. Its sizes are those that a graph's tensor has while the graph is made."""
    sizes = [size.node.hint if isinstance(size, torch.SymInt) else size for size in tensor.shape]
    return torch.empty(sizes, dtype=tensor.dtype, device="meta")


def _fix_sizes(tensor: Tensor, free: set[int]) -> None:
    """Ties the graph to a tensor's sizes, except for free axes: the step was traced for these sizes."""
    for axis, size in enumerate(tensor.shape):
        if axis not in free:
            int(size)
