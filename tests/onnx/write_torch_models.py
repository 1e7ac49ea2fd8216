"""Writes `torch_models/`: modules as PyTorch's exporters write them, with PyTorch's own numbers.

Recurrent modules, and modules that compute sizes. Of the latter the numbers are of other sizes than the exporter saw,
and `script_` is what the older exporter writes, which computes even constant sizes by a chain of ops.

Run by hand where torch, onnxscript and onnx are installed: `python tests/onnx/write_torch_models.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

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


class ZeroState(nn.Module):
    """An LSTM whose first states are zeros of the batch's size."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(D, H)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x, (x.new_zeros(1, x.size(1), H), torch.zeros(1, x.size(1), H)))[0]


class ExpandedState(nn.Module):
    """A GRU whose first state is a parameter, expanded to the batch's size."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.h0 = nn.GRU(D, H), nn.Parameter(torch.randn(1, 1, H))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x, self.h0.expand(-1, x.size(1), -1).contiguous())[0]


class CellLoop(nn.Module):
    """A cell that is run step by step from zeros of the batch's size."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(D, H)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.size(1), H)
        steps = []
        for x_t in x.unbind(0):
            h = self.cell(x_t, h)
            steps.append(h)
        return torch.stack(steps)


class Pads(nn.Module):
    """Every mode of padding, of the last axis and of others, with what is cut off."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        image = x[None, None]
        return (
            F.pad(x, (2, 1), value=0.5),
            F.pad(x, (-1, 0, 0, 2, 1, -1)),
            F.pad(x, (1, 1), mode="reflect"),
            F.pad(x[None], (-1, 0, 1, 1), mode="reflect"),
            F.pad(x[None], (2, 0, 1, 2), mode="replicate"),
            F.pad(image, (1, 2, 0, 3, 2, 0), mode="replicate"),
            F.pad(x, (1, 1), mode="circular"),
            F.pad(x, (0, x.size(2))),
        )


class Sizes(nn.Module):
    """Shapes that follow from other shapes."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, steps = x[:, :1], torch.arange(x.size(0), dtype=torch.float32)
        return (
            first.expand(-1, 6, -1),
            first.expand_as(x) * torch.ones_like(x),
            torch.cat([x[0], torch.zeros(x.size(1), H), torch.full((x.size(1), 1), 0.5)], 1),
            x[:1].repeat(2, 1, 3) + x.new_full((1, x.size(1), 1), 2.5),
            x.view(-1, x.size(2)),
            x * steps[:, None, None] / x.size(1),
        )


class Mask(nn.Module):
    """Steps beyond a row's length are zeros; rows know their length as a class, too."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        valid = torch.arange(x.size(0))[:, None] < lengths[None, :]
        return x * valid[:, :, None].to(x.dtype), x.sum() * F.one_hot(lengths, 9).to(x.dtype)


def sized_modules() -> dict[str, tuple[nn.Module, tuple[str, ...]]]:
    """Name -> a module that computes sizes, and what it reads; a loop over steps has T of them."""
    return {
        "lstm_zero_state": (ZeroState(), ("x",)),
        "gru_expanded_state": (ExpandedState(), ("x",)),
        "gru_cell_loop": (CellLoop(), ("x",)),
        "pads": (Pads(), ("x",)),
        "sizes": (Sizes(), ("x",)),
        "mask": (Mask(), ("x", "lengths")),
    }


def sized_inputs(name: str, t: int, n: int) -> dict[str, torch.Tensor]:
    """Inputs of such a module."""
    given = {"x": torch.randn(t, n, D), "lengths": torch.randint(1, t, (n,))}
    return {key: given[key] for key in sized_modules()[name][1]}


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
    export(folder / f"{name}.onnx", module, inputs, dynamic_shapes(name, inputs))
    np.savez(folder / f"{name}.npz", **numbers(module, inputs))


def write_sized(folder: Path, name: str) -> None:
    """Write a module that computes sizes, as both exporters write it, with numbers of other sizes."""
    module, _ = sized_modules()[name]
    inputs, loops = sized_inputs(name, T, N), name in ("gru_cell_loop", "lstm_zero_state", "gru_expanded_state")
    open_axes = {"x": {1: "N"} if loops else {0: "T", 1: "N"}, "lengths": {0: "N"}}
    axes = {key: open_axes[key] for key in inputs}
    shapes = tuple({axis: torch.export.Dim(dim, min=2) for axis, dim in found.items()} for found in axes.values())
    export(folder / f"{name}.onnx", module, inputs, shapes)
    script = {"dynamo": False, "input_names": list(inputs), "dynamic_axes": axes, "opset_version": 17}
    torch.onnx.export(module, tuple(inputs.values()), str(folder / f"script_{name}.onnx"), **script)
    arrays = numbers(module, sized_inputs(name, T if loops else T + 2, N + 1))
    for stem in (name, f"script_{name}"):
        np.savez(folder / f"{stem}.npz", **arrays)


def export(path: Path, module: nn.Module, inputs: dict[str, torch.Tensor], shapes: tuple[dict[int, Any], ...]) -> None:
    """Write a module by the current exporter."""
    module.eval()
    program = torch.onnx.export(module, tuple(inputs.values()), dynamo=True, dynamic_shapes=shapes, verbose=False)
    model = program.model_proto
    for node in model.graph.node:
        del node.metadata_props[:]  # where in the source it came from, which is most of the file
    onnx.save(model, path)


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
    for name in sized_modules():
        write_sized(FOLDER, name)


if __name__ == "__main__":
    main()
