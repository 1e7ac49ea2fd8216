"""`torch.func.vmap` of recurrences, and gradients in many directions at once, beside the same of a Python loop."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call, jacfwd, jvp, vmap

import rnnops.torch as rt
from rnnops.torch.autograd import Mapped

T, N, D, H, V = 5, 3, 2, 4, 6
pytestmark = [  # the warning is PyTorch's own, at its first tangent
    pytest.mark.usefixtures("in_float64"),
    pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning"),
]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How mapped calls ran."""
    found: list[str] = []
    for name in ("folded", "one_by_one"):
        own = getattr(Mapped, name)

        def noted(*given: Any, name: str = name, own: Any = own) -> Any:
            found.append(name)
            return own(*given)

        monkeypatch.setattr(Mapped, name, noted)
    return found


def close(mine: Any, wanted: Any) -> None:
    torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-9)


class OwnLSTM(torch.nn.Module):
    """PyTorch has no vmap of its own LSTM cell."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden_size = H
        self.of_input, self.of_state = torch.nn.Linear(D, 4 * H), torch.nn.Linear(H, 4 * H)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        i, f, g, o = (self.of_input(x) + self.of_state(state[0])).chunk(4, -1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


def loop(step: Any, init: Any, xs: Tensor) -> Any:
    rows = []
    for x in xs:
        init, y = step(init, x)
        rows.append(y)
    return init, torch.stack(rows)


def of_lstm() -> tuple[OwnLSTM, Callable[..., Any], Callable[..., Any]]:
    """A cell, its recurrence, and its loop: functions of inputs and states."""
    cell = OwnLSTM()
    rnn = rt.RNN(cell)

    def looped(xs: Tensor, h: Tensor, c: Tensor) -> Any:
        def step(state: Any, x: Tensor) -> Any:
            state = cell(x, state)
            return state, state[0]

        return loop(step, (h, c), xs)[::-1]

    return cell, lambda xs, h, c: rnn(xs, (h, c)), looped


def test_shared_weights_are_one_call_of_more_rows(ways: list[str]) -> None:
    """Mapped axes anywhere, some tensors that are not mapped, gradients of all."""
    cell, ours, looped = of_lstm()
    for in_dims, shapes in {
        (0, 0, 0): [(V, T, N, D), (V, N, H), (V, N, H)],
        (3, 1, -1): [(T, N, D, V), (N, V, H), (N, H, V)],
        (1, None, None): [(T, V, N, D), (N, H), (N, H)],
        (None, None, 0): [(T, N, D), (N, H), (V, N, H)],
    }.items():
        leaves = [*(torch.randn(shape, requires_grad=True) for shape in shapes)]
        found = []
        for function in (ours, looped):
            ys, (h, c) = vmap(function, in_dims=in_dims)(*leaves)
            loss = ys.square().sum() + h.sin().sum() + c.cos().sum()
            found.append([ys, h, c, *torch.autograd.grad(loss, [*leaves, *cell.parameters()])])
        close(*found)
    assert ways == ["folded"] * 4


def test_lengths_out_dims_and_vmaps_in_vmaps(ways: list[str]) -> None:
    rnn = rt.RNN(OwnLSTM())
    xs, lengths = torch.randn(2, V, T, N, D), torch.randint(0, T + 1, (V, N))
    found = vmap(vmap(lambda x, n: rnn(x, lengths=n)[0], out_dims=1), in_dims=(0, None))(xs, lengths)
    assert ways == ["folded", "folded"]
    wanted = [torch.stack([rnn(x, lengths=n)[0] for x, n in zip(row, lengths, strict=True)], 1) for row in xs]
    close(found, torch.stack(wanted))
    shared = vmap(lambda x: vmap(lambda _: rnn(x)[0])(lengths))(xs[0])  # the inner one maps nothing that is read
    close(shared, torch.stack([rnn(x)[0] for x in xs[0]])[:, None].expand(shared.shape))


def branching(h: Tensor, x: Tensor) -> Any:
    return (h + x if x.shape[0] > N else h - x), h


table = torch.arange(float(N))[:, None].double()
square = torch.arange(16.0).view(4, 4).double()


STEPS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "mean": lambda h, x: (torch.tanh(h + x - x.mean(0)), h),
    "one row": lambda h, x: (torch.tanh(h + x[:1]), h),
    "turned": lambda h, x: (torch.tanh(h + x.flip(0)), h),
    "size": lambda h, x: (h + x / x.shape[0], h),
    "branch": branching,
    "numbered": lambda h, x: (h + x * torch.arange(x.shape[0])[:, None], h),
    "own row": lambda h, x: (h + x * table, h),
    "ones": lambda h, x: (h + x * torch.ones_like(x).sum(0), h),
    "places": lambda h, x: (h + x * torch.ones_like(x).cumsum(0), h),
    "sum": lambda h, x: (torch.tanh(h + x), h.sum()),
    "second axis": lambda h, x: (torch.tanh(h + x), h.T),
    "softmax": lambda h, x: (torch.tanh(h + x).softmax(0), h),
    "norm": lambda h, x: (h / h.norm() + x, h),
    "attention": lambda h, x: (h + (x @ x.T).softmax(-1) @ x, h),
    "shape": lambda h, x: (h + x.new_full(x.shape, float(x.shape[0])), h),
    "flat": lambda h, x: (h + x.flatten().cumsum(0).view_as(x), h),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_see_other_rows_go_one_by_one(name: str, ways: list[str]) -> None:
    step = STEPS[name]
    xs, init = torch.randn(V, T, N, H), torch.rand(N, H) + 1
    mine = vmap(lambda x: rt.scan(step, init, x))(xs)
    wanted = [loop(step, init, x) for x in xs]
    close(mine, tuple(map(torch.stack, zip(*wanted, strict=True))))
    assert ways == ["one_by_one"]
    if name == "own row":  # a table of N rows
        return
    xs, init = xs[:, :, :1], init[:1]
    mine = vmap(lambda x: rt.scan(step, init, x))(xs)
    close(mine, tuple(map(torch.stack, zip(*(loop(step, init, x) for x in xs), strict=True))))
    assert ways == ["one_by_one"] * 2


def test_steps_whose_rows_are_apart_are_folded(ways: list[str]) -> None:
    steps: list[Callable[[Tensor, Tensor], Any]] = [
        lambda h, x: (torch.tanh(h + x), h),
        lambda h, x: (h + x.view(x.shape[0], 2, -1).flip(1).flatten(1), h),
        lambda h, x: (torch.nn.functional.layer_norm(h + x, (H,)), h.sum(-1)),
        lambda h, x: (h + x.softmax(-1), torch.cat([h, x], -1)),
        lambda h, x: (h + (x.view(-1, 2, 2) @ h.view(-1, 2, 2)).reshape(x.shape), h),
        lambda h, x: (torch.einsum("nh,kh->nk", x + h, square), h),
    ]
    xs, init = torch.randn(V, T, N, H), torch.randn(N, H)
    for step, rows in product(steps, (N, 1)):  # one row is traced again as more
        some = xs[:, :, :rows]
        mine = vmap(lambda x, step=step, init=init[:rows]: rt.scan(step, init, x))(some)
        close(mine, tuple(map(torch.stack, zip(*(loop(step, init[:rows], x) for x in some), strict=True))))
    deep = torch.randn(V, 2, N, H)  # rows on the second axis of a state
    mine = vmap(lambda h, x: rt.scan(lambda h, x: (torch.tanh(h + x), h[0]), h, x))(deep, xs)
    wanted = [loop(lambda h, x: (torch.tanh(h + x), h[0]), h, x) for h, x in zip(deep, xs, strict=True)]
    close(mine, tuple(map(torch.stack, zip(*wanted, strict=True))))
    assert ways == [*["folded"] * 11, "one_by_one", "folded"]  # torch.einsum has other ops for one row


def test_single_rows_are_folded(ways: list[str]) -> None:
    """Gradients, tangents, lengths; and one place, which stays one row."""
    cell, ours, looped = of_lstm()
    xs, h, c = torch.randn(V, T, 1, D), torch.randn(1, H), torch.randn(1, H)
    leaves = [*cell.parameters()]
    found = []
    for function in (ours, looped):
        ys, _ = vmap(lambda x, function=function: function(x, h, c))(xs)
        found.append([ys, *torch.autograd.grad(ys.square().sum(), leaves)])
        found[-1] += jvp(vmap(lambda x, function=function: function(x, h, c)[0]), (xs,), (xs.cos(),))
    close(*found)
    rnn, lengths = rt.RNN(cell), torch.randint(0, T + 1, (V, 1))
    close(vmap(lambda x, n: rnn(x, lengths=n)[0])(xs, lengths), torch.stack([*map(one_of(rnn), xs, lengths)]))
    assert ways == ["folded"] * 3
    close(vmap(lambda x: rnn(x)[0])(xs[:1])[0], rnn(xs[0])[0])
    assert ways[3:] == ["one_by_one"]

    def alone(h: Tensor, x: Tensor) -> Any:
        return (h + x if x.shape[0] > 1 else h - x), h

    states = torch.randn(V, T, 1, H)
    mine = vmap(lambda x: rt.scan(alone, h, x)[1])(states)
    close(mine, torch.stack([loop(alone, h, x)[1] for x in states]))
    assert ways[4:] == ["one_by_one"]


def one_of(rnn: rt.RNN) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, lengths: rnn(x, lengths=lengths)[0]


def test_an_ensemble_goes_model_by_model(ways: list[str]) -> None:
    cell, xs = OwnLSTM(), torch.randn(T, N, D)
    rnn = rt.RNN(cell)
    rnn(xs)
    stacked = {f"cell.{name}": torch.randn(V, *p.shape, requires_grad=True) for name, p in cell.named_parameters()}
    ys = vmap(lambda held: functional_call(rnn, held, (xs,))[0])(stacked)
    assert ways == ["one_by_one"]
    grads = torch.autograd.grad(ys.square().sum(), [*stacked.values()])
    for i in range(V):
        held = {name: p[i].detach().requires_grad_() for name, p in stacked.items()}
        one = functional_call(rnn, held, (xs,))[0]
        close([ys[i], *(grad[i] for grad in grads)], [one, *torch.autograd.grad(one.square().sum(), [*held.values()])])


def test_jacobians_by_forward_mode(ways: list[str]) -> None:
    cell, ours, looped = of_lstm()
    xs, h, c = torch.randn(2, N, D), torch.randn(N, H), torch.randn(N, H)
    close(*(jacfwd(function, argnums=(0, 1, 2))(xs, h, c) for function in (ours, looped)))
    assert {*ways} == {"folded"}
    close(*(jacfwd(jacfwd(lambda h: function(xs, h, c)[0]))(h) for function in (ours, looped)))  # noqa: B023
    many, v = torch.randn(V, 2, N, D), torch.randn(V, 2, N, D)
    close(*(jvp(vmap(lambda x: function(x, h, c)), (many,), (v,)) for function in (ours, looped)))  # noqa: B023
    ways.clear()
    rnn, held = rt.RNN(cell), {f"cell.{name}": p.detach() for name, p in cell.named_parameters()}
    rnn(xs)
    found = jacfwd(lambda held: functional_call(rnn, held, (xs,))[0])(held)
    assert {*ways} == {"one_by_one"}
    leaves = dict(rnn.named_parameters())
    ys = rnn(xs)[0]
    wanted = torch.autograd.grad(ys[1, 2, 3], [*leaves.values()])
    close([found[name][1, 2, 3] for name in leaves], [*wanted])


def test_gradients_in_many_directions(ways: list[str]) -> None:
    cell, ours, looped = of_lstm()
    xs, h, c = torch.randn(2, N, D, requires_grad=True), torch.randn(N, H), torch.randn(N, H)
    leaves, found = [xs, *cell.parameters()], []
    for function in (ours, looped):
        ys = function(xs, h, c)[0]
        one = torch.eye(ys.numel()).view(-1, *ys.shape)
        for _ in range(2):
            found.append(torch.autograd.grad(ys, leaves, one, is_grads_batched=True, retain_graph=True))
        mapped = vmap(lambda v, ys=ys: torch.autograd.grad(ys, xs, v, retain_graph=True)[0])
        close(mapped(one), found[-1][0])
    for other in found:
        close(other, found[-1])
    assert ways == ["one_by_one"] * 3

    def of(function: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: function(x, h, c)[0].square().sum()

    close(jacobian(lambda x: ours(x, h, c)[0], xs, vectorize=True), jacobian(lambda x: looped(x, h, c)[0], xs))
    close(hessian(of(ours), xs, vectorize=True), hessian(of(looped), xs))
    with pytest.raises(rt.StepError, match=r"torch\.func\.jacfwd"):
        jacobian(of(ours), xs, vectorize=True, strategy="forward-mode")


def test_random_steps_are_as_randomness_says() -> None:
    rnn = rt.RNN(torch.nn.Linear(H, H), lambda cell, h, x: (torch.nn.functional.dropout(h + x, 0.5),) * 2)
    xs = torch.randn(T, N, H)

    def call(how: str, seed: int) -> Tensor:
        torch.manual_seed(seed)
        made: Tensor = vmap(lambda _: rnn(xs, torch.zeros(N, H))[0], randomness=how)(torch.zeros(V))
        return made

    same = call("same", 0)
    assert torch.equal(same, same[:1].expand(V, T, N, H))
    many = call("different", 0)
    assert many.shape == (V, T, N, H)
    assert not any(torch.equal(many[0], other) for other in many[1:])
    close(many, call("different", 0))
    assert not torch.equal(many, call("different", 1))
    with pytest.raises(rt.StepError, match="randomness='different'"):
        vmap(lambda x: rnn(x, torch.zeros(N, H))[0])(xs[None])


def test_calls_that_repeat_within_and_without() -> None:
    """What is remembered of a call holds no mapped tensor, and is not taken for one."""
    rnn = rt.RNN(torch.nn.Linear(H, H), lambda cell, h, x: (torch.tanh(cell(x) + h),) * 2)
    xs, zeros = torch.randn(V, T, N, H), torch.zeros(N, H)
    with torch.no_grad():
        wanted = torch.stack([rnn(x, zeros)[0] for x in xs])
        for _ in range(3):
            close(vmap(lambda x: rnn(x, zeros)[0])(xs), wanted)
            close(rnn(xs[0], zeros)[0], wanted[0])
            close(vmap(lambda i: rnn(xs[0], zeros)[0] + i)(torch.zeros(V)), wanted[:1].expand(wanted.shape))
    loss = vmap(lambda i: rnn(xs[0], zeros)[0].sum() + i)(torch.zeros(V)).sum()
    (grad,) = torch.autograd.grad(loss, [rnn.cell.weight])
    close(grad, V * torch.autograd.grad(rnn(xs[0], zeros)[0].sum(), [rnn.cell.weight])[0])


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mem", torch.zeros(N, H))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        self.mem = self.mem + x
        return h + self.mem


def test_what_a_map_cannot_have_is_refused_by_name() -> None:
    xs, zeros = torch.randn(V, T, N, H), torch.zeros(N, H)
    rnn = rt.RNN(Counting())
    rnn(xs[0], zeros)
    with pytest.raises(rt.StepError, match="mem"):
        vmap(lambda x: rnn(x, zeros)[0])(xs)
    plain = rt.RNN(OwnLSTM())
    with pytest.raises(rt.StepError, match="without places"):
        vmap(lambda x: plain(x)[0])(torch.randn(0, T, N, D))
    w = torch.randn(V, H, H)
    with pytest.raises(rt.StepError, match=r"Call it once outside of torch\.func"):
        vmap(lambda w: rt.scan(lambda h, x: (torch.tanh(h @ w + x),) * 2, zeros, xs[0])[1])(w)
