"""Loops over steps of compiled recurrences, as blocks of a CUDA device share them out, and what they should cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from rnnops.compiler.lower.scan import Scan
from rnnops.compiler.run.compiled_scan import CompiledScan
from rnnops.compiler.targets.cuda import target
from rnnops.compiler.targets.cuda.loop import Loop
from rnnops.compiler.targets.cuda.share_blocks import rounding_of
from rnnops.compiler.targets.cuda.step_cost import CLOCK, step_time, tensor_step_time

LoopsOf = list[tuple[Scan, list[Loop]]]
KERNEL = "loop_"  # begins the name of a kernel that is a loop


def directions(scans: Sequence[CompiledScan]) -> Iterator[tuple[str, CompiledScan]]:
    """Those with a loop, of which the first is forward."""
    looping = [scan for scan in scans if any(stage.loop and stage.cyclic for stage in scan.plan.stages)]
    return zip(("forward", "backward"), looping, strict=False)


@contextmanager
def loops_written() -> Iterator[LoopsOf]:
    """The loops over steps that follow each other, of each scan that is compiled meanwhile, as kernels are written."""
    found: LoopsOf = []
    real = target.write_cuda_scan

    def write(scan: Scan, plan: Any, layouts: Any, dtype: str, loops: Mapping[int, Loop], weights: str) -> Any:
        cyclic = [loops[number] for number, stage in enumerate(plan.stages) if stage.loop and stage.cyclic]
        found.append((scan, cyclic))
        return real(scan, plan, layouts, dtype, loops, weights)

    with mock.patch.object(target, "write_cuda_scan", write):
        yield found


def predicted(
    scans: Sequence[CompiledScan], written: LoopsOf, batch: int, clock: float = CLOCK
) -> dict[str, float | None]:
    """Microseconds of a step by direction; None for loops that leave the chip, of which nothing is known.

    Args:
        written: what `loops_written` has found when the scans were compiled.
        batch: rows of a step.
        clock: cycles a microsecond; all else but the number of multiprocessors is an H100's.
    """
    found: dict[str, float | None] = {}
    for direction, compiled in directions(scans):
        made = next(loops for scan, loops in reversed(written) if scan is compiled.scan)
        lasting = all(loop.persistent for loop in made)
        found[direction] = sum(time_of(loop, batch) for loop in made) * CLOCK / clock if lasting else None
    return found


def time_of(loop: Loop, batch: int) -> float:
    """Microseconds of a step, on tensor cores where products round their operands."""
    return tensor_step_time(loop, batch) if rounding_of(loop.products) else step_time(loop, batch)


def beside_measured(
    slopes: Mapping[str, float], predictions: Mapping[str, float | None]
) -> dict[str, dict[str, float | None]]:
    """What kernels took a step, what the model said, and the ratio that corrects it.

    Args:
        slopes: microseconds of a step by `forward loop_1` and the like.
    """
    found = {}
    for direction, wanted in predictions.items():
        took = [value for name, value in slopes.items() if name.startswith(f"{direction} {KERNEL}")]
        measured = sum(took) if took else None
        ratio = round(measured / wanted, 3) if measured is not None and wanted else None
        found[direction] = {
            "measured": None if measured is None else round(measured, 3),
            "predicted": None if wanted is None else round(wanted, 3), "ratio": ratio,
        }  # fmt: skip
    return found
