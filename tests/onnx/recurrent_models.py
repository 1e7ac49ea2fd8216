"""ONNX models of one LSTM, GRU or RNN in every variant, and a plain loop in NumPy that says what is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, helper

Array = npt.NDArray[Any]
T, N, D, H = 4, 3, 2, 3
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
PORTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
OUTPUTS = ("Y", "Y_h", "Y_c")


@dataclass
class Variant:
    """One node: its op, attributes, and which optional inputs it has."""

    op: str
    attributes: dict[str, Any] = field(default_factory=dict)
    given: tuple[str, ...] = ("B",)
    outputs: tuple[str, ...] = ("Y", "Y_h", "Y_c")

    @property
    def directions(self) -> int:
        return 2 if self.attributes.get("direction") == "bidirectional" else 1

    @property
    def layout(self) -> int:
        return int(self.attributes.get("layout", 0))


def variants() -> dict[str, Variant]:
    """All variants by name."""
    table: dict[str, Variant] = {}
    for op in GATES:
        states = ("initial_h", "initial_c")[: STATES[op]]
        all_inputs = ("B", "sequence_lens", *states)
        for direction in ("forward", "reverse", "bidirectional"):
            for layout in (0, 1):
                attributes = {"direction": direction, "layout": layout}
                for name, given in {
                    "bare": (),
                    "bias": ("B",),
                    "all": all_inputs,
                    "lens": ("B", "sequence_lens"),
                }.items():
                    table[f"{op}-{direction}-{layout}-{name}"] = Variant(op, attributes, given)
        table[f"{op}-clip"] = Variant(op, {"clip": 0.3}, all_inputs)
        table[f"{op}-last-only"] = Variant(op, {}, all_inputs, ("", "Y_h"))
        table[f"{op}-all-steps-only"] = Variant(op, {"direction": "bidirectional"}, all_inputs, ("Y",))
        for i, name in enumerate(
            ("Relu", "Softsign", "Softplus", "LeakyRelu", "HardSigmoid", "Elu", "ThresholdedRelu")
        ):
            names = list(DEFAULTS[op])
            names[i % len(names)] = name
            table[f"{op}-{name}"] = Variant(op, {"activations": names}, ("B", *states))
        names = ["Affine", "ScaledTanh", "LeakyRelu"][: len(DEFAULTS[op])]
        numbers = {
            "activation_alpha": [0.7, 0.9, 0.2][: len(names)],
            "activation_beta": [0.1, 1.2][: min(len(names), 2)],
        }
        table[f"{op}-numbers"] = Variant(op, {"activations": names, **numbers}, ("B",))
    for direction in ("forward", "bidirectional"):
        for given in (("P",), ("B", "sequence_lens", "initial_h", "initial_c", "P")):
            table[f"LSTM-{direction}-peepholes-{len(given)}"] = Variant("LSTM", {"direction": direction}, given)
            table[f"GRU-{direction}-linear-{len(given)}"] = Variant(
                "GRU",
                {"direction": direction, "linear_before_reset": 1},
                tuple(p for p in given if p not in ("P", "initial_c")),
            )
    table["LSTM-coupled"] = Variant("LSTM", {"input_forget": 1}, ("B", "initial_c"))
    table["LSTM-coupled-peepholes"] = Variant("LSTM", {"input_forget": 1, "clip": 0.4}, ("B", "initial_c", "P"))
    table["GRU-linear-clip"] = Variant("GRU", {"linear_before_reset": 1, "clip": 0.2}, ("B", "initial_h"))
    table["GRU-linear-bare"] = Variant("GRU", {"linear_before_reset": 1}, ())
    return table


def feeds_of(variant: Variant, dtype: str = "float32", lengths: tuple[int, ...] = (2, T, 1)) -> dict[str, Array]:
    """Random inputs of a variant, by port."""
    generator = np.random.Generator(np.random.PCG64(7))
    g, d = GATES[variant.op] * H, variant.directions
    shapes = {"X": (T, N, D), "W": (d, g, D), "R": (d, g, H), "B": (d, 2 * g), "P": (d, 3 * H)}
    shapes.update(dict.fromkeys(("initial_h", "initial_c"), (d, N, H)))
    feeds: dict[str, Array] = {}
    for port in PORTS:
        if port == "sequence_lens" and port in variant.given:
            feeds[port] = np.array(lengths, "int32")
        elif port in ("X", "W", "R", *variant.given):
            array = generator.uniform(-1.0, 1.0, shapes[port]).astype(dtype)
            swapped = variant.layout and port in ("X", "initial_h", "initial_c")
            feeds[port] = np.ascontiguousarray(array.swapaxes(0, 1)) if swapped else array
    return feeds


def model_of(variant: Variant, feeds: dict[str, Array], opset: int = 14, dynamic: bool = True) -> ModelProto:
    """The model of a variant; weights are initializers, everything else is an input."""
    names = [port if port in feeds else "" for port in PORTS]
    while not names[-1]:
        names.pop()
    attributes = dict(variant.attributes, hidden_size=H)
    if not attributes.get("layout"):
        attributes.pop("layout", None)
    outputs = list(variant.outputs[: 1 + STATES[variant.op]])
    node = helper.make_node(variant.op, names, outputs, name="layer", **attributes)
    inputs = [
        value_info(port, feeds[port], variant.layout if dynamic else None)
        for port in names
        if port and port not in ("W", "R", "B", "P")
    ]
    weights = [
        helper.make_tensor(p, element(feeds[p]), feeds[p].shape, feeds[p].tobytes(), raw=True)
        for p in "WRBP"
        if p in feeds
    ]
    results = [result_info(name, variant, element(feeds["X"])) for name in outputs if name]
    graph = helper.make_graph([node], "one_layer", inputs, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def result_info(name: str, variant: Variant, element_type: int) -> Any:
    dims = {0: {"Y": ("T", variant.directions, "N", H)}, 1: {"Y": ("N", "T", variant.directions, H)}}[variant.layout]
    last = ("N", variant.directions, H) if variant.layout else (variant.directions, "N", H)
    return helper.make_tensor_value_info(name, element_type, dims.get(name, last))


def element(array: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def value_info(port: str, array: Array, layout: int | None) -> Any:
    """An input; T and N are names unless layout is None."""
    dims: list[Any] = list(array.shape)
    if layout is not None and port == "X":
        dims[:2] = ["N", "T"] if layout else ["T", "N"]
    elif layout is not None and port == "sequence_lens":
        dims = ["N"]
    elif layout is not None:
        dims[0 if layout else 1] = "N"
    return helper.make_tensor_value_info(port, element(array), dims)


# -- what is right: one row after the other, in plain loops ------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Softsign": lambda x, a, b: x / (1 + abs(x)),
    "Softplus": lambda x, a, b: np.log(1 + np.exp(x)),
    "LeakyRelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: np.where(x >= 0, x, a * (np.exp(x) - 1)),
    "ThresholdedRelu": lambda x, a, b: np.where(x >= a, x, 0),
    "Affine": lambda x, a, b: a * x + b,
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
}
NUMBERS = {
    "LeakyRelu": (0.01,),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0,),
    "ThresholdedRelu": (1.0,),
    "Affine": (1.0, 0.0),
    "ScaledTanh": (1.0, 1.0),
}


def expected(variant: Variant, feeds: dict[str, Array]) -> dict[str, Array]:
    """Y, Y_h and Y_c of a variant."""
    given = dict(feeds)
    if variant.layout:
        given.update({p: given[p].swapaxes(0, 1) for p in ("X", "initial_h", "initial_c") if p in given})
    steps, rows = given["X"].shape[:2]
    y = np.zeros((steps, variant.directions, rows, H), given["X"].dtype)
    last = np.zeros((2, variant.directions, rows, H), given["X"].dtype)
    for d in range(variant.directions):
        functions = functions_of(variant)[d]
        backwards = variant.attributes.get("direction") == "reverse" or d == 1
        for n in range(rows):
            length = int(given["sequence_lens"][n]) if "sequence_lens" in given else steps
            h, c = (given[p][d, n] if p in given else np.zeros(H) for p in ("initial_h", "initial_c"))
            for t in reversed(range(length)) if backwards else range(length):
                h, c = STEPS[variant.op](variant, given, d, given["X"][t, n], h, c, functions)
                y[t, d, n] = h
            last[:, d, n] = h, c
    results = {"Y": y, "Y_h": last[0], "Y_c": last[1]}
    if variant.layout:
        results = {"Y": y.transpose(2, 0, 1, 3), **{name: results[name].swapaxes(0, 1) for name in ("Y_h", "Y_c")}}
    return {name: results[name] for name in variant.outputs[: 1 + STATES[variant.op]] if name}


def functions_of(variant: Variant) -> list[list[Callable[[Array], Array]]]:
    names = variant.attributes.get("activations", DEFAULTS[variant.op] * variant.directions)
    alphas, betas = (iter(variant.attributes.get(f"activation_{k}", ())) for k in ("alpha", "beta"))
    clip, built = variant.attributes.get("clip"), []
    for name in names:
        numbers = NUMBERS.get(name, ())
        a = next(alphas, numbers[0]) if len(numbers) > 0 else 0.0
        b = next(betas, numbers[1]) if len(numbers) > 1 else 0.0
        bound = np.inf if clip is None else clip
        a, b, bound = (float(np.float32(number)) for number in (a, b, bound))  # as attributes of ONNX are
        built.append(lambda x, f=FUNCTIONS[name], a=a, b=b, m=bound: f(np.clip(x, -m, m), a, b))
    per = len(DEFAULTS[variant.op])
    return [built[k * per : (k + 1) * per] for k in range(variant.directions)]


def pieces(given: dict[str, Array], port: str, d: int, count: int) -> list[Array]:
    return np.split(given[port][d], count) if port in given else [np.zeros(H)] * count


def lstm_step(
    v: Variant, given: dict[str, Array], d: int, x: Array, h: Array, c: Array, act: Any
) -> tuple[Array, Array]:
    wb, (p_i, p_o, p_f) = pieces(given, "B", d, 8), pieces(given, "P", d, 3)
    i, o, f, g = (
        w @ x + r @ h + wb[k] + wb[4 + k]
        for k, (w, r) in enumerate(zip(np.split(given["W"][d], 4), np.split(given["R"][d], 4), strict=True))
    )
    i = act[0](i + p_i * c)
    f = 1 - i if v.attributes.get("input_forget") else act[0](f + p_f * c)
    new = f * c + i * act[1](g)
    return act[0](o + p_o * new) * act[2](new), new


def gru_step(
    v: Variant, given: dict[str, Array], d: int, x: Array, h: Array, c: Array, act: Any
) -> tuple[Array, Array]:
    b, w, r = pieces(given, "B", d, 6), np.split(given["W"][d], 3), np.split(given["R"][d], 3)
    z, reset = (act[0](w[k] @ x + r[k] @ h + b[k] + b[3 + k]) for k in (0, 1))
    linear = v.attributes.get("linear_before_reset")
    g = act[1](w[2] @ x + b[2] + (reset * (r[2] @ h + b[5]) if linear else r[2] @ (reset * h) + b[5]))
    return (1 - z) * g + z * h, c


def rnn_step(
    v: Variant, given: dict[str, Array], d: int, x: Array, h: Array, c: Array, act: Any
) -> tuple[Array, Array]:
    b = pieces(given, "B", d, 2)
    return act[0](given["W"][d] @ x + given["R"][d] @ h + b[0] + b[1]), c


STEPS = {"LSTM": lstm_step, "GRU": gru_step, "RNN": rnn_step}
