"""Checkpoint policies: what each keeps, the same gradients under all, and named errors."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest

import rnnops as ro
from rnnops.checkpoints.policy import nets_in
from rnnops.compiler.memory.choose_saved import runs_again
from rnnops.compiler.run.compiled_scan import Options

Arrays = dict[str, np.ndarray]
POLICIES = (None, "all", "speed", "memory", ["*gates*"])


def model(layers: int = 1, lengths: bool = True) -> ro.Net:
    """A product, LSTMs one on the other, a softmax."""
    net = ro.Net("model")
    x = ro.tanh(net.input("x") @ net.parameter("w_in", (3, 3)))
    rows = net.input("lengths", "int32") if lengths else None
    h_all, *_ = ro.LSTM(net, x, rows, None, 3, [4] * layers, scope="lstm")
    net.outputs(y=ro.softmax(h_all @ net.parameter("w_out", (4, 5)), axis=-1))
    return net


def feeds_of(net: ro.Net, T: int = 7, N: int = 3) -> Arrays:
    rng = np.random.default_rng(0)
    feeds = {**ro.init_params(net, 0, "float64"), "x": rng.normal(size=(T, N, 3))}
    return {**feeds, **({"lengths": np.array([7, 2, 5], "int32")} if "lengths" in net.input_names else {})}


def gradients(run: ro.Run, feeds: Arrays) -> tuple[Arrays, int]:
    """Gradients, and bytes held between the passes beside the feeds."""
    out, pullback = run.vjp(feeds)
    held = sum(array.nbytes for name, array in pullback.held_arrays().items() if name not in feeds)
    return pullback({"y": np.random.default_rng(1).normal(size=out["y"].shape)}), held


def plain(net: ro.Net, policy: object) -> ro.Run:
    tuning = Options(compiled=False, tile=2, around="rows")
    return ro.compile(net, device="cpu", checkpoints=policy, tuning=tuning)


def interpreted(net: ro.Net, policy: object) -> ro.Run:
    return ro.compile(net, device="reference", checkpoints=policy)


def compiled(net: ro.Net, policy: object) -> ro.Run:
    return ro.compile(net, device="cpu", threads=2, checkpoints=policy, tuning=Options(around="rows", tile=2))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("make", [interpreted, compiled])
def test_all_policies_give_the_same_bits(make: Callable[[ro.Net, object], ro.Run], layers: int) -> None:
    net = model(layers)
    feeds = feeds_of(net)
    wanted, _ = gradients(make(net, None), feeds)
    for policy in POLICIES[1:]:
        for name, grad in gradients(make(net, policy), feeds)[0].items():
            np.testing.assert_array_equal(grad, wanted[name], err_msg=f"{policy} {name}")


def test_each_policy_keeps_no_more_than_the_one_before() -> None:
    net = model(2)
    held = [gradients(plain(net, policy), feeds_of(net))[1] for policy in ("all", None, "speed", "memory")]
    assert held == sorted(held, reverse=True)
    assert held[-1] < held[1] / 2


def test_speed_runs_reductions_again_but_no_product() -> None:
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    product = x @ w
    one, two = ro.softmax(product + h, axis=-1), ro.softmax(product * h, axis=-1)
    cell.outputs(h_t=one * two)
    net = ro.Net("net")
    net.outputs(ro.recurrent_net(net, cell, [("x", net.input("xs"))], [("h", net.input("h0"))], {"h": "h_t"})[0])
    feeds = {"xs": np.ones((4, 2, 3)), "h0": np.ones((2, 3)), "w": np.ones((3, 3))}
    (op,) = ro.compile(net, checkpoints="speed", device="reference").plan(feeds).plan.program.net.ops
    again = runs_again(op.attributes["cell"], op.attributes["backward"])
    assert any("softmax" in name for name in again), again
    assert not any("mat_mul" in name for name in again)


# -- chains ----------------------------------------------------------------------------------------------------------


def chain(length: int, residual: bool) -> ro.Net:
    """Equal layers one behind the other."""
    net = ro.Net("chain")
    y = net.input("x")
    for k in range(length):
        new = y @ net.parameter(f"w{k}", (6, 6))
        y = ro.tanh(y + new if residual else new)
    net.outputs(y=y)
    return net


@pytest.mark.parametrize("residual", [False, True])
def test_memory_holds_two_roots_of_a_chain(residual: bool) -> None:
    """In units of one layer's result: what is kept, and what a segment makes again."""
    count = 64
    net = chain(count, residual)
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.random.default_rng(0).normal(size=(5, 6))}
    run = ro.compile(net, device="reference", checkpoints="memory")
    wanted, before = gradients(ro.compile(net, device="reference"), feeds)
    came, held = gradients(run, feeds)
    for name, grad in came.items():
        np.testing.assert_array_equal(grad, wanted[name])
    unit = 5 * 6 * 8
    assert before >= count * unit
    assert held <= (sqrt(count) + 1) * unit
    assert most_alive(run, feeds) <= (2 * sqrt(count) + 2) * unit


def most_alive(run: ro.Run, feeds: Arrays) -> int:
    """Bytes of forward blobs, kept or made again, that are there at once on the backward pass."""
    plan = run.plan(feeds).plan
    program, made = plan.backward, {name for op in plan.program.net.ops for name in op.outputs}
    alive = {name for name in program.net.input_names if name in made}
    most = 0
    for call, _, dead in program.steps:
        alive |= {name for name in call.op.outputs if name in made}
        most = max(most, sum(program.types[name].nbytes for name in alive))
        alive -= set(dead)
        alive -= {name for name in alive if not any(name in later.op.inputs for later in _after(program, call))}
    return most


def _after(program: object, call: object) -> list[object]:
    calls = list(program.calls)  # type: ignore[attr-defined]
    return calls[calls.index(call) + 1 :]


# -- named blobs -----------------------------------------------------------------------------------------------------


def test_a_collection_is_kept() -> None:
    net = ro.Net("net")
    a = net.checkpoint(ro.tanh(net.input("x") @ net.parameter("w", (3, 3))))
    b = ro.tanh(a @ net.parameter("u", (3, 3)))
    net.outputs(y=ro.tanh(b @ net.parameter("v", (3, 3))))
    assert f"^{a.name} = Tanh" in str(net)
    assert ro.parse_net(str(net)).checkpoints == net.checkpoints == {a.name}
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.random.default_rng(0).normal(size=(2, 3))}
    run = ro.compile(net, device="reference", checkpoints="collection")
    assert run.plan(feeds).plan.residuals.kept == (a.name,)
    wanted, _ = gradients(ro.compile(net, device="reference"), feeds)
    for name, grad in gradients(run, feeds)[0].items():
        np.testing.assert_array_equal(grad, wanted[name])


def test_recompute_blobs_win() -> None:
    """`all` keeps everything but what a recurrence lists."""
    net = ro.Net("net")
    ro.LSTM(net, net.input("x"), None, None, 3, 4, memory_optimization=True)
    lstm = next(op for op in net.ops if op.type == "RecurrentNetwork")
    net.outputs(y=net.blob(lstm.outputs[0]))
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.ones((3, 2, 3))}
    (op,) = [
        op
        for op in ro.compile(net, device="reference", checkpoints="all").plan(feeds).plan.program.net.ops
        if op.type == "RecurrentNetwork"
    ]
    assert not any("gates" in name for name in op.attributes["keep"])


def test_unknown_policies_and_names() -> None:
    net = model()
    for policy in ("everything", [], [3], 5, True, ("",)):
        with pytest.raises(ro.CheckpointError):
            ro.compile(net, checkpoints=policy)
    with pytest.raises(ro.UnknownCheckpointError, match="no_such"):
        ro.compile(net, checkpoints=["*gates*", "no_such"])
    with pytest.raises(ro.UnknownCheckpointError, match="nothing is registered"):
        ro.compile(net, checkpoints="collection")
    with pytest.raises(ro.NetError, match="is always kept"):
        net.checkpoint(net.blob("x"))


def test_nothing_left_to_recompute() -> None:
    net = chain(3, residual=False)
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.ones((5, 6))}
    with pytest.raises(ro.NothingToRecomputeError):
        ro.compile(net, checkpoints=["tanh_*"]).vjp(feeds)


def test_patterns_match_the_workspaces_of_recurrences() -> None:
    """A recurrence whose outputs a pattern keeps does not run again."""
    net = ro.Net("lstm")
    ro.LSTM(net, net.input("x"), None, None, 3, 4)
    lstm = next(op for op in net.ops if op.type == "RecurrentNetwork")
    net.outputs(y=ro.tanh(net.blob(lstm.outputs[0])))
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.ones((3, 2, 3))}
    with pytest.raises(ro.NothingToRecomputeError):
        ro.compile(net, device="reference", checkpoints=["*"]).vjp(feeds)


def test_no_bottleneck() -> None:
    """Every result is read at the end, so that no cut is narrower than all of them."""
    net = ro.Net("wide")
    x = net.input("x")
    parts = [ro.tanh(x @ net.parameter(f"w{k}", (6, 6))) for k in range(8)]
    net.outputs(y=ro.concat(parts, axis=-1) @ net.parameter("w_out", (48, 2)))
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.ones((5, 6))}
    with pytest.raises(ro.NoBottleneckError, match="speed"):
        ro.compile(net, checkpoints="memory").vjp(feeds)


@pytest.mark.parametrize("budget", [0, -1, "much", float("nan"), float("inf"), True, 0.0, 1.5, 20e6])
def test_bad_budgets(budget: object) -> None:
    with pytest.raises(ro.CheckpointError, match="budget"):
        ro.compile(model(), memory_budget=budget)  # type: ignore[arg-type]


def test_nets_in_cells_are_found() -> None:
    assert len(list(nets_in(model(2)))) == 2


@pytest.mark.parametrize("policy", ["all", "speed", None])
@pytest.mark.parametrize("make", [interpreted, compiled])
def test_known_shapes_are_never_kept(make: Callable[..., ro.Run], policy: object) -> None:
    net = ro.Net("net")
    x, y = net.inputs("x", "y")
    wide = ro.expand(x, ro.shape(y))
    net.outputs(q=ro.sin(wide) * wide)
    out, pullback = make(net, policy).vjp(x=np.ones((1, 3)), y=np.ones((2, 3)))
    grads = pullback(np.ones_like(out["q"]))
    np.testing.assert_allclose(grads["x"], np.full((1, 3), 2 * (np.sin(1) + np.cos(1))))
