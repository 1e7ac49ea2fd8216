"""Bytes that a recurrence in parts holds, before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from rnnops.checkpoints.policy import Slots
from rnnops.recurrent.parts import Parts
from rnnops.recurrent.workspace_bytes import workspace_bytes
from rnnops.schema import Call


@dataclass(frozen=True)
class PartBytes:
    """What decides how much a recurrence holds.

    Args:
        call: the RecurrentNetwork op in training form.
        steps, batch: T and N.
        states: bytes of the states before a part.
    """

    call: Call
    steps: int
    batch: int
    states: int

    def part(self, steps: int) -> int:
        """Bytes that backward reads of a part, with the states after it."""
        return workspace_bytes(self._parts(steps).calls(min(steps, self.steps)).keep) + self.states

    def results(self, steps: int) -> int:
        """Bytes of the results of a part, from which they are copied."""
        keep = self._parts(steps).calls(min(steps, self.steps)).keep
        outputs = zip(keep.op.outputs[:-1], keep.output_types[:-1], strict=True)
        return sum(kind.nbytes for name, kind in outputs if name)

    def held(self, chosen: Slots) -> int:
        """The most bytes at once: states in slots, parts kept, states at the start and at hand, results of a part."""
        count, part = -(-self.steps // chosen.steps), self.part(chosen.steps)
        used = min(chosen.count, count * chosen.cost if chosen.kind == "mixed" else count)
        in_slots = used * part if chosen.kind == "step" else (used - 1) * self.states + part
        if chosen.kind == "mixed":
            in_slots = max(in_slots, (used - 1) // chosen.cost * part + part)
        return in_slots + 2 * self.states + self.results(chosen.steps)

    def _parts(self, steps: int) -> Parts:
        given = ((True, True),) * (len(self.call.output_types) // 2)
        return Parts(self.call, given, min(steps, self.steps))


def part_bytes(call: Call) -> PartBytes:
    """The bytes of a RecurrentNetwork op in training form."""
    parts = Parts(call, (), 1)
    return PartBytes(call, *parts.size, sum(kind.nbytes for kind in parts.initial.values()))
