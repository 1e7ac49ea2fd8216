"""Autocast and narrow floats: results have the dtypes of PyTorch's own loop, and are as near to float32 as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

import rnnops.torch as rt  # noqa: E402
from rnnops.torch.errors import StepError  # noqa: E402

T, N, D, H = 6, 4, 5, 8
HALVES = [torch.bfloat16, torch.float16]
NEAR = {torch.bfloat16: 0.04, torch.float16: 0.005}  # relative to the largest element
CELLS = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell, "rnn": torch.nn.RNNCell}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def leaky(cell: Any, carry: Any, x: Any) -> Any:
    carry = torch.tanh(0.9 * carry + cell(x))
    return carry, {"low": cell(x), "count": (x > 0).sum(1)}


def expect_loop(rnn: Any, xs: Any, init: Any, dtype: Any, around: Callable[[], Any] = nullcontext) -> None:
    """Dtypes of all results are a loop's, and values and gradients are near to it."""
    found = []
    for is_loop in (False, True):
        leaves = [xs.detach().clone().requires_grad_(), *rnn.cell.parameters()]
        with around():
            ys, carry = looped(rnn, leaves[0], init) if is_loop else rnn(leaves[0], init)
        out = list(torch.utils._pytree.tree_leaves((ys, carry)))
        loss = sum(y.float().sin().sum() for y in out if y.is_floating_point())
        found.append([*out, *torch.autograd.grad(loss, leaves)])
    for mine, wanted in zip(*found, strict=True):
        assert mine.dtype == wanted.dtype
        assert (mine.float() - wanted.float()).abs().max() <= NEAR[dtype] * (1 + wanted.float().abs().max())
    assert any(
        mine.dtype != torch.float32 or not torch.equal(mine, wanted) for mine, wanted in zip(*found, strict=True)
    )


def looped(rnn: Any, xs: Any, carry: Any) -> Any:
    rows = []
    for x in xs:
        carry, y = rnn.step(rnn.cell, carry, x)
        rows.append(y)
    return torch.utils._pytree.tree_map(lambda *ys: torch.stack(ys), *rows), carry


def states(name: str, dtype: Any = torch.float32) -> Any:
    return (torch.zeros(N, H, dtype=dtype),) * 2 if name == "lstm" else torch.zeros(N, H, dtype=dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CELLS)
def test_under_autocast(name: str, dtype: Any) -> None:
    rnn, xs = rt.RNN(CELLS[name](D, H)), torch.randn(T, N, D)
    around = lambda: torch.autocast("cpu", dtype)  # noqa: E731
    for given in (xs, xs.to(dtype)):
        expect_loop(rnn, given, states(name), dtype, around)
        expect_loop(rnn, given[:1], states(name, dtype), dtype, around)
    expect_loop(rt.RNN(torch.nn.Linear(D, H), leaky), xs, torch.zeros(N, H), dtype, around)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CELLS)
def test_narrow_tensors_cells_and_states(name: str, dtype: Any) -> None:
    rnn, xs = rt.RNN(CELLS[name](D, H).to(dtype)), torch.randn(T, N, D, dtype=dtype)
    expect_loop(rnn, xs, states(name, dtype), dtype)
    assert rnn(xs)[0].dtype == dtype
    expect_loop(rt.RNN(torch.nn.Linear(D, H).to(dtype), leaky), xs, torch.zeros(N, H, dtype=dtype), dtype)


def test_autocast_is_precision_of_bfloat16() -> None:
    """The same bits, with lengths too; calls with and without it may alternate."""
    cell, xs = torch.nn.GRUCell(D, H), torch.randn(T, N, D)
    rnn, rounding = rt.RNN(cell), rt.RNN(cell, precision="bfloat16")
    for lengths in (None, [6, 2, 3, 1]):
        for _ in range(3):
            exact, near = rnn(xs, lengths=lengths)[0], rounding(xs, lengths=lengths)[0]
            with torch.autocast("cpu", torch.bfloat16):
                found = rnn(xs, lengths=lengths)[0]
            assert torch.equal(found, near)
            assert not torch.equal(found, exact)
    with torch.autocast("cpu", torch.bfloat16):
        assert "bfloat16" in str(rnn.plan(xs))


def test_a_tied_weight_keeps_its_gradient_under_autocast() -> None:
    """The look at PyTorch's own loop leaves no weights without gradients in autocast's cache."""
    cell, xs = torch.nn.GRUCell(D, H), torch.randn(T, N, D)
    with torch.autocast("cpu", torch.bfloat16):
        rt.RNN(cell)(xs)
        tied = torch.nn.functional.linear(xs, cell.weight_ih)
    assert torch.autograd.grad(tied.sum(), cell.weight_ih)[0].abs().sum() > 0


def test_a_training_step_with_a_scaler() -> None:
    torch.manual_seed(0)
    one = torch.nn.ModuleList([torch.nn.Linear(D, D), rt.RNN(torch.nn.GRUCell(D, H))])
    losses = []
    for model, run in (
        (one, lambda rnn, x: rnn(x)[0]),
        (copy.deepcopy(one), lambda rnn, x: looped(rnn, x, states(""))[0]),
    ):
        optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(4):
            xs = torch.randn(T, N, D, generator=torch.Generator().manual_seed(step))
            with torch.autocast("cpu", torch.float16):
                loss = run(model[1], model[0](xs)).float().square().mean()
            scaler.scale(loss).backward()
            assert all(x.grad.dtype == torch.float32 for x in model.parameters())
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.detach())
    torch.testing.assert_close(losses[:4], losses[4:], rtol=5e-3, atol=1e-4)


def test_wider_tensors_than_the_cell() -> None:
    cell, xs = torch.nn.GRUCell(D, H), torch.randn(T, N, D, dtype=torch.float64)
    double, ys = copy.deepcopy(cell).double(), rt.RNN(cell)(xs)[0]
    wanted = rt.RNN(double)(xs)[0]
    torch.testing.assert_close(ys, wanted, rtol=1e-12, atol=1e-12)
    ys.sum().backward()
    wanted.sum().backward()
    torch.testing.assert_close(cell.weight_hh.grad, double.weight_hh.grad.float())


class Counting(torch.nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.lin = how, torch.nn.Linear(D, D)
        self.register_buffer("seen", torch.zeros(D))

    def forward(self, x: Any, h: Any) -> Any:
        if self.how == "in place":
            self.seen += x.mean(0)
        elif self.how == "data":
            self.seen.data = x.mean(0)
        elif self.how == "norm":
            h = torch.nn.functional.batch_norm(h, self.seen, self.seen + 1, training=True)
        else:
            self.seen = self.seen + x.mean(0)
        return torch.tanh(self.lin(x) + h + self.seen)


IN_PLACE = "narrow dtype in place.*hold it as float32"


@pytest.mark.parametrize(
    ("how", "said"),
    [("in place", IN_PLACE), ("data", "sets tensor.data"), ("norm", f"{IN_PLACE}|BatchNorm in training")],
)
def test_narrow_tensors_that_a_step_changes_are_refused(how: str, said: str) -> None:
    rnn, xs = rt.RNN(Counting(how).bfloat16()), torch.randn(T, N, D).bfloat16()
    with pytest.raises(StepError, match=said):
        rnn(xs, torch.zeros(N, D).bfloat16())


def test_a_narrow_tensor_that_a_step_sets_is_set_by_a_loop() -> None:
    cell, xs, h0 = Counting("anew").bfloat16(), torch.randn(T, N, D).bfloat16(), torch.zeros(N, D).bfloat16()
    other = copy.deepcopy(cell)
    for _ in range(2):
        ys, wanted = rt.RNN(cell)(xs, h0)[0], looped(rt.RNN(other), xs, h0)[0]
        assert [ys.dtype, cell.seen.dtype] == [torch.bfloat16] * 2
        torch.testing.assert_close((ys, cell.seen), (wanted, other.seen), rtol=0, atol=0)


def test_mixtures_that_a_loop_refuses_have_a_name() -> None:
    with pytest.raises(StepError, match=r"the step fails with RuntimeError.*dtype"):
        rt.RNN(torch.nn.GRUCell(D, H))(torch.randn(T, N, D).bfloat16())


def test_a_graph_under_autocast() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(T, N, D)
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    for dtype in HALVES:
        with torch.autocast("cpu", dtype):
            mine, wanted = compiled(xs.to(dtype))[0], rnn(xs.to(dtype))[0]
        assert mine.dtype == wanted.dtype == dtype
        torch.testing.assert_close(mine, wanted)
