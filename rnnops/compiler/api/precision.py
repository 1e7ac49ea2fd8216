"""Options of products: `precision=` of `ro.compile` and `weights=` of `run.bind`."""

from __future__ import annotations

from rnnops.compiler.execute.compiled_scan import EXACT, Options
from rnnops.errors import DeviceError, FeedError
from rnnops.net import Net
from rnnops.ops.products import FORMATS, INT8

PRECISIONS = (EXACT, *FORMATS)
ROUNDED_ON_CUDA = "The CUDA device multiplies them on tensor cores; the reference device computes what they mean."


def check_precision(net: str, precision: object, device: str, known: tuple[str, ...]) -> str:
    """The format to which operands of products are rounded; processors do not round to `"tfloat32"` and `"float16"`.

    Args:
        net: name of the net.
        known: precisions that the device has.

    Raises DeviceError for what is not a precision, and for one that the device has not.
    """
    if not isinstance(precision, str) or precision not in known:
        is_one = isinstance(precision, str) and precision in PRECISIONS
        problem = f"device '{device}' does not round operands of products so" if is_one else "no such precision"
        hint = ROUNDED_ON_CUDA if is_one else None
        raise DeviceError(problem, net=net, wanted=" or ".join(known), came=repr(precision), hint=hint)
    return precision


def check_floats(net: Net, precision: str, float_dtype: str) -> None:
    """Raise DeviceError where operands are to be rounded in a run of float64."""
    if precision != EXACT and float_dtype != "float32":
        problem = f"precision='{precision}' rounds what would be float32"
        raise DeviceError(problem, net=net.name, wanted="feeds of float32", came=float_dtype)


FLOAT16_ON_CUDA = (
    "The CUDA device keeps recurrent weights as float16: ro.compile(net, device='cuda', weights='float16')."
)


def check_weights(net: str, weights: str, device: str, options: Options) -> None:
    """Raise FeedError for no way to keep weights, DeviceError where a device or a precision has not this one."""
    if weights != INT8:
        raise FeedError("no such way to keep weights", net=net, wanted="'int8', or None", came=repr(weights))
    if not options.interpreted and INT8 not in options.target.weight_types:
        problem, hint = (
            f"device '{device}' has no products with weights of int8",
            FLOAT16_ON_CUDA if device == "cuda" else None,
        )
        raise DeviceError(problem, net=net, wanted="device='cpu' or 'reference'", came=repr(weights), hint=hint)
    if options.precision != EXACT:
        problem = "weights of int8 are for products that round nothing else"
        hint = "Leave precision= or weights= out."
        raise DeviceError(problem, net=net, wanted="precision='float32'", came=repr(options.precision), hint=hint)
