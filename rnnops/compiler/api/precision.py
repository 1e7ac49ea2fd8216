"""`precision=` of `ro.compile`: what operands of products are rounded to, and which devices do it."""

from __future__ import annotations

from rnnops.compiler.execute.compiled_scan import EXACT
from rnnops.errors import DeviceError
from rnnops.net import Net
from rnnops.ops.rounded_products import FORMATS

PRECISIONS = (EXACT, *FORMATS)
OF_CUDA = "The CUDA device multiplies them on tensor cores; the reference device computes what they mean."


def check_precision(net: str, precision: object, device: str, known: tuple[str, ...]) -> str:
    """What operands of products are rounded to; processors do not round to `"tfloat32"` and `"float16"`.

    Args:
        net: name of the net.
        known: precisions that the device has.

    Raises DeviceError for what is no precision, and for one that the device has not.
    """
    if not isinstance(precision, str) or precision not in known:
        is_one = isinstance(precision, str) and precision in PRECISIONS
        problem = f"device '{device}' does not round operands of products so" if is_one else "no such precision"
        hint = OF_CUDA if is_one else None
        raise DeviceError(problem, net=net, wanted=" or ".join(known), came=repr(precision), hint=hint)
    return precision


def check_floats(net: Net, precision: str, float_dtype: str) -> None:
    """Raise DeviceError where operands are to be rounded in a run of float64."""
    if precision != EXACT and float_dtype != "float32":
        problem = f"precision='{precision}' rounds what would be float32"
        raise DeviceError(problem, net=net.name, wanted="feeds of float32", came=float_dtype)
