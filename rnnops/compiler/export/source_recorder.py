"""Records plans for C99: drivers are modules that are not compiled here, and matrices are packed row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.compiler.codegen.scan_module import Packed, ScanModule
from rnnops.compiler.execute.packed_once import PACKS, packed_once
from rnnops.compiler.execute.recorder import UNPACKED, Job, NotRecordedError, RecordedArray, Recorder
from rnnops.compiler.ir.kernel import Array, Do, MatrixOperand, Module, statements_of
from rnnops.compiler.schedule.share_work import ScanTeam
from rnnops.compiler.targets.target import Work

SCALAR_WIDTH = 64  # of vectors in bits, of one number each: packed matrices have no gaps


@dataclass(frozen=True, eq=False)
class SourceRecorder(Recorder):
    """Notes jobs whose drivers are `ScanModule`s, whose places are their arrays and whose numbers are their sizes."""

    def load(self, text: ScanModule, width: int | None) -> ScanModule:
        return text

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        _, _, sizes, *arrays = work
        module, unpacked = function.module, int(sizes[UNPACKED])
        names = [array.name for array in module.arrays]
        _pack(function, dict(zip(names, arrays, strict=True)), unpacked)
        once = packed_once(module, unpacked)
        unread = frozenset(n for n, name in enumerate(names) if name in once)
        places = tuple(array.place for array in arrays)
        self.jobs.append(Job(function, 1, places, tuple(map(int, sizes)), unread))
        return False


def _pack(text: ScanModule, arrays: dict[str, RecordedArray], unpacked: int) -> None:
    """Pack the matrices that calls do not pack. Raises NotRecordedError where one is not there yet."""
    assert isinstance(text.module, Module)
    for source, number in _packs(text.module):
        if not unpacked >> number & 1:
            if arrays[source].memory.made:
                raise NotRecordedError("a matrix is packed once that each call makes anew")
            target = arrays[f"packed{number}"].twin.reshape(-1)
            target[:] = _matrix(text.packed[number], arrays[source].twin.reshape(-1)).reshape(-1)


def _packs(module: Module) -> Iterator[tuple[str, int]]:
    """Where matrices lie that the driver packs, and their numbers."""
    for line in statements_of(module.driver.body):
        if isinstance(line, Do) and line.function in PACKS:
            matrix, packed = line.arguments
            assert isinstance(matrix, MatrixOperand)
            assert isinstance(packed, Array)
            yield matrix.buffer, int(packed.buffer.removeprefix("packed"))


def _matrix(packed: Packed, flat: Any) -> Any:
    """The `[inner, columns]` of a packed matrix in the memory of its owner."""
    how, shape = packed.packing, (packed.inner, packed.columns)
    rows, width = shape[::-1] if how.transposed else shape
    strides = how.stride * flat.itemsize, flat.itemsize
    matrix = np.lib.stride_tricks.as_strided(flat[how.start + how.column :], (rows, width), strides, writeable=False)
    return matrix.T if how.transposed else matrix
