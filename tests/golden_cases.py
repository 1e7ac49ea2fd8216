"""Golden cases: values that Caffe2 computed, and the nets that must give the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rnnops as ro

FOLDER = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in FOLDER.glob("*.npz"))
PRESETS = {
    "lstm": ro.LSTM,
    "milstm": ro.MILSTM,
    "layer_norm_lstm": ro.LayerNormLSTM,
    "layer_norm_milstm": ro.LayerNormMILSTM,
    "gru": ro.GRU,
    "basic_rnn_tanh": ro.BasicRNN,
    "basic_rnn_relu": ro.BasicRNN,
}
LABELS = ("hidden_all", "hidden_last", "cell_all", "cell_last")


@dataclass(frozen=True)
class GoldenCase:
    """One file: what goes in, what must come out."""

    name: str
    meta: dict[str, Any]
    feeds: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    output_grads: dict[str, np.ndarray]
    grads: dict[str, np.ndarray]


def load(name: str) -> GoldenCase:
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    parts = {
        part: {key.split("/", 1)[1]: array for key, array in arrays.items() if key.startswith(part + "/")}
        for part in ("in", "param", "out", "outgrad", "grad")
    }
    meta = json.loads(str(arrays["meta"]))
    return GoldenCase(name, meta, parts["in"] | parts["param"], parts["out"], parts["outgrad"], parts["grad"])


def build(case: GoldenCase, memory_optimization: bool | None = None) -> ro.Net:
    """The net of a case, with memory optimization as the case says or as given."""
    memory = case.meta["memory_optimization"] if memory_optimization is None else memory_optimization
    net = ro.Net(case.name)
    if case.meta["kind"].startswith("attention_"):
        _build_attention(net, case, memory)
    else:
        _build_preset(net, case, memory)
    return net


def feeds_of(case: GoldenCase, net: ro.Net) -> dict[str, np.ndarray]:
    return {name: case.feeds[name] for name in net.input_names}


def _build_preset(net: ro.Net, case: GoldenCase, memory: bool) -> None:
    meta = case.meta
    x = net.input("x")
    lengths = net.input("seq_lengths", "int32") if meta["uses_seq_lengths"] else None
    states = [net.input(name) for name in case.feeds if name[:2] in ("h0", "c0")]
    options = {key: meta[key] for key in ("linear_before_reset", "activation") if key in meta}
    result = PRESETS[meta["kind"]](
        net,
        x,
        lengths,
        states,
        meta["D"],
        [meta["H"]] * meta["layers"] if meta["layers"] > 1 else meta["H"],
        scope="cell",
        outputs_with_grads=meta["outputs_with_grads"],
        memory_optimization=memory,
        forget_bias=meta["forget_bias"],
        drop_states=meta["drop_states"],
        **options,
    )
    net.outputs(**{label: blob for label, blob in zip(LABELS, result, strict=False) if label in case.outputs})


def _build_attention(net: ro.Net, case: GoldenCase, memory: bool) -> None:
    meta = case.meta
    x, encoder = net.inputs("x", "encoder_outputs")
    lengths, encoder_lengths = net.input("seq_lengths", "int32"), net.input("encoder_lengths", "int32")
    states = [net.input(name) for name in ("h0", "c0", "ctx0", "coverage0") if name in case.feeds]
    decoder_class = ro.cells.MILSTMCell if meta["milstm"] else ro.cells.LSTMCell
    decoder = decoder_class(meta["D"], meta["H"], memory_optimization=memory, name="att/decoder")
    cell = ro.cells.AttentionCell(
        meta["E"],
        encoder,
        encoder_lengths,
        decoder,
        meta["H"],
        meta["kind"].removeprefix("attention_"),
        attention_memory_optimization=memory,
        name="att",
    )
    output, _ = cell.apply_over_sequence(net, x, lengths, states, outputs_with_grads=[0, 4])
    net.outputs(output=output)
