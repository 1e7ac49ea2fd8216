"""Pictures of runs of the benchmark: texts lie beside each other."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from bench.cases import BUDGET, LONG
from bench.contender import SAVING
from bench.goals import Measured
from bench.judge import CaseResult
from bench.pictures import plot_budgets
from bench.problems import Problem

pyplot: Any = pytest.importorskip("matplotlib.pyplot", reason="matplotlib draws")
TIMES = {"all": 1.0, "default": 0.94, "memory": 1.19, "budget 20 %": 1.2, "budget 10 %": 1.28, "budget 5 %": 1.37}


def picture_of(times: dict[str, float]) -> Any:
    measured = tuple(Measured(label, value, "s") for label, value in times.items())
    return plot_budgets(pyplot, [CaseResult(BUDGET, str(LONG), measured)], Problem("lstm", LONG))


@pytest.mark.parametrize("times", [TIMES, dict.fromkeys(SAVING, 1.0), {**TIMES, "budget 2 %": 1.85}], ids=len)
def test_labels_of_budgets_lie_beside_each_other(times: dict[str, float]) -> None:
    figure = picture_of(times)
    (axes,) = figure.axes
    figure.draw_without_rendering()
    areas = [text.get_window_extent() for text in axes.texts]
    assert len(areas) == len(times)
    assert not [1 for one, other in combinations(areas, 2) if one.overlaps(other)]
    assert all(axes.bbox.x0 <= one.x0 and one.x1 <= axes.bbox.x1 for one in areas)
    pyplot.close(figure)


def test_texts_of_the_picture_are_read_at_400_pixels() -> None:
    picture = Path(__file__).parent.parent.parent / "docs" / "memory_budget.png"
    width = pyplot.imread(picture).shape[1]
    assert 10 * 120 / 72 * 400 / width >= 9, "10 points at 120 dots an inch"
