"""What is the same at every step of a recurrence is computed once, before it, by ops of the net around it.

This comes before anything is differentiated or chosen that is kept. A step that reads such a result reads it as a
reference, so that no copies of it are kept for each step, its gradient is summed over the steps and goes on once, and
the same op makes it whatever the backward pass does again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from rnnops.fold_constants import fold_constants
from rnnops.interpreter import Program, prepare_again
from rnnops.lazy import cached_property
from rnnops.loops import View
from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.prune import prune
from rnnops.recurrent.op import cell_program
from rnnops.recurrent.recurrence import Recurrence, is_training_form
from rnnops.rewritten import rewritten
from rnnops.schema import Call, form_of, schema_of
from rnnops.scopes import free_name


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
class Split:
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
) -> Split:
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
    return Split(step, stay, tuple(name for name in results if name in read), fixed)


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
    first = len(call.op.inputs) - len(recurrence.references)
    outer = dict(zip(recurrence.references, call.op.inputs[first:], strict=True))
    once = [_renamed(op, outer, call.op, taken) for op in split.once.ops]
    read = {*cell.net.output_blobs.values(), *(name for op in split.stay for name in op.inputs)}
    references = [name for name in (*recurrence.references, *split.results) if name in read]
    inputs = [spec for spec in cell.net.input_specs if spec.name in references or spec.name not in outer]
    inputs += [Input(name, cell.net.dtype_of(name), None) for name in split.results]
    step = cell.net.with_ops(split.stay, inputs=inputs).snapshot()
    attributes = {**call.op.attributes, "cell": step, "references": tuple(references)}
    given = (*call.op.inputs[:first], *(outer[name] for name in references))
    return [*once, replace(call.op, inputs=given, attributes=attributes)]


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
