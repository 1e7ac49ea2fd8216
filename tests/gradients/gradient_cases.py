"""A table of small nets, one op each, over shapes, attributes and optional inputs: elementwise ops.

`axis_gradient_cases` adds the ops that know of axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import rnnops as ro

Array = np.ndarray
SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (2, 1, 3), (0, 3)]
PAIRS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((), (2, 3)),
    ((2, 3), ()),
    ((1,), (2, 3)),
    ((1, 1), (1, 1)),
    ((2, 2, 1), (2, 1, 3)),
    ((0, 3), (3,)),
    ((2, 0), (2, 1)),
]


@dataclass(frozen=True)
class Case:
    """One net.

    Args:
        op: the op it is about.
        build: from the inputs' blobs to the output, or several.
        arrays: feeds; floats are differentiated, integers and bools are side inputs.
        options: of `check_gradient`.
    """

    op: str
    label: str
    build: Callable[..., Any]
    arrays: tuple[Array, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def net(self) -> tuple[ro.Net, dict[str, Array]]:
        net, feeds, blobs = ro.Net(f"{self.op} {self.label}".strip()), {}, []
        for i, array in enumerate(self.arrays):
            feeds[f"x{i}"] = array
            blobs.append(net.input(f"x{i}", None if array.dtype.kind == "f" else array.dtype))
        result = self.build(*blobs)
        results = result if isinstance(result, tuple | list) else [result]
        net.outputs(**{f"y{i}": blob for i, blob in enumerate(results)})
        return net, feeds

    def __str__(self) -> str:
        return f"{self.op}-{self.label}"


CASES: list[Case] = []


def case(op: str, label: str, build: Callable[..., Any], *arrays: Array, **options: Any) -> None:
    CASES.append(Case(op, label, build, arrays, options))


def apart(shape: tuple[int, ...], low: float = -1.6, high: float = 1.7, turn: int = 0) -> Array:
    """Numbers evenly apart between two bounds, in mixed order: no ties, none near 0."""
    size = int(np.prod(shape, dtype=int))
    values = low + (high - low) * (np.arange(size) + 0.4) / max(size, 1)
    order = np.random.Generator(np.random.PCG64(size + 17 * turn)).permutation(size)
    values = values[order]
    return np.where(np.abs(values) < 0.05, 0.06, values).reshape(shape)


def ints(*values: Any, dtype: str = "int64") -> Array:
    return np.array(values[0] if len(values) == 1 else values, dtype)


def sizes(like: ro.Blob, *values: int) -> ro.Blob:
    """A shape-valued input as a constant blob."""
    return like.net.constant(np.array(values, np.int64))


def squared_by_its_slope(x: ro.Blob) -> ro.Blob:
    """`x * x`, whose gradient is said and not derived."""
    return ro.with_gradient(ro.stop_gradient(x * x), x, ro.stop_gradient(2.0 * x))


def _unary() -> None:
    everywhere = {
        "Neg": ro.neg,
        "Abs": ro.abs,
        "Exp": ro.exp,
        "Sigmoid": ro.sigmoid,
        "Tanh": ro.tanh,
        "Relu": ro.relu,
        "LeakyRelu": ro.leaky_relu,
        "Elu": ro.elu,
        "Selu": ro.selu,
        "Softplus": ro.softplus,
        "Softsign": ro.softsign,
        "HardSigmoid": ro.hard_sigmoid,
        "Erf": ro.erf,
        "Gelu": ro.gelu,
        "Sin": ro.sin,
        "Cos": ro.cos,
        "Expm1": ro.expm1,
        "Sinh": ro.sinh,
        "Cosh": ro.cosh,
        "Atan": ro.atan,
        "Identity": ro.identity,
        "Reciprocal": ro.reciprocal,
        "Softmax": ro.softmax,
        "LogSoftmax": ro.log_softmax,
    }
    for op, function in everywhere.items():
        for shape in SHAPES:
            if shape or op not in ("Softmax", "LogSoftmax"):
                case(op, str(shape), function, apart(shape) + (0.5 if op == "Reciprocal" and shape == () else 0.0))
    for shape in SHAPES:
        case("Log", str(shape), ro.log, apart(shape, 0.3, 3.0))
        case("Sqrt", str(shape), ro.sqrt, apart(shape, 0.3, 3.0))
        case("Log1p", str(shape), ro.log1p, apart(shape, -0.7, 3.0))
        case("Tan", str(shape), ro.tan, apart(shape, -1.2, 1.2))
        case("WithGradient", str(shape), squared_by_its_slope, apart(shape))
    x = apart((3, 4), -3.3, 3.1)
    for alpha in (0.3, 0.0, -0.5):
        case("LeakyRelu", f"alpha {alpha}", lambda x, a=alpha: ro.leaky_relu(x, alpha=a), x)
        case("Elu", f"alpha {alpha}", lambda x, a=alpha: ro.elu(x, alpha=a), x)
    case("Selu", "alpha, gamma", lambda x: ro.selu(x, alpha=0.7, gamma=1.9), x)
    case("HardSigmoid", "alpha, beta", lambda x: ro.hard_sigmoid(x, alpha=0.4, beta=0.3), x)
    case("HardSigmoid", "falling", lambda x: ro.hard_sigmoid(x, alpha=-0.3, beta=0.5), x)
    case("Gelu", "tanh", lambda x: ro.gelu(x, approximate="tanh"), x)
    case("Cast", "to float", lambda x: ro.cast(x, "float"), x)
    case("Cast", "to float64", lambda x: ro.cast(x, "float64"), x)
    case("Cast", "through float64", lambda x: ro.cast(ro.cast(x, "float64") * 2.0, "float"), x)


def _binary() -> None:
    for a, b in PAIRS:
        label, left, right = f"{a} {b}", apart(a), apart(b, turn=1)
        case("Add", label, ro.add, left, right)
        case("Sub", label, ro.sub, left, right)
        case("Mul", label, ro.mul, left, right)
        case("Div", label, ro.div, left, apart(b, 0.4, 2.0, 1))
        case("Pow", label, ro.pow, apart(a, 0.3, 2.0), right)
        for op, function in (("Min", ro.min), ("Max", ro.max), ("Sum", ro.sum), ("Mean", ro.mean)):
            case(op, label, function, left, right)
        case("Where", label, ro.where, right > 0, left, apart(b, turn=2))
        case("Where", f"{label} condition", lambda c, x, y: ro.where(c, x, y), left < 0, apart((1,)), right)
    for op, function in (("Min", ro.min), ("Max", ro.max), ("Sum", ro.sum), ("Mean", ro.mean)):
        case(op, "one operand", lambda a, op=op: a.net.append(op, [a])[0], apart((2, 3)))
        case(op, "three operands", function, apart((2, 3)), apart((3,), turn=1), apart((2, 1), turn=2))
        case(op, "an operand twice", lambda a, b, f=function: f(a, b, a), apart((2, 3)), apart((3,), turn=1))
        case(op, "with a number", lambda a, f=function: f(a, 0.3), apart((2, 3)))
    for fmod in (0, 1):  # quotients stay between the same whole numbers
        top, below = np.array([5.3, -5.3, 5.3, -5.3, 0.4]), np.array([3.1, 3.1, -3.1, -3.1, 1.0])
        case("Mod", f"fmod {fmod}", lambda a, b, f=fmod: ro.mod(a, b, f), top, below)
    for axis, exclusive, reverse in ((0, 0, 0), (1, 1, 0), (-1, 0, 1), (0, 1, 1)):
        build = lambda x, a=axis, e=exclusive, r=reverse: ro.cumsum(x, a, e, r)  # noqa: E731 - a line of the table
        times = lambda x, a=axis, e=exclusive, r=reverse: ro.cumprod(x, a, e, r)  # noqa: E731 - a line of the table
        case("CumProd", f"axis {axis}, exclusive {exclusive}, reverse {reverse}", times, apart((3, 4)))
        zeros = np.array([[0.5, 0.0, 0.7, 0.0], [0.3, 1.2, 0.0, 0.9], [0.0, 0.4, 0.6, 0.8]])
        case("CumProd", f"zeros, axis {axis}, exclusive {exclusive}, reverse {reverse}", times, zeros)
        case("CumSum", f"axis {axis}, exclusive {exclusive}, reverse {reverse}", build, apart((3, 4)))
    for k, axis in ((1, 0), (2, -1), (3, 0), (0, 1)):
        case("TopK", f"{k} along {axis}", lambda x, k=k, a=axis: ro.topk(x, k, a)[0], apart((3, 4)))
    case("TopK", "a blob", lambda x: ro.topk(x, sizes(x, 2), 0)[0], apart((3, 4)))
    case("TopK", "many", lambda x: ro.topk(x, 9)[0], apart((2, 11)))
    case("Div", "by itself", lambda a: a / a * a, apart((3,), 0.4, 2.0))
    case("Mul", "by itself", lambda a: a * a, apart((3,)))
    for power in (0.0, 1.0, 2.0, 3.0, -1.0, -2.0):
        case("Pow", f"of any sign to {power}", lambda a, p=power: a**p, apart((5,)))
    case("Pow", "of 0", lambda a: a**2.0 + a**1.0 + a**0.0, np.array([0.0, 0.5]))
    case("Pow", "of 0 to an input", ro.pow, np.array([0.0, 0.7]), np.array([2.0, 1.5]))
    case("Pow", "number to an input", lambda a: 2.5**a, apart((4,)))
    condition = ints([True, False], dtype="bool")
    case("Where", "numbers", lambda c, x: ro.where(c, x, 1.0) + ro.where(c, 2.0, x), condition, apart((2,)))


def _clip() -> None:
    x = apart((3, 4))
    case("Clip", "numbers", lambda x: ro.clip(x, -0.55, 0.7), x)
    case("Clip", "min", lambda x: ro.clip(x, min=-0.5), x)
    case("Clip", "max", lambda x: ro.clip(x, max=0.5), x)
    case("Clip", "none", lambda x: ro.clip(x), x)
    case("Clip", "blobs", ro.clip, x, np.array(-0.55), np.array(0.7))
    case("Clip", "min blob", lambda x, low: ro.clip(x, min=low), x, np.array(-0.55))
    case("Clip", "max blob", lambda x, high: ro.clip(x, max=high), x, np.array(0.7))
    case("Clip", "bounds cross", ro.clip, x, np.array(0.6), np.array(-0.55))
    case("Clip", "bounds outside", ro.clip, x, np.array(-9.0), np.array(9.0))


def _random() -> None:
    for label, options in (("training", {"seed": 5}), ("no training", {"training": False})):
        case("Dropout", label, lambda x: ro.dropout(x, 0.4), apart((3, 4)), **options)
        case("Dropout", f"{label}, scalar", lambda x: ro.dropout(x, 0.4), apart(()), **options)
        case("Dropout", f"{label}, twice", lambda x: ro.dropout(x, 0.5) * ro.dropout(x, 0.5), apart((6,)), **options)
    case("Mul", "by random numbers", lambda x: x * ro.random_uniform_like(x), apart((3, 4)), seed=7)
    case("Dropout", "ratio 0", lambda x: ro.dropout(x, 0.0), apart((3, 4)))


def _select() -> None:
    for drop in (0, 1):
        for t in (0, 2):
            for shape in ((4, 3), (4,), (4, 2, 2), (4, 0)):
                lengths, step = ints([0, 3, 1, 2], dtype="int32"), ints([t], dtype="int32")
                build = lambda a, b, n, t, d=drop: ro.select_valid(a, b, n, t, d)  # noqa: E731 - a line of the table
                label = f"drop {drop}, t {t}, {shape}"
                case("SelectValid", label, build, apart(shape), apart(shape, turn=1), lengths, step)


for _part in (_unary, _binary, _clip, _random, _select):
    _part()
