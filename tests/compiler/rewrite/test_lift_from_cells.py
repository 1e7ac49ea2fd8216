"""What follows from references alone leaves cells: texts before and after, and the same results."""

from __future__ import annotations

import numpy as np

import rnnops as ro
from rnnops.recurrent.cell_rewrites import lift_from_cells
from rnnops.recurrent.recurrence import Recurrence


def model() -> ro.Net:
    """A cell that turns and joins its weights."""
    cell = ro.Net("cell")
    x, h, w, v, b = cell.inputs("x", "h", "w", "v", "b")
    joined = ro.concat([ro.transpose(w, perm=[1, 0]), v * 0.5], axis=1)
    first, second = ro.split(ro.concat([x, h], axis=-1) @ joined + b, 2, axis=-1)
    cell.outputs(h_t=ro.tanh(first) * second, w_t=ro.exp(b))
    return over_steps(cell)


def nested() -> ro.Net:
    """A cell that takes two steps of another one at each step of its own."""
    inner, cell = ro.Net("inner"), ro.Net("cell")
    x, h, w, v = inner.inputs("x", "h", "w", "v")
    inner.outputs(h_t=ro.tanh(x @ ro.transpose(w, perm=[1, 0]) + h @ v))
    x, h = cell.inputs("x", "h")
    initial = [("h", h)]
    last = ro.recurrent_net(
        cell, inner, inputs=[], initial_cell_inputs=initial, links={"h": "h_t"}, references={"x": x}, steps=2
    )[1]
    cell.outputs(h_t=ro.squeeze(last, [0]))
    return over_steps(cell)


def over_steps(cell: ro.Net) -> ro.Net:
    net = ro.Net("net")
    xs, h0 = net.inputs("xs", "h0")
    initial = [("h", h0)]
    net.outputs(y=ro.recurrent_net(net, cell, inputs=[("x", xs)], initial_cell_inputs=initial, links={"h": "h_t"})[0])
    return net


def assert_same(net: ro.Net, lifted: ro.Net, **weights: tuple[int, ...]) -> None:
    """On the reference device, bit for bit."""
    rng, shapes = np.random.default_rng(0), {"xs": (4, 2, 5), "h0": (2, 5), **weights}
    feeds = {name: rng.standard_normal(shapes[name]).astype("f") for name in net.input_names}
    wanted, came = (ro.compile(one, "reference")(feeds)["y"] for one in (net, lifted))
    assert came.tobytes() == wanted.tobytes()


def test_what_follows_from_weights_leaves() -> None:
    net = model()
    lifted = lift_from_cells(net, {"w", "v"})
    assert [op.type for op in lifted.ops] == ["Constant", "Transpose", "Mul", "Concat", "RecurrentNetwork"]
    cell = Recurrence(lifted.ops[-1], "net").cell
    assert [op.type for op in cell.ops][:3] == ["Concat", "MatMul", "Add"]
    assert_same(net, lifted, w=(10, 10), v=(10, 0), b=(10,))


def test_what_is_an_output_or_follows_from_others_stays() -> None:
    net = model()
    assert str(lift_from_cells(net, ())) == str(net.snapshot())
    lifted = lift_from_cells(net, {"v", "b"})  # `Exp(b)` is an output of the cell
    assert [op.type for op in lifted.ops] == ["Constant", "Mul", "RecurrentNetwork"]


def test_cells_within_cells() -> None:
    net = nested()
    lifted = lift_from_cells(net, {"w", "v"})
    assert [op.type for op in lifted.ops] == ["Transpose", "RecurrentNetwork"]
    assert_same(net, lifted, w=(5, 5), v=(5, 5))
