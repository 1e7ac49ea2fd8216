"""Presets in the benchmark: every cell has its cases, and JAX by hand computes what the reference does."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from bench.agreement import disagreement
from bench.case import Entry
from bench.contender import Bench, Settings, make_contender
from bench.preset_engine import OF_JAX, PREFIX, SIZES, feeds_of, preset_cases, work_of
from bench.problems import Problem, Size
from bench.timing import HostBlock

SMALL = Size(4, 3, 8)
BENCH = Bench(Settings(device="reference", threads=1))


def problem(name: str) -> Problem:
    return Problem(f"{PREFIX}{name}", SMALL)


def test_every_cell_is_measured_and_has_a_goal_in_training() -> None:
    cases = list(preset_cases(lambda size: size))
    trained = [case for case in cases if "training" in case.group]
    assert [case.setting for case in trained] == [*ro.cells.CELLS] * len(SIZES)
    assert len(cases) == 2 * len(trained)
    for case in trained:
        goals = [figure.goal for goal in case.goals if (figure := goal({})).name == "JAX / rnnops"]
        assert goals == [OF_JAX]


def test_work_is_counted_by_hand_and_constants_have_no_gradient() -> None:
    T, N, H = SMALL.T, SMALL.N, SMALL.H
    square = 2 * T * N * H * H
    assert work_of(problem("basic_rnn"), training=False).flops == 2 * square
    assert work_of(problem("basic_rnn"), training=True).flops == 6 * square
    signals = 3 * 2 * T * N * H  # of three encoders with one column
    assert work_of(problem("lmu"), training=False).flops == 4 * square + signals
    assert work_of(problem("lmu"), training=True).flops == 3 * (3 * square + signals) + 2 * square


def test_neurons_fire_and_states_do_not_begin_with_zeros() -> None:
    feeds, heads = feeds_of(Problem(f"{PREFIX}lif", Size(20, 4, 8)))
    contender = make_contender(Entry("rnnops", "preset", Problem(f"{PREFIX}lif", Size(20, 4, 8)), "forward"), BENCH)
    (spikes,) = contender.results(contender.call(0)).values() if contender.results else ()
    assert 0.05 < spikes.mean() < 0.95
    assert heads["y"].shape == spikes.shape
    assert min(np.abs(array).min() for name, array in feeds.items() if "initial" in name) > 0


def test_processor_time_is_counted_without_waiting_for_a_quiet_machine() -> None:
    settings = Settings(device="reference", settle=0.0, counted=0.01, processor_time=True)
    contender = make_contender(Entry("rnnops", "preset", problem("basic_rnn")), BENCH)
    assert HostBlock(contender, settings, quiet=None)(0.0) > 0  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")  # what other libraries deprecate is not ours to mend
@pytest.mark.parametrize("name", ro.cells.CELLS)
def test_jax_by_hand_agrees_with_the_reference(name: str) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    results = []
    for engine in ("preset", "preset in JAX"):
        contender = make_contender(Entry(engine, engine, problem(name)), BENCH)
        assert contender.results
        results.append(contender.results(contender.call(0)))
    wanted, came = results
    assert came.keys() == wanted.keys()
    assert disagreement("JAX", came, "the reference", wanted) == []
