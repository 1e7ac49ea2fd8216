"""Residual choice: which forward blobs are kept for the backward pass, and which ops are run again there.

By default no product is redone: of all sets from which backward's reads follow by elementwise ops and views the
smallest is kept (a minimum cut), and of those the one that leaves the least to redo. Listed blobs, and what follows
from them by elementwise ops and views, are not kept; their producers run again, transitively, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rnnops.autodiff import GradientNet
from rnnops.checkpoints.cuts import find_cuts, minimum_cut
from rnnops.checkpoints.policy import ALL, MEMORY, SEGMENTS, SPEED, Policy
from rnnops.errors import NoBottleneckError
from rnnops.interpreter import Program
from rnnops.loops import PRODUCTS, ProductForm, View
from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.schema import Call, form_of, schema_of
from rnnops.types import Type

DEFAULT_POLICY = Policy()
SIMPLE = ("Add", "Sub", "Mul", "Neg")  # done again as fast as read
SHORT = 3  # blobs that backward reads: cutting a net with no more is no use


@dataclass(frozen=True)
class Residuals:
    """What the forward pass keeps of a net for the backward pass, and what runs again there.

    Args:
        kept: blobs that the forward pass stores.
        free: blobs that are at hand anyway (inputs, states) and are read on the backward pass.
        rerun: ops that the backward pass runs first, in forward order.

    Raises:
        CheckpointError: by `choose_residuals`, which makes it.

    Example:
        >>> ro.checkpoints.Residuals(kept=("gates",), free=("x",), rerun=()).kept
        ('gates',)
    """

    kept: tuple[str, ...]
    free: tuple[str, ...]
    rerun: tuple[Op, ...]


def choose_residuals(
    program: Program,
    reads: Sequence[str],
    free: Collection[str],
    recompute: Collection[str] = (),
    policy: Policy = DEFAULT_POLICY,
    nbytes: Mapping[str, int] | None = None,
) -> Residuals:
    """Choose what to keep of a net for its backward pass, as `ro.compile` does: for those who write such passes.

    By default no product is redone: of all sets from which backward's reads follow by elementwise ops and views the
    smallest is kept, a minimum cut, and of those the one that leaves the least to redo.

    Args:
        program: a net whose types are all known, as `rnnops.interpreter.prepare` gives it.
        reads: forward blobs that the gradient net reads.
        free: blobs that cost nothing to keep.
        recompute: blobs that must not be kept; what follows from them by elementwise ops and views is not, either.
        policy: what may be computed again, of `rnnops.checkpoints.policy`.
        nbytes: of every blob, where types do not say it; only the policy `memory` of an outer net asks.

    Returns:
        `Residuals`.

    Raises:
        NoBottleneckError: the policy `memory` finds none in an outer net.

    Example:
        >>> from rnnops.interpreter import prepare
        >>> from rnnops.types import Type
        >>> net = ro.Net("net")
        >>> y = ro.tanh(ro.exp(net.input("x").named("x") @ net.input("w")).named("e")).named("y")
        >>> net.outputs(y=y)
        >>> program = prepare(net, {"x": Type("float32", (2, 3)), "w": Type("float32", (3, 4))}, "float32")
        >>> found = ro.checkpoints.choose_residuals(program, ["e", "y"], {"x", "w"})
        >>> found.kept, [op.type for op in found.rerun]
        (('e',), ['Tanh'])
    """
    free = frozenset(free)
    forbidden = cheap_descendants(program, recompute, free)
    again = _ancestors(program, recompute, free)
    targets = [name for name in reads if name not in free]
    saved = _saved(program, policy, targets, free, nbytes)
    if saved is None:
        price = _redone_by_speed if policy.kind == SPEED else _is_cheap
        saved = _cut(program, targets, free, forbidden, again, price)
        return _replayed(program, reads, free, saved, again, price)
    return _replayed(program, reads, free, saved - forbidden - _known(program), again, lambda call: True)


def _saved(
    program: Program, policy: Policy, targets: Sequence[str], free: Collection[str], nbytes: Mapping[str, int] | None
) -> set[str] | None:
    """The blobs that a policy keeps where it reads them; None where the smallest cut decides."""
    if policy.kind == ALL:
        return _without_views(program, targets)
    if policy.kind == SEGMENTS:
        return _without_views(program, targets) - _sums_and_products(program, free)
    if policy.kind == MEMORY:
        if nbytes is None:
            return set()
        recurrences = [call for call in program.calls if call.op.holds_net]
        states = {name for call in recurrences for name in call.op.outputs if name}
        kept = find_cuts(program, targets, {*free, *states}, nbytes).kept
        if not kept and not states and len(targets) > SHORT:
            raise NoBottleneckError(
                "no bottleneck was found at which the net can be cut",
                net=program.net.name,
                hint='Give the blobs to keep as a list, or use checkpoints="speed".',
            )
        return states | kept if kept else None
    named = policy.saved(program.net)
    return None if named is None else set(named)


def _known(program: Program) -> set[str]:
    """Blobs that are known before a run; ops that ask for a known shape would not find it in what is kept."""
    calls = [call for call in program.calls if all(value is not None for value in call.output_values)]
    return {name for call in calls for name in call.op.outputs}


def _without_views(program: Program, targets: Sequence[str]) -> set[str]:
    """The targets, with what views show in place of views, which cost nothing to make again."""
    found = set(targets)
    for call in reversed(program.calls):
        if isinstance(form_of(call), View) and any(n in found for n in call.op.outputs):
            found -= set(call.op.outputs)
            found.update(name for name in call.op.inputs if name)
    return found


def _sums_and_products(program: Program, free: Collection[str]) -> set[str]:
    """Blobs about as large as a state that are made by one addition or multiplication."""
    largest = max((program.types[name].size for name in free), default=0)
    simple = {name for call in program.calls if call.op.type in SIMPLE for name in call.op.outputs}
    return {name for name in simple if 2 * program.types[name].size > largest}


def _redone_by_speed(call: Call) -> bool:
    """Whether a call is no product, nor a net in itself."""
    form = form_of(call)
    return not (isinstance(form, ProductForm) or call.op.type in PRODUCTS or call.op.holds_net)


def backward_net(program: Program, gradient: GradientNet, residuals: Residuals) -> Net:
    """The gradient net with the ops to run again; its inputs are what is kept or at hand anyway."""
    forward = [_typed_input(name, program.types) for name in (*residuals.free, *residuals.kept)]
    given = set(gradient.output_grads.values())
    grads = [spec for spec in gradient.net.input_specs if spec.name in given]
    ops = in_time(residuals.rerun, gradient.net.ops)
    return gradient.net.with_ops(ops, inputs=[*forward, *grads]).snapshot()


def in_time(again: Sequence[Op], ops: Sequence[Op]) -> list[Op]:
    """Ops with those to run again, each just before it is needed, so that segment after segment is there."""
    makers = {name: op for op in again for name in op.outputs if name}
    done: set[int] = set()
    order: list[Op] = []
    for op in ops:
        waiting = [(op, iter(op.inputs))]
        while waiting:
            last, names = waiting[-1]
            missing = next((one for one in map(makers.get, names) if one is not None and id(one) not in done), None)
            if missing is not None:
                waiting.append((missing, iter(missing.inputs)))
            else:
                waiting.pop()
                done.add(id(last))
                order.append(last)
    return order


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


def _cut(
    program: Program,
    targets: list[str],
    free: Collection[str],
    forbidden: set[str],
    again: set[str],
    redone: Callable[[Call], bool],
) -> set[str]:
    cost = {
        name: None if name in forbidden else max(program.types[name].nbytes, 1)
        for op in program.net.ops
        for name in op.outputs
        if name and name not in free
    }
    edges: list[tuple[str, str]] = []
    sources: list[str] = []
    for call in program.calls:
        for name, reads in _recipes(call, again, redone):
            if name not in cost:
                continue
            if reads is None:
                sources.append(name)
            else:
                edges += [(read, name) for read in reads if read in cost]
    return minimum_cut(cost, edges, sources, targets)


def _recipes(call: Call, again: set[str], redone: Callable[[Call], bool]) -> list[tuple[str, tuple[str, ...] | None]]:
    """For each output: the blobs it can be computed from again, None where it must not be."""
    outputs = [name for name in call.op.outputs if name]
    if redone(call) or any(name in again for name in outputs):
        return [(name, call.op.inputs) for name in outputs]
    replay = schema_of(call.op.type).replay(call.op)
    return [(name, replay.inputs if replay and name in replay.outputs else None) for name in outputs]


def _replayed(
    program: Program,
    reads: Sequence[str],
    free: Collection[str],
    cut: set[str],
    again: set[str],
    redone: Callable[[Call], bool],
) -> Residuals:
    """Walk backwards from the reads to the cut and collect the ops in between."""
    needed, rerun = set(reads), []
    for call in reversed(program.calls):
        wanted = [name for name in call.op.outputs if name in needed and name not in cut and name not in free]
        if wanted:
            whole = redone(call) or any(name in again for name in call.op.outputs)
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
