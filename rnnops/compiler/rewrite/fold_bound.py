"""What follows from bound inputs alone is a net of its own, which is run once, when they are bound.

So weights are transposed, sliced, joined and scaled once, as ONNX files ask for it in every run. Ops of random numbers
and recurrences stay where they are, as do ops whose results are outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rnnops.compiler.rewrite.lay_out_weights import lay_out_weights
from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.prune import prune
from rnnops.schema import schema_of
from rnnops.scopes import free_name
from rnnops.types import Array, is_float


@dataclass(frozen=True)
class Split:
    """A net in two parts.

    Args:
        once: from bound inputs to the blobs that the rest reads.
        rest: all other ops; it is given its shapes by `with_bound`.
    """

    once: Net
    net: Net
    rest: tuple[Op, ...]

    def with_bound(self, arrays: Mapping[str, Array]) -> tuple[Net, dict[str, Array]]:
        """The rest as a net, and what is bound in it.

        Args:
            arrays: bound inputs, and the outputs of `once`.

        Whole numbers that come from `once` become constants, as shapes may depend on their values.
        """
        made = [name for name in self.once.output_blobs if name not in self.net.input_names]
        numbers = [name for name in made if not is_float(self.once.dtype_of(self.once.output_blobs[name]))]
        constants = [_constant(name, arrays[name]) for name in numbers]
        inputs = [Input(name, shape=arrays[name].shape) for name in made if name not in numbers]
        ops = [*constants, *self.rest]
        read = {name for op in ops for name in op.inputs} | set(self.net.output_blobs.values())
        kept = [spec for spec in self.net.input_specs if spec.name not in self.once.input_names or spec.name in read]
        net = self.net.with_ops(ops, inputs=[*kept, *inputs]).snapshot()
        return net, {name: arrays[name] for name in net.input_names if name in arrays}


def split_bound(net: Net, bound: Collection[str]) -> Split | None:
    """A net in two parts; None where nothing follows from bound inputs alone.

    rewrite: `v = Transpose(w); y = MatMul(x, v)`, w bound  -->  `v = Transpose(w)` once, `y = MatMul(x, v)`
    rewrite: `y = Gemm(x, w, transB=1)`, w bound  -->  `v = Transpose(w)` once, `y = Gemm(x, v)`
    """
    net = lay_out_weights(net, bound)
    follows, constant = set(bound), set[str]()  # blobs
    once, rest = list[Op](), list[Op]()
    outputs = set(net.output_blobs.values())
    taken = {*net.input_names, *(name for op in net.ops for name in op.outputs)}
    for op in net.ops:
        if (
            op.type == "Gemm"
            and op.attributes.get("transB")
            and op.inputs[1] in follows
            and op.inputs[0] not in follows
        ):
            turned, op = _turned(op, taken)
            follows.update(turned.outputs)
            once.append(turned)
        given = {name for name in op.inputs if name}
        if not given and not schema_of(op.type).uses_context:
            constant.update(op.outputs)
            once.append(op)
            rest.append(op)
        elif given <= follows | constant and given & follows and _may_run_once(op, outputs):
            follows.update(op.outputs)
            once.append(op)
        else:
            rest.append(op)
    read = {name for op in rest for name in op.inputs}
    made = {name: name for op in once for name in op.outputs if name in read and name in follows}
    if not made:
        return None
    inputs = [spec for spec in net.input_specs if spec.name in bound]
    return Split(prune(net.with_ops(once, made, inputs), ()), net, tuple(rest))


def _may_run_once(op: Op, outputs: set[str]) -> bool:
    schema = schema_of(op.type)
    return not (schema.random or schema.uses_context or op.holds_net or outputs.intersection(op.outputs))


def _turned(gemm: Op, taken: set[str]) -> tuple[Op, Op]:
    """The transpose of the right side of a Gemm, and the Gemm that reads it; `taken` are names of blobs."""
    name = free_name(f"{gemm.key}/turned", taken)
    turned = Op("Transpose", (gemm.inputs[1],), (name,), {"perm": (1, 0)})
    inputs = (gemm.inputs[0], name, *gemm.inputs[2:])
    return turned, replace(gemm, inputs=inputs, attributes={**gemm.attributes, "transB": 0})


def _constant(name: str, value: Array) -> Op:
    plain = value.item() if value.ndim == 0 else value
    return Op("Constant", (), (name,), {"value": plain, "dtype": str(value.dtype)})
