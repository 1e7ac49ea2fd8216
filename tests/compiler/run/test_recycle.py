"""Recycled memory: the same bits as without, nothing that the caller holds, threads, two runs, shapes and errors."""

from __future__ import annotations

import gc
import threading
from functools import cache
from typing import Any

import numpy as np
import pytest
from arena_models import MODELS, attention_decoder, perceptron
from small_runs import same

import rnnops as ro
from bench import language_model
from rnnops.compiler.memory.allocations import lifetimes_of
from rnnops.compiler.memory.memory import ALIGNMENT, Block, Buffer
from rnnops.compiler.run.compile_programs import SMALL, Recycled
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.run.pipeline import TrainingPlan
from rnnops.errors import TypeRuleError

Arrays = dict[str, np.ndarray]
WORDS = 50


def run_of(net: ro.Net, recycle: bool = True, **options: Any) -> ro.Run:
    """A run that compiles every group, however small, as plain Python."""
    return ro.compile(net, recycle=recycle, threads=1, tuning=Options(compiled=False, around="rows", **options))


def feeds_of(net: ro.Net, steps: int = 3, rows: int = 3, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    feeds = ro.init_params(net, seed, "float32")
    for spec in net.input_specs:
        if spec.dtype == "int32":
            feeds[spec.name] = rng.integers(0, WORDS, (steps, rows)).astype("int32")
        elif spec.name not in feeds:
            feeds[spec.name] = rng.normal(size=(steps, rows, 64)).astype("float32")
    return feeds


def words() -> ro.Net:
    return language_model.build(WORDS, 64, layers=2)


def trained(run: ro.Run, feeds: Arrays) -> Arrays:
    """Outputs, and gradients for ones."""
    outputs, pullback = run.vjp(feeds, seed=1)
    given = {name: np.ones_like(array) for name, array in outputs.items() if array.dtype.kind == "f"}
    return {**outputs, **{f"gradient of {name}": array for name, array in pullback(given).items()}}


@pytest.fixture
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is cut from a block, or allocated, is full of NaN and -1 first."""
    part, empty = Block.part, np.empty

    def poisoned_part(self: Block, *arguments: Any) -> np.ndarray:
        array = part(self, *arguments)
        array.reshape(-1).view(np.uint8)[...] = 255
        return array

    def poisoned_empty(*arguments: Any, **options: Any) -> np.ndarray:
        array = empty(*arguments, **options)
        array.reshape(-1).view(np.uint8)[...] = 255
        return array

    monkeypatch.setattr(Block, "part", poisoned_part)
    monkeypatch.setattr(np, "empty", poisoned_empty)


@cache
def plain_run(name: str) -> ro.Run:
    """A run of a net that recycles nothing, for all tests: what it plans it plans once."""
    return run_of(NETS[name](), recycle=False)


NETS = {"words": words, "attention": attention_decoder, "perceptron": perceptron}


# -- the same bits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_results_have_the_same_bits(name: str) -> None:
    net = NETS[name]()
    feeds = feeds_of(net)
    recycled, plain = run_of(net), plain_run(name)
    assert any(one.places for one in recycled.plan(feeds).plan.compiled.recycled)
    assert not any(one.places for one in plain.plan(feeds).plan.compiled.recycled)
    wanted = trained(plain, feeds)
    for _ in range(2):
        same(trained(recycled, feeds), wanted)
    same(recycled(feeds), plain(feeds))


@pytest.mark.usefixtures("_poisoned")
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_kernels_have_the_same_bits(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rnnops.compiler.schedule.batch_axis.LITTLE_WORK", 0)
    net = words()
    feeds = feeds_of(net)
    recycled, plain = (
        ro.compile(net, recycle=recycle, threads=threads, tuning=Options(around="rows")) for recycle in (True, False)
    )
    wanted = trained(plain, feeds)
    for _ in range(2):
        same(trained(recycled, feeds), wanted)
    assert not any(block.is_held() for block in blocks_of(recycled))


@pytest.mark.usefixtures("_poisoned")
@pytest.mark.parametrize(
    ("seed", "small"),
    [
        pytest.param(seed, SMALL if seed < 24 else 0, marks=[pytest.mark.slow] if seed % 24 >= 4 else ())
        for seed in range(44)
    ],
)
def test_random_nets_have_the_same_bits(seed: int, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random nets are small; where no buffer is, everything that may be recycled is."""
    monkeypatch.setattr("rnnops.compiler.run.compile_programs.SMALL", small)
    made = ro.testing.random_net(seed)
    feeds = dict(made.feeds)
    recycled = run_of(made.net)
    wanted = trained(run_of(made.net, recycle=False), feeds)
    for _ in range(2):
        same(trained(recycled, feeds), wanted)


# -- what is in a block ------------------------------------------------------------------------------------------------


def blocks_of(run: ro.Run) -> list[Block]:
    return list(run._options.pool._idle)


def overlaps(array: np.ndarray, block: Block) -> bool:
    return np.may_share_memory(array, block.memory)


@pytest.mark.parametrize("name", NETS)
def test_nothing_that_the_caller_holds_is_in_a_block(name: str) -> None:
    net = NETS[name]()
    run, feeds = run_of(net), feeds_of(net)
    held = [run(feeds), trained(run, feeds)]
    outputs, pullback = run.vjp(feeds, seed=1)
    (block,) = blocks_of(run)
    held += [outputs, pullback.held_arrays()]
    copies = [{key: array.copy() for key, array in arrays.items()} for arrays in held]
    assert not any(overlaps(array, block) for arrays in held for array in arrays.values())
    block.memory[...] = 255
    trained(run, feeds)
    assert not block.is_held()
    for before, after in zip(copies, held, strict=True):
        same(after, before)


def test_lifetimes_by_brute_force() -> None:
    """Pairs of buffers of a pass that are alive at the same op, found by walking through readers, lie apart."""
    net = perceptron()
    plan = run_of(net).plan(feeds_of(net, 5)).plan
    assert isinstance(plan, TrainingPlan)
    program, kernels, recycled = plan.backward, plan.compiled.backward, plan.compiled.recycled[1]
    alive: dict[tuple[str, int], set[int]] = {}
    sizes: dict[tuple[str, int], int] = {}
    for number, call in enumerate(program.calls):
        demand = kernels[call.op.key].demand() if call.op.key in kernels else None
        for buffer in demand.asked_for() if demand else ():
            if id(buffer) in recycled.places[call.op.key]:
                names = [n for n, bs in zip(call.op.outputs, demand.results, strict=True) if buffer in bs]
                readers = [i for i, c in enumerate(program.calls) if set(names) & set(c.op.inputs)]
                alive[call.op.key, id(buffer)] = set(range(number, max([number, *readers]) + 1))
                sizes[call.op.key, id(buffer)] = buffer.nbytes
    assert len(alive) > 5
    for a in alive:
        for b in alive:
            if a != b and alive[a] & alive[b]:
                at, bt = recycled.places[a[0]][a[1]], recycled.places[b[0]][b[1]]
                assert at + sizes[a] <= bt or bt + sizes[b] <= at


@pytest.mark.parametrize("name", MODELS)
def test_no_model_needs_more_memory_than_without(name: str) -> None:
    net, shapes = MODELS[name]()
    recycled, plain = (run_of(net, recycle).plan(shapes).memory() for recycle in (True, False))
    assert recycled.total <= 1.02 * plain.total


def test_what_the_pullback_keeps_goes_when_it_was_read_last() -> None:
    net = perceptron()
    plan = run_of(net).plan(feeds_of(net)).plan
    assert isinstance(plan, TrainingPlan)
    kept = plan.residuals.kept
    alone, until_the_end = (lifetimes_of(plan.backward, {}, given=names) for names in (kept, ()))
    assert len(alone.given) == len(kept) > len(until_the_end.given)


# -- several at a time -------------------------------------------------------------------------------------------------


def test_threads_and_runs_do_not_disturb_each_other() -> None:
    nets = [words(), attention_decoder()]
    runs = [run_of(net) for net in nets]
    jobs = [(run, feeds_of(run.net, steps, seed=seed)) for run in runs for steps in (2, 5) for seed in (0, 1)]
    wanted = [trained(run_of(run.net, recycle=False), feeds) for run, feeds in jobs]
    wrong: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for k in range(2 * len(jobs)):
                number = (first + k) % len(jobs)
                same(trained(*jobs[number]), wanted[number])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(1 <= len(blocks_of(run)) <= 4 for run in runs)


def test_pullbacks_in_any_order() -> None:
    net = words()
    run, plain = run_of(net), plain_run("words")
    fed = [feeds_of(net, steps, seed=steps) for steps in (2, 4, 3)]
    pairs = [run.vjp(feeds) for feeds in fed]
    for number in (1, 2, 0):
        outputs, pullback = pairs[number]
        wanted_outputs, wanted = plain.vjp(fed[number])
        same(outputs, wanted_outputs)
        run(fed[0])
        ones = {"loss": np.ones((), "float32")}
        same(pullback(ones), wanted(ones))
    assert len(blocks_of(run)) == 1


def test_shapes_that_change_share_one_block() -> None:
    net = words()
    run, plain = run_of(net), plain_run("words")
    for steps in (2, 4, 1, 4):
        feeds = feeds_of(net, steps)
        same(trained(run, feeds), trained(plain, feeds))
        assert len(blocks_of(run)) == 1


def test_a_bound_run_has_the_same_bits() -> None:
    net = words()
    feeds = feeds_of(net)
    params = {name: feeds.pop(name) for name in list(feeds) if feeds[name].dtype.kind == "f"}
    same(run_of(net).bind(**params)(feeds), plain_run("words").bind(**params)(feeds))


# -- blocks that somebody holds ----------------------------------------------------------------------------------------


def test_a_block_of_which_somebody_has_a_part_goes_to_nobody_else() -> None:
    block = Block(5000)
    assert not block.is_held()
    parts = block.parts(words, {"x": Buffer("x", "scratch", "float32", (5,))})
    assert not block.is_held(), "what the block itself remembers does not count"
    array = block.part(Buffer("x", "scratch", "float32", (8, 4)), 64)
    assert array.ctypes.data % ALIGNMENT == 0
    assert (array.shape, array.dtype, array.flags.c_contiguous) == ((8, 4), np.float32, True)
    assert block.is_held()
    view = array[1:]
    del array
    assert block.is_held()
    del view
    assert not block.is_held()
    assert parts["x"].shape == (5,)


def test_an_error_in_the_middle_leaves_the_run_as_it_was() -> None:
    net = words()
    run, feeds = run_of(net), feeds_of(net)
    wanted = trained(run, feeds)
    wrong = {**feeds, "labels": feeds["labels"].copy()}
    wrong["labels"][1, 1] = WORDS
    with pytest.raises(TypeRuleError) as info:
        run.vjp(wrong)
    same(trained(run, feeds), wanted)
    assert info.value.__traceback__ is not None
    del info
    gc.collect()
    same(trained(run, feeds), wanted)


def test_nothing_to_recycle_is_no_block() -> None:
    """One op, whose result is the caller's."""
    net = ro.Net("product")
    x, w = net.inputs("x", "w")
    net.outputs(y=ro.tanh(x @ w))
    assert run_of(net).plan(x=(40, 30), w=(30, 20), backward=False).plan.compiled.recycled[0] == Recycled()
