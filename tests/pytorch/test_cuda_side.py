"""`rnnops.torch` on CUDA tensors, where there are none: values in numba's simulator, and whose memory they lie in."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]

import torch.utils._pytree as pytree  # noqa: E402
from cuda_marks import in_simulator  # noqa: E402
from fake_card import CARD, FakeCard, fake_card  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.errors import DeviceError  # noqa: E402
from rnnops.kernels.cuda import device_array, facade  # noqa: E402
from rnnops.kernels.cuda.device_array import on_device  # noqa: E402
from rnnops.kernels.cuda.memory import lent_by  # noqa: E402
from rnnops.torch.arguments import TensorKind, TensorLayout  # noqa: E402
from rnnops.torch.sides import CudaSide, TorchMemory  # noqa: E402
from rnnops.torch.translate import trace_step, translate  # noqa: E402

pytestmark = [*pytestmark, in_simulator]
T, N, D, H = 3, 2, 3, 4


@pytest.fixture
def card() -> Iterator[FakeCard]:
    with fake_card() as made:
        yield made


def numbers(*shape: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).requires_grad_()


CELLS: dict[str, Callable[[], tuple[Any, int]]] = {
    "LSTMCell": lambda: (torch.nn.LSTMCell(D, H), 2),
    "GRUCell": lambda: (torch.nn.GRUCell(D, H), 1),
}


@pytest.mark.parametrize("name", CELLS)
def test_results_and_gradients_are_those_of_the_cpu_in_memory_of_pytorch(name: str) -> None:
    cell, count = CELLS[name]()
    xs, states, lengths = numbers(T, N, D), [numbers(N, H, seed=i) for i in range(count)], torch.tensor([2, 3])
    init, leaves = tuple(states) if count > 1 else states[0], [xs, *states, *cell.parameters()]

    def trained() -> tuple[list[Any], list[Any]]:
        ys, carry = rt.RNN(cell)(xs, init, lengths=lengths)
        outputs = [ys, *(carry if count > 1 else [carry])]
        return outputs, list(torch.autograd.grad([one.square().sum() for one in outputs], leaves))

    wanted, exact = trained()
    with fake_card() as card:
        found, grads = trained()
        assert all(card.owns(tensor) for tensor in (*found, *grads))
    for mine, theirs in ((found, wanted), (grads, exact)):
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_become_those_of_parameters_without_a_copy(card: FakeCard) -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), numbers(T, N, D)
    rnn(xs)[0].sum().backward()
    assert card.owns(xs.grad)
    assert all(card.owns(parameter.grad) for parameter in rnn.parameters())
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.1)
    before = rnn(xs)[0].sum().item()
    optimizer.step()
    assert rnn(xs)[0].sum().item() < before


def test_what_is_copied(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of states at the ends of time, one forward and one backward: no sequence, parameter or gradient of one."""
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), numbers(T, N, D)
    rnn(xs)[0].sum().backward()
    moved: list[int] = []
    plain = device_array.move

    def noted(target: Any, source: Any, adds: bool, stream: Any) -> None:
        moved.append(target.size)
        plain(target, source, adds, stream)

    monkeypatch.setattr(device_array, "move", noted)
    for name in ("copy_to", "_copied", "settled"):
        monkeypatch.setattr(device_array, name, lambda *_, name=name: pytest.fail(f"{name} is called"))
    monkeypatch.setattr(device_array.DeviceArray, "to_host", lambda self: pytest.fail("numbers go to the host"))
    ys, _ = rnn(xs)
    assert moved == [N * H]
    ys.backward(torch.ones(T, N, H))
    assert moved == [N * H] * 2


def test_a_graph_that_is_captured_has_the_same_bits(card: FakeCard) -> None:
    rnn, xs = rt.RNN(torch.nn.LSTMCell(D, H)), numbers(T, N, D)

    def trained() -> list[Any]:
        ys, _ = rnn(xs)
        return [ys, *torch.autograd.grad(ys.sum(), [xs, *rnn.parameters()])]

    card.captures = True
    with pytest.raises(DeviceError, match=r"a CUDA graph is captured, and .*Run it once before the capture"):
        trained()
    card.captures = False
    wanted = trained()
    card.captures = True
    for found, known in zip(trained(), wanted, strict=True):
        assert torch.equal(found, known)


def test_outputs_that_are_constants_or_turned_are_tensors_of_their_own(card: FakeCard) -> None:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        return h + x, (h, torch.full_like(x, 2.0), x.flip(-1), h > 0)

    xs, h0 = numbers(T, N, D), numbers(N, D)
    last, (hs, twos, turned, positive) = rt.scan(step, h0, xs)
    torch.testing.assert_close(last, h0 + xs.sum(0))
    assert torch.equal(twos, torch.full((T, N, D), 2.0))
    assert torch.equal(turned, xs.flip(-1))
    assert torch.equal(positive, hs > 0)


def test_what_pytorch_did_not_lend_is_copied_into_what_it_does(card: FakeCard) -> None:
    side, x = CudaSide(CARD), on_device(np.arange(6.0).reshape(2, 3))
    with lent_by(TorchMemory(CARD, captures=False)):
        assert card.owns(side.tensor(x))
        lent = x.copy()
        turned = side.tensor(lent.strided(5, (2, 3), (-3, -1)))  # which PyTorch has no tensors for
        part = side.tensor(lent[1, 1:])
    assert torch.equal(turned, torch.tensor([[5.0, 4, 3], [2, 1, 0]], dtype=torch.float64))
    assert torch.equal(part, torch.tensor([4.0, 5], dtype=torch.float64))
    assert part.data_ptr() == lent.pointer + 4 * 8


def test_nothing_is_kept_without_gradients_and_empty_batches_run(card: FakeCard) -> None:
    rnn = rt.RNN(torch.nn.GRUCell(D, H))
    with torch.no_grad():
        assert not rnn(numbers(T, N, D))[0].requires_grad
    with torch.inference_mode():
        assert rnn(numbers(T, N, D).detach())[0].is_inference()
    assert rnn(numbers(T, 0, D))[0].shape == (T, 0, H)


def test_a_second_backward_pass_and_copies_of_modules(card: FakeCard) -> None:
    rnn, xs = rt.RNN(torch.nn.RNNCell(D, H)), numbers(T, N, D)
    ys, _ = rnn(xs)
    first = torch.autograd.grad(ys.sum(), xs, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(ys.sum(), xs)[0])
    twin = copy.deepcopy(rnn)
    assert torch.equal(twin(xs)[0], ys)
    assert twin.state_dict().keys() == rnn.state_dict().keys()
    (grad,) = torch.autograd.grad(rnn(xs)[0].sum(), xs, create_graph=True)
    (second,) = torch.autograd.grad(grad.pow(2).sum(), xs)
    assert second.shape == xs.shape
    ys, _ = rnn(xs)
    with torch.no_grad():
        ys.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ys.sum().backward()


def test_a_module_that_moves_is_compiled_for_both() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), numbers(T, N, D)
    wanted = rnn(xs)[0]
    with fake_card():
        torch.testing.assert_close(rnn(xs)[0], wanted)
    assert torch.equal(rnn(xs)[0], wanted)
    assert {key[0].kind for key in rnn._prepared} == {"cpu", "cuda"}


# errors


def test_devices_that_do_not_fit(card: FakeCard) -> None:
    rnn, xs, h0 = rt.RNN(torch.nn.GRUCell(D, H)), numbers(T, N, D), numbers(N, H)
    card.elsewhere = {h0.data_ptr()}
    with pytest.raises(
        rt.StepError, match=r"states and inputs lie on two devices; .*got cpu and cuda:0.*x\.to\('cuda:0"
    ):
        rnn(xs, h0)
    weight = rnn.cell.weight_hh
    card.elsewhere = {weight.data_ptr()}
    with pytest.raises(rt.StepError, match=r"kernels cannot read a tensor; wanted a tensor on cuda:0.*module\.to"):
        rnn(xs)
    card.elsewhere = set()
    card.current = 1
    with pytest.raises(rt.StepError, match=r"not the current one; wanted cuda:1; got cuda:0.*torch\.cuda\.device\(0\)"):
        rnn(xs)


def test_what_cuda_does_not_have_is_said(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    xs, seeded = numbers(T, N, D), rt.RNN(torch.nn.GRUCell(D, H), dropping)
    seeded(xs)
    card.captures = True
    with pytest.raises(rt.StepError, match=r"a CUDA graph is captured, and the step draws random numbers"):
        seeded(xs)
    card.captures = False
    monkeypatch.setattr(facade, "missing", lambda: "no numba-cuda of version 0.30 or newer")
    with pytest.raises(DeviceError, match=r"no CUDA device; .*got no numba-cuda of version 0\.30 .*extra 'cuda'"):
        rt.RNN(torch.nn.GRUCell(D, H))(xs)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(rt.StepError, match=r"numba's simulator on the CPU\. Unset NUMBA_ENABLE_CUDASIM"):
        rt.RNN(torch.nn.GRUCell(D, H))(xs)


def dropping(cell: Any, carry: Any, x: Any) -> tuple[Any, Any]:
    carry = cell(torch.nn.functional.dropout(x, 0.5), carry)
    return carry, carry


def test_narrow_tensors_on_a_card(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half tensors, and autocast to bfloat16, beside float32."""
    cell, xs = torch.nn.GRUCell(D, H), numbers(T, N, D).detach()
    wanted = rt.RNN(cell)(xs)[0]
    half = rt.RNN(copy.deepcopy(cell).half())(xs.half())[0]
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), wanted, rtol=0.01, atol=0.01)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
    near = rt.RNN(cell)(xs)[0]
    assert not torch.equal(near, wanted)
    torch.testing.assert_close(near.float(), wanted, rtol=0.05, atol=0.05)


def test_replicas_are_refused(card: FakeCard) -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), numbers(T, N, D)
    rnn._is_replica = True
    with pytest.raises(rt.StepError, match=r"DataParallel.*DistributedDataParallel"):
        rnn(xs)


def test_graphs_of_torch_compile_take_no_cuda_tensors() -> None:
    refused = pytest.raises(rt.StepError, match=r"a graph takes no recurrence of CUDA tensors\. .*on the CPU")
    with FakeTensorMode(), refused:
        rt.RNN(torch.nn.GRUCell(D, H))(torch.empty(T, N, D, device="cuda"))


def test_torch_compile_runs_a_module_between_graphs() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), numbers(T, N, D)

    def model(xs: Any) -> Any:
        return rt.rnn.between_graphs(rnn, xs * 2, None, None, None)[0] + 1

    compiled = torch.compile(model, backend="aot_eager")
    found, wanted = compiled(xs), rnn(xs * 2)[0] + 1
    assert torch.equal(found, wanted)
    assert torch.equal(*(torch.autograd.grad(ys.sum(), xs)[0] for ys in (found, wanted)))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="CUDA tensors into no graph"):
        torch.compile(model, backend="aot_eager", fullgraph=True)(xs)


# what a step becomes


def plain_lstm(h: Any, c: Any, x: Any, w_x: Any, w_h: Any, b: Any) -> list[Any]:
    h, c = torch.lstm_cell(x, (h, c), w_x, w_h, b, b)
    return [h, c, torch.where(h > 0, h, torch.zeros_like(h)), torch.softmax(x, -1).chunk(3, -1)[1]]


def test_a_step_becomes_the_same_net_on_both_devices() -> None:
    """PyTorch's own tensors without data know devices that are not there."""

    def kind(*shape: int) -> TensorKind:
        return TensorKind(torch.float32, shape, 0)

    states, inputs = (kind(5, H), kind(5, H)), (kind(5, D), kind(4 * H, D), kind(4 * H, H), kind(4 * H))
    nets = []
    for device in (torch.device("cpu"), CARD):
        layout = TensorLayout(states, inputs, device)
        trace = trace_step(plain_lstm, layout)
        values = pytree.tree_leaves([node.meta.get("val") for node in trace.module.graph.nodes])
        assert {value.device for value in values if isinstance(value, torch.Tensor)} == {device}
        nets.append(str(translate(trace, layout, False, False).cell))
    assert nets[0] == nets[1]


def test_a_step_that_reaches_another_device_is_told() -> None:
    w, rows = torch.ones(D, D), (TensorKind(torch.float32, (2, D), 0),)
    with pytest.raises(rt.StepError, match=r"a step computes with tensors on two devices; .*module\.to\('cuda:0'\)"):
        trace_step(lambda h, x: [h, x @ w], TensorLayout(rows, rows, CARD))
