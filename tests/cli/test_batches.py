"""Windows: streams go on from window to window, epochs wrap, a position is all that a window depends on."""

from __future__ import annotations

import numpy as np
import pytest

from rnnops.cli.corpus import BatchError, Streams


def test_windows_hold_the_right_characters():
    streams = Streams(np.arange(25, dtype=np.uint8), steps=3, streams=2)  # two streams of 12 characters
    window = streams.window(1)
    np.testing.assert_array_equal(window.inputs, [[3, 15], [4, 16], [5, 17]])
    np.testing.assert_array_equal(window.targets, [[4, 16], [5, 17], [6, 18]])
    assert window.inputs.dtype == window.targets.dtype == np.int32
    assert window.inputs.flags.c_contiguous
    assert (streams.windows_per_epoch, streams.characters_per_window, streams.stream_length) == (4, 6, 12)


@pytest.mark.parametrize("length", [7, 25, 26, 1_000])
@pytest.mark.parametrize(("steps", "count"), [(1, 1), (3, 2), (2, 3), (6, 1)])
def test_streams_go_on(length, steps, count):
    text = np.random.default_rng(length).integers(0, 100, length).astype(np.uint8)
    streams = Streams(text, steps, count)
    inputs = np.concatenate([window.inputs for window in streams.one_epoch()])
    targets = np.concatenate([window.targets for window in streams.one_epoch()])
    for stream in range(count):
        start = stream * streams.stream_length
        np.testing.assert_array_equal(inputs[:, stream], text[start : start + len(inputs)])
        np.testing.assert_array_equal(targets[:, stream], text[start + 1 : start + 1 + len(inputs)])


def test_epochs_wrap_and_say_when_to_reset():
    streams = Streams(np.arange(25), steps=3, streams=2)
    windows = list(map(streams.window, range(9)))
    assert [window.reset for window in windows] == [True, False, False, False] * 2 + [True]
    np.testing.assert_array_equal(windows[5].inputs, windows[1].inputs)


def test_resuming_at_a_position_is_exact():
    streams = Streams(np.random.default_rng(0).integers(0, 100, 500), steps=7, streams=3)
    straight = list(map(streams.window, range(60)))
    for resumed, window in zip(map(streams.window, range(17, 60)), straight[17:], strict=True):
        np.testing.assert_array_equal(resumed.inputs, window.inputs)
        np.testing.assert_array_equal(resumed.targets, window.targets)
        assert resumed.reset == window.reset


@pytest.mark.parametrize(("length", "steps", "count"), [(25, 5, 2), (29, 5, 3), (100, 7, 4), (31, 3, 1)])
def test_a_partial_last_window_leaves_out_fewer_targets_than_streams(length, steps, count):
    windows = list(Streams(np.arange(length), steps, count).one_epoch(partial=True))
    targets = np.concatenate([window.targets.ravel() for window in windows])
    assert len(np.unique(targets)) == len(targets)
    assert length - 1 - len(targets) < count
    assert [window.reset for window in windows] == [True] + [False] * (len(windows) - 1)


def test_exactly_one_window():
    streams = Streams(np.arange(7), steps=3, streams=2)
    assert streams.windows_per_epoch == 1
    assert [window.reset for window in map(streams.window, range(3))] == [True, True, True]
    assert len(list(streams.one_epoch(partial=True))) == 1


def test_windows_do_not_alias_the_text():
    text = np.arange(25, dtype=np.int32)
    Streams(text, steps=3, streams=1).window(0).inputs[:] = -1
    np.testing.assert_array_equal(text, np.arange(25))


def test_impossible_sizes_are_named_errors():
    text = np.arange(25)
    with pytest.raises(
        BatchError, match=r"too short for 5 streams of 5 steps; wanted more than 25 .* got 25. Use fewer"
    ):
        Streams(text, steps=5, streams=5)
    with pytest.raises(BatchError, match="steps is not a usable count; wanted an int of at least 1; got 0"):
        Streams(text, steps=0, streams=5)
    with pytest.raises(BatchError, match="streams is no"):
        Streams(text, steps=2, streams=True)
    for position in (-1, 1.5, None):
        with pytest.raises(BatchError, match="position is no"):
            Streams(text, steps=2, streams=2).window(position)
