"""A plan as text: what the interpreter runs, and what runs compiled, forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

from rnnops.checkpoints.policy import Slots
from rnnops.compiler.execute.compile_programs import Kernel
from rnnops.compiler.execute.row_pass import RowPass
from rnnops.compiler.execute.stepped_kernels import Stepped
from rnnops.compiler.lower.strided_views import stays_there
from rnnops.compiler.pipeline import ForwardPlan, TrainingPlan
from rnnops.compiler.report.describe_scan import describe_scan
from rnnops.compiler.saving.choose_saved import runs_again
from rnnops.interpreter import Program
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call

INDENT, WIDTH = "  ", 120
RECURRENT = ("RecurrentNetwork", "RecurrentNetworkGradient")
FUSED = "FusedOps"
Plan = ForwardPlan | TrainingPlan
Runs = Kernel | Stepped | None  # what runs an op, None for the interpreter


def describe_plan(plan: Plan, device: str) -> str:
    """All of a plan."""
    net = plan.program.net
    feeds = ", ".join(f"{name} {plan.program.types[name]}" for name in net.input_names)
    lines = [f"net '{net.name}' on device '{device}', floats are {plan.program.float_dtype}", f"feeds: {feeds}"]
    if isinstance(plan, TrainingPlan):
        lines.append(f"gradients of: {', '.join(plan.backward.net.output_blobs) or 'nothing'}")
    if device != "cuda" and not any(kernel for _, _, kernel in compiled_ops(plan)):
        lines.append("everything runs in the interpreter, op by op")
    for title, program in _programs(plan).items():
        others = [call for call in program.calls if call.op.type not in (*RECURRENT, FUSED)]
        for where, calls in _around(others, device).items():
            lines.append(f"around recurrences, {where}, {title}: {_listed(calls) or 'nothing'}")
    lines += [f"not compiled: {label}: {reason}" for label, reason in plan.compiled.interpreted.items()]
    for title, call, kernel in compiled_ops(plan):
        what = _fused if call.op.type == FUSED else _recurrence
        lines += ["", f"{title}:", *(f"{INDENT}{line}" for line in what(call, kernel))]
    return "\n".join(part for line in lines for part in _wrapped(line))


def _around(calls: Sequence[Call], device: str) -> dict[str, list[Call]]:
    """Ops that are neither recurrences nor fused, by what runs them."""
    if device != "cuda":
        return {"in the interpreter": [*calls]}
    there = [call for call in calls if stays_there(call)]
    return {"as views or copies": there, "through the host": [call for call in calls if not stays_there(call)]}


def _others(program: Program) -> str:
    """Ops that are neither recurrences nor fused."""
    return _listed([call for call in program.calls if call.op.type not in (*RECURRENT, FUSED)])


def _listed(calls: Iterable[Call]) -> str:
    return ", ".join(f"{call.op.type} -> {call.op.key}" for call in calls)


def _wrapped(line: str) -> list[str]:
    """A line in parts that are short enough to read."""
    indent = line[: len(line) - len(line.lstrip())]
    options = {"break_long_words": False, "break_on_hyphens": False}
    return wrap(line, WIDTH, subsequent_indent=f"{indent}{INDENT * 2}", **options) or [line]  # type: ignore[arg-type]


def compiled_ops(plan: Plan) -> Iterator[tuple[str, Call, Runs]]:
    """Recurrences and fused ops of each pass, those in steps that run one by one too: title, op, what runs it."""
    names: dict[str, str] = {}
    compiled, parted = plan.compiled, plan.compiled.parted
    passes = ((compiled.forward, compiled.stepped[0]), (compiled.backward, compiled.stepped[1]))
    for (title, program), runs in zip(_programs(plan).items(), passes, strict=False):
        kernels = {key: kernel for some in (*runs, parted.scans, parted.stepped) for key, kernel in some.items()}
        yield from _ops_of(program, kernels, title, names)


def _ops_of(
    program: Program, kernels: Mapping[str, Runs], title: str, names: dict[str, str]
) -> Iterator[tuple[str, Call, Runs]]:
    """Those of one program.

    Args:
        names: workspaces of a recurrence -> its name, which its gradient has as well.
    """
    for call in program.calls:
        kernel = kernels.get(call.op.key)
        if call.op.type in RECURRENT:
            forward = call.op.type == RECURRENT[0]
            name = call.op.key if forward else names.get(call.op.inputs[len(call.output_types)], call.op.key)
            names.update(dict.fromkeys(call.op.outputs, name))
            yield f"recurrence '{name}', {title}", call, kernel
            if isinstance(kernel, Stepped):
                yield from _ops_of(kernel.program, kernel.kernels, f"in each step of '{name}', {title}", names)
        elif call.op.type == FUSED:
            name = call.op.key
            yield f"fused ops '{name}', {title}", call, kernel
        if kernel is not None and not isinstance(kernel, Stepped):
            for when, once in kernel.beside().items():
                yield from _ops_of(once.program, once.kernels, f"once, {when} of '{name}', {title}", names)


def _programs(plan: Plan) -> dict[str, Program]:
    programs = {"forward": plan.program}
    return {**programs, "backward": plan.backward} if isinstance(plan, TrainingPlan) else programs


def _fused(call: Call, kernel: Runs) -> Iterator[str]:
    body = call.op.attributes["body"]
    yield f"{', '.join(call.op.inputs)} -> {', '.join(call.op.outputs)}: {', '.join(op.type for op in body.ops)}"
    if kernel is None or isinstance(kernel, Stepped):
        yield "run in the interpreter, op by op"
    else:
        yield from describe_scan(kernel.compiled, None, kernel.demand())


def _recurrence(call: Call, kernel: Runs) -> Iterator[str]:
    recurrence = Recurrence(call.op, call.net)
    if call.op.type == RECURRENT[0]:
        yield from _kept(recurrence)
    else:
        again = runs_again(recurrence.cell, call.op.attributes["backward"])
        yield f"computed again: {', '.join(again) or 'nothing'}"
    yield from _parts(call)
    if kernel is None:
        yield "runs in the interpreter, step by step"
    elif isinstance(kernel, Stepped):
        yield f"steps are called one by one, as {kernel.reason}; what is compiled of each follows"
        yield f"in the interpreter, at each step: {_others(kernel.program) or 'nothing'}"
    else:
        hoisted = None if isinstance(kernel, RowPass) else kernel.hoisted
        yield from describe_scan(kernel.compiled, hoisted, kernel.demand())


def _parts(call: Call) -> Iterator[str]:
    """How a recurrence runs in parts, where it does; what follows is said of a part."""
    if call.op.attributes.get("schedule"):
        steps, count, kind, cost = call.op.attributes["schedule"]
        yield f"in parts: {Slots(count, kind, steps, cost)}; each of them:"


def _kept(recurrence: Recurrence) -> Iterator[str]:
    """What the backward pass finds of each step."""
    if recurrence.keeps_workspaces:
        blobs, read = recurrence.cell.output_blobs, recurrence.backward_reads
        states = [f"state {s.input}" for s in recurrence.states if {s.input, blobs[s.output]} & read]
        outputs = [f"output {name}" for name in recurrence.step_outputs if blobs[name] in read]
        yield f"kept of each step: {', '.join([*states, *outputs, *recurrence.keep]) or 'nothing'}"
