"""What is linear in sums over rows: it is computed once, from totals over all steps, not at every step.

The gradient of a weight is a sum over the rows of the batch. Rows are shared out among threads, so a step has no such
sum at hand; but what is linear in it may wait until all steps have been summed up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rnnops.compiler.ir.lowered import Lowered
from rnnops.compiler.ir.statements import fold_word
from rnnops.compiler.schedule.step_plan import MixedError
from rnnops.loops import Reduction, View
from rnnops.scalar_texts import normal_text
from rnnops.schema import Call, form_of, schema_of

SUMS = ("Add", "Sum", "Sub")  # linear in all operands at once
SCALED = ("Mul", "MatMul")  # linear in either operand
FIRST = ("Div", "Gather", "Identity", "Neg", "ScatterAdd")  # linear in the first operand, as sums and means are
CHOICES = ("Where",)  # linear in all operands but the first


@dataclass(frozen=True)
class LateCalls:
    """The ops of a step that wait.

    Args:
        calls: that compute with sums, in order.
        fixed: that compute what is the same at every step.
        summed: blobs that are sums over rows or linear in such sums.
    """

    calls: Sequence[Call]
    fixed: Sequence[Call]
    summed: Collection[str]

    def needed(self, blobs: Iterable[str]) -> list[Call]:
        """The ops that these blobs depend on."""
        wanted = set(blobs)
        result: list[Call] = []
        for call in reversed([*self.fixed, *self.calls]):
            if any(name in wanted for name in call.op.outputs):
                wanted.update(call.op.inputs)
                result.append(call)
        return result[::-1]


def late_calls(
    calls: Iterable[Call], frontier: Collection[str], lowered: Lowered, references: Iterable[str]
) -> LateCalls:
    """Find all that follows from sums over rows.

    Args:
        calls: of a step, in order.
        frontier: owners that are sums over rows.
        lowered: the step.
        references: blobs that are the same at every step.

    Raises MixedError where something is no linear function of sums.
    """
    summed = {blob for blob, access in lowered.views.items() if access.owner in frontier}
    zeros, fixed = {name for name, value in lowered.numbers.items() if value == 0}, set(references)
    late: list[Call] = []
    first: list[Call] = []
    for call in calls:
        outputs = [name for name in call.op.outputs if name]
        if any(name in summed for name in call.op.inputs) and outputs[0] not in frontier:
            if not _is_linear(call, summed, fixed, zeros):
                raise MixedError(f"'{outputs[0]}' is no linear function of sums over rows")
            late.append(call)
            summed.update(outputs)
        elif all(name in fixed for name in call.op.inputs if name) and not schema_of(call.op.type).random:
            first.append(call)
            fixed.update(outputs)
    return LateCalls(late, first, summed)


def _is_linear(call: Call, summed: Collection[str], fixed: Collection[str], zeros: Collection[str]) -> bool:
    """Whether a call is linear in what is summed, for what is fixed."""
    names, kind = [name for name in call.op.inputs if name], call.op.type
    others = [name for name in names if name not in summed]
    if kind in SUMS:
        return all(name in zeros for name in others)
    if kind in CHOICES:
        return names[0] in fixed and all(name in zeros for name in others[1:])
    if any(name not in fixed and name not in zeros for name in others):
        return False
    if kind in SCALED:
        return len(others) == 1
    form = form_of(call)
    if isinstance(form, View) and form.all_inputs:
        return all(name in zeros for name in others)
    if isinstance(form, View):
        return names[0] in summed and (kind != "Pad" or _fills_with_zero(call, zeros))
    first = kind in FIRST or (isinstance(form, Reduction) and is_linear(form))
    return first and names[0] in summed and names.count(names[0]) == 1


def _fills_with_zero(call: Call, zeros: Collection[str]) -> bool:
    if call.attr("mode") != "constant":
        return True
    return call.op.inputs[2] in zeros if call.has(2) else call.attr("constant_value") == 0


def is_linear(form: Reduction) -> bool:
    """Whether a reduction is a sum of its elements, or their mean."""
    plain = fold_word(form.combine) == "add" and normal_text(form.element) == normal_text("{0}")
    return plain and normal_text(form.finish) in map(normal_text, ("{acc}", "{acc} / {count}"))
