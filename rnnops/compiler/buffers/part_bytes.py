"""Bytes that a recurrence in parts holds, before it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from rnnops.checkpoints.policy import Slots
from rnnops.compiler.buffers.workspace_bytes import workspace_bytes
from rnnops.recurrent.parts import Parts
from rnnops.schema import Call

PARTS = "states and parts that are kept"


@dataclass(frozen=True)
class PartBytes:
    """What decides how much a recurrence holds.

    Args:
        call: the RecurrentNetwork op in training form.
        steps, batch: T and N.
        states: bytes of the states before a part.
        known: `sizes` by steps.
    """

    call: Call
    steps: int
    batch: int
    states: int
    known: dict[int, tuple[int, int]] = field(default_factory=dict, compare=False, repr=False)

    def keep(self, steps: int) -> Call:
        """The op of a part of so many steps that keeps what backward reads."""
        every = ((True, True),) * (len(self.call.output_types) // 2)
        parts = Parts(self.call, every, min(steps, self.steps))
        return parts.calls(parts.unit).keep

    def sizes(self, steps: int) -> tuple[int, int]:
        """Bytes that backward reads of a part, with the states after it; those of its results, which are copied."""
        if steps not in self.known:
            keep = self.keep(steps)
            outputs = zip(keep.op.outputs[:-1], keep.output_types[:-1], strict=True)
            results = sum(kind.nbytes for name, kind in outputs if name)
            self.known[steps] = (workspace_bytes(keep) + self.states, results)
        return self.known[steps]

    def held(self, chosen: Slots) -> int:
        """The most bytes at once: states in slots, parts kept, states at the start and at hand, results of a part."""
        count, (part, results) = -(-self.steps // chosen.steps), self.sizes(chosen.steps)
        used = min(chosen.count, count * chosen.cost if chosen.kind == "mixed" else count)
        in_slots = used * part if chosen.kind == "step" else (used - 1) * self.states + part
        if chosen.kind == "mixed":
            in_slots = max(in_slots, (used - 1) // chosen.cost * part + part)
        return in_slots + 2 * self.states + results


def held_in_parts(call: Call) -> int:
    """The most bytes that a recurrence in training form holds under its schedule."""
    steps, count, kind, cost = call.op.attributes["schedule"]
    return part_bytes(call).held(Slots(count, kind, steps, cost))


def part_bytes(call: Call) -> PartBytes:
    """The bytes of a RecurrentNetwork op in training form."""
    parts = Parts(call, (), 1)
    return PartBytes(call, *parts.size, sum(kind.nbytes for kind in parts.initial.values()))
