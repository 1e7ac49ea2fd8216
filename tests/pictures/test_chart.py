"""Charts: round numbers on their axes, places of numbers, stairs without needless corners."""

from __future__ import annotations

from rnnops.svg import Frame, bar, byte_ticks, ticks_up_to


def test_ticks_are_round_and_reach_the_most() -> None:
    assert ticks_up_to(10) == [0, 2, 4, 6, 8, 10]
    assert ticks_up_to(4.9) == [0, 1, 2, 3, 4, 5]
    assert ticks_up_to(0.07) == [0, 0.02, 0.04, 0.06, 0.08]
    assert ticks_up_to(0) == [0]
    for most in (1, 3, 7, 11, 23, 99, 1000, 1024, 12345.6):
        ticks = ticks_up_to(most)
        assert 2 <= len(ticks) <= 6
        assert ticks[-2] < most <= ticks[-1]


def test_bytes_are_told_in_their_unit() -> None:
    assert byte_ticks(3 * 1024**2)[-1] == (3 * 1024**2, "3 MiB")
    assert byte_ticks(900)[-1] == (1000, "1000 B")
    assert byte_ticks(0) == [(0, "0 B")]


def test_places() -> None:
    frame = Frame(10, 20, 100, 50, (0, 4), (0, 2))
    assert (frame.x(0), frame.x(4), frame.y(0), frame.y(2), frame.bottom) == (10, 110, 70, 20, 70)
    assert (
        frame.outline([1, 1, 2], "mark") == '<path d="M 10.0 45.0 L 60.0 45.0 L 60.0 20.0 L 85.0 20.0" class="mark"/>'
    )
    assert Frame(0, 0, 10, 10, (0, 0), (0, 0)).y(0) == 10, "nothing is divided by 0"


def test_bars() -> None:
    assert bar(1, 1, 3) == "███"
    assert bar(1, 2, 3) == "█▌"
    assert bar(0, 1) == bar(0, 0) == ""
