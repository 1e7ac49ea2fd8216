"""Views of arrays that only know where their elements lie agree with NumPy's, gaps or not."""

from __future__ import annotations

import numpy as np
import pytest

from rnnops.compiler.run.recorder import RecordedArray, made_array

VIEWS = {
    "in order": ((4, 6), 0, (6, 1)),
    "turned": ((6, 4), 0, (1, 6)),
    "a column": ((4,), 3, (6,)),
    "backwards": ((4, 6), 23, (-6, -1)),
    "every other": ((2, 3), 7, (12, 2)),
    "one element": ((), 9, ()),
    "an axis of one": ((1, 4), 2, (100, 6)),
    "repeated": ((3, 6), 6, (0, 1)),
    "flat, over the ends of rows": ((24,), 0, (1,)),
    "windows, over the ends of rows": ((20, 3), 1, (1, 1)),
}


def copies(shape: tuple[int, ...], turn: bool) -> tuple[RecordedArray, list[str]]:
    """An array with or without gaps, and what is noted of it from now on."""
    noted: list[str] = []
    array = made_array(shape[::-1] if turn else shape, "float32", lambda driver, *_: noted.append(driver))
    return array.transpose(1, 0) if turn else array, noted


@pytest.mark.parametrize("turn", [False, True], ids=["without gaps", "turned"])
@pytest.mark.parametrize("view", VIEWS)
def test_strided(view: str, turn: bool) -> None:
    shape, offset, strides = VIEWS[view]
    array, noted = copies((4, 6), turn)
    array.twin[...] = np.arange(24).reshape(4, 6)
    found = array.strided(offset, shape, strides)
    assert noted == (["copy_box"] if turn and "over the ends" in view else [])
    if not noted:
        steps = [4 * stride for stride in strides]
        wanted = np.lib.stride_tricks.as_strided(np.arange(24, dtype="float32")[offset:], shape, steps)
        np.testing.assert_array_equal(found.twin, wanted)
    assert found.shape == shape
