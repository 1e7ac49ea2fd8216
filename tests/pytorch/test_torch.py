"""`rnnops.torch`: steps and cells of PyTorch over time equal their own loops, with all gradients, or are refused."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

import torch.utils._pytree as pytree  # noqa: E402
from random_programs import Surrogate  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.errors import ArgumentError  # noqa: E402
from rnnops.torch.errors import SelfCheckError, StepError  # noqa: E402

D, H = 3, 4
DOUBLE = torch.float64


def numbers(*shape: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=DOUBLE).requires_grad_()


def loop(step: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, Any]:
    """The carry and the results of all steps, by PyTorch."""
    ys = []
    for t in range(pytree.tree_leaves(xs)[0].shape[0]):
        carry, y = step(carry, pytree.tree_map(lambda x, t=t: x[t], xs))
        ys.append(y)
    return carry, pytree.tree_map(lambda *rows: torch.stack(rows), *ys)


def expect_equal(mine: Any, theirs: Any, leaves: list[Any]) -> None:
    """All outputs, and all gradients of random sums of them."""
    one, other = pytree.tree_leaves(mine), pytree.tree_leaves(theirs)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    weights = [numbers(*b.shape, seed=i).detach() for i, b in enumerate(other)]
    grads = [
        torch.autograd.grad(
            sum((a * w).sum() for a, w in zip(outputs, weights, strict=True)), leaves, allow_unused=True
        )
        for outputs in (one, other)
    ]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(
            torch.zeros(()) if b is None else a, torch.zeros(()) if b is None else b, rtol=1e-10, atol=1e-10
        )


CELLS: dict[str, Callable[[], tuple[Any, int]]] = {
    "LSTMCell": lambda: (torch.nn.LSTMCell(D, H), 2),
    "GRUCell": lambda: (torch.nn.GRUCell(D, H), 1),
    "RNNCell": lambda: (torch.nn.RNNCell(D, H, nonlinearity="relu"), 1),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells_of_pytorch_equal_their_loop_for_any_length_and_batch(name: str) -> None:
    cell, count = CELLS[name]()
    cell = cell.to(DOUBLE)
    rnn = rt.RNN(cell)
    for T, N in ((5, 3), (2, 3), (4, 2), (3, 1)):
        xs, states = numbers(T, N, D), [numbers(N, H, seed=i) for i in range(count)]
        init = tuple(states) if count > 1 else states[0]
        ys, carry = rnn(xs, init)
        wanted = loop(lambda carry, x: rt.rnn.cell_step(cell, carry, x), init, xs)
        expect_equal((carry, ys), wanted, [xs, *states, *cell.parameters()])
    (prepared,) = rnn._prepared.values()
    assert len(prepared.traces) == 2, "one for all batches of two rows or more, one for a single row"


def test_batch_first_reverse_and_zeros_for_init() -> None:
    cell = torch.nn.GRUCell(D, H).to(DOUBLE)
    xs = numbers(5, 2, D)
    ys, carry = rt.RNN(cell, batch_first=True, reverse=True)(xs.transpose(0, 1))
    last, rows = loop(lambda h, x: (cell(x, h),) * 2, torch.zeros(2, H, dtype=DOUBLE), xs.flip(0))
    expect_equal((carry, ys.transpose(0, 1)), (last, rows.flip(0)), [xs, *cell.parameters()])


@pytest.mark.parametrize("option", ["precision", "residuals"])
def test_what_is_rounded_to_bfloat16(option: str) -> None:
    """Operands of products, or what is kept for backward: tensors stay float32, near the loop in float32."""
    cell, xs = torch.nn.LSTMCell(D, H), numbers(5, 3, D).float().requires_grad_()
    found = []
    for options in ({}, {option: "bfloat16"}):
        ys, _ = rt.RNN(cell, **options)(xs)
        found.append([ys, *torch.autograd.grad(ys.square().sum(), [xs, *cell.parameters()])])
    assert (option == "residuals") == torch.equal(found[0][0], found[1][0]), "what is kept changes no output"
    for exact, rounded in zip(*(values[1:] for values in found), strict=True):
        assert rounded.dtype == torch.float32
        assert 0 < (exact - rounded).abs().max() < 0.02 * exact.abs().max()


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_end_where_lengths_say(reverse: bool) -> None:
    cell, lengths = torch.nn.LSTMCell(D, H).to(DOUBLE), torch.tensor([3, 5, 1], dtype=torch.int32)
    xs, init = numbers(5, 3, D), (numbers(3, H), numbers(3, H, seed=1))
    ys, carry = rt.RNN(cell, reverse=reverse)(xs, init, lengths=lengths)
    rows, last = [], []
    for n, length in enumerate(lengths.tolist()):
        x = xs[:length, n : n + 1]
        end, y = loop(
            lambda c, x: rt.rnn.cell_step(cell, c, x), tuple(s[n : n + 1] for s in init), x.flip(0) if reverse else x
        )
        rows.append(torch.cat([y.flip(0) if reverse else y, torch.zeros(5 - length, 1, H, dtype=DOUBLE)]))
        last.append(end)
    wanted = tuple(torch.cat([end[i] for end in last]) for i in range(2)), torch.cat(rows, 1)
    expect_equal((carry, ys), wanted, [xs, *init, *cell.parameters()])


@pytest.mark.parametrize("lengths", [[4, 2, 2, 1], [2, 4, 1, 2]], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("reverse", [False, True])
def test_packed_sequences_equal_those_of_an_lstm(lengths: list[int], reverse: bool) -> None:
    """Values and gradients, in the caller's order of rows."""
    lstm, cell = torch.nn.LSTM(D, H, bidirectional=True).to(DOUBLE), torch.nn.LSTMCell(D, H).to(DOUBLE)
    names = [f"{name}_l0{'_reverse' * reverse}" for name, _ in cell.named_parameters()]
    cell.load_state_dict(dict(zip(cell.state_dict(), map(lstm.get_parameter, names), strict=True)))
    xs, init = numbers(4, 4, D), [numbers(4, H), numbers(4, H, seed=1)]
    is_sorted, rows = lengths == sorted(lengths, reverse=True), slice(H, None) if reverse else slice(H)
    packed = torch.nn.utils.rnn.pack_padded_sequence(xs, torch.tensor(lengths), enforce_sorted=is_sorted)
    wanted, last = lstm(packed, tuple(torch.stack([s, s]) for s in init))
    rnn = rt.RNN(cell, reverse=reverse, batch_first=True)
    for _ in range(2):
        ys, carry = rnn(packed, tuple(init))
        assert isinstance(ys, type(packed))
        assert all(a is b for a, b in zip(ys[1:], packed[1:], strict=True)), "sizes and orders are the inputs'"
        mine = [ys.data, *carry], [xs, *init, *cell.parameters()]
        theirs = [wanted.data[:, rows], *(s[int(reverse)] for s in last)], [xs, *init, *map(lstm.get_parameter, names)]
        for outputs in zip(mine[0], theirs[0], strict=True):
            torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-10)
        grads = [
            torch.autograd.grad(sum(x.sin().sum() for x in out), leaves, retain_graph=True)
            for out, leaves in (mine, theirs)
        ]
        for both in zip(*grads, strict=True):
            torch.testing.assert_close(*both, rtol=1e-10, atol=1e-10)
    _, scanned = rt.scan(lambda c, x: (cell(x, c),) * 2, tuple(init), packed, reverse=reverse)
    torch.testing.assert_close(scanned[0].data, ys.data, rtol=1e-10, atol=1e-10)
    assert "4 rows" in str(rnn.plan(packed, tuple(init)))


def test_what_does_not_go_with_packed_rows_has_a_name() -> None:
    cell, packed = torch.nn.RNNCell(D, H), torch.nn.utils.rnn.pack_sequence([torch.ones(3, D), torch.ones(2, D)])
    for problem, run in {
        "has lengths already": lambda: rt.RNN(cell)(packed, lengths=[3, 2]),
        "inputs must be tensors or None; got PackedSequence": lambda: rt.RNN(cell)([packed]),
        r"without rows cannot be packed; wanted \[T, 2, ...\]; got \[3\]": lambda: rt.rnn.packed_as(
            packed, torch.zeros(3), torch.tensor([3, 2])
        ),
    }.items():
        with pytest.raises(StepError, match=problem):
            run()


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32", "int64"])
def test_lengths_of_any_integers(kind: str) -> None:
    rnn, xs, lengths = rt.RNN(torch.nn.GRUCell(D, H).to(DOUBLE)), numbers(5, 3, D), torch.tensor([3, 5, 1])
    assert torch.equal(rnn(xs, lengths=lengths.to(getattr(torch, kind)))[0], rnn(xs, lengths=[3, 5, 1])[0])


def test_none_stays_none() -> None:
    """As a result, among inputs and among states."""
    cell, xs, h0 = torch.nn.GRUCell(D, H).to(DOUBLE), numbers(4, 2, D), numbers(2, H)

    def step(cell: Any, carry: Any, x: Any) -> Any:
        assert [carry["none"], x[1]] == [None, None]
        return {"none": None, "h": cell(x[0], carry["h"])}, None

    for batch_first in (False, True):
        ys, carry = rt.RNN(cell, step, batch_first=batch_first)(
            (xs.transpose(0, 1) if batch_first else xs, None), {"none": None, "h": h0}
        )
        assert [ys, carry["none"]] == [None, None]
        wanted = loop(lambda h, x: (cell(x, h),) * 2, h0, xs)[0]
        expect_equal(carry["h"], wanted, [xs, h0, *cell.parameters()])
    carry, ys = rt.scan(lambda h, x: (cell(x, h), (None, h)), h0, xs)
    assert ys[0] is None
    assert ys[1].shape == (4, 2, H)
    with pytest.raises(StepError, match="changes the structure of its carry"):
        rt.scan(lambda h, x: (None, h), h0, xs)


class OwnLstm(torch.nn.RNNCellBase):
    """It takes its states apart by index or as a pair."""

    def __init__(self, apart: bool) -> None:
        super().__init__(D, H, True, 4)
        self.apart, self.calls = apart, 0

    def forward(self, x: Any, state: Any) -> Any:
        self.calls += 1
        h, c = state if self.apart else (state[0], state[1])
        return torch.lstm_cell(x, (h, c), self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class OwnGru(torch.nn.GRUCell.__mro__[1]):
    def __init__(self) -> None:
        super().__init__(D, H, True, 3)
        self.register_buffer("ones", torch.ones(4, H))

    def forward(self, x: Any, h: Any) -> Any:
        h = torch.gru_cell(x, h * self.ones, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return 2 * h, h


@pytest.mark.parametrize("N", [1, 2, 4])
@pytest.mark.parametrize("apart", [False, True])
def test_zeros_of_cells_of_ones_own(apart: bool, N: int) -> None:
    cell, xs = OwnLstm(apart).to(DOUBLE), numbers(3, N, D)
    rnn, zeros = rt.RNN(cell), torch.zeros(N, H, dtype=DOUBLE)
    ys, carry = rnn(xs)
    assert cell.calls == 3, "what was tried left no trace"
    expect_equal((carry, ys), loop(lambda c, x: rt.rnn.cell_step(cell, c, x), (zeros, zeros), xs), [xs])
    assert isinstance(copy.deepcopy(rnn)(xs)[1], tuple)
    if N == 4:
        rnn.cell = OwnGru().to(DOUBLE)  # takes four rows only
        assert rnn(xs)[1].shape == (4, H)


def test_cells_that_no_zeros_fit_are_named() -> None:
    class Wide(torch.nn.Module):
        hidden_size = H

        def forward(self, x: Any, state: Any) -> Any:
            return torch.cat([state["h"], x], 1)

    zeros = r"got states \[3, 4\] of zeros, as init is left out, .*\. Give the call init="
    with pytest.raises(StepError, match=f"the step fails with TypeError.*{zeros}"):
        rt.RNN(Wide())(torch.ones(3, 2, D))


def test_a_state_whose_batch_is_not_its_first_axis() -> None:
    layers = torch.nn.LSTM(D, H, 2).to(DOUBLE)

    def step(cell: Any, carry: Any, x: Any) -> tuple[Any, Any]:
        y, carry = cell(x[None], carry)
        return carry, {"y": y[0], "sum": y.sum()}

    xs, init = numbers(4, 3, D), (numbers(2, 3, H), numbers(2, 3, H, seed=1))
    ys, carry = rt.RNN(layers, step, batch_axis=1)(xs, init)
    expect_equal((carry, ys), loop(lambda c, x: step(layers, c, x), init, xs), [xs, *init, *layers.parameters()])


def of_layers(layers: Any, carry: Any, x: Any) -> tuple[Any, Any]:
    y, carry = layers(x[None], carry)
    return carry, y[0]


@pytest.mark.parametrize("ends", [False, True])
def test_the_batch_axis_of_a_state_is_found(ends: bool) -> None:
    """Where several axes are as long as the batch, the step decides."""
    layers = torch.nn.LSTM(H, H, 2).to(DOUBLE)
    found, told = rt.RNN(layers, of_layers), rt.RNN(layers, of_layers, batch_axis=1)
    for rows in (2, 3, H):
        xs, init = numbers(5, rows, H), (numbers(2, rows, H), numbers(2, rows, H, seed=1))
        lengths = torch.arange(rows) + 2 if ends else None
        wanted, mine = told(xs, init, lengths), found(xs, init, lengths)
        expect_equal(mine[::-1], wanted[::-1], [xs, *init, *layers.parameters()])
        assert "rows are independent" in str(found.plan(xs, init))
    loop_of_them = loop(lambda c, x: of_layers(layers, c, x), init, xs)
    expect_equal(found(xs, init)[::-1], loop_of_them, [xs, *init, *layers.parameters()])


def of_several_kinds(carry: Any, x: Any) -> tuple[Any, Any]:
    h, layers, turned = carry
    x = torch.tanh(x + h * math.sqrt(x.shape[0] * 0.25))
    turned = 0.5 * turned + x.T
    return (x, torch.stack([layers[1] + x, layers[0] * x]), turned), (layers[1] * x, turned.sum())


def test_each_state_has_a_batch_axis_of_its_own() -> None:
    for rows in (2, 3, H):
        init, xs = (numbers(rows, H), numbers(2, rows, H), numbers(H, rows)), numbers(5, rows, H)
        expect_equal(rt.scan(of_several_kinds, init, xs), loop(of_several_kinds, init, xs), [xs, *init])


def test_a_step_that_takes_a_plain_number_for_its_rows_is_one_row() -> None:
    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        h = torch.tanh(carry[0] * float(np.sqrt(x.shape[0])) + x)
        return torch.stack([h, carry[0]]), h

    init, xs = numbers(2, 3, H), numbers(5, 3, H)
    expect_equal(rt.scan(step, init, xs), loop(step, init, xs), [xs, init])


def test_scan_follows_tensors_that_a_step_closes_over() -> None:
    """An attention decoder whose encoder is another tensor at each call; the step is traced once."""
    rt.rnn._known.clear()  # it is bounded, and may be full
    for seed in range(3):
        encoder, w, xs, h0 = (numbers(*shape, seed=seed) for shape in ((6, 3, H), (D, H), (5, 3, D), (3, H)))

        def step(h: Any, x: Any, encoder: Any = encoder, w: Any = w) -> tuple[Any, Any]:
            weights = torch.softmax((encoder * h).sum(-1), 0)
            h = torch.tanh(x @ w + (weights[..., None] * encoder).sum(0))
            return h, (h, weights)

        expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [encoder, w, xs, h0])
    assert len(rt.rnn._known) == 1


class Rolled(torch.autograd.Function):
    """What is not elementwise, though its shapes say nothing of it."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.cat([x[..., 1:], x[..., :1]], -1)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return torch.cat([grad[..., -1:], grad[..., :-1]], -1)


def spiking(carry: Any, x: Any) -> tuple[Any, Any]:
    with torch.no_grad():
        reset = (carry > 1).to(carry.dtype)
    membrane = 0.9 * carry + x - reset * carry.detach()
    return membrane, Surrogate.apply(membrane - 1)


def test_surrogate_gradients_no_grad_and_detach() -> None:
    xs, m0 = numbers(6, 2, H), numbers(2, H)
    expect_equal(rt.scan(spiking, m0, xs), loop(spiking, m0, xs), [xs, m0])


def test_what_wants_no_gradient_keeps_nothing_and_is_no_part_of_a_graph() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H).to(DOUBLE)), numbers(3, 2, D)
    with torch.no_grad():
        assert not rnn(xs)[0].requires_grad
    with torch.inference_mode():
        assert rnn(xs)[0].is_inference()
    rnn.requires_grad_(False)
    assert not rnn(xs.detach())[0].requires_grad


def test_backward_twice_gradcheck_and_copies() -> None:
    rnn = rt.RNN(torch.nn.RNNCell(D, H).to(DOUBLE))
    xs, h0 = numbers(3, 2, D), numbers(2, H)
    ys, _ = rnn(xs, h0)
    first = torch.autograd.grad(ys.sum(), xs, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(ys.sum(), xs)[0])
    assert torch.autograd.gradcheck(lambda xs, h0: rnn(xs, h0), (xs, h0))
    twin = copy.deepcopy(rnn)
    assert twin.state_dict().keys() == {f"cell.{name}" for name in rnn.cell.state_dict()}
    assert torch.equal(twin(xs, h0)[0], ys)
    with torch.no_grad():
        twin.cell.weight_ih.zero_()
    assert not torch.equal(twin(xs, h0)[0], ys)


def two_features_dropped(carry: Any, x: Any) -> tuple[Any, Any]:
    carry = torch.nn.functional.dropout1d(carry[None], 0.5)[0] + x
    return carry, carry


def deciding(carry: Any, x: Any) -> tuple[Any, Any]:
    return (carry + x, x) if carry.sum() > 0 else (carry, x)


def shrinking(carry: Any, x: Any) -> tuple[Any, Any]:
    return carry[:, :2], x


REFUSED = {
    "random numbers of another kind": (two_features_dropped, "aten.bernoulli"),
    "a decision by a value": (deciding, "decides by the value of a tensor"),
    "a state of another shape": (shrinking, "state 0 changes its dtype or shape"),
    "half precision within": (lambda c, x: ((c.half() + 1).to(c.dtype), x), "a dtype that this run does not have"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_translated_is_refused(name: str) -> None:
    step, problem = REFUSED[name]
    with pytest.raises(StepError, match=problem):
        rt.scan(step, numbers(2, D), numbers(3, 2, D))


def test_what_a_trace_cannot_see_fails_the_self_check() -> None:
    with pytest.raises(SelfCheckError, match="the gradient of"):
        rt.scan(lambda c, x: (Rolled.apply(c) * x, c), numbers(2, D), numbers(3, 2, D))


MISUSED = {
    "a cell that is none": (lambda: rt.RNN(5), "the cell is not a module"),
    "a step that is none": (lambda: rt.scan(5, numbers(2, H), numbers(3, 2, H)), "the step is not a function"),
    "a step of a cell that is none": (lambda: rt.RNN(torch.nn.GRUCell(D, H), 5), "the step is not a function"),
    "answers that are none": (lambda: rt.RNN(torch.nn.GRUCell(D, H), assume=3), "not a list of answers"),
    "an axis that is none": (
        lambda: rt.scan(shrinking, numbers(2, H), numbers(3, 2, H), batch_axis="N"),
        "batch_axis= is not an axis",
    ),
    "an axis that no state has": (
        lambda: rt.RNN(torch.nn.GRUCell(D, H), batch_axis=5)(torch.zeros(3, 2, D)),
        "no state",
    ),
    "states given to the module": (lambda: rt.RNN(torch.nn.GRUCell(D, H), init=3), "an argument of the call: rnn"),
    "an option that is none": (lambda: rt.RNN(torch.nn.GRUCell(D, H), budget=3), "no such option: budget="),
    "an input that is not a tensor": (lambda: rt.scan(shrinking, numbers(2, H), "x"), "inputs must be tensors or None"),
    "a state that is not a tensor": (lambda: rt.scan(shrinking, 1.0, numbers(3, 2, H)), "states must be tensors"),
    "a result that is not a tensor": (
        lambda: rt.scan(lambda c, x: (c, 1.0), numbers(2, H), numbers(3, 2, H)),
        "results of the step must be tensors or None; got float 1.0",
    ),
    "lengths that are floats": (
        lambda: rt.RNN(torch.nn.GRUCell(D, H))(torch.zeros(3, 2, D), lengths=torch.tensor([1.0, 2.0])),
        "lengths are not integers",
    ),
}


@pytest.mark.parametrize("name", MISUSED)
def test_what_is_given_is_looked_at(name: str) -> None:
    call, problem = MISUSED[name]
    with pytest.raises(StepError, match=problem):
        call()


def test_flags_that_are_none() -> None:
    for options in ({"batch_first": "no"}, {"reverse": "no"}):
        with pytest.raises(ArgumentError, match="neither on nor off"):
            rt.RNN(torch.nn.GRUCell(D, H), **options)
    with pytest.raises(ArgumentError, match="backward= is neither on nor off"):
        rt.RNN(torch.nn.GRUCell(D, H)).plan(numbers(3, 2, D), backward="no")
    with pytest.raises(ArgumentError, match="reverse= is neither on nor off"):
        rt.scan(shrinking, numbers(2, H), numbers(3, 2, H), reverse="no")


def test_what_was_traced_can_be_read() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(5, 2, D, requires_grad=True)
    with pytest.raises(StepError, match="nothing was traced yet"):
        _ = rnn.net
    planned = rnn.plan(xs, lengths=[3, 5])
    assert "RecurrentNetwork" in str(rnn.net)
    assert "sigmoid" in planned.source
    assert "backward" not in str(rnn.plan(xs, backward=False))


def test_lengths_may_be_any_integers() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(5, 2, D)
    wanted = rnn(xs, lengths=torch.tensor([3, 5], dtype=torch.int32))[0]
    for lengths in (torch.tensor([3, 5]), [3, 5], torch.tensor([3, 5], dtype=torch.uint8)):
        assert torch.equal(rnn(xs, lengths=lengths)[0], wanted)


def test_answers_to_decisions_are_taken() -> None:
    xs, init = numbers(3, 2, D), numbers(2, D)
    mine = rt.scan(deciding, init, xs, assume=[False])
    expect_equal(mine, loop(lambda c, x: (c, x), init, xs), [xs, init])


@pytest.mark.parametrize("kind", [torch.nn.GRUCell, torch.nn.LSTMCell])
def test_derivatives_of_derivatives(kind: Any) -> None:
    """A penalty on gradients, and the gradient of its gradient, beside PyTorch's own loop."""
    cell, xs = kind(D, H).double(), torch.randn(4, 2, D, dtype=torch.float64, requires_grad=True)
    rnn, parameters = rt.RNN(cell), list(cell.parameters())

    def loop(xs: torch.Tensor) -> torch.Tensor:
        state, steps = None, []
        for x in xs:
            state = cell(x, state)
            steps.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(steps)

    found = []
    for run in (lambda xs: rnn(xs)[0], loop):
        (first,) = torch.autograd.grad(run(xs).pow(2).sum(), xs, create_graph=True)
        second = torch.autograd.grad(first.pow(2).sum(), [xs, *parameters], create_graph=True)
        third = torch.autograd.grad(sum(grad.pow(2).sum() for grad in second), [xs, *parameters])
        found.append([first, *second, *third])
    for mine, wanted in zip(*found, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-10)
    short = xs[:2, :1].detach().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda xs: rnn(xs)[0], (short,))


def test_misuse_has_a_name() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(3, 2, D, requires_grad=True)
    ys, _ = rnn(xs)
    with torch.no_grad():
        ys.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ys.sum().backward()


def test_functions_of_one_name_are_told_apart() -> None:
    """Steps of the same code that reach other functions by a global or closed-over name are traced anew."""
    xs, h0 = numbers(3, 2, H), numbers(2, H)
    for function in (torch.tanh, torch.sigmoid, Surrogate.apply, torch.nn.functional.relu):
        closed = lambda c, x, f=function: (f(c + x), x)  # noqa: E731 - the function is a default
        expect_equal(rt.scan(closed, h0, xs), loop(closed, h0, xs), [xs, h0])
        namespace: dict[str, Any] = {"function": function}
        exec("def step(carry, x):\n    return function(carry + x), x", namespace)  # the function is a global
        step = namespace["step"]
        expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [xs, h0])


@pytest.mark.parametrize("made", [torch.zeros, torch.ones, torch.empty, torch.full])
def test_tensors_as_large_as_the_batch_may_be_made_in_a_step(made: Any) -> None:
    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        more = made((x.shape[0], H), 0.5, dtype=DOUBLE) if made is torch.full else made(x.shape[0], H, dtype=DOUBLE)
        carry = torch.tanh(carry + x * (more.fill_(1.0) if made is torch.empty else more))
        return carry, carry

    for N in (2, 3):
        xs, h0 = numbers(3, N, H), numbers(N, H)
        expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [xs, h0])


def test_a_stack_of_matrices_is_repeated_for_the_batch() -> None:
    weights, h0, xs = numbers(2, 3, 4), numbers(5, 2, 1, 3), numbers(3, 5, 2, 1, 4)

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        y = torch.tanh(carry @ weights + x)
        return torch.matmul(y, weights.transpose(1, 2)), y

    expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [xs, h0, weights])


def test_scripted_modules_are_refused() -> None:
    with pytest.raises(StepError, match="scripted module is part of a step; got GRUCell"):
        rt.RNN(torch.jit.script(torch.nn.GRUCell(D, H)), rt.rnn.cell_step)(numbers(3, 2, D), numbers(2, H))


def test_hooks_of_parameters_run_once() -> None:
    cell = torch.nn.RNNCell(D, H).to(DOUBLE)
    cell.weight_hh.register_hook(lambda grad: grad * (1 - torch.eye(H, dtype=DOUBLE)))
    xs, h0 = numbers(3, 2, D), numbers(2, H)
    expect_equal(rt.RNN(cell)(xs, h0)[1], loop(lambda h, x: (cell(x, h),) * 2, h0, xs)[0], [xs, h0, *cell.parameters()])


def test_what_a_step_closes_over_may_be_widened_to_the_batch() -> None:
    start, xs = numbers(1, H), numbers(3, 2, H)

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        carry = torch.tanh(carry * x + start.expand(x.shape[0], -1) + torch.eye(H, dtype=DOUBLE)[0].expand(x.size()))
        return carry, carry

    h0 = numbers(2, H)
    expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [xs, h0, start])


def test_the_angle_of_two_numbers_follows_the_signs_of_zeros() -> None:
    edges = torch.tensor([0.0, -0.0, 1.5, -2.0, torch.inf, -torch.inf], dtype=DOUBLE)
    y, x = (grid.reshape(1, 1, -1) for grid in torch.meshgrid(edges, edges, indexing="ij"))
    x = torch.where(x.isinf() & y.isinf(), 1.0, x)  # inf / inf is not a number
    ys = rt.scan(lambda c, pair: (c, torch.atan2(*pair)), torch.zeros(1, 1, dtype=DOUBLE), (y, x))[1]
    assert torch.equal(ys, torch.atan2(y, x))
    assert torch.equal(ys.signbit(), torch.atan2(y, x).signbit())


@pytest.mark.parametrize("measure", [lambda x: x.std(-1), lambda x: torch.linalg.vector_norm(x, dim=-1), torch.std])
def test_deviations_and_norms_of_nothing_have_no_gradient(measure: Any) -> None:
    xs, h0 = torch.zeros(3, 2, H, dtype=DOUBLE).requires_grad_(), numbers(2, H)
    step = lambda c, x: (c * 0.5 + x, measure(x).reshape(-1))  # noqa: E731
    expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [xs, h0])
