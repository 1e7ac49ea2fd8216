"""Results of a recurrence (views, step outputs, names), what references bind to, layers, the listing."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import assert_agrees, random_arrays
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

T, N, D = 4, 3, 2


def scaled_cell() -> ro.Net:
    cell = ro.Net("scaled")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=ro.tanh((x + h).named("pre")) * w, y=x * h)
    return cell


def scaled_loop(xs: np.ndarray, h0: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    hs, ys, h = [], [], h0
    for x in xs:
        y, h = x * h, np.tanh(x + h) * w
        hs.append(h)
        ys.append(y)
    return {"h_t_all": np.stack(hs), "h_t_last": h[None], "y_all": np.stack(ys), "y_last": ys[-1][None]}


def recur(net: ro.Net, cell: ro.Net | None = None, **options):
    """The scaled cell over inputs `xs` and `h0` of a net, which are declared where they are missing."""
    xs, h0 = (net.blob(name) if name in net else net.input(name) for name in ("xs", "h0"))
    return ro.recurrent_net(net, cell or scaled_cell(), [("x", xs)], [("h", h0)], {"h": "h_t"}, **options)


FEEDS = random_arrays(xs=(T, N, D), h0=(N, D), w=(D,))


def test_step_outputs_that_are_no_state_are_results_with_gradients() -> None:
    net = ro.Net("outer")
    net.outputs(*recur(net))
    assert list(net.output_blobs) == ["h_t_all", "h_t_last", "y_all", "y_last"]
    assert_agrees(net, FEEDS, scaled_loop)
    for name in net.output_blobs:
        assert_agrees(net, FEEDS, scaled_loop, [name])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_all_and_last_are_views_of_one_tensor(reverse: bool, training: bool) -> None:
    net = ro.Net("outer")
    net.outputs(*recur(net, reverse=reverse))
    run = on_device(net)
    out, pullback = run.vjp(FEEDS) if training else (run(FEEDS), None)
    for name in ("h_t", "y"):
        assert np.shares_memory(out[f"{name}_all"], out[f"{name}_last"]), name
    del pullback
    out["h_t_last"][...] = 7
    assert np.all(out["h_t_all"][0 if reverse else -1] == 7)


def test_last_of_a_step_output_with_no_steps_is_an_error_only_where_it_is_wanted() -> None:
    empty = {**FEEDS, "xs": np.zeros((0, N, D))}
    for wanted, fails in (("y_all", False), ("h_t_last", False), ("y_last", True)):
        net = ro.Net("outer")
        results = {blob.name: blob for blob in recur(net)}
        net.outputs(**{wanted: results[wanted]})
        run = on_device(net)
        for call in (run, run.vjp):
            if not fails:
                call(empty)
                continue
            with pytest.raises(ro.RecurrentError, match="no last value") as caught:
                call(empty)
            assert caught.value.blob == "y_last"


def test_one_blob_under_two_output_names() -> None:
    cell = ro.Net("doubled")
    x, h = cell.inputs("x", "h")
    new = ro.tanh(x + h)
    cell.outputs(h_t=new, y=new)
    net = ro.Net("outer")
    net.outputs(*recur(net, cell))

    def loop(xs: np.ndarray, h0: np.ndarray) -> dict[str, np.ndarray]:
        every = scaled_loop(xs, h0, np.ones(D))["h_t_all"]
        return {"h_t_all": every, "h_t_last": every[-1:], "y_all": every, "y_last": every[-1:]}

    assert_agrees(net, {name: FEEDS[name] for name in ("xs", "h0")}, loop)


def test_explicit_references() -> None:
    net = ro.Net("outer")
    w, other = net.inputs("w", "other")
    net.outputs(*recur(net, references={"w": other * 2.0}), unused=w * 1.0)

    def loop(xs: np.ndarray, h0: np.ndarray, w: np.ndarray, other: np.ndarray) -> dict[str, np.ndarray]:
        return {**scaled_loop(xs, h0, other * 2), "unused": w}

    assert_agrees(net, {**FEEDS, "other": FEEDS["w"]}, loop)


@pytest.mark.parametrize("present", [(), ("w",), ("enc/w",), ("w", "enc/w")])
def test_references_are_found_by_scope_and_name_then_by_name(present: tuple[str, ...]) -> None:
    net = ro.Net("outer")
    for name in present:
        net.input(name)
    net.outputs(*recur(net, scope="enc"))
    used = "w" if present == ("w",) else "enc/w"
    assert f"w <- {used}" in str(net)
    assert set(net.input_names) == {"xs", "h0", *present, used}
    assert set(net.output_blobs) == {"enc/h_t_all", "enc/h_t_last", "enc/y_all", "enc/y_last"}


def test_references_under_a_name_scope() -> None:
    net = ro.Net("outer")
    net.input("w")
    with ro.name_scope("model"):
        inner = net.input("w")
        assert inner.name == "model/w"
        h_all = recur(net, scope="enc")[0]
    assert h_all.name == "model/enc/h_t_all"
    assert "w <- model/w" in str(net)
    fresh = ro.Net("fresh")
    with ro.name_scope("model"):
        recur(fresh, scope="enc")
    assert fresh.input_names == ("model/xs", "model/h0", "model/enc/w")


def test_only_inputs_parameters_and_named_blobs_are_found() -> None:
    for kind in ("parameter", "named", "automatic"):
        net = ro.Net("outer")
        cell = ro.Net("reads")
        x, h, w = cell.inputs("x", "h", "sigmoid_0")
        cell.outputs(h_t=x + h * w)
        if kind == "parameter":
            net.parameter("sigmoid_0", (D,))
        else:
            blob = ro.sigmoid(net.input("z"))
            assert blob.name == "sigmoid_0"
            if kind == "named":
                blob.named("sigmoid_0")
        if kind == "automatic":
            with pytest.raises(ro.NetError, match="taken") as caught:
                recur(net, cell)
            assert caught.value.blob == "sigmoid_0"
        else:
            recur(net, cell)
            assert "sigmoid_0 <- sigmoid_0" in str(net)


def test_parameters_of_a_cell_travel_to_the_outer_net_and_start_alike() -> None:
    cell = ro.Net("own")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=x @ cell.parameter("w", (D, D), ("normal", 0, 1)) + h)
    net = ro.Net("outer")
    first = recur(net, cell, scope="a")[0]
    second = recur(net, cell, scope="b")[0]
    net.outputs(first, second)
    assert [spec.name for spec in net.parameters] == ["a/w", "b/w"]
    params = ro.init_params(net, 3, "float64")
    assert params["a/w"].shape == (D, D)
    assert not np.array_equal(params["a/w"], params["b/w"])
    other = ro.Net("other")
    recur(other, cell, scope="b")
    assert np.array_equal(ro.init_params(other, 3, "float64")["b/w"], params["b/w"])


def test_listing_shows_every_binding() -> None:
    net = ro.Net("outer")
    recur(net, timestep=None)
    text = str(net)
    for line in ("x <- each step of xs", "h <- state, from h0", "w <- w"):
        assert line in text
    assert str(ro.parse_net(text)) == text


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scope": "enc"},
        {"reverse": True},
        {"outputs_with_grads": ["y_all"]},
        {"state_shapes": {"h": (D,)}},
        {"recompute_blobs_on_backward": ["pre"]},
        {"steps": T},
    ],
    ids=str,
)
def test_listing_read_back_runs_alike(options: dict) -> None:
    net = ro.Net("outer")
    net.outputs(*recur(net, **options))
    again = ro.parse_net(str(net))
    results = []
    for written in (net, again):
        feeds = {name: FEEDS[name.removeprefix("enc/")] for name in written.input_names}
        out, pullback = on_device(written).vjp(feeds)
        y = next(name for name in out if name.endswith("y_all"))
        results.append({**out, **{f"grad {name}": grad for name, grad in pullback({y: out[y]}).items()}})
    np.testing.assert_equal(*results)


def test_forward_only_is_read_back_too() -> None:
    net = ro.Net("outer")
    net.outputs(*recur(net, forward_only=True))
    with pytest.raises(ro.GradientError, match="forward_only"):
        on_device(ro.parse_net(str(net))).vjp(FEEDS)


def test_two_recurrences_without_a_scope_clash() -> None:
    net = ro.Net("outer")
    recur(net)
    with pytest.raises(ro.RecurrentError, match="Give scope=") as caught:
        recur(net)
    assert caught.value.blob == "h_t_all"


def test_two_recurrences_with_scopes_are_two_and_may_share() -> None:
    net = ro.Net("outer")
    first = recur(net, scope="a")
    second = recur(net, scope="b", references={"w": net.blob("a/w")})
    net.outputs(first=first[0], second=second[1])
    assert net.input_names == ("xs", "h0", "a/w")

    def loop(xs: np.ndarray, h0: np.ndarray, a_w: np.ndarray) -> dict[str, np.ndarray]:
        result = scaled_loop(xs, h0, a_w)
        return {"first": result["h_t_all"], "second": result["h_t_last"]}

    assert_agrees(net, {"xs": FEEDS["xs"], "h0": FEEDS["h0"], "a/w": FEEDS["w"]}, loop)


def test_recurrence_on_a_recurrence() -> None:
    net = ro.Net("outer")
    lower = recur(net, scope="lower")
    upper = ro.recurrent_net(
        net,
        scaled_cell(),
        [("x", lower[0])],
        [("h", lower[1])],
        {"h": "h_t"},
        scope="upper",
        references={"w": net.blob("lower/w")},
    )
    net.outputs(top=upper[0], lower_last=lower[1])

    def loop(xs: np.ndarray, h0: np.ndarray, lower_w: np.ndarray) -> dict[str, np.ndarray]:
        low = scaled_loop(xs, h0, lower_w)
        return {
            "top": scaled_loop(low["h_t_all"], low["h_t_last"][0], lower_w)["h_t_all"],
            "lower_last": low["h_t_last"],
        }

    assert_agrees(net, {"xs": FEEDS["xs"], "h0": FEEDS["h0"], "lower/w": FEEDS["w"]}, loop)


def test_building_on_changes_neither_the_recurrence_nor_the_run() -> None:
    cell, net = scaled_cell(), ro.Net("outer")
    h_all, *_ = recur(net, cell)
    cell.outputs(late=cell.blob("x") * 5.0)
    net.outputs(y=h_all)
    run = on_device(net)
    net.outputs(z=h_all * 2.0)
    assert set(run(FEEDS)) == {"y"}
    assert "late" not in str(net)


def test_layers_mark_the_ops_inside() -> None:
    net = ro.Net("outer")
    with net.layer("encoder"):
        h_all = recur(net)[0]
        scaled = h_all * 2.0
    net.outputs(y=scaled + 1.0)
    layers = {op.type: op.layer for op in net.ops}
    assert layers["RecurrentNetwork"] == layers["Mul"] == "encoder"
    assert layers["Add"] == ""
    assert "@ encoder" in str(net)
    with pytest.raises(ro.NetError, match="inside layer"), net.layer("a"), net.layer("b"):
        pass
    with ro.name_scope("model"), net.layer("head"):
        ro.tanh(scaled)
    assert net.ops[-1].layer == "model/head"
