"""Statements over large states: no copies, no sum over two axes at once, nothing cheap in memory between two loops."""

from __future__ import annotations

from collections.abc import Collection

from small_programs import lowered_of

from rnnops.compiler.lower.statements import Statement
from rnnops.compiler.schedule.loop_nests import for_states

SHAPES = {"s": (2, 6, 6), "x": (2, 6, 6), "v": (2, 6, 1)}


def changed(lines: str, kept: Collection[str] = ("y",)) -> list[str]:
    """The statements of some lines as text."""
    lowered = lowered_of(lines, **SHAPES)
    statements: list[Statement] = lowered.statements
    return [str(s) for s in for_states(statements, dict(lowered.types), {}, kept, [("s", "t")])]


def test_copies_are_read_where_they_come_from() -> None:
    assert changed("a = Identity(s); y = Mul(a, x)") == ["y[2, 6, 6] = Mul(s, x)"]
    assert len(changed("a = Identity(s); y = Mul(a, x)", kept=("a", "y"))) == 2


def test_a_sum_over_two_axes_is_two_sums() -> None:
    lines = changed("y = ReduceSum(s, axes=[1, 2], keepdims=1)")
    assert len(lines) == 2
    assert lines[0].startswith("y/columns[2, 6, 6] add=")
    assert lines[1] == "y[2, 6] add= copy(y/columns)"


def test_what_is_small_comes_first() -> None:
    order = [line.split("[")[0] for line in changed("a = Mul(s, x); b = Neg(v); t = Add(a, b); y = Neg(t)")]
    assert order == ["b", "a", "t", "y"]


def test_what_is_cheap_is_made_again_beyond_a_smaller_loop() -> None:
    lines = changed("a = Mul(s, x); b = ReduceSum(a, axes=[2], keepdims=1); c = Neg(b); y = Add(a, c)")
    assert [line.split("[")[0] for line in lines] == ["a", "b", "c", "a", "y"]
    assert "again" in lines[-1]


def test_what_reads_a_state_is_not_made_again_behind_its_successor() -> None:
    lines = changed("a = Mul(s, x); t = Add(a, x); b = ReduceSum(t, axes=[2], keepdims=1); c = Neg(b); y = Add(a, c)")
    assert not any("again" in line for line in lines)
