"""`rnnops.torch` on CUDA tensors: all that a call asks of the driver, by one that writes it down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from cuda_marks import in_simulator  # noqa: E402
from fake_card import STREAM, FakeCard, fake_card  # noqa: E402
from fake_driver import Fakes, fake_device  # noqa: E402

import rnnops.torch as rt  # noqa: E402

pytestmark = [
    pytest.mark.cuda,
    in_simulator,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]
T, N, D, H = 3, 2, 3, 4


@pytest.fixture
def card() -> Iterator[FakeCard]:
    with fake_card() as made:
        yield made


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    with fake_device() as made:
        yield made


def train(rnn: Any, xs: Any, lengths: Any = None) -> None:
    ys, _ = rnn(xs, lengths=lengths)
    ys.sum().backward()


@pytest.mark.parametrize("captures", [False, True])
@pytest.mark.parametrize("cell", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_a_training_step_is_launches_in_one_stream(cell: Any, captures: bool, card: FakeCard, fakes: Fakes) -> None:
    """No copy to or from the host, no wait, no event, no memory but PyTorch's, and zeros in the same stream."""
    rnn, xs, lengths = rt.RNN(cell(D, H)), torch.randn(T, N, D, requires_grad=True), torch.tensor([3, 2])
    train(rnn, xs, lengths)
    allocated = fakes.said("alloc", "memalloc")
    fakes.log.clear()
    card.captures = captures
    train(rnn, xs, lengths)
    entries = [entry for entry in fakes.log if entry[0] != "configure"]
    assert {entry[0] for entry in entries} == {"launch", "memset"}
    assert {entry[3] for entry in fakes.said("launch")} == {STREAM}
    assert {entry[2] for entry in fakes.said("memset")} == {STREAM}
    assert allocated == []


def test_a_first_call_waits_for_what_it_keeps(card: FakeCard, fakes: Fakes) -> None:
    """Where constants and the words of its kernels are written: copies to the device, for which the host waits."""
    train(rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(T, N, D, requires_grad=True))
    assert fakes.said("to device")
    assert {entry[1] for entry in fakes.said("to device", "synchronize")} == {STREAM}
    assert fakes.said("alloc", "memalloc", "to host", "begin capture") == []


def test_runs_of_many_launches_are_recorded_by_cupy_but_not_in_a_graph_of_pytorch(card: FakeCard, fakes: Fakes) -> None:
    """Addresses are the pool's: the third call with the same ones is one graph behind the numbers that it reads."""
    pool: dict[int, list[Any]] = {}
    place = [0]

    def again(nbytes: int, device: Any) -> Any:
        """As a pool does that gives the same addresses in every round."""
        known = pool.setdefault(place[0], [torch.zeros(1 << 14, dtype=torch.uint8)])[0]
        place[0] += 1
        assert nbytes <= known.nbytes
        return known

    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(40, N, D)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr("rnnops.compiler.targets.cuda.target.LEAST", 1)
        rnn(xs)
        patch.setattr("rnnops.torch.sides.memory", again)
        for _ in range(3):
            place[0] = 0
            fakes.log.clear()
            rnn(xs)
        assert [entry[0] for entry in fakes.log[-2:]] == ["launch", "graph"]
        assert fakes.said("graph", "to device", "synchronize") == [("graph", STREAM)]
        fakes.log.clear()
        card.captures, place[0] = True, 0
        rnn(xs)
        assert fakes.said("graph", "begin capture", "to device") == []
        assert fakes.said("launch")
