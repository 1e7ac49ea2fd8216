"""What policies and budgets would cost: bytes held and predicted time, before any data exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rnnops.checkpoints.policy import Policy
from rnnops.checkpoints.slot_schedule import forward_steps
from rnnops.compiler.buffers.part_bytes import part_bytes
from rnnops.compiler.report.memory_table import aligned, spaced
from rnnops.compiler.saving.fit_budget import By, held_bytes, ways
from rnnops.compiler.saving.predicted_time import predicted_time
from rnnops.html import table
from rnnops.recurrent.recurrence import runs_in_parts

HEAD = ("policy", "time", "bytes")


@dataclass(frozen=True)
class Estimate:
    """What one policy costs.

    Args:
        policy: as text.
        nbytes: held at most, from the end of the forward pass on.
        time: of a training step, over that of one that does nothing twice.
    """

    policy: str
    nbytes: int
    time: float

    def __str__(self) -> str:
        return f"{self.policy}: {spaced(self.nbytes)} bytes, {self.time:.2f} of the time"


@dataclass(frozen=True)
class EstimateTable:
    """Estimates, the fastest first; prints as a table.

    Args:
        rows: an `Estimate` each.
    """

    rows: tuple[Estimate, ...]

    def cells(self) -> list[tuple[str, ...]]:
        """What `HEAD` is above of."""
        return [(row.policy, f"{row.time:.2f}", spaced(row.nbytes)) for row in self.rows]

    def __str__(self) -> str:
        return "\n".join(aligned([HEAD, *self.cells()]))

    def _repr_html_(self) -> str:
        return table(HEAD, self.cells(), "bytes held, and time over that of a step that does nothing twice")


def estimates(by: By, tile: Callable[[int, int], int]) -> EstimateTable:
    """The estimates of all ways that a budget chooses from, the fastest first."""
    return EstimateTable(tuple(Estimate(str(way.policy), way.nbytes, way.time) for way in ways(by, tile)))


def estimate_of(by: By, policy: Policy) -> Estimate:
    """The estimate of one policy."""
    saved = by(policy)
    calls = [call for call in saved[0].calls if runs_in_parts(call.op)]
    if policy.slots is None or not calls:
        return Estimate(str(policy), held_bytes(saved), predicted_time(saved))
    sizes = [part_bytes(call) for call in calls]
    count = -(-max(one.steps for one in sizes) // policy.slots.steps)
    share = forward_steps(count, policy.slots.count, policy.slots.kind, policy.slots.cost) / max(count, 1)
    held = held_bytes(saved) + sum(one.held(policy.slots) for one in sizes)
    return Estimate(str(policy), held, predicted_time(saved, share))
