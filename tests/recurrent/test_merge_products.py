"""Products that share an operand: texts before and after, the same results, names and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.run.pipeline import live_net
from rnnops.interpreter import Program, prepare
from rnnops.recurrent.cell_rewrites import MANY, NARROW, merge_in_step, merge_products
from rnnops.recurrent.recurrence import Recurrence, cell_program
from rnnops.types import Type, type_of

Arrays = dict[str, np.ndarray]
WEIGHTS = ("v", "w")


def merged(text: str, **shapes: tuple[int, ...]) -> list[str]:
    """The ops of a step after the pass, one a line."""
    net = ro.parse_net(text)
    program = prepare(net, {name: Type("float32", shape) for name, shape in shapes.items()}, "float32")
    return [line.strip() for line in str(merge_in_step(program, WEIGHTS)).splitlines()[1:-1]]


TWO = """
net n(x, v, w)
    a = MatMul(x, v){}
    c = Exp(a)
    *b = MatMul({}, w)
    return c, b
"""
SHAPES = {"x": (3, 5), "v": (5, 4), "w": (5, 2)}


def test_two_become_one() -> None:
    assert merged(TWO.format("", "x"), **SHAPES) == [
        "a/weights = Concat(v, w, axis=1)",
        "a/joined = MatMul(x, a/weights)",
        "a, *b = Split(a/joined, axis=-1, split=[4, 2])",
        "c = Exp(a)",
    ]


def test_products_of_rounded_operands_become_one_of_such() -> None:
    mixed = TWO.replace("MatMul(x, v)", 'RoundedMatMul(x, v, operands="bfloat16")').format("", "x")
    assert [line for line in merged(mixed, **SHAPES) if "Concat" in line] == []
    both = mixed.replace("= MatMul(x, w)", '= RoundedMatMul(x, w, operands="bfloat16")')
    assert merged(both, **SHAPES)[1] == 'a/joined = RoundedMatMul(x, a/weights, operands="bfloat16")'


@pytest.mark.parametrize(
    ("layer", "operand", "shapes"),
    [
        (" @ other", "x", {}),
        ("", "c", {"v": (5, 5)}),
        ("", "x", {"w": (5, NARROW + 1)}),
        ("", "x", {"x": (5,)}),
        ("", "x", {"x": (3, 4, 5), "w": (3, 5, 2)}),
    ],
)
def test_what_stays_apart(layer: str, operand: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """Another layer, another operand, a wide product, one row, a batch of matrices."""
    assert [line for line in merged(TWO.format(layer, operand), **{**SHAPES, **shapes}) if "Concat" in line] == []


# -- recurrences -------------------------------------------------------------------------------------------------------

T, N, H = MANY, 2, 3


def gated(recompute: list[str] | None = None) -> ro.Net:
    """An LSTM written gate by gate, as one writes it down first."""
    cell = ro.Net("cell")
    x_t, h, c = cell.inputs("x_t", "h", "c")
    gates = []
    for name in "ifog":
        w, u, b = cell.inputs(f"w_{name}", f"u_{name}", f"b_{name}")
        gates.append((x_t @ w + h @ u + b).named(f"gate_{name}"))
    i, f, o, g = gates
    new = ro.sigmoid(f) * c + ro.sigmoid(i) * ro.tanh(g)
    cell.outputs(h_t=ro.sigmoid(o) * ro.tanh(new), c_t=new)
    net = ro.Net("gated")
    x, h0, c0 = net.inputs("x", "h0", "c0")
    links, initial = {"h": "h_t", "c": "c_t"}, [("h", h0), ("c", c0)]
    results = ro.recurrent_net(net, cell, [("x_t", x)], initial, links, recompute_blobs_on_backward=recompute)
    net.outputs(y=results[0], last=results[3])
    return net


def feeds_of(steps: int = T) -> Arrays:
    rng = np.random.default_rng(0)
    shapes = {"x": (steps, N, H), "h0": (N, H), "c0": (N, H)}
    shapes |= {f"{kind}_{name}": (H, H) if kind != "b" else (H,) for kind in "wub" for name in "ifog"}
    return {name: rng.normal(size=shape) / 2 for name, shape in shapes.items()}


def program_of(net: ro.Net, feeds: Arrays) -> Program:
    return prepare(live_net(net), {name: type_of(array) for name, array in feeds.items()}, "float64")


def cell_ops(net: ro.Net, feeds: Arrays) -> list[str]:
    (call,) = (call for call in program_of(net, feeds).calls if call.op.type == "RecurrentNetwork")
    return [inner.op.type for inner in cell_program(Recurrence(call.op, call.net), call).calls]


def test_gates_written_apart_are_two_products() -> None:
    feeds = feeds_of()
    assert cell_ops(gated(), feeds).count("MatMul") == 8
    after = merge_products(program_of(gated(), feeds))
    assert cell_ops(after, feeds).count("MatMul") == 2


def test_short_recurrences_stay_as_they_are() -> None:
    program = program_of(gated(), feeds_of(MANY - 1))
    assert merge_products(program) is program.net


def test_listed_products_stay_as_they_are() -> None:
    net = gated()
    (op,) = net.ops
    names = [one.key for one in op.attributes["cell"].ops if one.type == "MatMul"]
    after = merge_products(program_of(gated(recompute=names[:2]), feeds_of()))
    assert cell_ops(after, feeds_of()).count("MatMul") == 2 + 2


def results(net: ro.Net, feeds: Arrays, device: str) -> Arrays:
    tuning = Options(compiled=False) if device == "cpu" else None
    outputs, pullback = ro.compile(net, device=device, tuning=tuning).vjp(feeds)
    rng = np.random.default_rng(1)
    grads = pullback({name: rng.normal(size=array.shape) for name, array in outputs.items()})
    return {**outputs, **{f"gradient of {name}": array for name, array in grads.items()}}


@pytest.mark.parametrize("recompute", [None, ["gate_i", "gate_f", "gate_o", "gate_g"]])
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_results_and_gradients(device: str, recompute: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    net, feeds = gated(recompute), feeds_of()
    assert "Concat" in ro.compile(net, device=device).plan(feeds).plan.program.net.ops[0].attributes["cell"].__str__()
    came = results(net, feeds, device)
    monkeypatch.setattr("rnnops.recurrent.cell_rewrites.merge_in_step", lambda step, *more: step.net)
    wanted = results(net, feeds, "reference")
    assert came.keys() == wanted.keys()
    for name, array in wanted.items():
        limit = 1e-12 * max(1.0, np.abs(array).max())
        np.testing.assert_allclose(came[name], array, rtol=0, atol=limit, err_msg=name)


def test_gradients_by_differences() -> None:
    ro.testing.check_gradient(gated(), feeds_of(), sample=4)  # and directions through all elements


@pytest.mark.parametrize("seed", range(30))
def test_random_nets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short they are."""
    made = ro.testing.random_net(seed)
    feeds = dict(made.feeds)
    wanted = ro.compile(made.net, device="reference")(feeds, seed=seed, training=True)
    monkeypatch.setattr(
        "rnnops.compiler.run.pipeline.REWRITES_OF_SHAPES", (lambda one: merge_products(one, NARROW, 0),)
    )
    came = ro.compile(made.net, device="reference")(feeds, seed=seed, training=True)
    for name, array in wanted.items():
        np.testing.assert_allclose(came[name], array, rtol=1e-9, atol=1e-9, err_msg=name)
