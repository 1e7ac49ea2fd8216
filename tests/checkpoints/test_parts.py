"""Recurrences in parts: forward steps counted while they run, the same gradients as in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from part_cells import busy_feeds, busy_net, results

import rnnops as ro
from rnnops.checkpoints import Slots, forward_steps, slots
from rnnops.compiler.run.compiled_scan import Options
from rnnops.net.schema import RunContext
from rnnops.recurrent.parts import Part, Parted, Parts

PLAIN = Options(compiled=False, tile=2, around="rows")


def reference(net: ro.Net, checkpoints: object = None) -> ro.Run:
    return ro.compile(net, device="reference", checkpoints=checkpoints)


class Kept:
    """What is kept of a part: nothing."""

    def named_arrays(self) -> dict[str, np.ndarray]:
        return {}


class Nothing:
    """Kernels that compute nothing."""

    def __init__(self, parts: Parts) -> None:
        self.states = [np.zeros(parts.initial[s.input].shape) for s in parts.recurrence.states]

    def run(self, what: str, part: Part, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        lasts = [half for state in self.states for half in (None, state)]
        return tuple(self.states) if what == "backward" else (*lasts, Kept())

    def end(self) -> None:
        pass


def steps_taken(T: int, m: int, kind: str, cost: int = 1) -> int:
    """Forward steps of a recurrence without sequences that runs as it always does, but for its kernels."""
    cell = ro.Net("cell")
    h = cell.input("h")
    cell.outputs(h_t=ro.tanh(h))
    net = ro.Net("net")
    net.outputs(ro.recurrent_net(net, cell, [], [("h", net.input("h0"))], {"h": "h_t"}, steps=T)[1])
    plan = reference(net, Slots(m, kind, cost=cost)).plan(h0=(1, 1)).plan
    (call,) = (call for call in plan.program.calls if call.op.type == "RecurrentNetwork")
    parts = Parts(call, ((False, True),), 1)
    parted = Parted(parts, slots(T, m, kind, cost), lambda: Nothing(parts))
    *_, held = parted.forward([np.zeros((1, 1))], RunContext())
    assert held.forward_steps == T, "the forward pass runs every step once"
    parted.backward([None, held, None, np.zeros((1, 1, 1))], RunContext())
    return int(held.forward_steps)


@pytest.mark.parametrize("T", [1, 2, 3, 10, 47, 300])
def test_forward_steps_are_as_few_as_can_be(T: int) -> None:
    for m in {1, 2, 3, 4, 5, 8, 13, 30, 99, 299, 300, 310}:
        for kind in ("state", "step"):
            assert steps_taken(T, m, kind) == forward_steps(T, m, kind), (m, kind)


@pytest.mark.slow
@pytest.mark.parametrize("T", range(1, 301, 13))
def test_forward_steps_for_all_numbers_of_slots(T: int) -> None:
    for m in range(1, T + 2):
        for kind in ("state", "step"):
            assert steps_taken(T, m, kind) == forward_steps(T, m, kind), (m, kind)


def test_forward_steps_of_mixed_slots() -> None:
    for m in (1, 4, 9, 20):
        assert steps_taken(60, m, "mixed", cost=3) == forward_steps(60, m, "mixed", 3)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "chosen",
    [Slots(1), Slots(3), Slots(50), Slots(3, "step"), Slots(7, "mixed", cost=3), Slots(2, steps=2), Slots(9, steps=4)],
    ids=str,
)
def test_a_busy_cell_gives_the_same_bits(chosen: Slots, reverse: bool) -> None:
    """Three states, dropout, lengths; in the interpreter."""
    net, T = busy_net(reverse), 11
    feeds = busy_feeds(T)
    wanted, _ = results(reference(net), feeds)
    came, steps = results(reference(net, chosen), feeds)
    for name, array in wanted.items():
        np.testing.assert_array_equal(came[name], array, err_msg=name)
    if chosen.steps == 1:
        assert steps == forward_steps(T, chosen.count, chosen.kind, chosen.cost)


@pytest.mark.covering(2)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("chosen", [Slots(1), Slots(3), Slots(2, steps=4), Slots(4, "step", steps=2)], ids=str)
@pytest.mark.parametrize("device", ["reference", "plain"])
def test_windows(device: str, chosen: Slots, reverse: bool) -> None:
    """A window that is longer than some parts: what reaches a step through several parts is added up part by part."""
    net, feeds = busy_net(reverse, window=3), busy_feeds(11, window=3)
    wanted, _ = results(reference(net), feeds)
    run = reference(net, chosen) if device == "reference" else ro.compile(net, checkpoints=chosen, tuning=PLAIN)
    came, _ = results(run, feeds)
    for name, array in wanted.items():
        np.testing.assert_allclose(came[name], array, rtol=0, atol=1e-12 * max(1, np.abs(array).max()), err_msg=name)


def test_parts_of_whole_tiles_give_the_same_bits() -> None:
    net = busy_net()
    feeds = busy_feeds(11, dtype="float32")
    wanted, _ = results(ro.compile(net, threads=2, tuning=Options(tile=2)), feeds)
    for chosen in (Slots(2, steps=4), Slots(9, "step", steps=2)):
        came, _ = results(ro.compile(net, threads=2, checkpoints=chosen, tuning=Options(tile=2)), feeds)
        for name, array in wanted.items():
            np.testing.assert_array_equal(came[name], array, err_msg=name)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_no_steps(device: str) -> None:
    net = ro.Net("net")
    h_all, h_last, *_ = ro.LSTM(net, net.input("x"), None, None, 3, 3)
    net.outputs(h_all, h_last)
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.zeros((0, 2, 3))}
    wanted, _ = results(reference(net), feeds)
    tuning = None if device == "reference" else PLAIN
    came, steps = results(ro.compile(net, device=device, checkpoints=Slots(2), tuning=tuning), feeds)
    assert steps is None
    for name, array in wanted.items():
        np.testing.assert_array_equal(came[name], array, err_msg=name)


def test_several_recurrences() -> None:
    """A stack in two recurrences."""
    net = ro.Net("stack")
    h = net.input("x")
    for k in range(2):
        h = ro.LSTM(net, h, None, None, 3, 3, scope=f"l{k}")[0]
    net.outputs(y=h)
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.random.default_rng(0).normal(size=(6, 2, 3))}
    wanted, _ = results(reference(net), feeds)
    for run in (reference(net, Slots(2, steps=2)), ro.compile(net, checkpoints=Slots(2, steps=2), tuning=PLAIN)):
        for name, array in results(run, feeds)[0].items():
            np.testing.assert_allclose(array, wanted[name], rtol=0, atol=1e-13, err_msg=name)


def test_a_pullback_in_parts_is_used_once_and_lists_no_step_blobs() -> None:
    net = busy_net()
    _, pullback = reference(net, Slots(2)).vjp(busy_feeds(5), seed=1)
    with pytest.raises(ro.GradientError, match="not kept"):
        pullback.step_blobs("h")
    pullback({"h_t_all": np.zeros((5, 3, 4))})
    with pytest.raises(ro.GradientError, match="used already"):
        pullback({})


@pytest.mark.parametrize("chosen", [Slots(0), Slots(2, "all"), Slots(2, steps=0), Slots(2, "mixed", cost=0)], ids=str)
def test_bad_slots(chosen: Slots) -> None:
    with pytest.raises(ro.CheckpointError):
        reference(busy_net(), chosen)
