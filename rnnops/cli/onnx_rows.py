"""`rnnops onnx --rows`: several rows of a batch at once, compared with the same rows one by one in float64.

Rows do not mix where all results of a call are those of calls of one row each. In a result the rows may be an axis, or
a part of one, as after a Reshape that joins steps and rows. A result of float numbers that differs names its op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rnnops.cli.onnx_command import plain
from rnnops.cli.train import show
from rnnops.compiler import compile as compile_net
from rnnops.net.infer import ancestors
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.onnx.compare import distance_of, split_steps
from rnnops.types import Array

if TYPE_CHECKING:
    from rnnops.cli.onnx_runs import OnnxRuns

Arrays = Mapping[str, Array]
LIMIT = 1e-8  # the largest difference of float64 that is rounding, over the largest value


def compare_rows(runs: OnnxRuns, axes: Mapping[str, int]) -> bool:
    """Print how far rows at once are from rows one by one, and the op that mixes them; whether none does.

    Args:
        axes: input -> its axis of rows.
    """
    net, (count, *_) = runs.model.net, (runs.feeds[name].shape[axis] for name, axis in axes.items())
    found = distances_of_rows(runs, net, axes)
    if runs.compare(f"{count} rows at once beside {count} calls of one row each", found, LIMIT):
        show("rows do not mix")
        return True
    wrong = [net.output_blobs[name] for name, distance in found.items() if distance > LIMIT]
    op = first_that_mixes(runs, ancestors(net, wrong), axes)
    show(f"rows are mixed by op '{plain(op.label, 400)}'" if op else "rows are mixed by an op on integers")
    return False


def first_that_mixes(runs: OnnxRuns, ops: Sequence[Op], axes: Mapping[str, int]) -> Op | None:
    """The first of some ops whose result, of float numbers, is another for rows at once."""
    net = runs.model.net
    made = {name: op for op in ops for name in op.outputs if name}
    floats = {name: op for name, op in made.items() if net.blob(name).dtype.startswith("float")}
    every = net.with_ops(net.ops, {name: name for name in floats}).snapshot()
    found = distances_of_rows(runs, every, axes)
    return next((op for name, op in floats.items() if found[name] > LIMIT), None)


def distances_of_rows(runs: OnnxRuns, net: Net, axes: Mapping[str, int]) -> dict[str, float]:
    """How far the outputs of a net for rows at once are from those for rows one by one."""
    run = compile_net(net, device="reference").bind(**wide(runs.model.params))
    feeds = wide(runs.feeds)
    whole, rows = run(feeds), [run(row) for row in split_steps(feeds, axes)]
    return {name: distance_from_rows([row[name] for row in rows], array) for name, array in whole.items()}


def wide(arrays: Arrays) -> dict[str, Array]:
    """Arrays with floats as float64."""
    return {name: array.astype("float64") if array.dtype.kind == "f" else array for name, array in arrays.items()}


def distance_from_rows(rows: Sequence[Array], whole: Array) -> float:
    """How far an array is from rows that lie along an axis of it, or along a part of one; infinite for other shapes."""
    shape = rows[0].shape
    if shape == whole.shape:
        return max(distance_of(row, whole) for row in rows)
    differ = [axis for axis, sizes in enumerate(zip(shape, whole.shape, strict=False)) if sizes[0] != sizes[1]]
    if len(shape) != whole.ndim or len(differ) != 1 or whole.shape[differ[0]] != len(rows) * shape[differ[0]]:
        return float("inf")
    (axis,) = differ
    ways = [(outer, shape[axis] // outer) for outer in range(1, shape[axis] + 1) if shape[axis] % outer == 0]
    cut = [np.stack([row.reshape(*shape[:axis], *way, *shape[axis + 1 :]) for row in rows], axis + 1) for way in ways]
    return min(distance_of(one.reshape(whole.shape), whole) for one in cut)
