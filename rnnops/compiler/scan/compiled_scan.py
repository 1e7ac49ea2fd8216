"""A scan made ready to run: its plan, its module, its scratch."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from rnnops.compiler.scan.modules import load_module
from rnnops.compiler.scan.places import Layouts, lay_out
from rnnops.compiler.scan.scan import Scan
from rnnops.compiler.scan.scan_text import HEADER_SIZES, ScanText, write_scan
from rnnops.compiler.scan.stages import node_reads, node_writes
from rnnops.compiler.scan.step_plan import StepPlan, plan_step
from rnnops.compiler.team import run_together
from rnnops.kernels.cpu.barrier import new_barrier
from rnnops.kernels.cpu.gemm import gemm
from rnnops.schema import RunContext
from rnnops.types import Array

TILE_ROWS = 512  # rows of a tile's products: enough for their speed, few enough for the caches


@dataclass(frozen=True)
class Options:
    """How scans run.

    Args:
        threads: at most so many.
        width: of vectors in bits, the host's if None.
        compiled: whether kernels are compiled, or plain Python.
        tile: steps of a tile, None for a choice by size.
    """

    threads: int = 1
    width: int | None = None
    compiled: bool = True
    tile: int | None = None


@dataclass
class CompiledScan:
    """Runs a scan over arrays."""

    scan: Scan
    plan: StepPlan
    layouts: Layouts
    text: ScanText
    tile: int
    threads: int
    options: Options
    float_dtype: str
    _pool: list[dict[str, Array]] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    def run(self, arrays: Mapping[str, Array], context: RunContext) -> dict[str, Array]:
        """Run all steps.

        Args:
            arrays: `tensor <name>` -> its memory, and by name references.

        Returns: the sums over time, by result.
        """
        sums = {owner: self._accumulator(owner) for owner in self.plan.accumulators}
        scratch = self._scratch()
        given = {**scratch, **self.plan.constants, **arrays, **sums}
        values = [_flat(given[name]) for name in self._given]
        sizes = self._sizes(context)
        if self.options.compiled:
            run_together(self._function(), self.threads, scratch["barrier"], scratch["status"], sizes, *values)
        else:
            with np.errstate(all="ignore"):
                self._function()(0, 1, scratch["barrier"], scratch["status"], sizes, *values)
        with self._lock:
            self._pool.append(scratch)
        return sums

    @cached_property
    def _given(self) -> list[str]:
        """What each array parameter stands for."""
        owners = {name: owner for owner, name in self.layouts.arrays.items()}
        return [owners.get(name, name) for name in self.text.arrays]

    @cached_property
    def _all_sizes(self) -> Array:
        fixed = {"T": self.scan.steps, "N": self.scan.batch, "K": self.tile, "backwards": int(self.scan.reverse)}
        return np.array([*(fixed.get(name, 0) for name in HEADER_SIZES), *self.text.sizes], np.int64)

    @cached_property
    def _module(self) -> ModuleType:
        return load_module(self.text.source)

    def _function(self) -> Any:
        return self._module.scan

    def _sizes(self, context: RunContext) -> Array:
        sizes: Array = self._all_sizes.copy()
        first = len(HEADER_SIZES) - 3
        sizes[first : first + 3] = _signed(context.seed or 0), context.t * self.scan.steps, context.training
        return sizes

    def _accumulator(self, owner: str) -> Array:
        kind = self.plan.types[owner]
        return np.zeros(kind.shape, kind.dtype)

    def _scratch(self) -> dict[str, Array]:
        with self._lock:
            if self._pool:
                return self._pool.pop()
        scratch = {
            f"w_{dtype}": np.zeros(max(size, 1), "uint8" if dtype == "bool" else dtype)
            for dtype, size in self.layouts.scratch.items()
        }
        scratch["barrier"], scratch["status"] = new_barrier(), np.zeros(4, np.int64)
        products = gemm(self.float_dtype, self.options.width, self.options.compiled)
        for i, packed in enumerate(self.text.packed):
            scratch[f"packed{i}"] = np.zeros(products.packed_size(packed.inner, packed.columns), self.float_dtype)
        return scratch


class RingError(Exception):
    """Tensors that must hold all steps, as more than one loop over time touches them."""

    def __init__(self, tensors: frozenset[str]) -> None:
        super().__init__(f"no ring will do for {', '.join(sorted(tensors))}")
        self.tensors = tensors


def _check_rings(scan: Scan, plan: StepPlan) -> None:
    touched: dict[str, set[int]] = {}
    for number, stage in enumerate(plan.stages):
        for node in stage.nodes:
            for owner in (*node_reads(node), node_writes(node)):
                slot = plan.slots.get(owner)
                if slot is not None and scan.tensors[slot.tensor].ring:
                    touched.setdefault(slot.tensor, set()).add(number if stage.loop else -1)
    wrong = frozenset(name for name, stages in touched.items() if len(stages) > 1 or -1 in stages)
    if wrong:
        raise RingError(wrong)


def compile_scan(scan: Scan, float_dtype: str, options: Options) -> CompiledScan:
    """Plan a scan and write its module. Raises UnsupportedError and RingError."""
    plan = plan_step(scan)
    _check_rings(scan, plan)
    threads = min(options.threads, scan.batch) if plan.batch_axes and options.compiled else 1
    tile = options.tile or max(1, min(scan.steps, TILE_ROWS // max(1, scan.batch)))
    layouts = lay_out(scan, plan, tile, threads)
    layouts.scratch.setdefault(float_dtype, 1)  # type: ignore[attr-defined]
    text = write_scan(scan, plan, layouts, float_dtype, options.width, options.compiled)
    return CompiledScan(scan, plan, layouts, text, tile, threads, options, float_dtype)


def _signed(seed: int) -> int:
    return seed - 2**64 if seed >= 2**63 else seed


def _flat(array: Array) -> Array:
    """Contiguous memory as one axis, writeable for numba's sake: what is only read is not written."""
    flat = array if array.ndim == 1 and array.flags.c_contiguous else np.ascontiguousarray(array).reshape(-1)
    flat = flat.view(np.uint8) if flat.dtype == np.bool_ else flat
    if flat.flags.writeable:
        return flat
    memory: Any = (ctypes.c_char * flat.nbytes).from_address(flat.ctypes.data)
    writeable: Array = np.frombuffer(memory, flat.dtype)
    return writeable
