"""The memory that a compiled recurrence takes, as a value: what it allocates, where results lie, what it borrows."""

from __future__ import annotations

from dataclasses import dataclass

from rnnops.compiler.buffers.memory import SCRATCH, Buffer
from rnnops.compiler.lower.hoist_invariants import Hoisted


@dataclass(frozen=True)
class Demand:
    """Memory of one run of a compiled recurrence.

    Args:
        made: buffers that are there from the beginning to the end.
        sums: what is summed over steps, and what that becomes; all is there at once, then what is no result goes.
        late: buffers that are made after that.
        results: for each output of the op the buffers that it lies in.
        lent: what is cut from the block that it borrows.
        lasting: what it allocates at its first run and keeps for the next.
        interpreted: those of all these that the interpreter makes within the op; all others the op asks for.
    """

    made: tuple[Buffer, ...]
    results: tuple[tuple[Buffer, ...], ...]
    sums: tuple[Buffer, ...] = ()
    late: tuple[Buffer, ...] = ()
    lent: tuple[Buffer, ...] = ()
    lasting: tuple[Buffer, ...] = ()
    interpreted: tuple[Buffer, ...] = ()

    def asked_for(self) -> tuple[Buffer, ...]:
        """What the op asks for when it runs, beside scratch."""
        others = {id(buffer) for buffer in self.interpreted}
        return tuple(buffer for buffer in (*self.made, *self.sums, *self.late) if id(buffer) not in others)

    def moments(self) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
        """What it has allocated when all sums are there, and at its end."""
        results = {id(buffer) for buffers in self.results for buffer in buffers}
        left = tuple(buffer for buffer in self.sums if id(buffer) in results)
        return (*self.made, *self.sums), (*self.made, *left, *self.late)


def made_before(hoisted: Hoisted) -> tuple[Buffer, ...]:
    """What ops that run once, before the first step, leave for the steps."""
    if hoisted.before is None:
        return ()
    types = {name: hoisted.before.types[blob] for name, blob in hoisted.before.net.output_blobs.items()}
    return tuple(Buffer(name, SCRATCH, kind.dtype, kind.shape) for name, kind in types.items())
