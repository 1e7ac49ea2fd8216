"""Targets: what a scan is written for, who shares out its work, and how its function is called.

Generated Python goes into a file named by its hash, and is imported from there. The folder is that of
`rnnops.kernels.object_cache`, where machine code lies too, so that a text is compiled once on a machine.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from rnnops.compiler.codegen.places import Layouts, lay_out
from rnnops.compiler.codegen.scan_module import Again, ScanModule, write_scan
from rnnops.compiler.lower.kernel import Module
from rnnops.compiler.lower.scan import Scan, StepPlan
from rnnops.compiler.memory.memory import PLAIN, Memory, flat_memory
from rnnops.compiler.schedule.batch_axis import ScanTeam, order_rows, share_work
from rnnops.compiler.targets.cpu.team import OpenMP, native_scan, run_in_region, run_together
from rnnops.interpreter import Program
from rnnops.kernels.cpu.packing import K_BLOCK
from rnnops.kernels.cpu.processor import BYTES, INT8
from rnnops.kernels.object_cache import cache_folder, folder_of_process, reason, warn_once
from rnnops.types import Array
from rnnops.util import LOADING


def load_module(source: str) -> ModuleType:
    """The module of a generated text."""
    with LOADING:
        return _load(source)


@cache
def _load(source: str) -> ModuleType:
    name = f"rnnops_generated_{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    path = _placed(f"{name}.py", source)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"generated module {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # numba-cuda looks modules up when it loads kernels from disk
    spec.loader.exec_module(module)
    return module


def _placed(name: str, source: str) -> Path:
    """Write a module into the cache folder, or into one that goes with this process where that takes none."""
    try:
        return _written(cache_folder() / name, source)
    except OSError as error:
        warn_once("generated modules", str(cache_folder()), reason(error))
        return _written(folder_of_process() / name, source)


def _written(path: Path, source: str) -> Path:
    """Write a file as a whole or not at all; what is there already has the same text, by its name."""
    if not path.is_file() or path.read_text(encoding="utf-8") != source:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
        os.replace(temporary, path)
    return path


TILE_ROWS = 512  # rows of a tile's products: enough for their speed, few enough for the caches
ROUNDING = ("float32", "bfloat16")  # precisions of what runs on processors
Work = Sequence[Any]  # barrier, status, sizes, then arrays, as the functions of modules take them


@dataclass(frozen=True)
class Written:
    """A scan as a target runs it: who does, where blobs lie, the module, and the notes of a plan.

    Args:
        plan: as the target has changed it, None where it has not.
    """

    team: ScanTeam
    layouts: Layouts
    text: ScanModule
    notes: tuple[str, ...] = ()
    plan: StepPlan | None = None


class Target(Protocol):
    """A target that scans run on.

    Args:
        tile_rows: rows of a tile's products, about.
        compacts: whether rows that are over leave products.
        in_place, calls: as of a `LoweredStep`.
        worker: what shares out the work: a thread, or a block of them.
        precisions: what it can round operands of products to.
        weight_types: what it can keep weights as that are bound, besides floats.
    """

    @property
    def tile_rows(self) -> int: ...

    @property
    def compacts(self) -> bool: ...

    @property
    def in_place(self) -> float: ...

    @property
    def calls(self) -> bool: ...

    @property
    def worker(self) -> str: ...

    @property
    def precisions(self) -> tuple[str, ...]: ...

    @property
    def weight_types(self) -> tuple[str, ...]: ...

    def write(self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None) -> Written:
        """Lay out and write a scan.

        Args:
            threads: at most so many.
            width: of vectors in bits; the host's if None.
        """

    def load(self, text: ScanModule, width: int | None) -> Any:
        """The function of a module, ready to be called.

        Args:
            width: of vectors in bits; the host's if None.
        """

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        """Run the function of a module; whether an index or a label was out of range.

        Args:
            may_fail: whether one can be.
        """

    @property
    def memory(self) -> Memory:
        """Where ops have their memory."""

    def flat(self, array: Any) -> Any:
        """The elements of an array without gaps, as functions of modules take it."""

    def constant(self, array: Array) -> Any:
        """A copy of an array where functions of modules read it."""

    def order_rows(self, lengths: Any, steps: int, order: Any, ends: Any, part: tuple[int, int]) -> None:
        """Put rows in an order in which they are shared out, as `order_rows` of `schedule` does."""

    def total(self, array: Any, out: Any) -> Any:
        """The sum over the first axis of an array, in the memory of another."""

    def add(self, array: Any, other: Any) -> None:
        """Add an array to one of the same shape, which has no gaps."""

    def references(self, program: Program) -> Mapping[str, Any]:
        """Runners of ops that are not compiled, by key; the interpreter runs the others."""


class OnHost:
    """Base of targets whose arrays are NumPy's."""

    @property
    def precisions(self) -> tuple[str, ...]:
        return ("float32",)

    @property
    def weight_types(self) -> tuple[str, ...]:
        return (INT8, BYTES)

    @property
    def memory(self) -> Memory:
        return PLAIN

    def flat(self, array: Any) -> Any:
        return flat_memory(array)

    def constant(self, array: Array) -> Any:
        return array

    def order_rows(self, lengths: Any, steps: int, order: Any, ends: Any, part: tuple[int, int]) -> None:
        order_rows(lengths, steps, order, ends, part)

    def total(self, array: Any, out: Any) -> Any:
        return np.add.reduce(array, axis=0, out=out)  # what `array.sum` calls

    def add(self, array: Any, other: Any) -> None:
        array += other

    def references(self, program: Program) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True)
class Processor(OnHost):
    """Compiled code on the cores of this machine.

    Args:
        openmp: whose threads run it; threads of our own if None.
    """

    tile_rows: int = TILE_ROWS
    compacts: bool = True
    in_place: float = K_BLOCK
    calls: bool = True
    worker: str = "thread"
    openmp: OpenMP | None = None

    @property
    def precisions(self) -> tuple[str, ...]:
        return ROUNDING

    def write(
        self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None,
        again: Again | None = None,
    ) -> Written:  # fmt: skip
        team = share_work(scan, plan, threads)
        layouts = lay_out(scan, plan, tile, team.threads, again=again, apart=True)
        layouts.need(dtype)
        return Written(team, layouts, write_scan(scan, plan, layouts, dtype, again))

    def flat(self, array: Any) -> Any:
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    def load(self, text: ScanModule, width: int | None) -> Any:
        assert isinstance(text.module, Module)
        return native_scan(text.module, width)

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        if self.openmp is None:
            run_together(function, team.threads, work)
        else:
            run_in_region(self.openmp, function, team.threads, work)
        return was_wrong(work)


@dataclass(frozen=True)
class OnOneThread(OnHost):
    """Base of targets with one thread."""

    tile_rows: int = TILE_ROWS
    compacts: bool = True
    in_place: float = K_BLOCK
    calls: bool = True
    worker: str = "thread"

    def write(
        self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None,
        again: Again | None = None,
    ) -> Written:  # fmt: skip
        layouts = lay_out(scan, plan, tile, 1, again=again)
        layouts.need(dtype)
        return Written(ScanTeam(1), layouts, write_scan(scan, plan, layouts, dtype, again))


@dataclass(frozen=True)
class PlainPython(OnOneThread):
    """The same module as plain Python."""

    @property
    def precisions(self) -> tuple[str, ...]:
        return ROUNDING

    def load(self, text: ScanModule, width: int | None) -> Any:
        return load_module(text.python()).scan

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        barrier, status, sizes, *arrays = work
        with np.errstate(all="ignore"):
            function(0, 1, barrier, status, sizes, arrays)
        return was_wrong(work)


def was_wrong(work: Work) -> bool:
    """True if a run has met an index or a label out of range; the next one starts afresh."""
    status = work[1]
    wrong = bool(status[0] != 0)
    status[0] = 0
    return wrong


PROCESSOR, PLAIN_PYTHON = Processor(), PlainPython()
