"""`online_net`: a step that computes gradients of its parameters at each step, with memory that does not grow with T.

This is real-time recurrent learning (Williams and Zipser 1989), in the case in which it is cheap: each element of a new
state depends only on the same element of old states. Then `J = dh'/dh` is a diagonal. The trace of a parameter,
`e = dh/dp`, is as large as the parameter, for each row. Its next value and the gradient are

    e' = J * e + dh'/dp        and        dL/dp = (direct part) + (dL/dh) * e

The elementwise core of a step is the ops that compute new states. `J` and `dh'/dp` are its slopes. Each result of the
core depends on one element of each operand, so slopes are gradients for an output gradient of ones. The core ends at
its leaves: states, inputs, blobs that depend only on parameters, and products `x @ w` of an input and such a blob. For
such a product, `dh'/dw` is the outer product of x and a slope.

An op on the way to a new state that mixes elements of states, such as `h @ w`, is an error. With `approximate=True` it
reads states through StopGradient instead. That is e-prop (Bellec et al. 2020) and RFLO (Murray 2019).

**To move** means here: to have a gradient for parameters or old states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from rnnops.autodiff import differentiate
from rnnops.compiler.api.derivative_nets import free_prefix
from rnnops.compiler.api.feeds import names_of, types_of_feeds
from rnnops.compiler.lower.lower_ops import expand_ops
from rnnops.compiler.lower.movements import moved_numbers
from rnnops.compiler.run.pipeline import live_net
from rnnops.errors import FeedError, GradientError, check_flags, named_arguments
from rnnops.interpreter import (
    Program,
    draws,
    fold_constants,
    merge_equal_ops,
    prepare,
    prepare_again,
    prune,
    prune_cells,
    rewritten,
)
from rnnops.net.loop_forms import MATMULS, PRODUCTS, Pointwise, View
from rnnops.net.net import Net, require_net
from rnnops.net.op import Input, Op, absolute_names, free_name
from rnnops.net.schema import Call, form_of, schema_of
from rnnops.recurrent.scan import CellFunction
from rnnops.recurrent.training_form import open_form
from rnnops.types import FLOAT, Array, Shape, Type, is_float

HINT = "Pass approximate=True to cut this path (e-prop), or train by run.vjp."
TRAIN = "Train such a step by run.vjp."


@dataclass(frozen=True)
class OnlineStep:
    """A step that learns while it runs, made by `ro.online_net`.

    Args:
        net: the step. Its additional inputs are traces, and `d_y` for each output `y` that takes a gradient. Its
            additional outputs are the next traces, and `d_w` for each parameter `w`: its gradient, summed over rows.
        states: output -> the input that it feeds at the next step, traces included; as `run.stream` takes it.
        traces: name of a trace -> its shape, `[N, ...]`; all begin with zeros.
    """

    net: Net
    states: Mapping[str, str]
    traces: Mapping[str, Shape]

    def __str__(self) -> str:
        return str(self.net)


@named_arguments
def online_net(
    cell: CellFunction | Net,
    parameters: Any = None,
    *,
    states: Mapping[str, str] | None = None,
    outputs: Any = None,
    approximate: bool = False,
    **shapes: Any,
) -> OnlineStep:
    """A step with traces as states, which computes gradients of its parameters at every step.

    If parameters do not change, the sum of its gradients over all steps is the gradient of `run.vjp`. Parameters may
    also change from step to step.

    Args:
        cell: a cell that `ro.cell` made, or the net of a step.
        parameters: float inputs whose gradients are wanted; those of the cell if left out.
        states: for a net: output -> the input that it feeds at the next step.
        outputs: names of float outputs that take a gradient; if left out, all that are not states, or, if there are
            none, the states.
        approximate: ignore gradients of states through ops that mix their elements; else such a step is an error.
        shapes: input name -> array or shape; states are `[N, ...]`. Inputs with declared shapes may be left out.

    Returns:
        An `OnlineStep` for these sizes.

    Raises:
        FeedError: shapes are missing, or names are unknown.
        TypeRuleError: shapes do not fit the ops.
        GradientError: an op mixes elements of states or parameters on the way to a new state; the error names the op.

    Example:
        >>> @ro.cell
        ... def leaky(x, h, *, w, a):
        ...     return dict(h=a * h + x @ w)
        >>> online = ro.online_net(leaky, x=(1, 2), h=(1, 3), w=(2, 3), a=(3,))
        >>> dict(online.traces)
        {'trace_h_a': (1, 3), 'trace_h_w': (1, 2, 3)}
        >>> stream = ro.compile(online.net).stream(online.states, shapes=online.traces | {"h": (1, 3)})
        >>> feeds = dict(x=np.ones((1, 2)), w=np.zeros((2, 3)), a=np.full(3, 0.5), d_h=np.ones((1, 3)))
        >>> out = stream(**{name: array.astype("float32") for name, array in feeds.items()})
        >>> out["d_w"]
        array([[1., 1., 1.],
               [1., 1., 1.]], dtype=float32)
    """
    if isinstance(cell, CellFunction):
        net, links = cell.net, dict(zip(cell.states, cell.states, strict=True))
        parameters = cell.parameters if parameters is None else parameters
    else:
        require_net(cell, "Give what ro.cell made, or the net of a step.")
        net, links = cell.snapshot(), _checked_links(cell, states)
    check_flags("online_net", approximate=approximate)
    kinds, _ = types_of_feeds(net, (), shapes)
    types = {spec.name: replace(kinds[spec.name], dtype=spec.dtype) for spec in net.input_specs}
    others = [name for name in net.input_names if name not in links.values() and is_float(types[name].dtype)]
    chosen = _chosen(net, "parameters", others, () if parameters is None else parameters)
    program = prepare(live_net(net), types, FLOAT)
    program = expand_ops(prepare_again(program, fold_constants(program)), only=PRODUCTS)
    moved = [*chosen, *(name for name in links.values() if is_float(types[name].dtype))]
    program = prepare_again(program, open_form(program, moved))
    floats = [name for name, blob in program.net.output_blobs.items() if is_float(program.types[blob].dtype)]
    others = [name for name in floats if name not in links] or floats
    given = _chosen(net, "outputs", floats, others if outputs is None else outputs)
    _check_shapes(program, links)
    with absolute_names():
        return _OnlineWriter(_core(program, links, chosen, bool(approximate)), links, chosen, given).written()


def _checked_links(net: Net, links: Mapping[str, str] | None) -> dict[str, str]:
    if not isinstance(links, Mapping | None):
        raise FeedError("states= is not a dict", net=net.name, wanted="output -> input", came=repr(links)[:60])
    found = dict(links or {})
    for output, name in found.items():
        if output not in net.output_blobs or name not in net.input_names:
            wanted = f"one of {', '.join(net.output_blobs)} -> one of {', '.join(net.input_names)}"
            raise FeedError("states names no output and input", net=net.name, wanted=wanted, came=f"{output} -> {name}")
    if len(set(found.values())) < len(found):
        raise FeedError("two outputs feed one input", net=net.name, came=str(found))
    return found


def _check_shapes(program: Program, links: Mapping[str, str]) -> None:
    for output, name in links.items():
        made, came = program.types[program.net.output_blobs[output]], program.types[name]
        if made.shape != came.shape:
            wanted = f"{list(made.shape)}, as output '{output}' has"
            problem, hint = "a state has another shape", "A step takes one time step of each sequence, [N, ...]."
            raise FeedError(problem, net=program.net.name, blob=name, wanted=wanted, came=came, hint=hint)


def _chosen(net: Net, what: str, known: Sequence[str], names: Any) -> tuple[str, ...]:
    """The chosen names. Raises FeedError for unknown names, and if none is chosen."""
    chosen = tuple(dict.fromkeys(names_of(names)))
    for name in chosen or ("",):
        if name not in known:
            wanted = f"some of {', '.join(known) or 'none'}"
            hint = None if name else "Of a net, name them: online_net(net, ['w'], states={'h_next': 'h'}, ...)."
            problem, came = f"{what}: not a float of the step", name or "none"
            raise FeedError(problem, net=net.name, wanted=wanted, came=came, hint=hint)
    return chosen


class _MixedError(Exception):
    """An op on the way to a new state mixes elements.

    Args:
        call: the call of the op.
        names: its operands that depend on states; empty if it mixes elements of parameters.
    """

    def __init__(self, call: Call, names: Sequence[str]) -> None:
        self.call, self.names = call, names

    def told(self, net: str) -> GradientError:
        """The error that users see."""
        mixed = f"elements that depend on states ({', '.join(self.names)})" if self.names else "elements of parameters"
        problem = f"this op mixes {mixed} on the way to a new state, so that traces would be larger than parameters"
        return GradientError(problem, net=net, op=self.call.op.label, hint=HINT if self.names else TRAIN)


def _core(program: Program, links: Mapping[str, str], parameters: Sequence[str], approximate: bool) -> _ElementwiseCore:
    """The core of a step. With `approximate`, ops that mix elements of states read them through StopGradient."""
    while True:
        try:
            return _ElementwiseCore(program, links, parameters)
        except _MixedError as error:
            if not approximate or not error.names:
                raise error.told(program.net.name) from None
            program = _cut(program, error.call.op, error.names)


def _cut(program: Program, cut: Op, names: Sequence[str]) -> Program:
    """The program in which an op reads some blobs through StopGradient."""
    taken, ops = set(program.types), list[Op]()
    for op in program.net.ops:
        if op is cut:
            stopped = {name: free_name(f"{name}/stopped", taken) for name in names}
            ops += [Op("StopGradient", (name,), (made,), {}) for name, made in stopped.items()]
            op = replace(op, inputs=tuple(stopped.get(name, name) for name in op.inputs))
        ops.append(op)
    return prepare_again(program, rewritten(program.net, ops))


Way = tuple[tuple[Call, int], ...]  # views from a blob of the step to the core: (op, number of the result)


@dataclass(frozen=True)
class Leaf:
    """An operand of the elementwise core.

    Args:
        blob: the blob of the step.
        way: the views between the blob and the core.
        product: the product that makes the blob, if the leaf is a product of data and parameters; else None.
        moves: True if it is a state or depends on parameters.
    """

    blob: str
    way: Way
    product: Call | None
    moves: bool


class _ElementwiseCore:
    """The elementwise ops between leaves and new states. A blob of the core has the shape of the state it leads to.

    Args:
        links: output -> state.
        parameters: inputs that are parameters.

    Attributes:
        active: state -> output, for float states that depend on parameters after some number of steps.
        ops: the ops of the core.
        kinds: blob of the core -> its type.
        leaves: blob of the core -> the leaf that it stands for.
        moving: blob of the core -> the leaves that it depends on and that move.
        ends: state -> blob of the core that is its next value.
    """

    def __init__(self, program: Program, links: Mapping[str, str], parameters: Sequence[str]) -> None:
        self.program, self.types = program, program.types
        self.makers = {name: (call, i) for call in program.calls for i, name in enumerate(call.op.outputs) if name}
        self.taken = set(program.types)
        self.active = self._active_states(links, parameters)
        self.of_parameters = self._following(parameters)
        self.of_states = self._following(self.active)
        drawn = {name for op in program.net.ops if draws(op, training=True) for name in op.outputs}
        self.of_others = self._following({*program.net.input_names, *drawn} - {*parameters}, through_all=True)
        self.ops: list[Op] = []
        self.leaves: dict[str, Leaf] = {}
        self.kinds: dict[str, Type] = {}
        self.moving: dict[str, frozenset[str]] = {}
        self._made: dict[Any, str] = {}
        self._expansions: dict[Any, Call] = {}
        blobs = program.net.output_blobs
        self.ends = {s: self._built(blobs[output], (), self.types[s].shape) for s, output in self.active.items()}

    def _active_states(self, links: Mapping[str, str], parameters: Sequence[str]) -> dict[str, str]:
        found, blobs = dict[str, str](), self.program.net.output_blobs
        while True:
            moved = self._following([*parameters, *found])
            floats = {s: output for output, s in links.items() if is_float(self.types[s].dtype)}
            more = {state: output for state, output in floats.items() if blobs[output] in moved}
            if more == found:
                return found
            found = more

    def _following(self, names: Iterable[str], through_all: bool = False) -> set[str]:
        """The float blobs that depend on these through ops with a gradient; with `through_all`, all blobs that
        depend on them."""
        found = set(names)
        for call in self.program.calls:
            passes = through_all or schema_of(call.op.type).differentiable
            if passes and any(name in found for name in call.op.inputs):
                kinds = zip(call.op.outputs, call.output_types, strict=True)
                found.update(name for name, kind in kinds if name and (through_all or is_float(kind.dtype)))
        return found

    def fixed(self, name: str) -> bool:
        """True if a blob depends on parameters, and on no other input and no random op."""
        return name in self.of_parameters and name not in self.of_others

    def _built(self, name: str, way: Way, shape: Shape) -> str:
        """The blob of the core that stands for a blob of the step after the views of `way`."""
        key = name, tuple((id(call), i) for call, i in way), shape
        if key not in self._made:
            self._made[key] = self._new(name, way, shape)
        return self._made[key]

    def _new(self, name: str, way: Way, shape: Shape) -> str:
        if name in self.active:
            self._check_own_element(name, way, shape)
        moves = self._moves(name)
        if name in self.active or not moves or self.fixed(name):
            return self._leaf(Leaf(name, way, None, moves), shape)
        call, place = self.makers[name]
        form = form_of(call)
        if isinstance(form, Pointwise) and self._is_elementwise(call, form, way):
            return self._pointwise(call, way, shape)
        if isinstance(form, View) and not form.all_inputs and not any(map(self._moves, call.op.inputs[1:])):
            return self._built(call.op.inputs[0], ((call, place), *way), shape)
        return self._leaf(self._product(call, way), shape)

    def _moves(self, name: str) -> bool:
        return name in self.of_parameters or name in self.of_states

    def _is_elementwise(self, call: Call, form: Pointwise, way: Way) -> bool:
        """True if all operands that move, and, after views, all others, can be broadcast to the shape of the result."""
        full = call.output_types[0].shape
        others = [i for i, name in enumerate(call.op.inputs) if name and call.shape(i) != full]
        seen_whole = [i for i in others if self._moves(call.op.inputs[i]) or (way and call.shape(i) != ())]
        return not seen_whole or (schema_of(call.op.type).broadcasts and not form.begins)

    def _pointwise(self, call: Call, way: Way, shape: Shape) -> str:
        full, parts = call.output_types[0].shape, list[str]()
        for i, operand in enumerate(call.op.inputs):
            if not operand:
                parts.append("")
            elif not self._moves(operand) and (not way or call.shape(i) == ()):  # the op itself broadcasts it
                parts.append(self._built(operand, (), call.shape(i)))
            else:
                repeated = () if call.shape(i) == full else ((self._expansion(call.types[i], full), 0),)
                parts.append(self._built(operand, (*repeated, *way), shape))
        made = free_name(f"core/{call.op.outputs[0]}", self.taken)
        self.ops.append(replace(call.op, inputs=tuple(parts), outputs=(made,)))
        self.kinds[made] = Type(call.output_types[0].dtype, shape)
        self.moving[made] = frozenset[str]().union(*(self.moving[part] for part in parts if part))
        return made

    def _expansion(self, kind: Type | None, shape: Shape) -> Call:
        """The op that repeats an operand as broadcasting does."""
        assert kind is not None
        op, made = Op("Expand", ("repeated",), ("expanded",), {"shape": shape}), Type(kind.dtype, shape)
        return self._expansions.setdefault((kind, shape), Call(op, (kind,), (None,), self.program.net.name, (made,)))

    def _product(self, call: Call, way: Way) -> Leaf:
        """The leaf for a product of data and a matrix of parameters. Raises _MixedError for any other op."""
        inputs = [*filter(None, call.op.inputs)]
        still = inputs[0] not in self.of_parameters | self.of_states
        if call.op.type in MATMULS and call.rank(0) == call.rank(1) == 2 and still and self.fixed(inputs[1]):
            return Leaf(call.op.outputs[0], way, call, True)
        raise _MixedError(call, [name for name in inputs if name in self.of_states])

    def _leaf(self, leaf: Leaf, shape: Shape) -> str:
        dtype = self.types[leaf.blob].dtype
        made = free_name(f"leaf/{leaf.blob}", self.taken)
        self.leaves[made], self.kinds[made] = leaf, Type(dtype, shape)
        self.moving[made] = frozenset([made] if leaf.moves and is_float(dtype) else [])
        return made

    def _check_own_element(self, state: str, way: Way, shape: Shape) -> None:
        """Raise an error if views bring elements of a state to places of other elements."""
        numbers = np.arange(1, 1 + prod(self.types[state].shape)).reshape(self.types[state].shape)
        if shape != numbers.shape or not np.array_equal(seen(numbers, way), numbers):
            moves = [call for call, _ in way if call.op.outputs[0] in self.makers]
            if moves:
                raise _MixedError(moves[0], moves[0].op.inputs[:1])
            problem = f"a state {list(shape)} depends on this one, so that traces would be larger than parameters"
            raise GradientError(problem, net=self.program.net.name, blob=state, hint=TRAIN)

    def _sources(self, names: Iterable[str]) -> set[str]:
        found, waiting = set[str](), [*names]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self.makers[one][0].op.inputs if one in self.makers else ()
        return found

    def sources(self, name: str) -> list[str]:
        """The inputs of the step that a blob depends on."""
        found = self._sources([name])
        return [spec.name for spec in self.program.net.input_specs if spec.name in found]


def seen(numbers: Array, way: Way) -> Array:
    """Numbers of elements, which count from 1, after the views of a way; 0 for elements that views fill in."""
    for call, place in way:
        numbers = np.append(0, numbers)[moved_numbers(call, [0], [1])[place]]
    return numbers


class _OnlineWriter:
    """Writes an online step: the ops of the step, the core and its slopes, the traces, the gradients.

    Attributes:
        states: leaf that is a state -> this state.
        partials: state -> leaf that its new value depends on -> slope, a blob of the state's shape.
        traces: (state, leaf that depends on parameters) -> the input with its trace.
    """

    def __init__(
        self, core: _ElementwiseCore, links: Mapping[str, str], parameters: Sequence[str], outputs: Sequence[str]
    ) -> None:
        self.core, self.links, self.parameters, self.outputs = core, links, parameters, outputs
        self.program = program = core.program
        self.states = {name: leaf.blob for name, leaf in self.core.leaves.items() if leaf.blob in self.core.active}
        self.ops = list(program.net.ops)
        self.inputs = [replace(spec, shape=program.types[spec.name].shape) for spec in program.net.input_specs]
        self.values = {name: self._along(leaf.way, leaf.blob) for name, leaf in self.core.leaves.items()}
        self._splice(self.core.ops, self.values)
        self.partials = {state: self._slopes(end) for state, end in self.core.ends.items()}
        self.traces: dict[tuple[str, str], str] = {}
        self.shapes: dict[str, Shape] = {}

    def written(self) -> OnlineStep:
        """The step."""
        prefix = free_prefix(self.program.net, "d")
        direct = self._direct_gradients(prefix)
        self._declare_traces()
        made = {trace: self._next_trace(*key) for key, trace in self.traces.items()}
        through = self._gradients_through(direct)
        grads = {prefix + name: self._sum([direct[name], through[name]]) for name in self.parameters}
        outputs = {**self.program.net.output_blobs, **made, **grads}
        net = Net(f"{self.program.net.name}_online").with_ops(self.ops, outputs, self.inputs)
        links = {**self.links, **{trace: trace for trace in made}}
        return OnlineStep(merge_equal_ops(prune_cells(prune(net.snapshot()))), links, self.shapes)

    # -- ops -------------------------------------------------------------------------------------------------------

    def _op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        made = free_name(f"online/{kind.lower()}", self.core.taken)
        self.ops.append(Op(kind, inputs, (made,), attributes))
        return made

    def _sum(self, terms: Sequence[str]) -> str:
        total, *others = terms
        for term in others:
            total = self._op("Add", total, term)
        return total

    def _along(self, way: Way, blob: str) -> str:
        """The blob after the views of a way, whose ops are appended."""
        for call, place in way:
            made = tuple(free_name(f"online/{call.op.type.lower()}", self.core.taken) for _ in call.op.outputs)
            self.ops.append(replace(call.op, inputs=(blob, *call.op.inputs[1:]), outputs=made))
            blob = made[place]
        return blob

    def _splice(self, ops: Iterable[Op], names: Mapping[str, str]) -> None:
        """Append ops that read blobs under other names."""
        self.ops += [replace(op, inputs=tuple(names.get(name, name) for name in op.inputs)) for op in ops]

    def _gradients(
        self, program: Program, wrt: Sequence[str], given: Mapping[str, str], names: Mapping[str, str]
    ) -> dict[str, str]:
        """Append the ops of a gradient. Returns input of the program -> blob that is its gradient.

        Args:
            given: output -> the blob that is its gradient.
            names: blob of the program -> its name in the new net, if it differs.
        """
        found = differentiate(program, wrt)
        for error in found.refused.values():
            raise error.again()
        here = {**names, **{grad: given[output] for output, grad in found.output_grads.items()}}
        for op in found.net.ops:
            made = {name: free_name(f"online/{name}", self.core.taken) for name in op.outputs if name}
            here.update(made)
            read = tuple(here.get(name, name) for name in op.inputs)
            self.ops.append(replace(op, inputs=read, outputs=tuple(made.get(name, "") for name in op.outputs)))
        return {name: here.get(blob, blob) for name, blob in found.net.output_blobs.items()}

    # -- slopes, and gradients of one step -------------------------------------------------------------------------

    def _slopes(self, end: str) -> dict[str, str]:
        """Leaf -> slopes: the derivative of each element of a new state by the same element of the leaf."""
        kinds = {name: self.core.kinds[name] for name in self.core.leaves}
        inputs = [Input(name, kind.dtype, kind.shape) for name, kind in kinds.items()]
        net = Net("core").with_ops(self.core.ops, {"end": end}, inputs).snapshot()
        program = prepare(prune(net), kinds, FLOAT)
        kind = self.core.kinds[end]
        ones = self._op("ConstantOfShape", shape=kind.shape, value=1.0, dtype=kind.dtype)
        return self._gradients(program, sorted(self.core.moving[end]), {"end": ones}, self.values)

    def _direct_gradients(self, prefix: str) -> dict[str, str]:
        """Gradients of states and parameters within the step, from the gradients of outputs, which become inputs."""
        blobs, types = {name: self.program.net.output_blobs[name] for name in self.outputs}, self.program.types
        given = {name: prefix + name for name in blobs}
        self.inputs += [Input(given[name], types[blob].dtype, types[blob].shape) for name, blob in blobs.items()]
        some = self.program.net.with_ops(self.program.net.ops, blobs).snapshot()
        return self._gradients(prepare_again(self.program, some), [*self.core.active, *self.parameters], given, {})

    # -- traces ----------------------------------------------------------------------------------------------------

    def _declare_traces(self) -> None:
        """Declare a trace for each state and each leaf of parameters that it depends on, also through other states."""
        reached: dict[str, set[str]] = {state: set() for state in self.partials}
        while True:
            more = {
                state: {q for leaf in slopes for q in (reached[self.states[leaf]] if leaf in self.states else [leaf])}
                for state, slopes in self.partials.items()
            }
            if more == reached:
                break
            reached = more
        for state, leaves in reached.items():
            for name in (one for one in self.core.leaves if one in leaves):
                self._declare(state, name)

    def _declare(self, state: str, name: str) -> None:
        leaf, kind = self.core.leaves[name], self.program.types[state]
        if self.core.kinds[name].dtype != kind.dtype:
            problem, came = (
                "a state depends on a blob of another dtype",
                f"'{leaf.blob}', {self.core.kinds[name].dtype}",
            )
            raise GradientError(
                problem, net=self.program.net.name, blob=state, wanted=kind.dtype, came=came, hint=TRAIN
            )
        shape = kind.shape
        if leaf.product is not None:
            shape = (*shape[:1], leaf.product.shape(1)[0], *shape[1:])
        source = self.core.sources(leaf.blob if leaf.product is None else leaf.product.op.inputs[1])
        taken = {*self.shapes, *self.program.types, *self.program.net.output_blobs}
        trace = free_name("_".join(["trace", state, *source]).replace("/", "_"), taken)
        self.core.taken.add(trace)
        self.traces[state, name], self.shapes[trace] = trace, shape
        self.inputs.append(Input(trace, kind.dtype, shape))

    def _next_trace(self, state: str, name: str) -> str:
        slopes, leaf = self.partials[state], self.core.leaves[name]
        terms = []
        for own, other in self.states.items():
            if own in slopes and (other, name) in self.traces:
                terms.append(self._op("Mul", self._beside(slopes[own], leaf), self.traces[other, name]))
        if name in slopes:
            terms.append(slopes[name] if leaf.product is None else self._outer(leaf.product, slopes[name], state))
        return self._sum(terms)

    def _beside(self, blob: str, leaf: Leaf) -> str:
        """A blob of a state's shape; for a product, with an additional axis for the rows of the matrix."""
        return blob if leaf.product is None else self._op("Unsqueeze", blob, axes=(1,))

    def _outer(self, product: Call, slope: str, state: str) -> str:
        """Data times slopes: for each row of the batch, the derivative of each element by each row of the matrix."""
        rank = len(self.program.types[state].shape)
        data = self._op("Unsqueeze", product.op.inputs[0], axes=tuple(range(2, rank + 1)))
        return self._op("Mul", data, self._op("Unsqueeze", slope, axes=(1,)))

    # -- gradients of parameters -----------------------------------------------------------------------------------

    def _gradients_through(self, direct: Mapping[str, str]) -> dict[str, str]:
        """The gradients that reach parameters through states: gradients of leaves, sent back to the parameters that
        make them."""
        terms: dict[str, list[str]] = {}
        for (state, name), trace in self.traces.items():
            leaf = self.core.leaves[name]
            moved = self._op("Mul", self._beside(direct[state], leaf), trace)
            terms.setdefault(name, []).append(
                moved if leaf.product is None else self._op("ReduceSum", moved, axes=(0,), keepdims=0)
            )
        ends = {name: self._end(self.core.leaves[name], name) for name in terms}
        net = self.program.net.with_ops(self.ops, ends, self.inputs).snapshot()
        types = {spec.name: Type(spec.dtype, spec.shape or ()) for spec in self.inputs}
        program = prepare(prune(net), types, FLOAT)
        given = {name: self._sum(some) for name, some in terms.items()}
        return self._gradients(program, self.parameters, given, {})

    def _end(self, leaf: Leaf, name: str) -> str:
        """The part of a leaf that depends on parameters. For a product: the columns of its right operand, as its views
        choose them."""
        if leaf.product is None:
            return self.values[name]
        (height, _), (rows, columns) = leaf.product.shape(0), leaf.product.shape(1)
        places = seen(np.arange(1, 1 + height * columns).reshape(height, columns), leaf.way) - 1
        own = np.arange(len(places)).reshape(-1, *(1,) * (places.ndim - 1)) if height > 1 else 0
        chosen = places[0] % columns
        if places.min(initial=0) < 0 or (places // columns != own).any() or (places % columns != chosen).any():
            raise _MixedError(leaf.way[0][0], ()).told(self.program.net.name)
        matrix = leaf.product.op.inputs[1]
        if chosen.shape == (columns,) and (chosen == np.arange(columns)).all():
            return matrix
        picked = self._op("Gather", matrix, self._op("Constant", value=chosen.ravel(), dtype="int64"), axis=1)
        return self._op("Reshape", picked, shape=(rows, *chosen.shape))
