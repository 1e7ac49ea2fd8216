"""Residual choice: which forward blobs are kept for the backward pass, and which ops are run again there.

By default no product is redone: of all sets from which backward's reads follow by elementwise ops and views the
smallest is kept (a minimum cut), and of those the one that leaves the least to redo. Listed blobs, and what follows
from them by elementwise ops and views, are not kept; their producers run again, transitively, each once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rnnops.autodiff import GradientNet
from rnnops.checkpoints.minimum_cut import minimum_cut
from rnnops.interpreter import Program
from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.schema import Call, schema_of
from rnnops.types import Type


@dataclass(frozen=True)
class Residuals:
    """What is kept and what is run again.

    Args:
        kept: blobs that the forward pass stores.
        free: blobs that are at hand anyway (inputs, states) and are read on the backward pass.
        rerun: ops that the backward pass runs first, in forward order.
    """

    kept: tuple[str, ...]
    free: tuple[str, ...]
    rerun: tuple[Op, ...]


def choose_residuals(
    program: Program, reads: Sequence[str], free: Collection[str], recompute: Collection[str] = ()
) -> Residuals:
    """Choose what to keep.

    Args:
        reads: forward blobs that the gradient net reads.
        free: blobs that cost nothing to keep.
        recompute: blobs that must not be kept.
    """
    forbidden = cheap_descendants(program, recompute, free)
    again = _ancestors(program, recompute, free)
    cut = _cut(program, [name for name in reads if name not in free], free, forbidden, again)
    return _replayed(program, reads, free, cut, again)


def backward_net(program: Program, gradient: GradientNet, residuals: Residuals) -> Net:
    """The gradient net with the ops to run again in front; its inputs are what is kept or at hand anyway."""
    forward = [_typed_input(name, program.types) for name in (*residuals.free, *residuals.kept)]
    grads = [spec for spec in gradient.net.input_specs if spec.name in set(gradient.output_grads.values())]
    return gradient.net.with_ops([*residuals.rerun, *gradient.net.ops], inputs=[*forward, *grads]).snapshot()


def _typed_input(name: str, types: object) -> Input:
    kind: Type = types[name]  # type: ignore[index]
    return Input(name, kind.dtype, kind.shape)


def _is_cheap(call: Call) -> bool:
    return not call.op.inputs or schema_of(call.op.type).is_cheap(call)


def cheap_descendants(program: Program, listed: Collection[str], free: Collection[str]) -> set[str]:
    """The listed blobs and all that follows from them by cheap ops, up to states."""
    found = set(listed)
    for call in program.calls:
        if _is_cheap(call) and any(name in found for name in call.op.inputs):
            found.update(name for name in call.op.outputs if name and name not in free)
    return found


def _ancestors(program: Program, names: Iterable[str], free: Collection[str]) -> set[str]:
    """Blobs from which `names` are computed, themselves included, up to free blobs."""
    found = set(names)
    for op in reversed(program.net.ops):
        if any(name in found for name in op.outputs):
            found.update(name for name in op.inputs if name and name not in free)
    return found


def _cut(program: Program, targets: list[str], free: Collection[str], forbidden: set[str], again: set[str]) -> set[str]:
    cost = {
        name: None if name in forbidden else max(program.types[name].nbytes, 1)
        for op in program.net.ops
        for name in op.outputs
        if name and name not in free
    }
    edges: list[tuple[str, str]] = []
    sources: list[str] = []
    for call in program.calls:
        for name, reads in _recipes(call, again):
            if name not in cost:
                continue
            if reads is None:
                sources.append(name)
            else:
                edges += [(read, name) for read in reads if read in cost]
    return minimum_cut(cost, edges, sources, targets)


def _recipes(call: Call, again: set[str]) -> list[tuple[str, tuple[str, ...] | None]]:
    """For each output: the blobs it can be computed from again, None where it must not be."""
    outputs = [name for name in call.op.outputs if name]
    if _is_cheap(call) or any(name in again for name in outputs):
        return [(name, call.op.inputs) for name in outputs]
    replay = schema_of(call.op.type).replay(call.op)
    return [(name, replay.inputs if replay and name in replay.outputs else None) for name in outputs]


def _replayed(
    program: Program, reads: Sequence[str], free: Collection[str], cut: set[str], again: set[str]
) -> Residuals:
    """Walk backwards from the reads to the cut and collect the ops in between."""
    needed, rerun = set(reads), []
    for call in reversed(program.calls):
        wanted = [name for name in call.op.outputs if name in needed and name not in cut and name not in free]
        if wanted:
            whole = _is_cheap(call) or any(name in again for name in call.op.outputs)
            op = (None if whole else schema_of(call.op.type).replay(call.op)) or call.op
            rerun.append(_without_stored(op, cut, free))
            needed.update(op.inputs)
    order = [
        name
        for name in [*program.net.input_names, *(o for op in program.net.ops for o in op.outputs)]
        if name in needed
    ]
    kept = tuple(name for name in order if name in cut and name not in free)
    return Residuals(kept, tuple(name for name in order if name in free), tuple(rerun[::-1]))


def _without_stored(op: Op, cut: set[str], free: Collection[str]) -> Op:
    """An op that runs again must not write blobs that are stored already."""
    stored = {name for name in op.outputs if name in cut or name in free}
    return (
        op
        if not stored
        else Op(op.type, op.inputs, tuple("" if o in stored else o for o in op.outputs), op.attributes, op.layer)
    )
