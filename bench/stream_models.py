"""Models that are served frame by frame, as their authors write them in PyTorch: one step of one or some rows a call.

Each is read from PyTorch's own ONNX export. The denoisers have the sizes of RNNoise (Valin, 2018) and of the first half
of DTLN (Westhausen and Meyer, 2020); weights are drawn, as only time is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn

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
