"""How a driver goes through the rows of a thread: all, those that are not over, and those that are."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.compiler.codegen.places import AllRows, LastingRows, RowsPastEnd
from rnnops.compiler.codegen.pointwise_kernel import SizeArguments
from rnnops.compiler.lower.kernel import Statement

LISTED = ["for k in range(count):", "    n = lists[head + 2 + k]", "    j = j0 + k", "    r = n0 + k"]


def lines(statements: Sequence[Statement]) -> list[str]:
    return [line for statement in statements for line in statement.lines()]


def test_all_rows_are_a_range() -> None:
    rows = AllRows()
    assert lines([*rows.before_tile(), *rows.before_rows()]) == []
    assert lines([rows.each_row(())])[0] == "for n in range(n0, n1):"
    assert str(rows.count) == "m1 - m0"


def test_rows_that_are_not_over_come_first_in_lists() -> None:
    rows = LastingRows()
    assert lines(rows.before_tile()) == ["rows = list_rows(ends, order, low, steps, n0, n1, lists, rank * K * (N + 2))"]
    assert lines(rows.before_rows()) == [
        "head = (rank * K + i) * (N + 2)",
        "j0 = lists[head]",
        "count = lists[head + 1]",
    ]
    assert lines([rows.each_row(())]) == LISTED


def test_rows_that_are_over_come_after_them() -> None:
    rows = RowsPastEnd()
    assert lines(rows.before_rows()) == [
        "head = (rank * K + i) * (N + 2)",
        "j0 = i * N + n0 - lists[head]",
        "count = n1 - n0 - lists[head + 1]",
        "head = head + lists[head + 1]",
    ]
    assert lines([rows.each_row(())]) == LISTED


def test_rows_of_a_product_in_a_tile() -> None:
    """Of six rows a step, with two rows of the batch: three for each of these."""
    found = []
    for rows in (AllRows(), LastingRows(), RowsPastEnd()):
        sizes = SizeArguments()
        found.append((str(rows.in_tile(6, 2, sizes)), sizes.values))
    assert found == [("steps * c0", [6]), ("rows * c0", [3]), ("(steps * N - rows) * c0", [3])]
