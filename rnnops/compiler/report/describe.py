"""A plan as text: what the interpreter runs, and what runs compiled, forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from rnnops.checkpoints.policy import Slots
from rnnops.compiler.execute.backward import BackwardScan
from rnnops.compiler.execute.compiled import Runner, Runners
from rnnops.compiler.execute.compiled_scan import EXACT, Options
from rnnops.compiler.execute.forward import ForwardScan
from rnnops.compiler.execute.parted_kernels import runner_shown
from rnnops.compiler.execute.row_pass import RowPass
from rnnops.compiler.execute.stepped_kernels import Stepped
from rnnops.compiler.lower.strided_views import stays_there
from rnnops.compiler.pipeline import ForwardPlan, TrainingPlan
from rnnops.compiler.report.describe_scan import describe_scan
from rnnops.compiler.saving.choose_saved import runs_again
from rnnops.interpreter import Program
from rnnops.kernels.cpu.runtime import way_of
from rnnops.kernels.cpu.vector_width import PAIRS, vector_width
from rnnops.recurrent.recurrence import Recurrence, runs_in_parts
from rnnops.schema import Call

INDENT, WIDTH = "  ", 120
RECURRENT = ("RecurrentNetwork", "RecurrentNetworkGradient")
FUSED = "FusedOps"
Plan = ForwardPlan | TrainingPlan


def describe_plan(plan: Plan, device: str, calls: str = "") -> str:
    """All of a plan.

    Args:
        calls: how they are answered, if that is known.
    """
    net = plan.program.net
    feeds = ", ".join(f"{name} {plan.program.types[name]}" for name in net.input_names)
    lines = [f"net '{net.name}' on device '{device}', floats are {plan.program.float_dtype}", f"feeds: {feeds}"]
    if calls:
        lines.append(f"calls with such feeds: {calls}")
    lines += _rounding(plan.options, device)
    if isinstance(plan, TrainingPlan):
        lines.append(f"gradients of: {', '.join(plan.backward.net.output_blobs) or 'nothing'}")
    if device != "cuda" and not any(runner for _, _, runner in compiled_ops(plan)):
        lines.append("everything runs in the interpreter, op by op")
    for title, program in programs_of(plan).items():
        others = [call for call in program.calls if call.op.type not in (*RECURRENT, FUSED)]
        for where, found in _around(others, device).items():
            lines.append(f"around recurrences, {where}, {title}: {_listed(found) or 'nothing'}")
    lines += [f"not compiled: {label}: {reason}" for label, reason in plan.compiled.interpreted.items()]
    for title, call, runner in compiled_ops(plan):
        what = _fused if call.op.type == FUSED else _recurrence
        lines += ["", f"{title}:", *(f"{INDENT}{line}" for line in what(call, runner))]
    return "\n".join(part for line in lines for part in _wrapped(line))


def _rounding(options: Options, device: str) -> Iterator[str]:
    """What operands of products are rounded to, and how they are multiplied then; what bound weights are kept as."""
    if options.weights:
        yield f"weights: whole numbers of a byte ({options.weights}), a scale for each column; products are float32"
    if options.precision == EXACT:
        return
    way = "multiplied as float32"
    if device == "cuda":
        way = "multiplied on tensor cores"
    elif not options.interpreted:
        pairs = options.compiled and way_of(vector_width(options.width)) == PAIRS
        way = "multiplied in pairs by AVX512-BF16" if pairs else f"{way} at the speed of float32"
    yield f"products: operands rounded to {options.precision}, {way}, sums are float32"


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


def compiled_ops(plan: Plan) -> Iterator[tuple[str, Call, Runner | None]]:
    """Recurrences and fused ops of each pass, those in steps that run one by one too: title, op, what runs it."""
    names: dict[str, str] = {}
    passes = (plan.compiled.forward, plan.compiled.backward)
    for (title, program), runners in zip(programs_of(plan).items(), passes, strict=False):
        yield from _ops_of(program, runners, title, names)


def _ops_of(
    program: Program, runners: Runners, title: str, names: dict[str, str]
) -> Iterator[tuple[str, Call, Runner | None]]:
    """Those of one program.

    Args:
        names: workspaces of a recurrence -> its name, which its gradient has as well.
    """
    for call in program.calls:
        runner = runner_shown(runners.get(call.op.key))
        if call.op.type in RECURRENT:
            forward = call.op.type == RECURRENT[0]
            name = call.op.key if forward else names.get(call.op.inputs[len(call.output_types)], call.op.key)
            names.update(dict.fromkeys(call.op.outputs, name))
            yield f"recurrence '{name}', {title}", call, runner
        elif call.op.type == FUSED:
            name = call.op.key
            yield f"fused ops '{name}', {title}", call, runner
        for when, once in runner.beside().items() if runner else ():
            yield from _ops_of(once.program, once.kernels, f"{when} of '{name}', {title}", names)


def programs_of(plan: Plan) -> dict[str, Program]:
    """The program of each pass, by its name."""
    programs = {"forward": plan.program}
    return {**programs, "backward": plan.backward} if isinstance(plan, TrainingPlan) else programs


def _fused(call: Call, runner: Runner | None) -> Iterator[str]:
    body = call.op.attributes["body"]
    yield f"{', '.join(call.op.inputs)} -> {', '.join(call.op.outputs)}: {', '.join(op.type for op in body.ops)}"
    if isinstance(runner, RowPass):
        yield from describe_scan(runner.compiled, None, runner.demand())
    else:
        yield "run in the interpreter, op by op"


def _recurrence(call: Call, runner: Runner | None) -> Iterator[str]:
    recurrence = Recurrence(call.op, call.net)
    if call.op.type == RECURRENT[0]:
        yield from _kept(recurrence)
    else:
        again = runs_again(recurrence.cell, call.op.attributes["backward"])
        yield f"computed again: {', '.join(again) or 'nothing'}"
    yield from variables_of(call)
    yield from said_of_parts(call)
    if isinstance(runner, Stepped):
        yield f"steps are called one by one, as {runner.reason}; what is compiled of each follows"
        yield f"in the interpreter, at each step: {_others(runner.program) or 'nothing'}"
    elif isinstance(runner, ForwardScan | BackwardScan):
        yield from describe_scan(runner.compiled, runner.hoisted, runner.demand())
    else:
        yield "runs in the interpreter, step by step"


def variables_of(call: Call) -> Iterator[str]:
    """Blobs that variables held where the cell of a recurrence was written."""
    labels = call.op.attributes["cell"].labels.names if call.op.type in RECURRENT else {}
    if labels:
        yield f"variables: {', '.join(f'{label} is {name}' for name, label in labels.items())}"


def said_of_parts(call: Call) -> Iterator[str]:
    """How a recurrence runs in parts, where it does; what follows is said of a part."""
    if runs_in_parts(call.op):
        steps, count, kind, cost = call.op.attributes["schedule"]
        yield f"in parts: {Slots(count, kind, steps, cost)}; each of them:"


def _kept(recurrence: Recurrence) -> Iterator[str]:
    """What the backward pass finds of each step."""
    if recurrence.keeps_workspaces:
        blobs, read = recurrence.cell.output_blobs, recurrence.backward_reads
        states = [f"state {s.input}" for s in recurrence.states if {s.input, blobs[s.output]} & read]
        outputs = [f"output {name}" for name in recurrence.step_outputs if blobs[name] in read]
        yield f"kept of each step: {', '.join([*states, *outputs, *recurrence.keep]) or 'nothing'}"
