"""Mutations of ONNX files, and what loading and running one may come to.

What a run needs is what the file claims, so a mutation that claims more than `CLAIM` is only loaded.
"""

from __future__ import annotations

import signal
import tracemalloc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from defined_models import ALL as DEFINED
from if_models import ALL as IF_MODELS, model_of as model_of_if
from loop_models import TEXTS as LOOP_MODELS, evaluate, loop_model
from onnx import helper, load_model_from_string, numpy_helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator
from quantised_models import quantised_layers
from recurrent_models import Variant, feeds_of, model_of
from scan_models import scan_model
from sequence_ops_model import sequence_ops_model

import rnnops as ro
from rnnops.net.infer import infer
from rnnops.onnx import OnnxModel, load_model
from rnnops.types import FLOAT, Type

Array = np.ndarray[Any, Any]
CLAIM, SECONDS, FREE = 2**24, 10, 2**23
LOOPS = ("counters and values that stay", "an axis kept", "stacked", "in a Loop", "joined")
FUNCTIONS = """
    <ir_version: 9, opset_import: ["" : 17, "own" : 1]>
    g (float[4, 3, 2] x) => (float[4, 3, 2] y) { a = own.twice (x) y = own.scaled <by = 0.5> (a) }
    <domain: "own", opset_import: ["" : 17]> twice (x) => (y) { y = Add (x, x) }
    <domain: "own", opset_import: ["" : 17, "own" : 1]> scaled <by> (x) => (y)
    { a = own.twice (x) f = Constant <value_float: float = @by> () y = Mul (a, f) }
"""
SIZES = {"T": 4, "N": 3, "K": 2, None: 3}


def seeds() -> dict[str, bytes]:
    """The files that are mutated. `onnx.reference` knows neither lengths nor attributes of recurrent ops."""
    found = {}
    for op in ("LSTM", "GRU", "RNN"):
        for direction in ("forward", "bidirectional"):
            variant = Variant(op, {"direction": direction}, ("B", "initial_h"))
            found[f"{op} {direction}"] = model_of(variant, feeds_of(variant)).SerializeToString()
    for name in ("running sum", "no rows in common", "reads around itself", "scan in a scan", "weights in the body"):
        found[name] = scan_model(name).SerializeToString()
    for name in ("by data", "by an open size", "inside itself"):
        found[f"If {name}"] = model_of_if(IF_MODELS[name]).SerializeToString()
    for name in LOOPS:
        found[f"Loop {name}"] = loop_model(LOOP_MODELS[name]).SerializeToString()
    found["plain ops"] = plain_model().SerializeToString()
    found["ops around recurrences"] = sequence_ops_model().SerializeToString()
    for name, text in DEFINED.items():  # is_causal of 2 is false as ONNX defines it, and true in `onnx.reference`
        found[name] = parse_model(text.replace(", is_causal = 1", "")).SerializeToString()
    found["functions"] = parse_model(FUNCTIONS).SerializeToString()
    found["quantised ops"] = quantised_layers().SerializeToString()
    return found


def plain_model() -> Any:
    """Shape arithmetic, sizes as constants, and ops of many kinds."""
    constants = {
        "shape": [0, -1],
        "axes": [1],
        "starts": [1],
        "ends": [9],
        "pads": [0, 1, 0, 2],
        "repeats": [1, 2],
        "depth": 4,
    }
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["g"], alpha=0.5, transB=1),
        helper.make_node("Softmax", ["g"], ["p"], axis=-1),
        helper.make_node("Slice", ["p", "starts", "ends", "axes"], ["s"]),
        helper.make_node("Pad", ["s", "pads"], ["padded"], mode="reflect"),
        helper.make_node("Tile", ["padded", "repeats"], ["tiled"]),
        helper.make_node("ReduceMax", ["tiled"], ["top"], axes=[1]),
        helper.make_node("Clip", ["tiled", "low", "high"], ["clipped"]),
        helper.make_node("Split", ["clipped"], ["left", "right"], axis=1),
        helper.make_node("Concat", ["right", "left", "top"], ["joined"], axis=1),
        helper.make_node("Shape", ["joined"], ["size"]),
        helper.make_node("Cast", ["joined"], ["whole"], to=7),
        helper.make_node("OneHot", ["whole", "depth", "values"], ["hot"]),
        helper.make_node("Expand", ["b", "size_of_b"], ["wide"]),
        helper.make_node("Where", ["flags", "wide", "g"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.array(value, "int64"), name) for name, value in constants.items()]
    floats = {
        "w": np.linspace(-1, 1, 24).reshape(4, 6),
        "b": np.arange(4.0),
        "low": np.array(0.1),
        "high": np.array(0.4),
    }
    tensors += [numpy_helper.from_array(np.asarray(value, "float32"), name) for name, value in floats.items()]
    tensors += [numpy_helper.from_array(np.array([0.0, 1.0], "float32"), "values")]
    tensors += [numpy_helper.from_array(np.array([3, 4], "int64"), "size_of_b")]
    tensors += [numpy_helper.from_array(np.array([True, False, True, False]), "flags")]
    inputs = [helper.make_tensor_value_info("x", 1, ["N", 2, 3])]
    outputs = [helper.make_tensor_value_info(name, 0, None) for name in ("joined", "size", "hot", "y")]
    graph = helper.make_graph(nodes, "plain", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def mutated(data: bytes, generator: np.random.Generator) -> bytes:
    """A random change: half of them to the bytes, half to a field of the model that they encode."""
    if generator.random() < 0.5:
        try:
            return changed_field(data, generator)
        except ValueError:  # the protobuf package refuses this value in this field
            pass
    return changed_bytes(data, generator)


def changed_bytes(data: bytes, generator: np.random.Generator) -> bytes:
    """A bit or a byte changed, bytes cut out, copied, or put in place of others, or the end cut off."""
    at, length, other = (int(generator.integers(high)) for high in (len(data), 9, len(data)))
    changes = [
        data[:at] + bytes([data[at] ^ (1 << int(generator.integers(8)))]) + data[at + 1 :],
        data[:at] + bytes([int(generator.integers(256))]) + data[at + 1 :],
        data[:at] + data[at + length :],
        data[:at] + data[other : other + length] + data[at:],
        data[:at] + data[other : other + length] + data[at + length :],
        data[:at],
    ]
    return changes[int(generator.choice(len(changes), p=[0.35, 0.3, 0.1, 0.1, 0.1, 0.05]))]


def changed_field(data: bytes, generator: np.random.Generator) -> bytes:
    """One field of the model, or of anything in it, changed, left out, doubled or swapped with its neighbour."""
    model = load_model_from_string(data)
    places = list(fields_of(model))
    message, field = places[int(generator.integers(len(places)))]
    if not field.is_repeated:
        if field.message_type is None:
            setattr(message, field.name, changed_value(getattr(message, field.name), places, generator))
        else:
            message.ClearField(field.name)
        return bytes(model.SerializeToString())
    items = list(getattr(message, field.name))
    at = int(generator.integers(len(items)))
    kind = generator.integers(4)
    if kind == 0 and field.message_type is None:
        items[at] = changed_value(items[at], places, generator)
    elif kind == 1:
        items.insert(at, items[at])
    elif kind == 2:
        items.pop(at)
    else:
        items[at], items[at - 1] = items[at - 1], items[at]
    copies = [type(item).FromString(item.SerializeToString()) if field.message_type else item for item in items]
    message.ClearField(field.name)
    getattr(message, field.name).extend(copies)
    return bytes(model.SerializeToString())


def fields_of(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every field that is set, in a message and in all those inside it, with the message that it belongs to."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from fields_of(inner)


def changed_value(value: Any, places: list[tuple[Any, Any]], generator: np.random.Generator) -> Any:
    """Another number, or another text of the same model."""
    if isinstance(value, int):
        return [0, 1, -1, 2, 7, value + 1, value - 1, 2**31 - 1, -(2**31)][int(generator.integers(9))]
    if isinstance(value, float):
        return [0.0, -1.0, 1e30, float("nan"), 2 * value][int(generator.integers(5))]
    texts = [getattr(message, field.name) for message, field in places if not field.is_repeated]
    texts = [text for text in texts if type(text) is type(value) and len(text) < 100]
    return texts[int(generator.integers(len(texts)))] if texts else value[:-1]


def outcome(data: bytes, path: Path) -> str:
    """`refused`, `equal` to `onnx.reference`, `alone` where that fails, `too large` to run; else an AssertionError."""
    path.write_bytes(data)
    with time_limit(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model = loaded_lean(path, len(data))
            feeds = feeds_for(model)
            if feeds is None:
                return "too large"
            out = ro.compile(model.net, device="reference")(model.params, feeds)
        except ro.RnnopsError:
            return "refused"
        wanted = reference_results(data, feeds)
    if wanted is None:
        return "alone"
    for key, array in zip(model.net.output_blobs, wanted, strict=True):
        assert out[key].shape == array.shape, f"{key}: {out[key].shape}, wanted {array.shape}"
        np.testing.assert_allclose(out[key], array, rtol=1e-4, atol=1e-5)
    return "equal"


def loaded_lean(path: Path, size: int) -> OnnxModel:
    """Load a file; more memory than a fixed amount and some times the file is an AssertionError."""
    tracemalloc.start()
    try:
        return load_model(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < FREE + 100 * size, f"loading {size} bytes took {peak}"


def feeds_for(model: OnnxModel) -> dict[str, Array] | None:
    """Random inputs; None where the file claims too much, for them or for what follows from them."""
    generator = np.random.Generator(np.random.PCG64(1))
    types = {spec.name: Type("float32", spec.shape or ()) for spec in model.net.input_specs}
    types.update({name: Type("float32", array.shape) for name, array in model.params.items()})
    for name, dims in model.shapes.items():
        shape = tuple(dim if isinstance(dim, int) else SIZES.get(dim, 3) for dim in dims)
        dtype = model.net.dtype_of(name)
        types[name] = Type("float32" if dtype == FLOAT else dtype, shape)
    claims = sum(kind.size for call in infer(model.net, types, "float32").values() for kind in call.output_types)
    if claims + sum(types[name].size for name in model.shapes) > CLAIM:
        return None
    return {name: random_array(generator, types[name]) for name in model.net.input_names if name not in model.params}


def random_array(generator: np.random.Generator, kind: Type) -> Array:
    if kind.dtype.startswith("float"):
        return generator.uniform(-1.0, 1.0, kind.shape).astype(kind.dtype)
    return generator.integers(0, 2, kind.shape).astype(kind.dtype)


def reference_results(data: bytes, feeds: dict[str, Array]) -> list[Array] | None:
    """What `onnx.reference` makes of the same bytes and feeds, None where it fails."""
    model = load_model_from_string(data)
    try:
        if any(node.op_type == "Loop" for node in model.graph.node):  # whose scan outputs `onnx.reference` joins
            return [np.asarray(result) for result in evaluate(model, feeds).values()]
        results = ReferenceEvaluator(model).run(None, feeds)
    except Exception:
        return None
    return [np.asarray(result) for result in results]


class TooLateError(BaseException):
    """Something takes too long; no `except Exception` on the way makes an error of another kind of it."""


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise TooLateError where what is inside takes too long."""

    def late(*_: object) -> None:
        raise TooLateError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
