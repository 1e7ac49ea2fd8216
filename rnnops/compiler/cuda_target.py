"""The CUDA device as a target of scans: one launch for each, arrays of NumPy in and out.

Limits: so far scans run in the simulator only, as one block of a few lanes; everything else runs as on the CPU device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rnnops.compiler.scan.cuda_text import MOST_LANES, write_cuda_scan
from rnnops.compiler.scan.places import Layouts
from rnnops.compiler.scan.scan import Scan
from rnnops.compiler.scan.scan_text import ScanText
from rnnops.compiler.scan.share_work import Team
from rnnops.compiler.scan.step_plan import StepPlan
from rnnops.compiler.scan.target import Work
from rnnops.errors import DeviceError
from rnnops.kernels.cuda.facade import SIMULATED, card, launch


@dataclass(frozen=True)
class Cuda:
    """Kernels of a CUDA device.

    Args:
        lanes: threads of a block.
    """

    lanes: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.lanes <= MOST_LANES:
            raise DeviceError(
                "no such number of lanes", wanted=f"an integer from 1 to {MOST_LANES}", came=repr(self.lanes)
            )

    def team(self, scan: Scan, plan: StepPlan, threads: int) -> Team:
        return Team(1)

    def text(self, scan: Scan, plan: StepPlan, layouts: Layouts, dtype: str, width: int | None) -> ScanText:
        return write_cuda_scan(scan, plan, layouts, dtype)

    def call(self, function: Any, team: Team, work: Work) -> None:
        launch(function, team.threads, self.lanes, *work)


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
