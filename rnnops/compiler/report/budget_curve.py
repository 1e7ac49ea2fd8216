"""The budget curve: what byte budgets make of a training step, from the most that is kept to the least that is enough.

Each point is what `memory_budget=` takes; between two of them others may lie that differ by little in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from rnnops.compiler.report.budget_picture import picture_of
from rnnops.compiler.report.estimates import Estimate
from rnnops.compiler.report.memory_table import spaced
from rnnops.compiler.saving.fit_budget import By, fit_budget
from rnnops.errors import BudgetError
from rnnops.pictures.picture import Picture
from rnnops.pictures.words import WIDTH, bar

CLOSER = 0.9  # of the bytes of a point: a budget for the next one, as long as anything fits it
MOST = 1 << 62  # bytes: enough for all


@dataclass(frozen=True)
class BudgetCurve(Picture):
    """Bytes against predicted time.

    Args:
        title: what is shown.
        rows: what budgets take, in order of falling bytes.
        chosen: what the run itself does.
    """

    title: str
    rows: tuple[Estimate, ...]
    chosen: Estimate

    @property
    def least(self) -> int:
        """The least budget that is enough."""
        return self.rows[-1].nbytes

    @property
    def svg(self) -> str:
        """The picture, as a document of its own."""
        return picture_of(self)

    def __str__(self) -> str:
        most = self.rows[0].nbytes
        width = max(len(spaced(most)), len("bytes"))
        lines = [
            f"  {spaced(row.nbytes):>{width}}  {row.time:7.2f}  {bar(row.nbytes, most):{WIDTH}}  {row.policy}"
            for row in self.rows
        ]
        head = f"  {'bytes':>{width}}  {'time':>7}  {'':{WIDTH}}  policy"
        return "\n".join([self.title, head, *lines, f"this run: {self.chosen}"])


def budget_curve(net: str, by: By, tile: Callable[[int, int], int], chosen: Estimate) -> BudgetCurve:
    """The curve of a net.

    Args:
        by: what a policy saves.
        tile: T and N -> steps of a tile of kernels.
        chosen: what the run itself does.

    Raises BudgetError where nothing fits any budget.
    """
    known, below = cache(by), CLOSER
    rows = [_taken(known, MOST, tile)]
    while True:
        budget = min(int(rows[-1].nbytes * below), rows[-1].nbytes - 1)
        try:
            rows.append(_taken(known, budget, tile))
        except BudgetError:
            if below == 1:
                break
            below = 1  # nearly at the end: from now on what is one byte less
    return BudgetCurve(f"net {net}: bytes against predicted time of a training step", tuple(rows), chosen)


def _taken(by: By, budget: int, tile: Callable[[int, int], int]) -> Estimate:
    way = fit_budget(by, budget, tile)
    return Estimate(str(way.policy), way.nbytes, way.time)
