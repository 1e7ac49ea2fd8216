"""Which blobs are alive, in which memory, over time: a log from which any moment can be told afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from rnnops.compiler.report.memory_table import MemoryRow

Rows = tuple[MemoryRow, ...]


@dataclass
class _Entry:
    """A blob, the memory that it lies in, and from which event of the log to which it is alive."""

    rows: Rows
    first: int
    end: float = inf


class AliveRows:
    """Blobs that begin and end; a row counts once, however many blobs lie in it.

    Args:
        inside: rows that lie in a block of memory, by id.
        alive: blobs that are there from the beginning, and the rows they lie in.
    """

    def __init__(self, inside: Mapping[int, MemoryRow], alive: Mapping[str, Rows]) -> None:
        self.inside = inside
        self.events = self.nbytes = self.nbytes_inside = 0
        self._log: list[_Entry] = []
        self._now: dict[str, _Entry] = {}
        self._blobs_in: dict[int, int] = {}  # id of a row -> how many blobs lie in it
        for name, rows in alive.items():
            self.begin(name, rows)

    def begin(self, name: str, rows: Rows) -> None:
        """A blob is there from now on."""
        self.end(name)
        self.events += 1
        self._now[name] = _Entry(rows, self.events)
        self._log.append(self._now[name])
        for row in rows:
            self._blobs_in[id(row)] = self._blobs_in.get(id(row), 0) + 1
            if self._blobs_in[id(row)] == 1:
                self._count(row, 1)

    def end(self, name: str) -> None:
        """A blob is there no longer, if it was."""
        entry = self._now.pop(name, None)
        if entry is None:
            return
        self.events += 1
        entry.end = self.events
        for row in entry.rows:
            self._blobs_in[id(row)] -= 1
            if not self._blobs_in[id(row)]:
                self._count(row, -1)

    def rows(self, name: str) -> Rows:
        """What a blob lies in, nothing if it is not there."""
        return self._now[name].rows if name in self._now else ()

    def holds(self, row: MemoryRow) -> bool:
        """Whether some blob lies in a row now."""
        return self._blobs_in.get(id(row), 0) > 0

    def rows_at(self, event: int) -> list[MemoryRow]:
        """All rows of blobs that were alive after an event of the log."""
        return [row for entry in self._log if entry.first <= event < entry.end for row in entry.rows]

    def _count(self, row: MemoryRow, sign: int) -> None:
        self.nbytes += sign * row.nbytes
        self.nbytes_inside += sign * row.nbytes if id(row) in self.inside else 0
