"""`gradient_net`: a net that computes gradients, as ops like any others, so that it is differentiated again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from rnnops.autodiff import GradientNet, differentiate
from rnnops.compiler.api.feeds import checked_wrt, types_of_feeds
from rnnops.compiler.run.pipeline import live_net, rewritten_program
from rnnops.errors import GradientError
from rnnops.interpreter import Program, prepare_again
from rnnops.net.net import Net, require_net
from rnnops.net.op import Input
from rnnops.rewrites import prune
from rnnops.types import FLOAT, Type, is_float


def gradient_net(net: Net, wrt: Any = None, outputs: Sequence[str] | None = None, **shapes: Any) -> Net:
    require_net(net)
    kinds, _ = types_of_feeds(net, (), shapes)
    types = {spec.name: replace(kinds[spec.name], dtype=spec.dtype) for spec in net.input_specs}
    names = checked_wrt(net, wrt)
    program = rewritten_program(live_net(net), types, FLOAT)
    gradient = differentiate(_with_outputs(program, _chosen(program, outputs), types), names)
    return _joined(program, gradient, types, _free_prefix(net))


def _chosen(program: Program, outputs: Sequence[str] | None) -> list[str]:
    """The outputs that take a gradient. Raises GradientError for one that is not a float output."""
    blobs = program.net.output_blobs
    floats = [name for name, blob in blobs.items() if is_float(program.types[blob].dtype)]
    for name in outputs or ():
        if name not in floats:
            wanted = f"one of {', '.join(floats)}"
            raise GradientError("outputs names no float output", net=program.net.name, blob=str(name), wanted=wanted)
    return floats if outputs is None else [name for name in floats if name in outputs]


def _with_outputs(program: Program, names: Sequence[str], types: Mapping[str, Type]) -> Program:
    blobs = program.net.output_blobs
    some = program.net.with_ops(program.net.ops, {name: blobs[name] for name in names}).snapshot()
    return prepare_again(program, some, types)


def _free_prefix(net: Net) -> str:
    """`d_`, or `d2_` where names begin so already, and so on."""
    names = [*net.output_blobs, *net.blob_names]
    prefixes = ("d_" if order == 1 else f"d{order}_" for order in count(1))
    return next(prefix for prefix in prefixes if not any(name.startswith(prefix) for name in names))


def _joined(program: Program, gradient: GradientNet, types: Mapping[str, Type], prefix: str) -> Net:
    """The ops of a net and those of its gradient, as one net."""
    forward = program.net
    named = {grad: prefix + output for output, grad in gradient.output_grads.items()}
    ops = [replace(op, inputs=tuple(named.get(name, name) for name in op.inputs)) for op in gradient.net.ops]
    inputs = [Input(spec.name, spec.dtype, types[spec.name].shape) for spec in forward.input_specs]
    grads = [replace(spec, name=named[spec.name]) for spec in gradient.net.input_specs if spec.name in named]
    found = {prefix + name: named.get(blob, blob) for name, blob in gradient.net.output_blobs.items()}
    outputs = {**forward.output_blobs, **found}
    both = Net(f"{forward.name}_gradient")
    return prune(both.with_ops([*forward.ops, *ops], outputs, [*inputs, *grads]).snapshot())
