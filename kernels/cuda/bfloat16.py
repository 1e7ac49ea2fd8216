"""bfloat16 on a CUDA device: as `kernels/cpu/bfloat16.py`, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rnnops.kernels.cuda.facade import compiled_as, types

ONE, HALF, WIDTH, QUIET_NAN = np.uint32(1), np.uint32(0x7FFF), np.uint32(16), np.uint32(0x7FC00000)


def _code(kind: Any) -> Callable[[Any], Any]:
    def code(x: Any) -> Any:
        bits = np.uint32(QUIET_NAN if x != x else np.float32(x).view(np.uint32))
        return kind(np.uint32(bits + (np.uint32(bits >> WIDTH) & ONE) + HALF) >> WIDTH)

    return code


def _value(kind: Any) -> Callable[[Any], Any]:
    def value(code: Any) -> Any:
        return kind(np.uint32(np.uint32(code) << WIDTH).view(np.float32))

    return value


_code_single, _code_double = _code(np.float32), _code(np.float64)
_value_single, _value_double = _value(np.float32), _value(np.float64)


@compiled_as(lambda x: {types.float32: _code_single, types.float64: _code_double}.get(x))
def bfloat16_code(x: Any) -> Any:
    """The bits of x as bfloat16, a whole number."""
    return (_code_single if x.dtype == np.float32 else _code_double)(x)


@compiled_as(lambda x: {types.float32: _value_single, types.float64: _value_double}.get(x))
def bfloat16_value(code: Any) -> Any:
    """The number with these bits."""
    return (_value_single if code.dtype == np.float32 else _value_double)(code)
