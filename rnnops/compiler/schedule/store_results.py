"""Stored results: every blob that outlasts its step has an owner that lies in its tensor."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rnnops.compiler.ir.layouts import Layout, dense
from rnnops.compiler.ir.lowered import Lowered
from rnnops.compiler.ir.scan import Scan, Slot
from rnnops.compiler.ir.statements import Access, Number, Statement
from rnnops.compiler.schedule.step_plan import Step


def store_results(step: Step) -> Step:
    """Give every stored blob an owner that lies in its tensor, by a copy where it has none of its own.

    rewrite: `h = Tanh(x)`, stored in two tensors  -->  `h = Tanh(x); h/stored.0 = h`
    """
    scan, lowered, slots, nodes = step.scan, step.lowered.copy(), dict(step.slots), list(step.statements)
    made = Counter(statement.target.owner for statement in nodes)
    for blob, slot in scan.writes:
        owner = _own(lowered, blob)
        if owner and made[owner] and owner not in slots:
            slots[owner] = slot
        else:
            nodes.append(_stored(scan, lowered, blob, slot, slots))
    for blob, slot, layout in scan.additions:
        nodes.append(_stored(scan, lowered, blob, slot, slots, layout))
    return replace(step, lowered=lowered, slots=slots, nodes=tuple(nodes))


def _own(lowered: Lowered, blob: str) -> str:
    """The owner all of which a blob is, element by element; `""` where there is none."""
    access = lowered.views.get(blob)
    whole = access is not None and access.layout == dense(lowered.types[access.owner].shape)
    return access.owner if whole and access is not None else ""


def _stored(
    scan: Scan, lowered: Lowered, blob: str, slot: Slot, slots: dict[str, Slot], added: Layout | None = None
) -> Statement:
    """A copy of a blob into a slot, or what adds it to what lies there so."""
    kind = scan.program.types[blob]
    owner = lowered.fresh(f"{blob}/stored")
    target = lowered.own(owner, kind)
    slots[owner] = slot
    if added is None:
        return copied(scan, lowered, blob, target)
    return copied(scan, lowered, blob, replace(target, layout=added), "add")


def copied(scan: Scan, lowered: Lowered, blob: str, target: Access, fold: str = "") -> Statement:
    """A statement that copies a blob, or folds it into what is there."""
    kind = scan.program.types[blob]
    operand: Access | Number = lowered.operand(blob, kind.shape)
    call = next((call for call in scan.program.calls if blob in call.op.outputs), None)
    return Statement(target.owner, kind.shape, target, (operand,), "copy", call, kind.dtype, fold)
