"""What follows from bound inputs and constants alone is a net of its own, which is run once, when they are bound.

So weights are transposed, sliced, joined and scaled once, as ONNX files ask for it in every run. Ops of random numbers
and recurrences stay where they are, as do ops whose results are outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rnnops.compiler.rewrite.lay_out_weights import lay_out_weights
from rnnops.compiler.rewrite.scale_weights import scale_weights
from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.prune import prune
from rnnops.schema import schema_of
from rnnops.types import Array, is_float

LARGE_CONSTANT = 1024  # elements of an array that kernels better read as an input, which they may pack


@dataclass(frozen=True)
class Split:
    """A net in two parts.

    Args:
        once: from bound inputs to the blobs that the rest reads.
        rest: all other ops; it is given its shapes by `with_bound`.
        known: outputs of `once` that follow from constants alone.
    """

    once: Net
    net: Net
    rest: tuple[Op, ...]
    known: frozenset[str] = frozenset()

    def with_bound(self, arrays: Mapping[str, Array], large: float = LARGE_CONSTANT) -> tuple[Net, dict[str, Array]]:
        """The rest as a net, and what is bound in it.

        Args:
            arrays: bound inputs, and the outputs of `once`.
            large: elements from which on what follows from constants alone is an input.

        Whole numbers that come from `once` become constants, as shapes may depend on their values; small arrays that
        follow from constants alone stay constants.
        """
        made = [name for name in self.once.output_blobs if name not in self.net.input_names]
        stay = [name for name in made if self._stays(name, arrays[name].size < large)]
        constants = [_constant(name, arrays[name], self.once.dtype_of(self.once.output_blobs[name])) for name in stay]
        inputs = [Input(name, shape=arrays[name].shape) for name in made if name not in stay]
        ops = [*constants, *self.rest]
        read = {name for op in ops for name in op.inputs} | set(self.net.output_blobs.values())
        kept = [spec for spec in self.net.input_specs if spec.name not in self.once.input_names or spec.name in read]
        net = self.net.with_ops(ops, inputs=[*kept, *inputs]).snapshot()
        return net, {name: arrays[name] for name in net.input_names if name in arrays}

    def _stays(self, name: str, small: bool) -> bool:
        """Whether a blob is a constant of the rest."""
        return not is_float(self.once.dtype_of(self.once.output_blobs[name])) or (small and name in self.known)


def split_bound(net: Net, bound: Collection[str]) -> Split | None:
    """A net in two parts; None where nothing follows from bound inputs and constants alone.

    rewrite: `v = Transpose(w); y = MatMul(x, v)`, w bound  -->  `v = Transpose(w)` once, `y = MatMul(x, v)`
    rewrite: `y = Gemm(x, w, transB=1)`, w bound  -->  `v = Transpose(w)` once, `y = Gemm(x, v)`
    """
    net = scale_weights(lay_out_weights(net, bound), bound)
    follows, constant, known = set(bound), set[str](), set[str]()  # blobs
    once, rest = list[Op](), list[Op]()
    outputs = set(net.output_blobs.values())
    for op in net.ops:
        given = {name for name in op.inputs if name}
        if not given and not schema_of(op.type).uses_context:
            constant.update(op.outputs)
            once.append(op)
            rest.append(op)
        elif given and given <= follows | constant and _may_run_once(op, outputs):
            known.update(op.outputs if given <= known | constant else ())
            follows.update(op.outputs)
            once.append(op)
        else:
            rest.append(op)
    read = {name for op in rest for name in op.inputs}
    made = {name: name for op in once for name in op.outputs if name in read and name in follows}
    if not made:
        return None
    inputs = [spec for spec in net.input_specs if spec.name in bound]
    return Split(prune(net.with_ops(once, made, inputs), ()), net, tuple(rest), frozenset(known))


def _may_run_once(op: Op, outputs: set[str]) -> bool:
    schema = schema_of(op.type)
    return not (schema.random or schema.uses_context or op.holds_net or outputs.intersection(op.outputs))


def _constant(name: str, value: Array, dtype: str) -> Op:
    plain = value.item() if value.ndim == 0 else value
    return Op("Constant", (), (name,), {"value": plain, "dtype": dtype})
