"""The benchmark of policies times every way of saving beside the default."""

from __future__ import annotations

from bench.policies import BESIDE, BY_DEFAULT, measure, measure_derivatives, nets, of_problem
from bench.problems import Problem, Size


def test_ways_are_timed_beside_the_default() -> None:
    net = of_problem(Problem("lstm", Size(3, 2, 4)))
    found = measure(*net, {BY_DEFAULT: {}, "memory": {"checkpoints": "memory"}, "no room": {"memory_budget": 1}}, 1)
    assert found.keys() == {BY_DEFAULT, "memory"}, "nothing fits a byte"
    assert found[BY_DEFAULT][0] == 1
    assert found["memory"][2] < found[BY_DEFAULT][2]


def test_derivatives_are_timed_beside_their_calls() -> None:
    found = measure_derivatives(*of_problem(Problem("lstm_with_lengths", Size(3, 2, 4))), 1)
    assert found.keys() == BESIDE.keys()
    assert all(ratio > 0 < milliseconds for ratio, milliseconds in found.values())


def test_names_of_the_table_differ() -> None:
    names = [name for name, _ in nets()]
    assert len(names) == len(set(names)) > 15
