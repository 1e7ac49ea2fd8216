"""What is the same at every step: ops on references and constants alone run once, before the first step."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rnnops.fold_constants import fold_constants
from rnnops.interpreter import Program, prepare
from rnnops.net import Net
from rnnops.op import Input
from rnnops.prune import prune
from rnnops.recurrent.hoist import split_step


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
    split = split_step(program, references, wanted)
    read = {*wanted, *(name for op in split.stay for name in op.inputs)}
    inputs = [
        *(spec for spec in program.net.input_specs if spec.name in read),
        *(_input(program, n) for n in split.results),
    ]
    net = program.net.with_ops(split.stay, outputs={}, inputs=inputs)
    step = prepare(net, {spec.name: program.types[spec.name] for spec in inputs}, program.float_dtype)
    kept = tuple(spec.name for spec in inputs if spec.name in split.fixed)
    return Hoisted(step, kept, _prepared(split.once, program) if split.results else None)


def _needed(program: Program, wanted: Iterable[str]) -> Program:
    """The program without ops that nothing wanted depends on."""
    folded = fold_constants(program)
    net = prune(folded, outputs={name: name for name in wanted})
    return _prepared(net, program)


def _input(program: Program, name: str) -> Input:
    return Input(name, program.net.dtype_of(name), program.types[name].shape)


def _prepared(net: Net, program: Program) -> Program:
    return prepare(net, {name: program.types[name] for name in net.input_names}, program.float_dtype)
