"""Every argument of every public call, one at a time, replaced by junk: it fits, or a RnnopsError says why not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

T, N, D = 2, 2, 3
Call = tuple[Callable[..., Any], dict[str, Any]]


def junk() -> list[Any]:
    other = ro.Net("other")
    return [
        None, True, 0, -1, 1.5, float("nan"), "", "x", "no such name", b"x", [], [None], [-1], ["x", 3], (), (0, 0),
        {}, {"x": None}, {3: "x"}, object(), np.float32(1), np.array("text"), other, other.input("x"), len,
    ]  # fmt: skip


def cell_and_net() -> tuple[ro.Net, ro.Net]:
    cell, net = ro.Net("cell"), ro.Net("outer")
    x, h, w = cell.inputs("x", "h", "w")
    cell.input("t", "int32")
    cell.outputs(h_t=ro.tanh((x + h).named("sum")) * w)
    net.inputs("xs", "h0", "w")
    net.input("lengths", "int32")
    return cell, net


def recurrence() -> Call:
    cell, net = cell_and_net()
    return ro.recurrent_net, {
        "net": net, "cell_net": cell, "inputs": [("x", net.blob("xs"))],
        "initial_cell_inputs": [("h", net.blob("h0"))],
        "links": {"h": "h_t"}, "timestep": "t", "scope": "s", "outputs_with_grads": [0],
        "recompute_blobs_on_backward": ["sum"], "forward_only": False, "references": {"w": net.blob("w")}, "steps": T,
        "reverse": False, "state_shapes": {"h": (D,)},
    }  # fmt: skip


def preset(function: Any) -> Call:
    _, net = cell_and_net()
    return function, {
        "net": net, "input_blob": net.blob("xs"), "seq_lengths": net.blob("lengths"), "initial_states": None,
        "dim_in": D, "dim_out": D, "scope": "s", "outputs_with_grads": [0], "return_params": True,
        "memory_optimization": True,
        "forget_bias": 0.5, "forward_only": False, "drop_states": True, "return_last_layer_only": True,
        "static_rnn_unroll_size": None,
    }  # fmt: skip


def attention() -> Call:
    _, net = cell_and_net()
    return ro.cells.AttentionCell, {
        "encoder_output_dim": D, "encoder_outputs": net.blob("xs"), "encoder_lengths": net.blob("lengths"),
        "decoder_cell": ro.cells.LSTMCell(D, D, name="d"), "decoder_state_dim": D, "attention_type": "dot",
        "weighted_encoder_outputs": net.blob("w"), "name": "a",
    }  # fmt: skip


def compiled() -> ro.Run:
    cell, net = cell_and_net()
    blobs = ro.recurrent_net(net, cell, [("x", net.blob("xs"))], [("h", net.blob("h0"))], {"h": "h_t"}, timestep="t")
    net.outputs(y=blobs[0])
    return on_device(net)


def feeds() -> dict[str, np.ndarray]:
    return {"xs": np.ones((T, N, D)), "h0": np.ones((N, D)), "w": np.ones(D), "lengths": np.ones(N, "int32")}


def small_calls() -> dict[str, Call]:
    cell, net = cell_and_net()
    run, x = compiled(), net.blob("xs")
    lstm = ro.cells.LSTMCell(D, D, name="c")
    return {
        "Net": (ro.Net, {"name": "n"}),
        "inputs": (lambda name: net.inputs(name), {"name": "fresh"}),
        "input": (net.input, {"name": "fresh2", "dtype": "int32", "shape": (2,)}),
        "parameter": (net.parameter, {"name": "fresh3", "shape": (2, 3), "init": "zeros"}),
        "outputs": (lambda blob: net.outputs(y=blob), {"blob": x}),
        "named": (lambda name: (x * 2.0).named(name), {"name": "fresh4"}),
        "blob": (net.blob, {"name": "xs"}),
        "constant": (net.constant, {"value": 1.0, "dtype": "float"}),
        "append": (net.append, {"op_type": "Tanh", "inputs": [x]}),
        "init_params": (ro.init_params, {"net": net, "seed": 0, "dtype": "float32"}),
        "compile": (ro.compile, {"net": run.net, "device": "reference"}),
        "run": (lambda dicts, seed: run(dicts, seed=seed), {"dicts": feeds(), "seed": 1}),
        "feed": (lambda name, value: run({**feeds(), name: value}), {"name": "xs", "value": np.ones((T, N, D))}),
        "vjp": (lambda seed, wrt: run.vjp(feeds(), seed=seed, wrt=wrt), {"seed": 1, "wrt": ["w"]}),
        "bind": (lambda value: run.bind(w=value), {"value": np.ones(D)}),
        "pullback": (lambda grads: run.vjp(feeds())[1](grads), {"grads": np.ones((T, N, D))}),
        "gradient": (lambda name, value: run.vjp(feeds())[1]({name: value}), {"name": "y", "value": feeds()["xs"]}),
        "step_blobs": (lambda name: run.vjp(feeds())[1].step_blobs(name), {"name": "h_t"}),
        "Link": (lambda **link: ro.recurrent_net(
            net, cell, [("x", x)], [("h", net.blob("h0"))], {"h": ro.Link(**link)}, timestep="t", scope="linked",
        ), {"output": "h_t", "window": 1, "offset": 0}),
        "MultiRNNCell": (ro.cells.MultiRNNCell, {"cells": [lstm], "residual_output_layers": [], "name": "m"}),
        "DropoutCell": (ro.cells.DropoutCell, {"cell": lstm, "ratio": 0.5}),
        "UnrolledCell": (ro.cells.UnrolledCell, {"cell": lstm, "T": 2}),
        "LSTMCell": (ro.cells.LSTMCell, {"input_size": D, "hidden_size": D, "forget_bias": 1.0, "name": "l"}),
        "BasicRNNCell": (ro.cells.BasicRNNCell, {"input_size": D, "hidden_size": D, "activation": "relu", "name": "l"}),
        "apply_over_sequence": (lstm.apply_over_sequence, {
            "net": net, "inputs": x, "seq_lengths": None, "initial_states": None, "outputs_with_grads": [0],
        }),
        "apply": (lstm.apply, {
            "net": net, "input_t": x, "seq_lengths": None, "states": [x, x], "timestep": None,
        }),
    }  # fmt: skip


CALLS: dict[str, Callable[[], Call]] = {
    "recurrent_net": recurrence,
    "attention": attention,
    **{f.__name__: (lambda f=f: preset(f)) for f in (ro.LSTM, ro.GRU, ro.MILSTM, ro.LayerNormLSTM, ro.BasicRNN)},
    **{name: (lambda name=name: small_calls()[name]) for name in small_calls()},
}


def unnamed_error(trial: Callable[[], Any]) -> str:
    """What came out of a trial that is not an RnnopsError; empty where it went well or ended in one."""
    try:
        trial()
    except ro.RnnopsError:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("name", CALLS)
def test_junk_in_one_argument(name: str) -> None:
    function, good = CALLS[name]()
    function(**good)
    for argument in good:
        for value in junk():
            if name in ("feed", "gradient") and argument == "name" and isinstance(value, list | dict | np.ndarray):
                continue  # no key of a dict
            function, good = CALLS[name]()
            call = {**good, argument: value}
            assert not unnamed_error(lambda f=function, c=call: f(**c)), f"{name}({argument}={value!r})"


OPS = sorted(name for name in dir(ro) if getattr(getattr(ro, name), "name", None) in ro.op_names())


@pytest.mark.parametrize("name", OPS)
def test_junk_in_one_argument_of_an_op(name: str) -> None:
    function = getattr(ro, name)
    parameters = inspect.signature(function).parameters
    for argument in parameters:
        for value in junk():
            net = ro.Net("ops")
            if parameters[argument].kind is inspect.Parameter.VAR_POSITIONAL:
                error = unnamed_error(lambda v=value, net=net: function(v, net.input("z")))
            else:
                good = {key: net.input(key) for key, p in parameters.items() if p.default is p.empty}
                error = unnamed_error(lambda c={**good, argument: value}: function(**c))
            assert not error, f"{name}({argument}={value!r}): {error}"
