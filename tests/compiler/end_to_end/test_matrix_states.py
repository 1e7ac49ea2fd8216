"""Cells whose state is a matrix: as the reference has it, and the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from devices import PLAIN
from matrix_cells import CELLS, assert_close, assert_equal, case, results

import rnnops as ro
from rnnops.compiler.schedule import batch_axis


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_as_the_reference_has_it(name: str, reverse: bool) -> None:
    net, feeds = case(name, T=70, N=2, dtype="float64", reverse=reverse)
    assert_close(results(net, feeds), results(net, feeds, device="reference"), 1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_threads_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_axis, "LITTLE_WORK", 0)
    net, feeds = case(name, T=70)
    one = results(net, feeds, threads=1)
    for threads in (2, 3, 5):
        assert_equal(results(net, feeds, threads=threads), one)


@pytest.mark.parametrize("name", CELLS)
def test_sums_that_rows_share_are_right(name: str) -> None:
    net, feeds = case(name, T=3, N=66, dtype="float64")
    assert_close(results(net, feeds), results(net, feeds, device="reference"), 1e-12)


def test_plain_python_does_the_same() -> None:
    net, feeds = case("delta_net", T=3, N=2)
    assert_close(results(net, feeds, device="cpu", tuning=PLAIN), results(net, feeds), 1e-5)


def test_heads_join_the_rows_where_nothing_folds_them() -> None:
    cases = {name: case(name) for name in CELLS}
    said = {name: ro.compile(net).plan(feeds, backward=False).describe() for name, (net, feeds) in cases.items()}
    assert "each of 2 heads of a row goes through" in said["mlstm"]
    assert "each row goes through all steps of a tile before the next begins" in said["selective"]


def small(cell: Callable[[ro.Blob, ro.Blob], ro.Blob]) -> str:
    """What is said of a cell whose state is as wide as its sequence."""
    step, net = ro.Net("cell"), ro.Net("net")
    x, h = step.inputs("x", "h")
    step.outputs(h_t=cell(x, h))
    ro.recurrent_net(net, step, [("x", net.input("xs"))], [("h", net.input("h0"))], {"h": "h_t"})
    net.outputs(y=net.blob("h_t_all"))
    return ro.compile(net).plan(xs=(8, 2, 2048), h0=(2, 2048)).describe()


def test_states_as_wide_as_sequences_stay_within_steps() -> None:
    assert "before the next begins" not in small(lambda x, h: ro.tanh(x) * h + x)
