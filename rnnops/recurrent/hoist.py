"""Ops that are the same at every step leave the cells of recurrences.

What is the same at every step of a recurrence is computed once, before it, by ops of the net around it.

This comes before anything is differentiated or chosen that is kept. A step that reads such a result reads it as a
reference, so that no copies of it are kept for each step, its gradient is summed over the steps and goes on once, and
the same op makes it whatever the backward pass does again.

What follows from references alone leaves the cells of recurrences, so that it is done where these come from.

Cells transpose, slice and join their weights where they multiply with them; compiled code reads such weights as they
lie, but what is done with weights once and for all (`bound_weights.py`) has to find them around the recurrence.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from rnnops.interpreter import Program, fold_constants, prepare_again
from rnnops.loops import View
from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.recurrent.op import cell_program
from rnnops.recurrent.recurrence import Recurrence, is_training_form
from rnnops.rewrites import prune, rewritten
from rnnops.schema import Call, form_of, schema_of
from rnnops.scopes import free_name
from rnnops.util import cached_property


def hoist_out_of_cells(program: Program) -> Net:
    """Move ops on references and constants alone out of the cells of a net's recurrences.

    rewrite: `RecurrentNetwork(x, h, w) { v = Softmax(w); h_t = MatMul(h, v) }`  -->
        `v = Softmax(w); RecurrentNetwork(x, h, v) { h_t = MatMul(h, v) }`
    """
    taken, ops = set(program.types), list[Op]()
    for call in program.calls:
        ops += _hoisted(call, taken)
    return rewritten(program.net, ops)


@dataclass(frozen=True)
class StepSplit:
    """A step in two: ops that run once, and those that stay in the step.

    Args:
        step: all ops, those on constants alone as constants.
        stay: the ops of each step.
        results: blobs that the ops which run once make, and the step reads.
        fixed: all blobs that are the same at every step.
    """

    step: Program
    stay: list[Op]
    results: tuple[str, ...]
    fixed: set[str]

    @cached_property
    def once(self) -> Net:
        """The ops that run once; its outputs are the results."""
        return prune(self.step.net, keep_inputs=(), outputs={name: name for name in self.results})


def split_step(
    step: Program, references: Collection[str], wanted: Collection[str], keep: Collection[str] = ()
) -> StepSplit:
    """Find the ops on references and constants alone; views of them stay, and what is known before a run.

    Args:
        wanted: blobs of the step that somebody else reads.
        keep: blobs that stay in the step, and so what follows from them.
    """
    fixed, moved = set(references), set()
    for call in step.calls:
        known = _is_known(call)
        if (known or _is_fixed(call, fixed)) and not any(name in keep for name in call.op.outputs):
            fixed.update(name for name in call.op.outputs if name)
            if not known and not _is_view(call):
                moved.add(id(call.op))
    stay = [op for op in step.net.ops if id(op) not in moved]
    read = {*wanted, *(name for op in stay for name in op.inputs)}
    results = (name for op in step.net.ops if id(op) in moved for name in op.outputs)
    return StepSplit(step, stay, tuple(name for name in results if name in read), fixed)


def _is_fixed(call: Call, fixed: Collection[str]) -> bool:
    schema = schema_of(call.op.type)
    given = [name for name in call.op.inputs if name]
    return bool(given) and all(name in fixed for name in given) and not schema.random and not schema.uses_context


def _is_known(call: Call) -> bool:
    """Whether the results are known before a run, or cost nothing."""
    values = [value for name, value in zip(call.op.outputs, call.output_values, strict=True) if name]
    return call.op.type == "ConstantOfShape" or all(value is not None for value in values)


def _is_view(call: Call) -> bool:
    """Whether results lie in memory that is there; several blobs side by side are memory of their own."""
    form = form_of(call)
    return isinstance(form, View) and not form.all_inputs


def _hoisted(call: Call, taken: set[str]) -> list[Op]:
    """The ops that go before a recurrence, and the recurrence without them."""
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op):
        return [call.op]
    recurrence = Recurrence(call.op, call.net)
    cell = cell_program(recurrence, call)
    cell = prepare_again(cell, fold_constants(cell), cell.types)
    split = split_step(cell, recurrence.references, list(cell.net.output_blobs.values()), _kept_inside(recurrence))
    if not split.results:
        return [call.op]
    outer = {name: blob for kind, name, blob in recurrence.bindings() if kind == "reference"}
    once = [_renamed(op, outer, call.op, taken) for op in split.once.ops]
    inputs = [*cell.net.input_specs, *(Input(name, cell.net.dtype_of(name), None) for name in split.results)]
    step = cell.net.with_ops(split.stay, inputs=inputs).snapshot()
    changed = replace(call.op, attributes={**call.op.attributes, "cell": step})
    return [*once, without_unread_references(with_references(changed, {name: outer[name] for name in split.results}))]


def _kept_inside(recurrence: Recurrence) -> set[str]:
    """Blobs that somebody named or wants computed again, and results of nets inside the cell."""
    cell = recurrence.cell
    named = {name for name in cell.blob_names if cell.is_capturable(name) and name not in cell.input_names}
    nested = {name for op in cell.ops if op.holds_net for name in op.outputs}
    return {*named, *nested, *cell.checkpoints, *recurrence.op.attributes.get("recompute", ())}


def _renamed(op: Op, outer: dict[str, str], recurrence: Op, taken: set[str]) -> Op:
    """An op of the cell in the net around it, where its results get names of their own."""
    scope = recurrence.key.rpartition("/")[0] or recurrence.key
    inputs = tuple(outer.get(name, "") for name in op.inputs)
    outer.update((name, free_name(f"{scope}/{name}", taken)) for name in op.outputs if name)
    outputs = tuple(outer[name] if name else "" for name in op.outputs)
    return replace(op, inputs=inputs, outputs=outputs, layer=op.layer or recurrence.layer)


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
    ahead = [_with_names(one, names) for one in (*copies, *moved)]
    more = [name for one in moved for name in one.outputs if name in read]
    inner = prune(cell.with_ops(rest, inputs=[*cell.input_specs, *map(Input, more)]))
    recompute = tuple(name for name in op.attributes.get("recompute", ()) if name not in made)
    changed = replace(op, attributes={**op.attributes, "cell": inner, "recompute": recompute})
    return [*ahead, with_references(changed, {name: names[name] for name in more})]


def _with_names(op: Op, names: dict[str, str]) -> Op:
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
