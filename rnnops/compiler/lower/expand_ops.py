"""Before a step is lowered: ops written out as simpler ones, and invariants taken out.

Writes ops that are short nets of simpler ops (Softmax, Gemm, LayerNormalization, ...) out as those ops.

What is the same at every step: ops on references and constants alone run once, before the first step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from rnnops.blob import Blob
from rnnops.errors import OpError
from rnnops.interpreter import Program, fold_constants, prepare
from rnnops.loops import Expansion
from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.recurrent.hoist import split_step
from rnnops.rewrites import prune
from rnnops.schema import Call, form_of, schema_of
from rnnops.scopes import absolute_names, free_name

DEEPEST = 16  # expansions within expansions: those of the library go three deep


def expand_ops(program: Program) -> Program:
    """Replace every op of loop form `Expansion` by simpler ops, until none is left; nets in attributes stay.

    rewrite: `y = Softmax(x)`  -->
        `a = ReduceMax(x, axes=[-1]); b = Sub(x, a); c = Exp(b); d = ReduceSum(c, axes=[-1]); y = Div(c, d)`
    """
    for _ in range(DEEPEST):
        if not any(map(_is_expansion, program.calls)):
            return program
        program = _expanded_once(program)
    endless = next(filter(_is_expansion, program.calls))
    problem = f"its loop form is Expansion(), and after {DEEPEST} rounds there is still something to expand"
    raise OpError(problem, net=program.net.name, op=endless.op.label, hint="`expand` uses simpler ops than its own.")


def _is_expansion(call: Call) -> bool:
    return isinstance(form_of(call), Expansion)


def _expanded_once(program: Program) -> Program:
    taken = set(program.types)
    expanded = [_parts(call, program.net, taken) if _is_expansion(call) else [call.op] for call in program.calls]
    net = program.net.with_ops(list(chain.from_iterable(expanded)))
    found = prepare(net, {name: program.types[name] for name in net.input_names}, program.float_dtype)
    for call in filter(_is_expansion, program.calls):
        for name, kind in zip(call.op.outputs, call.output_types, strict=True):
            if name and found.types[name] != kind:
                problem = "`expand` makes something else than `shapes` and `dtypes` say"
                came = found.types[name]
                raise OpError(problem, net=net.name, op=call.op.label, blob=name, wanted=kind, came=came)
    return found


def _parts(call: Call, net: Net, taken: set[str]) -> list[Op]:
    """The ops that stand for one; blobs inside are named `<its first output>/<name>`, which goes into `taken`."""
    scratch, results = _scratch_net(call, net)
    needed = prune(scratch, outputs=results)
    names = {blob: name for name, blob in results.items()}
    for blob in chain.from_iterable(op.outputs for op in needed.ops):
        if blob and blob not in names:
            names[blob] = free_name(f"{call.op.key}/{blob}", taken)
    return [_renamed(op, names) for op in needed.ops]


def _scratch_net(call: Call, net: Net) -> tuple[Net, dict[str, str]]:
    """The expansion of a call as a net with the call's inputs, and the blob of each output that is wanted."""
    op, scratch = call.op, Net(net.name, net.float_dtype)
    given = {name: kind for name, kind in zip(op.inputs, call.types, strict=True) if kind is not None}
    # inputs have the dtypes of the net, where "float" and "float32" may not meet
    blobs = {name: scratch.add_input(Input(name, net.dtype_of(name), kind.shape)) for name, kind in given.items()}
    with absolute_names(), scratch.in_layer(op.layer):
        result = schema_of(op.type).expand(call, *map(blobs.get, op.inputs))
        parts = result if isinstance(result, tuple) else (result,)
        if len(parts) != len(op.outputs) or not all(isinstance(part, Blob) for part in parts):
            wanted = f"{len(op.outputs)} blobs"
            raise OpError("`expand` returned something else", net=net.name, op=op.label, wanted=wanted, came=result)
        results: dict[str, str] = {}
        for name, blob in zip(op.outputs, parts, strict=True):
            if name:
                results[name] = _as_result(blob, {*blobs, *results.values()})
    return scratch, results


def _as_result(blob: Blob, others: set[str]) -> str:
    """The name of a blob that is to be an output; of a copy where it is an input or another output."""
    return (blob.net.apply("Identity", [blob]) if blob.name in others else blob).name


def _renamed(op: Op, names: Mapping[str, str]) -> Op:
    inputs = tuple(names.get(name, name) for name in op.inputs)
    return replace(op, inputs=inputs, outputs=tuple(names.get(name, name) for name in op.outputs))


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
