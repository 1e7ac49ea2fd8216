"""Runs on the CUDA device in memory that somebody lends, and as parts of a graph that somebody captures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator
from cuda_runs import TUNING, assert_same, feeds_of, model, on_device
from fake_driver import FakeKernel, Fakes, fake_device
from lending import Purse
from whole_grid import whole_grid

import rnnops as ro
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.errors import DeviceError
from rnnops.kernels.cuda import facade, memory
from rnnops.kernels.cuda.device_array import DeviceArray, copy_to, empty, settled
from rnnops.kernels.cuda.memory import current_lender, in_stream, lent_by

pytestmark = [pytest.mark.cuda, in_simulator]


@pytest.fixture(autouse=True)
def _all_blocks_at_once() -> Iterator[None]:
    with whole_grid():
        yield


def trained(run: Any, given: dict[str, Any], heads: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    out, pullback = run.vjp(given)
    return out, pullback(heads)


def test_all_memory_is_lent_and_results_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model()
    feeds, run = feeds_of(net), ro.compile(net, device="cuda", tuning=TUNING)
    wanted, pullback = ro.compile(net, device="reference").vjp(feeds)
    ones = {name: np.ones_like(array) for name, array in wanted.items()}
    exact, given, heads, purse = pullback(ones), on_device(feeds), on_device(ones), Purse()
    allocated = memory._allocated

    def counted(nbytes: int) -> Any:
        assert current_lender() is purse
        return allocated(nbytes)

    monkeypatch.setattr(memory, "_allocated", counted)
    with lent_by(purse):
        out, grads = trained(run, given, heads)
    assert current_lender() is None
    assert_same(out, wanted, DeviceArray)
    assert_same(grads, exact, DeviceArray)
    assert all(purse.owns(array) for array in (*out.values(), *grads.values()))
    with lent_by(purse):
        before = len(purse.lent)
        trained(run, given, heads)
        assert len(purse.lent) > before, "scratch goes back to the lender, and is lent anew"


def test_a_captured_run_reads_and_writes_nothing_of_the_host() -> None:
    net = model()
    feeds, run = feeds_of(net), ro.compile(net, device="cuda", tuning=TUNING)
    given = on_device(feeds)
    heads = on_device({name: np.ones_like(array) for name, array in run(feeds).items()})
    with lent_by(Purse()):
        wanted, exact = trained(run, given, heads)
    with lent_by(Purse(captures=True)):
        out, grads = trained(run, given, heads)
    for found, known in ((out, wanted), (grads, exact)):
        for name, array in known.items():
            np.testing.assert_array_equal(found[name].to_host(), array.to_host(), err_msg=name)


def test_what_has_not_run_is_not_captured() -> None:
    net = ro.Net("first")
    net.outputs(y=ro.tanh(net.input("x")) * 2.0)
    run, x = ro.compile(net, device="cuda"), ro.on_device(np.ones((2, 3)))
    refused = pytest.raises(DeviceError, match=r"net 'first'.*a CUDA graph is captured, and .*Run it once before")
    with lent_by(Purse(captures=True)), refused:
        run(x=x)
    run(x=x)
    with lent_by(Purse(captures=True)):
        assert run(x=x)["y"].shape == (2, 3)


def test_indices_are_looked_at_by_plain_runs_alone() -> None:
    net = ro.Net("looks")
    net.outputs(y=ro.gather(net.input("w"), net.input("i", "int64"), axis=0))
    run = ro.compile(net, device="cuda")
    w = ro.on_device(np.arange(6.0).reshape(3, 2))
    inside, outside = (ro.on_device(np.array(places)) for places in ([0, 2], [0, 7]))
    run(w=w, i=inside)
    with lent_by(Purse(captures=True)):
        found = run(w=w, i=outside)
    np.testing.assert_array_equal(found["y"].to_host(), [[0, 1], [4, 5]])  # the nearest row that there is
    assert run(w=w, i=inside)["y"].to_host().tolist() == [[0, 1], [4, 5]], "and a later run knows nothing of it"
    with pytest.raises(ro.TypeRuleError):
        run(w=w, i=outside)


def test_zeros_come_from_nowhere() -> None:
    x = ro.on_device(np.ones((3, 4)))
    with lent_by(Purse(captures=True)):
        x[:, ::2].fill(0)
        x[1].fill(0)
    np.testing.assert_array_equal(x.to_host(), [[0, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 1]])


def test_what_would_spoil_a_graph_has_a_name() -> None:
    x = ro.on_device(np.ones(3))
    for spoil, problem in (
        (lambda: x.to_host(), "numbers of the device are read on the host"),
        (lambda: float(x[0]), "numbers of the device are read on the host"),
        (lambda: copy_to(x, np.ones(3)), "numbers of the host are copied to the device"),
        (lambda: settled(x), "the host waits for the device"),
    ):
        with lent_by(Purse(captures=True)), pytest.raises(DeviceError, match=problem):
            spoil()


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    with fake_device() as made:
        yield made


def test_a_driver_is_asked_for_launches_alone_while_a_graph_is_captured(fakes: Fakes) -> None:
    kernel, target = FakeKernel(fakes.log), Cuda(lanes=32, blocks=4)

    def driver(on: Any, numbers: Any, x: Any) -> None:
        on.launch(kernel, 2, 0, 0, 0, 1, 1, x)

    def call(purse: Purse) -> list[str]:
        with in_stream(facade.stream_of(7)), lent_by(purse):
            x, status = empty((4,), "float32"), empty((4,), "int64")
            work = (None, status, np.arange(40), x)
            fakes.log.clear()
            assert not target.call(driver, None, work, False)  # type: ignore[arg-type]
        streams_used = {entry[3] for entry in fakes.said("launch")} | {entry[2] for entry in fakes.said("memset")}
        assert streams_used <= {7}
        return [entry[0] for entry in fakes.log if entry[0] != "configure"]

    refused = pytest.raises(DeviceError, match="a kernel would have to be loaded")
    with refused:
        call(Purse(captures=True))
    assert call(Purse()) == ["memset", "launch", "launch", "launch"]  # counters; two for numbers, and the driver's own
    assert call(Purse()) == ["launch", "launch", "launch"], "nothing is copied, nobody waits, nothing is allocated"
    assert call(Purse(captures=True)) == ["memset", "memset", "launch", "launch", "launch"]


def test_what_is_lent_is_not_asked_of_the_driver(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    purse = Purse()
    with monkeypatch.context() as patch, lent_by(purse):
        patch.setattr(memory, "allocate", lambda *_: pytest.fail("the driver is asked"))
        assert purse.owns(empty((3,), "float32"))
    assert memory.allocate(8, 0)[1]
