"""Which operands of an op have the rows of its results, and along which axis: read off what the reference does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.interpreter import Workspace, execute, prepare
from rnnops.net.schema import RunContext
from rnnops.recurrent.training_form import row_axes
from rnnops.types import Type

N, D = 4, 3
MATRIX, ROW, CUBE, SQUARE = (N, D), (D,), (2, N, D), (D, D)

CASES: list[tuple[Any, list[tuple[int, ...]], int, list[int | None]]] = [
    (lambda x, y: x + y, [MATRIX, MATRIX], 0, [0, 0]),
    (lambda x, b: x * b, [MATRIX, ROW], 0, [0, None]),
    (lambda x, y: x + y, [CUBE, MATRIX], 1, [1, 0]),
    (lambda x, y: x + y, [CUBE, (1, D)], 1, [1, None]),
    (lambda x, w: x @ w, [MATRIX, SQUARE], 0, [0, None]),
    (lambda w, x: w @ x, [SQUARE, (D, N)], 1, [None, 1]),
    (lambda x, y: x @ y, [(N, 2, D), (N, D, 5)], 0, [0, 0]),
    (lambda x, y: x @ y, [MATRIX, (2, D, 5)], 1, [0, None]),
    (lambda x, v: x @ v, [MATRIX, ROW], 0, [0, None]),
    (lambda v, x: v @ x, [(D,), (N, D, 2)], 0, []),
    (lambda x: ro.reduce_sum(x, axes=[1], keepdims=0), [CUBE], 0, [0]),
    (lambda x: ro.reduce_max(x, axes=[0], keepdims=0), [CUBE], 0, [1]),
    (lambda x: ro.reduce_mean(x, axes=[0], keepdims=1), [CUBE], 1, [1]),
    (lambda x: ro.reduce_sum(x, axes=[0]), [MATRIX], 0, []),
    (lambda x: ro.softmax(x, axis=1), [MATRIX], 0, [0]),
    (lambda x: ro.softmax(x, axis=0), [MATRIX], 0, []),
    (lambda x: ro.log_softmax(x, axis=-1), [MATRIX], 1, []),
    (lambda x, s: ro.layer_normalization(x, s), [MATRIX, ROW], 0, [0, None]),
    (lambda x, s: ro.layer_normalization(x, s), [MATRIX, MATRIX], 0, [0, 0]),
    (lambda x, s: ro.layer_normalization(x, s, axis=0), [MATRIX, ROW], 0, []),
    (lambda x: ro.transpose(x, perm=[1, 0]), [MATRIX], 1, [0]),
    (lambda x: ro.reshape(x, [2, N * D]), [CUBE], 0, [0]),
    (lambda x: ro.reshape(x, [2 * N, D]), [CUBE], 0, []),
    (lambda x: ro.unsqueeze(x, [0]), [MATRIX], 1, [0]),
    (lambda x, y: ro.concat([x, y], axis=1), [MATRIX, MATRIX], 0, [0, 0]),
    (lambda x, y: ro.concat([x, y], axis=0), [(2, D), (2, D)], 0, []),
    (lambda x: ro.slice(x, [1], [3], axes=[1]), [MATRIX], 0, [0]),
    (lambda x: ro.slice(x, [3], [-5], axes=[0], steps=[-1]), [MATRIX], 0, []),
    (lambda x: ro.split(x, 3, axis=1)[0], [MATRIX], 0, [0]),
    (lambda x: ro.expand(x, [2, N, D]), [MATRIX], 1, [0]),
    (lambda x: ro.pad(x, [0, 1, 0, 1]), [MATRIX], 0, []),
    (lambda x: ro.dropout(x, 0.5), [MATRIX], 0, [0]),
]


@pytest.mark.parametrize(("op", "shapes", "axis", "wanted"), CASES)
def test_axes(op: Any, shapes: list[tuple[int, ...]], axis: int, wanted: list[int | None]) -> None:
    net = ro.Net("op")
    net.outputs(y=op(*net.inputs(*"abc"[: len(shapes)])) if len(shapes) > 1 else op(net.input("a")))
    types = {name: Type("float64", shape) for name, shape in zip("abc", shapes, strict=False)}
    program = prepare(net, types, "float64")
    call = program.calls[-1]
    found = row_axes(call, axis)
    assert list(found)[: len(wanted)] == wanted
    assert not any(own is not None for own in list(found)[len(wanted) :])
    for i, own in enumerate(wanted):
        check_rows(program, i, own, axis)


def check_rows(program: Any, i: int, own: int | None, axis: int) -> None:
    """Another row of an operand changes the same row of the result, and no other."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.uniform(0.5, 1, program.types[name].shape) for name in program.net.input_names}
    before = run(program, arrays)
    name = program.net.input_names[i]
    if own is None:
        return
    row = [slice(None)] * arrays[name].ndim
    row[own] = slice(1, 2)
    arrays[name] = arrays[name].copy()
    arrays[name][tuple(row)] *= np.linspace(2, 3, arrays[name][tuple(row)].size).reshape(arrays[name][tuple(row)].shape)
    changed = np.moveaxis(run(program, arrays) != before, axis, 0).reshape(before.shape[axis], -1).any(axis=1)
    assert changed.tolist() == [place == 1 for place in range(before.shape[axis])]


def run(program: Any, arrays: dict[str, np.ndarray]) -> np.ndarray:
    workspace = Workspace()
    workspace.local.update(arrays)
    execute(program, workspace, RunContext())
    return workspace[program.net.output_blobs["y"]]
