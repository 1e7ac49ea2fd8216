"""Targets: what a scan is written for, who shares out its work, and how its function is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rnnops.compiler.scan.places import Layouts, lay_out
from rnnops.compiler.scan.scan import Scan
from rnnops.compiler.scan.scan_text import ScanText, write_scan
from rnnops.compiler.scan.share_work import Team, share_work
from rnnops.compiler.scan.step_plan import StepPlan
from rnnops.compiler.team import run_together

TILE_ROWS = 512  # rows of a tile's products: enough for their speed, few enough for the caches
Work = Sequence[Any]  # barrier, status, sizes, then arrays, as the functions of modules take them


@dataclass(frozen=True)
class Written:
    """A scan as a target runs it: who does, where blobs lie, the module."""

    team: Team
    layouts: Layouts
    text: ScanText


class Target(Protocol):
    """What scans run on.

    Args:
        tile_rows: rows of a tile's products, about.
        shrinks: whether rows that are over leave products.
    """

    @property
    def tile_rows(self) -> int: ...

    @property
    def shrinks(self) -> bool: ...

    def write(self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None) -> Written:
        """Lay out and write a scan.

        Args:
            threads: at most so many.
            width: of vectors in bits; the host's if None.
        """

    def call(self, function: Any, team: Team, work: Work) -> None:
        """Run the function of a module, and return when it has ended."""


@dataclass(frozen=True)
class Processor:
    """Compiled code on the cores of this machine."""

    tile_rows: int = TILE_ROWS
    shrinks: bool = True

    def write(self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None) -> Written:
        team = share_work(scan, plan, threads)
        layouts = lay_out(scan, plan, tile, team.threads)
        layouts.need(dtype)
        return Written(team, layouts, write_scan(scan, plan, layouts, dtype, width))

    def call(self, function: Any, team: Team, work: Work) -> None:
        run_together(function, team.threads, *work)


@dataclass(frozen=True)
class PlainPython:
    """The same text, not compiled, on one thread."""

    tile_rows: int = TILE_ROWS
    shrinks: bool = True

    def write(self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None) -> Written:
        layouts = lay_out(scan, plan, tile, 1)
        layouts.need(dtype)
        return Written(Team(1), layouts, write_scan(scan, plan, layouts, dtype, width, compiled=False))

    def call(self, function: Any, team: Team, work: Work) -> None:
        with np.errstate(all="ignore"):
            function(0, 1, *work)


PROCESSOR, PLAIN_PYTHON = Processor(), PlainPython()
