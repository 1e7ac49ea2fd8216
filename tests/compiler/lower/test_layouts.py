"""Layouts: strides, element numbers, views as affine functions, boxes."""

from __future__ import annotations

import numpy as np
import pytest

from rnnops.compiler.lower.statements import Layout, affine, box, dense


def test_dense_is_row_major() -> None:
    assert dense((2, 3, 4)).strides == (12, 4, 1)
    assert dense(()).strides == ()
    assert dense((2, 1, 4)).strides == (4, 0, 1), "an axis of size 1 does not move"
    np.testing.assert_array_equal(dense((2, 3)).numbers(), np.arange(6).reshape(2, 3))


VIEWS = {
    "whole": lambda a: a,
    "turned": lambda a: a.transpose(2, 0, 1),
    "part": lambda a: a[1:, :2],
    "stepped": lambda a: a[:, ::2, ::-1],
    "repeated": lambda a: np.broadcast_to(a[:, :1], (2, 5, 4)),
    "scalar": lambda a: a[1, 2, 3],
    "flat": lambda a: a.reshape(6, 4),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_affine(name: str) -> None:
    numbers = np.asarray(VIEWS[name](np.arange(24).reshape(2, 3, 4)))
    layout = affine(numbers)
    assert layout is not None
    np.testing.assert_array_equal(layout.numbers(), numbers)
    assert layout.span == (numbers.min(), numbers.max())
    assert layout.size == numbers.size
    positions = np.array([[0, layout.size - 1]])
    np.testing.assert_array_equal(layout.numbers_at(positions), numbers.ravel()[positions])


@pytest.mark.parametrize("numbers", [[0, 1, 3], [[0, 1], [2, 4]], [0, 1, 2, 0], [[0, 1], [1, 0]]])
def test_other_orders_are_not(numbers: list[int]) -> None:
    assert affine(np.array(numbers)) is None


def test_nothing_is_no_view() -> None:
    assert affine(np.zeros((0, 3), np.int64)) is None


def test_broadcasting_does_not_move_along_new_axes() -> None:
    layout = dense((3, 1)).broadcast_to((2, 3, 4))
    assert layout.strides == (0, 1, 0)
    np.testing.assert_array_equal(layout.numbers(), np.broadcast_to(np.arange(3)[:, None], (2, 3, 4)))


def test_other_axes() -> None:
    layout = Layout(5, (2, 3), (3, 1)).with_axes((1, None, 0), (3, 7, 2))
    assert layout == Layout(5, (3, 7, 2), (1, 0, 3))


def test_equal_layouts_compare_equal() -> None:
    assert Layout(0, (2, 1), (1, 17)) == Layout(0, (2, 1), (1, 1))
    assert Layout(0, (2, 2), (1, 17)) != Layout(0, (2, 2), (1, 1))


def test_boxes_with_and_without_steps() -> None:
    mask = np.zeros((4, 5), bool)
    assert box(mask) is None
    mask[1:3, 2:4] = True
    assert box(mask) == (slice(1, 3, 1), slice(2, 4, 1))
    mask[1, 2] = False
    assert box(mask) is None, "a corner is missing"
    stepped = np.zeros((4, 5), bool)
    stepped[::3, 1::2] = True
    region = box(stepped)
    assert region == (slice(0, 4, 3), slice(1, 4, 2))
    assert stepped[region].all()
    stepped[1, 1] = True
    assert box(stepped) is None, "something outside the steps is true"
