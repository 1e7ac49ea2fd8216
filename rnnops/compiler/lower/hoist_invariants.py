"""What is the same at every step: ops on references and constants alone run once, before the first step."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rnnops.fold_constants import fold_constants
from rnnops.interpreter import Program, prepare
from rnnops.loops import View
from rnnops.op import Input
from rnnops.prune import prune
from rnnops.schema import Call, form_of, schema_of


@dataclass(frozen=True)
class Hoisted:
    """A step without what is the same at every step.

    Args:
        step: its references include the outputs of `before`.
        references: inputs of `step` that are the same at every step.
        before: the ops that run once, None where there are none.
    """

    step: Program
    references: tuple[str, ...]
    before: Program | None


def hoist_invariants(program: Program, references: Collection[str], wanted: Iterable[str]) -> Hoisted:
    """Move ops on references and constants alone out of a step; views of them stay, and what is known before a run.

    rewrite: `w2 = Exp(w); y = Mul(x, w2)`  -->  before: `w2 = Exp(w)`; step: `y = Mul(x, w2)`

    Args:
        wanted: blobs of the step that are stored or summed.
    """
    program = _needed(program, wanted := list(wanted))
    fixed, moved = set(references), []
    for call in program.calls:
        known = _is_known(call)
        if known or _is_fixed(call, fixed):
            fixed.update(name for name in call.op.outputs if name)
            if not known and not _is_view(call):
                moved.append(call)
    outside = {id(call) for call in moved}
    stay = [call for call in program.calls if id(call) not in outside]
    made = {name for call in stay for name in call.op.outputs}
    read = {name for call in stay for name in call.op.inputs} | set(wanted)
    wanted_outside = read - made
    results = [name for call in moved for name in call.op.outputs if name in wanted_outside]
    inputs = [*(spec for spec in program.net.input_specs if spec.name in read), *(_input(program, n) for n in results)]
    net = program.net.with_ops([call.op for call in stay], outputs={}, inputs=inputs)
    step = prepare(net, {spec.name: program.types[spec.name] for spec in inputs}, program.float_dtype)
    kept = tuple(spec.name for spec in inputs if spec.name in fixed)
    return Hoisted(step, kept, _before(program, results) if results else None)


def _needed(program: Program, wanted: Iterable[str]) -> Program:
    """The program without ops that nothing wanted depends on."""
    folded = fold_constants(program)
    net = prune(folded, outputs={name: name for name in wanted})
    return prepare(net, {name: program.types[name] for name in net.input_names}, program.float_dtype)


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


def _input(program: Program, name: str) -> Input:
    return Input(name, program.net.dtype_of(name), program.types[name].shape)


def _before(program: Program, results: Iterable[str]) -> Program:
    net = prune(program.net, keep_inputs=(), outputs={name: name for name in results})
    types = {name: program.types[name] for name in net.input_names}
    return prepare(net, types, program.float_dtype)
