"""PyTorch on a CUDA device: its layers, which are cuDNN's, the cells as Python loops, and two products over all steps.

TF32 is settled around every call, for cuBLAS and for cuDNN; PyTorch leaves it on for cuDNN otherwise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.contender import gradient_of
from bench.cuda_cases import CudaEntry
from bench.cuda_data import Data
from bench.cuda_peers import CudaContender, named
from bench.cuda_place import Place
from bench.layouts import TORCH_GRU, TORCH_LSTM
from bench.torch_cells import CELLS
from bench.torch_engine import Outputs, loop_over_steps
from bench.torch_layers import B_H, B_X, GRU_NAMES, LSTM_NAMES, W_H, W_X, layer_outputs, load

Forward = Callable[[Outputs], Outputs]


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    """Whether products of float32 may use TF32, set through the one interface that all releases have."""
    switches: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.cudnn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases would like other names
        before = [switch.allow_tf32 for switch in switches]
        for switch in switches:
            switch.allow_tf32 = on
    try:
        yield
    finally:
        for switch, was in zip(switches, before, strict=True):
            switch.allow_tf32 = was


def eager(entry: CudaEntry, data: Data, place: Place) -> CudaContender:
    return loop(entry, data, place, CELLS[entry.problem.net].step)


def compiled(entry: CudaEntry, data: Data, place: Place) -> CudaContender:
    """The step through `torch.compile`, sizes fixed; unrolled over all steps it would compile for an hour."""
    torch._dynamo.reset()  # it gives up on a function that it has seen at too many sizes
    return loop(entry, data, place, torch.compile(CELLS[entry.problem.net].step, dynamic=False))


def loop(entry: CudaEntry, data: Data, place: Place, step: Callable[..., Any]) -> CudaContender:
    sets, heads = leaves(entry, data, place)
    call = passes(entry, loop_over_steps(entry.problem.net, step), sets, sets, heads)
    return CudaContender(call, named)


def layer(entry: CudaEntry, data: Data, place: Place) -> CudaContender:
    """`nn.LSTM` or `nn.GRU`, weights in its own layout; what forward passes keep for backward only in training."""
    lstm, H = entry.problem.net == "lstm", entry.problem.size.H
    names, order = (LSTM_NAMES, TORCH_LSTM) if lstm else (GRU_NAMES, TORCH_GRU)
    module = (nn.LSTM if lstm else nn.GRU)(H, H, device=place.torch_device, dtype=dtype_of(entry))
    load(module, data.parameters, names, order)
    module.train(entry.mode == "training").requires_grad_(entry.mode == "training")
    sets, heads = leaves(entry, data, place)
    weights = {name: getattr(module, name) for name in (W_X, W_H, B_X, B_H)}
    wanted = [{**{name: leaf for name, leaf in one.items() if name not in data.parameters}, **weights} for one in sets]
    call = passes(entry, partial(layer_outputs, module), sets, wanted, heads)
    return CudaContender(call, lambda returned: unloaded(named(returned), names, order))


def products(entry: CudaEntry, data: Data, place: Place) -> CudaContender:
    """xs @ w_x and h @ w_h over the rows of all steps: what computing the gates again adds at least."""
    sets, _ = leaves(entry, data, place)
    rows = [one["xs"].detach().flatten(0, 1) for one in sets]
    w_x, w_h = (sets[0][name].detach() for name in ("w_x", "w_h"))
    gates = torch.empty((rows[0].shape[0], w_x.shape[1]), dtype=rows[0].dtype, device=rows[0].device)

    def call(k: int) -> None:
        with tf32(entry.settings.tf32):
            torch.mm(rows[k % len(rows)], w_x, out=gates)
            gates.addmm_(rows[(k + 1) % len(rows)], w_h)

    return CudaContender(call)


def dtype_of(entry: CudaEntry) -> torch.dtype:
    dtype = getattr(torch, entry.settings.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def leaves(entry: CudaEntry, data: Data, place: Place) -> tuple[list[Outputs], list[Outputs]]:
    """Feeds of all sets, in training as leaves, and gradients of outputs; memory is shared with the data in float32."""
    dtype, training = dtype_of(entry), entry.mode == "training"

    def tensors(arrays: dict[str, Any]) -> Outputs:
        return {name: torch.as_tensor(array).detach().to(dtype) for name, array in arrays.items()}

    sets = [tensors(one.feeds) for one in data.sets]
    if training:
        for one in sets:
            for leaf in one.values():
                leaf.requires_grad_()
    return sets, [tensors(one.heads) for one in data.sets]


def passes(
    entry: CudaEntry, outputs_of: Forward, sets: list[Outputs], wanted: list[Outputs], heads: list[Outputs]
) -> Callable[[int], Any]:
    """A call that gives outputs, and in training gradients of all that is wanted."""

    def forward(k: int) -> tuple[Outputs, Outputs]:
        with torch.no_grad(), tf32(entry.settings.tf32):
            return outputs_of(sets[k % len(sets)]), {}

    def training(k: int) -> tuple[Outputs, Outputs]:
        k %= len(sets)
        with tf32(entry.settings.tf32):
            outputs = outputs_of(sets[k])
            given = [outputs[name] for name in heads[k]]
            gradients = torch.autograd.grad(given, list(wanted[k].values()), list(heads[k].values()))
        return outputs, dict(zip(wanted[k], gradients, strict=True))

    return training if entry.mode == "training" else forward


def unloaded(results: dict[str, Any], names: dict[str, str], order: tuple[int, ...]) -> dict[str, Any]:
    """Gradients of a layer's parameters under our names and in our layout."""
    ours = {gradient_of(theirs): gradient_of(name) for name, theirs in names.items()}
    theirs = {gradient_of(name) for name in (W_X, W_H, B_X, B_H)}
    rest = {name: tensor for name, tensor in results.items() if name not in theirs}
    return {**rest, **{ours[name]: reordered(results[name], order) for name in ours if name in results}}


def reordered(tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    """A weight as we have it: transposed, the parts of its gates in our order."""
    parts = tensor.chunk(len(order), dim=0)
    return torch.cat([parts[k] for k in order], dim=0).movedim(0, -1).contiguous()
