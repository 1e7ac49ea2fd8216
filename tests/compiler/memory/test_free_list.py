"""Memory that went out of use waits for the next call: never too much of it, never while somebody reads it."""

from __future__ import annotations

import gc
import random
import threading
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.memory import memory as free_list
from rnnops.compiler.memory.memory import HOST_MEMORY, MOST_BLOCKS, PAGED, FreeList

LARGE = 4 * PAGED
T, N, H = 40, 16, 64


@pytest.fixture
def _emptied() -> Iterator[None]:
    gc.collect()
    HOST_MEMORY.release()
    yield
    HOST_MEMORY.release()


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def lstm_run() -> tuple[ro.Run, dict[str, np.ndarray]]:
    net = ro.Net("net")
    y, _, _, last = ro.LSTM(net, net.input("x"), None, None, H, H, scope="s")
    net.outputs(y=y, last=last)
    rng = np.random.default_rng(0)
    return ro.compile(net, device="cpu"), {
        "x": rng.standard_normal((T, N, H)).astype(np.float32),
        **ro.init_params(net, seed=1),
    }


def test_freed_memory_is_used_again() -> None:
    memory = FreeList(2**30)
    first = memory.empty(LARGE)
    place = address(first)
    del first
    assert memory.nbytes == LARGE
    again = memory.empty(LARGE)
    assert address(again) == place
    assert again.nbytes == LARGE
    assert memory.nbytes == 0


def test_memory_waits_for_the_last_view() -> None:
    memory = FreeList(2**30)
    array = memory.empty(LARGE)
    view = array[5:].view(np.uint8)[::2]
    del array
    gc.collect()
    assert memory.nbytes == 0
    view[:] = 7
    other = memory.empty(LARGE)
    other[:] = 1
    assert (view == 7).all()
    del view
    assert memory.nbytes == LARGE


def test_small_blocks_are_left_to_the_allocator() -> None:
    memory = FreeList(2**30)
    memory.empty(PAGED - 1)
    assert memory.nbytes == 0
    memory.empty(PAGED)
    assert memory.nbytes == PAGED


def test_a_block_that_is_much_too_large_is_not_taken() -> None:
    memory = FreeList(2**30)
    memory.empty(LARGE)
    memory.empty(LARGE // 2)
    assert memory.nbytes == LARGE // 2  # the large one has made room


def test_never_more_memory_than_was_in_use_at_once() -> None:
    """Random sizes and lifetimes: what waits and what is in use, beside the most that was ever in use."""
    memory, rng = FreeList(2**40), random.Random(1)
    used: list[np.ndarray] = []
    most = 0
    for _ in range(2000):
        if used and rng.random() < 0.5:
            used.pop(rng.randrange(len(used)))
        else:
            used.append(memory.empty(rng.randrange(PAGED, 8 * PAGED)))
        now = sum(array.nbytes for array in used)
        most = max(most, now)
        assert now + memory.nbytes <= most * (1 + free_list.SPARE)


def test_no_more_waits_than_may() -> None:
    memory = FreeList(10 * PAGED)
    arrays = [memory.empty(PAGED) for _ in range(20)]
    arrays.clear()
    assert memory.nbytes <= 10 * PAGED
    too_large = memory.empty(11 * PAGED)
    del too_large
    assert memory.nbytes <= 10 * PAGED


def test_no_more_blocks_wait_than_may() -> None:
    memory = FreeList(2**40)
    arrays = [memory.empty(PAGED) for _ in range(MOST_BLOCKS + 5)]
    arrays.clear()
    assert memory.nbytes == MOST_BLOCKS * PAGED


def test_traced_memory_is_new() -> None:
    memory = FreeList(2**30)
    waiting = memory.empty(LARGE)
    del waiting
    tracemalloc.start()
    try:
        array = memory.empty(LARGE)
        assert tracemalloc.get_traced_memory()[0] >= LARGE
        del array
        assert tracemalloc.get_traced_memory()[0] < LARGE
    finally:
        tracemalloc.stop()


def test_threads_never_share_a_block() -> None:
    memory, wrong = FreeList(2**30), []

    def work(number: int) -> None:
        rng = random.Random(number)
        held: list[np.ndarray] = []
        for _ in range(400):
            if len(held) > 3:
                array = held.pop(rng.randrange(len(held)))
                wrong.extend(["changed"] if not (array[::4096] == number).all() else [])
            array = memory.empty(rng.choice((PAGED, 2 * PAGED, 3 * PAGED)))
            array[:] = number
            held.append(array)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.usefixtures("_emptied")
def test_a_training_step_finds_all_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    run, feeds = lstm_run()

    def step() -> list[np.ndarray]:
        outputs, pullback = run.vjp(feeds)
        return [*outputs.values(), *pullback({"y": outputs["y"], "last": outputs["last"]}).values()]

    wanted = [array.copy() for array in step()]
    for _ in range(3):  # steps are recorded, which takes memory
        step()
    gc.collect()
    waiting = HOST_MEMORY.nbytes
    assert waiting > T * N * H * 4
    made: list[int] = []
    block = free_list._Block
    monkeypatch.setattr(free_list, "_Block", lambda nbytes: made.append(nbytes) or block(nbytes))
    for _ in range(3):
        for waits in HOST_MEMORY._idle:  # what lay there before must not matter
            waits.memory[:] = 255
        found = step()
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
        del found
        gc.collect()
    assert not made
    assert HOST_MEMORY.nbytes == waiting
    ro.release_memory()
    assert HOST_MEMORY.nbytes == 0


@pytest.mark.usefixtures("_emptied")
def test_results_outlive_their_run() -> None:
    run, feeds = lstm_run()
    outputs = run(feeds)
    kept = outputs["y"].copy()
    del run
    gc.collect()
    other, _ = lstm_run()
    other({name: 2 * array for name, array in feeds.items()})
    assert np.array_equal(outputs["y"], kept)
