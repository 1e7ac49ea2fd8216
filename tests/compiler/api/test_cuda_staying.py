"""Runs on the CUDA device whose arrays never go through the host: views, copies, what all steps share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from cuda_runs import TUNING, D, H, N, T, assert_same, feeds_of, on_device, staying
from whole_grid import whole_grid

import rnnops as ro
from rnnops.compiler.rewrite import fusion_groups
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda import target
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.kernels.cuda import device_array, memory
from rnnops.kernels.cuda.device_array import DeviceArray

pytestmark = on_cuda


@pytest.fixture(autouse=True)
def _all_blocks_at_once() -> Iterator[None]:
    with whole_grid():
        yield


def test_views_stay_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    net = ro.Net("turned")
    h, _ = ro.GRU(net, net.input("x"), None, None, D, H, scope="a")
    rows = ro.reshape(ro.transpose(ro.transpose(h, [1, 0, 2]), [1, 0, 2]), [T, N, H])
    y, last, *_ = ro.LSTM(net, rows, None, None, H, H, scope="b")
    net.outputs(y=y, last=ro.unsqueeze(ro.squeeze(last, [0]), [1]))
    feeds = {name: array for name, array in feeds_of(net).items() if name in net.input_names}
    wanted, pullback = ro.compile(net, device="reference").vjp(feeds)
    ones = {name: np.ones_like(wanted[name]) for name in ("y", "last")}
    exact = pullback(ones)
    given, heads = on_device(feeds), on_device(ones)
    run = ro.compile(net, device="cuda", tuning=Options(tile=2, around="all", device=Cuda(3, 2)))
    with staying(monkeypatch):
        out, back = run.vjp(given)
        grads = back(heads)
    assert_same(out, wanted, DeviceArray)
    assert_same(grads, exact, DeviceArray)


@pytest.mark.parametrize(
    "move",
    [
        lambda x: ro.transpose(x, [2, 0, 1]),
        lambda x: ro.slice(x, [5], [-10], [2], [-2]),
        lambda x: ro.expand(ro.unsqueeze(x, [0]), [2, 2, 3, 4]),
        lambda x: ro.reshape(ro.transpose(x, [1, 0, 2]), [6, 4]),
        lambda x: ro.expand(ro.unsqueeze(ro.slice(ro.reshape(x, [24]), [20], [0], [0], [-3]), [0]), [2, 7]),
        lambda x: ro.tanh(ro.slice(ro.reshape(x, [24]), [1], [20], [0], [5])),
        lambda x: ro.transpose(ro.slice(x, [1], [3], [2]), [2, 1, 0]),
        lambda x: ro.slice(ro.slice(x, [0], [4], [2], [2]), [1], [2], [2]),
        lambda x: ro.split(ro.slice(x, [1], [3], [2]), 2, axis=2)[1],
        lambda x: ro.transpose(ro.expand(ro.slice(x, [0, 0], [1, 1], [0, 2]), [2, 3, 5]), [2, 1, 0]),
        lambda x: ro.concat(x, x, axis=1),
        lambda x: ro.pad(x, [0, 0, 1, 0, 0, 1]),
        lambda x: ro.pad(ro.reshape(ro.reduce_sum(x), [1]), [1, 1]),  # zeros around the first element are not it
    ],
)
def test_what_moves_elements(move: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net = ro.Net("moved")
    net.outputs(y=move(net.input("x")))
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    wanted, pullback = ro.compile(net, device="reference").vjp(x=x)
    heads = np.arange(wanted["y"].size, dtype=float).reshape(wanted["y"].shape)
    given, of_output = ro.on_device(x), ro.on_device(heads)
    with staying(monkeypatch):
        out, back = ro.compile(net, device="cuda").vjp(x=given)
        grad = back({"y": of_output})["x"]
    np.testing.assert_allclose(out["y"].to_host(), wanted["y"], rtol=1e-14)  # one case sums
    np.testing.assert_allclose(grad.to_host(), pullback({"y": heads})["x"], rtol=1e-14)


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_what_is_too_large_to_be_planned_is_copied_side_by_side(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion_groups, "LARGEST_VIEW", 4)
    net = ro.Net("beside")
    x = net.input("x")
    net.outputs(y=ro.concat(x, ro.transpose(x, [0, 2, 1]), x, axis=axis))
    array = np.random.default_rng(0).normal(size=(2, 3, 3))
    wanted, pullback = ro.compile(net, device="reference").vjp(x=array)
    heads = np.arange(wanted["y"].size, dtype=float).reshape(wanted["y"].shape)
    given, of_output = ro.on_device(array), ro.on_device(heads)
    run = ro.compile(net, device="cuda")
    with staying(monkeypatch):
        out, back = run.vjp(x=given)
        grad = back({"y": of_output})["x"]
    assert_same({**out, "x": grad}, {**wanted, "x": pullback({"y": heads})["x"]}, DeviceArray)
    assert "as views or copies, forward: Transpose -> transpose_0, Concat -> concat_0" in str(run.plan(x=array))


def test_a_last_state_alone_keeps_no_larger_array_alive() -> None:
    net = ro.Net("last")
    _, last = ro.GRU(net, net.input("x"), None, None, D, H, scope="a")
    net.outputs(last=last)
    feeds = on_device({name: array for name, array in feeds_of(net).items() if name in net.input_names})
    run = ro.compile(net, device="cuda", tuning=TUNING)
    for out in (run(feeds), run.vjp(feeds)[0]):
        assert out["last"].memory.nbytes == out["last"].nbytes


def test_constants_of_a_cell_go_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net = ro.Net("constants")
    y, _ = ro.cells.LMUCell(D, H, order=2, name="lmu").apply_over_sequence(net, net.input("x"))
    net.outputs(y=y, two=ro.constant(net, np.full(2, 2.0)))
    feeds = {name: array for name, array in feeds_of(net).items() if name in net.input_names}
    wanted, run, given = ro.compile(net, device="reference")(feeds), ro.compile(net, device="cuda"), on_device(feeds)
    run(given)["two"].fill(7)  # which is the caller's
    with monkeypatch.context() as patched:
        patched.setattr(device_array, "copy_to", lambda *_: pytest.fail("something goes to the device"))
        out = run(given)
    assert_same(out, wanted, DeviceArray)


def attending() -> ro.Net:
    """Attention over rows of an encoder whose keys are the same at every step, as is the exponential of a weight."""
    cell = ro.Net("cell")
    x, h = cell.inputs("x_t", "h_prev")
    rows, w, v = cell.inputs("rows", "w", "v")
    keys = ro.tanh(rows @ w)
    weights = ro.softmax(ro.reduce_sum(keys * ro.unsqueeze(h, axes=[1]), axes=[2]), axis=1)
    context = ro.squeeze(ro.reduce_sum(weights * keys, axes=[1]), axes=[1])
    cell.outputs(h_t=ro.tanh(x + context @ (ro.exp(v) * v).named("scaled")))
    net = ro.Net("attending")
    xs, h0, rows, w, v = net.inputs("xs", "h0", "rows", "w", "v")
    y, *_ = ro.recurrent_net(
        net,
        cell,
        inputs=[("x_t", xs)],
        initial_cell_inputs=[("h_prev", h0)],
        links={"h_prev": "h_t"},
        references={"rows": rows, "w": w, "v": v},
    )
    net.outputs(y=y)
    return net


def test_what_is_the_same_at_every_step_is_computed_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = {"xs": (T, N, H), "h0": (N, H), "rows": (N, 5, H), "w": (H, H), "v": (H, H)}
    random = np.random.default_rng(0)
    feeds = {name: random.normal(size=shape) for name, shape in shapes.items()}
    net = attending()
    wanted, pullback = ro.compile(net, device="reference").vjp(feeds)
    ones = {"y": np.ones_like(wanted["y"])}
    exact = pullback(ones)
    given, heads = on_device(feeds), on_device(ones)
    run = ro.compile(net, device="cuda", tuning=TUNING)
    with staying(monkeypatch):
        out, back = run.vjp(given)
        grads = back(heads)
    assert_same(out, wanted, DeviceArray)
    assert_same(grads, exact, DeviceArray)
    assert "once, before the first step of 'h_t_all', forward" in run.plan(feeds).source


class Lent:
    """Memory from a pool as devices have them: what nobody has any longer is given out again, the lowest first."""

    free: ClassVar[dict[int, list[np.ndarray]]] = {}

    def __init__(self, nbytes: int) -> None:
        there = self.free.setdefault(nbytes, [])
        self.array = there.pop() if there else np.full(max(nbytes, 1), 0xFF, np.uint8)

    def __del__(self) -> None:
        self.free[max(self.array.nbytes, 1)].append(self.array)
        self.free[max(self.array.nbytes, 1)].sort(key=lambda array: -array.ctypes.data)


def lent(nbytes: int) -> tuple[Lent, int]:
    owner = Lent(max(nbytes, 1))
    return owner, owner.array.ctypes.data


def in_layers(pullback: Any, grads: Any) -> dict[str, Any]:
    """Gradients of a backward pass that goes layer by layer."""
    return {
        name: grad for names, _, found, _ in pullback.layers(grads) for name, grad in zip(names, found, strict=True)
    }


@in_simulator
@pytest.mark.parametrize("use", [lambda pullback, grads: pullback(grads), in_layers], ids=["whole", "in_layers"])
def test_step_by_step_runs_are_recorded_and_draw_anew(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that come and go lie where they lay before; seeds, and what lies in arrays, are never the old ones."""
    net, steps = ro.Net("dropped"), 20
    y, *_ = ro.LSTM(net, net.input("x"), None, None, D, H, scope="a", memory_optimization=True)
    net.outputs(y=ro.dropout(y, 0.5))
    random = np.random.default_rng(0)
    weights = {spec.name: random.normal(size=spec.shape) for spec in net.parameters}
    tuning = Options(tile=8, around="rows", device=Cuda(lanes=3, blocks=2, shared_bytes=0))
    run, exact = ro.compile(net, device="cuda", tuning=tuning), ro.compile(net, device="reference")
    replayed: list[int] = []
    backward: list[int] = []
    real = target.RecordedGraph.start
    monkeypatch.setattr(target.RecordedGraph, "start", lambda self, *given: (replayed.append(1), real(self, *given)))
    x = ro.on_device(np.zeros((steps, N, D)))
    given = {**on_device(weights), "x": x}
    monkeypatch.setattr(memory, "_allocated", lent)
    held = []
    for seed in range(10):
        now = random.normal(size=(steps, N, D))
        x[...] = ro.on_device(now)
        out, pullback = run.vjp(given, seed=seed)
        before = len(replayed)
        grads = use(pullback, {"y": ro.on_device(np.ones((steps, N, H)))})
        backward.append(len(replayed) - before)
        wanted, back = exact.vjp({**weights, "x": now}, seed=seed)
        assert_same(out, wanted, DeviceArray)
        assert_same(grads, back({"y": np.ones((steps, N, H))}), DeviceArray)
        if seed % 5 == 3:
            held.append((out, grads))  # so that the next lie elsewhere
        del out, pullback, grads
    assert len(replayed) > sum(backward) > 0
