"""Tables of memory: what is allocated when a pass of a run needs most, and what for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from rnnops.terminal import preformatted, table
from rnnops.types import Shape

HEAD = ("kind", "what", "of", "dtype", "shape", "bytes")


@dataclass(frozen=True)
class MemoryRow:
    """One piece of memory.

    Args:
        what: it holds: a blob, a tensor over all steps, packed weights.
        of: the first result of the op that allocates it.
        shape, dtype: of what it holds.
        kind: `kept` (for the backward pass), `output`, `gradient`, `sums`, `packed weights` or `scratch`.
    """

    what: str
    of: str
    shape: Shape
    dtype: str
    kind: str

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def cells(self) -> tuple[str, ...]:
        """The row as texts."""
        return self.kind, self.what, self.of, self.dtype, str(list(self.shape)), spaced(self.nbytes)


@dataclass(frozen=True)
class PassMemory:
    """What is allocated when one pass needs most; feeds and gradients from outside are not counted.

    Args:
        name: `forward` or `backward`.
        rows: a `MemoryRow` for each piece.
        at: the op that runs then, by its first result.
    """

    name: str
    rows: tuple[MemoryRow, ...]
    at: str = ""

    @property
    def total(self) -> int:
        """Bytes of all rows."""
        return sum(row.nbytes for row in self.rows)

    def bytes_of(self, kind: str) -> int:
        """Bytes of all rows of a kind.

        Args:
            kind: as of a `MemoryRow`.
        """
        return sum(row.nbytes for row in self.rows if row.kind == kind)

    def cells(self) -> list[tuple[str, ...]]:
        """What `HEAD` is above of."""
        return [*(row.cells() for row in self.rows), ("total", "", "", "", "", spaced(self.total))]

    @property
    def head(self) -> str:
        """Name, bytes and op, as a line."""
        head = f"{self.name} pass: {readable(self.total)}"
        return f"{head}, most at '{self.at}'" if self.at else head

    def __str__(self) -> str:
        return "\n".join([self.head, *aligned([HEAD, *self.cells()])])

    def _repr_html_(self) -> str:
        return table(HEAD, self.cells(), self.head)


@dataclass(frozen=True)
class MemoryTable:
    """Memory of a run with feeds of certain shapes.

    Args:
        forward: the forward pass.
        backward: None where only a forward pass is planned; outputs of the forward pass count as long as it runs.
        note: what is not counted.
    """

    forward: PassMemory
    backward: PassMemory | None = None
    note: str = ""

    @property
    def passes(self) -> tuple[PassMemory, ...]:
        """The passes that there are."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)

    @property
    def total(self) -> int:
        """Bytes of the pass that needs most."""
        return max(one.total for one in self.passes)

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.passes), *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        return "".join([*(one._repr_html_() for one in self.passes), preformatted(self.note) if self.note else ""])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines in columns, the last one to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("  " + "  ".join([*cells, row[-1].rjust(widths[-1])]))
    return lines


def spaced(count: int) -> str:
    """A number in groups of three digits."""
    return f"{count:,}".replace(",", " ")


def readable(count: int) -> str:
    """Bytes with a unit: `512 B`, `13.2 MiB`."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.4g} {units[0]}"
