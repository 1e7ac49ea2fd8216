"""Drivers of lists of jobs beside NumPy: copies of arrays with any strides, zeros, the order of rows."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from word_drivers import call, driver

from rnnops.compiler.run.recorder import (
    JobList,
    NotRecordedError,
    Recorded,
    RecordedArray,
    Recorder,
    held,
    made_array,
)
from rnnops.compiler.schedule.batch_axis import order_rows, scattered
from rnnops.kernels.cpu import threads
from rnnops.types import Type

native_order = driver(threads.order_rows)


def performed(recorder: Recorder, output: RecordedArray, *feeds: np.ndarray) -> np.ndarray:
    """What the jobs of a recorder make of feeds."""
    made_array(output.shape, output.dtype, recorder.note, len(feeds)).assign(output)
    kinds = (("y", output.dtype, output.shape),)
    found = JobList(Recorded(tuple(recorder.jobs), kinds, (), recorder.status, recorder.barrier, len(feeds) + 1))(feeds)
    assert found is not None
    return found["y"]


def views(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in rng.permutation(len(shape)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_copies_of_views(dtype: str) -> None:
    rng = np.random.default_rng(3)
    for rank in range(7):
        for _ in range(8):
            shape = tuple(map(int, rng.integers(0 if rank < 3 else 1, 5, rank)))
            x = rng.integers(0, 2, shape).astype(dtype) if dtype == "bool" else rng.integers(-9, 9, shape).astype(dtype)
            keys = tuple(slice(None, None, int(rng.choice([1, 2, -1]))) for _ in shape)
            axes = views(rng, shape)
            recorder = Recorder()
            view = made_array(shape, dtype, recorder.note, 0)[keys].transpose(axes)
            wanted = x[keys].transpose(axes)
            np.testing.assert_array_equal(performed(recorder, view, x), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int8"])
@pytest.mark.parametrize("shape", [(17, 33), (16, 5), (3, 20, 40), (1, 200)])
def test_copies_of_large_transposes(shape: tuple[int, ...], dtype: str) -> None:
    x, recorder = np.arange(np.prod(shape)).reshape(shape).astype(dtype), Recorder()
    view = made_array(shape, dtype, recorder.note, 0)[..., ::-1].transpose(*range(len(shape))[::-1])
    np.testing.assert_array_equal(performed(recorder, view, x), x[..., ::-1].T)


def test_what_is_copied_as_a_whole_is_made_where_it_is_wanted() -> None:
    """Of two outputs that are the same memory the second is a copy; parts, constants and feeds are copied as well."""
    recorder, x = Recorder(), np.arange(6.0).reshape(2, 3)
    whole = made_array((2, 3), "float64", recorder.note)
    whole.assign(made_array((2, 3), "float64", recorder.note, 0))
    outputs = [whole, whole, whole[1:], held(x + 7, recorder.note), made_array((2, 3), "float64", recorder.note, 0)]
    for number, output in enumerate(outputs, 1):
        made_array(output.shape, output.dtype, recorder.note, number).assign(output)
    kinds = tuple((str(number), output.dtype, output.shape) for number, output in enumerate(outputs))
    recorded = Recorded(tuple(recorder.jobs), kinds, (), recorder.status, recorder.barrier, 1 + len(kinds))
    jobs = JobList(recorded.without_copies())
    assert len(recorded.jobs) - len(jobs.recorded.jobs) == 1
    first, second = jobs([x]), jobs([x + 1])
    assert first is not None
    assert second is not None
    for found, fed in ((first, x), (second, x + 1)):
        for array, wanted in zip(found.values(), (fed, fed, fed[1:], x + 7, fed), strict=True):
            np.testing.assert_array_equal(array, wanted)


def test_lists_look_at_the_types_of_arrays() -> None:
    """A list does nothing for other types, nor before weights are packed, nor for another number of arrays."""
    recorder, kind = Recorder(), Type("float32", (2, 3))
    made_array((2, 3), "float32", recorder.note, 1).assign(made_array((2, 3), "float32", recorder.note, 0))
    checked = ((0, kind), (1, kind))
    jobs = JobList(Recorded(tuple(recorder.jobs), (), (), recorder.status, recorder.barrier, 2, checked))
    x = np.arange(6, dtype="float32").reshape(2, 3)
    assert not jobs.answer([x, x.copy()])
    assert jobs.do([x, x.copy()])
    wrong: list[Any] = [
        x.astype("float64"),
        x.view("int32"),
        x.T.copy(),
        x[:, :2],
        x.T,
        x[None],
        x[0],
        x.view(np.recarray),
    ]
    wrong += [x.astype(">f4"), None, 7, x.tolist(), np.empty((3, 2), "float32").T]
    for other in wrong:
        y = np.zeros_like(x)
        assert jobs.answer([other, y]) is False
        assert not y.any()
        assert jobs.answer([x, other]) is False
    for given in ([x], [], [x, np.zeros_like(x), x]):
        assert jobs.answer(given) is False
    y = np.zeros_like(x)
    assert jobs.answer([x, y]) is True
    np.testing.assert_array_equal(y, x)


def test_a_copy_of_a_whole_array_to_several_places_stays_a_copy() -> None:
    recorder, x = Recorder(), np.arange(3.0)
    row = made_array((3,), "float64", recorder.note)
    row.assign(made_array((3,), "float64", recorder.note, 0))
    made_array((4, 3), "float64", recorder.note, 1).assign(row.broadcast_to((4, 3)))
    kinds = (("y", row.dtype, (4, 3)),)
    recorded = Recorded(tuple(recorder.jobs), kinds, (), recorder.status, recorder.barrier, 1 + len(kinds))
    found = JobList(recorded.without_copies())([x])
    assert found is not None
    np.testing.assert_array_equal(found["y"], np.broadcast_to(x, (4, 3)))


def test_broadcasts_fills_and_parts() -> None:
    recorder, x = Recorder(), np.arange(6.0).reshape(2, 3)
    array = made_array((4, 2, 3), "float64", recorder.note)
    array.fill(0)
    array[1] = made_array((2, 3), "float64", recorder.note, 0)
    array[2, :, 1] = held(np.array(7.0), recorder.note)
    array[3:].fill(2.5)
    wanted = np.zeros((4, 2, 3))
    wanted[1], wanted[2, :, 1], wanted[3:] = x, 7, 2.5
    np.testing.assert_array_equal(performed(recorder, array, x), wanted)


def test_elements_are_not_there_while_a_plan_is_recorded() -> None:
    array = made_array((2,), "float32", Recorder().note)
    with pytest.raises(NotRecordedError):
        np.asarray(array)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_order_of_rows(dtype: str) -> None:
    rng = np.random.default_rng(4)
    for rows, most, first in product((1, 2, 3, 5, 8, 17, 33), (1, 2, 9), (0, 1)):
        lengths = rng.integers(0, most + 3, rows).astype(dtype)
        wanted, came = np.empty((2, rows), np.int64), np.empty((2, rows), np.int64)
        order_rows(lengths, most, *wanted, (first, most))
        places = np.argsort(scattered(rows)).astype(np.int64)
        arrays = [array.ctypes.data for array in (lengths, *came, places)]
        call(native_order, 0, 1, *map(Word, [*arrays, rows, lengths.itemsize, most, first, most]))
        np.testing.assert_array_equal(came, wanted)


class Word:
    """A number as `call` takes arrays."""

    def __init__(self, number: int) -> None:
        self.ctypes = SimpleNamespace(data=number)
