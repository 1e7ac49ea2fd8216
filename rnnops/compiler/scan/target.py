"""Targets: what a scan is written for, who shares out its work, and how its function is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rnnops.compiler.scan.places import Layouts
from rnnops.compiler.scan.scan import Scan
from rnnops.compiler.scan.scan_text import ScanText, write_scan
from rnnops.compiler.scan.share_work import Team, share_work
from rnnops.compiler.scan.step_plan import StepPlan
from rnnops.compiler.team import run_together

Work = Sequence[Any]  # barrier, status, sizes, then arrays, as the functions of modules take them


class Target(Protocol):
    """What scans run on."""

    def team(self, scan: Scan, plan: StepPlan, threads: int) -> Team:
        """Who runs a scan, of at most so many threads."""

    def text(self, scan: Scan, plan: StepPlan, layouts: Layouts, dtype: str, width: int | None) -> ScanText:
        """The module of a scan; `width` of vectors in bits, the host's if None."""

    def call(self, function: Any, team: Team, work: Work) -> None:
        """Run the function of a module, and return when it has ended."""


@dataclass(frozen=True)
class Processor:
    """Compiled code on the cores of this machine."""

    def team(self, scan: Scan, plan: StepPlan, threads: int) -> Team:
        return share_work(scan, plan, threads)

    def text(self, scan: Scan, plan: StepPlan, layouts: Layouts, dtype: str, width: int | None) -> ScanText:
        return write_scan(scan, plan, layouts, dtype, width)

    def call(self, function: Any, team: Team, work: Work) -> None:
        run_together(function, team.threads, *work)


@dataclass(frozen=True)
class PlainPython:
    """The same text, not compiled, on one thread."""

    def team(self, scan: Scan, plan: StepPlan, threads: int) -> Team:
        return Team(1)

    def text(self, scan: Scan, plan: StepPlan, layouts: Layouts, dtype: str, width: int | None) -> ScanText:
        return write_scan(scan, plan, layouts, dtype, width, compiled=False)

    def call(self, function: Any, team: Team, work: Work) -> None:
        with np.errstate(all="ignore"):
            function(0, 1, *work)


PROCESSOR, PLAIN_PYTHON = Processor(), PlainPython()
