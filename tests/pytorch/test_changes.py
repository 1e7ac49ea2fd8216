"""What changes between two calls counts at the second: sizes, modules, values, hooks, tied weights, dtypes, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

from torch import nn  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.torch.code_reads import bytes_of  # noqa: E402
from rnnops.torch.errors import StepError  # noqa: E402

T, N, H = 3, 2, 4


class Cell(nn.Module):
    """Holds what may change: modules, tied weights, values, a list, a tensor, a function."""

    hidden_size = H

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.act = nn.Linear(H, H), nn.Linear(H, H), nn.Tanh()
        self.b.weight = self.a.weight
        self.factor, self.factors, self.share, self.function = 0.5, [1.0], torch.tensor(0.5), torch.sin

    def forward(self, x: Any, h: Any) -> Any:
        return self.function(self.act(self.a(x) + self.b(h)) * self.factor * self.factors[0] * self.share)


def looped(rnn: Any, xs: Any) -> Any:
    h, rows = torch.zeros(xs.shape[1], H), []
    for x in xs:
        h, y = rnn.step(rnn.cell, h, x)
        rows.append(y)
    return torch.stack(rows)


def expect_loop(rnn: Any, xs: Any, run: Any = None) -> None:
    """Values and gradients of all parameters are those of the loop."""
    mine, theirs = (rnn if run is None else run)(xs, torch.zeros(xs.shape[1], H))[0], looped(rnn, xs)
    torch.testing.assert_close(mine, theirs)
    parameters = [weight for weight in rnn.parameters() if weight.requires_grad]
    grads = [torch.autograd.grad(ys.square().sum(), parameters, allow_unused=True) for ys in (mine, theirs)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def parameter(*shape: int) -> Any:
    return nn.Parameter(torch.randn(*shape))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a value": lambda rnn: setattr(rnn.cell, "factor", 2.0),
    "an element of a list": lambda rnn: rnn.cell.factors.__setitem__(0, 3.0),
    "a tensor": lambda rnn: setattr(rnn.cell, "share", torch.tensor(2.0)),
    "a function": lambda rnn: setattr(rnn.cell, "function", torch.cos),
    "a module without parameters": lambda rnn: setattr(rnn.cell, "act", nn.Sigmoid()),
    "a module with parameters": lambda rnn: setattr(rnn.cell, "a", nn.Linear(H, H)),
    "the cell": lambda rnn: setattr(rnn, "cell", Cell()),
    "the step": lambda rnn: setattr(rnn, "step", lambda cell, h, x: (2 * cell(x, h), h)),
    "a hook": lambda rnn: rnn.cell.a.register_forward_hook(lambda module, given, result: result * 2),
    "a bias that goes": lambda rnn: setattr(rnn.cell.a, "bias", None),
    "tied weights that are untied": lambda rnn: setattr(rnn.cell.a, "weight", parameter(H, H)),
    "a parameter": lambda rnn: setattr(rnn.cell.a, "bias", parameter(H)),
    "numbers of a parameter": lambda rnn: rnn.cell.a.bias.data.add_(1.0),
    "the memory of a parameter": lambda rnn: setattr(rnn.cell.a.weight, "data", torch.randn(H, H).T),
    "a parameter that gets no gradient": lambda rnn: rnn.cell.a.bias.requires_grad_(False),
    "a method of an object": lambda rnn: setattr(rnn.cell.a, "forward", lambda x: x * 2.0),
    "a method of a class": lambda rnn: setattr(type(rnn.cell.act), "forward", lambda self, x: x * 2.0),
    "the order of a list": lambda rnn: rnn.cell.factors.insert(0, 2.0),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("calls", [1, 4])
def test_changes_count(change: str, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Tanh, "forward", nn.Tanh.forward)  # which is put back
    rnn, xs = rt.RNN(Cell()), torch.randn(T, N, H)
    for _ in range(calls):
        expect_loop(rnn, xs)
    assert bool(rnn._made.recent) == (calls > 1)  # a list of jobs has answered
    CHANGES[change](rnn)
    expect_loop(rnn, xs)


def test_what_surrounds_a_repeated_call_counts() -> None:
    rnn, h0 = rt.RNN(nn.GRUCell(H, H)), torch.zeros(N, H)
    xs = torch.randn(T, N, H)
    for _ in range(4):
        expect_loop(rnn, xs)
        with torch.no_grad():
            assert not rnn(xs, h0)[0].requires_grad
    wide = torch.randn(N, T, H).transpose(0, 1)
    with torch.inference_mode():
        torch.testing.assert_close(rnn(wide, h0)[0], looped(rnn, wide))
    for inputs in (wide, xs[:1], xs.clone().requires_grad_(), torch.randn(T, N, H)):
        expect_loop(rnn, inputs)
    with torch.autocast("cpu"):
        assert not torch.equal(rnn(xs, h0)[0], looped(rnn, xs)), "products are rounded"
    slope = torch.func.grad(lambda h: (h * rnn(xs, h0)[0].sum()).sum())(h0)
    torch.testing.assert_close(slope, looped(rnn, xs).sum().expand(h0.shape))
    with pytest.raises(StepError):
        rnn(xs, h0.double())
    expect_loop(rnn, xs)


@pytest.mark.parametrize("change", ["a value", "the cell", "a parameter"])
def test_changes_count_in_graphs(change: str) -> None:
    torch._dynamo.reset()
    rnn, xs = rt.RNN(Cell()), torch.randn(T, N, H)
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    expect_loop(rnn, xs, compiled)
    CHANGES[change](rnn)
    expect_loop(rnn, xs, compiled)


def test_modes_count_in_graphs() -> None:
    torch._dynamo.reset()
    rnn = rt.RNN(nn.Sequential(nn.Linear(H, H), nn.Dropout(0.5)), lambda cell, h, x: (cell(x + h),) * 2)
    compiled, xs, h0 = torch.compile(rnn, fullgraph=True, backend="aot_eager"), torch.randn(T, N, H), torch.zeros(N, H)
    assert not torch.equal(compiled(xs, h0)[0], compiled(xs, h0)[0])
    rnn.eval()
    torch.testing.assert_close(compiled(xs, h0)[0], rnn(xs, h0)[0])


SIZED = {
    "a mean over a batch that states do not have": (lambda c, h, x: (0.9 * h + x.sum(0) / x.shape[0],) * 2, (H,)),
    "a size beside other sizes": (lambda c, h, x: (h, x / x.shape[0]), (7,)),
    "a size of features": (lambda c, h, x: (h, x / x.shape[1]), (N, 3)),
}


@pytest.mark.parametrize("name", SIZED)
def test_sizes_that_a_step_reads(name: str) -> None:
    step, shape = SIZED[name]
    rnn = rt.RNN(nn.Identity(), step)
    for batch, features in ((2, 4), (5, 4), (1, 4), (3, 6), (4, 4)):
        xs = torch.randn(T, batch, features)
        h0 = torch.randn(*((batch, *shape[1:]) if len(shape) > 1 else (features,) if shape == (H,) else shape))
        h, rows = h0, []
        for x in xs:
            h, y = step(None, h, x)
            rows.append(y)
        torch.testing.assert_close(rnn(xs, h0)[0], torch.stack(rows))


@pytest.mark.parametrize("sizes", [(1, 3, 1), (0, 3, 0), (0, 1, 2), (3, 1, 5)])
@pytest.mark.parametrize("compiled", [False, True])
def test_batches_of_any_order(sizes: tuple[int, ...], compiled: bool) -> None:
    torch._dynamo.reset()
    rnn = rt.RNN(nn.GRUCell(H, H))
    run = torch.compile(rnn, backend="aot_eager") if compiled else rnn
    for batch in sizes:
        xs = torch.randn(T, batch, H)
        torch.testing.assert_close(run(xs)[0], looped(rnn, xs))


class Outer(nn.Module):
    """A step that reaches what its module holds beside the cell."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head, self.scale = nn.GRUCell(H, H), nn.Linear(H, H), 0.5
        self.rnn = rt.RNN(self.cell, self.step)

    def step(self, cell: Any, h: Any, x: Any) -> Any:
        h = self.head(cell(x, h)) * self.scale
        return h, h

    def forward(self, xs: Any) -> Any:
        return self.rnn(xs, xs.new_zeros(xs.shape[1], H))


def test_what_a_step_reaches_beside_its_cell() -> None:
    outer, xs = Outer(), torch.randn(T, N, H)
    expect_loop(outer.rnn, xs)
    outer.scale = 2.0
    expect_loop(outer.rnn, xs)
    outer.head.weight = parameter(H, H)
    torch.testing.assert_close(outer(xs)[0], looped(outer.rnn, xs))
    (grad,) = torch.autograd.grad(outer(xs)[0].sum(), outer.head.weight)
    assert grad.any()
    zeros = {"head.weight": torch.zeros(H, H), "head.bias": torch.zeros(H)}
    assert not torch.func.functional_call(outer, zeros, (xs,))[0].any()


def test_a_graph_names_what_its_step_reaches_beside_its_cell() -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="reaches tensors that do not belong to its cell"):
        torch.compile(Outer(), fullgraph=True, backend="aot_eager")(torch.randn(T, N, H))


def test_dtypes_that_change() -> None:
    rnn, xs = rt.RNN(nn.GRUCell(H, H)), torch.randn(T, N, H)
    rnn(xs)
    rnn.double()
    with pytest.raises(StepError):
        rnn(xs)
    assert rnn(xs.double())[0].dtype == torch.float64


def test_lengths_that_do_not_fit() -> None:
    rnn, xs = rt.RNN(nn.GRUCell(H, H)), torch.randn(T, N, H)
    assert torch.equal(rnn(xs, lengths=torch.tensor([2**33, 1]))[0], rnn(xs, lengths=[T, 1])[0])
    for lengths in ([1, 2, 3], [[1, 2]], 1):
        with pytest.raises(StepError, match="lengths do not fit"):
            rnn(xs, lengths=lengths)


def test_results_are_tensors_of_their_own() -> None:
    _, ys = rt.scan(lambda h, x: (h + x, {"a": h, "b": h}), torch.zeros(N, H), torch.ones(T, N, H))
    ys["a"].zero_()
    assert ys["b"].any()


def test_threads_that_call_first_at_once() -> None:
    errors: list[str] = []

    def call() -> None:
        try:
            rnn, xs = rt.RNN(nn.GRUCell(H, H)), torch.randn(T, N, H)
            torch.testing.assert_close(rnn(xs)[0], looped(rnn, xs))
        except BaseException as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert torch.compile(nn.Linear(H, H), backend="aot_eager")(torch.randn(N, H)).shape == (N, H)


class Tagged(nn.Module):
    """Reads a dict behind a proxy, and an attribute that its weight may get later."""

    hidden_size = H

    def __init__(self) -> None:
        super().__init__()
        self.a, self.held = nn.Linear(H, H), {"factor": 0.5}
        self.shown = MappingProxyType(self.held)

    def forward(self, x: Any, h: Any) -> Any:
        return torch.tanh(self.a(x) + h) * self.shown["factor"] + getattr(self.a.weight, "tag", 0.0)


@pytest.mark.parametrize("calls", [1, 4])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cell: cell.held.update(factor=3.0), id="a dict behind a proxy"),
        pytest.param(lambda cell: setattr(cell.a.weight, "tag", 1.0), id="the first attribute of a weight"),
    ],
)
def test_changes_of_what_was_hidden(change: Callable[[Any], None], calls: int) -> None:
    rnn, xs, h0 = rt.RNN(Tagged()), torch.randn(T, N, H), torch.zeros(N, H)
    for _ in range(calls):
        rnn(xs, h0)
    change(rnn.cell)
    torch.testing.assert_close(rnn(xs, h0)[0], looped(rnn, xs))


def test_masked_arrays_are_compared_with_their_masks() -> None:
    """`np.ma.masked`, which a walk may meet anywhere, has no bytes of its own."""
    one, other = (np.ma.array([1.0, 2.0], mask=mask) for mask in ([0, 1], [1, 1]))
    assert bytes_of(one) == bytes_of(one.copy())
    assert bytes_of(one) != bytes_of(other)
    assert bytes_of(np.ma.masked) == bytes_of(np.ma.masked)


def test_a_step_may_hold_masked_arrays() -> None:
    """A step that changes one runs by PyTorch's own loop; the trace before it has put numbers and masks back."""
    cell = Tagged()
    cell.masked, cell.held = np.ma.masked, {"factor": 0.5, "numbers": np.ma.array([1.0, 2.0], mask=[0, 1])}
    cell.shown = MappingProxyType(cell.held)
    rnn, xs, h0 = rt.RNN(cell), torch.randn(T, N, H), torch.zeros(N, H)
    for _ in range(2):
        torch.testing.assert_close(rnn(xs, h0)[0], looped(rnn, xs))

    def masking(cell: Any, h: Any, x: Any) -> Any:
        assert cell.masked is np.ma.masked
        cell.held["numbers"].mask = cell.held["numbers"].mask ^ True
        cell.held["numbers"].data[1] += 1
        h = cell(x, h)
        return h, h

    rt.RNN(cell, masking)(xs, h0)
    assert cell.held["numbers"].mask.tolist() == [bool(T % 2), not T % 2]
    assert cell.held["numbers"].data.tolist() == [1.0, 2.0 + T]


@pytest.mark.parametrize("kind", ["packet", "overload"])
def test_ops_that_a_step_is_given_count(kind: str) -> None:
    for packet in (torch.ops.aten.sin, torch.ops.aten.cos):
        op = packet if kind == "packet" else packet.default
        ys = rt.scan(lambda h, x, op=op: (h, op(x)), torch.zeros(2, 1), torch.ones(3, 2, 4))[1]
        torch.testing.assert_close(ys, op(torch.ones(3, 2, 4)))


def test_steps_of_a_test_may_assert(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest rewrites asserts to code that reads its modules. Its handlers write down PyTorch's log of sizes."""
    monkeypatch.setattr(torch._logging.structured, "INTERN_TABLE", {})  # PyTorch logs as in a new process
    near, xs = pytest.approx(0.5), torch.randn(T, N, H)

    def step(cell: Any, h: Any, x: Any) -> Any:
        assert x.shape == h.shape, "sizes"
        assert 0 < x.shape[0] == N
        h = cell(x, h) * (2 if near == 0.5 else 1)
        return h, h

    rnn = rt.RNN(Tagged(), step)
    expect_loop(rnn, xs)
    assert "RecurrentNetwork" in {op.type for op in rnn.net.ops}
    (prepared,) = rnn._prepared.values()
    assert len(prepared.traces[0].watch.walk.objects) < 500
    near.expected = 0.75
    expect_loop(rnn, xs)
    with pytest.raises(AssertionError, match="sizes"):
        rnn(torch.randn(T, N, H + 1), torch.zeros(N, H))
