"""Numbers that are not finite: the error names the op, the step and what was given to it."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
from rejection import rejects

import rnnops as ro

T, N, H = 6, 2, 3
ONES = {"xs": np.ones((T, N, H)), "h0": np.ones((N, H)), "w": np.full((H, H), 0.1)}


@ro.cell
def cell(x: Any, h: Any, *, w: Any) -> dict[str, Any]:
    return {"h": ro.log((h @ w + x).named("inner")), "y": ro.sqrt(x)}


def net() -> ro.Net:
    made = ro.Net("model")
    states, y = ro.scan(cell, made.input("xs"), h=made.input("h0"))
    made.outputs(y=y, last=states["h"])
    return made


@pytest.fixture(params=["cpu", "reference"])
def run(request: pytest.FixtureRequest) -> ro.Run:
    return ro.compile(net(), device=request.param, check_numerics=True)


def fed(**changed: Any) -> dict[str, Any]:
    return {**ONES, **changed}


def test_finite_numbers_pass(run: ro.Run) -> None:
    plain = ro.compile(net(), device=run.device)
    out, pullback = run.vjp(ONES)
    wanted, other = plain.vjp(ONES)
    ones = {"last": np.ones((N, H))}
    for mine, theirs in ((out, wanted), (run(ONES), wanted), (pullback(ones), other(ones))):
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name])


def test_the_step_that_makes_the_first(run: ro.Run) -> None:
    xs = ONES["xs"].copy()
    xs[3, 1] = -50.0
    for call in (run, run.vjp, run.bind(w=ONES["w"])):
        feeds = {name: value for name, value in fed(xs=xs).items() if call in (run, run.vjp) or name != "w"}
        with pytest.raises(ro.NumericsError, match=r"net 'cell', op 'Log .*NaN is made here, in step 3.*at \[1, 0\]"):
            call(feeds)


def test_gradients(run: ro.Run) -> None:
    """The root of 0 is finite, and its slope is not."""
    xs = ONES["xs"].copy()
    xs[4, 0, 2] = 0.0
    out, pullback = run.vjp(fed(xs=xs))
    with pytest.raises(ro.NumericsError, match=r"op 'Div .*in step 4"):
        pullback({"y": np.ones_like(out["y"])})


def test_infinity_and_feeds(run: ro.Run) -> None:
    h0 = ONES["h0"].copy()
    h0[1, 2] = np.nan
    with pytest.raises(ro.NumericsError, match="blob 'h0': a feed is not finite, and reaches output 'last'"):
        run(fed(h0=h0))
    with pytest.raises(ro.NumericsError, match="blob 'h0'"):
        run.bind(w=ONES["w"])({"xs": ONES["xs"], "h0": h0})
    with pytest.raises(ro.NumericsError, match="blob 'h0'"):
        run.bind(h0=h0)({"xs": ONES["xs"], "w": ONES["w"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ro.NumericsError, match=r"op 'MatMul .*the first infinity is made here, in step 0.*1e\+200"):
            run(fed(h0=np.full((N, H), 1e200), w=np.full((H, H), 1e200)))


def test_of_two_feeds_the_one_with_nan_is_blamed(run: ro.Run) -> None:
    """Masks have infinities, on purpose."""
    net = ro.Net("masked")
    net.outputs(y=net.input("mask") + net.input("x"))
    checking = ro.compile(net, device=run.device, check_numerics=True)
    with pytest.raises(ro.NumericsError, match=r"blob 'x': a feed is not finite.*got NaN at \[1\]"):
        checking(mask=np.array([-np.inf, 0.0]), x=np.array([np.inf, np.nan]))
    with pytest.raises(ro.NumericsError, match=r"blob 'mask': a feed is not finite.*got infinity at \[0\]"):
        checking(mask=np.array([-np.inf, 0.0]), x=np.zeros(2))


def test_given_gradients_and_constants(run: ro.Run) -> None:
    """What an error says of the reference device is so: infinities come from what was given, or from the net."""
    given = np.ones((T, N, H))
    given[2, 1, 0] = np.nan
    with pytest.raises(
        ro.NumericsError, match=r"blob 'y': a gradient that was given is not finite, and reaches gradient of 'xs'"
    ):
        run.vjp(ONES)[1]({"y": given})
    made = ro.Net("shifted")
    made.outputs(y=made.input("x") + np.inf)
    endless = ro.compile(made, device=run.device, check_numerics=True)
    for call in (endless, endless.vjp):
        with pytest.raises(ro.NumericsError, match="a constant is not finite, and reaches output 'y'"):
            call(x=np.ones(2))


def test_masks_of_infinity_are_no_errors() -> None:
    made = ro.Net("masked")
    x = made.input("x")
    made.outputs(y=ro.softmax(ro.where(x > 0.0, x, -np.inf), axis=-1))
    out = ro.compile(made, check_numerics=True)(x=np.array([[1.0, -1.0, 2.0]]))
    assert out["y"][0, 1] == 0.0


def test_what_else_is_asked_of_such_a_run() -> None:
    run = ro.compile(net(), check_numerics=True)
    assert repr(run).startswith("<CheckedRun of net 'model'")
    other = copy.deepcopy(run.bind(w=ONES["w"]))
    with pytest.raises(ro.NumericsError, match="Log"):
        other({"xs": -50 * ONES["xs"], "h0": ONES["h0"]})
    with pytest.raises(ro.DeviceError, match="without check_numerics"):
        run.export_native("nowhere", xs=(T, N, H))
    with pytest.raises(ro.DeviceError, match="not supported on 'cuda'"):
        ro.compile(net(), device="cuda", check_numerics=True)


def padded(device: str = "cpu") -> ro.Run:
    """A cell that takes a logarithm, over rows with ends; `bad` is read outside of it."""
    made = ro.Net("model")
    xs, bad = made.input("xs"), made.input("bad")
    states, y = ro.scan(cell, xs, h=made.input("h0"), lengths=made.input("lengths", "int32"))
    made.outputs(y=y, last=states["h"], after=ro.log(bad).named("outside"))
    return ro.compile(made, device=device, check_numerics=True)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_what_is_dropped_past_the_end_of_a_row_is_not_named(device: str) -> None:
    run = padded(device)
    xs = ONES["xs"].copy()
    xs[3:, 1] = -50.0  # row 1 is over by then
    lengths = np.array([T, 3], np.int32)
    run(fed(xs=xs, lengths=lengths, bad=np.ones(2)))
    with pytest.raises(ro.NumericsError, match="net 'model', op 'Log -> outside"):
        run(fed(xs=xs, lengths=lengths, bad=np.array([1.0, 0.0])))
    xs[5, 0] = -50.0  # and row 0 is not
    with pytest.raises(ro.NumericsError, match=r"net 'cell', op 'Log .*NaN is made here, in step 5.*at \[0, 0\]"):
        run(fed(xs=xs, lengths=lengths, bad=np.ones(2)))


def test_what_is_dropped_forward_and_counts_backward_is_named() -> None:
    xs = ONES["xs"].copy()
    xs[3:, 1] = -50.0
    feeds = fed(xs=xs, lengths=np.array([T, 3], np.int32), bad=np.ones(2))
    for device in ("cpu", "reference"):
        out, pullback = padded(device).vjp(feeds)
        try:
            grads = pullback({"last": np.ones_like(out["last"])})
        except ro.NumericsError as error:
            assert "a constant" not in str(error)  # noqa: PT017 - it need not be raised
        else:
            assert all(np.isfinite(grad).all() for grad in grads.values())


@ro.cell
def exploding(x: Any, h: Any) -> Any:
    return {"h": ro.exp(x) + h}


@ro.cell
def dividing(x: Any, h: Any) -> Any:
    return {"h": h + 1.0 / x}


@pytest.mark.parametrize("cell", [exploding, dividing], ids=["exploding", "dividing"])
@pytest.mark.parametrize("forward_only", [False, True])
def test_what_lies_past_a_rows_end_is_not_blamed(cell: Any, forward_only: bool) -> None:
    net = ro.Net("net")
    lengths = net.input("lengths", "int32")
    states, _ = ro.scan(cell, net.input("xs"), h=np.zeros(2), lengths=lengths, forward_only=forward_only)
    net.outputs(y=states["h"])
    bad = 1e3 if cell is exploding else 0.0
    xs = np.ones((5, 2, 2))
    xs[3, 1] = bad  # past the end of the second row
    feeds = {"xs": xs, "lengths": np.array([5, 2], "int32")}
    run = ro.compile(net, check_numerics=True)
    assert np.isfinite(run(feeds)["y"]).all()
    xs[4, 0] = bad  # reaches the output
    with np.errstate(all="ignore"):
        rejects(ro.NumericsError, lambda: run(feeds), "in step 4")
        if not forward_only:
            rejects(ro.NumericsError, lambda: run.vjp(feeds), "in step 4")
