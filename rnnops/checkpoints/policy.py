"""Checkpoint policies: what `checkpoints=` may say, and what each says of one net.

A policy is one value for a whole model; it is asked at every level, by the outer net and by each cell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from numbers import Integral, Real

from rnnops.checkpoints.slot_schedule import check_count, check_slots
from rnnops.errors import CheckpointError, UnknownCheckpointError
from rnnops.net import Net

DEFAULT, ALL, SPEED, MEMORY, COLLECTION, NAMES = "default", "all", "speed", "memory", "collection", "names"
SEGMENTS = "segments"
KINDS = (ALL, SPEED, MEMORY, COLLECTION)
EXACT, BFLOAT16 = "float32", "bfloat16"


@dataclass(frozen=True)
class Slots:
    """A policy: recurrences run in parts, with so many slots for what is kept of them (see `slots`).

    It is given as `ro.compile(net, checkpoints=Slots(...))`, which checks it.

    Args:
        count: of slots, 1 or more.
        kind: of slots: `"state"`, `"step"` or `"mixed"`; a step is a part here.
        steps: timesteps of a part, 1 or more.
        cost: for `"mixed"`, slots that a part takes, 1 or more.

    Raises:
        CheckpointError: by `ro.compile`, numbers or kinds that make no sense.

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
        return f"{self.count} slots of kind {self.kind} for parts of {self.steps} steps"


@dataclass(frozen=True)
class Policy:
    """What is kept for the backward pass.

    Args:
        kind: `default`: no product is done again, and of what follows from products the smallest set is kept; `all`:
            what backward reads; `speed`: results of products, or what is smaller and needs no product; `memory`: states
            of cells, and bottlenecks of the outer net; `collection`: blobs registered by `net.checkpoint`; `names`:
            blobs of these names or patterns; `segments`, of a cell whose steps run again anyway: what backward reads
            but sums and products as large as a state.
        names: for `names`.
        slots: how recurrences run in parts, None where they run as a whole.
        residuals: what steps keep floats as: `EXACT`, as they are, or `BFLOAT16`.
        longer: for `default`, how many times as long segments are as those that a small cache holds.
    """

    kind: str = DEFAULT
    names: tuple[str, ...] = ()
    slots: Slots | None = None
    residuals: str = EXACT
    longer: int = 1

    def saved(self, net: Net) -> frozenset[str] | None:
        """The blobs of a net that `collection` and `names` keep; None where they say nothing of the net."""
        made = [name for op in net.ops for name in op.outputs if name]
        if self.kind == COLLECTION:
            found = frozenset(net.checkpoints)
        elif self.kind == NAMES:
            found = frozenset(name for name in made if any(fnmatchcase(name, pattern) for pattern in self.names))
        else:
            return None
        return found or None

    def __str__(self) -> str:
        if self.slots is not None:
            return str(self.slots) + (", states kept within parts" if self.kind == MEMORY else "")
        longer = f", segments {self.longer} times as long" if self.longer > 1 else ""
        return ", ".join(self.names) if self.kind == NAMES else self.kind + longer


@dataclass(frozen=True)
class Saving:
    """What a run keeps for its backward passes.

    Args:
        policy: what may be computed again.
        budget: bytes, or a fraction of what the policy `all` keeps; None for no limit. It chooses a policy, whose
            `residuals` are those of this one.
    """

    policy: Policy = Policy()
    budget: int | float | None = None


DEFAULT_SAVING = Saving()


def as_saving(checkpoints: object, memory_budget: object, net: Net, residuals: object = EXACT) -> Saving:
    """What the arguments of `compile` say. Raises CheckpointError for what makes no sense."""
    policy = as_policy(checkpoints, net)
    if not isinstance(residuals, str) or residuals not in (EXACT, BFLOAT16):
        problem, wanted = "residuals= is no dtype that floats are kept as", f"{EXACT!r} or {BFLOAT16!r}"
        raise CheckpointError(problem, net=net.name, wanted=wanted, came=repr(residuals)[:80])
    kept_as = replace(policy, residuals=residuals)
    if memory_budget is None:
        return Saving(kept_as)
    budget = _as_budget(memory_budget, net)
    if policy != Policy():
        raise CheckpointError(
            "a budget chooses a policy by itself", net=net.name, hint="Give checkpoints= or memory_budget=, not both."
        )
    return Saving(kept_as, budget)


def _as_budget(value: object, net: Net) -> int | float:
    """Bytes as an int, a fraction as a float up to 1."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0:
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Integral) and 0 < float(value) <= 1:
        return float(value)
    raise CheckpointError(
        "memory_budget= is no budget",
        net=net.name,
        wanted="bytes as a positive int, or as a float a fraction, up to 1.0, of what checkpoints='all' keeps",
        came=repr(value)[:80],
        hint="For bytes give an int: int(20e6).",
    )


def as_policy(value: object, net: Net) -> Policy:
    """The policy that `checkpoints=` names, for this net.

    Raises CheckpointError for what names none, UnknownCheckpointError where names or the collection hold no blob of it.
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
    raise CheckpointError("checkpoints= names no policy", net=net.name, wanted=_wanted(), came=came, hint=hint)


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
            "checkpoints= names what no op of the net or its cells makes",
            net=net.name,
            blob=unknown[0],
            wanted=_some(made),
            hint="Inputs and states are at hand anyway.",
        )
    return Policy(NAMES, names)


def _some(names: Collection[str], limit: int = 12) -> str:
    listed = sorted(names)
    return f"some of {', '.join(listed[:limit])}" + (", ..." if len(listed) > limit else "")


def nets_in(net: Net) -> Iterator[Net]:
    """A net, the cells of its recurrences, and theirs."""
    yield net
    for op in net.ops:
        cell = op.attributes.get("cell")
        if isinstance(cell, Net):
            yield from nets_in(cell)
