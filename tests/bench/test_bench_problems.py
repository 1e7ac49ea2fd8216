"""Data, random cells and counted work of the benchmark."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from bench.cases import RANDOM_CELLS
from bench.counting import count_work, step_work
from bench.data import draw_data, make_feeds
from bench.nets import FIRST, NETS, build_net, user_net
from bench.place import HostPlace
from bench.problems import Problem, Size, draw_feed, rows_inside, share_inside
from bench.random_cells import RandomCell

SIZE = Size(4, 3, 5)
RANDOM = [f"random_{seed}" for seed in range(RANDOM_CELLS)]


def test_sizes_read_and_print() -> None:
    assert Size.parse("100,32,256") == Size(100, 32, 256)
    assert str(Size(100, 32, 256)) == "100,32,256"
    assert Size(1, 1, 8).tiny() == Size(1, 1, 4)
    assert Size(2, 3, 4).unit == 24


def test_feeds_are_drawn_by_name_and_sets_differ() -> None:
    lstm, gru = (draw_data(Problem(net, SIZE), HostPlace(), 2).sets for net in ("lstm", "gru"))
    assert np.array_equal(lstm[0].feeds["xs"], gru[0].feeds["xs"])
    assert lstm[0].feeds["xs"].dtype == lstm[0].feeds["w_x"].dtype == np.float32
    assert all(abs(lstm[0].feeds[name] - lstm[1].feeds[name]).min() > 0 for name in ("xs", "h0", "c0"))
    assert lstm[0].feeds["w_x"] is lstm[1].feeds["w_x"]
    assert abs(lstm[0].heads["y"] - lstm[1].heads["y"]).min() > 0


def test_parameters_that_multiply_are_near_one() -> None:
    assert abs(draw_feed("alpha", (1000,), Size(1, 1, 100)).mean() - 1) < 0.02
    assert abs(draw_feed("w_x", (1000,), Size(1, 1, 100)).mean()) < 0.02


def test_lengths_lie_between_a_tenth_and_all_of_the_steps() -> None:
    size = Size(1000, 64, 1)
    lengths = draw_feed("seq_lengths", (64,), size)
    assert lengths.dtype == np.int32
    assert 100 <= lengths.min() < 300
    assert 800 < lengths.max() <= 1000
    assert share_inside(size) == pytest.approx(lengths.sum() / 64000)


def test_output_gradients_are_zero_past_the_end_of_a_row() -> None:
    feeds, output_gradients = make_feeds(Problem("lstm_with_lengths", Size(30, 4, 2)))
    inside = rows_inside(feeds, Size(30, 4, 2))[:, :, 0] == 1
    assert inside.sum() == feeds["seq_lengths"].sum()
    assert not output_gradients["y"][~inside].any()
    assert output_gradients["y"][inside].all()


@pytest.mark.parametrize("name", [*NETS, *FIRST, *RANDOM])
def test_every_feed_has_a_gradient(name: str) -> None:
    feeds, output_gradients = make_feeds(Problem(name, SIZE))
    outputs, pullback = ro.compile(build_net(Problem(name, SIZE)), device="reference").vjp(feeds)
    gradients = pullback(output_gradients)
    assert gradients.keys() == {name for name, feed in feeds.items() if feed.dtype.kind == "f"}
    assert all(np.isfinite(array).all() for array in (*outputs.values(), *gradients.values()))
    assert all(array.any() for array in gradients.values())


def test_random_cells_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    texts = [str(RandomCell(seed).net) for seed in range(RANDOM_CELLS)]
    assert texts == [str(RandomCell(seed).net) for seed in range(RANDOM_CELLS)]
    ops = {tuple(op.type for op in RandomCell(seed).net.ops) for seed in range(RANDOM_CELLS)}
    assert len(ops) == RANDOM_CELLS


def test_random_cells_forget() -> None:
    """Gradients that grow over time make differences in the last bit grow."""
    for name in RANDOM:
        problem = Problem(name, Size(60, 1, 16))
        feeds, output_gradients = make_feeds(problem)
        outputs, pullback = ro.compile(build_net(problem), device="reference").vjp(feeds)
        assert max(np.abs(output).max() for output in outputs.values()) < 5
        assert np.abs(pullback(output_gradients)["h0"]).max() < 30


def test_flops_of_an_lstm() -> None:
    T, N, H = 7, 3, 5
    forward = count_work(Problem("lstm", Size(T, N, H)), training=False)
    assert forward.flops == 2 * T * N * (H + H) * 4 * H
    assert count_work(Problem("lstm", Size(T, N, H)), training=True).flops == 3 * forward.flops


def test_elementwise_results_of_an_lstm() -> None:
    """Two sums of the gates, three sigmoids, two tanh, three products and a sum."""
    work = step_work(user_net("lstm"), Size(1, 3, 5))
    assert work.elements == 3 * 5 * (2 * 4 + 3 + 2 + 3 + 1)
    assert count_work(Problem("lstm", Size(6, 3, 5)), training=True).elements == 2 * 6 * work.elements


def test_work_of_lengths_and_of_attention_is_counted() -> None:
    plain, masked = (step_work(user_net(name), SIZE) for name in ("lstm", "lstm_with_lengths"))
    assert masked.flops == plain.flops
    assert masked.elements == plain.elements + 2 * SIZE.N * SIZE.H
    assert step_work(user_net("attention_decoder"), SIZE).flops > 1.5 * plain.flops
