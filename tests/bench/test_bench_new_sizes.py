"""The benchmark of new sizes runs, and says what it measured."""

from __future__ import annotations

from bench.new_sizes import lengths_in_turn, measure


def test_measures() -> None:
    found = {**measure(words=7, width=4, lengths=(6, 5)), **lengths_in_turn(words=7, width=4, counts=(2, 3))}
    kinds = [
        f"{step}, {what}"
        for step in ("call", "training step")
        for what in ("known length", "beyond it for a new one", "most for a new one")
    ]
    assert list(found) == [*kinds, "a step, 2 lengths in turn", "a step, 3 lengths in turn"]
    assert [*measure(words=7, width=4, lengths=(6, 5), budget=1.0)] == kinds
    assert all(found[kind] > 0 for kind in found if "new one" not in kind)
