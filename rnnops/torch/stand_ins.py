"""Stand-ins: real tensors in place of those of a graph that is being made, while a step is prepared in its middle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, inference_mode
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn import Module, Parameter
from torch.overrides import _pop_mode_temporarily
from torch.utils._python_dispatch import _disable_current_modes


def is_in_graph(tensors: Sequence[Tensor]) -> bool:
    """Whether a graph is being made of what is done with these tensors."""
    return any(isinstance(tensor, FakeTensor | FunctionalTensor) for tensor in tensors)


@contextmanager
def outside_of_graphs(modules: Sequence[Module]) -> Iterator[None]:
    """Ops run at once in here, and parameters and buffers without values have random ones."""
    with ExitStack() as stack:
        while torch._C._len_torch_function_stack():
            stack.enter_context(_pop_mode_temporarily())
        stack.enter_context(_disable_current_modes())
        stack.enter_context(unset_fake_temporarily())
        stack.enter_context(inference_mode(False))
        for module in {id(module): module for root in modules for module in root.modules()}.values():
            stack.enter_context(_swapped(module._parameters, _real_ones(module._parameters)))
            stack.enter_context(_swapped(module._buffers, _real_ones(module._buffers)))
        yield


@contextmanager
def given_tensors(cell: Module | None, named: Mapping[str, Tensor]) -> Iterator[None]:
    """A module has a graph's parameters and buffers."""
    with ExitStack() as stack:
        for name, child in cell.named_modules() if named and cell is not None else ():
            for held in (child._parameters, child._buffers):
                full = {key: f"{name}.{key}" if name else key for key in held}
                stack.enter_context(_swapped(held, {key: named[path] for key, path in full.items() if path in named}))
        yield


@contextmanager
def _swapped(held: dict[str, Any], others: Mapping[str, Tensor]) -> Iterator[None]:
    before = dict(held)
    held.update(others)
    try:
        yield
    finally:
        held.update(before)


def _real_ones(held: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    return {name: _like(tensor) for name, tensor in held.items() if isinstance(tensor, FakeTensor | FunctionalTensor)}


def _like(tensor: Tensor) -> Tensor:
    shape = [int(size) for size in tensor.shape]
    if not tensor.is_floating_point():
        return torch.zeros(shape, dtype=tensor.dtype)
    made = torch.rand(shape, dtype=tensor.dtype)
    return Parameter(made, tensor.requires_grad) if isinstance(tensor, Parameter) else made
