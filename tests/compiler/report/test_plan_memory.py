"""Memory of a plan: its totals are what a run really allocates, and generated code allocates nothing."""

from __future__ import annotations

import gc
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from arena_models import MODELS
from memory_nets import NETS, H, N, T, feeds_of, recurrent_model
from small_runs import lstm_feeds, lstm_net, same
from verify_kernels import RUNTIME

import rnnops as ro
from rnnops.compiler.memory.memory import ALIGNMENT, Block, Buffer, Pool, allocate
from rnnops.compiler.report.memory_timeline import MemoryRow, PassMemory
from rnnops.compiler.run.compiled_scan import CompiledScan, Options
from rnnops.compiler.targets.driver_text import llvm_text
from rnnops.kernels.cpu.threads import CALLED, GIVEN, threads_text

CLOSE = 64 * 1024
U = T * N * H * 4  # bytes of a float for each step, row and feature


@pytest.fixture
def _nothing_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that compute nothing: what is allocated around them stays."""
    monkeypatch.setattr(CompiledScan, "_function", lambda *arguments: None)


def plain_run(net: ro.Net, recycle: bool = True, around: str = "none") -> ro.Run:
    return ro.compile(net, device="cpu", recycle=recycle, tuning=Options(compiled=False, around=around))


def train(run: ro.Run, feeds: dict[str, np.ndarray]) -> None:
    outputs, pullback = run.vjp(feeds)
    pullback({name: np.zeros_like(array) for name, array in outputs.items()})


def measured(run: ro.Run, feeds: dict[str, np.ndarray]) -> tuple[int, int]:
    """The most bytes that are allocated during the forward pass, and during the backward pass."""
    train(run, feeds)  # plans, modules and what Python itself keeps are there
    run._options.pool.clear()
    gc.collect()
    tracemalloc.start()
    try:
        outputs, pullback = run.vjp(feeds)
        forward = tracemalloc.get_traced_memory()[1]
        given = {name: np.zeros_like(array) for name, array in outputs.items()}
        tracemalloc.reset_peak()
        grads = pullback(given)
        backward = tracemalloc.get_traced_memory()[1] - sum(array.nbytes for array in given.values())
        del outputs, grads
        return forward, backward
    finally:
        tracemalloc.stop()


def check_totals(run: ro.Run, feeds: dict[str, np.ndarray]) -> None:
    planned = run.plan(feeds).memory()
    twice = [measured(run, feeds) for _ in range(2)]  # the less of each: tables of Python's own grow now and then
    forward, backward = (min(some) for some in zip(*twice, strict=True))
    assert planned.backward is not None
    assert abs(planned.forward.total - forward) <= CLOSE, f"{planned.forward}\nmeasured: {forward}"
    assert abs(planned.backward.total - backward) <= CLOSE, f"{planned.backward}\nmeasured: {backward}"
    assert planned.total == max(planned.forward.total, planned.backward.total)


@pytest.mark.covering(2)
@pytest.mark.usefixtures("_nothing_computed")
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "LayerNormLSTM"])
def test_totals_are_what_is_allocated(cell: str, recompute: bool, lengths: bool, rank: int) -> None:
    net = recurrent_model(cell, recompute, lengths, rank)
    check_totals(plain_run(net), feeds_of(net))


@pytest.mark.usefixtures("_nothing_computed")
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("recycle", [False, True])
def test_totals_of_nets_around_recurrences(name: str, recycle: bool) -> None:
    net = NETS[name]()
    check_totals(plain_run(net, recycle), feeds_of(net))


@pytest.mark.usefixtures("_nothing_computed")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("recycle", [False, True])
def test_totals_of_models(name: str, recycle: bool) -> None:
    net, shapes = MODELS[name]()
    dtypes = {spec.name: spec.dtype.replace("float", "float32") for spec in net.input_specs}
    feeds = {name: np.zeros(shape, dtypes[name]) for name, shape in shapes.items()}
    check_totals(plain_run(net, recycle, "rows"), {**ro.init_params(net, 0, "float32"), **feeds})


@pytest.mark.usefixtures("_nothing_computed")
def test_total_of_a_call() -> None:
    net = recurrent_model("LSTM", False, True, 2)
    run, feeds = plain_run(net), feeds_of(net)
    run(feeds)
    run._options.pool.clear()
    tracemalloc.start()
    try:
        outputs = run(feeds)
        most = tracemalloc.get_traced_memory()[1]
        del outputs
    finally:
        tracemalloc.stop()
    planned = run.plan(feeds, backward=False).memory()
    assert planned.backward is None
    assert abs(planned.total - most) <= CLOSE, f"{planned}\nmeasured: {most}"


def test_rows_add_up_and_print() -> None:
    planned = plain_run(recurrent_model("LSTM", False, False, 1)).plan(x=(T, N, H)).memory()
    text = str(planned)
    for one in planned.passes:
        assert one.total == sum(row.nbytes for row in one.rows) == sum(one.bytes_of(row.kind) for row in _kinds(one))
        assert f"{one.total:,}".replace(",", " ") in text
        assert all(f"{row.what} " in text for row in one.rows)
    lines = str(planned.forward).splitlines()[1:]
    assert len({len(line) for line in lines}) == 1, "columns are aligned"


def _kinds(one: PassMemory) -> list[MemoryRow]:
    """One row of each kind."""
    return list({row.kind: row for row in one.rows}.values())


@pytest.mark.parametrize(
    ("cell", "recompute", "units"), [("LSTM", False, 6), ("LSTM", True, 2), ("GRU", False, 4), ("GRU", True, 1)]
)
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_kept_bytes(cell: str, recompute: bool, units: int, device: str) -> None:
    """States of all steps, and gates unless they are computed again, on every device."""
    net = recurrent_model(cell, recompute, False, 1)
    tuning = Options(compiled=False) if device == "cpu" else None
    backward = ro.compile(net, device=device, tuning=tuning).plan(x=(T, N, H)).memory().backward
    assert backward is not None
    initial = N * H * 4 * (1 if cell == "GRU" else 2)  # a step more of each state
    assert backward.bytes_of("kept") == units * U + initial


def test_longer_runs_take_more_of_what_has_steps_only() -> None:
    run = plain_run(recurrent_model("LSTM", True, False, 1))
    short, long = (run.plan(x=(steps, N, H)).memory().backward for steps in (T, 2 * T))
    assert short is not None
    assert long is not None
    for kind, units in {"kept": 2, "gradient": 1, "sums": 0, "packed weights": 0, "scratch": 0}.items():
        assert long.bytes_of(kind) - short.bytes_of(kind) == units * U


# -- scratch -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_nothing_computed")
@pytest.mark.parametrize("recompute", [False, True])
def test_both_passes_and_all_plans_of_a_run_share_scratch(recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[Block] = []
    make = Block.__init__
    monkeypatch.setattr(Block, "__init__", lambda self, nbytes: blocks.append(self) or make(self, nbytes))
    run = plain_run(recurrent_model("LSTM", recompute, False, 1))
    for steps in (T, 3, 7, 1):
        train(run, {**feeds_of(run.net), "x": np.zeros((steps, N, H), "float32")})
        assert len(blocks) == 1
    assert run._options.pool._idle == blocks


def test_a_pool_lends_each_block_once_and_replaces_small_ones() -> None:
    pool = Pool()
    small, other = pool.take(1000), pool.take(1000)
    assert small is not other
    pool.give(small)
    large = pool.take(2000)
    assert large.memory.nbytes >= 2000
    pool.give(large)
    assert pool.take(10) is large


@pytest.mark.parametrize("seed", range(8))
def test_scratch_is_written_before_it_is_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ro.testing.random_net(seed)
    wanted = every_result(made.net, made.feeds)
    empty = np.empty

    def poisoned(*shape: Any, **options: Any) -> np.ndarray:
        array = empty(*shape, **options)
        array.reshape(-1).view(np.uint8)[...] = 255  # NaN, and -1
        return array

    monkeypatch.setattr(np, "empty", poisoned)
    same(every_result(made.net, made.feeds), wanted)


def every_result(net: ro.Net, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    outputs, pullback = plain_run(net).vjp(feeds, seed=1)
    given = {name: np.ones_like(array) for name, array in outputs.items() if array.dtype.kind == "f"}
    return {**outputs, **{f"gradient of {name}": array for name, array in pullback(given).items()}}


def test_memory_begins_at_a_line_of_the_cache() -> None:
    for count in (256, 257, 1000, 4097):
        for zeros in (False, True):
            array = allocate(Buffer("x", "scratch", "float32", (count, 3)), zeros)
            assert array.ctypes.data % ALIGNMENT == 0
            assert (array.shape, array.dtype, array.flags.c_contiguous) == ((count, 3), np.float32, True)
            assert not zeros or not array.any()


def test_compiled_code_allocates_nothing() -> None:
    """It calls products, packing, barriers and instructions of LLVM; the runtime calls locks and reads objects."""
    run = ro.compile(lstm_net(), device="cpu", threads=1)
    symbols = {name: f"rnnops_{name}" for name in RUNTIME}
    for kernel in run.plan(lstm_feeds("float32", 3)).plan.compiled.kernels:
        text, _ = llvm_text(kernel.compiled.text.module, "scan", symbols, GIVEN)
        declared = set(re.findall(r'declare .* @"(.*)"\(', text))
        assert declared
        assert all(name in symbols.values() or name.startswith("llvm.") for name in declared)
    threads = threads_text({name: name for name in CALLED})
    declared = set(re.findall(r"declare .* @([\w.]+)\(", threads))
    declared = {name for name in declared if not name.startswith(("llvm.memcpy.", "llvm.memset."))}
    assert declared - {"sched_yield", "SwitchToThread", "llvm.x86.sse2.pause", "llvm.aarch64.isb"} == {
        "PyThread_acquire_lock",
        "PyThread_release_lock",
        "PyDict_GetItemWithError",
        "PyDict_Next",
        "PyErr_Clear",
        "PyEval_RestoreThread",
        "PyEval_SaveThread",
        "PyList_GetItem",
        "PyLong_AsLongLong",
        "PyObject_GetAttr",
        "PyObject_Size",
        "Py_DecRef",
        "Py_IncRef",
    }
