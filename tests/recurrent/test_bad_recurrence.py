"""Bad input to `recurrent_net`: each a RnnopsError of the right kind that names the net, the op and the blob."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from by_hand import random_arrays
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

T, N, D = 4, 3, 2


def step_cell() -> ro.Net:
    """Inputs x, h, s, w and an int32 t; outputs h_t, s_t and y."""
    cell = ro.Net("step")
    x, h, s, w = cell.inputs("x", "h", "s", "w")
    t = cell.input("t", "int32")
    cell.outputs(h_t=ro.tanh(x + h).named("sum") * w, s_t=s * 2.0, y=x * ro.cast(t, "float"))
    return cell


def arguments(net: ro.Net) -> dict[str, Any]:
    """Arguments of `recurrent_net` that fit."""
    xs, h0, s0 = net.inputs("xs", "h0", "s0")
    return {
        "net": net,
        "cell_net": step_cell(),
        "inputs": [("x", xs)],
        "initial_cell_inputs": [("h", h0), ("s", s0)],
        "links": {"h": "h_t", "s": "s_t"},
        "timestep": "t",
    }


def build(**changed: Any) -> ro.Net:
    """A net with one recurrence, some of whose arguments are changed (by a function of the net and the argument)."""
    net = ro.Net("bad")
    given = arguments(net)
    for name, change in changed.items():
        given[name] = change(net, given.get(name)) if isinstance(change, Change) else change
    net.outputs(*ro.recurrent_net(**given))
    return net


class Change:
    """Marks a function that makes an argument from the net and the argument that fits."""

    def __init__(self, make: Callable[[ro.Net, Any], Any]) -> None:
        self.make = make

    def __call__(self, net: ro.Net, fits: Any) -> Any:
        return self.make(net, fits)


def foreign(name: str = "xs") -> ro.Blob:
    return ro.Net("other").input(name)


BUILDS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown sequence": ({"inputs": Change(lambda net, fits: [("q", fits[0][1])])}, ("'q'", "no input of the cell")),
    "sequence twice": ({"inputs": Change(lambda net, fits: fits * 2)}, ("'x'", "bound twice")),
    "sequence and state": ({"inputs": Change(lambda net, fits: [*fits, ("h", fits[0][1])])}, ("'h'", "bound twice")),
    "state twice": ({"initial_cell_inputs": Change(lambda net, fits: [*fits, fits[0]])}, ("'h'", "bound twice")),
    "unknown state": ({"initial_cell_inputs": Change(lambda net, fits: [*fits, ("q", fits[0][1])])}, ("'q'",)),
    "no pair": ({"inputs": Change(lambda net, fits: [fits[0][1]])}, ("pair",)),
    "pair of a name and no blob": ({"inputs": [("x", np.ones((T, N, D)))]}, ("pair",)),
    "inputs that are not a list": ({"inputs": 3}, ("inputs",)),
    "no inputs at all": ({"inputs": None}, ("inputs",)),
    "states that are not a list": ({"initial_cell_inputs": 3.0}, ("initial_cell_inputs",)),
    "blob of another net": ({"inputs": Change(lambda net, fits: [("x", foreign())])}, ("'other'", "'xs'")),
    "state of another net": (
        {"initial_cell_inputs": Change(lambda net, fits: [fits[0], ("s", foreign("s0"))])},
        ("'other'",),
    ),
    "name that is none": ({"inputs": Change(lambda net, fits: [(["x"], fits[0][1])])}, ("no input of the cell",)),
    "dtype of a binding": (
        {"inputs": Change(lambda net, fits: [("x", net.input("i", "int32"))])},
        ("'i'", "float", "int32"),
    ),
    "link to nothing": ({"links": {"h": "q", "s": "s_t"}}, ("'h'", "link to nothing", "h_t")),
    "link to a blob that is not an output": ({"links": {"h": "sum", "s": "s_t"}}, ("'h'", "link to nothing")),
    "link that is not a name": ({"links": {"h": 3, "s": "s_t"}}, ("'h'", "link to nothing")),
    "state without a link": ({"links": {"h": "h_t"}}, ("'s'", "without a link")),
    "link without a state": ({"links": {"h": "h_t", "s": "s_t", "x": "y"}}, ("'x'", "not a state")),
    "link from nothing": ({"links": {"h": "h_t", "s": "s_t", "q": "y"}}, ("'q'", "not a state")),
    "links that are not a dict": ({"links": [("h", "h_t")]}, ("links",)),
    "no links": ({"links": None}, ("links",)),
    "two states on one output": ({"links": {"h": "h_t", "s": "h_t"}}, ("'h_t'", "two states")),
    "window of none": ({"links": {"h": ro.Link("h_t", window=0), "s": "s_t"}}, ("'h'", "window")),
    "window that is not a number": ({"links": {"h": ro.Link("h_t", window=1.5), "s": "s_t"}}, ("'h'", "window")),
    "offset below 0": ({"links": {"h": ro.Link("h_t", offset=-1), "s": "s_t"}}, ("'h'", "offset")),
    "unknown timestep": ({"timestep": "q"}, ("'q'", "timestep", "int32")),
    "float timestep": ({"timestep": "w"}, ("'w'", "timestep", "int32")),
    "timestep that is not a name": ({"timestep": 3}, ("timestep",)),
    "unknown reference": ({"references": Change(lambda net, _: {"q": net.input("v")})}, ("'q'",)),
    "reference that is not a blob": ({"references": {"w": 3.0}}, ("'w'", "reference")),
    "reference that is a sequence": (
        {"references": Change(lambda net, _: {"x": net.input("v")})},
        ("'x'", "bound twice"),
    ),
    "references that are not a dict": ({"references": [("w", 3)]}, ("references",)),
    "recompute unknown": ({"recompute_blobs_on_backward": ["q"]}, ("'q'", "unknown blob")),
    "recompute state": (
        {"recompute_blobs_on_backward": Change(lambda net, _: [step_cell().output_blobs["h_t"]])},
        ("state",),
    ),
    "recompute input": ({"recompute_blobs_on_backward": ["w"]}, ("'w'", "input of the cell")),
    "recompute no list": ({"recompute_blobs_on_backward": 3}, ("recompute",)),
    "recompute blob of another net": ({"recompute_blobs_on_backward": [foreign("sum")]}, ("'other'", "'sum'")),
    "place beyond the results": ({"outputs_with_grads": (6,)}, ("outputs_with_grads", "0 to 5")),
    "place below 0": ({"outputs_with_grads": (-1,)}, ("outputs_with_grads",)),
    "unknown result": ({"outputs_with_grads": ("q_all",)}, ("outputs_with_grads", "h_t_all")),
    "empty places": ({"outputs_with_grads": ()}, ("outputs_with_grads", "empty")),
    "places that are not a list": ({"outputs_with_grads": 0}, ("outputs_with_grads",)),
    "places of no kind": ({"outputs_with_grads": [True, None]}, ("outputs_with_grads",)),
    "steps below 0": ({"steps": -1}, ("steps",)),
    "steps that are not a number": ({"steps": "4"}, ("steps",)),
    "shape of no state": ({"state_shapes": {"x": (2,)}}, ("'x'", "state_shapes")),
    "shape that is none": ({"state_shapes": {"h": 3}}, ("'h'", "state_shapes")),
    "shape of no numbers": ({"state_shapes": {"h": ("a",)}}, ("'h'", "state_shapes")),
    "shape below 0": ({"state_shapes": {"h": (-2,)}}, ("'h'", "state_shapes")),
    "shapes that are not a dict": ({"state_shapes": [2]}, ("state_shapes",)),
    "cell that is not a net": ({"cell_net": "step"}, ("cell",)),
    "cell without outputs": (
        {"cell_net": ro.Net("idle"), "inputs": [], "initial_cell_inputs": [], "links": {}, "timestep": None},
        ("no outputs", "'idle'"),
    ),
}


@pytest.mark.parametrize("case", BUILDS)
def test_bindings_that_do_not_fit(case: str) -> None:
    changed, mentioned = BUILDS[case]
    with pytest.raises(ro.RnnopsError) as caught:
        build(**changed)
    assert type(caught.value) is ro.RecurrentError
    assert caught.value.net == "bad"
    assert "RecurrentNetwork" in (caught.value.op or "")
    for word in mentioned:
        assert word in str(caught.value), f"'{word}' is not in: {caught.value}"


def test_outer_net_that_is_none() -> None:
    with pytest.raises(ro.RnnopsError, match="not a net"):
        ro.recurrent_net("bad", step_cell(), [], [], {})


RUNS: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Any], tuple[str, ...]]] = {
    "sequence of rank 1": ({"xs": (T,)}, {}, ("'x'", "[T, N, ...]", "float64[4]")),
    "state of another batch": ({"h0": (N + 1, D)}, {}, ("'h'", "batch", "float64[4, 2]")),
    "state of rank 0": ({"h0": ()}, {}, ("'h'", "rank", "float64[]")),
    "state of rank 4": ({"h0": (1, 1, N, D)}, {}, ("'h'", "rank", "float64[1, 1, 3, 2]")),
    "two initial steps for one": ({"h0": (2, N, D)}, {}, ("'h'", "window")),
    "no initial step": ({"h0": (0, N, D)}, {}, ("'h'", "window")),
    "state of other sizes": ({"h0": (N, D + 1)}, {}, ("float64[3, 3]",)),
    "state that its output does not fit": ({"h0": (N, 1)}, {}, ("'h_t'", "'h'", "float64[3, 2]", "float64[3, 1]")),
    "steps against sequences": ({}, {"steps": T + 1}, ("steps", "4", "5")),
    "given feature sizes": ({}, {"state_shapes": {"h": (D + 1,)}}, ("'h'", "sizes")),
    "offset out of range": ({}, {"links": {"h": ro.Link("h_t", offset=1), "s": "s_t"}}, ("'h'", "window")),
    "window out of range": ({}, {"links": {"h": ro.Link("h_t", window=2), "s": "s_t"}}, ("'h'", "window")),
}


@pytest.mark.parametrize("case", RUNS)
@pytest.mark.parametrize("training", [False, True])
def test_feeds_that_do_not_fit_the_recurrence(case: str, training: bool) -> None:
    shapes, changed, mentioned = RUNS[case]
    run = on_device(build(**changed))
    feeds = random_arrays(**{"xs": (T, N, D), "h0": (N, D), "s0": (N, D), "w": (D,), **shapes})
    with pytest.raises(ro.RnnopsError) as caught:
        (run.vjp if training else run)(feeds)
    assert type(caught.value) in (ro.RecurrentError, ro.TypeRuleError)
    assert caught.value.net in ("bad", "step")
    for word in mentioned:
        assert word in str(caught.value), f"'{word}' is not in: {caught.value}"


@pytest.mark.parametrize("shape", [(T + 1, N, D), (T, N + 1, D)])
def test_sequences_of_different_length_or_batch(shape: tuple[int, ...]) -> None:
    cell = ro.Net("sum")
    x, y, h = cell.inputs("x", "y", "h")
    cell.outputs(h_t=x + y + h)
    net = ro.Net("bad")
    xs, ys, h0 = net.inputs("xs", "ys", "h0")
    net.outputs(*ro.recurrent_net(net, cell, [("x", xs), ("y", ys)], [("h", h0)], {"h": "h_t"}))
    with pytest.raises(ro.RecurrentError, match="differ in T or N") as caught:
        on_device(net)(random_arrays(xs=(T, N, D), ys=shape, h0=(D,)))
    assert caught.value.blob == "y"
    assert "'x'" in str(caught.value.wanted)


def test_states_of_different_batch_without_a_sequence() -> None:
    cell = ro.Net("pair")
    a, b = cell.inputs("a", "b")
    cell.outputs(a_t=a * 2.0, b_t=b * 2.0)
    net = ro.Net("bad")
    a0, b0 = net.inputs("a0", "b0")
    net.outputs(*ro.recurrent_net(net, cell, [], [("a", a0), ("b", b0)], {"a": "a_t", "b": "b_t"}, steps=2))
    with pytest.raises(ro.RecurrentError, match="batch") as caught:
        on_device(net)(random_arrays(a0=(N, D), b0=(N + 1, D)))
    assert caught.value.blob == "b"


def test_nothing_says_how_many_steps() -> None:
    cell = ro.Net("free")
    cell.outputs(h_t=cell.inputs("h") * 2.0)
    net = ro.Net("bad")
    net.outputs(*ro.recurrent_net(net, cell, [], [("h", net.input("h0"))], {"h": "h_t"}))
    with pytest.raises(ro.RecurrentError, match="how many steps") as caught:
        on_device(net)(h0=np.ones((N, D)))
    assert "steps=" in caught.value.hint


def test_numbers_of_numpy_are_numbers() -> None:
    changed = {"steps": np.int64(T), "outputs_with_grads": [np.int32(0)], "state_shapes": {"h": (np.int64(D),)}}
    out = on_device(build(**changed))(random_arrays(xs=(T, N, D), h0=(N, D), s0=(N, D), w=(D,)))
    assert out["h_t_all"].shape == (T, N, D)
