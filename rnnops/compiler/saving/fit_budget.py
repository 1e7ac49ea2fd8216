"""The fastest way to run backward within a byte budget.

Ways are tried in order of predicted time: everything kept; no product done again; the same with longer segments, where
recurrences go in any; results of products kept; states kept; recurrences in parts, each run forward at most twice, the
largest parts first (two-level checkpointing: Chen and others 2016); then as many slots as fit, of the kind that takes
the fewest steps. Counted is what is kept between the passes and what the backward pass makes again, not outputs, feeds,
parameters, gradients, nor scratch of kernels. Parts of less than a tile of the CPU device come last: sums over steps
are rounded another way there.

Limits: recurrences are cut into at most `MOST_PARTS` parts, as the schedule is worked out beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rnnops.autodiff import GradientNet
from rnnops.checkpoints.policy import ALL, DEFAULT, MEMORY, SPEED, Policy, Slots
from rnnops.checkpoints.residuals import Residuals, backward_net
from rnnops.checkpoints.slot_schedule import forward_steps
from rnnops.compiler.buffers.part_bytes import PartBytes, part_bytes
from rnnops.compiler.buffers.workspace_bytes import bytes_of_blobs
from rnnops.compiler.saving.predicted_time import predicted_time
from rnnops.errors import BudgetError, NoBottleneckError
from rnnops.interpreter import Program
from rnnops.lazy import cached_property
from rnnops.recurrent.recurrence import runs_in_parts

Saved = tuple[Program, GradientNet, Residuals]  # the net in training form, its gradient, what is kept between them
By = Callable[[Policy], Saved]
MOST_PARTS = 4096
LONGER = (2, 4)  # times as long as segments are that half of a small cache holds: not slower by much
POLICIES = (Policy(ALL), Policy(DEFAULT), Policy(SPEED), Policy(MEMORY))


@dataclass(frozen=True)
class Way:
    """A way to run backward.

    Args:
        nbytes: that it holds.
        time: predicted.
        whole_tiles: whether parts are whole tiles, which gives gradients the same bits as no parts.
    """

    policy: Policy
    nbytes: int
    time: float
    whole_tiles: bool = True


def fit_budget(by: By, budget: int | float, tile: Callable[[int, int], int]) -> Way:
    """The first way that fits.

    Args:
        by: what a policy saves.
        budget: bytes, or a fraction of what the policy `all` keeps.
        tile: T and N -> steps of a tile of kernels; parts of whole tiles give the same bits as no parts.

    Raises BudgetError, which names the least budget that is enough.
    """
    limit = budget if isinstance(budget, int) else int(budget * held_bytes(by(Policy(ALL))))
    least = None
    for way in ways(by, tile, limit):
        if way.nbytes <= limit:
            return way
        least = way.nbytes if least is None else min(least, way.nbytes)
    raise BudgetError(
        "no way to run backward fits the memory budget",
        net=by(Policy())[0].net.name,
        wanted=f"at least {least} bytes",
        came=f"{limit} bytes" + ("" if isinstance(budget, int) else f", which are {budget} of what 'all' holds"),
        hint="Shorter sequences or smaller batches need less.",
    )


def ways(by: By, tile: Callable[[int, int], int], limit: int | None = None) -> list[Way]:
    """All ways, the fastest first, but parts of less than a tile last; with a limit, the slots that fit it best."""
    found: list[Way] = []
    for policy in POLICIES:
        try:
            saved = by(policy)
        except NoBottleneckError:
            continue
        found.append(Way(policy, held_bytes(saved), predicted_time(saved)))
        if policy.kind == DEFAULT and any(op.attributes.get("segments") for op in saved[0].net.ops):
            found += [_in_longer_segments(by, times) for times in LONGER]
    for kind in (DEFAULT, MEMORY):
        try:
            saved = by(Policy(kind, slots=Slots(1)))
        except NoBottleneckError:
            continue
        found += _in_parts(kind, saved, tile, limit)
    return sorted(found, key=lambda way: (not way.whole_tiles, way.time))


def _in_longer_segments(by: By, times: int) -> Way:
    policy = Policy(longer=times)
    saved = by(policy)
    return Way(policy, held_bytes(saved), predicted_time(saved))


def _in_parts(kind: str, saved: Saved, tile: Callable[[int, int], int], limit: int | None) -> Iterator[Way]:
    calls = [call for call in saved[0].calls if runs_in_parts(call.op)]
    if not calls:
        return
    bytes_of = [part_bytes(call) for call in calls]
    longest = max(one.steps for one in bytes_of)
    step = min(tile(one.steps, one.batch) for one in bytes_of)
    cut = _Cut(Policy(kind), saved, bytes_of, longest, step)
    for steps in (steps for steps in _sizes(longest, step) if steps < longest):
        yield cut.way(Slots(-(-longest // steps), "state", steps))
    if limit is None:
        yield from (cut.way(Slots(count, "state", step)) for count in _halves(-(-longest // step)))
        smaller = [steps for steps in _halves(step) if longest <= steps * MOST_PARTS]
        yield from (cut.way(Slots(-(-longest // steps), "state", steps)) for steps in smaller)
        return
    for steps in (step, *_halves(step)):
        if longest <= steps * MOST_PARTS:
            yield cut.in_slots(steps, limit)


@dataclass(frozen=True)
class _Cut:
    """A net whose recurrences are cut into parts.

    Args:
        policy: of the outer net and within steps.
        saved: what it saves beside the parts.
        longest: timesteps of the longest recurrence.
        tile: steps of a tile.
    """

    policy: Policy
    saved: Saved
    bytes_of: Sequence[PartBytes]
    longest: int
    tile: int

    def way(self, chosen: Slots) -> Way:
        """The way with these slots."""
        count = -(-self.longest // chosen.steps)
        share = forward_steps(count, chosen.count, chosen.kind) / max(count, 1)
        time, whole = predicted_time(self.saved, share), chosen.steps % self.tile == 0
        return Way(Policy(self.policy.kind, slots=chosen), self.held(chosen), time, whole)

    def held(self, chosen: Slots) -> int:
        """Bytes of all."""
        return self.outer + sum(one.held(chosen) for one in self.bytes_of)

    @cached_property
    def outer(self) -> int:
        """Bytes beside the parts."""
        return held_bytes(self.saved)

    def in_slots(self, steps: int, limit: int) -> Way:
        """Parts of so many steps in as many slots as fit, in the kind of slot that takes the fewest forward steps."""
        found = [Slots(self._most_slots(kind, steps, limit), kind, steps) for kind in ("state", "step")]
        return min(map(self.way, found), key=lambda way: (way.nbytes > limit, way.time))

    def _most_slots(self, kind: str, steps: int, limit: int) -> int:
        """The largest number of slots within the limit, at least 1."""
        low, high = 1, -(-self.longest // steps)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.held(Slots(middle, kind, steps)) <= limit else (low, middle - 1)
        return low


def _sizes(longest: int, step: int) -> Iterator[int]:
    """Steps of parts, whole tiles each, from half of all steps down to one tile."""
    tiles = -(-longest // step)
    seen: set[int] = set()
    parts = 2
    while (size := -(-tiles // parts)) >= 1:
        if size not in seen:
            seen.add(size)
            yield size * step
        if size == 1:
            return
        parts = max(parts + 1, parts * 9 // 8)


def _halves(number: int) -> Iterator[int]:
    while number > 1:
        number //= 2
        yield number


def held_bytes(saved: Saved) -> int:
    """The most bytes of forward blobs that are there at once, kept or made again, from the end of the forward pass on.

    What recurrences in parts hold is not counted.
    """
    program, gradient, residuals = saved
    nbytes = bytes_of_blobs(program)
    parted = {call.op.outputs[-1] for call in program.calls if runs_in_parts(call.op)}
    nbytes.update(dict.fromkeys(parted, 0))
    net = backward_net(program, gradient, residuals)
    made = {name for op in program.net.ops for name in op.outputs if name}
    last = {name: i for i, op in enumerate(net.ops) for name in op.inputs}
    alive = set(residuals.kept)
    most = held = sum(nbytes[name] for name in alive)
    for i, op in enumerate(net.ops):
        begun = made.intersection(op.outputs) - alive
        held += sum(nbytes[name] for name in begun)
        most = max(most, held)
        alive |= begun
        ended = {name for name in (*op.inputs, *begun) if name in alive and last.get(name, -1) <= i}
        held -= sum(nbytes[name] for name in ended)
        alive -= ended
    return most
