"""States in memory: which places of a tensor a step reads and writes, forward and in reverse, windows and rings."""

from __future__ import annotations

import numpy as np
import pytest

from rnnops.compiler.memory.memory import StateTensor
from rnnops.recurrent.recurrence import State

T, N, D = 4, 2, 3


def state(window: int = 1, offset: int | None = None, steps: int = 1, reverse: bool = False) -> StateTensor:
    return StateTensor(State("h", "h_t", window, offset), steps, T, (N, D), "float64", reverse)


def in_order(tensor: StateTensor) -> list[int]:
    """Times t in order of execution."""
    return list(range(T))[:: -1 if tensor.reverse else 1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("window", "offset", "steps"), [(1, None, 1), (1, 0, 3), (1, 2, 3), (2, None, 2), (3, None, 3), (2, 1, 4)]
)
def test_a_window_sees_the_steps_before(window: int, offset: int | None, steps: int, reverse: bool) -> None:
    """Each step writes its number in order of execution; initial steps count as -L, ..., -1."""
    tensor = state(window, offset, steps, reverse)
    memory = np.full((tensor.length, N, D), np.nan)
    tensor.fill(memory, np.broadcast_to(np.arange(-steps, 0.0)[:, None, None], (steps, N, D)))
    layout = tensor.access().layout
    for k, t in enumerate(in_order(tensor)):
        flat = memory[t + tensor.read().shift :].reshape(-1)
        seen = flat[layout.numbers()].reshape(window, N, D)[:, 0, 0]
        first = k - steps + (offset or 0)
        np.testing.assert_array_equal(seen, np.arange(first, first + window))
        memory[t + tensor.write().shift] = k
    every = np.arange(T)[:: -1 if reverse else 1]
    np.testing.assert_array_equal(tensor.every(memory)[:, 0, 0], every)
    assert tensor.last(memory)[0, 0, 0] == T - 1


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_ring_holds_what_the_next_step_reads(steps: int, reverse: bool) -> None:
    tensor = state(1, 0, steps, reverse)
    ring = tensor.tensor(ring=True)
    assert ring.length == steps + 1
    memory = np.full((ring.length, N, D), np.nan)
    tensor.fill(memory, np.broadcast_to(np.arange(-steps, 0.0)[:, None, None], (steps, N, D)))
    for k, t in enumerate(in_order(tensor)):
        assert memory[(t + tensor.read().shift) % ring.length, 0, 0] == k - steps
        memory[(t + tensor.write().shift) % ring.length] = k
    assert tensor.last(memory)[0, 0, 0] == T - 1


@pytest.mark.parametrize("shape", [(D,), (N, D), (1, N, D)])
def test_initial_states_of_every_rank(shape: tuple[int, ...]) -> None:
    tensor = state()
    memory = np.zeros((tensor.length, N, D))
    initial = np.random.default_rng(0).normal(size=shape)
    tensor.fill(memory, initial)
    np.testing.assert_array_equal(memory[0], np.broadcast_to(initial, (1, N, D))[0])


def test_only_plain_states_roll() -> None:
    assert state().is_plain()
    assert not state(window=2, steps=2).is_plain()
    assert not state(1, 0, 2).is_plain()
    assert not state(window=2, steps=2).can_roll()
