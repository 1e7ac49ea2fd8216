"""Whether an array may lie in memory that is in use: what NumPy says of each array, asked of all at once."""

from __future__ import annotations

import numpy as np

from rnnops.compiler.report.memory_in_use import MemoryInUse, stretch


def test_stretches_of_arrays_with_strides() -> None:
    memory = np.zeros(20, np.int32)
    start = memory.ctypes.data
    assert stretch(memory) == (start, start + 80)
    assert stretch(memory[2:8:2]) == (start + 8, start + 28)
    assert stretch(memory[7:1:-2]) == (start + 12, start + 32)


def test_answers_are_numpys() -> None:
    memory, rng = np.zeros(60, np.int16), np.random.default_rng(0)

    def some() -> np.ndarray:
        first, last = sorted(rng.integers(0, 61, 2))
        return memory[first : last : rng.integers(1, 4)]

    for _ in range(40):
        arrays = [some() for _ in range(rng.integers(0, 5))]
        used = MemoryInUse(arrays)
        for _ in range(20):
            asked = some()
            assert used.holds(asked) == any(np.may_share_memory(asked, array) for array in arrays)


def test_other_memory_is_not_in_use() -> None:
    mine, other = np.zeros(4), np.zeros(4)
    assert MemoryInUse([mine]).holds(mine[3:])
    assert not MemoryInUse([mine]).holds(other)
    assert not MemoryInUse([mine]).holds(mine[:0])
