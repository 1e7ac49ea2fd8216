"""The order in which rows are shared out, and the lists of rows that are not over."""

from __future__ import annotations

import numpy as np
import pytest

from rnnops.compiler.schedule.batch_axis import order_rows
from rnnops.kernels.cpu.native import list_rows


def ordered(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order, ends = np.empty(len(lengths), np.int64), np.empty(len(lengths), np.int64)
    order_rows(lengths, 1000, order, ends)
    return order, ends


@pytest.mark.parametrize("rows", [1, 2, 7, 64, 100])
def test_every_row_comes_once(rows: int) -> None:
    lengths = np.random.default_rng(0).integers(-3, 9, rows, dtype=np.int32)
    order, ends = ordered(lengths)
    assert sorted(order) == list(range(rows))
    np.testing.assert_array_equal(ends, lengths[order])


@pytest.mark.parametrize("threads", [2, 3, 4, 7])
@pytest.mark.parametrize("rows", [64, 100])
def test_at_every_step_all_threads_have_about_as_many_rows(rows: int, threads: int) -> None:
    """Also where the caller has sorted the rows, for which shares in order would be the worst."""
    _, ends = ordered(np.arange(rows, dtype=np.int32)[::-1])
    for t in range(rows):
        counts = [int((share > t).sum()) for share in np.array_split(ends, threads)]
        assert max(counts) - min(counts) <= 4


def test_rows_of_one_length_stay_in_order() -> None:
    lengths, order, ends = np.array([7, 5, 9, 5], np.int32), np.empty(4, np.int64), np.empty(4, np.int64)
    order_rows(lengths, 5, order, ends)
    assert order.tolist() == [0, 1, 2, 3]
    assert ends.tolist() == [5, 5, 5, 5]


def test_lists_say_which_rows_are_not_over_and_where_they_lie() -> None:
    ends, order = np.array([3, 0, 5, 4]), np.array([2, 3, 0, 1])
    lists = np.full(2 * 3 * 6, -1)
    totals = [list_rows(ends, order, 2, 3, *share, lists, start) for share, start in (((0, 2), 0), ((2, 4), 18))]
    assert totals == [3 + 2 + 1] * 2
    first, second = lists.reshape(2, 3, 6)[..., :4].tolist()
    assert first == [[0, 1, 2, 3], [3, 0, 2, 3], [5, 0, 2, 3]]  # before, not over, rows
    assert second == [[1, 2, 0, 1], [3, 2, 0, 1], [5, 1, 0, 1]]
