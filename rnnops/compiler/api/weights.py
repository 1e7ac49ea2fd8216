"""`weights=` of `run.bind`: how bound weights of products are kept, and which runs can keep them so."""

from __future__ import annotations

from rnnops.compiler.execute.compiled_scan import EXACT, Options
from rnnops.errors import DeviceError, FeedError
from rnnops.ops.int8_products import INT8

OF_CUDA = "The CUDA device keeps recurrent weights as float16: ro.compile(net, device='cuda', weights='float16')."


def check_weights(net: str, weights: str, device: str, options: Options) -> None:
    """Raise FeedError for no way to keep weights, DeviceError where a device or a precision has not this one."""
    if weights != INT8:
        raise FeedError("no such way to keep weights", net=net, wanted="'int8', or None", came=repr(weights))
    if not options.interpreted and INT8 not in options.target.weight_types:
        problem, hint = f"device '{device}' has no products with weights of int8", OF_CUDA if device == "cuda" else None
        raise DeviceError(problem, net=net, wanted="device='cpu' or 'reference'", came=repr(weights), hint=hint)
    if options.precision != EXACT:
        problem = "weights of int8 are for products that round nothing else"
        hint = "Leave precision= or weights= out."
        raise DeviceError(problem, net=net, wanted="precision='float32'", came=repr(options.precision), hint=hint)
