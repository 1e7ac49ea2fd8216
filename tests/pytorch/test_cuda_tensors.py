"""`rnnops.torch` on a GPU: values, PyTorch's streams, memory and graphs, and arrays that libraries give each other.

`NUMBA_ENABLE_CUDASIM=0 pytest -m packages tests/pytorch/test_cuda_tensors.py` where there is one: half a minute.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rnnops as ro  # noqa: E402
import rnnops.torch as rt  # noqa: E402
from rnnops.errors import DeviceError  # noqa: E402
from rnnops.kernels.cuda import facade  # noqa: E402

MISSING = (
    "the simulator has no GPU: NUMBA_ENABLE_CUDASIM=0"
    if facade.SIMULATED
    else facade.missing() or ("" if torch.cuda.is_available() else "PyTorch sees no GPU")
)
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(bool(MISSING), reason=MISSING or "none"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]
T, N, D, H = 7, 4, 24, 32
LONG = 400_000_000  # cycles, some 0.2 s
CELLS: dict[str, Callable[[], Any]] = {
    "LSTMCell": lambda: torch.nn.LSTMCell(D, H),
    "GRUCell": lambda: torch.nn.GRUCell(D, H),
    "RNNCell": lambda: torch.nn.RNNCell(D, H),
}


def numbers(*shape: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator)


def trained(rnn: Any, xs: Any, lengths: Any = None) -> list[Any]:
    """Results, and gradients of inputs and parameters."""
    ys, carry = rnn(xs, lengths=lengths)
    outputs = [ys, *(carry if isinstance(carry, tuple) else [carry])]
    loss = sum(one.square().sum() for one in outputs)
    return [*outputs, *torch.autograd.grad(loss, [xs, *rnn.parameters()])]


def expect_close(mine: list[Any], theirs: list[Any], tolerance: float = 1e-4) -> None:
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=tolerance, atol=tolerance)


def on_card(name: str = "GRUCell") -> tuple[Any, Any]:
    """A module and inputs on the device, once they have run."""
    rnn, xs = rt.RNN(CELLS[name]()).cuda(), numbers(T, N, D).cuda().requires_grad_()
    trained(rnn, xs)
    return rnn, xs


def is_of_pytorch(tensor: Any) -> bool:
    """Whether the memory of a tensor is of PyTorch's pool."""
    segments = torch.cuda.memory_snapshot()
    return any(one["address"] <= tensor.data_ptr() < one["address"] + one["total_size"] for one in segments)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CELLS)
def test_a_module_on_the_device_equals_itself_on_the_cpu(name: str, dtype: Any, ends: bool) -> None:
    rnn, xs = rt.RNN(CELLS[name]().to(dtype)), numbers(T, N, D).to(dtype).requires_grad_()
    lengths = torch.tensor([7, 3, 1, 5]) if ends else None
    wanted, names = trained(rnn, xs, lengths), list(rnn.state_dict())
    moved = copy.deepcopy(rnn).cuda()
    found = trained(moved, xs.detach().cuda().requires_grad_(), lengths)
    assert all(tensor.is_cuda for tensor in found)
    expect_close(found, wanted, 1e-4 if dtype == torch.float32 else 1e-9)
    assert list(moved.state_dict()) == names
    expect_close(trained(moved.cpu(), xs, lengths), wanted, 0.0)


def test_a_step_with_closed_over_tensors_equals_pytorchs_own_loop() -> None:
    encoder, w, xs, h0 = (numbers(*shape).cuda().requires_grad_() for shape in ((6, N, H), (D, H), (T, N, D), (N, H)))

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        weights = torch.softmax((encoder * h).sum(-1), 0)
        h = torch.tanh(x @ w + (weights[..., None] * encoder).sum(0))
        return h, (h, weights)

    h, rows = h0, []
    for x in xs:
        h, y = step(h, x)
        rows.append(y)
    wanted = [h, *(torch.stack(column) for column in zip(*rows, strict=True))]
    last, ys = rt.scan(step, h0, xs)
    found = [last, *ys]
    expect_close(found, wanted)
    leaves = [encoder, w, xs, h0]
    grads = [torch.autograd.grad(sum(one.square().sum() for one in some), leaves) for some in (found, wanted)]
    expect_close(list(grads[0]), list(grads[1]))


def test_twenty_runs_have_the_same_bits() -> None:
    rnn, xs = on_card("LSTMCell")
    wanted = trained(rnn, xs)
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(trained(rnn, xs), wanted, strict=True))


def test_memory_is_pytorchs_and_nothing_is_copied_to_or_from_the_host() -> None:
    rnn, xs = on_card()
    found = trained(rnn, xs)
    assert all(is_of_pytorch(tensor) for tensor in found)
    ys, _ = rnn(xs)
    ys.sum().backward()
    assert is_of_pytorch(rnn.cell.weight_hh.grad)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        trained(rnn, xs)
        torch.cuda.synchronize()
    names = [event.name for event in profile.events()]
    assert names, "the profiler sees nothing"
    assert not [name for name in names if "HtoD" in name or "DtoH" in name]


def test_memory_is_given_back() -> None:
    rnn, xs = on_card()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        trained(rnn, xs)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_work_goes_into_the_stream_that_is_current_and_nobody_waits() -> None:
    rnn, xs = on_card()
    wanted, stream = trained(rnn, xs), torch.cuda.Stream()
    late = torch.full_like(xs, float("nan"))
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        late.copy_(xs.detach())  # which a call in another stream would not see
        found = trained(rnn, late.requires_grad_())
        done = torch.cuda.Event()
        done.record()
    assert not done.query(), "the host has waited"
    torch.cuda.current_stream().wait_stream(stream)
    expect_close(found, wanted, 0.0)


def test_a_training_step_is_captured_in_a_graph() -> None:
    rnn, xs = on_card("LSTMCell")
    others = numbers(T, N, D, seed=5).cuda()
    # without their graph, which belongs to the default stream: a capture may not wait for that
    wanted = [one.detach() for one in trained(rnn, others.clone().requires_grad_())]
    static, stream = xs.detach().clone().requires_grad_(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            trained(rnn, static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = trained(rnn, static)
    with torch.no_grad():
        static.copy_(others)
    for _ in range(3):
        for tensor in found:
            tensor.detach().fill_(float("nan"))
        graph.replay()
        trained(rnn, xs)  # what runs beside takes none of the graph's memory
    torch.cuda.synchronize()
    expect_close(found, wanted, 0.0)


def test_what_has_not_run_before_is_refused_in_a_graph() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)).cuda(), numbers(T, N, D).cuda()
    with torch.no_grad():
        rnn(xs[:, :2])  # so that it is traced and checked, for another number of rows
        graph = torch.cuda.CUDAGraph()
        with (
            pytest.raises((DeviceError, RuntimeError), match=r"a CUDA graph is captured|capture"),
            torch.cuda.graph(graph),
        ):
            rnn(xs)
        expect_close([rnn(xs)[0]], [copy.deepcopy(rnn).cpu()(xs.cpu())[0]])


def test_random_numbers_follow_the_seed() -> None:
    def step(cell: Any, h: Any, x: Any) -> tuple[Any, Any]:
        h = cell(torch.nn.functional.dropout(x, 0.5), h)
        return h, h

    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H), step).cuda(), numbers(T, N, D).cuda()
    rows = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        rows.append(rnn(xs)[0])
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])


def test_devices_and_autocast_that_do_not_fit() -> None:
    rnn, xs = on_card()
    with pytest.raises(rt.StepError, match="states and inputs lie on two devices"):
        rnn(xs, torch.zeros(N, H))
    with pytest.raises(rt.StepError, match=r"two devices|cannot read"):
        rt.RNN(torch.nn.GRUCell(D, H))(xs)
    with torch.autocast("cuda", torch.bfloat16):
        ys, _ = rnn(xs)
    torch.testing.assert_close(ys.float(), rnn(xs)[0], rtol=0.05, atol=0.05)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU alone")
def test_a_device_that_is_not_current_is_refused_and_works_when_it_is() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)).to("cuda:1"), numbers(T, N, D).to("cuda:1").requires_grad_()
    with pytest.raises(rt.StepError, match=r"not the current one; wanted cuda:0; got cuda:1"):
        rnn(xs)
    with torch.cuda.device(1):
        found = trained(rnn, xs)
    expect_close(found, trained(copy.deepcopy(rnn).cpu(), xs.detach().cpu().requires_grad_()))


def test_arrays_are_exchanged_by_dlpack_in_their_streams() -> None:
    x = ro.on_device(np.arange(6, dtype="float32").reshape(2, 3))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor = torch.from_dlpack(x)
        assert tensor.data_ptr() == x.pointer
        torch.cuda._sleep(LONG)
        tensor.add_(1)
        again = ro.on_device(tensor[1:])
    assert again.pointer == x.pointer + 12
    stream.synchronize()
    np.testing.assert_array_equal(again.to_host(), [[4, 5, 6]])
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), [[1, 2, 3], [4, 5, 6]])
    cupy = facade.optional("cupy")
    if cupy is not None:
        assert cupy.from_dlpack(x).data.ptr == x.pointer
