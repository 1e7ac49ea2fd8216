"""What is the same at every step: texts before and after, what stays in the step, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from rnnops.interpreter import prepare
from rnnops.recurrent.cell_rewrites import hoist_out_of_cells
from rnnops.testing import check_devices, check_gradient
from rnnops.types import Type

T, N, H = 5, 3, 4
SHAPES = {"xs": (T, N, H), "h0": (N, H), "w": (H, H), "v": (H,)}
NET = """
net outer(xs, h0, w, v)
    s/h_all, s/h_last, s/o_all, _ = RecurrentNetwork(xs, h0, w, v, inputs=["x"], states=[["h", "h_t", 1, null, null]], \
references=["w", "v"]{attributes}) {{
        cell =
            net cell(x, h, w, v)
{ops}
    }}
    return y=s/h_all, o=s/o_all
"""


def net_of(lines: str, attributes: str = "") -> ro.Net:
    ops = "\n".join(" " * 16 + line.strip() for line in lines.strip().splitlines())
    return ro.parse_net(NET.format(ops=ops, attributes=attributes))


def hoisted(lines: str, attributes: str = "") -> tuple[list[str], list[str], tuple[str, ...]]:
    """The ops around the recurrence after the pass, those of its cell with what it returns, and its references."""
    program = prepare(net_of(lines, attributes), {n: Type("float64", s) for n, s in SHAPES.items()}, "float64")
    net = hoist_out_of_cells(program)
    op = next(op for op in net.ops if op.holds_net)
    around = [line.strip() for line in str(net).splitlines()[1 : 1 + net.ops.index(op)]]
    cell = op.attributes["cell"]
    assert op.inputs[:2] == ("xs", "h0")
    assert len(op.inputs) == 2 + len(op.attributes["references"])
    return around, [line.strip() for line in str(cell).splitlines()[1:]], op.attributes["references"]


MOVED = """
    c = Constant(value=2.0, dtype="float")
    p = Softmax(w, axis=-1)
    t = Transpose(p, perm=[1, 0])
    u = Transpose(w, perm=[1, 0])
    q = Mul(u, c)
    a = MatMul(h, t)
    b = MatMul(a, q)
    d = Mul(b, c)
    h_t = Add(x, d)
    return h_t, o=v
"""


def test_what_is_computed_again_moves_out_too() -> None:
    """There is one of it for all steps then, and a gradient has the bits that it has without."""
    assert hoisted(MOVED, ', recompute=["p", "q"]') == hoisted(MOVED)


def test_ops_on_references_alone_move_out_with_the_constants_and_views_that_they_read() -> None:
    around, cell, references = hoisted(MOVED)
    assert around == [
        's/c = Constant(value=2.0, dtype="float")',
        "s/p = Softmax(w, axis=-1)",
        "s/u = Transpose(w, perm=[1, 0])",
        "s/q = Mul(s/u, s/c)",
    ]
    assert cell == [
        'c = Constant(value=2.0, dtype="float")',
        "t = Transpose(p, perm=[1, 0])",
        "u = Transpose(w, perm=[1, 0])",
        "a = MatMul(h, t)",
        "b = MatMul(a, q)",
        "d = Mul(b, c)",
        "h_t = Add(x, d)",
        "return h_t, o=v",
    ]
    assert references == ("w", "v", "p", "q")


STAY = {
    "a name": ("*p = Softmax(w, axis=-1)\nh_t = MatMul(h, p)\nreturn h_t, o=x", ""),
    "a checkpoint": ("^p = Softmax(w, axis=-1)\nh_t = MatMul(h, p)\nreturn h_t, o=x", ""),
    "what follows from a name": ("*p = Softmax(w, axis=-1)\nq = Exp(p)\nh_t = MatMul(h, q)\nreturn h_t, o=x", ""),
    "random numbers": ("p, _ = Dropout(w, ratio=0.5)\nh_t = MatMul(h, p)\nreturn h_t, o=x", ""),
    "views and constants": ("u = Transpose(w, perm=[1, 0])\nh_t = MatMul(h, u)\nreturn h_t, o=x", ""),
    "what needs a state": ("p = Mul(h, v)\nh_t = MatMul(p, w)\nreturn h_t, o=x", ""),
}


@pytest.mark.parametrize("what", STAY)
def test_stays_in_the_step(what: str) -> None:
    lines, attributes = STAY[what]
    net = net_of(lines, attributes)
    program = prepare(net, {name: Type("float64", shape) for name, shape in SHAPES.items()}, "float64")
    assert hoist_out_of_cells(program) is program.net.snapshot()


CASES = {
    "softmax of weights": MOVED,
    "a step output": "p = Exp(v)\nh_t = Mul(h, x)\nreturn h_t, o=p",
    "a state": "p = Tanh(w)\nq = ReduceSum(p, axes=[0])\nr = Mul(h, v)\nh_t = Expand(q, shape=[3, 4])\nreturn h_t, o=r",
    "both read it": "p = Tanh(v)\nq = Mul(p, h)\nh_t = Sub(q, x)\nreturn h_t, o=p",
    "a part of a pair": """
        p, q = Split(v, axis=0, split=[3, 1])
        r = Exp(q)
        s = Mul(h, r)
        h_t = Sub(s, x)
        return h_t, o=p
    """,
}


@pytest.mark.parametrize("what", CASES)
def test_values_and_gradients(what: str) -> None:
    rng, net = np.random.default_rng(0), net_of(CASES[what])
    feeds = {name: rng.normal(size=shape) * 0.5 for name, shape in SHAPES.items()}
    check_gradient(net, feeds)
    check_devices(net, feeds)
    wanted = grads(ro.compile(net), feeds)
    for policy in ("all", "memory"):
        came = grads(ro.compile(net, checkpoints=policy), feeds)
        assert all(one.tobytes() == other.tobytes() for one, other in zip(wanted, came, strict=True))


def grads(run: ro.Run, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    outputs, pullback = run.vjp(feeds)
    return [*outputs.values(), *pullback({name: np.cos(array) for name, array in outputs.items()}).values()]


def test_no_copies_are_kept_for_each_step() -> None:
    net = net_of("p = Softmax(w, axis=-1)\nq = MatMul(h, p)\nh_t = Tanh(q)\nreturn h_t, o=x")
    plan = ro.compile(net, device="cpu", checkpoints="all").plan({n: np.zeros(s) for n, s in SHAPES.items()})
    assert "kept of each step: state h\n" in str(plan)


def test_without_steps() -> None:
    net = net_of(CASES["both read it"])
    feeds = {name: np.ones((0, N, H) if name == "xs" else shape) for name, shape in SHAPES.items()}
    for device in ("cpu", "reference"):
        *_, dw, dv = grads(ro.compile(net, device=device), feeds)
        assert not dw.any()
        assert not dv.any()
