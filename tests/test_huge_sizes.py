"""Sizes that no memory has room for are named errors, wherever they come from, and nothing of such a size is made."""

from __future__ import annotations

import re

import numpy as np
import pytest
from rejection import rejects

import rnnops as ro
from rnnops.interpreter import Program
from rnnops.types import MOST_ELEMENTS, is_too_large

HUGE = 2**50  # elements: more bytes than any address space has, though fewer than an array may have by its type
IMPOSSIBLE = (2**62, 2**63, 2**64, 10**30)

OF_A_FEED = {  # feed x: float[2, 3]
    "Tile": "y = Tile(x, repeats=[{size}, 1])",
    "Expand": "y = Expand(x, shape=[{size}, 2, 3])",
    "Pad": "y = Pad(x, pads=[0, 0, {size}, 0])",
    "Pad, edge": 'y = Pad(x, pads=[0, 0, {size}, 0], mode="edge")',
    "ConstantOfShape": "c = ConstantOfShape(shape=[{size}, 1])\n    y = Mul(c, c)",
    "Concat": "c = Expand(x, shape=[{size}, 2, 3])\n    y = Concat(c, c, axis=0)",
}
OF_CONSTANTS = {
    "Tile": "y = Tile(c, repeats=[{size}])",
    "Expand": "y = Expand(c, shape=[{size}, 2])",
    "Pad": "y = Pad(c, pads=[0, {size}])",
    "Range": 'a = Constant(value=0, dtype="int64")\n    b = Constant(value={size}, dtype="int64")\n'
    '    d = Constant(value=1, dtype="int64")\n    y = Range(a, b, d)',
    "Range of floats": 'a = Constant(value=0.0, dtype="float")\n    b = Constant(value={size}.0, dtype="float")\n'
    '    d = Constant(value=1.0, dtype="float")\n    y = Range(a, b, d)',
    "Gather": "i = ConstantOfShape(shape=[{size}], value=0)\n    y = Gather(c, i)",
}
CONSTANT = 'c = Constant(value=array(int64, [2], [1, 2]), dtype="int64")\n    '


def net_with(body: str, size: int, constants: bool) -> ro.Net:
    """The net of an op with a size."""
    head = f"net n()\n    {CONSTANT}" if constants else "net n(x)\n    "
    return ro.parse_net(f"{head}{body.format(size=size)}\n    return y=y\n")


CASES = [
    *((f"{name} of a feed", body, False) for name, body in OF_A_FEED.items()),
    *((f"{name} of constants", body, True) for name, body in OF_CONSTANTS.items()),
]


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize(("name", "body", "constants"), CASES, ids=[case[0] for case in CASES])
def test_a_result_that_memory_has_no_room_for(name: str, body: str, constants: bool, device: str) -> None:
    run = ro.compile(net_with(body, HUGE, constants), device=device)
    with pytest.raises(ro.OutOfMemoryError) as raised:
        run({} if constants else {"x": np.ones((2, 3), "float32")})
    assert isinstance(raised.value, MemoryError)
    assert raised.value.net == "n"
    assert raised.value.op
    assert raised.value.blob
    assert re.search(r"\[\d{16}.*\d elements, \d{16,} bytes", str(raised.value))


@pytest.mark.parametrize("size", IMPOSSIBLE)
@pytest.mark.parametrize(("name", "body", "constants"), CASES, ids=[case[0] for case in CASES])
def test_a_size_that_no_array_has(name: str, body: str, constants: bool, size: int) -> None:
    run = ro.compile(net_with(body, size, constants), device="reference")
    with pytest.raises(ro.TypeRuleError) as raised:
        run.plan({} if constants else {"x": (2, 3)})
    assert raised.value.net == "n"
    assert raised.value.op
    not_of_the_dtype = "Constant" in str(raised.value.op) and "value" in raised.value.problem
    assert not_of_the_dtype or "no memory can hold" in raised.value.problem


def test_sizes_are_multiplied_without_an_overflow() -> None:
    """2^32 * 2^32 is 0 in 64 bits."""
    net = ro.Net("n")
    x = net.input("x")
    net.outputs(s=ro.shape(ro.reshape(x, [-1, 1]) * ro.reshape(x, [1, -1])))
    with pytest.raises(ro.TypeRuleError, match=f"{2**64} elements"):
        ro.compile(net, device="reference").plan(x=(2**32,))


def test_what_is_too_large_for_any_array() -> None:
    assert not is_too_large((2**30, 2**29))
    assert is_too_large((2**30, 2**30))
    assert is_too_large((MOST_ELEMENTS,))
    assert not is_too_large((0, 2**40))
    assert is_too_large((0, 2**40, 2**40))
    assert not is_too_large(())


@pytest.mark.parametrize("limit", ["Infinity", "NaN"])
def test_a_range_without_an_end(limit: str) -> None:
    body = OF_CONSTANTS["Range of floats"].replace("{size}.0", limit)
    with pytest.raises(ro.TypeRuleError, match="number of elements of a range is not finite"):
        ro.compile(net_with(body, 0, True), device="reference").plan({})


EMPTY = {
    "Tile": "y = Tile(x, repeats=[{size}, 0])",
    "Pad": "y = Pad(x, pads=[0, 0, {size}, -3])",
    "Pad, edge": 'y = Pad(x, pads=[0, 0, {size}, -3], mode="edge")',
    "OneHot": 'e = Slice(x, starts=[0], ends=[0], axes=[0])\n    i = Cast(e, to="int64")\n'
    '    d = Constant(value={size}, dtype="int64")\n'
    '    v = Constant(value=array(float32, [2], [0, 1]), dtype="float")\n'
    "    y = OneHot(i, d, v)",
}


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("name", EMPTY)
def test_what_is_empty_is_made_of_nothing(name: str, device: str) -> None:
    """One axis is longer than memory, another has no elements: results and gradients are there."""
    run = ro.compile(net_with(EMPTY[name], HUGE, False), device=device)
    out, pullback = run.vjp(x=np.ones((2, 3), "float32"))
    assert out["y"].size == 0
    assert max(out["y"].shape) >= HUGE
    assert not pullback(out["y"])["x"].any()


def test_integers_that_are_empty_are_not_folded_from_large_parts() -> None:
    """Operands that broadcast to nothing pass through what they broadcast to before."""
    sides = [np.ones([4096 if axis == other else 1 for axis in range(4)], "int64") for other in range(3)]
    net = ro.Net("n")
    x = net.input("x", "int64")
    net.outputs(y=ro.max(*(net.constant(side, "int64") for side in sides), x))
    planned = ro.compile(net, device="reference").plan(x=np.ones((1, 1, 1, 0), "int64"), backward=False)
    assert [call.op.type for call in planned.plan.program.calls][-1] == "Max"


def test_a_large_constant_is_expanded_when_it_runs_not_when_it_is_planned() -> None:
    net = ro.Net("n")
    x = net.input("x")
    numbers = ro.expand(net.constant(np.arange(2), "int64"), [1000, 64, 2])
    net.outputs(y=x + ro.cast(numbers, "float"))
    run = ro.compile(net, device="reference")
    calls = run.plan(x=(2,), backward=False).plan.program.calls
    assert [call.op.type for call in calls] == ["Constant", "Expand", "Cast", "Add"]
    assert run(x=np.zeros(2, "float32"))["y"].shape == (1000, 64, 2)


def test_inputs_that_no_memory_holds() -> None:
    rejects(ro.NetError, lambda: ro.Net("n").input("x", shape=(2**40, 2**40)), "'x'", "no memory can hold")
    rejects(ro.NetError, lambda: ro.Net("n").parameter("w", (2**62,)), "'w'")
    rejects(ro.ParseError, lambda: ro.parse_net(f"net n(w: param[{2**62}] = zeros)\n    return w"), "line 1", "'w'")
    net = ro.Net("n")
    net.outputs(y=ro.tanh(net.input("x")))
    rejects(
        ro.FeedError, lambda: ro.compile(net, device="reference").plan(x=(2**40, 2**40)), "'x'", "no memory can hold"
    )


def test_a_recurrence_of_too_many_steps() -> None:
    cell = ro.Net("cell")
    cell.outputs(h=ro.tanh(cell.input("h_prev")))
    net = ro.Net("n")
    states = [("h_prev", net.input("h0"))]
    net.outputs(y=ro.recurrent_net(net, cell, [], states, {"h_prev": "h"}, steps=HUGE)[0])
    for device in ("reference", "cpu"):
        with pytest.raises(ro.OutOfMemoryError, match="RecurrentNetwork"):
            ro.compile(net, device=device)(h0=np.ones((1, 4), "float32"))


def test_memory_that_runs_out_while_a_plan_is_made_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(program: Program) -> ro.Net:
        raise MemoryError("no room")

    monkeypatch.setattr("rnnops.compiler.run.pipeline.REWRITES_OF_SHAPES", (no_room,))
    net = ro.Net("n")
    x = net.input("x")
    net.outputs(y=ro.reduce_sum(x.net.apply("Exp", [x]), axes=[0]))
    run = ro.compile(net, device="reference")
    for backward in (True, False):
        rejects(
            ro.OutOfMemoryError, lambda back=backward: run.plan(x=(5, 7), backward=back), "'Exp -> exp_0'", "140 bytes"
        )
