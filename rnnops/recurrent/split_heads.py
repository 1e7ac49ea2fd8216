"""Products of cells with a matrix for each head as products of their own, which run blocked and packed.

A batched product has no packed form; it runs as a loop over multiply-adds, in which each head reads its matrix from
memory as it lies. Split, four heads of an sLSTM of 256 features (T = 100, N = 32, one thread) take 0.83 of the time
forward and 0.80 in training. So it is done for matrices of `SMALLEST` rows and columns or more, and up to `MOST` heads.

Results agree within rounding: the sums of a product are one chain of multiply-adds then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from rnnops.interpreter import Program
from rnnops.loops import MATMULS
from rnnops.net import Net
from rnnops.op import Op
from rnnops.recurrent.op import cell_program
from rnnops.recurrent.recurrence import Recurrence, is_training_form
from rnnops.rewritten import rewritten
from rnnops.schema import Call, schema_of
from rnnops.scopes import free_name

MOST = 16  # heads
SMALLEST = 16  # rows and columns of a matrix: below, a product's own overhead is larger
HEADS = -3  # the axis


def split_heads(program: Program) -> Net:
    """Split the batched products in the cells of a net's recurrences.

    rewrite: `y = MatMul(x, w)`, x [N, 4, 1, 64], w [4, 64, 64]  -->
        `y/left = Squeeze(Slice(x)); y/right = Squeeze(Slice(w)); y/part = MatMul(y/left, y/right)`, for each head,
        `y = Concat(Unsqueeze(y/part), ..., axis=1)`
    """
    ops = [_with_split_cell(call) for call in program.calls]
    return rewritten(program.net, ops)


def _with_split_cell(call: Call) -> Op:
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op):
        return call.op
    recurrence = Recurrence(call.op, call.net)
    stay = call.op.attributes.get("recompute", ())
    cell = split_in_step(cell_program(recurrence, call), recurrence.references, stay)
    return call.op if cell is recurrence.cell else replace(call.op, attributes={**call.op.attributes, "cell": cell})


def split_in_step(step: Program, weights: Collection[str], stay: Collection[str] = ()) -> Net:
    """A step with its batched products split; the net itself where there are none.

    Args:
        weights: inputs that are the same at every step.
        stay: blobs whose products stay as they are.
    """
    fixed, taken, ops = set(weights), set(step.types), list[Op]()
    for call in step.calls:
        given = [name for name in call.op.inputs if name]
        if given and fixed.issuperset(given) and not schema_of(call.op.type).uses_context:
            fixed.update(call.op.outputs)
        split = call.op.key not in stay and _has_heads(call, fixed)
        ops += _heads(call, taken) if split else [call.op]
    return step.net.with_ops(ops).snapshot() if len(ops) > len(step.calls) else step.net


def _has_heads(call: Call, fixed: Collection[str]) -> bool:
    if call.op.type not in MATMULS:
        return False
    left, right = call.op.inputs
    if left in fixed or right not in fixed or call.rank(1) != 3 or call.rank(0) < 4:
        return False  # of three axes the first is the batch: what attention reads has a matrix for each row
    heads, inner, columns = call.shape(1)
    rows = call.shape(0)[HEADS:-1] == (heads, 1)  # of several rows a head, those of one head are no matrix
    return rows and 2 <= heads <= MOST and min(inner, columns) >= SMALLEST


def _heads(call: Call, taken: set[str]) -> Iterator[Op]:
    axis, layer, parts = call.rank(0) + HEADS, call.op.layer, list[str]()
    for head in range(call.shape(1)[0]):
        sides: list[str] = []
        for name, own in zip(call.op.inputs, (axis, 0), strict=True):
            part, side = (free_name(f"{call.op.key}/{what}", taken) for what in ("slice", "head"))
            where = {"starts": (head,), "ends": (head + 1,), "axes": (own,)}
            yield Op("Slice", (name,), (part,), where, layer)
            yield Op("Squeeze", (part,), (side,), {"axes": (own,)}, layer)
            sides.append(side)
        product, part = (free_name(f"{call.op.key}/{what}", taken) for what in ("product", "part"))
        yield Op(call.op.type, tuple(sides), (product,), call.op.attributes, layer)
        yield Op("Unsqueeze", (product,), (part,), {"axes": (axis,)}, layer)
        parts.append(part)
    yield Op("Concat", tuple(parts), call.op.outputs, {"axis": axis}, layer)
