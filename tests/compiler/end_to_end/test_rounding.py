"""Operands rounded to bfloat16 on the CPU device: what the reference rounds, whatever runs a product."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from devices import PLAIN
from masked_presets import PRESETS, D, preset
from rounding import assert_none_unrounded, assert_rounded_alike
from word_nets import feeds_of as word_feeds, words_net

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.c99 import C99
from rnnops.errors import DeviceError
from rnnops.kernels.cpu.processor import has_pairs
from rnnops.testing import random_net

Arrays = dict[str, Any]
T, N, H = 6, 5, 9
TUNINGS = {"cpu": Options(), "256 bits": Options(width=256), "plain": PLAIN}
INPUTS = ["x_t", "h", *"wuabm"]


def results(net: ro.Net, feeds: Arrays, device: str = "cpu", seed: int | None = None, **options: Any) -> Arrays:
    """Outputs, and gradients for output gradients that differ in every element."""
    run = ro.compile(net, device, **{"precision": "bfloat16", **options})
    out, pullback = run.vjp(feeds, seed=seed)
    found = {name: np.array(array) for name, array in out.items()}
    floats = {name: array for name, array in found.items() if array.dtype.kind == "f"}
    weights = {name: np.cos(np.arange(a.size)).reshape(a.shape).astype(a.dtype) for name, a in floats.items()}
    return {**found, **{f"grad {name}": grad for name, grad in pullback(weights).items()}}


def feeds_of(net: ro.Net, **shapes: tuple[int, ...]) -> Arrays:
    """Random float32 feeds of parameters' shapes and of others; lengths from 1 to T."""
    rng = np.random.default_rng(3)
    sized = {**{spec.name: spec.shape or () for spec in net.parameters}, **shapes}
    feeds = {name: rng.uniform(-1, 1, sized[name]).astype(np.float32) for name in net.input_names if name in sized}
    lengths = {"lengths": rng.integers(1, T + 1, N).astype("int32")} if "lengths" in net.input_names else {}
    return {**feeds, **lengths}


def check(
    net: ro.Net, feeds: Arrays, compare: Callable[..., None] = assert_none_unrounded, tunings: Iterable[str] = TUNINGS
) -> None:
    """The CPU device, in all its ways, beside the reference; gradients of what nothing reads are zero."""
    wanted, exact = results(net, feeds, "reference"), results(net, feeds, precision="float32")
    for tuning in tunings:
        came = results(net, feeds, tuning=TUNINGS[tuning])
        for name, array in wanted.items():
            (compare if array.any() else assert_none_unrounded)(came[name], array, exact[name])


@pytest.mark.parametrize("name", PRESETS)
def test_presets_with_lengths(name: str) -> None:
    net = preset(name, dim_out=H)
    check(net, feeds_of(net, x=(T, N, D)))


def recurrence(body: Callable[..., ro.Blob], steps: str = "xs") -> ro.Net:
    """A net of a cell of one state, `h_t = body(x_t, h, w, u, a, b, m)`."""
    cell, net = ro.Net("cell"), ro.Net("net")
    cell.outputs(h_t=body(*cell.inputs(*INPUTS)))
    xs, h0 = net.inputs(steps, "h0")
    states = [("h", h0)]
    h_all, h_last = ro.recurrent_net(net, cell, inputs=[("x_t", xs)], initial_cell_inputs=states, links={"h": "h_t"})
    net.outputs(y=h_all, last=h_last)
    return net


SHAPES = {
    "xs": (T, N, H), "h0": (N, H), "w": (H, H), "u": (H, H), "a": (H, 3), "b": (3, H), "m": (N, H, H),
}  # fmt: skip
BODIES: dict[str, Callable[..., ro.Blob]] = {
    "rows times weights": lambda x, h, w, u, a, b, m: ro.tanh(x @ w + h @ u),
    "transposed by Gemm": lambda x, h, w, u, a, b, m: ro.tanh(ro.gemm(x, w, h, alpha=0.7, beta=0.5, transB=1) + h @ u),
    "low rank": lambda x, h, w, u, a, b, m: ro.tanh(x + (h @ a) @ b),
    "weights computed in the cell": lambda x, h, w, u, a, b, m: ro.tanh(x + h @ (a @ b)),
    "a matrix of each row": lambda x, h, w, u, a, b, m: ro.tanh(x + ro.squeeze(ro.unsqueeze(h, [1]) @ m, [1])),
    "outer products": lambda x, h, w, u, a, b, m: ro.tanh(
        x + ro.reduce_sum(ro.unsqueeze(h, [2]) @ ro.unsqueeze(x, [1]), axes=[2], keepdims=0)
    ),
    "rows that are mixed": lambda x, h, w, u, a, b, m: ro.tanh(x + ro.softmax(h @ ro.transpose(x), axis=0) @ x @ w),
    "a product used twice": lambda x, h, w, u, a, b, m: ro.tanh(h @ w) * ro.sigmoid(h @ w @ u) + x,
}


@pytest.mark.parametrize("name", BODIES)
def test_whatever_runs_a_product(name: str) -> None:
    net = recurrence(BODIES[name])
    check(net, feeds_of(net, **SHAPES), assert_none_unrounded if name == "outer products" else assert_rounded_alike)


def test_products_around_recurrences() -> None:
    """Large ones are compiled, with others fused to them; small ones run in the interpreter."""
    for rows in (3, 700):
        net = ro.Net("around")
        x, w, v, c = net.inputs("x", "w", "v", "c")
        net.outputs(y=ro.tanh(ro.gemm(x, w, c)) @ v)
        feeds = feeds_of(net, x=(rows, 40), w=(40, 50), v=(50, 30), c=(50,))
        check(net, feeds, assert_rounded_alike, TUNINGS if rows == 3 else ("cpu",))


@pytest.mark.parametrize("options", [{"memory_budget": 0.4}, {"checkpoints": "memory"}, {"checkpoints": "speed"}])
def test_what_is_computed_again(options: Arrays) -> None:
    """The same bits, rounded again as it was."""
    net = recurrence(BODIES["low rank"])
    feeds = feeds_of(net, **{**SHAPES, "xs": (20, N, H)})
    wanted = results(net, feeds)
    again = results(net, feeds, **options)
    assert all(again[name].tobytes() == array.tobytes() for name, array in wanted.items() if "grad" not in name)
    for name, array in wanted.items():
        np.testing.assert_allclose(again[name], array, rtol=1e-5, atol=1e-5)


def test_as_much_is_kept_as_of_float32() -> None:
    """Products of rounded operands are products to policies and to predicted times."""
    for body, policy in product(("a product used twice", "transposed by Gemm"), (None, "all", "speed", "memory")):
        net = recurrence(BODIES[body])
        runs = [ro.compile(net, checkpoints=policy, precision=one) for one in ("float32", "bfloat16")]
        kept = [run.saved_residuals(SHAPES, dtype=np.float32).total for run in runs]
        times = [run.memory_estimate(policy, SHAPES, dtype=np.float32).time for run in runs]
        assert kept[0] == kept[1]
        assert times[0] == times[1]


def test_other_sizes_of_one_structure() -> None:
    """Plans that are filled in give the bits of plans that are made: steps, rows and features, odd numbers of these."""
    net = recurrence(BODIES["rows times weights"])
    run = ro.compile(net, precision="bfloat16")
    for rows, features in ((5, 9), (5, 12), (4, 7), (4, 33), (1, 15)):
        shapes = {name: tuple({N: rows, H: features}.get(size, size) for size in s) for name, s in SHAPES.items()}
        feeds = feeds_of(net, **shapes)
        out, wanted = run(feeds), ro.compile(net, precision="bfloat16")(feeds)
        assert all(out[name].tobytes() == array.tobytes() for name, array in wanted.items())


def test_padding_reaches_no_gradient() -> None:
    net = preset("LSTM", dim_out=H)
    feeds = feeds_of(net, x=(T, N, D))
    wanted = results(net, feeds)
    for n, length in enumerate(feeds["lengths"]):
        feeds["x"][length:, n] = np.nan
    for device in ("cpu", "reference"):
        came = results(net, feeds, device)
        for name in (name for name in wanted if name.startswith("grad") and name != "grad x"):
            np.testing.assert_allclose(came[name], wanted[name], rtol=1e-2, atol=1e-2)


def test_steps_that_run_one_by_one() -> None:
    net = words_net(False)
    feeds = {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in word_feeds().items()}
    check(net, feeds)


def test_layers_one_by_one() -> None:
    """`pullback.layers` gives what the pullback gives."""
    net = ro.Net("model")
    x, w, v = net.inputs("x", "w", "v")
    with net.layer("one"):
        h = ro.tanh(x @ w)
    with net.layer("two"):
        y = h @ v
    net.outputs(y=y)
    feeds = feeds_of(net, x=(7, 8), w=(8, 9), v=(9, 4))
    run = ro.compile(net, precision="bfloat16")
    out, pullback = run.vjp(feeds)
    wanted = pullback(np.ones_like(out["y"]))
    found = {
        name: grad
        for names, _, grads, _ in run.vjp(feeds)[1].layers(np.ones_like(out["y"]))
        for name, grad in zip(names, grads, strict=True)
    }
    assert found
    for name, grad in found.items():
        np.testing.assert_array_equal(grad, wanted[name])


def test_any_number_of_threads_gives_the_same_bits() -> None:
    """Rows shared out, columns of few rows shared out, tiles of other sizes forward."""
    for rows, features in ((13, 33), (2, 200)):
        net = preset("LSTM", dim_out=features)
        feeds = feeds_of(net, x=(T, rows, D)) | {"lengths": np.full(rows, T, np.int32)}
        wanted = results(net, feeds, threads=1)
        for threads in (2, 3):
            came = results(net, feeds, threads=threads)
            assert all(came[name].tobytes() == array.tobytes() for name, array in wanted.items())


@pytest.mark.skipif(not has_pairs(512), reason="the processor multiplies no pairs")
def test_pairs_and_single_numbers_give_the_same_bits() -> None:
    net = recurrence(BODIES["rows times weights"])
    feeds = feeds_of(net, **SHAPES)
    wanted, came = results(net, feeds), results(net, feeds, tuning=Options(width=256))
    assert all(came[name].tobytes() == array.tobytes() for name, array in wanted.items())


@pytest.mark.parametrize("first", range(0, 60, 5))
def test_random_nets(first: int) -> None:
    """As plain Python, one of ten compiled."""
    for seed in range(first, first + 5):
        made = random_net(seed)
        feeds = {name: a.astype(np.float32) if a.dtype.kind == "f" else a for name, a in made.feeds.items()}
        tuning = Options() if seed % 10 == 0 else replace(PLAIN, tile=(None, 1, 2, 3)[seed % 4])
        wanted = results(made.net, feeds, "reference", seed=seed)
        exact = results(made.net, feeds, "reference", seed=seed, precision="float32")
        came = results(made.net, feeds, seed=seed, tuning=tuning)
        for name, array in wanted.items():
            assert_none_unrounded(came[name], array, exact[name])


def test_plans_say_what_is_rounded_and_how() -> None:
    net = recurrence(BODIES["rows times weights"])
    text = ro.compile(net, precision="bfloat16", tuning=Options(width=256)).plan(SHAPES, dtype=np.float32).describe()
    assert "products: operands rounded to bfloat16, multiplied as float32 at the speed of float32" in text
    assert "h @ u: [5, 9] @ [9, 9] of bfloat16" in text
    text = ro.compile(net, precision="bfloat16").plan(SHAPES, dtype=np.float32).describe()
    assert ("multiplied in pairs" in text) == has_pairs(512)
    assert "bfloat16" not in ro.compile(net).plan(SHAPES, dtype=np.float32).describe()


def test_half_the_bytes_of_weights() -> None:
    net = recurrence(BODIES["rows times weights"])
    shapes = {**SHAPES, "xs": (T, N, 64), "h0": (N, 64), "w": (64, 64), "u": (64, 64)}
    both = [
        str(ro.compile(net, precision=p).plan(shapes, dtype=np.float32).describe()) for p in ("float32", "bfloat16")
    ]
    assert "packed once a run: w 16 KiB, u 16 KiB" in both[0]
    assert f"packed once a run: w {8 if has_pairs(512) else 16} KiB" in both[1]


@pytest.mark.skipif(not (os.environ.get("CC") or shutil.which("cc")), reason="there is no C compiler")
def test_rounded_products_that_a_net_was_written_with() -> None:
    """A target that does not round leaves them to the interpreter, and the plan says why."""
    net = ro.parse_net('net n(x, w)\n    y = RoundedMatMul(x, w, operands="bfloat16")\n    z = Exp(y)\n    return z\n')
    feeds = feeds_of(net, x=(40, 30), w=(30, 20))
    wanted = ro.compile(net, "reference")(feeds)["z"]
    for options in (Options(around="all"), Options(device=C99(), around="all")):
        run = ro.compile(net, tuning=options)
        np.testing.assert_allclose(run(feeds)["z"], wanted, rtol=1e-5)
        text = run.plan(feeds, backward=False).describe()
        assert ("rounded to bfloat16, which the device does not do" in text) == (options.device is not None)


def test_targets_that_do_not_round_say_so() -> None:
    with pytest.raises(DeviceError, match=r"device 'cpu' does not have this precision; wanted float32; got 'bfloat16'"):
        ro.compile(recurrence(BODIES["low rank"]), precision="bfloat16", tuning=Options(device=C99()))
