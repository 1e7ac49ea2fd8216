"""What passes on nets return: a net of other ops, or the one that they were given where nothing is other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any

from rnnops.net import Net
from rnnops.op import Input, Op


def rewritten(
    net: Net, ops: Sequence[Op], outputs: Mapping[str, str] | None = None, inputs: Sequence[Input] | None = None
) -> Net:
    """An immutable net with other ops, outputs and inputs; the net itself where it is immutable and has these.

    What later passes found of a net stays known then, as it is the same net.

    Args:
        ops: all of them, in order.
        outputs: output name -> blob; those of the net if left out.
        inputs: all of them, in order; those of the net if left out.
    """
    same_outputs = outputs is None or list(outputs.items()) == list(net.output_blobs.items())
    same_inputs = inputs is None or _are_these(inputs, net.input_specs)
    if same_outputs and same_inputs and _are_these(ops, net.ops):
        return net.snapshot()
    return net.with_ops(ops, outputs, inputs).snapshot()


def _are_these(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether the same objects come in the same order."""
    return len(values) == len(others) and all(map(is_, values, others))
