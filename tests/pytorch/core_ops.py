"""The core aten ops: how a step may use each, or why it may not; `python tests/pytorch/core_ops.py` writes the page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody has it

from rnnops.torch.aten import PAIR_RULES

PAGE = Path(__file__).parent.parent.parent / "docs" / "pytorch_ops.md"
VERSION = "2.13"  # of PyTorch, whose list it is
H = 4
aten = torch.ops.aten
Call = Callable[[Any], Any]


def image(x: Any) -> Any:
    """[N, 2, 3, 4]"""
    return x[:, None, None, :] * torch.arange(1.0, 7.0, dtype=x.dtype).reshape(2, 3, 1).cos()


def volume(x: Any) -> Any:
    """[N, 1, 2, 3, 4]"""
    return image(x)[:, None]


def part(x: Any) -> Any:
    """[N, 4] in (0, 1)."""
    return x.sigmoid() * 0.8 + 0.1


def ones(x: Any, *size: int) -> Any:
    return torch.ones(*size or (H,), dtype=x.dtype)


def _each(names: str, call: Callable[[Any, Any], Any]) -> dict[str, Call]:
    """Calls of several ops in one way."""
    return {name: partial(call, getattr(aten, name)) for name in names.split()}


ELEMENTS = {
    **_each(
        "abs alias atan asinh ceil clone cos cosh elu erf exp expm1 floor gelu hardtanh isinf isnan", lambda f, x: f(x)
    ),
    **_each("leaky_relu neg relu round sigmoid sign sin sinh tan tanh trunc logical_not", lambda f, x: f(x)),
    **_each("acos asin atanh log log10 log1p log2 reciprocal rsqrt sqrt", lambda f, x: f(part(x))),
    **_each("acosh", lambda f, x: f(1 + part(x))),
    **_each("add sub mul div maximum minimum fmod remainder atan2", lambda f, x: f(x, x.flip(-1) + 3)),
    **_each("eq ne lt le gt ge", lambda f, x: f(x, x.flip(-1))),
    **_each("logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor", lambda f, x: f(x > 0, x < 0.5)),
    "bitwise_not": lambda x: aten.bitwise_not(x > 0),
    "clamp": lambda x: aten.clamp(x, -0.5, 0.5),
    "copy": lambda x: x.clone().copy_(x.sin()),
    "pow": lambda x: aten.pow(part(x), x) + aten.pow(x, 3),
    "where": lambda x: aten.where(x > 0, x, -x),
    "_to_copy": lambda x: aten._to_copy(x, dtype=torch.int64),
}
REDUCTIONS = {
    **_each("amax amin any argmax argmin cumsum max mean min sort sum", lambda f, x: f(x, 1)),
    "prod": lambda x: aten.prod(x, 1),
    "topk": lambda x: aten.topk(x, 2),
    "var": lambda x: aten.var(x, [1]),
    "_softmax": lambda x: aten._softmax(x, 1, False),
    "_log_softmax": lambda x: aten._log_softmax(x, 1, False),
    "native_layer_norm": lambda x: aten.native_layer_norm(x, [H], ones(x), None, 1e-5)[0],
    "native_group_norm": lambda x: aten.native_group_norm(image(x), None, None, x.shape[0], 2, 12, 2, 1e-5)[0],
    "_native_batch_norm_legit": lambda x: aten._native_batch_norm_legit.no_stats(image(x), None, None, True, 0.1, 1e-5)[
        0
    ],
    "_native_batch_norm_legit_no_training": lambda x: aten._native_batch_norm_legit_no_training(
        x, None, None, ones(x), ones(x), 0.1, 1e-5
    )[0],
    "_cdist_forward": lambda x: torch.cdist(image(x)[:, 0], image(x)[:, 1]),
    "_pdist_forward": lambda x: torch.pdist(x),
}
MADE = {
    "arange": lambda x: aten.arange.start_step(0, H, 1, dtype=x.dtype) * x,
    "empty": lambda x: aten.empty([2]).shape[0] * x,
    "empty_strided": lambda x: aten.empty_strided([2], [1]).shape[0] * x,
    "fill": lambda x: aten.fill(x, 2.0) * x,
    "full": lambda x: aten.full([H], 2.0, dtype=x.dtype) * x,
    "full_like": lambda x: aten.full_like(x, 2.0) * x,
    "scalar_tensor": lambda x: aten.scalar_tensor(2.0, dtype=x.dtype) * x,
    "sym_size": lambda x: aten.sym_size(x, 0) * x,
    "sym_numel": lambda x: aten.sym_numel(x) * x,
    "sym_stride": lambda x: aten.sym_stride(x, 0) * x,
    "sym_is_contiguous": lambda x: x * x.is_contiguous(),
    "rand": lambda x: torch.rand(H, dtype=x.dtype) * 0 + x,
    "randn": lambda x: torch.randn(H, dtype=x.dtype) * 0 + x,
}
MOVED = {
    "cat": lambda x: aten.cat([x, -x], 1),
    "col2im": lambda x: F.fold(x[:, :, None].expand(-1, -1, 4), 3, 2),
    "embedding_dense_backward": lambda x: aten.embedding_dense_backward(
        x[:, None].expand(-1, 4, -1), x.argsort(1), 5, -1, False
    ),
    "constant_pad_nd": lambda x: aten.constant_pad_nd(x, [1, 2], 0.5),
    "diagonal": lambda x: aten.diagonal(image(x), 0, 2, 3),
    "embedding": lambda x: aten.embedding(ones(x, 5, H), x.argsort(1)),
    "expand": lambda x: aten.expand(x[:, :1], [x.shape[0], H]),
    "flip": lambda x: aten.flip(x, [1]),
    "gather": lambda x: aten.gather(x, 1, x.argsort(1)),
    "index": lambda x: aten.index(x, [None, torch.tensor([2, 0])]),
    "index_put": lambda x: aten.index_put(x, [x > 0], torch.tensor(2.0, dtype=x.dtype)),
    "index_select": lambda x: aten.index_select(x, 1, torch.tensor([2, 0])),
    "permute": lambda x: aten.permute(image(x), [0, 2, 3, 1]),
    "repeat": lambda x: aten.repeat(x, [1, 2]),
    "scatter": lambda x: aten.scatter(x, 1, x.argsort(1)[:, :2], x[:, :2]),
    "scatter_add": lambda x: aten.scatter_add(x, 1, x.argsort(1), x),
    "scatter_reduce": lambda x: aten.scatter_reduce(x, 1, x.argsort(1), x, "sum"),
    "select": lambda x: aten.select(x, 1, 2),
    "select_scatter": lambda x: aten.select_scatter(x, x[:, 0], 1, 2),
    "slice": lambda x: aten.slice(x, 1, 1, 3),
    "slice_scatter": lambda x: aten.slice_scatter(x, x[:, :2], 1, 0, 2),
    "split_with_sizes": lambda x: aten.split_with_sizes(x, [1, 3], 1),
    "squeeze": lambda x: aten.squeeze(x[:, :1], 1),
    "unsqueeze": lambda x: aten.unsqueeze(x, 1),
    "view": lambda x: aten.view(x, [x.shape[0], 2, 2]),
    **_each("reflection_pad1d", lambda f, x: f(x, [1, 2])),
    **_each("reflection_pad2d replication_pad2d", lambda f, x: f(image(x), [1, 2, 1, 1])),
    **_each("reflection_pad3d replication_pad3d", lambda f, x: f(volume(x), [1, 2, 1, 1, 1, 1])),
}
PRODUCTS = {
    "addmm": lambda x: aten.addmm(ones(x), x, ones(x, H, H)),
    "bmm": lambda x: aten.bmm(image(x)[:, 0], image(x)[:, 1].mT),
    "mm": lambda x: aten.mm(x, ones(x, H, 3)),
    "convolution": lambda x: aten.convolution(
        image(x), ones(x, 3, 2, 2, 2), None, [1, 1], [1, 0], [1, 1], False, [0, 0], 1
    ),
    "avg_pool1d": lambda x: aten.avg_pool1d(x, [2]),
    "adaptive_avg_pool1d": lambda x: aten.adaptive_avg_pool1d(x, [3]),
    "avg_pool2d": lambda x: aten.avg_pool2d(image(x), [2, 2]),
    "avg_pool3d": lambda x: aten.avg_pool3d(volume(x), [2, 2, 2]),
    "max_pool2d_with_indices": lambda x: aten.max_pool2d_with_indices(image(x), [2, 2])[0],
    "max_pool3d_with_indices": lambda x: aten.max_pool3d_with_indices(volume(x), [2, 2, 2])[0],
    "_adaptive_avg_pool2d": lambda x: aten._adaptive_avg_pool2d(image(x), [2, 3]),
    "_adaptive_avg_pool3d": lambda x: aten._adaptive_avg_pool3d(volume(x), [2, 2, 3]),
    "upsample_bilinear2d": lambda x: aten.upsample_bilinear2d.vec(image(x), [5, 7], False, None),
    "upsample_nearest2d": lambda x: aten.upsample_nearest2d.vec(image(x), [5, 7], None),
    "grid_sampler_2d": lambda x: aten.grid_sampler_2d(image(x), image(x).permute(0, 2, 3, 1).tanh(), 0, 0, False),
}
GROUPS = {"elements": ELEMENTS, "reductions": REDUCTIONS, "made": MADE, "moved": MOVED, "products": PRODUCTS}
LIMITS = {  # of ops that a step may use; the rest is refused by name
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), "without `ceil_mode` and `divisor_override`"),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), "values only, without `ceil_mode`"),
    **dict.fromkeys(("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"), "of bools"),
    **dict.fromkeys(("native_layer_norm", "native_group_norm"), "the first result"),
    **dict.fromkeys(("_cdist_forward", "_pdist_forward"), "of order 1 or 2"),
    **dict.fromkeys(("rand", "randn"), "`torch.rand` and `torch.randn`, with the numbers of rnnops"),
    "_native_batch_norm_legit": "without running statistics",
    "gather": "an index of the same size along other axes",
    "index": "by integers, or by a mask that puts the elements back",
    "index_put": "by integers, or one value where a mask holds",
    "prod": "of 64 factors or fewer",
    "scatter_reduce": "sums that include the tensor itself",
}
OUR_OWN = "a backward pass; rnnops derives its own"
REFUSED: dict[str, tuple[str, Call | None]] = {  # why a step may not use an op, and a step that does
    "_adaptive_avg_pool2d_backward": (OUR_OWN, lambda x: aten._adaptive_avg_pool2d_backward(x[None], x[None])),
    "_embedding_bag": ("bags whose sizes follow from data", lambda x: F.embedding_bag(ones(x, 5, H), x.argsort(1))),
    "_fft_c2r": ("a Fourier transform", lambda x: torch.fft.irfft(x)),
    "_fft_r2c": ("a Fourier transform", lambda x: torch.fft.rfft(x).abs()),
    "_local_scalar_dense": ("a number that differs from step to step", lambda x: x * x[0, 0].item()),
    "as_strided": ("where elements lie in memory", lambda x: aten.as_strided(x, [2, 2], [1, 1])),
    "avg_pool2d_backward": (
        OUR_OWN, lambda x: aten.avg_pool2d_backward(x[None], x[None], [1, 1], [1, 1], [0, 0], False, True, None)
    ),
    "convolution_backward": (OUR_OWN, None),
    "masked_scatter": ("places that follow from data", lambda x: aten.masked_scatter(x, x > 0, x)),
    "max_pool2d_with_indices_backward": (OUR_OWN, None),
    "native_dropout": (
        "draws by itself; `torch.nn.functional.dropout` is followed", lambda x: aten.native_dropout(x, 0.5, True)[0]
    ),
    "native_group_norm_backward": (OUR_OWN, None),
    "native_layer_norm_backward": (OUR_OWN, None),
    "nonzero": ("a size that follows from data", lambda x: aten.nonzero(x)),
    "randperm": ("a random order", lambda x: x[:, torch.randperm(H)]),
    "resize_": ("where elements lie in memory", None),
    "sym_storage_offset": ("where elements lie in memory", lambda x: x + aten.sym_storage_offset(x)),
}  # fmt: skip


def core_ops() -> list[str]:
    """Names of all core aten ops of PyTorch, without overloads."""
    found = set()
    for qualified in torch._C._dispatch_get_all_op_names():
        name, _, overload = qualified.removeprefix("aten::").partition(".")
        op = getattr(getattr(aten, name, None), overload or "default", None) if "aten::" in qualified else None
        if op is not None and torch.Tag.core in op.tags:
            found.add(name)
    return sorted(found)


def table() -> str:
    """The rows of the page."""
    allowed = {name for group in GROUPS.values() for name in group}
    rows = [f"| `{name}` | yes | {'yes' if name in PAIR_RULES else ''} | {LIMITS.get(name, '')} |" for name in allowed]
    rows += [f"| `{name}` | no | | {reason} |" for name, (reason, _) in REFUSED.items()]
    return "\n".join(["| op | in a step | of complex tensors | |", "|---|---|---|---|", *sorted(rows)])


def page() -> str:
    """The page with the rows as they are now."""
    head = PAGE.read_text().partition("| op |")[0]
    return f"{head}{table()}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
