"""A step plan as a module for a CUDA device: the driver of `scan_text.py` as a kernel that all lanes of a block run.

A block stands for a thread of the processor: it owns rows, or columns of products, and waits for other blocks where
threads would wait. Its lanes share out what a row program loops over (`block_rows.py`) and the elements of products
(`kernels/cuda/scans.py`). A whole scan is one launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.compiler.scan.block_rows import BlockRowWriter, block_program
from rnnops.compiler.scan.places import Layouts
from rnnops.compiler.scan.row_text import INDENT, RowWriter
from rnnops.compiler.scan.scan import Scan
from rnnops.compiler.scan.scan_text import ScanText, ScanWriter
from rnnops.compiler.scan.step_plan import StepPlan
from rnnops.kernels.cuda import lanes, scans

MOST_LANES = 256
HEAD = """\
from typing import Any

import numpy as np
from numba import cuda

from rnnops.kernels.cpu.active_rows import list_rows as list_active_rows
from rnnops.kernels.cpu.folds import add_any_order, add_product, add_product_any_order, larger, smaller
from rnnops.kernels.cpu.pointwise import (
    cos, divide_towards_zero, erf, exp, expm1, floor, log, log1p, maximum, minimum, pow, sigmoid,
    sign, sin, sqrt, tanh,
)
from rnnops.kernels.cpu.uniform import uniform

device_function = cuda.jit(device=True)"""


class CudaScanWriter(ScanWriter):
    """Writes the module of a scan for a CUDA device."""

    row_writer: ClassVar[type[RowWriter]] = BlockRowWriter
    step_begins: ClassVar[Sequence[str]] = ()

    def module(self, arrays: Sequence[str], body: Sequence[str]) -> list[str]:
        shared = sorted({name for program in self.programs for name in program.scalars if name.startswith("shared_")})
        parameters = f"barrier, status, sizes, {', '.join(arrays)}"
        driver = ["@cuda.jit", f"def scan({parameters}):"]
        driver += [f"{INDENT}rank, threads = cuda.blockIdx.x, cuda.gridDim.x"]
        driver += [f"{INDENT}lane, lanes = cuda.threadIdx.x, cuda.blockDim.x"]
        for name in shared:
            dtype = name.removeprefix("shared_").replace("bool", "uint8")
            driver.append(f"{INDENT}{name} = cuda.shared.array({MOST_LANES}, np.{dtype})")
        constants = "\n".join([HEAD, *self.constants.lines()])
        programs = [block_program(program) for program in self.programs]
        return [constants, lanes.source(), scans.source(), *programs, "\n".join([*driver, *body])]


def write_cuda_scan(scan: Scan, plan: StepPlan, layouts: Layouts, dtype: str) -> ScanText:
    """Write a plan as a module whose kernel `scan(barrier, status, sizes, *arrays)` runs it."""
    return CudaScanWriter(scan, plan, layouts, dtype, None, False).text()
