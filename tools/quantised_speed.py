"""Times of dynamically quantised nets beside ONNX Runtime, one thread each: `python -m tools.quantised_speed`.

ONNX Runtime's own tool quantises an LSTM, a GRU and three dense layers; rnnops reads its files.
"""

from __future__ import annotations

import logging
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from onnxruntime.quantization import QuantType, quantize_dynamic

import rnnops as ro
from rnnops.onnx.compare import OURS, THEIRS, Session, call_times, distance

GATES = {"LSTM": 4, "GRU": 3}
SIZES, FEEDS = (128, 256), ((50, 1), (100, 1), (50, 16))  # H; T, N
QUANTISED = ["LSTM", "GRU", "MatMul"]
COLUMNS = "{:<8} {:>4} {:<6} {:>4} {:>3} {:>10} {:>10} {:>6} {:>9}"


def recurrent(kind: str, H: int, draw: np.random.Generator) -> Any:
    """A layer with random weights."""
    rows, more = GATES[kind] * H, {} if kind == "LSTM" else {"linear_before_reset": 1}
    shapes = {"w": (1, rows, H), "r": (1, rows, H), "b": (1, 2 * rows)}
    node = helper.make_node(kind, ["x", *shapes], ["y"], hidden_size=H, **more)
    return model([node], {name: draw.normal(size=shape) / H**0.5 for name, shape in shapes.items()}, H)


def dense(H: int, draw: np.random.Generator) -> Any:
    """Three products with a tanh behind each."""
    nodes, values = [], ["x", "h1", "h2", "y"]
    for i in range(3):
        nodes.append(helper.make_node("MatMul", [values[i], f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [values[i + 1]]))
    return model(nodes, {f"w{i}": draw.normal(size=(H, H)) / H**0.5 for i in range(3)}, H)


def model(nodes: list[Any], weights: dict[str, Any], H: int) -> Any:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "N", H])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(array.astype("float32"), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def time_file(path: Path, *columns: object) -> None:
    """Print a line for each number of steps and rows."""
    read, session = ro.onnx.load_model(path), Session(path)
    run = ro.compile(read.net, threads=1).bind(**read.params)
    for T, N in FEEDS:
        x = np.random.default_rng(1).normal(size=(T, N, columns[1])).astype("float32")
        times, off = call_times(run, session, {"x": x}, {}), distance(run(x=x), session({"x": x}))
        cells = [f"{1e3 * times[OURS]:.3f}", f"{1e3 * times[THEIRS]:.3f}", f"{times[THEIRS] / times[OURS]:.2f}"]
        print(COLUMNS.format(*columns, T, N, *cells, f"{off:.1e}"), flush=True)


def main() -> None:
    logging.disable(logging.WARNING)  # the quantiser's advice
    print(COLUMNS.format("net", "H", "weight", "T", "N", "rnnops ms", "theirs ms", "ratio", "apart"))
    with TemporaryDirectory() as folder:
        for (kind, H), weight in product(product(("LSTM", "GRU", "MatMul"), SIZES), ("int8", "uint8")):
            draw, path = np.random.default_rng(0), Path(folder) / "float.onnx"
            save(dense(H, draw) if kind == "MatMul" else recurrent(kind, H, draw), path)
            made, dtype = (
                Path(folder) / f"{kind}{H}{weight}.onnx",
                {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}[weight],
            )
            quantize_dynamic(path, made, weight_type=dtype, op_types_to_quantize=QUANTISED)
            time_file(made, kind, H, weight)


if __name__ == "__main__":
    main()
