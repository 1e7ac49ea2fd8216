"""States that change in place: only where every reader of an element has read it when the next one is written."""

from __future__ import annotations

from matrix_cells import case, ending
from scan_cases import training_scans
from small_programs import lowered_of

import rnnops as ro
from rnnops.compiler.schedule.batch_axis import changes_in_place, resident_states
from rnnops.compiler.schedule.loop_nests import fuse_nests


def in_place(lines: str) -> bool:
    """Whether a state `s` may change in place to what is called `t`."""
    nests = fuse_nests(lowered_of(lines, s=(2, 6, 6), x=(2, 6, 6), v=(2, 1, 6)).statements, large_apart=True)
    return changes_in_place(nests, "s", "t")


def test_a_state_changes_in_place_behind_its_readers() -> None:
    assert in_place("t = Mul(s, x); y = Add(t, x)")
    assert in_place("a = Mul(s, x); b = ReduceSum(a, axes=[1], keepdims=1); t = Mul(s, b); y = Add(t, x)")


def test_a_state_that_is_read_later_keeps_its_place() -> None:
    assert not in_place("t = Mul(s, x); a = ReduceSum(t, axes=[1], keepdims=1); y = Mul(s, a)")
    assert not in_place("a = Transpose(s, perm=[0, 2, 1]); t = Mul(a, x); y = Add(t, x)")


def test_rows_that_are_over_keep_states_in_place() -> None:
    """Its output reads the state that is not masked, behind what hands the state on."""
    net, feeds = ending(T=20)
    (forward,) = ro.compile(net).plan(feeds, backward=False).plan.compiled.forward.values()
    assert [state.read for state in resident_states(forward.compiled.scan, forward.compiled.plan)] == ["C"]


def test_both_ways_keep_states_in_place() -> None:
    net, feeds = case("mlstm")
    (forward,), (backward,) = training_scans(net, 8, **{name: array.shape for name, array in feeds.items()})
    for scan in (forward.compiled, backward.compiled):
        assert resident_states(scan.scan, scan.plan) == [], "all steps are kept, and lie far apart for a row"
    assert ro.compile(net).plan(feeds, backward=False).source.count("copy_float32(") == 3 * 2 + 1
