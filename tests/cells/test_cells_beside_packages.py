"""Cells of papers beside public implementations in PyTorch: outputs, states, and gradients of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rnnops as ro

T, N, D, H = 5, 3, 4, 6
Arrays = dict[str, np.ndarray]


def check(cell: ro.cells.RNNCell, params: Arrays, theirs: Callable[[Any], Any]) -> None:
    """Outputs and gradients of the input from states of zeros, in float64.

    Args:
        params: of the cell named "cell", without that prefix; theirs: outputs `[T, N, H]` of an input `[T, N, D]`.
    """
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    net = ro.Net("net")
    net.outputs(y=cell.apply_over_sequence(net, net.input("x"))[0])
    x = np.random.default_rng(1).normal(size=(T, N, D))
    feeds = {**ro.init_params(net, 0, "float64"), **{f"cell/{name}": array for name, array in params.items()}, "x": x}
    assert set(feeds) == set(net.input_names)
    out, pullback = ro.compile(net).vjp(feeds)
    given = torch.tensor(x, requires_grad=True)
    wanted = theirs(given)
    np.testing.assert_allclose(out["y"], wanted.detach().numpy(), rtol=1e-10, atol=1e-12)
    head = np.random.default_rng(2).normal(size=out["y"].shape)
    (wanted * torch.tensor(head)).sum().backward()
    np.testing.assert_allclose(pullback({"y": head})["x"], given.grad.numpy(), rtol=1e-9, atol=1e-12)


def arrays(module: Any) -> Arrays:
    return {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}


def over_time(step: Callable[[Any, Any], tuple[Any, Any]], carry: Any) -> Callable[[Any], Any]:
    """The outputs of a step that takes x and what is carried, and gives an output and what is carried on."""

    def run(xs: Any) -> Any:
        states, ys = carry, []
        for x in xs:
            y, states = step(x, states)
            ys.append(y)
        return pytest.importorskip("torch").stack(ys)

    return run


def reordered(array: np.ndarray, order: str, wanted: str) -> np.ndarray:
    """Gates of one order in another."""
    parts = dict(zip(order, np.split(array, len(order)), strict=True))
    return np.concatenate([parts[gate] for gate in wanted])


def test_projected_lstm_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    module = torch.nn.LSTM(D, H, proj_size=2, dtype=torch.float64)
    theirs = arrays(module)
    gates = {
        "i2h_w": "weight_ih_l0", "i2h_b": "bias_ih_l0", "gates_t_w": "weight_hh_l0", "gates_t_b": "bias_hh_l0"
    }  # fmt: skip
    params = {ours: reordered(theirs[name], "ifgo", "ifog") for ours, name in gates.items()}
    params["projection_w"] = theirs["weight_hr_l0"]
    check(ro.cells.ProjectedLSTMCell(D, H, proj_size=2, name="cell"), params, lambda x: module(x)[0])


def test_closed_form_cell_of_ncps() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ncps = pytest.importorskip("ncps.torch", reason="ncps is not installed")
    module = ncps.CfCCell(D, H, backbone_units=7, backbone_layers=1, backbone_dropout=0.0).double()
    theirs = arrays(module)
    backbone = theirs["backbone.0.weight"]
    heads = ("ff1", "ff2", "time_a", "time_b")
    params = {"i2h_w": backbone[:, :D], "hidden_w": backbone[:, D:], "i2h_b": theirs["backbone.0.bias"]}
    for ours, part in (("heads_w", "weight"), ("heads_b", "bias")):
        params[ours] = np.concatenate([theirs[f"{head}.{part}"] for head in heads])
    cell = ro.cells.CfCCell(D, H, backbone_size=7, elapsed=0.5, name="cell")
    check(cell, params, over_time(lambda x, h: module(x, h, 0.5), torch.zeros(N, H, dtype=torch.float64)))


def test_minimal_gru_of_min_gru_pytorch() -> None:
    """It runs whole sequences in the logarithm of states; one whose projection is the identity has D units."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    package = pytest.importorskip("minGRU_pytorch", reason="minGRU-pytorch is not installed")
    module = package.minGRU(D).double()
    candidate, gate = np.split(arrays(module)["to_hidden_and_gate.weight"], 2)
    params = {"i2h_w": np.concatenate([gate, candidate])}
    cell = ro.cells.MinGRUCell(D, D, positive=True, name="cell")
    check(cell, params, lambda x: module(torch.swapaxes(x, 0, 1)).swapaxes(0, 1))


def module_of(name: str, *sizes: int, **options: Any) -> tuple[Any, Arrays, Any]:
    """A cell of torchrecurrent in float64 with random parameters, these, and a state of zeros."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    package = pytest.importorskip("torchrecurrent", reason="torchrecurrent is not installed")
    module = getattr(package, name)(*sizes, **options).double()
    for parameter in module.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    return module, arrays(module), torch.zeros(N, sizes[1], dtype=torch.float64)


def two_states(module: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    def step(x: Any, states: Any) -> tuple[Any, Any]:
        states = module(x, states)
        return states[0], states

    return step


def test_oscillators_of_torchrecurrent() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    module, theirs, zeros = module_of("coRNNCell", D, H, dt=0.3, gamma=1.5, epsilon=2.0)
    params = {
        "i2h_w": theirs["weight_ih"],
        "i2h_b": theirs["bias_ih"] + theirs["bias_hh"] + theirs["bias_ch"],
        "hidden_w": np.concatenate([theirs["weight_hh"], theirs["weight_ch"]], axis=1),
    }
    cell = ro.cells.CoRNNCell(D, H, dt=0.3, gamma=1.5, epsilon=2.0, name="cell")
    check(cell, params, over_time(two_states(module), (zeros, zeros)))


def test_independent_units_of_torchrecurrent() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    module, theirs, zeros = module_of("IndRNNCell", D, H)
    bias = theirs["bias_ih"] + theirs["bias_hh"]
    params = {"i2h_w": theirs["weight_ih"], "i2h_b": bias, "recurrent_w": theirs["vector_u"]}

    def step(x: Any, h: Any) -> tuple[Any, Any]:
        h = module(x, h)
        return h, h

    check(ro.cells.IndRNNCell(D, H, activation="tanh", name="cell"), params, over_time(step, zeros))


def test_peepholes_of_torchrecurrent() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    module, theirs, zeros = module_of("PeepholeLSTMCell", D, H)
    gates = {"i2h_w": "weight_ih", "i2h_b": "bias_ih", "gates_t_w": "weight_hh", "gates_t_b": "bias_hh"}
    params = {ours: reordered(theirs[name], "ifgo", "ifog") for ours, name in gates.items()}
    params |= dict(zip(["peephole_i", "peephole_f", "peephole_o"], np.split(theirs["weight_ph"], 3), strict=True))
    check(ro.cells.PeepholeLSTMCell(D, H, name="cell"), params, over_time(two_states(module), (zeros, zeros)))


def test_scalar_lstm_of_xlstm() -> None:
    """Its plain code, which takes projected inputs, in the order input, forget, candidate, output."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    package = pytest.importorskip("xlstm.blocks.slstm.src.vanilla", reason="xlstm is not installed")
    rng, d = np.random.default_rng(0), H // 2
    weights, heads, bias = rng.normal(size=(4 * H, D)), rng.normal(size=(2, 4 * d, d)), rng.normal(size=4 * H)
    params = {"i2h_w": reordered(weights, "ifgo", "ifog"), "i2h_b": reordered(bias, "ifgo", "ifog")}
    params |= {f"gates_{head}_w": reordered(heads[head], "ifgo", "ifog") for head in range(2)}
    given = [torch.tensor(array) for array in (np.zeros((4, N, H)), heads, bias)]
    pointwise = package.slstm_pointwise_function_registry["slstm"]

    def theirs(x: Any) -> Any:
        return package.slstm_forward(x @ torch.tensor(weights).T, *given, pointwise)[0][0, 1:]

    check(ro.cells.SLSTMCell(D, H, heads=2, name="cell"), params, theirs)


def test_matrix_lstm_of_xlstm() -> None:
    """Its stabilized step of one head, of q, k, v and the two gates; the projections are ours."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    package = pytest.importorskip("xlstm.blocks.mlstm.backends", reason="xlstm is not installed")
    cell, d = ro.cells.MLSTMCell(D, H, heads=2, name="cell"), H // 2
    rng = np.random.default_rng(0)
    params = {
        "i2h_w": rng.normal(size=(4 * H, D)), "i2h_b": rng.normal(size=4 * H), "gates_t_w": rng.normal(size=(4, D)),
        "enter_b": rng.normal(size=2), "forget_b": rng.normal(size=2),
    }  # fmt: skip
    own = {name: torch.tensor(array) for name, array in params.items()}

    def step(x: Any, states: Any) -> tuple[Any, Any]:
        *parts, out = (x @ own["i2h_w"].T + own["i2h_b"]).chunk(4, dim=-1)
        q, k, v = (part.reshape(N, 2, 1, d).clone() for part in parts)  # its axes are changed in place
        i, f = (x @ own["gates_t_w"].T + torch.cat([own["enter_b"], own["forget_b"]])).chunk(2, dim=-1)
        gates = {"igate_preact": i.reshape(N, 2, 1, 1), "fgate_preact": f.reshape(N, 2, 1, 1)}
        h, states = package.recurrent_step_stabilized_simple(*states, q=q, k=k, v=v, **gates, eps=0.0)
        return torch.sigmoid(out) * h.reshape(N, H), states

    zeros = [torch.zeros(N, 2, *shape, dtype=torch.float64) for shape in ((d, d), (d, 1), (1, 1))]
    check(cell, params, over_time(step, zeros))
