"""Row shares: how the text of a driver goes through the rows of a thread, all of them or those that are not over.

A thread keeps its rows for a whole run. Where rows shrink, its share is a range of places in an order in which long and
short rows alternate (`ends`, `order`), and `list_rows` writes down for each step of a tile which are not over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class AllRows:
    """Every row at every step.

    Args:
        firsts: for what rows are counted by (`Place.rows`), the first row of a thread's products at a step.
        count: of their rows at a step: the thread's own, or all of them where threads share out columns.
        columns: whether threads may share out columns.
    """

    firsts: Mapping[str, str] = {"n": "m0"}
    count = "(m1 - m0)"
    columns = True

    def before_tile(self) -> list[str]:
        """What a tile begins with."""
        return []

    def before_rows(self) -> list[str]:
        """What a step begins with."""
        return []

    def each_row(self) -> list[str]:
        """The loop over the thread's rows of a step."""
        return ["for n in range(n0, n1):"]

    def in_tile(self, rows: int, batch: int, size: Callable[[int], str]) -> str:
        """The rows of a product in a tile, of which one step of all rows of the batch has `rows`."""
        return f"steps * {size(rows)}"


class LastingRows(AllRows):
    """Rows that are not over; `n` is one of them, `j` its place in the tile and `r` its place in the step."""

    firsts: Mapping[str, str] = {"n": "n0", "j": "j0", "r": "n0"}
    count = "count"
    columns = False

    def before_tile(self) -> list[str]:
        return ["rows = list_rows(ends, order, low, steps, n0, n1, lists, rank * K * (N + 2))"]

    def before_rows(self) -> list[str]:
        return ["head = (rank * K + i) * (N + 2)", "j0, count = lists[head], lists[head + 1]"]

    def each_row(self) -> list[str]:
        return ["for k in range(count):", "    n, j, r = lists[head + 2 + k], j0 + k, n0 + k"]

    def in_tile(self, rows: int, batch: int, size: Callable[[int], str]) -> str:
        return f"rows * {size(rows // batch)}"


class RowsPastEnd(LastingRows):
    """Rows that are over, in the same way; they come after the others in the lists."""

    def before_rows(self) -> list[str]:
        return [
            "head = (rank * K + i) * (N + 2)",
            "j0, count = i * N + n0 - lists[head], n1 - n0 - lists[head + 1]",
            "head += lists[head + 1]",
        ]

    def in_tile(self, rows: int, batch: int, size: Callable[[int], str]) -> str:
        return f"(steps * N - rows) * {size(rows // batch)}"
