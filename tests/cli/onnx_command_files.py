"""Files for tests of `rnnops onnx`, and a stand-in for ONNX Runtime that tests need not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx.parser

import rnnops as ro
from rnnops.cli.main import main

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
Arrays = Mapping[str, np.ndarray]


def command(*arguments: object) -> int:
    """Run `rnnops onnx` in this process and return its exit code."""
    return main(["onnx", *map(str, arguments)])


def saved(path: Path, text: str) -> Path:
    """A file of a model in ONNX's own words."""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def tagger(folder: Path) -> Path:
    """An LSTM with its states as inputs and outputs, and scores."""
    net = ro.Net("tagger")
    x, h, c = net.input("x"), net.input("h"), net.input("c=")
    h_all, h_last, _, c_last = ro.LSTM(net, x, None, (h, c), 3, 5, scope="encoder")
    net.outputs(scores=ro.softmax(h_all @ net.parameter("w_out", (5, 2))), h_last=h_last, c_last=c_last)
    shapes: dict[str, Any] = {"x": ("T", "N", 3), "h": (1, "N", 5), "c=": (1, "N", 5)}
    ro.onnx.export(net, folder / "tagger.onnx", params=ro.init_params(net, seed=0), shapes=shapes)
    return folder / "tagger.onnx"


def by_window(folder: Path) -> Path:
    """A GRU with its state as an input and an output, which can be read for windows of 6 or 7 numbers."""
    text = f"""g (float[N,window] x, float[1,N,2] h) => (float[N,2] y, float[1,rows,2] hn)
        <float[1,6,3] w = {{{", ".join(["0.5", "-0.25"] * 9)}}}, float[1,6,2] u = {{{", ".join(["0.25"] * 12)}}}> {{
        width = Shape<start = 1, end = 2>(x) three = Constant<value_ints = [3]>() size = Div(width, three)
        first = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>()
        x1 = Slice(x, first, three, one) c = Equal(size, two)
        y, hn = If(c) <
            then_branch = t() => (float[N,2] a, float[1,N,2] b) {{
                s = Unsqueeze(x1, first) all, b = GRU<hidden_size = 2>(s, w, u, "", "", h) a = Squeeze(b, first) }},
            else_branch = e() => (float[N,2] a, float[1,N,2] b) {{
                all, b = GRU<hidden_size = 2>(x1, w, u, "", "", h) a = Squeeze(b, first) }}> }}"""
    return saved(folder / "window.onnx", HEAD + text)


def counter(folder: Path, direction: str = "forward") -> Path:
    """Two GRUs that begin with zeros of their own."""
    weights = ", ".join(["0.1", "-0.4", "0.3"] * 9)
    text = f"""g (float[T,N,3] x) => (float[T,N,3] y) <float[1,9,3] w = {{{weights}}}, int64[1] one = {{1}}> {{
        a, b = GRU<hidden_size = 3, direction = "{direction}">(x, w, w)
        c = Squeeze(a, one)
        d, e = GRU<hidden_size = 3, direction = "{direction}">(c, w, w)
        y = Squeeze(d, one) }}"""
    return saved(folder / "counter.onnx", HEAD + text)


class StandIn:
    """What `rnnops.onnx.compare.Session` does, by the reference device, its results times `factor`."""

    factor = 1.0
    sizes: ClassVar[dict[str, int]] = {}  # with which it reads files

    def __init__(self, path: Path) -> None:
        model = ro.onnx.load_model(path, sizes=self.sizes)
        self.run = ro.compile(model.net, device="reference").bind(**model.params)

    def __call__(self, feeds: Arrays) -> dict[str, np.ndarray]:
        out = self.run({name: array for name, array in feeds.items() if name in self.run.net.input_names})
        return {name: (array * self.factor).astype(array.dtype) for name, array in out.items()}

    def repeated(self, feeds: Arrays) -> Callable[[], object]:
        return lambda: self(feeds)

    def stepped(self, feeds: Arrays, links: Mapping[str, str]) -> Callable[[], object]:
        return lambda: self(feeds)
