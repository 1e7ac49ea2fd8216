"""Nets that compute derivatives. They are plain nets, so that they can be differentiated again.

**Gradients**: `gradient_net`. **Tangents**: `tangent_net` computes how outputs change in a direction of inputs, in one
forward pass. Ops have no rules for tangents. A gradient is linear in the gradients of outputs, and the gradient of this
linear map is the tangent: `differentiate(differentiate(op))`, without ops that are not read. A recurrence becomes one
recurrence with twice as many sequences, states, references and outputs: those that depend on the direction have a
tangent.

**To move** means here: to have a tangent, that is, to depend on the inputs of `wrt`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from rnnops.autodiff import GradientNet, differentiate
from rnnops.compiler.api.feeds import checked_wrt, names_of, types_of_feeds
from rnnops.compiler.run.pipeline import live_net, rewritten_program
from rnnops.errors import GradientError, NetError, named_arguments
from rnnops.interpreter import Program, prepare, prepare_again, prune, prune_cells
from rnnops.net.net import Net, require_net
from rnnops.net.op import Input, Op, absolute_names, free_name
from rnnops.net.schema import Call, schema_of
from rnnops.recurrent.recurrence import Recurrence, State, cell_program, input_types
from rnnops.recurrent.training_form import open_form
from rnnops.types import FLOAT, Array, Type, is_float


@named_arguments
def gradient_net(net: Net, wrt: Any = None, outputs: Any = None, **shapes: Any) -> Net:
    """The net and its gradient as one plain net, to be printed, exported, compiled and differentiated again.

    For each float output `y` it has an additional input `d_y`, the gradient of `y`. For each input `x` of `wrt` it has
    an additional output `d_x`, the gradient of `x`. In the gradient net of a gradient net these are `d2_y` and `d2_x`.
    It computes the same as `run.vjp`. Dropout is active only with `training=True`.

    Args:
        net: a net with outputs; its recurrences may be of any kind.
        wrt: float inputs whose gradients are wanted; all of them if left out.
        outputs: names of float outputs that take a gradient; all that may take one if left out.
        shapes: input name -> array or shape; inputs with declared shapes may be left out. The net is for these sizes.

    Returns:
        An immutable net for float32 and float64, with the outputs of `net` first.

    Raises:
        NetError: net is not a net, or has no outputs.
        FeedError: shapes are missing or do not fit, or wrt names no float input.
        TypeRuleError: shapes do not fit the ops.
        GradientError: the net cannot be differentiated, or an output takes no gradient.

    Example:
        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> net.outputs(y=x * x * x)
        >>> first = ro.gradient_net(net, x=(2,))
        >>> second = ro.gradient_net(first, outputs=["d_x"], wrt="x")
        >>> run, ones = ro.compile(second, device="reference"), np.ones(2)
        >>> run({"x": np.array([1.0, 2.0]), "d_y": ones, "d2_d_x": ones})["d2_x"]
        array([ 6., 12.])
    """
    return gradient_of(net, wrt, outputs, shapes)


def gradient_of(net: Net, wrt: Any, outputs: Any, shapes: Mapping[str, Any]) -> Net:
    """`gradient_net` for inputs of any name."""
    program, types, names = program_of(net, wrt, shapes)
    program = prepare_again(program, open_form(program, names))
    chosen = _float_outputs(program, outputs)
    gradient = differentiate(_with_outputs(program, chosen), names)
    if gradient.refused:  # by outputs_with_grads
        allowed = [name for name in chosen if name not in gradient.refused]
        if outputs is not None or not allowed:
            raise next(iter(gradient.refused.values())).again()
        gradient = differentiate(_with_outputs(program, allowed), names)
    return _joined(program, gradient, types, free_prefix(net, "d"))


def program_of(net: Net, wrt: Any, shapes: Mapping[str, Any]) -> tuple[Program, dict[str, Type], tuple[str, ...]]:
    """The net after the rewrites of a run, for any float dtype; the types of its inputs; and the inputs of `wrt`."""
    require_net(net)
    if not net.output_blobs:
        raise NetError("the net has no outputs", net=net.name, hint="Call net.outputs(...).")
    names = checked_wrt(net, wrt)
    kinds, _ = types_of_feeds(net, (), shapes)
    types = {spec.name: replace(kinds[spec.name], dtype=spec.dtype) for spec in net.input_specs}
    return rewritten_program(live_net(net), types, FLOAT), types, names


def _float_outputs(program: Program, outputs: Any) -> list[str]:
    """The chosen float outputs; all if `outputs` is None. Raises GradientError for other names."""
    blobs = program.net.output_blobs
    floats = [name for name, blob in blobs.items() if is_float(program.types[blob].dtype)]
    wanted = floats if outputs is None else names_of(outputs)
    for name in wanted:
        if name not in floats:
            others = f"one of {', '.join(floats)}"
            raise GradientError("outputs names no float output", net=program.net.name, blob=str(name), wanted=others)
    return [name for name in floats if name in wanted]


def _with_outputs(program: Program, names: Sequence[str]) -> Program:
    blobs = program.net.output_blobs
    some = program.net.with_ops(program.net.ops, {name: blobs[name] for name in names}).snapshot()
    return prepare_again(program, some)


def free_prefix(net: Net, letter: str) -> str:
    """For the letter d: `d_`, or `d2_` if a name of the net begins with `d_` already, and so on."""
    names = [*net.output_blobs, *net.blob_names]
    prefixes = (f"{letter}_" if order == 1 else f"{letter}{order}_" for order in count(1))
    return next(prefix for prefix in prefixes if not any(name.startswith(prefix) for name in names))


def _joined(program: Program, gradient: GradientNet, types: Mapping[str, Type], prefix: str) -> Net:
    """The ops of a net and those of its gradient, as one net."""
    forward = program.net
    named = {grad: prefix + output for output, grad in gradient.output_grads.items()}
    ops = [replace(op, inputs=tuple(named.get(name, name) for name in op.inputs)) for op in gradient.net.ops]
    inputs = [replace(spec, shape=types[spec.name].shape) for spec in forward.input_specs]
    grads = [replace(spec, name=named[spec.name]) for spec in gradient.net.input_specs if spec.name in named]
    found = {prefix + name: named.get(blob, blob) for name, blob in gradient.net.output_blobs.items()}
    outputs = {**forward.output_blobs, **found}
    both = Net(f"{forward.name}_gradient")
    return prune_cells(both.with_ops([*forward.ops, *ops], outputs, [*inputs, *grads]).snapshot())


@named_arguments
def tangent_net(net: Net, wrt: Any = None, **shapes: Any) -> Net:
    """The net and its tangents as one plain net: derivatives of outputs in a direction, in one forward pass.

    For each input `x` of `wrt` it has an additional input `t_x`, the direction. For each float output `y` it has an
    additional output `t_y`, the derivative of `y` in this direction. If a name of the net begins with `t_` already, the
    new names begin with `t2_`. The tangent net of a gradient net computes products of the Hessian and a vector.

    Args:
        net: a net with outputs.
        wrt: float inputs that have a direction; all of them if left out.
        shapes: input name -> array or shape; inputs with declared shapes may be left out. The net is for these sizes.

    Returns:
        An immutable net for float32 and float64, with the outputs of `net` first.

    Raises:
        NetError: net is not a net, or has no outputs.
        FeedError: shapes are missing or do not fit, or wrt names no float input.
        TypeRuleError: shapes do not fit the ops.
        GradientError: an op has no gradient.

    Example:
        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> net.outputs(y=x * x)
        >>> run = ro.compile(ro.tangent_net(net, x=(2,)), device="reference")
        >>> run({"x": np.array([1.0, 3.0]), "t_x": np.array([1.0, 0.5])})
        {'y': array([1., 9.]), 't_y': array([2., 3.])}
    """
    return tangent_of(net, wrt, shapes)


def tangent_of(net: Net, wrt: Any, shapes: Mapping[str, Any]) -> Net:
    """`tangent_net` for inputs of any name."""
    program, types, names = program_of(net, wrt, shapes)
    prefix = free_prefix(net, "t")
    with absolute_names():
        writer = _Writer(program, {name: prefix + name for name in names})
        writer.write()
        blobs = program.net.output_blobs
        floats = [name for name, blob in blobs.items() if is_float(program.types[blob].dtype)]
        outputs = {**blobs, **{prefix + name: writer.tangent_or_zeros(blobs[name]) for name in floats}}
        inputs = [replace(spec, shape=types[spec.name].shape) for spec in program.net.input_specs]
        inputs += [Input(prefix + name, types[name].dtype, types[name].shape) for name in names]
        return prune_cells(Net(f"{program.net.name}_tangent").with_ops(writer.ops, outputs, inputs).snapshot())


class _Writer:
    """Writes the ops of a program, with ops for tangents between them.

    Args:
        tangents: blob -> the blob that is its tangent. The caller gives those of inputs.
    """

    def __init__(self, program: Program, tangents: Mapping[str, str]) -> None:
        self.program, self.tangents = program, dict(tangents)
        self.taken = {*program.types, *tangents.values()}
        self.ops: list[Op] = []

    def write(self) -> None:
        for call in self.program.calls:
            moves = schema_of(call.op.type).differentiable and any(name in self.tangents for name in call.op.inputs)
            if moves and call.op.type == "RecurrentNetwork":
                self._write_recurrence(call)
                continue
            self.ops.append(call.op)
            if moves:
                self._write_tangents(call)

    def tangent_or_zeros(self, blob: str) -> str:
        """The tangent of a blob of the program; zeros if it has none."""
        if blob not in self.tangents:
            shape = {"shape": self.program.types[blob].shape, "value": 0.0}
            self.ops.append(Op("ConstantOfShape", (), (self._free(f"{blob}/zeros"),), shape))
            self.tangents[blob] = self.ops[-1].outputs[0]
        return self.tangents[blob]

    def _free(self, name: str) -> str:
        return free_name(f"tangent/{name}", self.taken)

    def _write_tangents(self, call: Call) -> None:
        """Append ops for the tangents of an op's float results."""
        kinds = zip(call.op.outputs, call.output_types, strict=True)
        floats = [name for name, kind in kinds if name and is_float(kind.dtype)]
        moving = list(dict.fromkeys(name for name in call.op.inputs if name in self.tangents))
        linear, seeds = _gradient_of(call, floats, moving)
        second = differentiate(linear, list(seeds.values()))
        given = {spec.name for spec in second.net.input_specs if spec.name in second.output_grads.values()}
        inputs = [*linear.net.input_specs, *(spec for spec in second.net.input_specs if spec.name in given)]
        both = prune(linear.net.with_ops([*linear.net.ops, *second.net.ops], second.net.output_blobs, inputs), ())
        names = {grad: self.tangents[name] for name, grad in second.output_grads.items()}
        for op in both.ops:
            names.update((name, self._free(name)) for name in op.outputs if name)
            read, made = (tuple(names.get(name, name) for name in side) for side in (op.inputs, op.outputs))
            self.ops.append(replace(op, inputs=read, outputs=made, layer=call.op.layer))
        for name in floats:
            blob = both.output_blobs[seeds[name]]
            self.tangents[name] = names.get(blob, blob)

    def _write_recurrence(self, call: Call) -> None:
        """Append a recurrence that also computes the tangents of its states and outputs."""
        recurrence = Recurrence(call.op, call.net)
        types, bound = input_types(recurrence, call), dict(zip(recurrence.ports(), call.op.inputs, strict=True))
        program = cell_program(recurrence, call)
        inner = _moving_step(recurrence, program, {port for port, blob in bound.items() if blob in self.tangents})
        cell, partners = _cell_with_tangents(recurrence, program, inner)
        moving = {name: inner.tangents[name] for name in recurrence.ports() if name in inner.given}
        for port in moving:
            if bound[port] not in self.tangents:  # a state whose initial value does not move
                self.ops.append(Op("ConstantOfShape", (), (self._free(f"{port}/zeros"),), _zeros_like(types[port])))
                bound[moving[port]] = self.ops[-1].outputs[0]
            else:
                bound[moving[port]] = self.tangents[bound[port]]
        changed = _doubled(recurrence, cell, moving, partners, types)
        doubled = Recurrence(changed, recurrence.net)
        pairs = zip(call.op.outputs[::2], call.op.outputs[1::2], strict=True)
        results = dict(zip(recurrence.output_names(), pairs, strict=True))
        for name, partner in partners.items():
            results[partner] = tuple(self._free(blob) if blob else "" for blob in results[name])  # type: ignore[assignment]
            self.tangents.update(zip(filter(None, results[name]), filter(None, results[partner]), strict=True))
        inputs = tuple(bound[port] for port in doubled.ports())
        outputs = tuple(blob for name in doubled.output_names() for blob in results[name])
        self.ops.append(replace(changed, inputs=inputs, outputs=outputs))


def _zeros_like(kind: Type) -> dict[str, Any]:
    return {"shape": kind.shape, "value": 0.0}


def _gradient_of(call: Call, floats: Sequence[str], moving: Sequence[str]) -> tuple[Program, dict[str, str]]:
    """The gradient of one op as a program, which reads the op's operands and results; and result of the op -> the input
    for its gradient."""
    op, dtype = call.op, call.float_dtype
    known: dict[str, Array] = {n: v for n, v in zip(op.inputs, call.values, strict=True) if n and v is not None}
    kinds = {n: k for n, k in zip(op.inputs, call.types, strict=True) if n and k is not None}
    one = _typed("one", dtype, [op], kinds, known, {name: name for name in floats})
    first = differentiate(one, moving)
    kinds.update((name, kind) for name, kind in zip(op.outputs, call.output_types, strict=True) if name)
    kinds.update((first.output_grads[name], kinds[name]) for name in floats)
    kinds = {name: kinds[name] for name in first.net.input_names}
    linear = _typed("linear", dtype, first.net.ops, kinds, known, first.net.output_blobs)
    return linear, dict(first.output_grads)


def _typed(
    name: str,
    float_dtype: str,
    ops: Iterable[Op],
    kinds: Mapping[str, Type],
    known: Mapping[str, Array],
    outputs: Mapping[str, str],
) -> Program:
    """A program of ops, with constants for inputs whose values are known."""
    read = {n: kind for n, kind in kinds.items() if n not in known}
    made = [Op("Constant", (), (n,), {"value": v, "dtype": kinds[n].dtype}) for n, v in known.items() if n in kinds]
    inputs = [Input(n, kind.dtype, kind.shape) for n, kind in read.items()]
    return prepare(Net(name, float_dtype).with_ops([*made, *ops], outputs, inputs).snapshot(), read, float_dtype)


class _Step(_Writer):
    """Writes the step of a cell with its tangents.

    Args:
        given: cell inputs that move.
    """

    def __init__(self, program: Program, given: Collection[str]) -> None:
        names = [name for name in program.net.input_names if name in given]
        taken = set(program.types)
        super().__init__(program, {name: free_name(f"tangent/{name}", taken) for name in names})
        self.given = frozenset(names)
        self.write()


def _moving_step(recurrence: Recurrence, program: Program, moving: set[str]) -> _Step:
    """The step with tangents for all states that move in the first step or in a later one."""
    blobs = program.net.output_blobs
    floats = [state for state in recurrence.states if is_float(program.types[state.input].dtype)]
    while True:
        step = _Step(program, moving)
        more = {state.input for state in floats if blobs[state.output] in step.tangents}
        if more <= moving:
            return step
        moving |= more


def _cell_with_tangents(recurrence: Recurrence, program: Program, step: _Step) -> tuple[Net, dict[str, str]]:
    """The cell with tangents; and output that moves -> the output that is its tangent."""
    outputs, carried = dict(program.net.output_blobs), {state.output: state.input for state in recurrence.states}
    partners = {}
    for name, blob in program.net.output_blobs.items():
        if blob in step.tangents or carried.get(name) in step.given:
            partners[name] = free_name(f"{name}_tangent", {*outputs})
            outputs[partners[name]] = step.tangent_or_zeros(blob)
    kinds = {name: program.types[name] for name in program.net.input_names}
    inputs = [Input(name, kind.dtype, kind.shape) for name, kind in kinds.items()]
    inputs += [Input(step.tangents[n], kind.dtype, kind.shape) for n, kind in kinds.items() if n in step.given]
    return Net(f"{program.net.name}_tangent").with_ops(step.ops, outputs, inputs).snapshot(), partners


def _doubled(
    recurrence: Recurrence, cell: Net, moving: Mapping[str, str], partners: Mapping[str, str], types: Mapping[str, Type]
) -> Op:
    """The op of a recurrence with tangents: new sequences, states and references come after the old ones."""

    def row(state: State, name: str, output: str) -> tuple[Any, ...]:
        return name, output, state.window, state.offset, recurrence.features(state, types[state.input])

    def both(names: Sequence[str], others: Mapping[str, str] = moving) -> tuple[str, ...]:
        return (*names, *(others[name] for name in names if name in others))

    states = [row(state, state.input, state.output) for state in recurrence.states]
    followers = [state for state in recurrence.states if state.input in moving]
    states += [row(state, moving[state.input], partners[state.output]) for state in followers]
    attributes = {
        **recurrence.op.attributes,
        "cell": cell,
        "inputs": both(recurrence.sequences),
        "states": tuple(states),
        "references": both(recurrence.references),
        "sums": both(recurrence.sums, partners),
        "loose": both(recurrence.op.attributes.get("loose", ())),
    }
    left_out = {"wanted", "outputs_with_grads", *(name for name in ("sums", "loose") if not attributes[name])}
    told = {name: value for name, value in attributes.items() if name not in left_out}
    return replace(recurrence.op, attributes=told)
