"""Runs print what they are, and Python's copies and pickles of them give the same numbers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import rnnops as ro

FEEDS = {"x": np.arange(6.0).reshape(2, 3), "w": np.ones((3, 4)), "rows": np.array([0, 3, 1], "int32")}


def net() -> ro.Net:
    made = ro.Net("printed")
    x, w, rows = made.input("x"), made.input("w"), made.input("rows", "int32")
    made.outputs(y=np.tanh(x @ w)[:, rows])
    return made


def runs() -> dict[str, tuple[ro.Run, dict[str, Any]]]:
    """Runs, and what is fed to them."""
    run = ro.compile(net(), checkpoints="memory", threads=1)
    return {
        "cpu": (run, FEEDS),
        "reference": (ro.compile(net(), device="reference"), FEEDS),
        "bound": (run.bind(w=FEEDS["w"]), {name: FEEDS[name] for name in ("x", "rows")}),
    }


def test_a_run_prints_what_it_is() -> None:
    made = runs()
    assert repr(made["cpu"][0]) == "<Run of net 'printed' on cpu: x, w, rows: int32 -> y>"
    assert repr(made["bound"][0]) == "<BoundRun of net 'printed' on cpu: x, rows: int32 -> y; bound w>"


@pytest.mark.parametrize("kind", ["cpu", "reference", "bound"])
def test_copies_and_pickles(kind: str) -> None:
    run, feeds = runs()[kind]
    wanted = run(feeds)["y"]
    for _ in range(3):  # plans and packed weights, which no copy has
        run(feeds)
    for other in (copy.copy(run), copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert type(other) is type(run)
        assert str(other.net) == str(run.net)
        assert other._saving == run._saving
        for _ in range(3):
            np.testing.assert_array_equal(other(feeds)["y"], wanted)


def test_integers_of_another_width_are_taken_where_they_fit() -> None:
    for run, feeds in runs().values():
        wanted = run(feeds)["y"]
        for dtype in ("int64", "uint8", "int16", "int64", "int64", "int32"):  # two in a row make a native call
            np.testing.assert_array_equal(run({**feeds, "rows": feeds["rows"].astype(dtype)})["y"], wanted)
        with pytest.raises(ro.FeedError, match=r"blob 'rows'.*wanted int32; got int64 from 0 to 4294967296"):
            run({**feeds, "rows": np.array([0, 2**32])})
        with pytest.raises(ro.FeedError, match="wrong dtype"):
            run({**feeds, "rows": feeds["rows"].astype(float)})
        plan = run.plan({**feeds, "rows": feeds["rows"].astype("int64")})
        assert "rows int32[3]" in str(plan)
