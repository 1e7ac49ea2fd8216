"""Whether an array may lie in memory that is in use: what NumPy says of each array, asked of all at once."""

from __future__ import annotations

import numpy as np

from rnnops.compiler.memory.memory import HOST_MEMORY, PAGED, MemoryInUse, stretch


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


def test_memory_that_something_else_has_allocated_is_asked_for_by_address() -> None:
    """Two arrays over the same bytes have no array in common; both are held by what the other one is."""
    owned = np.zeros(8, np.int32)
    wrapped, again = (np.frombuffer(memoryview(owned), np.int32) for _ in range(2))
    assert MemoryInUse([wrapped]).holds(again[5:])
    assert MemoryInUse([owned]).holds(wrapped[5:])
    assert MemoryInUse([wrapped]).holds(owned[5:])
    assert not MemoryInUse([wrapped[:4]]).holds(again[4:])


def test_memory_of_the_free_list_belongs_to_one_array() -> None:
    first, second = (HOST_MEMORY.empty(PAGED) for _ in range(2))
    used = MemoryInUse([first[:100], first[200:]])
    assert used.holds(first[50:150])
    assert not used.holds(first[100:200])
    assert not used.holds(second)
    used.add(second)
    assert used.holds(second[7:])
