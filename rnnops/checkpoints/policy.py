"""Checkpoint policies, and the residuals that each chooses to keep for the backward pass.

**Checkpoint policies** are the values of `checkpoints=` (`as_policy`). One policy is for a whole model: it chooses
residuals of the outer net, and of each cell.

**Residual choice** (`choose_residuals`): which forward blobs are kept for the backward pass, and which ops run again
there. By default no product runs again. A set of blobs is enough if elementwise ops and views can compute all that
backward reads from it. The smallest such set is kept (a minimum cut). If there are several, the one with the fewest ops
to run again is taken. Blobs that are listed for recompute are not kept, nor are blobs that elementwise ops and views
compute from them. Each op that is needed for these blobs runs again once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from numbers import Integral, Real

from rnnops.autodiff import GradientNet
from rnnops.checkpoints.slot_schedule import check_count, check_slots, find_cuts, minimum_cut
from rnnops.errors import CheckpointError, NoBottleneckError, UnknownCheckpointError
from rnnops.interpreter import Program
from rnnops.net.loop_forms import PRODUCTS, ProductForm, View
from rnnops.net.net import Net
from rnnops.net.op import Input, Op
from rnnops.net.schema import Call, form_of, schema_of
from rnnops.types import OPAQUE, Type
from rnnops.util import counted

DEFAULT, ALL, SPEED, MEMORY, COLLECTION, NAMES = "default", "all", "speed", "memory", "collection", "names"
SEGMENTS = "segments"
KINDS = (ALL, SPEED, MEMORY, COLLECTION)
EXACT, BFLOAT16 = "float32", "bfloat16"


@dataclass(frozen=True)
class Slots:
    """A policy: recurrences run in parts, and keep values in a fixed number of slots (see `slots`).

    It is given as `ro.compile(net, checkpoints=Slots(...))`, which checks it.

    Args:
        count: the number of slots, 1 or more.
        kind: the kind of slots: `"state"`, `"step"` or `"mixed"`. A step of `slots` is a part here.
        steps: timesteps of a part, 1 or more.
        cost: for `"mixed"`, the number of slots that hold the values of one part, 1 or more.

    Raises:
        CheckpointError: in `ro.compile`, for a wrong number or kind.

    Example:
        >>> net = ro.Net("net")
        >>> h_all, h_last = ro.GRU(net, net.input("x"), None, None, 3, 4)
        >>> net.outputs(y=h_last)
        >>> run = ro.compile(net, device="reference", checkpoints=ro.checkpoints.Slots(3, steps=5))
        >>> out, pullback = run.vjp(ro.init_params(net, 0), x=np.ones((20, 2, 3), "float32"))
        >>> pullback({"y": np.ones((1, 2, 4), "float32")})["x"].shape
        (20, 2, 3)
    """

    count: int
    kind: str = "state"
    steps: int = 1
    cost: int = 1

    def __str__(self) -> str:
        return f"{counted(self.count, 'slot')} of kind {self.kind} for parts of {counted(self.steps, 'step')}"


@dataclass(frozen=True)
class Policy:
    """The rule by which residuals are chosen.

    Args:
        kind: which blobs are kept. `all`: all that backward reads. `default`: the smallest set from which these can be
            computed without a product, by cheap ops. `speed`: the smallest set from which they can be computed without
            a product, by any other op. `memory`: states of cells, and bottlenecks of the outer net. `collection`: blobs
            registered by `net.checkpoint`. `names`: blobs of these names or patterns. `segments`, for a cell whose
            steps run again in segments: all that backward reads, without large results of `SIMPLE` ops.
        names: patterns, for `names`.
        blobs: the blobs of the net and of its cells that the patterns match. Blobs made by rewrites are not among them.
        slots: how recurrences run in parts; None if they run as a whole.
        residuals: how steps keep floats: `EXACT`, unchanged, or `BFLOAT16`.
        longer: for `default`, segments are this many times as long as a small cache can hold.
    """

    kind: str = DEFAULT
    names: tuple[str, ...] = ()
    blobs: frozenset[str] = frozenset()
    slots: Slots | None = None
    residuals: str = EXACT
    longer: int = 1

    def __str__(self) -> str:
        if self.slots is not None:
            return str(self.slots) + (", states kept within parts" if self.kind == MEMORY else "")
        longer = f", segments {self.longer} times as long" if self.longer > 1 else ""
        return ", ".join(self.names) if self.kind == NAMES else self.kind + longer


@dataclass(frozen=True)
class Saving:
    """How a run chooses residuals.

    Args:
        policy: the policy, if there is no budget.
        budget: bytes, or a fraction of the bytes that the policy `all` keeps; None for no limit. A budget chooses the
            policy; only `residuals` of `policy` is used then.
    """

    policy: Policy = Policy()
    budget: int | float | None = None


DEFAULT_SAVING = Saving()


def as_saving(checkpoints: object, memory_budget: object, net: Net, residuals: object = EXACT) -> Saving:
    """The arguments of `compile` as one value. Raises CheckpointError if they contradict each other."""
    policy = as_policy(checkpoints, net)
    if not isinstance(residuals, str) or residuals not in (EXACT, BFLOAT16):
        problem, wanted = "residuals= is not a dtype that floats are kept as", f"{EXACT!r} or {BFLOAT16!r}"
        raise CheckpointError(problem, net=net.name, wanted=wanted, came=repr(residuals)[:80])
    kept_as = replace(policy, residuals=residuals)
    if memory_budget is None:
        return Saving(kept_as)
    budget = _as_budget(memory_budget, net)
    if policy != Policy():
        raise CheckpointError(
            "a budget chooses the policy", net=net.name, hint="Give checkpoints= or memory_budget=, not both."
        )
    return Saving(kept_as, budget)


def _as_budget(value: object, net: Net) -> int | float:
    """Bytes as an int, a fraction as a float up to 1."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0:
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Integral) and 0 < float(value) <= 1:
        return float(value)
    raise CheckpointError(
        "memory_budget= is not a budget",
        net=net.name,
        wanted="bytes as a positive int, or as a float a fraction, up to 1.0, of what checkpoints='all' keeps",
        came=repr(value)[:80],
        hint="For bytes give an int: int(20e6).",
    )


def as_policy(value: object, net: Net) -> Policy:
    """The policy that `checkpoints=` names, for this net.

    Raises CheckpointError for a value that is not a policy, UnknownCheckpointError if a name or the collection matches
    no blob of the net.
    """
    if value is None:
        return Policy()
    if isinstance(value, Policy):
        return value
    if isinstance(value, Slots):
        for name in ("count", "steps", "cost"):
            check_count(f"{name} of Slots", getattr(value, name), 1)
        check_slots(1, value.count, value.kind, value.cost)
        return Policy(slots=value)
    if isinstance(value, str):
        if value not in KINDS:
            raise CheckpointError(
                "no such checkpoint policy",
                net=net.name,
                wanted=_wanted(),
                came=repr(value),
                hint=f"A blob's name stands in a list: [{value!r}].",
            )
        return _collection(net) if value == COLLECTION else Policy(value)
    if isinstance(value, Sequence) and value and all(isinstance(name, str) for name in value):
        return _names(tuple(value), net)
    came = type(value).__name__ if isinstance(value, Mapping) else repr(value)[:80]
    hint = "Feeds and shapes come after the policy." if isinstance(value, Mapping) else None
    raise CheckpointError("checkpoints= is not a policy", net=net.name, wanted=_wanted(), came=came, hint=hint)


def _wanted() -> str:
    return f"None, one of {', '.join(map(repr, KINDS))}, a list of blob names or patterns, or ro.checkpoints.Slots"


def _collection(net: Net) -> Policy:
    if not any(one.checkpoints for one in nets_in(net)):
        raise UnknownCheckpointError(
            'checkpoints="collection", but nothing is registered',
            net=net.name,
            hint="Call net.checkpoint(blob) in the net or in a cell.",
        )
    return Policy(COLLECTION)


def _names(names: tuple[str, ...], net: Net) -> Policy:
    made = {name for one in nets_in(net) for op in one.ops for name in op.outputs if name}
    unknown = [pattern for pattern in names if not any(fnmatchcase(name, pattern) for name in made)]
    if unknown:
        raise UnknownCheckpointError(
            "checkpoints= names a blob that no op of the net or its cells makes",
            net=net.name,
            blob=unknown[0],
            wanted=_some(made),
            hint="Inputs and states need no checkpoint: the backward pass has them in any case.",
        )
    return Policy(NAMES, names, frozenset(n for n in made if any(fnmatchcase(n, pattern) for pattern in names)))


def _some(names: Collection[str], limit: int = 12) -> str:
    listed = sorted(names)
    return f"some of {', '.join(listed[:limit])}" + (", ..." if len(listed) > limit else "")


def nets_in(net: Net) -> Iterator[Net]:
    """A net, the cells of its recurrences, the cells of recurrences in these cells, and so on."""
    yield net
    for op in net.ops:
        cell = op.attributes.get("cell")
        if isinstance(cell, Net):
            yield from nets_in(cell)


DEFAULT_POLICY = Policy()
SIMPLE = ("Add", "Sub", "Mul", "Neg")  # to run them again is as fast as to read their results
SHORT = 3  # if backward reads at most 3 blobs, a net is not worth cutting


@dataclass(frozen=True)
class Residuals:
    """The residuals of a net, and the ops that run again in the backward pass.

    Args:
        kept: blobs that the forward pass stores.
        free: blobs that backward reads and that are there in any case (inputs, states).
        rerun: ops that the backward pass runs first, in forward order.

    Raises:
        CheckpointError: in `choose_residuals`, which makes it.

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
    """Choose the residuals of a net, as `ro.compile` does: for authors of backward passes.

    By default no product runs again. A set of blobs is enough if elementwise ops and views can compute all that
    backward reads from it. The smallest such set is kept, by a minimum cut. If there are several, the one with the
    fewest ops to run again is taken.

    Args:
        program: a net whose types are all known, as `rnnops.interpreter.prepare` gives it.
        reads: forward blobs that the gradient net reads.
        free: blobs that cost nothing to keep.
        recompute: blobs that must not be kept, nor all blobs that elementwise ops and views compute from them.
        policy: a policy of `rnnops.checkpoints.policy`.
        nbytes: bytes of every blob. Only the policy `memory` needs them, for an outer net; for a cell leave them out.

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
        rerun = _Rerun(program, free, again, _redone_by_speed if policy.kind == SPEED else _is_cheap)
        return rerun.up_to(rerun.cut(targets, forbidden), reads)
    return _Rerun(program, free, again, lambda call: True).up_to(saved - forbidden - _known(program), reads)


def _saved(
    program: Program, policy: Policy, targets: Sequence[str], free: Collection[str], nbytes: Mapping[str, int] | None
) -> set[str] | None:
    """The blobs that a policy keeps if they are read; None if the smallest cut decides."""
    if policy.kind == ALL:
        return _without_views(program, targets)
    if policy.kind == SEGMENTS:
        return _without_views(program, targets) - _large_arithmetic_results(program, free)
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
    named = set(program.net.checkpoints) if policy.kind == COLLECTION else set[str]()
    if policy.kind == NAMES:
        named = {name for op in program.net.ops for name in op.outputs if name and _is_meant(program, policy, name)}
    return named or None


def _is_meant(program: Program, policy: Policy, name: str) -> bool:
    """True for blobs that the policy lists, and for step workspaces whose names match one of its patterns."""
    opaque = program.types[name].dtype == OPAQUE
    return name in policy.blobs or (opaque and any(fnmatchcase(name, pattern) for pattern in policy.names))


def _known(program: Program) -> set[str]:
    """Blobs that are known before a run. They are not kept: ops that need them as known values would not see these."""
    calls = [call for call in program.calls if all(value is not None for value in call.output_values)]
    return {name for call in calls for name in call.op.outputs}


def _without_views(program: Program, targets: Sequence[str]) -> set[str]:
    """The targets, with the operand of a view in place of each view. Views cost nothing to make again."""
    found = set(targets)
    for call in reversed(program.calls):
        if isinstance(form_of(call), View) and any(n in found for n in call.op.outputs):
            found -= set(call.op.outputs)
            found.update(name for name in call.op.inputs if name)
    return found


def _large_arithmetic_results(program: Program, free: Collection[str]) -> set[str]:
    """Results of `SIMPLE` ops that are larger than half of the largest free blob, such as a state."""
    largest = max((program.types[name].size for name in free), default=0)
    simple = {name for call in program.calls if call.op.type in SIMPLE for name in call.op.outputs}
    return {name for name in simple if 2 * program.types[name].size > largest}


def _redone_by_speed(call: Call) -> bool:
    """True if a call is not a product, nor a net in itself."""
    form = form_of(call)
    return not (isinstance(form, ProductForm) or call.op.type in PRODUCTS or call.op.holds_net)


def backward_net(program: Program, gradient: GradientNet, residuals: Residuals) -> Net:
    """The gradient net with the ops to run again. Its inputs are kept blobs, free blobs and gradients of outputs."""
    forward = [_typed_input(name, program.types) for name in (*residuals.free, *residuals.kept)]
    given = set(gradient.output_grads.values())
    grads = [spec for spec in gradient.net.input_specs if spec.name in given]
    ops = in_time(residuals.rerun, gradient.net.ops)
    return gradient.net.with_ops(ops, inputs=[*forward, *grads]).snapshot()


def in_time(again: Sequence[Op], ops: Sequence[Op]) -> list[Op]:
    """All ops, in an order in which each op that runs again runs just before its first reader. So only one segment of
    recomputed blobs is alive at a time."""
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
    """The listed blobs, and all blobs that cheap ops compute from them, up to free blobs."""
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


@dataclass(frozen=True)
class _Rerun:
    """How backward may run the ops of a net again.

    Args:
        free: blobs that cost nothing to keep.
        again: blobs that must not be kept; their ops may always run again as a whole.
        redone: returns True for an op that may run again as a whole. Of other ops, the part that their schema gives
            (`replay`) may run again.
    """

    program: Program
    free: Collection[str]
    again: Collection[str]
    redone: Callable[[Call], bool]

    def cut(self, targets: Iterable[str], forbidden: Collection[str]) -> set[str]:
        """The smallest set of blobs from which the targets can be computed, without forbidden blobs."""
        cost = {
            name: None if name in forbidden else max(self.program.types[name].nbytes, 1)
            for op in self.program.net.ops
            for name in op.outputs
            if name and name not in self.free
        }
        edges: list[tuple[str, str]] = []
        sources: list[str] = []
        for call in self.program.calls:
            op = self._replay(call)
            for name in (name for name in call.op.outputs if name in cost):
                if op is None or name not in op.outputs:
                    sources.append(name)
                else:
                    edges += [(read, name) for read in op.inputs if read in cost]
        return minimum_cut(cost, edges, sources, targets)

    def up_to(self, cut: Collection[str], reads: Sequence[str]) -> Residuals:
        """The residuals of a cut: walks backwards from `reads` to the cut and collects the ops in between."""
        needed, rerun, stored = set(reads), [], {*cut, *self.free}
        for call in reversed(self.program.calls):
            if any(name in needed and name not in stored for name in call.op.outputs):
                op = self._replay(call) or call.op
                rerun.append(_without_stored(op, stored))
                needed.update(filter(None, op.inputs))
        net = self.program.net
        order = [name for name in (*net.input_names, *(o for op in net.ops for o in op.outputs)) if name in needed]
        kept = tuple(name for name in order if name in cut and name not in self.free)
        return Residuals(kept, tuple(name for name in order if name in self.free), tuple(rerun[::-1]))

    def _replay(self, call: Call) -> Op | None:
        """The op that computes outputs of a call again: the whole op if it may run, else its `replay`; or None."""
        whole = self.redone(call) or any(name in self.again for name in call.op.outputs)
        return call.op if whole else schema_of(call.op.type).replay(call.op)


def _without_stored(op: Op, stored: Collection[str]) -> Op:
    """The op without outputs that are stored already, which it must not write."""
    outputs = tuple("" if name in stored else name for name in op.outputs)
    return op if outputs == op.outputs else replace(op, outputs=outputs)
