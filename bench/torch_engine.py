"""PyTorch: its own layers, which are cuDNN's on a CUDA device, and cells of one's own as Python loops over the steps.

A layer has its weights transposed, `[4H, D]`, the gates of an LSTM in the order input, forget, candidate, output, and
two biases. Weights are brought into that layout before the clock runs, gradients back after it has stopped. On a CUDA
device TF32 is settled around every call, for cuBLAS and for cuDNN; PyTorch leaves it on for cuDNN otherwise.

**Torch own cells.** Recurrent cells in plain PyTorch, as users write them who find no such cell in a package.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import LayerNorm, Linear, Module, Parameter, functional
from torch.nn.utils import rnn

from bench.case import Entry
from bench.cells import EPSILON, encoder_rows
from bench.contender import Bench, Contender, gradient_of, named
from bench.layouts import TORCH_GRU, TORCH_LSTM, reorder
from bench.nets import ENCODED, ENCODER, user_net
from bench.problems import Arrays, Problem

Tensors = dict[str, Tensor]
Forward = Callable[[Tensors], Tensors]
W_X, W_H, B_X, B_H = LAYER = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
LSTM_NAMES = {"w_x": W_X, "w_h": W_H, "b": B_X}  # the second bias of the layer is zero
GRU_NAMES = {"w_x": W_X, "w_h": W_H, "b_x": B_X, "b_h": B_H}


OPS = SimpleNamespace(
    sigmoid=torch.sigmoid, tanh=torch.tanh, softmax=partial(torch.softmax, dim=-1),
    split=lambda x, parts: x.chunk(parts, dim=-1), named=lambda x, name: x, expand=lambda x: x[:, None],
    squeeze=torch.squeeze, swap=lambda x: x.transpose(0, 1),
    layer_norm=lambda x, scale, shift: functional.layer_norm(x, x.shape[-1:], scale, shift, EPSILON),
)  # fmt: skip


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


def loop(entry: Entry, bench: Bench, is_compiled: bool = False) -> Contender:
    """The cell at each step, eager or through `torch.compile`; unrolled over all steps that would take an hour."""
    cell = user_net(entry.problem.net).cell

    def step(*given: Tensor) -> tuple[Tensor, ...]:
        new: tuple[Tensor, ...] = cell(OPS, *given)
        return new

    stepped: Callable[..., Any] = step
    if is_compiled:
        torch._dynamo.reset()  # it gives up on a function that it has seen at too many sizes
        stepped = torch.compile(step, dynamic=False)  # sizes are fixed, so that the compiler may use them
    sets, heads = leaves(entry, bench)
    return Contender(passes(entry, bench, over_steps(entry.problem.net, stepped), sets, sets, heads), named)


def over_steps(net: str, step: Callable[..., Any]) -> Forward:
    """Outputs by name, from feeds by name, of a cell that Python steps."""
    states, others = user_net(net).states, user_net(net).others

    def outputs_of(feeds: Tensors) -> Tensors:
        if ENCODER[0] in feeds:
            before = encoder_rows(OPS, *(feeds[name] for name in ENCODER))
            feeds = {**feeds, **dict(zip(ENCODED, before, strict=True))}
        parameters = [feeds[name] for name in others]
        current = [feeds[state.initial] for state in states]
        steps = []
        for x_t in feeds["xs"].unbind(0):
            current = step(x_t, *current, *parameters)
            steps.append(current)
        columns = zip(states, zip(*steps, strict=True), strict=True)
        return {s.output: torch.stack(column) if s.whole else column[-1][None] for s, column in columns}

    return outputs_of


def layer(entry: Entry, bench: Bench, is_packed: bool = False) -> Contender:
    """`nn.LSTM` or `nn.GRU`, weights in its own layout.

    Args:
        is_packed: from a padded sequence to a padded sequence, as sequences are in a batch, packed in between.
    """
    problem, data = entry.problem, bench.data(entry.problem)
    is_gru, H = problem.net == "gru", problem.size.H
    names, order = (GRU_NAMES, TORCH_GRU) if is_gru else (LSTM_NAMES, TORCH_LSTM)
    module = (nn.GRU if is_gru else nn.LSTM)(H, H, device=bench.place.torch_device, dtype=dtype_of(entry))
    load(module, data.parameters, names, order)
    if bench.settings.is_cuda:  # what forward passes keep for backward, cuDNN keeps only in training
        module.train(entry.is_training).requires_grad_(entry.is_training)
    sets, heads = leaves(entry, bench)
    weights = {name: getattr(module, name) for name in LAYER}
    floats = [{name: leaf for name, leaf in one.items() if leaf.is_floating_point()} for one in sets]
    wanted = [{**{name: leaf for name, leaf in one.items() if name not in names}, **weights} for one in floats]
    outputs_of = partial(packed_outputs if is_packed else layer_outputs, module, problem)
    call = passes(entry, bench, outputs_of, sets, wanted, heads)
    return Contender(call, lambda returned: unloaded(named(returned), names, order))


def layer_outputs(layer: nn.RNNBase, problem: Problem, feeds: Tensors) -> Tensors:
    """What a layer puts out, by our names."""
    if isinstance(layer, nn.GRU):
        return {"y": layer(feeds["xs"], feeds["h0"][None])[0]}
    y, (_, c_last) = layer(feeds["xs"], (feeds["h0"][None], feeds["c0"][None]))
    return {"y": y, "c_last": c_last}


def packed_outputs(layer: nn.RNNBase, problem: Problem, feeds: Tensors) -> Tensors:
    packed = rnn.pack_padded_sequence(feeds["xs"], feeds["seq_lengths"].long(), enforce_sorted=False)
    y, (_, c_last) = layer(packed, (feeds["h0"][None], feeds["c0"][None]))
    return {"y": rnn.pad_packed_sequence(y, total_length=problem.size.T)[0], "c_last": c_last}


def products(entry: Entry, bench: Bench) -> Contender:
    """xs @ w_x and h @ w_h over the rows of all steps: what computing the gates again adds at least."""
    sets, _ = leaves(entry, bench)
    rows = [one["xs"].detach().flatten(0, 1) for one in sets]
    w_x, w_h = (sets[0][name].detach() for name in ("w_x", "w_h"))
    gates = torch.empty((rows[0].shape[0], w_x.shape[1]), dtype=rows[0].dtype, device=rows[0].device)

    def call(k: int) -> None:
        with tf32(entry.floats.tf32):
            torch.mm(rows[k % len(rows)], w_x, out=gates)
            gates.addmm_(rows[(k + 1) % len(rows)], w_h)

    return Contender(call)


def dtype_of(entry: Entry) -> torch.dtype:
    dtype = getattr(torch, entry.floats.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def leaves(entry: Entry, bench: Bench) -> tuple[list[Tensors], list[Tensors]]:
    """Feeds of all sets, in training as leaves, and gradients of outputs; memory is shared with the data in float32."""
    torch.set_num_threads(bench.settings.threads)
    dtype, data = dtype_of(entry), bench.data(entry.problem)

    def tensor(array: Any) -> Tensor:
        shared = torch.as_tensor(array).detach()
        return shared.to(dtype) if shared.is_floating_point() else shared

    sets = [{name: tensor(array) for name, array in one.feeds.items()} for one in data.sets]
    if entry.is_training:
        for leaf in (leaf for one in sets for leaf in one.values() if leaf.is_floating_point()):
            leaf.requires_grad_()
    return sets, [{name: tensor(array) for name, array in one.heads.items()} for one in data.sets]


def passes(
    entry: Entry, bench: Bench, outputs_of: Forward, sets: list[Tensors], wanted: list[Tensors], heads: list[Tensors]
) -> Callable[[int], Any]:
    """A call that gives outputs, and in training gradients of all that is wanted."""

    def settled() -> AbstractContextManager[None]:
        return tf32(entry.floats.tf32) if bench.settings.is_cuda else nullcontext()

    def forward(k: int) -> tuple[Tensors, Tensors]:
        with torch.no_grad(), settled():
            return outputs_of(sets[k % len(sets)]), {}

    def training(k: int) -> tuple[Tensors, Tensors]:
        k %= len(sets)
        with settled():
            outputs = outputs_of(sets[k])
            given = [outputs[name] for name in heads[k]]
            gradients = torch.autograd.grad(given, list(wanted[k].values()), list(heads[k].values()))
        return outputs, dict(zip(wanted[k], gradients, strict=True))

    return training if entry.is_training else forward


def load(layer: nn.RNNBase, arrays: Arrays, names: dict[str, str], order: tuple[int, ...]) -> None:
    """Our parameters into a layer."""
    with torch.no_grad():
        getattr(layer, B_H).zero_()
        for ours, theirs in names.items():
            value = np.ascontiguousarray(reorder(arrays[ours], order).T)
            getattr(layer, theirs).copy_(torch.from_numpy(value))


def unloaded(results: Tensors, names: dict[str, str], order: tuple[int, ...]) -> Tensors:
    """Gradients of a layer's parameters under our names and in our layout."""
    ours = {gradient_of(theirs): gradient_of(name) for name, theirs in names.items()}
    theirs = {gradient_of(name) for name in LAYER}
    rest = {name: tensor for name, tensor in results.items() if name not in theirs}
    return {**rest, **{ours[name]: reordered(results[name], order) for name in ours if name in results}}


def reordered(tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    """A weight as we have it: transposed, the parts of its gates in our order."""
    parts = tensor.chunk(len(order), dim=0)
    return torch.cat([parts[k] for k in order], dim=0).movedim(0, -1).contiguous()


States = tuple[Tensor, Tensor]


class PeepholeLSTM(Module):
    """An LSTM whose gates see the cell state, each through a weight of its own."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.from_input, self.from_state = Linear(features, 4 * width), Linear(width, 4 * width, bias=False)
        self.peephole = Parameter(0.3 * torch.randn(3, width))

    def forward(self, x: Tensor, states: States) -> States:
        h, c = states
        i, f, g, o = (self.from_input(x) + self.from_state(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f + self.peephole[0] * c) * c + torch.sigmoid(i + self.peephole[1] * c) * torch.tanh(g)
        return torch.sigmoid(o + self.peephole[2] * c) * torch.tanh(c), c


class MinimalGatedUnit(Module):
    """A GRU with its two gates made one."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.gate, self.candidate = Linear(features + width, width), Linear(features + width, width)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        f = torch.sigmoid(self.gate(torch.cat([x, h], dim=-1)))
        return h + f * (torch.tanh(self.candidate(torch.cat([x, f * h], dim=-1))) - h)


class LayerNormLSTM(Module):
    """An LSTM that normalizes what its gates and its output are made of."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.from_input, self.from_state = Linear(features, 4 * width), Linear(width, 4 * width, bias=False)
        self.gates_norm, self.state_norm = LayerNorm(4 * width), LayerNorm(width)

    def forward(self, x: Tensor, states: States) -> States:
        h, c = states
        i, f, g, o = self.gates_norm(self.from_input(x) + self.from_state(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(self.state_norm(c)), c
