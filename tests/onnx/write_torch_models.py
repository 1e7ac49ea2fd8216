"""Writes `torch_models/`: recurrent modules as PyTorch's current exporter writes them, with PyTorch's own numbers.

Run by hand where torch, onnxscript and onnx are installed: `python tests/onnx/write_torch_models.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

FOLDER = Path(__file__).parent / "torch_models"
T, N, D, H = 5, 3, 2, 4
KINDS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class Plain(nn.Module):
    """A recurrent module and a linear layer on top of it."""

    def __init__(self, rnn: nn.Module, features: int) -> None:
        super().__init__()
        self.rnn, self.head = rnn, nn.Linear(features, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0])


class Stateful(nn.Module):
    """A recurrent module that is given its first state and gives its last."""

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: torch.Tensor, h0: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.rnn(x, h0)


class Masked(nn.Module):
    """A module over rows of different lengths: a mask on its results, and each row's last valid one."""

    def __init__(self, rnn: nn.Module, features: int) -> None:
        super().__init__()
        self.rnn, self.head = rnn, nn.Linear(features, 2)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        y = self.rnn(x)[0]
        valid = torch.arange(y.shape[0])[:, None] < lengths[None, :]
        y = torch.where(valid[:, :, None], y, torch.zeros_like(y))
        return self.head(y.sum(dim=0) / lengths[:, None].to(y.dtype))


def modules() -> dict[str, tuple[nn.Module, dict[str, torch.Tensor]]]:
    """Name -> module and inputs."""
    x, lengths = torch.randn(T, N, D), torch.tensor([2, 5, 3])
    found: dict[str, tuple[nn.Module, dict[str, torch.Tensor]]] = {}
    for name, kind in KINDS.items():
        found[name] = Plain(kind(D, H), H), {"x": x}
        found[f"{name}_two_layers"] = Plain(kind(D, H, num_layers=2), H), {"x": x}
        found[f"{name}_bidirectional"] = Plain(kind(D, H, num_layers=2, bidirectional=True), 2 * H), {"x": x}
        found[f"{name}_lengths"] = Masked(kind(D, H, bidirectional=True), 2 * H), {"x": x, "lengths": lengths}
    found["gru_batch_first"] = Plain(nn.GRU(D, H, batch_first=True), H), {"x": x.transpose(0, 1).contiguous()}
    found["gru_state"] = Stateful(nn.GRU(D, H)), {"x": x, "h0": torch.randn(1, N, H)}
    return found


def dynamic_shapes(name: str, inputs: dict[str, torch.Tensor]) -> tuple[dict[int, Any], ...]:
    """N differs from run to run. T is fixed: whatever is asked for, the exporter writes it into a Reshape."""
    axes = {"x": 0 if "batch_first" in name else 1, "lengths": 0, "h0": 1}
    return tuple({axes[key]: torch.export.Dim("N")} for key in inputs)


def write(folder: Path, name: str, module: nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    """Write the model and what PyTorch computes of the same inputs, gradients of the sum of `w * y` included."""
    module.eval()
    shapes = dynamic_shapes(name, inputs)
    program = torch.onnx.export(module, tuple(inputs.values()), dynamo=True, dynamic_shapes=shapes, verbose=False)
    model = program.model_proto
    for node in model.graph.node:
        del node.metadata_props[:]  # where in the source it came from, which is most of the file
    onnx.save(model, folder / f"{name}.onnx")
    np.savez(folder / f"{name}.npz", **numbers(module, inputs))


def numbers(module: nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Inputs, results, weights of the results, parameters, gradients."""
    leaves = {key: value.clone().requires_grad_(value.is_floating_point()) for key, value in inputs.items()}
    results = module(*leaves.values())
    results = results if isinstance(results, tuple) else (results,)
    weights = [torch.randn_like(result) for result in results]
    sum((weight * result).sum() for weight, result in zip(weights, results, strict=True)).backward()
    leaves.update(module.named_parameters())
    arrays = {f"in/{key}": value for key, value in inputs.items()}
    arrays.update({f"value/{key}": value.detach() for key, value in module.named_parameters()})
    arrays.update({f"grad/{key}": value.grad for key, value in leaves.items() if value.grad is not None})
    for k, (result, weight) in enumerate(zip(results, weights, strict=True)):
        arrays.update({f"out/{k}": result.detach(), f"weight/{k}": weight})
    return {key: value.numpy() for key, value in arrays.items()}


def main() -> None:
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    for name, (module, inputs) in modules().items():
        write(FOLDER, name, module, inputs)


if __name__ == "__main__":
    main()
