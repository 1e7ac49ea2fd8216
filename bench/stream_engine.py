"""A call of a served model: ours from Python, ours as an exported program, ONNX Runtime's."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import onnxruntime

import rnnops as ro
from bench.case import Entry
from bench.contender import Bench, Contender
from bench.problems import Arrays
from bench.stream_models import exported
from rnnops.onnx import load_model


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
