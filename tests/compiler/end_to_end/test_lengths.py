"""Rows past their end: in no product that lengths mask, with results as the reference has them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from masked_presets import PRESETS, D, H, preset

import rnnops as ro
from rnnops.compiler.lower.statements import Stage, Statement
from rnnops.compiler.run.backward import BackwardScan
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.run.forward import ForwardScan, ScanResiduals
from rnnops.compiler.schedule import batch_axis

Arrays = dict[str, np.ndarray]

T, N = 6, 4
LENGTHS = ([6, 0, 3, 1], [6, 6, 6, 6], [0, 0, 0, 0], [-2, 9, 2, 5], [1, 2, 4, 6], [6, 4, 2, 1])
PLAIN = Options(compiled=False)
VARIANTS: tuple[dict[str, Any], ...] = ({}, {"memory_optimization": True}, {"drop_states": True}, {"dim_out": [H, D]})


def feeds_of(net: ro.Net, lengths: list[int], **shapes: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(0)
    shapes = {"x": (T, N, D), **shapes, **{spec.name: spec.shape for spec in net.parameters}}
    arrays = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    return {**arrays, "lengths": np.array(lengths, "int32")}


def results_of(run: ro.Run, feeds: Arrays, **context: Any) -> Arrays:
    """Outputs and gradients, by name."""
    out, pullback = run.vjp(feeds, **context)
    rng = np.random.default_rng(1)
    grads = pullback({name: rng.uniform(-1, 1, array.shape).astype(array.dtype) for name, array in out.items()})
    return {**out, **{f"d {name}": grad for name, grad in grads.items()}}


def check(net: ro.Net, *feeds: Arrays, **context: Any) -> ro.Run:
    """Compare with the reference, in tiles that end within sequences."""
    reference, run = ro.compile(net, "reference"), ro.compile(net, "cpu", tuning=Options(compiled=False, tile=4))
    for arrays in feeds:
        came = results_of(run, arrays, **context)
        for name, array in results_of(reference, arrays, **context).items():
            np.testing.assert_allclose(came[name], array, rtol=1e-11, atol=1e-12, err_msg=name)
    return run


def kernels_of(run: ro.Run) -> list[ForwardScan | BackwardScan]:
    (plan,) = run._training._plans.values()
    return [kernel for kernel in plan.compiled.kernels if isinstance(kernel, ForwardScan | BackwardScan)]


@pytest.mark.covering(1)  # each preset with each variant: recurrent/test_padding.py, test_presets
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", PRESETS)
def test_presets_agree_and_shrink(name: str, variant: dict[str, Any]) -> None:
    net = preset(name, **variant)
    run = check(net, *(feeds_of(net, lengths) for lengths in LENGTHS))
    plans = [kernel.compiled.plan for kernel in kernels_of(run)]
    assert [plan.lengths for plan in plans] == ["seq_lengths"] * 2
    stages = [stage for plan in plans for stage in (*plan.stages, *plan.past_end)]
    masks = {line for stage in stages for line in str(stage).splitlines() if "/masked" in line}
    assert bool(masks) == ("dim_out" in variant), "what an upper layer reads is copied for its product anyway"
    assert not any("MaskRows" in line for line in masks)


def products_of(stages: Iterable[Stage]) -> str:
    """Text of the products in some stages."""
    nodes = [node for stage in stages for node in stage.nodes]
    return "\n".join(str(node) for node in nodes if not isinstance(node, Statement))


@pytest.mark.parametrize("name", PRESETS)
def test_what_lies_past_an_end_is_not_read(name: str) -> None:
    net = preset(name)
    feeds = feeds_of(net, [6, 0, 3, 1])
    run = ro.compile(net, "cpu", tuning=PLAIN)
    wanted = results_of(run, feeds)
    over = np.arange(T)[:, None] >= feeds["lengths"]
    feeds["x"][over] = np.nan
    came = results_of(run, feeds)
    for result, array in wanted.items():
        np.testing.assert_array_equal(came[result], array, err_msg=result)
    assert not came["d x"][over].any()


def test_products_take_as_many_rows_as_there_are_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    net = preset("LSTM")
    feeds = feeds_of(net, [6, 0, 3, 1])
    run = ro.compile(net, "cpu", tuning=Options(compiled=False, tile=4))
    results_of(run, feeds)
    forward, backward = ({"packed": 0, "tn": 0}, {"packed": 0, "tn": 0})
    for kernel, counts in zip(kernels_of(run), (forward, backward), strict=True):
        count_rows(monkeypatch, kernel, counts)
    results_of(run, feeds)
    steps = int(feeds["lengths"].sum())
    assert forward == {"packed": 2 * steps, "tn": 0}
    assert backward == {"packed": 2 * steps, "tn": 2 * steps}


def count_rows(monkeypatch: pytest.MonkeyPatch, kernel: ForwardScan | BackwardScan, counts: dict[str, int]) -> None:
    """Count the rows of products with weights, and those that gradients of weights fold."""
    module = sys.modules[kernel.compiled._function.__module__]
    packed, folded = module.gemm_packed, module.gemm_tn

    def gemm_packed(*arguments: Any) -> None:
        counts["packed"] += arguments[6] - arguments[5]
        packed(*arguments)

    def gemm_tn(*arguments: Any) -> None:
        counts["tn"] += len(arguments[0])
        folded(*arguments)

    monkeypatch.setattr(module, "gemm_packed", gemm_packed)
    monkeypatch.setattr(module, "gemm_tn", gemm_tn)


def net_with_an_output_that_is_not_masked(reverse: bool, listed: list[str] | None = None) -> ro.Net:
    cell = ro.Net("cell")
    x, h, w, u = cell.inputs("x", "h", "w", "u")
    lengths, timestep = cell.input("lengths", "int32"), cell.input("timestep", "int32")
    new = ro.select_valid(ro.tanh((x @ w + h).named("sum")), h, lengths, timestep)
    cell.outputs(h_t=new, square=new * new, seen=x * 2.0, product=new @ u)
    net = ro.Net("outer")
    xs, h0 = net.inputs("x", "h0")
    blobs = ro.recurrent_net(
        net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, reverse=reverse, timestep="timestep",
        recompute_blobs_on_backward=listed,
    )  # fmt: skip
    net.outputs(**{f"out{i}": blob for i, blob in enumerate(blobs)})
    return net


WEIGHTS = {"h0": (N, H), "w": (D, H), "u": (H, D)}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("listed", [None, ["sum"]])
def test_own_cell_with_an_output_that_is_not_masked(reverse: bool, listed: list[str] | None) -> None:
    net = net_with_an_output_that_is_not_masked(reverse, listed)
    run = check(net, *(feeds_of(net, lengths, **WEIGHTS) for lengths in LENGTHS))
    for kernel in kernels_of(run):
        plan = kernel.compiled.plan
        assert plan.lengths == "lengths"
        assert "@ u" in products_of(plan.past_end)
        assert "@ w" in products_of(plan.stages)
        assert "@ w" not in products_of(plan.past_end)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_threads_share_products_past_an_end(monkeypatch: pytest.MonkeyPatch, reverse: bool, threads: int) -> None:
    """The rows of a thread lie behind those of the threads before it, of rows that are over too."""
    monkeypatch.setattr(batch_axis, "LITTLE_WORK", 0)
    net = net_with_an_output_that_is_not_masked(reverse)
    run, reference = ro.compile(net, threads=threads, tuning=Options(tile=4)), ro.compile(net, "reference")
    for lengths in LENGTHS:
        feeds = feeds_of(net, lengths, **WEIGHTS)
        came = results_of(run, feeds)
        for name, array in results_of(reference, feeds).items():
            np.testing.assert_allclose(came[name], array, rtol=1e-11, atol=1e-12, err_msg=name)
    assert {kernel.compiled.threads for kernel in kernels_of(run)} == {threads}


@pytest.mark.parametrize("kind", ["regular", "recurrent", "dot", "soft_coverage"])
def test_attention_goes_on_past_an_end_and_the_decoder_does_not(kind: str) -> None:
    """The context is not masked: it follows from a state that is held."""
    net = ro.Net("model")
    x, encoder, *states = net.inputs("x", "encoder", "h0", "c0", "e0")
    lengths, encoder_lengths = net.input("lengths", "int32"), net.input("encoder_lengths", "int32")
    cell = ro.cells.LSTMWithAttentionCell(H, encoder, encoder_lengths, D, H, kind)
    output, results = cell.apply_over_sequence(net, x, lengths, initial_states=states)
    net.outputs(output=output, **{f"out{i}": blob for i, blob in enumerate(results)})
    shapes = {"encoder": (7, N, H), "h0": (N, H), "c0": (N, H), "e0": (N, H)}
    more = {"encoder_lengths": np.array([7, 1, 3, 4], "int32")}
    run = check(net, *({**feeds_of(net, lengths, **shapes), **more} for lengths in LENGTHS[:4]))
    for kernel in kernels_of(run):
        assert "gates_t_w" in products_of(kernel.compiled.plan.stages)
        assert "gates_t_w" not in products_of(kernel.compiled.plan.past_end)


def test_dropout_draws_the_same_numbers() -> None:
    net = ro.Net("model")
    x, lengths = net.input("x"), net.input("lengths", "int32")
    cell = ro.cells.DropoutCell(ro.cells.LSTMCell(D, H, name="inner"), 0.4)
    output, _ = cell.apply_over_sequence(net, x, lengths)
    net.outputs(output=output)
    check(net, feeds_of(net, [6, 0, 3, 1]), seed=3)


def test_plan_says_why_rows_do_not_shrink() -> None:
    net = preset("LSTM")
    feeds = {**feeds_of(net, [4]), "x": np.ones((T, 1, D))}
    run = check(net, feeds)
    assert {kernel.compiled.plan.uncompacted for kernel in kernels_of(run)} == {"the batch is one row"}
    assert "rows cost as much past their end: the batch is one row" in run.plan(feeds).describe()


def test_kept_blobs_read_as_zeros_past_an_end() -> None:
    net = preset("LSTM")
    feeds = feeds_of(net, [6, 0, 3, 1])
    reference, device = (ro.compile(net, d, tuning=PLAIN).vjp(feeds)[1] for d in ("reference", "cpu"))
    over = np.arange(T)[:, None] >= feeds["lengths"]
    (held,) = (value for value in device._held.values() if isinstance(value, ScanResiduals))
    held.kept["sigmoid_0"][over] = np.nan  # nothing was written there
    wanted, came = reference.step_blobs("sigmoid_0"), device.step_blobs("sigmoid_0")
    np.testing.assert_allclose(came[~over], wanted[~over], rtol=1e-12)
    assert not came[over].any()


def fill_with_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """New memory holds NaN."""
    empty = np.empty

    def poisoned(*shape: Any, **options: Any) -> np.ndarray:
        array = empty(*shape, **options)
        array.reshape(-1).view(np.uint8)[...] = 255
        return array

    monkeypatch.setattr(np, "empty", poisoned)


def forward_scans(run: ro.Run, feeds: Arrays) -> list[ForwardScan]:
    """Those of a call, whose outputs are compared with the reference."""
    came, wanted = run(feeds), ro.compile(run.net, "reference")(feeds)
    for name, array in wanted.items():
        np.testing.assert_allclose(came[name], array, rtol=1e-11, atol=1e-12, err_msg=name)
    plan = next(iter(run._forward._plans.values()))
    return [kernel for kernel in plan.compiled.kernels if isinstance(kernel, ForwardScan)]


@pytest.mark.parametrize("name", PRESETS)
def test_a_gradient_net_keeps_nothing_past_an_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = preset(name)
    feeds = feeds_of(net, LENGTHS[0])
    twin = ro.gradient_net(net, **{name: array.shape for name, array in feeds.items()})
    grads = {spec.name: np.ones(spec.shape) for spec in twin.input_specs if spec.name not in feeds}
    run = ro.compile(twin, "cpu", tuning=Options(compiled=False, tile=4))
    fill_with_nan(monkeypatch)
    for lengths in LENGTHS:
        scans = forward_scans(run, {**feeds_of(net, lengths), **grads})
        assert [products_of(scan.compiled.plan.past_end) for scan in scans] == ["", ""]


def net_of_a_reader(
    ends: str, masked: bool = True, others: bool = False, sooner: int = 0, inside: bool = False
) -> ro.Net:
    """A recurrence that hands out a product, and one that reads it.

    Args:
        ends: what says where rows of the second one end.
        masked: whether the second one reads it up to there only.
        others: whether there are more readers.
        sooner: by how much rows of the first one end sooner.
        inside: whether the net is a cell, whose x has rows first.
    """
    first, second, net = ro.Net("first"), ro.Net("second"), ro.Net("net")
    for cell in (first, second):
        x, h, w = cell.inputs("x", "h", "w")
        lengths, t = cell.input("lengths", "int32"), cell.input("t", "int32")
        total = x @ w + h
        read = ro.tanh(cell.input("s")) if cell is second else total
        if sooner and cell is first:
            lengths = lengths - sooner
        new = ro.select_valid(ro.tanh(total + read), h, lengths, t)
        if cell is second:
            cell.outputs(h_t=new, **({} if masked else {"again": read}))
        else:
            cell.outputs(h_t=new, seen=total)
    x, h0, w = net.inputs("x", "h0", "w")
    lengths, x = net.input("lengths", "int32"), ro.transpose(x, [1, 0, 2]) if inside else x
    shared = {"references": {"w": w, "lengths": lengths}, "timestep": "t"}
    _, _, seen, _ = ro.recurrent_net(net, first, [("x", x)], [("h", h0)], {"h": "h_t"}, **shared)
    if ends != "lengths":
        shared["references"] = {"w": w, "lengths": net.input(ends, "int32")}
    results = ro.recurrent_net(net, second, [("x", x), ("s", seen)], [("h", h0)], {"h": "h_t"}, scope="above", **shared)
    net.outputs(ys=results[0], last=ro.squeeze(results[1], [0]))
    net.outputs(**({} if masked else {"again": results[2]}), **({"more": seen[1:]} if others else {}))
    return net


@pytest.mark.parametrize(
    ("how", "is_there"),
    [
        ({"ends": "lengths"}, False),
        ({"ends": "longer"}, True),
        ({"ends": "lengths", "masked": False}, True),
        ({"ends": "lengths", "others": True}, True),
        ({"ends": "lengths", "sooner": 1}, True),
    ],
    ids=str,
)
def test_steps_past_an_end_are_there_if_they_are_read(
    how: dict[str, Any], is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ro.compile(net_of_a_reader(**how), "cpu", tuning=Options(compiled=False, tile=4))
    fill_with_nan(monkeypatch)
    for lengths in LENGTHS:
        feeds = feeds_of(run.net, lengths, h0=(N, H), w=(D, H))
        if how["ends"] == "longer":
            feeds["longer"] = feeds["lengths"] + np.array([0, 1, 2, 3], "int32")
        first, second = sorted(forward_scans(run, feeds), key=lambda scan: len(scan.recurrence.sequences))
        assert second.compiled.plan.lengths == "lengths"
        assert bool(products_of(first.compiled.plan.past_end)) == is_there


@pytest.mark.parametrize("sooner", [0, 1])
def test_steps_past_an_end_that_an_inner_step_computes_are_there(sooner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing moves the computation of an end out of the step of a recurrence in a cell."""
    cell, net = net_of_a_reader("lengths", sooner=sooner, inside=True), ro.Net("outer")
    x, h0, w = net.inputs("x", "h0", "w")
    bound = {"w": w, "lengths": net.input("lengths", "int32")}
    every = ro.recurrent_net(net, cell, [("x", x)], [("h0", h0)], {"h0": "last"}, references=bound)
    net.outputs(**dict(zip(("last_all", "last", "ys_all", "ys"), every, strict=True)))
    fill_with_nan(monkeypatch)
    run, reference = (ro.compile(net, device) for device in ("cpu", "reference"))
    for lengths in LENGTHS:
        feeds = feeds_of(net, lengths, x=(3, N, T, D), h0=(N, H), w=(D, H))
        came, wanted = run(feeds), reference(feeds)
        for name, array in wanted.items():
            np.testing.assert_allclose(came[name], array, rtol=1e-11, atol=1e-12, err_msg=name)


def test_compiled_results_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_axis, "LITTLE_WORK", 0)
    net = preset("LSTM")
    feeds = {**feeds_of(net, [0] * 19, x=(T, 19, D)), "lengths": np.arange(19, dtype="int32") % 8}
    results = []
    for threads in (1, 2, 3):
        run = ro.compile(net, "cpu", threads=threads)
        results.append(results_of(run, feeds))
        assert [kernel.compiled.threads for kernel in kernels_of(run)] == [threads] * 2
    for name, wanted in results_of(ro.compile(net, "reference"), feeds).items():
        np.testing.assert_allclose(results[0][name], wanted, rtol=1e-11, atol=1e-12, err_msg=name)
        for other in results[1:]:
            np.testing.assert_array_equal(other[name], results[0][name], err_msg=name)
