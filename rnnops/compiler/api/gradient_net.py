"""`gradient_net`: a net that computes gradients, as ops like any others, so that it is differentiated again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from rnnops.arguments import named_arguments
from rnnops.autodiff import GradientNet, differentiate
from rnnops.compiler.api.feeds import checked_wrt, names_of, types_of_feeds
from rnnops.compiler.run.pipeline import live_net, rewritten_program
from rnnops.errors import GradientError, NetError
from rnnops.interpreter import Program, prepare_again
from rnnops.net.net import Net, require_net
from rnnops.recurrent.training_form import open_form
from rnnops.rewrites import prune_cells
from rnnops.types import FLOAT, Type, is_float


@named_arguments
def gradient_net(net: Net, wrt: Any = None, outputs: Any = None, **shapes: Any) -> Net:
    """The net and its gradient as one plain net, to be printed, exported, compiled and differentiated again.

    It has two things more than the net: for each float output `y` an input `d_y`, which takes a gradient, and for each
    input `x` of `wrt` an output `d_x`, which is one. In the gradient net of a gradient net these are `d2_y` and `d2_x`.
    It takes and gives what `run.vjp` does. Its calls have dropout only with `training=True`.

    Args:
        net: with outputs; its recurrences may be of any kind.
        wrt: float inputs whose gradients are wanted; all of them if left out.
        outputs: names of float outputs that take a gradient; all that may if left out.
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
    program = prepare_again(program, open_form(program, names), types)
    chosen = _float_outputs(program, outputs)
    gradient = differentiate(_with_outputs(program, chosen, types), names)
    if gradient.refused:  # by outputs_with_grads
        allowed = [name for name in chosen if name not in gradient.refused]
        if outputs is not None or not allowed:
            raise next(iter(gradient.refused.values())).again()
        gradient = differentiate(_with_outputs(program, allowed, types), names)
    return _joined(program, gradient, types, free_prefix(net, "d"))


def program_of(net: Net, wrt: Any, shapes: Mapping[str, Any]) -> tuple[Program, dict[str, Type], tuple[str, ...]]:
    """A net rewritten as a run would, for any float dtype, the types of its inputs, and the inputs that `wrt` means."""
    require_net(net)
    if not net.output_blobs:
        raise NetError("the net has no outputs", net=net.name, hint="Call net.outputs(...).")
    names = checked_wrt(net, wrt)
    kinds, _ = types_of_feeds(net, (), shapes)
    types = {spec.name: replace(kinds[spec.name], dtype=spec.dtype) for spec in net.input_specs}
    return rewritten_program(live_net(net), types, FLOAT), types, names


def _float_outputs(program: Program, outputs: Any) -> list[str]:
    """The chosen outputs, all of floats if None. Raises GradientError for one that is not there, or not of floats."""
    blobs = program.net.output_blobs
    floats = [name for name, blob in blobs.items() if is_float(program.types[blob].dtype)]
    wanted = floats if outputs is None else names_of(outputs)
    for name in wanted:
        if name not in floats:
            others = f"one of {', '.join(floats)}"
            raise GradientError("outputs names no float output", net=program.net.name, blob=str(name), wanted=others)
    return [name for name in floats if name in wanted]


def _with_outputs(program: Program, names: Sequence[str], types: Mapping[str, Type]) -> Program:
    blobs = program.net.output_blobs
    some = program.net.with_ops(program.net.ops, {name: blobs[name] for name in names}).snapshot()
    return prepare_again(program, some, types)


def free_prefix(net: Net, letter: str) -> str:
    """`d_` for the letter d, or `d2_` where names begin so already, and so on."""
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
