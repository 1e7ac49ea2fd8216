"""Functions that compiled code calls by name: same results and errors, no copy of them in who calls."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numba
import numpy as np
import pytest

from rnnops.kernels.cpu.called_by_name import called_by_name
from rnnops.kernels.cpu.fastmath import types
from rnnops.kernels.cpu.gemm import gemm


def halved(x: Any, factor: float) -> float:
    if x.size == 0:
        raise ValueError("nothing to halve")
    return 0.5 * factor * x.sum()


HALVED: Any = called_by_name(halved, types.float64(types.float64[::1], types.float64))


@numba.njit
def caller(x: Any) -> Any:
    return HALVED(x, 2) + 1


def test_same_from_compiled_code_and_from_python() -> None:
    x = np.array([1.0, 2.5])
    assert HALVED(x, 2.0) == 3.5
    assert caller(x) == 4.5


def test_errors_come_through() -> None:
    for function in (caller, lambda x: HALVED(x, 1.0)):
        with pytest.raises(ValueError, match="nothing to halve"):
            function(np.empty(0))
    assert caller(np.ones(2)) == 3.0


def test_callers_only_declare_it() -> None:
    products = gemm("float32")
    gemm_packed = products.gemm_packed

    @numba.njit
    def multiply(A: Any, packed: Any, C: Any, bias: Any) -> None:
        gemm_packed(A, packed, C, False, bias, 0, C.shape[0], 0, C.shape[1])

    A, B, C = np.ones((3, 5), "f"), np.ones((5, 4), "f"), np.empty((3, 4), "f")
    multiply(A, products.pack(B), C, np.zeros(4, "f"))
    assert (C == 5).all()
    (text,) = multiply.inspect_llvm().values()
    lines = [line for line in text.splitlines() if "gemm_packed_float32" in line]
    assert [line for line in lines if line.startswith("declare")]
    assert not [line for line in lines if line.startswith("define")]


def test_without_compiler() -> None:
    code = "from test_called_by_name import HALVED, halved; import numpy as np; print(HALVED is halved)"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.path.dirname(__file__)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "True"
