"""FlashRNN (Poeppel and others, arXiv 2412.07752): the LSTM in its fused CUDA kernels, as an optional peer.

It takes the products of the inputs ready: PyTorch computes them here, and they are counted. Weights are brought into
the layout in which its kernels read them before the clock runs; gates lie in the order input, forget, candidate,
output. Its float32 kernels multiply in TF32. They are compiled by nvcc, for each size, when they are first called.
Where PyTorch is on a processor, its reference in PyTorch stands in, to see that layouts fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from flashrnn import FlashRNNConfig, flashrnn
from torch import Tensor

from bench.case import Entry
from bench.contender import Bench, Contender, gradient_of, named
from bench.data import Placed
from bench.layouts import TORCH_LSTM
from bench.torch_engine import Tensors, dtype_of, leaves, passes

GATES, ONE_HEAD = 4, "H"
LAYOUTS = {  # axes of what the kernels read: inputs, recurrent weights, biases; T steps, B rows, D features, P before
    "cuda_fused": ("TBHDG", "HDGP", "HDG"),
    "vanilla": ("TBGHD", "HPGD", "GHD"),
}
STATES = "STBHD"


def lstm(entry: Entry, bench: Bench) -> Contender:
    """The LSTM of a problem; results are in our layout, so that they can be compared."""
    backend = "cuda_fused" if bench.place.torch_device == "cuda" else "vanilla"
    inputs, recurrent, bias = LAYOUTS[backend]
    size, dtype = entry.problem.size, entry.floats.dtype
    config = FlashRNNConfig(
        backend=backend, function="lstm", head_dim=size.H, num_heads=1, batch_size=size.N,
        dtype=dtype, dtype_w=dtype, dtype_r=dtype, dtype_b=dtype,
        input_shape=inputs, recurrent_shape=recurrent, bias_shape=bias, output_shape=STATES,
    )  # fmt: skip
    weights = weights_of(entry, bench, inputs, recurrent, bias)
    shape = [{"T": size.T, "B": size.N, "G": GATES, "H": 1, "D": size.H}[axis] for axis in inputs]

    def outputs_of(feeds: Tensors) -> Tensors:
        given = (feeds["xs"] @ weights["w_x"]).view(shape)
        states = torch.stack([feeds["h0"], feeds["c0"]])[:, None, :, None, :]
        every, last = flashrnn(given, weights["w_h"], weights["b"], states, config=config)
        return {"y": every[0, :, :, 0], "c_last": last[1, :, :, 0]}

    sets, heads = leaves(entry, bench)
    wanted = [{**{name: leaf for name, leaf in one.items() if name not in weights}, **weights} for one in sets]
    call = passes(entry, bench, outputs_of, sets, wanted, heads)
    return Contender(call, lambda returned: in_our_layout(named(returned), inputs, recurrent, bias))


def weights_of(entry: Entry, bench: Bench, inputs: str, recurrent: str, bias: str) -> Tensors:
    """Our parameters as the kernels read them; columns of the input weights lie as the axes of the inputs do."""
    arrays = bench.data(entry.problem).parameters
    device, dtype = bench.place.torch_device or "cpu", dtype_of(entry)

    def placed(name: str, before: str, after: str) -> Tensor:
        parts = torch.from_numpy(arrays[name]).to(device, dtype).unflatten(-1, (GATES, -1))
        found = moved(parts.index_select(-2, torch.tensor(TORCH_LSTM, device=device)), before, after)
        return found.contiguous().requires_grad_(entry.is_training)

    w_x = placed("w_x", "XGD", "X" + _columns(inputs)).detach().flatten(1).requires_grad_(entry.is_training)
    return {"w_x": w_x, "w_h": placed("w_h", "PGD", recurrent), "b": placed("b", "GD", bias)}


def moved(tensor: Tensor, before: str, after: str) -> Tensor:
    """Axes by letters in another order; the one head comes or goes."""
    if ONE_HEAD in before:
        tensor, before = tensor.squeeze(before.index(ONE_HEAD)), before.replace(ONE_HEAD, "")
    tensor = tensor.permute([before.index(axis) for axis in after if axis != ONE_HEAD])
    return tensor.unsqueeze(after.index(ONE_HEAD)) if ONE_HEAD in after else tensor


def in_our_layout(results: Mapping[str, Any], inputs: str, recurrent: str, bias: str) -> Placed:
    """Outputs as they are, gradients of weights as we have them."""
    found = dict(results)
    columns = _columns(inputs)
    for name, before in (("w_x", "X" + columns), ("w_h", recurrent), ("b", bias)):
        if gradient_of(name) in found:
            came = found[gradient_of(name)]
            came = came.unflatten(-1, (-1, GATES) if columns == "DG" else (GATES, -1)) if name == "w_x" else came
            parts = moved(came, before, {"w_x": "XGD", "w_h": "PGD", "b": "GD"}[name])
            order = torch.tensor(TORCH_LSTM, device=parts.device)  # the same way back
            found[gradient_of(name)] = parts.index_select(-2, order).flatten(-2).contiguous()
    return found


def _columns(inputs: str) -> str:
    """How gates and features of the inputs lie."""
    return "".join(axis for axis in inputs if axis in "GD")
