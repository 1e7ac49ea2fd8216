"""Typical mistakes, each with the error that it gets: what was wrong, what was wanted, what to do.

python examples/mistakes.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import rnnops as ro

T, N, D, H = 7, 2, 3, 4
RANDOM = np.random.default_rng(0)


@ro.cell
def cell(x: Any, h: Any, *, w_x: Any, w_h: Any) -> dict[str, Any]:
    gates = x @ w_x + h @ w_h
    return {"h": ro.tanh(gates)}


@ro.cell
def forgetful(x: Any, h: Any, *, w_x: Any, w_h: Any) -> dict[str, Any]:
    return {"h_new": ro.tanh(x @ w_x + h @ w_h)}


@ro.cell
def leaky(x: Any, h: Any, *, w: Any, a: Any) -> dict[str, Any]:
    return {"h": a * h + x @ w}


@ro.cell
def unstarred(x: Any, h: Any, w: Any) -> dict[str, Any]:
    return {"h": ro.tanh(x @ w + h)}


def model() -> tuple[ro.Net, dict[str, Any]]:
    """A small net that is right, and feeds for it."""
    net = ro.Net("model")
    xs, h0, lengths = net.input("xs"), net.input("h0"), net.input("lengths", "int32")
    states, ys = ro.scan(cell, xs, h=h0, lengths=lengths)
    net.outputs(y=ys["h"], last=states["h"], row=net.parameter("table", (5, 2))[net.input("ids", "int32")])
    floats = {"xs": (T, N, D), "h0": (N, H), "w_x": (D, H), "w_h": (H, H), "table": (5, 2)}
    feeds = {name: RANDOM.normal(size=shape) for name, shape in floats.items()}
    return net, {**feeds, "lengths": np.array([7, 3], "int32"), "ids": np.array([0, 4], "int32")}


NET, FEEDS = model()
RUN = ro.compile(NET, device="reference")
SHAPES = {name: array.shape for name, array in FEEDS.items()}
STEP = {"x": (1, D), "h": (1, H), "w": (D, H), "a": (H,)}  # of leaky
OPEN = ro.Net("open")  # a net in which mistakes are made
X, IDS = OPEN.input("x"), OPEN.input("ids", "int64")


def fed(**changed: Any) -> dict[str, Any]:
    """The feeds with some of them changed; None leaves one out."""
    return {name: value for name, value in {**FEEDS, **changed}.items() if value is not None}


def twice() -> None:
    """A pullback that is used again."""
    outputs, pullback = RUN.vjp(FEEDS)
    for _ in range(2):
        pullback({"y": np.ones_like(outputs["y"])})


def forgotten_state() -> None:
    """A blob that is given for a state, which the cell does not return."""
    net = ro.Net("forgotten")
    _, ys = ro.scan(forgetful, net.input("xs"), h=net.input("h0"))
    net.outputs(y=ys["h_new"])
    ro.compile(net, device="reference")({name: FEEDS[name] for name in net.input_names})


def step_of(value: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """Make a cell that returns something."""

    def step(x: Any, h: Any) -> Any:
        return value(x, h)

    return lambda: ro.cell(step)


MISTAKES: dict[str, Callable[[], Any]] = {
    # names
    "a function of another library": lambda: ro.concatenate([X, X]),
    "a misspelt function": lambda: ro.sigmod(X),
    "a misspelt op": lambda: OPEN.append("Sigmod", [X]),
    "an argument of another library": lambda: ro.softmax(X, dim=-1),
    "an argument too many": lambda: ro.tanh(X, 0),
    "a misspelt option": lambda: ro.compile(NET, chekpoints="memory"),
    "a flag that is a word": lambda: ro.compile(NET, recycle="no"),
    "an argument left out": lambda: ro.LSTM(OPEN, X, None, None, D),
    "a method that a net has not": lambda: OPEN.output(y=X),
    "a method that a run has not": lambda: RUN.forward(FEEDS),
    "a method of tensors": lambda: X.permute(1, 0),
    "a function that saves": lambda: ro.save(NET, "file"),
    "a layer of PyTorch": lambda: ro.Linear(D, H),
    "a net without a name": lambda: ro.Net(),  # type: ignore[call-arg]
    "a shape in the place of a dtype": lambda: OPEN.input("sized", (T, N, D)),
    "names in a list": lambda: OPEN.inputs(["one", "two"]),
    "blobs in a list": lambda: OPEN.outputs([X]),
    "an axis left out": lambda: ro.concat([X, X]),
    # blobs
    "if over a blob": lambda: 1 if X > 0 else 0,
    "a loop over a blob": lambda: [x for x in X],  # noqa: C416
    "a function of math": lambda: math.tanh(X),
    "a function of NumPy without an op": lambda: np.linalg.norm(X),
    "a function of NumPy that ro has": lambda: np.einsum("ij,jk->ik", X, X),
    "an elementwise function of NumPy without an op": lambda: np.isnan(X),
    "elements that are set": lambda: X.__setitem__((slice(None), 0), 0.0),
    "a complex number": lambda: X * 1j,
    "complex numbers as a dtype": lambda: OPEN.input("waves", "complex64"),
    "the equation behind its operands": lambda: ro.einsum(X, X, "ij,jk->ik"),
    "a list of numbers as an operand": lambda: X * [1.0, 2.0],
    "a blob as a number": lambda: float(X),
    "a blob as a bool": lambda: bool(X),
    "a blob as a count": lambda: list(range(X)),  # type: ignore[call-overload]
    "a blob in a formatted string": lambda: f"{X:.2f}",
    "the number of a tensor": lambda: X.item(),
    "backward of a tensor": lambda: X.backward(),
    "numbers of a blob": lambda: np.asarray(X),
    "a shape that is not known yet": lambda: X.shape[0],
    "a mask as a subscript": lambda: X[X > 0],
    "a subscript of a float": lambda: X[0.5],
    "a constant of no net": lambda: ro.constant(np.ones((D, H))),
    "a sum over blobs that is meant over an axis": lambda: ro.sum(X),
    "blobs of two nets": lambda: X + NET.blob("xs"),
    "floats meet integers": lambda: X + IDS,
    "a net called without compiling it": lambda: NET(FEEDS),
    "a net without outputs": lambda: ro.compile(ro.Net("empty")),
    "an output twice": lambda: (OPEN.outputs(y=X), OPEN.outputs(y=X)),
    "a name twice": lambda: OPEN.input("x"),
    "a parameter of no size": lambda: OPEN.parameter("w", (D, -1)),
    "initial values of another shape": lambda: OPEN.parameter("w", (D, H), np.ones((H, D))),
    "initial values of a name that a layer has not": lambda: ro.model.Dense(H, init={"weight": "ones"})(sized()),
    "initial values without a name": lambda: ro.model.RNN("gru", H, init="ones")(sized()),
    "initial values with NaN": lambda: OPEN.parameter("w", (2,), np.log(np.array([1.0, np.nan]))),
    "an initializer that is unknown": lambda: OPEN.parameter("w", (D, H), "glorot"),
    # cells
    "a decay that is not a share": lambda: ro.cells.LIFCell(D, H, decay=20),
    "a cell that returns a tuple": step_of(lambda x, h: (x + h, h)),
    "a cell that returns numbers": step_of(lambda x, h: {"h": 0.0}),
    "a state that the cell does not return": lambda: ro.scan(forgetful, X, h=np.zeros((N, H))),
    "a state of a blob that the cell does not return": forgotten_state,
    "the last value of a state that the cell does not return": lambda: ro.scan(forgetful, X, h=X)[0]["h"],
    "a parameter before the star": lambda: ro.scan(unstarred, X, h=X, w=np.ones((D, H))),
    "a cell that is compiled": lambda: ro.compile(cell),  # type: ignore[arg-type]
    "a preset cell that is called": lambda: ro.cells.LSTMCell(D, H)(X),
    "a state without an initial value": lambda: ro.scan(cell, X),
    "states in the place of sequences": lambda: ro.scan(cell, X, X),
    "a net in the place of a cell": lambda: ro.scan(cell.net, X, h=X),
    "a blob that is recomputed and has no name": lambda: ro.scan(cell, X, h=X, recompute=["gates"]),
    "links to an output that is not there": lambda: ro.recurrent_net(
        OPEN, cell.net, [("x", X)], [("h", X)], {"h": "H"}
    ),
    # feeds
    "an input that is not fed": lambda: RUN(fed(h0=None)),
    "a misspelt input": lambda: RUN(fed(h0=None, h_0=FEEDS["h0"])),
    "feeds by position": lambda: RUN(FEEDS["xs"]),
    "a list in place of an array": lambda: RUN(fed(h0=[[0.0] * H] * N)),
    "no array": lambda: RUN(fed(h0=None) | {"h0": None}),
    "complex numbers": lambda: RUN(fed(h0=FEEDS["h0"] + 0j)),
    "rows of several lengths": lambda: RUN(fed(xs=np.array([[1.0], [1.0, 2.0]], object))),
    "lengths of floats": lambda: RUN(fed(lengths=np.array([7.0, 3.0]))),
    "options by position": lambda: RUN(FEEDS, True),
    "NaN in a feed": lambda: ro.compile(NET, check_numerics=True)(fed(h0=np.full((N, H), np.nan))),
    "NaN that an op makes": lambda: ro.compile(logarithm(), check_numerics=True)(x=np.array([1.0, -1.0])),
    "batch first": lambda: RUN(fed(xs=FEEDS["xs"].swapaxes(0, 1))),
    "another number of features": lambda: RUN(fed(xs=np.ones((T, N, D + 1)))),
    "float32 beside float64": lambda: RUN(fed(h0=FEEDS["h0"].astype("float32"))),
    "float16": lambda: RUN({name: value.astype("float16") for name, value in FEEDS.items()}),
    "floats as indices": lambda: RUN(fed(ids=np.array([0.0, 1.0]))),
    "an index out of range": lambda: RUN(fed(ids=np.array([0, 5]))),
    "integers that do not fit": lambda: RUN(fed(ids=np.array([0, 2**40]))),
    # runs and gradients
    "a device that is unknown": lambda: ro.compile(NET, device="gpu"),
    "a precision in bits": lambda: ro.compile(NET, precision=16),
    "states of an exported program as a list": lambda: ro.compile(NET).export_native("folder", FEEDS, states=["h0"]),
    "a pullback that is used twice": twice,
    "a gradient of an output that is not there": lambda: RUN.vjp(FEEDS)[1]({"loss": np.ones(())}),
    "a gradient of another shape": lambda: RUN.vjp(FEEDS)[1]({"y": np.ones((N, H))}),
    "a number as the gradient of an array": lambda: RUN.vjp(FEEDS)[1]({"y": 1.0}),
    "a gradient of another dtype": lambda: RUN.vjp(FEEDS)[1]({"y": np.ones((T, N, H), "float32")}),
    "a gradient by integers": lambda: RUN.vjp(FEEDS, wrt=["ids"]),
    "dropout without a seed": lambda: ro.compile(dropped(), device="reference").vjp(x=np.ones((2, 3))),
    "a policy that is unknown": lambda: ro.compile(NET, checkpoints="some"),
    "a budget that is too small": lambda: ro.compile(NET, memory_budget=10).vjp(FEEDS),
    "links of a stream the wrong way round": lambda: RUN.stream({"h0": "last"}),
    "an input of a stream that is called rows": lambda: rows_stream()(rows=np.ones((2, 3), "float32")),
    "an export that is unknown": lambda: ro.compile(NET).export_native("folder", FEEDS, source="elf"),
    # gradients as nets, and steps that learn while they run
    "a gradient net of a run": lambda: ro.gradient_net(RUN),  # type: ignore[arg-type]
    "a gradient net by a blob": lambda: ro.gradient_net(NET, wrt=NET.blob("xs"), **SHAPES),
    "shapes of a gradient net in a dict": lambda: ro.gradient_net(NET, SHAPES),
    "a gradient net without shapes": lambda: ro.gradient_net(NET),
    "an online step that mixes its states": lambda: ro.online_net(cell, x=(1, D), h=(1, H), w_x=(D, H), w_h=(H, H)),
    "an online step with a misspelt state": lambda: ro.online_net(leaky, **{**STEP, "h0": (1, H)}),
    "an online step of a sequence": lambda: ro.online_net(leaky, **{**STEP, "x": (T, 1, D)}),
    "an online step of a net": lambda: ro.online_net(leaky.net, **STEP),
    "an online step with more rows": lambda: online_stream(rows=N),
    "gradients that end after no step": lambda: ro.scan(cell, X, h=X, truncate=0),
    # matrices
    "an inverse": lambda: ro.inv(X),
    "a vector behind solve": lambda: ro.compile(solved())(a=np.eye(D), b=np.ones(D)),
    "a matrix that is singular": lambda: ro.compile(solved())(a=np.ones((D, D)), b=np.ones((D, 1))),
    # exports
    "an initial state of an export without states": lambda: exported(initial={"h0": np.zeros(H)}),
    "an initial state of an export under its output": lambda: exported(
        states={"last": "h0"}, initial={"last": np.zeros(H)}
    ),
    "shapes of an export in shapes=": lambda: exported(shapes={"xs": (1, N, D)}),
    # models
    "a layer behind one of several outputs": lambda: ro.model.Dense(D)(ro.model.RNN("lstm", H)(sized())),
    "the activation as a word": lambda: ro.model.Dense(D, "tanh"),  # type: ignore[arg-type]
    "an optimizer that steps": lambda: ro.model.SGD(0.1).step(),  # type: ignore[attr-defined]
    "a model with a method of PyTorch's": lambda: Line().parameters(),
    "a model that is compiled without inputs": lambda: Line().compile(),  # type: ignore[call-arg]
    "a model that is called with arrays before compile": lambda: Line().train_one_batch(np.ones((N, D))),
}


class Line(ro.model.Model):
    """A model of one layer."""

    def __init__(self) -> None:
        self.dense = ro.model.Dense(1)

    def forward(self, x: Any) -> Any:
        return self.dense(x)

    def train_one_batch(self, x: Any) -> Any:
        return self.minimize(ro.reduce_mean(self.dense(x), keepdims=0))


def solved() -> ro.Net:
    net = ro.Net("solved")
    net.outputs(y=ro.solve(net.input("a"), net.input("b")))
    return net


def online_stream(rows: int) -> Any:
    online = ro.online_net(leaky, **STEP)
    return ro.compile(online.net).stream(online.states, rows=rows, shapes=online.traces | {"h": ("N", H)})


def exported(**options: Any) -> Any:
    """An export whose options are wrong, before it writes a file."""
    net = ro.Net("exported")
    states, ys = ro.scan(leaky, net.input("xs"), h=net.input("h0"))
    net.outputs(y=ys["h"], last=states["h"])
    run = ro.compile(net).bind(w=np.ones((D, H), "float32"), a=np.ones(H, "float32"))
    return run.export_native("folder", {"xs": (1, N, D), "h0": (N, H)}, **options)


def sized() -> ro.Blob:
    """An input whose sizes are known."""
    return ro.Net("sized", sizes_for="float32").input("x", shape=(T, N, D))


def logarithm() -> ro.Net:
    net = ro.Net("logarithm")
    net.outputs(y=ro.log(net.input("x")))
    return net


def rows_stream() -> Any:
    """A stream with an input that is called as an argument of its calls is."""
    net = ro.Net("counter")
    net.outputs(total=net.input("rows") + net.input("before", shape=(2, 3)))
    return ro.compile(net).stream({"total": "before"}, rows=2, shapes={"before": ("N", 3)})


def dropped() -> ro.Net:
    net = ro.Net("dropped")
    net.outputs(y=ro.dropout(net.input("x"), 0.5))
    return net


def message(mistake: Callable[[], Any]) -> str:
    """The error of a mistake. Raises AssertionError where there is none, or one that is not rnnops's own."""
    try:
        mistake()
    except ro.RnnopsError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("this mistake passes")


if __name__ == "__main__":
    for name, mistake in MISTAKES.items():
        print(f"{name}\n    {message(mistake)}")
