"""Operands rounded on the CUDA device, here its simulator: beside the reference, and beside float64 within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from rounding import assert_none_unrounded
from whole_grid import whole_grid

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda import target
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.errors import DeviceError
from rnnops.kernels.cuda.facade import Card
from rnnops.kernels.cuda.tensor_cores import INSTRUCTIONS

pytestmark = on_cuda
Arrays = dict[str, Any]
T, D, H = 3, 3, 5
UNITS = 6.0  # of the last digit that a format has, in which results of three steps may be off
CELLS = {"lstm": ro.LSTM, "gru": ro.GRU, "layer norm": ro.LayerNormLSTM}


def net_of(cell: str, masked: bool = False) -> ro.Net:
    net = ro.Net("net")
    lengths = net.input("lengths", "int32") if masked else None
    y, *_ = CELLS[cell](net, net.input("x"), lengths, None, D, H, scope="cell")
    net.outputs(y=y)
    return net


def feeds_of(net: ro.Net, rows: int) -> Arrays:
    random = np.random.default_rng(rows)
    feeds = dict(ro.init_params(net, seed=0, dtype="float32"))
    feeds["x"] = random.normal(size=(T, rows, D)).astype(np.float32)
    if "lengths" in net.input_names:
        feeds["lengths"] = random.integers(1, T + 1, rows).astype(np.int32)
    return feeds


def results(net: ro.Net, feeds: Arrays, device: str, precision: str = "float32", **options: Any) -> Arrays:
    """Outputs, and gradients for output gradients that differ in every element."""
    out, pullback = ro.compile(net, device, precision=precision, **options).vjp(feeds)
    seed = np.cos(np.arange(out["y"].size)).reshape(out["y"].shape).astype(out["y"].dtype)
    return {**out, **pullback({"y": seed})}


def in_float64(feeds: Arrays) -> Arrays:
    return {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in feeds.items()}


def assert_rounded_on_device(net: ro.Net, feeds: Arrays, precision: str, **options: Any) -> Arrays:
    """What the reference rounds, and within the format's bounds of float64, gradients too."""
    came = results(net, feeds, "cuda", precision, **options)
    wanted, plain = (results(net, feeds, "reference", kind) for kind in (precision, "float32"))
    exact = results(net, in_float64(feeds), "reference")
    units = []
    for name, array in exact.items():
        assert_none_unrounded(came[name], wanted[name], plain[name])
        size = max(float(np.abs(array).max()), 1e-6)
        units.append(np.abs(came[name] - array).max() / size * 2.0 ** INSTRUCTIONS[precision].digits)
    assert 0.2 < max(units) < UNITS, f"off by {max(units):.2f} of the last digit"
    return came


@pytest.mark.covering(1)
@pytest.mark.parametrize("rows", [17, 3, 1])
@pytest.mark.parametrize("precision", INSTRUCTIONS)
@pytest.mark.parametrize("cell", CELLS)
def test_cells_of_odd_sizes(cell: str, precision: str, rows: int) -> None:
    net = net_of(cell, masked=rows > 1)
    assert_rounded_on_device(net, feeds_of(net, rows), precision)


@in_simulator
@pytest.mark.parametrize(("blocks", "rows"), [(2, 3), pytest.param(4, 9, marks=pytest.mark.slow)])
def test_several_blocks_have_the_same_bits_in_any_order(blocks: int, rows: int) -> None:
    """Members of a group, and groups, with a look for races; turns of threads differ, sums do not."""
    net, came = net_of("lstm"), []
    feeds, device = feeds_of(net, rows), Options(tile=2, device=Cuda(lanes=32, blocks=blocks))
    for seed in (0, 1):
        with whole_grid(check=True, seed=seed):
            came.append(results(net, feeds, "cuda", "bfloat16", tuning=device))
    for name, array in came[0].items():
        np.testing.assert_array_equal(array, came[1][name], err_msg=name)


def test_weights_that_do_not_fit_go_step_by_step() -> None:
    device = Options(tile=2, device=Cuda(lanes=32, shared_bytes=0))
    net = net_of("lstm")
    assert_rounded_on_device(net, feeds_of(net, 3), "bfloat16", tuning=device)


def test_products_that_are_loops_over_elements() -> None:
    """A matrix for each row: no product that rows share, and rounded all the same."""
    cell, net = ro.Net("cell"), ro.Net("net")
    x, s = cell.inputs("x", "s")
    cell.outputs(s=ro.tanh(s @ x))
    y, *_ = ro.recurrent_net(
        net, cell, [("x", net.input("x"))], [("s", net.input("s0"))], {"s": "s"}, state_shapes={"s": (4, 4)}
    )
    net.outputs(y=y)
    random = np.random.default_rng(0)
    sizes = {"x": (3, 2, 4, 4), "s0": (2, 4, 4)}
    feeds = {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    for precision in INSTRUCTIONS:
        assert_rounded_on_device(net, feeds, precision)


def test_products_that_round_beside_products_that_do_not() -> None:
    """In one loop, as a net may be written: weights as fragments beside weights as they are."""
    cell, net = ro.Net("cell"), ro.Net("net")
    x, h, g, w, u = cell.inputs("x", "h", "g", "w", "u")
    (product,) = cell.append("RoundedMatMul", [h, w], {"operands": "bfloat16"})
    cell.outputs(h=ro.tanh(product + g @ u + x), g=ro.sigmoid(h @ u))
    xs, h0 = net.inputs("x", "h0")
    y, *_ = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0), ("g", h0)], {"h": "h", "g": "g"})
    net.outputs(y=y)
    random = np.random.default_rng(0)
    sizes = {"x": (3, 2, 5), "h0": (2, 5), "w": (5, 5), "u": (5, 5)}
    feeds = {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    mixed = {"tuning": Options(device=Cuda(lanes=32))}
    source = ro.compile(net, "cuda", **mixed).plan(feeds).source
    loop = source.split("def loop_")[1].split("\n\n\n")[0]
    assert "tensor_product(" in loop
    assert "step_product(" in loop
    came = results(net, feeds, "cuda", **mixed)
    exact = results(net, feeds, "reference", "bfloat16")
    for name, array in results(net, feeds, "reference").items():
        assert_none_unrounded(came[name], array, exact[name])
    with_others = ro.compile(net, "cuda")  # which has no tensor cores, and leaves the recurrence to the interpreter
    np.testing.assert_allclose(with_others(feeds)["y"], came["y"], atol=1e-4)
    assert "are of operands rounded to bfloat16, which the device does not do" in str(with_others.plan(feeds))


def test_plans_name_the_instruction() -> None:
    net = net_of("lstm")
    feeds = feeds_of(net, 2)
    plan = str(ro.compile(net, "cuda", precision="tfloat32").plan(feeds))
    assert "products of a step: mma.sync.m16n8k8 of tf32, sums in float32" in plan
    assert "operands rounded to tfloat32, multiplied on tensor cores" in plan
    assert "mma.sync" not in str(ro.compile(net, "cuda").plan(feeds))


def test_float32_is_what_it_was() -> None:
    """No rounding, and no text of tensor cores in what runs."""
    net = net_of("lstm")
    feeds = feeds_of(net, 2)
    plan = ro.compile(net, "cuda").plan(feeds)
    texts = [kernel.compiled.text.python() for kernel in plan.plan.compiled.kernels]
    assert texts
    assert not any("tensor" in text for text in texts)


def test_what_goes_without_precision() -> None:
    net = net_of("lstm")
    with pytest.raises(DeviceError, match=r"weights= and precision= both .* got 'float16' and 'bfloat16'. Leave one"):
        ro.compile(net, "cuda", precision="bfloat16", weights="float16")
    with pytest.raises(DeviceError, match=r"net 'net': .* take whole warps; wanted a multiple of 32; got 3"):
        ro.compile(net, "cuda", precision="float16", tuning=Options(device=Cuda(net="net")))(feeds_of(net, 2))
    with pytest.raises(DeviceError, match=r"rounds only float32; wanted feeds of float32; got float64"):
        ro.compile(net, "cuda", precision="float16")(in_float64(feeds_of(net, 2)))


def test_a_device_without_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "SIMULATED", False)
    monkeypatch.setattr(target, "card", lambda net: Card("V100", (7, 0), 0, 80))
    said = r"no tensor cores for tfloat32; wanted compute capability 8.0 or more; got V100 of .* 7.0. Leave precision="
    with pytest.raises(DeviceError, match=said):
        ro.compile(net_of("lstm"), "cuda", precision="tfloat32")
