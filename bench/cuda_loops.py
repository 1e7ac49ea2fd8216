"""Loops over steps of compiled recurrences, as blocks of a CUDA device share them out, and what they should cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rnnops.compiler.execute.compiled_scan import CompiledScan
from rnnops.compiler.targets.cuda.loop import Loop
from rnnops.compiler.targets.cuda.share_blocks import Blocks, share_loop
from rnnops.compiler.targets.cuda.step_cost import CLOCK, step_time
from rnnops.compiler.targets.cuda.tensor_cost import tensor_step_time
from rnnops.compiler.targets.cuda.tensor_loops import rounding_of

KERNEL = "loop_"  # begins the name of a kernel that is a loop


def directions(scans: Sequence[CompiledScan]) -> Iterator[tuple[str, CompiledScan]]:
    """Those with a loop, of which the first is forward."""
    looping = [scan for scan in scans if any(stage.loop and stage.cyclic for stage in scan.plan.stages)]
    return zip(("forward", "backward"), looping, strict=False)


def loops(scan: CompiledScan, room: Blocks, weights: str = "float32") -> list[Loop]:
    """How blocks share out the loops of a scan over steps that follow each other."""
    stages = [stage for stage in scan.plan.stages if stage.loop and stage.cyclic]
    return [share_loop(scan.scan, scan.plan, stage, room, "float32", weights) for stage in stages]


def predicted(scans: Sequence[CompiledScan], batch: int, room: Blocks, clock: float = CLOCK) -> dict[str, float | None]:
    """Microseconds of a step by direction; None for loops that leave the chip, of which nothing is known.

    Args:
        batch: rows of a step.
        room: of the device.
        clock: cycles a microsecond; all else but the number of multiprocessors is an H100's.
    """
    found: dict[str, float | None] = {}
    for direction, scan in directions(scans):
        made = loops(scan, room)
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
