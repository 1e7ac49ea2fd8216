"""Forward mode through `rnnops.torch`, beside PyTorch's own loop and differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.autograd import forward_ad

import rnnops.torch as rt

T, N, D, H = 5, 2, 3, 4
close = torch.testing.assert_close
pytestmark = [  # the warning is PyTorch's own, at its first tangent
    pytest.mark.usefixtures("in_float64"),
    pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning"),
]


def loop(cell: Any, xs: Tensor) -> Tensor:
    h, c, rows = xs.new_zeros(N, H), xs.new_zeros(N, H), []
    for x in xs:
        h, c = cell(x, (h, c))
        rows.append(h)
    return torch.stack(rows)


def dual_call(function: Callable[..., Tensor], x: Tensor, tangent: Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent)))


def lstm() -> tuple[torch.nn.LSTMCell, rt.RNN, Tensor, Tensor]:
    cell = torch.nn.LSTMCell(D, H)
    return cell, rt.RNN(cell), torch.randn(T, N, D), torch.randn(T, N, D)


def test_tangents_are_those_of_a_loop() -> None:
    """At the first call, and where calls are replayed."""
    cell, rnn, xs, v = lstm()
    wanted = dual_call(lambda x: loop(cell, x), xs, v)
    for _ in range(3):
        found = dual_call(lambda x: rnn(x)[0], xs, v)
        close(found.primal, wanted.primal)
        close(found.tangent, wanted.tangent)
        with torch.no_grad():
            close(dual_call(lambda x: rnn(x)[0], xs, v).tangent, wanted.tangent)
            rnn(xs)
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(rnn(xs)[0]).tangent is None


def test_calls_that_are_replayed_have_tangents() -> None:
    cell, xs, v, zeros = torch.nn.Linear(D, H), torch.randn(T, N, D), torch.randn(T, N, D), torch.zeros(N, H)
    rnn = rt.RNN(cell, lambda cell, h, x: (torch.tanh(cell(x) + h),) * 2)
    with torch.no_grad():
        for _ in range(5):
            rnn(xs, zeros)
        request: Any = rnn._known_request(cell)
        assert request.recent
        assert dual_call(lambda x: rnn(x, zeros)[0], xs, v).tangent is not None


def test_jvp_of_torch_func() -> None:
    cell, rnn, xs, v = lstm()
    wanted = torch.func.jvp(lambda x: loop(cell, x), (xs,), (v,))
    close(torch.func.jvp(lambda x: rnn(x)[0], (xs,), (v,)), wanted)
    still = torch.func.jvp(lambda x: rnn((x > 0).double())[0], (xs,), (v,))  # its input has no tangent
    close(still, (loop(cell, (xs > 0).double()).detach(), torch.zeros(T, N, H)))
    parameters = {name: p.detach() for name, p in cell.named_parameters()}
    tangents = {name: torch.randn_like(p) for name, p in parameters.items()}

    def of_loop(given: Any) -> Tensor:
        return loop(lambda x, state: torch.func.functional_call(cell, given, (x, state)), xs)

    def of_rnn(given: Any) -> Any:
        held = {f"cell.{name}": p for name, p in given.items()}
        return torch.func.functional_call(rnn, held, (xs,))[0]

    close(torch.func.jvp(of_rnn, (parameters,), (tangents,)), torch.func.jvp(of_loop, (parameters,), (tangents,)))


class Own(torch.nn.Module):
    hidden_size = H

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.LSTMCell(D, H)

    def forward(self, x: Tensor, state: Any) -> Any:
        return self.cell(x, state)


def test_what_a_first_call_tries_has_no_tangents() -> None:
    """How many states a cell takes, and the dtypes of a loop under autocast."""
    own, xs, v = Own(), torch.randn(T, N, D), torch.randn(T, N, D)
    wanted = torch.func.jvp(lambda x: loop(own, x), (xs,), (v,))
    close(torch.func.jvp(lambda x: rt.RNN(own)(x)[0], (xs,), (v,)), wanted)
    cell = torch.nn.GRUCell(D, H).bfloat16()
    narrow, moved = torch.func.jvp(lambda x: rt.RNN(cell)(x)[0], (xs.bfloat16(),), (v.bfloat16(),))
    cell = cell.double()
    wide = torch.func.jvp(lambda x: rt.RNN(cell)(x)[0], (xs,), (v,))
    assert narrow.dtype == moved.dtype == torch.bfloat16
    close((narrow.double(), moved.double()), wide, rtol=0.05, atol=0.05)
    close(torch.func.vmap(lambda x: rt.RNN(own)(x)[0])(xs[None]), loop(own, xs)[None])


def test_a_scan_moves_with_what_it_closes_over() -> None:
    xs, w, tangent = torch.randn(T, N, D), torch.randn(D, H), torch.randn(D, H)

    def scanned(w: Tensor) -> Tensor:
        return rt.scan(lambda h, x: (torch.tanh(0.5 * h + x @ w),) * 2, torch.zeros(N, H), xs)[1]

    def looped(w: Tensor) -> Tensor:
        h, rows = torch.zeros(N, H), []
        for x in xs:
            h = torch.tanh(0.5 * h + x @ w)
            rows.append(h)
        return torch.stack(rows)

    wanted = torch.func.jvp(looped, (w,), (tangent,))
    with pytest.raises(rt.StepError, match="Call it once outside of"):
        torch.func.jvp(scanned, (w,), (tangent,))
    close(dual_call(scanned, w, tangent).tangent, wanted[1])
    close(torch.func.jvp(scanned, (w,), (tangent,)), wanted)


def test_lengths_and_random_numbers_beside_differences() -> None:
    def step(cell: Any, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.nn.functional.dropout(cell(x, h), 0.4)
        return h, h

    rnn, xs, v = rt.RNN(torch.nn.GRUCell(D, H), step), torch.randn(T, N, D), torch.randn(T, N, D)
    lengths, small = torch.tensor([5, 3]), 1e-6

    def call(x: Tensor) -> Tensor:
        torch.manual_seed(1)
        return rnn(x, torch.zeros(N, H), lengths=lengths)[0]

    with torch.no_grad():
        slope = (call(xs + small * v) - call(xs - small * v)) / (2 * small)
    found = dual_call(call, xs, v)
    close(found.primal, call(xs))
    close(found.tangent, slope, rtol=1e-6, atol=1e-8)
    assert not found.tangent[3:, 1].any()


def test_tangents_have_gradients() -> None:
    cell, rnn, xs, v = lstm()
    x = xs.requires_grad_()
    leaves = [x, *cell.parameters()]
    ours, loops = (
        torch.autograd.grad(dual_call(function, x, v).tangent.square().sum(), leaves)
        for function in (lambda x: rnn(x)[0], lambda x: loop(cell, x))
    )
    close(ours, loops)


def test_what_has_no_tangents_is_refused() -> None:
    _, rnn, xs, v = lstm()
    x = xs.requires_grad_()
    ys = rnn(x)[0]
    with forward_ad.dual_level():
        moved = rnn(forward_ad.make_dual(x, v))[0]
        with pytest.raises(rt.StepError, match="would have no tangents"):
            torch.autograd.grad(moved.sum(), x)
        with pytest.raises(rt.StepError, match="would have no tangents"):
            torch.autograd.grad(ys, x, forward_ad.make_dual(torch.ones_like(ys), torch.ones_like(ys)))
        other = torch.autograd.grad(rnn(x)[0].sum(), x)[0]  # nothing moves
    close(other, torch.autograd.grad(rnn(x)[0].sum(), x)[0])


def test_jvps_in_jvps() -> None:
    cell, rnn, xs, v = lstm()
    found = []
    for call in (lambda x: rnn(x)[0], lambda x: loop(cell, x)):

        def moved(x: Tensor, call: Any = call) -> Any:
            return torch.func.jvp(call, (x,), (x.cos(),))

        found.append(torch.func.jvp(moved, (xs,), (v,)))
    close(*found)
