"""The CUDA device as a target of scans: loops over steps are kernels, products of tiles are launched by themselves.

Limits: so far scans run in the simulator only, as one block of a few lanes; everything else runs as on the CPU device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.compiler.scan.cuda_text import MOST_LANES, write_cuda_scan
from rnnops.compiler.scan.place_waits import COPIES
from rnnops.compiler.scan.places import lay_out
from rnnops.compiler.scan.scan import Scan
from rnnops.compiler.scan.share_blocks import Blocks, Loop, share_loop
from rnnops.compiler.scan.share_work import Team
from rnnops.compiler.scan.step_plan import StepPlan
from rnnops.compiler.scan.target import Work, Written
from rnnops.compiler.scan.unit_periods import BY_ROWS
from rnnops.errors import DeviceError
from rnnops.kernels.cuda.facade import SIMULATED, card, choose
from rnnops.kernels.cuda.launches import Launches

TILE_ROWS = choose(16384, 512)  # rows of a tile: a launch of a loop reads the recurrent weights once


@dataclass(frozen=True)
class Cuda:
    """Kernels of a CUDA device.

    Args:
        lanes: threads of a block.
        blocks: that run at the same time.
        shared_bytes: of shared memory that a block may ask for.
    """

    lanes: int = 3
    blocks: int = 1
    shared_bytes: int = 48 * 1024
    tile_rows: int = TILE_ROWS
    shrinks: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.lanes <= MOST_LANES:
            raise DeviceError(
                "no such number of lanes", wanted=f"an integer from 1 to {MOST_LANES}", came=repr(self.lanes)
            )

    def write(self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None) -> Written:
        itemsize, blocks = np.dtype(dtype).itemsize, Blocks(self.blocks, self.lanes, self.shared_bytes)
        stages = enumerate(plan.stages)
        loops = {n: share_loop(scan, plan, stage, blocks, itemsize) for n, stage in stages if stage.loop}
        team = Team(max([1, *(loop.blocks for loop in loops.values())]))
        layouts = lay_out(scan, plan, tile, team.threads, _least_extents(plan, loops), COPIES)
        layouts.need(dtype)
        return Written(team, layouts, write_cuda_scan(scan, plan, layouts, dtype, loops))

    def call(self, function: Any, team: Team, work: Work) -> None:
        _, status, sizes, *arrays = work
        itemsize = max((array.itemsize for array in arrays if array.dtype.kind == "f"), default=4)
        function(Launches(sizes, status, self.lanes, itemsize), [int(size) for size in sizes], *arrays)


def _least_extents(plan: StepPlan, loops: Mapping[int, Loop]) -> dict[str, str]:
    """What memory serves at least: lanes that go by features work on many rows at once, and some on many steps."""
    least: dict[str, str] = {}
    for number, loop in loops.items():
        stage = plan.stages[number]
        in_order = stage.cyclic or _sums(plan, loop)
        for unit in loop.units:
            for owner in unit.written:
                apart = unit.period != BY_ROWS or plan.batch_axes.get(owner, 0) != 0
                if apart:
                    least[owner] = "step" if in_order else "tile"
    return least


def _sums(plan: StepPlan, loop: Loop) -> bool:
    return any(unit.written & set(plan.accumulators) for unit in loop.units)


def cuda_target(net: str) -> Cuda:
    """The target of device `"cuda"`. Raises DeviceError where there is no device, or one that is not simulated.

    Args:
        net: that is to be compiled, for the error.
    """
    found = card(net)
    if not SIMULATED:
        raise DeviceError(
            "kernels for CUDA devices run in the simulator so far",
            net=net,
            wanted="NUMBA_ENABLE_CUDASIM=1",
            came=str(found),
            hint="Use device='cpu'.",
        )
    return Cuda()
