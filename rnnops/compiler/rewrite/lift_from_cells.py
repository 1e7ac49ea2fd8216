"""What follows from references alone leaves the cells of recurrences, so that it is done where these come from.

Cells transpose, slice and join their weights where they multiply with them; compiled code reads such weights as they
lie, but what is done with weights once and for all (`int8_weights.py`) has to find them around the recurrence.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.prune import prune
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import schema_of
from rnnops.scopes import free_name


def lift_from_cells(net: Net, fixed: Collection[str]) -> Net:
    """Move ops out of cells, and out of cells within cells.

    rewrite: `cell(x, w): v = Transpose(w); y = MatMul(x, v)`  -->  `v = Transpose(w)`; `cell(x, v): y = MatMul(x, v)`

    Args:
        fixed: inputs of the net, which are all that lifted ops may follow from.
    """
    found, taken, ops = set(fixed), {name for op in net.ops for name in op.outputs} | set(net.input_names), list[Op]()
    for op in net.ops:
        lifted = _lifted(op, net.name, found, taken) if op.type == "RecurrentNetwork" else [op]
        ops += lifted
        found.update(name for one in lifted if _moves(one, found) for name in one.outputs)
    return net.with_ops(ops).snapshot()


def _moves(op: Op, fixed: Collection[str], outputs: Collection[str] = ()) -> bool:
    """Whether an op follows from what is fixed alone, and may be done elsewhere."""
    schema, given = schema_of(op.type), {name for name in op.inputs if name}
    stays = schema.random or schema.uses_context or op.holds_net or not set(outputs).isdisjoint(op.outputs)
    return bool(given) and given <= set(fixed) and not stays


def _lifted(op: Op, net: str, fixed: Collection[str], taken: set[str]) -> list[Op]:
    """A recurrence behind the ops that have left its cell."""
    recurrence = Recurrence(op, net)
    outer = {name: blob for kind, name, blob in recurrence.bindings() if kind == "reference" and blob in fixed}
    cell = lift_from_cells(recurrence.cell, outer)
    constant = {name for one in cell.ops if not one.inputs and not schema_of(one.type).random for name in one.outputs}
    outputs, moved, rest = set(cell.output_blobs.values()), list[Op](), list[Op]()
    inside = set(outer)
    for one in cell.ops:
        moves = _moves(one, inside | constant, outputs) and not inside.isdisjoint(one.inputs)
        (moved if moves else rest).append(one)
        inside.update(one.outputs if moves else ())
    made = {name for one in moved for name in one.outputs if name}
    read = {name for one in rest for name in one.inputs} & made
    if not read:
        return [op if cell is recurrence.cell else replace(op, attributes={**op.attributes, "cell": cell})]
    needed = {name for one in moved for name in one.inputs} & constant
    copies = [one for one in cell.ops if not needed.isdisjoint(one.outputs)]
    names = {**outer, **{name: free_name(name, taken) for one in (*copies, *moved) for name in one.outputs if name}}
    ahead = [_renamed(one, names) for one in (*copies, *moved)]
    more = [name for one in moved for name in one.outputs if name in read]
    inner = prune(cell.with_ops(rest, inputs=[*cell.input_specs, *map(Input, more)]))
    recompute = tuple(name for name in op.attributes.get("recompute", ()) if name not in made)
    changed = replace(op, attributes={**op.attributes, "cell": inner, "recompute": recompute})
    return [*ahead, with_references(changed, {name: names[name] for name in more})]


def _renamed(op: Op, names: dict[str, str]) -> Op:
    inputs, outputs = (tuple(names.get(name, name) for name in some) for some in (op.inputs, op.outputs))
    return replace(op, inputs=inputs, outputs=outputs)


def with_references(op: Op, more: dict[str, str]) -> Op:
    """A recurrence whose cell has more inputs that are the same at every step: cell input -> outer blob."""
    references = (*op.attributes.get("references", ()), *more)
    return replace(op, inputs=(*op.inputs, *more.values()), attributes={**op.attributes, "references": references})


def without_unread_references(op: Op) -> Op:
    """A recurrence without the references that nothing in its cell reads."""
    recurrence = Recurrence(op, "")
    cell: Net = recurrence.cell
    read = {name for one in cell.ops for name in one.inputs} | set(cell.output_blobs.values())
    unread = {name for name in recurrence.references if name not in read}
    if not unread:
        return op
    ports = zip(recurrence.ports(), op.inputs, strict=True)
    inputs = tuple(blob for name, blob in ports if name not in unread)
    kept = cell.with_ops(cell.ops, inputs=[spec for spec in cell.input_specs if spec.name not in unread]).snapshot()
    references = tuple(name for name in recurrence.references if name not in unread)
    return replace(op, inputs=inputs, attributes={**op.attributes, "cell": kept, "references": references})
