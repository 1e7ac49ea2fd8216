"""Loops of PyTorch, scripted or as `torch.while_loop`, exported anew: its numbers, and steps of a recurrence."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import check_each

import rnnops as ro
from rnnops.onnx import load_model
from rnnops.recurrent.recurrence import Recurrence

SOURCE = """
import torch


class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.h = torch.nn.Linear(3, 4), torch.nn.Linear(4, 4)

    def forward(self, x, h):
        return torch.tanh(self.i(x) + self.h(h))


class Stacked(Cell):
    def forward(self, x, h):
        out = []
        for t in range(x.size(0)):
            h = torch.tanh(self.i(x[t]) + self.h(h))
            out.append(h)
        return torch.stack(out), h


class Backwards(Cell):
    def forward(self, x, h):
        out = []
        for t in range(x.size(0)):
            h = torch.tanh(self.i(x[x.size(0) - 1 - t]) + self.h(h))
            out.append(h.unsqueeze(0))
        return torch.cat(out, 0), h


class Unbound(Cell):
    def forward(self, x, h):
        total = torch.zeros(x.size(1), 4)
        for xt in x.unbind(0):
            h = torch.tanh(self.i(xt) + self.h(h))
            total = total + h
        return total, h


class Written(Cell):
    def forward(self, x, h):
        out = torch.zeros(x.size(0), x.size(1), 4)
        for t in range(x.size(0)):
            h = torch.tanh(self.i(x[t]) + self.h(h))
            out[t] = h
        return out, h


class WhileLoop(Cell):
    def forward(self, x, h):
        start = torch.tensor(0), torch.zeros(x.shape[0], h.shape[0], 4), h
        return torch.while_loop(lambda t, out, h: t < x.shape[0], lambda t, out, h: self.step(x, t, out, h), start)[1:]


class ByItem(WhileLoop):
    def step(self, x, t, out, h):
        place = t.item()
        torch._check(place >= 0)
        torch._check(place < x.shape[0])
        h, out = torch.tanh(self.i(x[place]) + self.h(h)), out.clone()
        out[place] = h
        return t + 1, out, h


class ByTensor(WhileLoop):
    def step(self, x, t, out, h):
        xt = torch.index_select(x, 0, t.reshape(1)).squeeze(0)
        h = torch.tanh(self.i(xt) + self.h(h))
        return t + 1, torch.index_put(out, (t,), h), h
"""
AXES = {"x": {0: "T", 1: "N"}, "h": {0: "N"}}


@pytest.mark.filterwarnings("ignore")  # PyTorch says that both ways are old
def test_scripted_loops(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    modules = loaded(tmp_path)

    def check(name: str) -> None:
        module, file = torch.jit.script(getattr(modules, name)()), tmp_path / "loop.onnx"
        feeds, options = (torch.randn(5, 2, 3), torch.randn(2, 4)), {"input_names": list(AXES), "dynamic_axes": AXES}
        torch.onnx.export(module, feeds, file, dynamo=False, opset_version=17, **options)
        inputs = check_numbers(module, file)
        assert len(inputs) == 1 or name == "Written"  # it reads sizes of a step of what it writes

    check_each(["Stacked", "Backwards", "Unbound", "Written"], check)


@pytest.mark.filterwarnings("ignore")
def test_while_loops_that_write_in_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    modules = loaded(tmp_path)
    monkeypatch.setitem(sys.modules, "scripted_loops", modules)

    def check(name: str) -> None:
        module, file = getattr(modules, name)(), tmp_path / "loop.onnx"
        axes = {key: {axis: torch.export.Dim(size, min=2) for axis, size in of.items()} for key, of in AXES.items()}
        feeds = torch.randn(5, 2, 3), torch.randn(2, 4)
        torch.onnx.export(module, feeds, dynamo=True, dynamic_shapes=axes, verbose=False).save(file)
        assert len(check_numbers(module, file)) == 1

    check_each(["ByItem", "ByTensor"], check)


def check_numbers(module: Any, file: Path) -> list[Any]:
    """Compare with PyTorch at other sizes; the sequences of the one recurrence, whose cell has no array of steps."""
    torch = pytest.importorskip("torch")
    model, x, h = load_model(file), torch.randn(7, 3, 3), torch.randn(3, 4)
    out = ro.compile(model.net, device="reference")(model.params, x=x.numpy(), h=h.numpy())
    for result, wanted in zip(out.values(), module(x, h), strict=True):
        np.testing.assert_allclose(result, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    (op,) = [op for op in model.net.ops if op.type == "RecurrentNetwork"]
    assert len(op.attributes["states"]) <= 2
    assert not {"ScatterND", "ScatterElements"} & {op.type for op in Recurrence(op, model.net.name).cell.ops}
    return list(op.attributes["inputs"])


def loaded(folder: Path) -> Any:
    """The module of a file: PyTorch scripts what it finds the source of."""
    path = folder / "scripted_loops.py"
    path.write_text(SOURCE, encoding="utf-8")
    spec = spec_from_file_location("scripted_loops", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
