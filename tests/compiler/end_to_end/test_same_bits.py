"""The same bits, whatever is kept: plain runs and runs with a pullback, policies, budgets, threads, rows, the cache.

Long sweep, by hand, of 300 nets: `pytest -m slow` with this file, once at each level that `RNNOPS_CPU` names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from row_nets import RowNet, row_net

import rnnops as ro
from rnnops.checkpoints import Slots
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.schedule import batch_axis
from rnnops.recurrent.recurrence import Recurrence
from rnnops.testing import random_net

Arrays = Mapping[str, np.ndarray]
# Budgets and slots cut what a recurrence does into parts of some steps. Weights' gradients are summed tile by tile;
# with tiles of one step every part is of whole tiles (docs/memory_budget.md, Where bits differ).
KEPT: dict[str, dict[str, Any]] = {
    "all": {"checkpoints": "all"},
    "speed": {"checkpoints": "speed"},
    "memory": {"checkpoints": "memory"},
    "slots": {"checkpoints": Slots(2)},
    "budget of 50%": {"memory_budget": 0.5},
    "budget of 20%": {"memory_budget": 0.2},
    "nothing recycled": {"recycle": False},
    "numbers looked at": {"check_numerics": True},
    "2 threads": {"threads": 2},
    "3 threads": {"threads": 3},
    "5 threads": {"threads": 5},
    "16 threads": {"threads": 16},
    "again, from the cache": {},
}
IN_PARTS = ("slots", "budget of 50%", "budget of 20%")
FEW = ("all", "slots", "budget of 50%", "3 threads", "again, from the cache")


@pytest.fixture(autouse=True)
def _small_work_is_shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Little work is shared out among threads too, and a cache of its own has nothing at first."""
    monkeypatch.setattr(batch_axis, "LITTLE_WORK", 0)
    monkeypatch.setenv("RNNOPS_CACHE_DIR", str(tmp_path))


def results(run: ro.Run, feeds: Arrays, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Outputs, then gradients for output gradients that differ in every element."""
    out, pullback = run.vjp(feeds, seed=seed)
    yield from out.items()
    floats = {name: array for name, array in out.items() if array.dtype.kind == "f"}
    given = {name: np.cos(np.arange(a.size, dtype=a.dtype)).reshape(a.shape) for name, a in floats.items()}
    yield from ((f"gradient of {name}", array) for name, array in pullback(given).items())


def differing(wanted: Arrays, came: Arrays) -> list[str]:
    """Arrays whose bits differ, and by how much."""
    return [
        f"{name} by {np.abs(np.subtract(array, came[name], dtype='float64')).max():.1e}"
        for name, array in wanted.items()
        if array.tobytes() != came[name].tobytes()
    ]


def differences(net: ro.Net, feeds: Arrays, seed: int, names: tuple[str, ...], tuning: Options) -> list[str]:
    """What has other bits than one thread that keeps what it likes."""
    plain = ro.compile(net, threads=1, tuning=tuning)
    wanted = dict(results(plain, feeds, seed))
    found = {"no pullback": differing(plain(feeds, seed=seed, training=True), wanted)}
    for name in names:
        try:
            run = ro.compile(net, **{"threads": 1, **KEPT[name]}, tuning=tuning)
            found[name] = differing(wanted, dict(results(run, feeds, seed)))
        except (ro.CheckpointError, ro.NumericsError):
            continue  # nothing is left to do again, no such budget, or a number is not finite
    if any(array.dtype == np.float32 for array in feeds.values()):
        out, _ = ro.compile(net, threads=1, residuals="bfloat16", tuning=tuning).vjp(feeds, seed=seed)
        found["rounded residuals"] = differing(out, wanted)
    return [f"{name}: {what}" for name, parts in found.items() for what in parts]


def rows_that_differ(made: RowNet, tuning: Options) -> list[str]:
    """Rows that have other outputs by themselves than among others."""
    if made.feeds["x"].shape[0] == 1:  # one row of one step, around a recurrence, is left to NumPy
        tuning = Options(tile=1)
    run = ro.compile(made.net, threads=1, tuning=tuning)
    whole = run(made.feeds)
    found = []
    for n in range(made.feeds["x"].shape[1]):
        alone = run(made.row(n))
        cut = {name: a[n : n + 1] if name == "last" else a[:, n : n + 1] for name, a in whole.items()}
        found += [f"row {n}: {what}" for what in differing(cut, alone)]
    return found


def check_rows(seed: int, names: tuple[str, ...]) -> list[str]:
    """A net of rows, every other one with all work around its recurrence compiled."""
    made = row_net(seed)
    tuning = Options(tile=1, around="rows") if seed % 2 else Options(tile=1)
    found = differences(made.net, made.feeds, seed, names, tuning) + rows_that_differ(made, tuning)
    return [f"net {seed}, {what}\n{made}" for what in found[:1]]


def reads_several_steps(net: ro.Net) -> bool:
    """Whether a recurrence of the net has a state of which a step reads more than one step."""
    recurrences = (Recurrence(op, net.name) for op in net.ops if op.type == "RecurrentNetwork")
    return any(state.window > 1 for recurrence in recurrences for state in recurrence.states)


def check_any(seed: int, names: tuple[str, ...]) -> list[str]:
    """A random net of the library, whose rows mix.

    Where a step reads several steps of a state, gradients are added up part by part (docs/memory_budget.md).
    """
    made = random_net(seed)
    names = tuple(name for name in names if not (name in IN_PARTS and reads_several_steps(made.net)))
    kind = "float32" if seed % 2 else "float64"
    feeds = {name: a.astype(kind) if a.dtype.kind == "f" else a for name, a in made.feeds.items()}
    return [f"net {seed}, {what}\n{made}" for what in differences(made.net, feeds, seed, names, Options(tile=1))[:1]]


@pytest.mark.parametrize("seed", range(4))
def test_nets_of_rows(seed: int) -> None:
    found = check_rows(seed, FEW)
    assert not found, found[0]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 10))
def test_200_nets_of_rows(first: int) -> None:
    found = [what for seed in range(first, first + 10) for what in check_rows(seed, tuple(KEPT))]
    assert not found, "\n\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 10))
def test_100_nets_whose_rows_mix(first: int) -> None:
    found = [what for seed in range(first, first + 10) for what in check_any(seed, tuple(KEPT))]
    assert not found, "\n\n".join(found)
