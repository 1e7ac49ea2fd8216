"""300 random nets pass the gradient check; their text is read back to a net with the same results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from random_feeds import bits

import rnnops as ro
from rnnops.interpreter import prune
from rnnops.net.op import Op
from rnnops.ops.activation import Tanh
from rnnops.testing import RandomNet, check_devices, check_gradient, checked_loans, random_net
from rnnops.testing.random_builder import Draw

COUNT, BLOCK = 300, 10


def check(random: RandomNet) -> ro.Run:
    """The gradient check; a failing net is printed."""
    run = ro.compile(random.net, device="reference")
    try:
        check_gradient(random.net, random.feeds, seed=random.seed, device=lambda net: run)
        return run
    except ro.RnnopsError as error:
        pytest.fail(f"{error}\n\n{random}", pytrace=False)


@pytest.mark.parametrize("first", range(0, COUNT, BLOCK))
def test_gradients_of_random_nets(first: int) -> None:
    for seed in range(first, first + BLOCK):
        random = random_net(seed)
        run, again = check(random), ro.parse_net(str(random))
        assert str(again) == str(random.net)
        feeds = dict(random.feeds)
        assert bits(again, feeds, seed=seed) == bits(run, feeds, seed=seed), str(random)


def test_a_failing_net_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    random = next(net for net in map(random_net, range(COUNT)) if "Tanh" in str(net))
    right = Tanh.gradient
    monkeypatch.setattr(Tanh, "gradient", lambda *args: right(*args) * 1.01)
    with pytest.raises(pytest.fail.Exception, match="the gradient is wrong") as failed:
        check(random)
    text = str(failed.value).split("\n\n", 1)[1]
    assert str(ro.parse_net(text)) == str(random.net)


def test_a_seed_says_it_all() -> None:
    for seed in (0, 7, 2**40):
        one, two = random_net(seed), random_net(seed)
        assert str(one) == str(two)
        assert one.feeds.keys() == two.feeds.keys() == set(one.net.input_names)
        assert all(one.feeds[name].tobytes() == two.feeds[name].tobytes() for name in one.feeds)
    assert str(random_net(0)) != str(random_net(1))
    with pytest.raises(ro.FeedError, match="not a seed"):
        random_net(-1)


def test_choices_are_equal_everywhere() -> None:
    draw = Draw(0)
    assert [draw.integer(0, 999) for _ in range(8)] == [636, 269, 40, 16, 813, 912, 606, 729]
    assert draw.array((2,)).tolist() == [0.08724998293084574, 7837568022599086 / 2**53]


def ops_of(net: ro.Net) -> Iterator[Op]:
    """All ops that an output needs, those of cells too."""
    for op in prune(net).ops:
        yield op
        for value in op.attributes.values():
            if isinstance(value, ro.Net):
                yield from ops_of(value)


def traits(op: Op) -> Iterator[str]:
    """What is special about a recurrence."""
    given = op.attributes
    yield f"{len(given.get('inputs', ()))} sequences"
    yield f"{len(given['states'])} states"
    yield from (name for name in ("reverse", "timestep", "recompute", "steps", "references") if given.get(name))
    if len(given["cell"].output_blobs) > len(given["states"]):
        yield "step outputs"
    for _, _, window, offset, features in given["states"]:
        yield f"window {window}"
        yield f"offset {offset}"
        yield f"feature rank {1 if features is None else len(features)}"
    if any(inner.type == "RecurrentNetwork" for inner in given["cell"].ops):
        yield "nested"
    yield from (f"drop {inner.attributes.get('drop', 0)}" for inner in given["cell"].ops if inner.type == "SelectValid")


NOT_DRAWN = {"Cholesky", "Slogdet", "Solve"}  # of matrices that must have a result, which random operands need not


def test_random_nets_have_everything() -> None:
    """Every op, every way to step a cell, equal sizes and lengths of 0 come up among the 300."""
    ops, found = Counter[str](), Counter[str]()
    for random in map(random_net, range(COUNT)):
        live = list(ops_of(random.net))
        ops.update(op.type for op in live)
        recurrences = [op for op in live if op.type == "RecurrentNetwork"]
        found.update(trait for op in recurrences for trait in traits(op))
        found[f"{min(len(recurrences), 3)} recurrences"] += 1
        shapes = [array.shape for array in random.feeds.values() if array.ndim == 3]
        found["equal sizes"] += any(len(set(shape)) == 1 and shape[0] > 1 for shape in shapes)
        found["length 0"] += "lengths" in random.feeds and 0 in random.feeds["lengths"]
        found[f"T = {shapes[0][0]}" if shapes else "no T"] += 1
        found["stack"] += any("gates_t" in name for name in random.feeds)
    assert set(ro.op_names()) - set(ops) == NOT_DRAWN
    wanted = [
        "0 sequences",
        "1 sequences",
        "2 sequences",
        "3 sequences",
        "1 states",
        "2 states",
        "3 states",
        "reverse",
        "timestep",
        "recompute",
        "steps",
        "references",
        "step outputs",
        "window 1",
        "window 2",
        "window 3",
        "offset None",
        "offset 0",
        "offset 1",
        "feature rank 0",
        "feature rank 1",
        "feature rank 2",
        "nested",
        "drop 0",
        "drop 1",
        "1 recurrences",
        "2 recurrences",
        "3 recurrences",
        "equal sizes",
        "length 0",
        "stack",
        *(f"T = {T}" for T in range(1, 6)),
    ]
    assert [trait for trait in wanted if found[trait] < 3] == []


def test_most_inputs_have_a_gradient() -> None:
    """Nets whose gradients are all zero would test nothing."""
    moving = total = 0
    for random in map(random_net, range(0, COUNT, 20)):
        out, pullback = ro.compile(random.net, device="reference").vjp(random.feeds, seed=random.seed)
        floats = {name: array for name, array in out.items() if array.dtype.kind == "f"}
        grads = pullback({name: np.cos(np.arange(array.size)).reshape(array.shape) for name, array in floats.items()})
        total += len(grads)
        moving += sum(bool(np.abs(grad).max() > 1e-6) for grad in grads.values())
    assert moving > 0.6 * total


def with_recompute(net: ro.Net, everything: bool) -> ro.Net:
    """The net with all blobs of its cells recomputed, or none."""
    ops = []
    for op in net.ops:
        attributes = {
            key: with_recompute(value, everything) if isinstance(value, ro.Net) else value
            for key, value in op.attributes.items()
        }
        if op.type == "RecurrentNetwork":
            cell = op.attributes["cell"]
            states = {cell.output_blobs[state[1]] for state in op.attributes["states"]}
            names = [name for inner in cell.ops for name in inner.outputs if name and name not in states]
            attributes["recompute"] = tuple(names) if everything else ()
        ops.append(replace(op, attributes=attributes))
    return net.with_ops(ops).snapshot()


@pytest.mark.parametrize("seed", range(0, COUNT, 15))
def test_recomputing_devices_and_loans(seed: int) -> None:
    """Recomputing all or nothing changes no bit, devices agree, and nobody touches what is lent."""
    random = random_net(seed)
    feeds = dict(random.feeds)
    wanted = bits(random.net, feeds, seed=seed)
    for everything in (False, True):
        assert bits(with_recompute(random.net, everything), feeds, seed=seed) == wanted
    check_devices(random.net, feeds, seed=seed)
    run = checked_loans(ro.compile(random.net, device="reference"))
    out, pullback = run.vjp(feeds, seed=seed)
    grads = pullback({name: np.ones_like(array) for name, array in out.items() if array.dtype.kind == "f"})
    assert not any(
        np.may_share_memory(array, feed) for array in [*out.values(), *grads.values()] for feed in feeds.values()
    )
