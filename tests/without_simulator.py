"""Code that runs by itself, without the simulator of CUDA and without a device: what compiles kernels."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CANNOT = "cannot compile:"
HEAD = f"""
import re, sys
try:
    from rnnops.kernels.cuda import facade
    if facade.overload is None:
        raise ImportError("numba-cuda is missing or too old")
    facade.ptx(lambda: None, (), (9, 0))
except Exception as error:  # numba-cuda, or its compiler library, is not installed
    print("{CANNOT}", type(error).__name__, str(error)[:80])
    sys.exit()
"""
SIGNATURE = """
from numba import types
from rnnops.kernels.cuda.facade import array_type
from rnnops.kernels.cuda.gemm import NUMBERS, TOGETHER
def product_signature(dtype, count):
    numbers = (types.UniTuple(types.int64, size) for size in (TOGETHER + 1, count * NUMBERS))
    return *numbers, *[types.UniTuple(array_type(dtype), count)] * 4
"""  # numba's types of the arguments of kernels of products


def run_without_simulator(code: str, *arguments: str) -> str:
    """What code prints."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_compiler(code: str, *arguments: str) -> list[str]:
    """The lines that code prints which compiles kernels; the test is skipped where numba-cuda is not installed."""
    said = run_without_simulator(HEAD + code, *arguments)
    if said.startswith(CANNOT):
        pytest.skip(said)
    return said.splitlines()
