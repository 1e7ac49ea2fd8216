"""Reverse-mode differentiation of nets: `differentiate` turns a net into its gradient net.

The gradient net is a plain net. Its inputs are the forward blobs that it reads, and the gradients of the outputs. Its
outputs are the gradients of the inputs. If a blob has several readers, their gradients are added in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

from rnnops.errors import GradientError, NamedRule
from rnnops.interpreter import Program, prune
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, absolute_names, name_scope
from rnnops.net.schema import Call, NotKept, OpSchema, schema_of
from rnnops.ops.base import sum_to
from rnnops.types import Type, is_float


@dataclass(frozen=True)
class GradientNet:
    """A gradient net, and the meaning of its inputs and outputs.

    Args:
        net: the net. An output has the name of the forward input whose gradient it is.
        output_grads: forward output -> the input for its gradient.
        reads: the inputs that are forward blobs.
        refused: forward output that takes no gradient -> the error for it.
        origins: blob of the gradient net -> key of the forward op whose gradient rule made it; sums are left out.
        contributions: (forward blob, key of a forward op that reads it, blob that this op adds to the blob's gradient).
    """

    net: Net
    output_grads: Mapping[str, str]
    reads: tuple[str, ...]
    refused: Mapping[str, GradientError]
    origins: Mapping[str, str] = field(default_factory=dict)
    contributions: tuple[tuple[str, str, str], ...] = ()


def differentiate(program: Program, wrt: Sequence[str]) -> GradientNet:
    """Derive the gradient net of a program.

    Args:
        wrt: float inputs whose gradients are wanted.

    Raises GradientError if an op on the way from `wrt` to an output has no gradient.
    """
    forward = program.net
    with absolute_names():
        builder = _Builder(program, Net(f"{forward.name}_gradient", program.float_dtype), set(wrt))
        output_grads = builder.declare_output_grads()
        for call in reversed(program.calls):
            builder.visit(call)
        outputs = {name: builder.total_or_zeros(name).name for name in wrt}
    net = prune(builder.net, output_grads.values(), outputs)
    reads = tuple(name for name in net.input_names if name not in output_grads.values())
    contributions = tuple(builder.contributions)
    return GradientNet(net.snapshot(), output_grads, reads, builder.refused, builder.origins, contributions)


@dataclass(frozen=True, order=True)
class _Padded:
    """A gradient that is a blob with zeros before and after it along one axis.

    Args:
        axis: the axis.
        before, after: how many zeros there are on each side.
        size: size of the axis, zeros included.
        layer: layer of the Pad that puts the zeros there.
        source: the blob without zeros.
    """

    axis: int
    before: int
    after: int
    size: int
    layer: str
    source: str

    def follows_on(self, other: _Padded) -> bool:
        """True if the other blob begins where this one ends."""
        alike = (self.axis, self.size, self.layer) == (other.axis, other.size, other.layer)
        return alike and self.size - self.after == other.before


def _padded(ops: Sequence[Op], grad: Blob) -> _Padded | None:
    """The gradient as a `_Padded`, if its last op is a Pad with zeros along one axis; else None."""
    if not ops:
        return None
    op = ops[-1]
    sizes, axes, kind = op.attributes.get("pads"), op.attributes.get("axes"), grad.type
    if op.type != "Pad" or op.outputs != (grad.name,) or len(op.inputs) != 1 or kind is None or axes is None:
        return None
    if len(axes) != 1 or op.attributes.get("mode", "constant") != "constant" or op.attributes.get("constant_value", 0):
        return None
    before, after = sizes or (0, 0)
    return _Padded(axes[0], before, after, kind.shape[axes[0]], op.layer, op.inputs[0])


class _Builder:
    """Walks the forward ops backwards and collects gradients by forward blob."""

    def __init__(self, program: Program, net: Net, wrt: set[str]) -> None:
        self.program, self.net = program, net
        self.prefix = _free_prefix(program.types)
        self.active = _active_blobs(program, wrt)
        self.forbidden, self.refused = _refusals(program)
        self.grads: dict[str, list[Blob]] = {}
        self.origins: dict[str, str] = {}
        self.contributions: list[tuple[str, str, str]] = []
        self.pads: dict[str, _Padded] = {}

    def declare_output_grads(self) -> dict[str, str]:
        names = {}
        for output, blob in self.program.net.output_blobs.items():
            kind = self.program.types[blob]
            if is_float(kind.dtype):
                grad = self.net.input(f"{self.prefix}/{output}", kind.dtype, kind.shape)
                names[output] = grad.name
                if blob in self.active:
                    self._collect(blob, grad)
        return names

    def visit(self, call: Call) -> None:
        """Add the gradient ops of one forward op, if its results have a gradient and one of its inputs needs one."""
        op, schema = call.op, schema_of(call.op.type)
        wanted = [i for i, name in enumerate(op.inputs) if name in self.active]
        reached = any(name in self.grads for name in op.outputs)
        if not (wanted and reached and schema.differentiable):
            return
        with name_scope(self.prefix), self.net.in_layer(op.layer):
            arguments = self._arguments(call, schema)
            before = len(self.net.ops)
            with NamedRule("gradient", call.net, op):
                found = schema.gradient(call, *arguments)
            grads = _gradients(call, found)
            for i in wanted:
                if (grad := grads[i]) is not None:
                    fitted = self._fitted(call, schema, i, grad)
                    self._collect(op.inputs[i], fitted)
                    self.contributions.append((op.inputs[i], op.key, fitted.name))
                    padded = _padded(self.net.ops[before:], fitted)
                    self.pads.update({} if padded is None else {fitted.name: padded})
            self.origins.update((name, op.key) for made in self.net.ops[before:] for name in made.outputs if name)

    def total_or_zeros(self, name: str) -> Blob:
        with name_scope(self.prefix):
            total = self._total(name)
            return self._zeros(self.program.types[name]) if total is None else total

    def _arguments(self, call: Call, schema: OpSchema) -> list[Blob | None]:
        """The arguments of a gradient rule: inputs, outputs, and gradients of outputs."""
        op = call.op
        inputs = [
            self._read(call, schema, port, name) for port, name in zip(_ports(schema, op), op.inputs, strict=True)
        ]
        outputs = [
            self._read(call, schema, port, name) for port, name in zip(_out_ports(schema, op), op.outputs, strict=True)
        ]
        grads: list[Blob | None] = []
        for name, kind in zip(op.outputs, call.output_types, strict=True):
            total = self._total(name)
            grads.append(total if total is not None or schema.optional_grads else self._zeros(kind))
        return [*inputs, *outputs, *grads]

    def _read(self, call: Call, schema: OpSchema, port: str, name: str) -> Blob | None:
        """A forward blob as an input of the gradient net; a `NotKept` if the op does not declare that it reads the
        blob."""
        if not name:
            return None
        if port not in schema.keeps and "*" not in schema.keeps:
            return cast(Blob, NotKept(call, port))
        if name in self.net:
            return self.net.blob(name)
        kind = self.program.types[name]
        return self.net.add_input(Input(name, kind.dtype, kind.shape))

    def _collect(self, name: str, grad: Blob) -> None:
        if name not in self.forbidden:
            self.grads.setdefault(name, []).append(grad)

    def _total(self, name: str) -> Blob | None:
        grads = self.grads.get(name, [])
        if not grads:
            return None
        total, *others = self._side_by_side(name, grads)
        for grad in others:
            total = total + grad
        self.grads[name] = [total]
        return total

    def _side_by_side(self, name: str, grads: Sequence[Blob]) -> Sequence[Blob]:
        """The gradients of a blob. Gradients of slices that together are the whole blob become one: they are joined
        instead of padded and added."""
        parts = sorted((grad for grad in grads if grad.name in self.pads), key=lambda grad: self.pads[grad.name])
        padded = [self.pads[grad.name] for grad in parts]
        follow = all(a.follows_on(b) for a, b in pairwise(padded))
        if len(parts) < 2 or not follow or padded[0].before or padded[-1].after:
            return grads
        sources = [self.net.blob(one.source) for one in padded]
        with self.net.in_layer(padded[0].layer):
            whole = self.net.append("Concat", sources, {"axis": padded[0].axis})[0]
        first, *rest = (place for place, grad in enumerate(grads) if grad.name in self.pads)
        self._replace_contributions(name, {grad.name for grad in parts}, whole.name)
        return [whole if place == first else grad for place, grad in enumerate(grads) if place not in rest]

    def _replace_contributions(self, name: str, parts: set[str], whole: str) -> None:
        """Replace the contributions of several ops by one contribution of the last of these ops."""
        places = [i for i, (blob, _, grad) in enumerate(self.contributions) if blob == name and grad in parts]
        key = self.contributions[places[-1]][1]
        self.contributions = [one for i, one in enumerate(self.contributions) if i not in places]
        self.contributions.append((name, key, whole))
        self.origins[whole] = key

    def _fitted(self, call: Call, schema: OpSchema, i: int, grad: Blob) -> Blob:
        """The gradient in the shape of the input: summed over axes along which the input was broadcast."""
        wanted, came = call.types[i], grad.type
        if wanted == came or wanted is None or came is None:
            return grad
        if schema.broadcasts and wanted.dtype == came.dtype:
            return sum_to(grad, wanted.shape)
        raise GradientError(
            "a gradient rule returned a wrong type",
            net=call.net,
            op=call.op.label,
            blob=call.op.inputs[i],
            wanted=wanted,
            came=came,
        )

    def _zeros(self, kind: Type) -> Blob:
        return self.net.append("ConstantOfShape", [], {"shape": kind.shape, "value": 0.0})[0]


def _gradients(call: Call, result: Any) -> Sequence[Blob | None]:
    """The gradients that a rule returned, one for each input. Raises GradientError if it returned something else."""
    count = len(call.op.inputs)
    if result is None:
        return [None] * count
    grads = [result] if isinstance(result, Blob) else result
    if (
        not isinstance(grads, list | tuple)
        or len(grads) != count
        or not all(grad is None or isinstance(grad, Blob) for grad in grads)
    ):
        raise GradientError(
            "a gradient rule returned something else than one blob or None for each input",
            net=call.net,
            op=call.op.label,
            wanted=f"{count}, for {', '.join(name or 'an input left out' for name in call.op.inputs)}",
            came=repr(result),
        )
    return grads


def _active_blobs(program: Program, wrt: set[str]) -> set[str]:
    """Float blobs that depend on `wrt` through ops that pass gradients."""
    active = set(wrt)
    for op in program.net.ops:
        if schema_of(op.type).differentiable and any(name in active for name in op.inputs):
            active.update(name for name in op.outputs if name and is_float(program.types[name].dtype))
    return active


def _refusals(program: Program) -> tuple[set[str], dict[str, GradientError]]:
    """Blobs that take no gradient (not in `outputs_with_grads`); and output that depends on such a blob -> the
    error."""
    forbidden: set[str] = set()
    reason: dict[str, GradientError] = {}
    for op in program.net.ops:
        schema = schema_of(op.type)
        for name in schema.outputs_without_grads(op):
            forbidden.add(name)
            reason[name] = GradientError(
                "this output takes no gradient, as outputs_with_grads leaves it out",
                net=program.net.name,
                op=op.label,
                blob=name,
                hint="Add it to outputs_with_grads.",
            )
        if schema.differentiable:
            found = next((reason[name] for name in op.inputs if name in reason), None)
            if found is not None:
                reason.update((name, found) for name in op.outputs if name and is_float(program.types[name].dtype))
    return forbidden, {out: reason[blob] for out, blob in program.net.output_blobs.items() if blob in reason}


def _free_prefix(names: Iterable[str]) -> str:
    """`grad`, or `grad_1`, ...: a scope without forward blobs."""
    taken = {name.split("/")[0] for name in names}
    candidates = ("grad" if k == 0 else f"grad_{k}" for k in range(len(taken) + 1))
    return next(name for name in candidates if name not in taken)


def _ports(schema: OpSchema, op: Op) -> list[str]:
    """For each input of an op the name of its port, without `?` and `*`. Additional inputs have the last port."""
    names = [port.rstrip("?*") for port in schema.inputs]
    return [names[min(i, len(names) - 1)] for i in range(len(op.inputs))]


def _out_ports(schema: OpSchema, op: Op) -> list[str]:
    return [schema.outputs[min(i, len(schema.outputs) - 1)] for i in range(len(op.outputs))]
