"""Loops of modules that PyTorch scripts, exported anew: PyTorch's numbers, and steps as sequences of a recurrence."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import check_each

import rnnops as ro
from rnnops.onnx import load_model

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
"""


@pytest.mark.filterwarnings("ignore")  # PyTorch says that both ways are old
def test_scripted_loops(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    path = tmp_path / "scripted_loops.py"
    path.write_text(SOURCE, encoding="utf-8")
    modules = loaded(path)

    def check(name: str) -> None:
        module, file = torch.jit.script(getattr(modules, name)()), tmp_path / "loop.onnx"
        axes = {"x": {0: "T", 1: "N"}, "h": {0: "N"}}
        torch.onnx.export(
            module,
            (torch.randn(5, 2, 3), torch.randn(2, 4)),
            file,
            dynamo=False,
            opset_version=17,
            input_names=list(axes),
            dynamic_axes=axes,
        )
        model, x, h = load_model(file), torch.randn(7, 3, 3), torch.randn(3, 4)
        out = ro.compile(model.net, device="reference")(model.params, x=x.numpy(), h=h.numpy())
        for result, wanted in zip(out.values(), module(x, h), strict=True):
            np.testing.assert_allclose(result, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
        (op,) = [op for op in model.net.ops if op.type == "RecurrentNetwork"]
        assert len(op.attributes["inputs"]) == 1
        assert "Range" not in [op.type for op in model.net.ops]

    check_each(["Stacked", "Backwards", "Unbound"], check)


def loaded(path: Path) -> Any:
    """The module of a file: PyTorch scripts what it finds the source of."""
    spec = spec_from_file_location("scripted_loops", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
