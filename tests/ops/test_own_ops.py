"""Ops of one's own, with new kinds of loop forms and with none: the same on every device, in cells and outside."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from devices import PLAIN
from own_ops import (
    OWN,
    distance,
    mirror,
    ranked,
    reduce_any_above,
    reduce_count,
    reduce_log_add_exp,
    reduce_odd,
    reduce_prod,
    reduce_sum_abs,
    registered,
    swap,
    weight_rows,
)

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.kernels.cuda import facade
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.ops.base import OpRow, Unary
from rnnops.testing import check_devices, check_gradient, random_net

T, N, D = 4, 3, 4
LANES = Options(around="rows", device=Cuda(lanes=3, blocks=1))
DEVICES = {
    "plain": partial(ro.compile, device="cpu", threads=2, tuning=replace(PLAIN, around="all")),
    "cpu": partial(ro.compile, device="cpu", threads=2, tuning=Options(around="all")),
    "cuda": partial(ro.compile, device="cuda", tuning=LANES if facade.SIMULATED else None),
}
Feeds = dict[str, Any]


@pytest.fixture(autouse=True)
def _own_ops() -> Iterator[None]:
    with registered(*OWN):
        yield


def arrays(dtype: str, **shapes: tuple[int, ...]) -> Feeds:
    """Numbers from 0.5 to 1.5 in size, so that products keep digits; integers from -2 to 2 without 0."""
    random = np.random.default_rng(5)
    found: Feeds = {}
    for name, shape in shapes.items():
        signs = random.choice([-1, 1], shape)
        numbers = random.integers(1, 3, shape) if "int" in dtype else random.uniform(0.5, 1.5, shape)
        found[name] = (signs * numbers > 0) if dtype == "bool" else (signs * numbers).astype(dtype)
    return found


# -- outside -----------------------------------------------------------------------------------------------------------

REDUCTIONS = {  # op -> dtypes
    reduce_prod: ("float32", "float64", "int32", "int64"),
    reduce_sum_abs: ("float32", "float64", "int32", "int64"),
    reduce_log_add_exp: ("float32", "float64"),
    reduce_any_above: ("float32", "int8", "int64"),
    reduce_count: ("float64", "int32"),
    reduce_odd: ("bool",),
}


def reductions_net(dtype: str) -> Net:
    """Every reduction that takes a dtype, over each choice of axes, of what is computed and of what is fed."""
    net = Net("net")
    x = net.input("x", None if "float" in dtype else dtype)
    changed = x * 1.25 if "float" in dtype else x
    results = []
    for reduce, dtypes in REDUCTIONS.items():
        if dtype in dtypes:
            results += [reduce(changed, axes=axes, keepdims=k % 2) for k, axes in enumerate(([0], [1], [2], [0, 1]))]
            results += [reduce(x), reduce(x, axes=[0, 2]), reduce(x, axes=[], noop_with_empty_axes=1)]
    if dtype in ("float32", "float64"):
        results += [distance(x, changed * 0.5), distance(x, ro.reduce_max(x, axes=[0, 1]))]
        results += [reduce_sum_abs.__call__(x, axes=[1]) * 2.0]
    net.outputs(**{f"y{k}": blob for k, blob in enumerate(results)})
    return net


@pytest.mark.parametrize(
    ("dtype", "device"),
    [
        *((dtype, device) for dtype in ("float32", "float64", "int32", "bool") for device in ("plain", "cuda")),
        *(("int8", "plain"), ("int64", "cuda"), ("float32", "cpu"), ("int64", "cpu"), ("bool", "cpu")),
    ],
)
def test_reductions_of_new_kinds(dtype: str, device: str) -> None:
    feeds = arrays(dtype, x=(3, 5, 7))
    is_float = dtype in ("float32", "float64")
    check_devices(reductions_net(dtype), feeds, {device: DEVICES[device]}, gradients=is_float)


def test_gradients_of_reductions_of_new_kinds() -> None:
    check_gradient(reductions_net("float64"), arrays("float64", x=(2, 3, 2)))


@pytest.mark.parametrize("device", DEVICES)
def test_no_elements_give_the_start(device: str) -> None:
    net = Net("net")
    x = net.inputs("x")
    y = x * 1.0
    net.outputs(prod=reduce_prod(y, axes=[1]), total=reduce_sum_abs(y, axes=[1]), least=reduce_log_add_exp(y, axes=[1]))
    found = DEVICES[device](net)(x=np.ones((2, 0)))
    assert {name: set(array.ravel().tolist()) for name, array in found.items()} == {
        "prod": {1.0},
        "total": {0.0},
        "least": {-math.inf},
    }


def test_new_kinds_are_compiled() -> None:
    plan = DEVICES["plain"](reductions_net("float64")).plan(arrays("float64", x=(3, 5, 7)))
    assert "interpreter, forward: nothing" in plan.describe()
    assert not plan.plan.compiled.interpreted


# -- in cells ----------------------------------------------------------------------------------------------------------


def reduced(x: Blob, h: Blob, b: Blob) -> Blob:
    """All kinds of reductions over features, in a step."""
    scale = reduce_prod(ro.cos(h), axes=[-1]) + reduce_log_add_exp(x, axes=[-1])
    far = ro.unsqueeze(distance(x, b), [-1]) * ro.cast(reduce_any_above(h, axes=[-1]), "float")
    many = ro.cast(reduce_count(x, axes=[-1]) + 1, "float")
    odd = ro.where(reduce_odd(ro.greater(x, 0.2), axes=[-1]), x, h)
    return scale * 0.1 + far / many + odd + reduce_sum_abs(h, axes=[-1])


def reduced_over_rows(x: Blob, h: Blob, b: Blob) -> Blob:
    """Over the batch: rows depend on each other."""
    return x * reduce_prod(ro.cos(h), axes=[0]) + reduce_sum_abs(x * b, axes=[0]) * h + reduce_log_add_exp(h, axes=[0])


def moved(x: Blob, h: Blob, b: Blob) -> Blob:
    """A view that is not an op of the library, and an elementwise op along the rows."""
    return weight_rows(swap(x + h), ro.reduce_sum(h, axes=[1], keepdims=0)) + b


def mirrored(x: Blob, h: Blob, b: Blob) -> Blob:
    """Without a loop form, beside what has one; one of what a step reads, one of what it makes."""
    found, order = ranked(mirror(ro.tanh(x * b)) + h, h)
    return found + mirror(h) * ro.cast(order, "float")


def invariant(x: Blob, h: Blob, b: Blob) -> Blob:
    """Without a loop form, of what no step changes."""
    return x * mirror(b * 2.0) + h


CELLS = {one.__name__: one for one in (reduced, reduced_over_rows, moved, mirrored, invariant)}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reverse": {"reverse": True},
    "recompute": {"recompute_blobs_on_backward": ["mixed"]},
}


def cell_net(name: str, lengths: bool = False, **options: Any) -> Net:
    """A recurrence around one of the cells, with more ops of the kind around it."""
    cell = Net("cell")
    x, h, w, b = cell.inputs("x", "h", "w", "b")
    mixed = CELLS[name](x @ w, h, b).named("mixed")
    new = ro.tanh(mixed)
    if lengths:
        until, t = cell.input("until", "int32"), cell.input("t", "int32")
        new = ro.select_valid(new, h, until, t)
        options["timestep"] = "t"
    cell.outputs(h_t=new)
    net = Net("net")
    xs, h0 = net.inputs("xs", "h0")
    every, last = ro.recurrent_net(net, cell, [("x", mirror(xs))], [("h", h0)], {"h": "h_t"}, **options)
    net.outputs(y=ro.tanh(mirror(every * 2.0)), last=last)
    return net


def cell_feeds(dtype: str = "float64", lengths: bool = False) -> Feeds:
    feeds = arrays(dtype, xs=(T, N, D), h0=(N, D), w=(D, D), b=(D,))
    return {**feeds, "until": np.array([4, 1, 0], np.int32)} if lengths else feeds


@pytest.mark.parametrize(("options", "device"), [*product(OPTIONS, ("plain", "cuda")), ("recompute", "cpu")])
@pytest.mark.parametrize("name", CELLS)
def test_in_a_cell(name: str, options: str, device: str) -> None:
    check_devices(cell_net(name, **OPTIONS[options]), cell_feeds(), {device: DEVICES[device]})


@pytest.mark.parametrize(
    ("name", "device"), [*product(CELLS, ("plain", "cuda")), ("reduced", "cpu"), ("mirrored", "cpu")]
)
def test_in_a_cell_of_float32_with_lengths(name: str, device: str) -> None:
    check_devices(cell_net(name, True, reverse=True), cell_feeds("float32", True), {device: DEVICES[device]})


@pytest.mark.parametrize("device", ["plain", "cuda"])
@pytest.mark.parametrize("name", ["reduced", "mirrored"])
@pytest.mark.parametrize("saving", [{"memory_budget": 0.6}, {"checkpoints": "all"}, {"checkpoints": "memory"}], ids=str)
def test_with_less_kept(saving: Mapping[str, Any], name: str, device: str) -> None:
    check_devices(cell_net(name), cell_feeds(), {device: partial(DEVICES[device], **saving)})


@pytest.mark.parametrize("name", CELLS)
def test_gradients_in_a_cell(name: str) -> None:
    check_gradient(cell_net(name), cell_feeds())


def test_plans_say_which_op_runs_by_its_reference_and_why() -> None:
    for device in ("plain", "cuda"):
        text = " ".join(DEVICES[device](cell_net("mirrored")).plan(cell_feeds()).describe().split())
        assert "has no loop form and runs by its reference; what is compiled of each follows" in text
        assert "in the interpreter, at each step: Mirror -> mirror_0, Ranked -> " in text
    text = DEVICES["plain"](cell_net("reduced")).plan(cell_feeds()).describe()
    assert "steps are called one by one" not in text
    assert "loop over steps" in text


def test_what_no_step_changes_is_no_reason_to_step() -> None:
    run = DEVICES["plain"](cell_net("invariant"))
    text = run.plan(cell_feeds(), wrt=["xs", "h0", "w"]).describe()
    assert "steps are called one by one" not in text
    assert re.search("around recurrences, in the interpreter, forward: .*Mirror -> ", " ".join(text.split()))


@pytest.mark.parametrize("device", ["plain", "cuda"])
def test_in_a_cell_that_holds_a_recurrence(device: str) -> None:
    letter = Net("letter")
    x, a, u = letter.inputs("x", "a", "u")
    letter.outputs(a_t=ro.tanh(mirror(x @ u) + reduce_prod(ro.cos(a), axes=[-1])))
    word = Net("word")
    letters, h = word.inputs("letters", "h")
    _, last = ro.recurrent_net(word, letter, [("x", ro.unsqueeze(letters, [0]))], [("a", mirror(h))], {"a": "a_t"})
    word.outputs(h_t=0.5 * (ro.squeeze(last, [0]) + mirror(h)))
    net = Net("text")
    words, h0 = net.inputs("words", "h0")
    net.outputs(*ro.recurrent_net(net, word, [("letters", words)], [("h", h0)], {"h": "h_t"})[:2])
    feeds = arrays("float64", words=(T, N, D), h0=(N, D), u=(D, D))
    check_gradient(net, feeds)
    check_devices(net, feeds, {device: DEVICES[device]})


# -- random nets -------------------------------------------------------------------------------------------------------


def spliced(net: Net, every: int = 3) -> Net:
    """The net, in cells too, with `Mirror` after each so many float results."""
    ops: list[Op] = []
    for count, op in enumerate(net.ops):
        cell = op.attributes.get("cell")
        op = op if cell is None else replace(op, attributes={**op.attributes, "cell": spliced(cell, every)})
        name = op.outputs[0]
        if cell is None and op.inputs and count % every == 0 and name and net.dtype_of(name) == "float":
            front = f"{name}/front"
            ops += [replace(op, outputs=(front, *op.outputs[1:])), Op("Mirror", (front,), (name,), {})]
        else:
            ops.append(op)
    return net.with_ops(ops).snapshot()


def test_ops_are_spliced_into_cells() -> None:
    text = str(spliced(random_net(3).net))
    assert "Mirror" in text.split("return")[0]


@pytest.mark.parametrize(("seed", "device"), [*((seed, "plain") for seed in range(12)), (0, "cuda"), (4, "cuda")])
def test_random_nets_with_an_op_without_a_form(seed: int, device: str) -> None:
    random = random_net(seed)
    check_devices(spliced(random.net), random.feeds, {device: DEVICES[device]}, seed=seed)


ROW = OpRow(np.square, "{0} * {0}", gradient=None)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"row": ROW, "keeps": ("X",), "gradient": None}, "it has a row and its own gradient, keeps; leave one"),
        ({"row": "{0} * {0}"}, "its row is not an OpRow; wanted an OpRow; got '{0} * {0}'"),
        (
            {"row": replace(ROW, gradient=lambda x, dy: 2.0 * x * dy)},
            "its rule `row.gradient(x, dy)` does not take 3 arguments: inputs, outputs",
        ),
    ],
)
def test_a_row_that_is_said_wrongly(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(ro.OpError, match=re.escape(f"op 'Twice': {problem}")):
        type("Twice", (Unary,), said)


def test_a_row_says_whether_gradients_stop() -> None:
    with pytest.raises(TypeError, match="gradient"):
        OpRow(np.square, "{0} * {0}")  # type: ignore[call-arg]
