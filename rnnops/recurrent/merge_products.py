"""Products of a cell that share an operand as one product.

Where it pays: a product of few columns leaves most of a tile of vector registers unused, and has overheads at every
step. Measured on one thread for four gates, times apart / joined, forward and of a training step: over 100 steps of 16
rows 1.37 and 1.03 for 8 columns, 1.34 and 1.13 for 16, 1.16 and 1.08 for 32, 1.07 and 1.04 for 48, 1.0 from 64 on;
over 1000 steps of one row 2.9 and 1.7 for 16; over 30 steps of 4 rows 1.19 and 0.98: copying weights and their
gradients costs as much as is saved. So it is done for at most `NARROW` columns and at least `MANY` steps, and never in
outer nets, which run a product once.

Results are those of the products apart within rounding: what flows back to the shared operand is summed in one product.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rnnops.interpreter import Program
from rnnops.loops import MATMULS
from rnnops.net import Net
from rnnops.op import Op
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence, is_training_form
from rnnops.rewritten import rewritten
from rnnops.schema import Call
from rnnops.scopes import free_name

NARROW = 32  # columns of a product
MANY = 50  # steps


def merge_products(program: Program, narrow: int = NARROW, many: int = MANY) -> Net:
    """Merge products in the cells of a net's recurrences.

    rewrite: `a = MatMul(x, v); b = MatMul(x, w)`  -->
        `a/weights = Concat(v, w, axis=1); a/joined = MatMul(x, a/weights); a, b = Split(a/joined, axis=-1)`

    Args:
        narrow: products with more columns stay as they are.
        many: recurrences with fewer steps stay as they are.
    """
    ops = [_with_merged_cell(call, narrow, many) for call in program.calls]
    return rewritten(program.net, ops)


def _with_merged_cell(call: Call, narrow: int, many: int) -> Op:
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op):
        return call.op
    recurrence = Recurrence(call.op, call.net)
    if recurrence.steps_and_batch(input_types(recurrence, call))[0] < many:
        return call.op
    stay = call.op.attributes.get("recompute", ())
    cell = merge_in_step(cell_program(recurrence, call), recurrence.references, stay, narrow)
    return call.op if cell is recurrence.cell else replace(call.op, attributes={**call.op.attributes, "cell": cell})


def merge_in_step(step: Program, weights: Collection[str], stay: Collection[str] = (), narrow: int = NARROW) -> Net:
    """One product for those with the same left operand; the net itself where there are none.

    Args:
        weights: inputs that are the same at every step.
        stay: blobs whose products stay as they are.
    """
    groups: dict[tuple[str, str, str], list[Call]] = {}
    for call in step.calls:
        if _may_join(call, weights, narrow) and call.op.key not in stay:
            groups.setdefault((call.op.type, call.op.inputs[0], call.op.layer), []).append(call)
    joined = {id(calls[0]): calls for calls in groups.values() if len(calls) > 1}
    if not joined:
        return step.net
    gone = {id(call) for calls in joined.values() for call in calls}
    taken = set(step.types)
    ops: list[Op] = []
    for call in step.calls:
        ops += _joined(joined[id(call)], taken) if id(call) in joined else [] if id(call) in gone else [call.op]
    return step.net.with_ops(ops).snapshot()


def _may_join(call: Call, weights: Collection[str], narrow: int) -> bool:
    if call.op.type not in MATMULS:
        return False
    left, right = call.op.inputs
    rows = call.rank(0) > 1 and call.rank(1) == 2
    return left not in weights and right in weights and rows and 0 < call.shape(1)[1] <= narrow


def _joined(calls: Sequence[Call], taken: set[str]) -> list[Op]:
    first, layer = calls[0].op, calls[0].op.layer
    weights, product = (free_name(f"{first.key}/{what}", taken) for what in ("weights", "joined"))
    return [
        Op("Concat", tuple(call.op.inputs[1] for call in calls), (weights,), {"axis": 1}, layer),
        Op(first.type, (first.inputs[0], weights), (product,), first.attributes, layer),
        Op(
            "Split",
            (product,),
            tuple(call.op.key for call in calls),
            {"axis": -1, "split": tuple(call.shape(1)[1] for call in calls)},
            layer,
        ),
    ]
