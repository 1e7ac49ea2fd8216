"""Parts of a schedule as values: lanes of what runs together, recurrences with tiles, threads and bytes, other ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rnnops.compiler.report.memory_table import readable

ONCE, TILE, STEP = "once", "tile", "step"  # how often a lane runs; rows of a pass without steps run once
Share = tuple[int, int]  # the first that a thread takes, and the one after the last


@dataclass(frozen=True)
class Lane:
    """What runs together.

    Args:
        when: `once`, `tile` (all steps of one at once) or `step`.
        head: how it runs, in words.
        work: a line for each product, and for each group of elementwise ops.
        gflop: of its products in all steps, in 1e9 operations.
        after: of what runs once, whether that is after the last step.
    """

    when: str
    head: str
    work: tuple[str, ...]
    gflop: float = 0.0
    after: bool = False

    def lines(self) -> Iterator[str]:
        yield self.head + (f" ({self.gflop:.3g} GFLOP)" if self.gflop else "")
        yield from (f"  {one}" for one in self.work)


@dataclass(frozen=True)
class ScanSchedule:
    """One compiled recurrence, or a group of fused ops, in one pass.

    Args:
        title: what it is.
        facts: steps, rows, threads and what else a plan says of it.
        steps: T; 0 for what has no steps.
        tile: steps of a tile.
        reverse: whether steps run from the last to the first.
        lanes: in order; within a tile each runs when the one before has ended.
        shares: what is shared out (`rows`, `128 columns`) -> the share of each thread.
        nbytes: bytes by kind of memory.
    """

    title: str
    facts: tuple[str, ...]
    steps: int
    tile: int
    reverse: bool
    lanes: tuple[Lane, ...]
    shares: Mapping[str, tuple[Share, ...]] = field(default_factory=dict)
    nbytes: Mapping[str, int] = field(default_factory=dict)

    def tiles(self) -> list[Share]:
        """First step and the one after the last of each tile, in the order in which they run."""
        sizes = [(first, min(self.tile, self.steps - first)) for first in range(0, self.steps, self.tile or 1)]
        if self.reverse:
            return [(self.steps - first - size, self.steps - first) for first, size in sizes]
        return [(first, first + size) for first, size in sizes]

    def lines(self) -> Iterator[str]:
        yield f"{self.title}:"
        yield from (f"  {fact}" for fact in self.facts)
        tiles = self.tiles()
        if len(tiles) > 1:
            shown = [*tiles[:3], *([] if len(tiles) < 5 else [None]), *tiles[3:][-1:]]
            said = ", ".join("..." if one is None else ranged(one) for one in shown)
            yield f"  {len(tiles)} tiles, of steps {said}"
        for lane in self.lanes:
            yield from (f"  {line}" for line in lane.lines())
        for what, shares in self.shares.items():
            yield f"  {what} of threads: {', '.join(map(ranged, shares))}"
        if self.nbytes:
            yield f"  memory: {', '.join(f'{kind} {readable(nbytes)}' for kind, nbytes in self.nbytes.items())}"


@dataclass(frozen=True)
class OpsSchedule:
    """Ops that run one by one outside of generated code.

    Args:
        title: what runs them.
        ops: in order, as `Reshape -> y`.
    """

    title: str
    ops: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield f"{self.title}: {', '.join(self.ops) or 'nothing'}"


Part = ScanSchedule | OpsSchedule


@dataclass(frozen=True)
class PassSchedule:
    """One pass: `forward` or `backward`, and its parts in the order in which they run."""

    name: str
    parts: tuple[Part, ...]


def ranged(share: Share) -> str:
    """`0 to 7`, `3`, `none`."""
    first, end = share
    return "none" if end <= first else str(first) if end == first + 1 else f"{first} to {end - 1}"
