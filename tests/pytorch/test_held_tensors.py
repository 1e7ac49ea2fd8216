"""Tensors that a module holds beside parameters and buffers: read anew at each call, set by a step, read as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

from torch import nn  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.torch.errors import StepError  # noqa: E402

T, N, H = 3, 2, 4


class Holder(nn.Module):
    """Holds tensors in attributes, lists, tuples and dicts; some need a gradient, and one is a parameter too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(H, H)
        self.scale, self.many = torch.rand(H), [torch.rand(H), torch.rand(H)]
        self.named, self.pair = {"a": torch.rand(H), "b": {"c": torch.rand(H)}}, (torch.rand(H), 2.0)
        self.learnt, self.alias = torch.rand(H, requires_grad=True), [self.linear.weight]

    def forward(self, x: Any, h: Any) -> Any:
        y = self.linear(x) * self.scale + h * self.many[1] + self.named["a"] * self.named["b"]["c"]
        return torch.tanh(y + self.pair[0] * self.learnt + h @ self.alias[0])


CHANGES: dict[str, Callable[[Holder], Any]] = {
    "nothing": lambda cell: None,
    "an attribute": lambda cell: setattr(cell, "scale", torch.rand(H)),
    "an attribute in place": lambda cell: cell.scale.mul_(3),
    "an element of a list": lambda cell: cell.many.__setitem__(1, torch.rand(H)),
    "a list": lambda cell: setattr(cell, "many", [torch.rand(H), torch.rand(H)]),
    "a longer list": lambda cell: cell.many.insert(0, torch.rand(H)),
    "a value of a dict": lambda cell: cell.named["b"].__setitem__("c", torch.rand(H)),
    "a dict": lambda cell: setattr(cell, "named", {"b": {"c": torch.rand(H)}, "a": torch.rand(H)}),
    "a tuple": lambda cell: setattr(cell, "pair", (torch.rand(H), 2.0)),
    "another shape": lambda cell: setattr(cell, "scale", torch.rand(1)),
    "a tensor that needs a gradient": lambda cell: setattr(cell, "learnt", torch.rand(H, requires_grad=True)),
    "a tensor that needs none any more": lambda cell: setattr(cell, "scale", torch.rand(H, requires_grad=True)),
    "an alias": lambda cell: setattr(cell, "alias", [torch.rand(H, H)]),
}


def loop(cell: nn.Module, xs: Any) -> Any:
    h, rows = torch.zeros(xs.shape[1], H), []
    for x in xs:
        h = cell(x, h)
        rows.append(h)
    return torch.stack(rows)


@pytest.mark.parametrize("change", CHANGES)
def test_held_tensors_are_read_at_each_call(change: str) -> None:
    torch.manual_seed(0)
    cell, xs = Holder(), torch.randn(T, N, H)
    rnn = rt.RNN(cell)
    rnn(xs, torch.zeros(N, H))
    CHANGES[change](cell)
    leaves = [*cell.parameters(), cell.learnt]
    for rows in (N, N + 1):
        xs = torch.randn(T, rows, H)
        mine, theirs = rnn(xs, torch.zeros(rows, H))[0], loop(cell, xs)
        torch.testing.assert_close(mine, theirs)
        grads = [torch.autograd.grad(ys.square().sum(), leaves) for ys in (mine, theirs)]
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other)


class Remembering(nn.Module):
    """Sets what it holds at each step: an attribute, an element of a dict, a longer list."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(H, H)
        self.last, self.held, self.seen = 0.0, {"last": torch.zeros(1)}, [torch.ones(1)]

    def forward(self, x: Any, h: Any) -> Any:
        self.last = torch.tanh(self.linear(x) + h)
        self.held["last"] = self.last
        self.seen.append(self.last)
        return self.last


def test_what_a_step_sets_is_left_as_by_a_loop() -> None:
    cell, other, xs = Remembering(), Remembering(), torch.randn(T, N, H)
    other.load_state_dict(cell.state_dict())
    rt.RNN(cell)(xs, torch.zeros(N, H))
    loop(other, xs)
    torch.testing.assert_close(cell.last, other.last)
    torch.testing.assert_close(cell.held["last"], other.held["last"])
    torch.testing.assert_close(cell.seen, other.seen)


def test_what_a_refused_step_sets_is_put_back() -> None:
    class Refused(Remembering):
        def forward(self, x: Any, h: Any) -> Any:
            h = super().forward(x, h)
            return h if h.sum() > 0 else -h

    cell = Refused()
    held, first = cell.held["last"], cell.seen[0]
    with pytest.raises(StepError, match="decides by the value"):
        rt.RNN(cell)(torch.randn(T, N, H), torch.zeros(N, H))
    assert cell.last == 0.0
    assert cell.held["last"] is held
    assert len(cell.seen) == 1
    assert cell.seen[0] is first


def test_what_a_loop_has_set_is_no_reason_to_trace_again() -> None:
    cell, xs = Remembering(), torch.randn(T, N, H)
    rnn = rt.RNN(cell)
    for _ in range(4):
        mine = rnn(xs, torch.zeros(N, H))[0]
        theirs = loop(cell, xs)
        cell.seen.clear()
        torch.testing.assert_close(mine, theirs)
    assert len(rnn._prepared) <= 3


class Counting(nn.Module):
    """Reads a tensor as a number."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(2))
        self.read = read

    def forward(self, x: Any, h: Any) -> Any:
        return torch.tanh(x + h) * self.read(self.count)


@pytest.mark.parametrize(
    "read", [int, float, complex, lambda c: c.item(), lambda c: c.tolist(), lambda c: [0, 1, 2][c], lambda c: c.numpy()]
)
def test_a_tensor_that_is_read_as_a_number_is_refused(read: Callable[[Any], Any]) -> None:
    with pytest.raises(StepError, match="reads the value of a tensor"):
        rt.RNN(Counting(read))(torch.randn(T, N, H), torch.zeros(N, H))


def test_numbers_that_a_step_makes_itself_may_be_read() -> None:
    def step(h: Any, x: Any) -> Any:
        h = torch.tanh(x + h) * torch.tensor(2.0).item()
        return h, h

    xs = torch.randn(T, N, H)
    carry = torch.zeros(N, H)
    for x in xs:
        carry, _ = step(carry, x)
    torch.testing.assert_close(rt.scan(step, torch.zeros(N, H), xs)[0], carry)


def test_a_trace_keeps_no_graph_of_the_parameters() -> None:
    """A node that accumulates a gradient belongs to a stream of CUDA: one that is kept forbids a capture in another."""

    def accumulator() -> Any:
        return weight.view_as(weight).grad_fn.next_functions[0][0]

    rnn = rt.RNN(nn.GRUCell(H, H))
    weight = rnn.cell.weight_hh
    ys = rnn(torch.randn(T, N, H))[0]
    accumulator().metadata["seen"] = True
    assert accumulator().metadata == {"seen": True}  # the graph of `ys` holds it
    del ys
    assert accumulator().metadata == {}


@pytest.mark.parametrize("made", [lambda w: w[:1], lambda w: w.exp()], ids=["a view", "a function"])
def test_a_step_reads_a_weight_and_what_is_made_of_it(made: Callable[[Any], Any]) -> None:
    """The gradient of the weight comes by both ways, and the caller's graph stays."""
    w = torch.rand(H, dtype=torch.float64, requires_grad=True)
    other, xs, h0 = made(w), torch.rand(T, N, H, dtype=torch.float64), torch.zeros(N, H, dtype=torch.float64)
    last, _ = rt.scan(lambda h, x: (torch.tanh(h * w + x * other),) * 2, h0, xs)
    h = h0
    for x in xs:
        h = torch.tanh(h * w + x * other)
    grads = [torch.autograd.grad(y.sum(), w, retain_graph=True)[0] for y in (last, h)]
    torch.testing.assert_close([last, grads[0]], [h, grads[1]], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["data", "grad"])
def test_a_step_that_sets_what_a_tensor_consists_of_is_refused(name: str) -> None:
    """The tensor kept what the trace had put there, which has no data: the next read ended the process."""
    held = torch.zeros(H)

    def step(h: Any, x: Any) -> Any:
        setattr(held, name, h.mean(0))
        return h + x, h * held

    with pytest.raises(StepError, match=rf"a step sets tensor\.{name}"):
        rt.scan(step, torch.ones(N, H), torch.ones(T, N, H))
    assert held.equal(torch.zeros(H))
    assert held.grad is None
