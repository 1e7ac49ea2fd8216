"""Gives every random op its ordinal, which with the seed is the key of its random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from rnnops.net import Net
from rnnops.op import Op
from rnnops.rewrites import rewritten
from rnnops.schema import schema_of


def number_random_ops(net: Net) -> Net:
    """Number random ops in order, those of cells where the cell stands.

    rewrite: `y, m = Dropout(x); z, n = Dropout(y)`  -->  `y, m = Dropout(x, ordinal=0); z, n = Dropout(y, ordinal=1)`
    """
    return _numbered(net, count())


def _numbered(net: Net, ordinals: Iterator[int]) -> Net:
    return rewritten(net, [_numbered_op(op, ordinals) for op in net.ops])


def _numbered_op(op: Op, ordinals: Iterator[int]) -> Op:
    found: dict[str, Any] = {
        name: _numbered(value, ordinals) for name, value in op.attributes.items() if isinstance(value, Net)
    }
    if schema_of(op.type).random:
        found["ordinal"] = next(ordinals)
    changed = any(op.attributes.get(name) is not value for name, value in found.items())
    return replace(op, attributes={**op.attributes, **found}) if changed else op


def first_live_random_op(net: Net, training: bool) -> str | None:
    """The label of a random op that draws numbers, in training or outside of it; None where there is none."""
    for op in net.ops:
        nested = [first_live_random_op(value, training) for value in op.attributes.values() if isinstance(value, Net)]
        if schema_of(op.type).random and schema_of(op.type).draws(op, training):
            return op.label
        if any(nested):
            return next(label for label in nested if label)
    return None
