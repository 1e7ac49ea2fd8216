"""Models that are served frame by frame, as their authors write them in PyTorch: one step of one or some rows a call.

Each is read from PyTorch's own ONNX export. The denoisers have the sizes of RNNoise (Valin, 2018) and of the first half
of DTLN (Westhausen and Meyer, 2020); weights are drawn, as only time is looked at.

**Calls** of a served model. A call of a served model: ours from Python, ours as an exported program, ONNX Runtime's.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

import rnnops as ro
from bench.case import Entry
from bench.contender import Bench, Contender
from bench.problems import Arrays
from rnnops.onnx import load_model

OPSET, WORDS = 17, 64


class Layers(nn.Module):
    """Layers of an LSTM or a GRU, and what their outputs become."""

    def __init__(self, kind: type[nn.Module], features: int, hidden: int, classes: int, after: Any) -> None:
        super().__init__()
        self.features, self.layers = features, kind(features, hidden, 2)
        self.last, self.after = nn.Linear(hidden, classes), after

    def forward(self, frame: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        found, new = self.layers(frame, states if len(states) > 1 else states[0])
        return self.after(self.last(found), frame), *(new if len(states) > 1 else (new,))

    def given(self, rows: int) -> tuple[Tensor, ...]:
        """A frame and states."""
        states = 2 if isinstance(self.layers, nn.LSTM) else 1
        return torch.randn(1, rows, self.features), *torch.randn(states, 2, rows, self.layers.hidden_size)


class Bands(nn.Module):
    """RNNoise: three GRUs, each of which reads what came before it, and gains of 22 bands."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.gains = nn.Linear(42, 24), nn.Linear(96, 22)
        self.voice, self.noise, self.denoise = nn.GRU(24, 24), nn.GRU(90, 48), nn.GRU(114, 96)

    def forward(self, frame: Tensor, v: Tensor, n: Tensor, d: Tensor) -> tuple[Tensor, ...]:
        dense = torch.tanh(self.dense(frame))
        voice, v = self.voice(dense, v)
        noise, n = self.noise(torch.cat([dense, voice, frame], -1), n)
        found, d = self.denoise(torch.cat([voice, noise, frame], -1), d)
        return torch.sigmoid(self.gains(found)), v, n, d

    def given(self, rows: int) -> tuple[Tensor, ...]:
        """A frame and states."""
        return torch.randn(1, rows, 42), *(torch.randn(1, rows, size) for size in (24, 48, 96))


def softmax(found: Tensor, _: Tensor) -> Tensor:
    return torch.softmax(found, -1)


def masked(found: Tensor, frame: Tensor) -> Tensor:
    """A mask of what was heard."""
    return torch.sigmoid(found) * frame


MODELS: Mapping[str, Callable[[], Any]] = {
    **{f"LSTM {size}": partial(Layers, nn.LSTM, size, size, WORDS, softmax) for size in (64, 256, 512, 1024)},
    "denoiser of bands": Bands,
    "denoiser by masks": partial(Layers, nn.LSTM, 257, 128, 257, masked),
    "keywords": partial(Layers, nn.GRU, 40, 128, 12, softmax),
}


def exported(name: str, rows: int = 1) -> tuple[bytes, dict[str, Any]]:
    """A model as an ONNX file, and feeds for it; the same weights each time."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    given, file = model.given(rows), BytesIO()
    states = [f"state{n}" for n in range(len(given) - 1)]
    names: dict[str, Any] = {
        "input_names": ["frame", *states],
        "output_names": ["y", *(f"new_{one}" for one in states)],
    }
    with catch_warnings(), torch.no_grad():
        simplefilter("ignore")
        torch.onnx.export(model, given, file, dynamo=False, opset_version=OPSET, **names)
    feeds = {one: tensor.numpy() for one, tensor in zip(names["input_names"], given, strict=True)}
    return file.getvalue(), feeds


def bound(entry: Entry, bench: Bench) -> Contender:
    """A bound run."""
    run, feeds = _bound(entry, bench)
    return Contender(lambda _: run(feeds), dict)


def program(entry: Entry, bench: Bench) -> Contender:
    """What `export_native` writes, linked to a library; a call goes through ctypes."""
    run, feeds = _bound(entry, bench)
    folder = Path(mkdtemp(prefix="rnnops-bench-"))
    files = run.export_native(folder, feeds, name="served")
    library = folder / "served.so"
    subprocess.run([shutil.which("cc") or "cc", "-shared", "-o", str(library), str(files.object)], check=True)
    sizes = dict(re.findall(r"served_(MEMORY|WEIGHTS) = (\d+)", files.header.read_text()))
    memory, weights = (_lines(int(sizes[part])) for part in ("MEMORY", "WEIGHTS"))
    weights[:] = np.frombuffer(files.weights.read_bytes(), np.uint8)
    loaded = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    loaded.served_init(_pointer(memory), _pointer(weights))
    outputs = {name: np.empty_like(array) for name, array in run(feeds).items()}
    given = [_pointer(memory), *(_pointer({**feeds, **outputs}[name]) for name in (*files.inputs, *files.outputs))]

    def call(_: int, _held: Any = (memory, weights, feeds)) -> Arrays:
        loaded.served_run(*given)
        return outputs

    return Contender(call, dict)


def session(entry: Entry, bench: Bench) -> Contender:
    """ONNX Runtime."""
    model, feeds = exported(entry.problem.net, entry.problem.size.N)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = bench.settings.threads, 1
    runs = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in runs.get_outputs()]
    return Contender(lambda _: runs.run(None, feeds), lambda found: dict(zip(names, found, strict=True)))


def _bound(entry: Entry, bench: Bench) -> tuple[ro.Run, Arrays]:
    model, feeds = exported(entry.problem.net, entry.problem.size.N)
    folder = Path(mkdtemp(prefix="rnnops-bench-"))
    (folder / "model.onnx").write_bytes(model)
    read = load_model(folder / "model.onnx")
    shutil.rmtree(folder)
    weights = entry.precision if entry.precision == "int8" else None
    return ro.compile(read.net, threads=bench.settings.threads).bind(**read.params, weights=weights), feeds


def _lines(nbytes: int) -> Any:
    """Bytes that begin at a line of the cache."""
    whole = np.zeros(nbytes + 64, np.uint8)
    return whole[-whole.ctypes.data % 64 :][:nbytes]


def _pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
