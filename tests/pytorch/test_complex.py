"""Complex states, inputs, parameters and results of steps: values and gradients are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")

import torch.utils._pytree as pytree  # noqa: E402
from each import check_each  # noqa: E402
from rejection import rejects  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.torch.aten import PAIR_RULES  # noqa: E402
from rnnops.torch.aten.complexes import Pair  # noqa: E402

T, N, D, H, M = 7, 3, 5, 4, 2
WITHIN = {torch.complex64: 2e-4, torch.complex128: 1e-12}  # relative to the largest element


def numbers(*shape: int, dtype: Any = torch.complex128, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


def loop(
    step: Callable[..., Any], carry: Any, xs: Any, lengths: Any = None, steps: int | None = None
) -> tuple[Any, Any]:
    """The carry and the results of all steps, by PyTorch."""
    rows = []
    for t in range(steps or len(xs)):
        new, y = step(carry, None if xs is None else xs[t])
        if lengths is not None:
            live = (t < lengths)[:, None]
            new, y = torch.where(live, new, carry), torch.where(live, y, torch.zeros_like(y))
        carry = new
        rows.append(y)
    return carry, pytree.tree_map(lambda *ys: torch.stack(ys), *rows)


def expect_equal(mine: Any, theirs: Any, leaves: list[Any], within: float = 1e-12) -> None:
    """All outputs, and all gradients of a random sum of their parts."""
    one, other = ([x for x in pytree.tree_leaves(tree) if x is not None] for tree in (mine, theirs))
    grads = []
    for found in (one, other):
        weights = [numbers(*x.shape, dtype=x.dtype, seed=i).detach() for i, x in enumerate(other)]
        total = sum((x * w).sum().real for x, w in zip(found, weights, strict=True))
        grads.append([*torch.autograd.grad(total, leaves, allow_unused=True, retain_graph=True)])
    for x, wanted in zip([*one, *grads[0]], [*other, *grads[1]], strict=True):
        if wanted is None:
            assert x is None or not x.abs().max()
            continue
        assert x.dtype == wanted.dtype
        assert (x - wanted).abs().max() <= within * (1e-3 + wanted.abs().max())


class LRU(torch.nn.Module):
    """Orvieto and others, ICML 2023: a diagonal of exp(-exp(nu) + i exp(theta)), and a complex B and C."""

    def __init__(self, real: Any) -> None:
        super().__init__()
        kind = real.to_complex()
        self.nu, self.theta = (torch.nn.Parameter(torch.rand(H, dtype=real)) for _ in range(2))
        self.gamma = torch.nn.Parameter(torch.rand(H, dtype=real))
        self.B = torch.nn.Parameter(torch.randn(H, D, dtype=kind))
        self.C = torch.nn.Parameter(torch.randn(M, H, dtype=kind))
        self.D = torch.nn.Parameter(torch.randn(M, D, dtype=real))

    def forward(self, x: Any, h: Any) -> Any:
        lam = torch.exp(-torch.exp(self.nu) + 1j * torch.exp(self.theta))
        h = lam * h + torch.exp(self.gamma) * (x.to(self.B.dtype) @ self.B.T)
        return (h @ self.C.T).real + x @ self.D.T, h


class S4D(torch.nn.Module):
    """Gu and others, NeurIPS 2022: each feature has a state of its own, of conjugate pairs. C is held as reals."""

    def __init__(self, real: Any) -> None:
        super().__init__()
        self.log_dt = torch.nn.Parameter(torch.rand(D, dtype=real))
        self.A_re, self.A_im = (torch.nn.Parameter(torch.rand(D, H, dtype=real)) for _ in range(2))
        self.C = torch.nn.Parameter(torch.randn(D, H, 2, dtype=real))
        self.D = torch.nn.Parameter(torch.randn(D, dtype=real))

    def forward(self, x: Any, h: Any) -> Any:
        A = -torch.exp(self.A_re) + 1j * self.A_im
        dtA = torch.exp(self.log_dt)[:, None] * A
        h = torch.exp(dtA) * h + ((torch.exp(dtA) - 1) / A) * x[..., None]
        y = 2 * torch.einsum("ndh,dh->nd", h, torch.view_as_complex(self.C)).real
        return y + x * self.D, h


class S5(torch.nn.Module):
    """Smith and others, ICLR 2023: one complex diagonal for all features."""

    def __init__(self, real: Any) -> None:
        super().__init__()
        kind = real.to_complex()
        self.Lambda = torch.nn.Parameter(-torch.rand(H, dtype=real) + 1j * torch.randn(H, dtype=real))
        self.B, self.C = (torch.nn.Parameter(torch.randn(*s, dtype=kind)) for s in ((H, D), (M, H)))
        self.log_step = torch.nn.Parameter(torch.rand(H, dtype=real))

    def forward(self, x: Any, h: Any) -> Any:
        bar = torch.exp(self.Lambda * torch.exp(self.log_step))
        drive = ((1 / self.Lambda) * (bar - 1))[:, None] * self.B
        h = bar * h + torch.nn.functional.linear(x.to(h.dtype), drive)
        return 2 * torch.matmul(self.C, h[..., None]).squeeze(-1).real, h


class Unitary(torch.nn.Module):
    """Arjovsky and others, ICML 2016, without its Fourier transforms: phases, reflections, an order, and modReLU."""

    def __init__(self, real: Any) -> None:
        super().__init__()
        kind = real.to_complex()
        self.phase, self.bias = (torch.nn.Parameter(torch.randn(H, dtype=real)) for _ in range(2))
        self.v = torch.nn.Parameter(torch.randn(H, dtype=kind))
        self.inner = torch.nn.Linear(D, H, dtype=kind)
        self.register_buffer("order", torch.tensor([2, 0, 3, 1]))

    def forward(self, x: Any, h: Any) -> Any:
        h = h * torch.polar(torch.ones_like(self.phase), self.phase)
        h = h - 2 * (h @ self.v.conj())[:, None] * self.v / self.v.abs().square().sum()
        z = h[:, self.order] + self.inner(torch.complex(x, torch.zeros_like(x)))
        h = torch.relu(z.abs() + self.bias) * torch.exp(1j * torch.angle(z))
        return torch.cat([h.real, h.imag], -1), h


class Memory(torch.nn.Module):
    """A matrix of bound keys and values, as in associative LSTMs: complex matrix states."""

    def __init__(self, real: Any) -> None:
        super().__init__()
        self.key, self.value = (torch.nn.Linear(D, 2 * H, dtype=real) for _ in range(2))
        self.decay = torch.nn.Parameter(torch.randn(H, dtype=real.to_complex()))

    def forward(self, x: Any, h: Any) -> Any:
        k, v = (torch.view_as_complex(f(x).reshape(-1, H, 2)) for f in (self.key, self.value))
        k = k / k.abs()
        h = torch.sigmoid(self.decay.real)[:, None] * h + torch.einsum("ni,nj->nij", k, v)
        y = torch.einsum("nij,ni->nj", h, k.conj()) * self.decay
        return y, h


class Parametrized(torch.nn.Module):
    """A unitary matrix by PyTorch's parametrization."""

    def __init__(self, real: Any) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(D, H, dtype=real)
        self.outer = torch.nn.utils.parametrizations.orthogonal(
            torch.nn.Linear(H, H, bias=False, dtype=real.to_complex())
        )

    def forward(self, x: Any, h: Any) -> Any:
        h = self.outer(h) + self.inner(x)
        return h.imag, h


CELLS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "LRU": (LRU, (N, H)),
    "S4D": (S4D, (N, D, H)),
    "S5": (S5, (N, H)),
    "unitary": (Unitary, (N, H)),
    "memory": (Memory, (N, H, H)),
    "parametrized": (Parametrized, (N, H)),
}


def of_cell(name: str, kind: Any) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    made, shape = CELLS[name]
    return made(kind.to_real()), numbers(*shape, dtype=kind), numbers(T, N, D, dtype=kind.to_real(), seed=1)


@pytest.mark.covering(2)
@pytest.mark.parametrize("way", ["RNN", "scan"])
@pytest.mark.parametrize("kind", WITHIN)
@pytest.mark.parametrize("name", CELLS)
def test_cells_equal_pytorchs_own_loop(name: str, kind: Any, way: str) -> None:
    cell, h0, xs = of_cell(name, kind)

    def step(h: Any, x: Any) -> Any:
        y, h = cell(x, h)
        return h, y

    found = rt.RNN(cell)(xs, h0)[::-1] if way == "RNN" else rt.scan(step, h0, xs)
    expect_equal(found, loop(step, h0, xs), [h0, xs, *cell.parameters()], WITHIN[kind])


A, B = numbers(H, seed=3), numbers(H, H, seed=4)
R = numbers(H, dtype=torch.float64, seed=5)
TIED = Parametrized(torch.float64).outer
PART = torch.tensor([2, 0])
MASK = torch.tensor([True, False, True, False])


def changed(h: Any) -> Any:
    """A tensor that is changed in place: whole, in a part, and by its real part."""
    z = torch.zeros(h.shape[0], H, dtype=h.dtype)
    z[:, 1:] = h[:, 1:]
    z[:, 0] += 1j
    z.real.mul_(2)
    z.imag.add_(h.real)
    return z


@torch.no_grad()
def without_gradients(h: Any) -> Any:
    return h * A + A.detach()


OPS: dict[str, Callable[[Any], Any]] = {  # of a complex h [N, H]
    "sums": lambda h: h + A - 2 * h + (1 + 2j) - R + (3 - h) + torch.add(h, R, alpha=2) - torch.sub(R, h, alpha=1j),
    "products": lambda h: h * A * R * 1j * (2 - 1j) + h * h.real + h.square() * 0.5,
    "quotients": lambda h: h / A + A / (h + 3) + h / R + R / (h + 3) + 1j / A + h / (2 - 1j) + 2 / A + h / 1j,
    "powers": lambda h: h**2 + h**3 + (h + 3) ** -2 + h**0 + (h + 3) ** 0.5 + h ** (1 + 2j) + 2**h + h**A,
    "exponentials": lambda h: torch.exp(h) + torch.log(h) + torch.sqrt(h) + torch.exp(1j * h.real) + torch.sigmoid(h),
    "circles": lambda h: torch.sin(h) + torch.cos(h) + torch.sinh(h) + torch.cosh(h) + torch.tanh(h),
    "sizes": lambda h: h.abs() + h.angle() + torch.linalg.vector_norm(h, dim=-1, keepdim=True) + h.norm(),
    "signs": lambda h: torch.sgn(h) + torch.sgn(h.real) + torch.relu(h.abs() - 0.5) * h / h.abs(),
    "conjugates": lambda h: h.conj() * A + h * A.conj() + 1j * h.conj().imag + h.mH.sum(-1) + (h * h.conj()).real,
    "parts": lambda h: torch.complex(h.real, R.expand_as(h.real)) + torch.view_as_complex(torch.view_as_real(h) * 2),
    "polar": lambda h: torch.polar(h.abs(), R) + torch.polar(R.exp(), h.angle()),
    "matrices": lambda h: h @ B + h @ B.real.to(h.dtype) + (h @ B.mH) + torch.addmm(A, h, B, beta=2, alpha=1j),
    "vectors": lambda h: h * torch.dot(A, B[0]) + torch.vdot(A, B[0]) + torch.mv(B, A) + (h @ A)[:, None],
    "parametrized": lambda h: TIED(h),
    "einsum": lambda h: torch.einsum("ni,nj,ij->nj", h, h.conj(), B) + torch.einsum("ni,ij->nj", h.real + 0j, B),
    "shapes": lambda h: (
        h.reshape(-1, 2, 2).transpose(1, 2).reshape(-1, H)
        + h[..., None].squeeze(-1)
        + h.flip(-1)
        + torch.conj_physical(h)
        + torch.stack(h.unbind(1), 1)
    ),
    "places": lambda h: torch.cat([h[:, PART], h[:, :1], h.imag[:, :1]], -1) + h.index_select(1, PART).repeat(1, 2),
    "joins": lambda h: torch.stack([h, h.real, A.expand_as(h)]).sum(0) + torch.cat(h.split([1, 3], 1)[::-1], 1),
    "choices": lambda h: (
        torch.where(h.real > 0, h, 0) + torch.where(MASK, A, h) + h.masked_fill(MASK, 1 + 2j) + (h == h) + (h != A)
    ),
    "reductions": lambda h: h.sum(-1, keepdim=True) + h.mean(-1, keepdim=True) + h.cumsum(-1) + h.mean(),
    "mixtures": lambda h: torch.lerp(h, A.expand_as(h), h) + torch.addcmul(A, h, h, value=2) + h.var(-1, keepdim=True),
    "others": lambda h: torch.rsqrt(h + 2) + torch.isnan(h) + torch.isinf(h) - (-h),
    "products of matrices": lambda h: h @ torch.kron(B[:2, :2], B[2:, 2:].tril()) + torch.addmv(A, B, h[0], alpha=2),
    "windows": lambda h: h.unfold(1, 2, 2).reshape(-1, H) + torch.cat(h.chunk(2, -1)[::-1], -1) + h.roll(1, -1),
    "indices": lambda h: (
        torch.gather(h, 1, PART.expand(h.shape[0], 2)).repeat(1, 2)
        + h.scatter(1, PART.expand(h.shape[0], 2), h[:, :2])
        + h.scatter_add(1, PART.expand(h.shape[0], 2), h[:, :2])
        + h.index_put((PART[1:],), A)
    ),
    "padding": lambda h: torch.nn.functional.pad(h, (1, 0))[:, :-1] + h.diagonal(dim1=0, dim2=1).sum(),
    "changes": changed,
    "made": lambda h: (
        h * torch.full((H,), 2 + 1j, dtype=h.dtype)
        + torch.ones_like(h)
        + torch.zeros_like(h, dtype=torch.float64)
        + h.new_zeros(H)
        + torch.zeros(h.shape[0], H, dtype=h.dtype)
        + h.new_ones(H)
        + torch.ones(H, dtype=h.dtype)
        + torch.full_like(h, 2j)
        + h.new_full((H,), 1 - 1j)
        + torch.empty_like(h).fill_(3)
        + h.new_empty(H).zero_()
        + torch.empty(H, dtype=h.dtype).fill_(1j)
        + torch.tensor(1j, dtype=h.dtype)
        + torch.eye(H, dtype=h.dtype)[0]
    ),
    "no gradients": lambda h: h * h.detach() + without_gradients(h) * h,
    "functions of real ones": lambda h: sum(
        f(h.real.to(h.dtype)) + f(1j * h.imag) + f(h.real[:, :1] + 0j) for f in (torch.angle, torch.log, torch.sqrt)
    ),
    "powers of real ones": lambda h: (h.real + 0j) ** 0.5 + h.abs() ** h + h.real[:, :1].abs() ** h + h**0,
    "real ones": lambda h: (h.real.to(h.dtype) * 1j).exp() + (R + 0j) * (h.imag + 0j) + torch.zeros_like(h).exp(),
}


def test_ops_equal_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone over three steps, whose states are small. Every rule of the table is used."""
    used = set[str]()

    def noted(name: str) -> Callable[..., Any]:
        rule = PAIR_RULES[name]

        def noting(*given: Any, **options: Any) -> Any:
            used.add(name)
            return rule(*given, **options)

        return noting

    for name in list(PAIR_RULES):
        monkeypatch.setitem(PAIR_RULES, name, noted(name))

    def check(name: str) -> None:
        def step(h: Any, x: Any) -> Any:
            y = OPS[name](h)
            return h * 0.5 + x, y

        h0, xs = numbers(N, H, seed=1), numbers(3, N, H, seed=2)
        expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [h0, xs, A, B, R])

    check_each(list(OPS), check)
    assert set(PAIR_RULES) == used


def test_numbers_at_the_edge() -> None:
    """Gradients at 0, and sizes whose squares overflow."""

    def step(h: Any, x: Any) -> Any:
        y = {"sizes": h.abs() + h.angle(), "signs": torch.sgn(h), "norm": torch.linalg.vector_norm(h, dim=-1)}
        return h * 1.0, {**y, "far": (x * 1e200).abs(), "quotient": (x * 1e200) / (x.conj() * 1e190 + 1e180)}

    h0, xs = torch.zeros(N, H, dtype=torch.complex128, requires_grad=True), numbers(2, N, H, seed=2)
    mine, theirs = rt.scan(step, h0, xs), loop(step, h0, xs)
    for name, wanted in theirs[1].items():
        torch.testing.assert_close(mine[1][name], wanted, rtol=1e-12, atol=0)
        pair = (torch.autograd.grad(found[1][name].real.sum(), [h0, xs], retain_graph=True, allow_unused=True)
                for found in (mine, theirs))  # fmt: skip
        for grad, other in zip(*pair, strict=True):
            torch.testing.assert_close(grad, torch.zeros_like(grad) if other is None else other, rtol=1e-12, atol=0)


@pytest.mark.parametrize("power", [1.5, 0, 0.0, 0.5, -0.5, "sqrt", "log", "rsqrt"])
def test_gradients_of_roots_and_logarithms_of_zero(power: Any) -> None:
    """PyTorch's is infinite or NaN, and ours NaN; powers above 1, and of 0, have one."""

    def step(h: Any, x: Any) -> Any:
        return h * 1.0, getattr(h, power)() if isinstance(power, str) else h**power

    h0, xs = torch.zeros(N, H, dtype=torch.complex128, requires_grad=True), numbers(2, N, H, seed=2)
    found = [made[1] for made in (rt.scan(step, h0, xs), loop(step, h0, xs))]
    grads = [torch.autograd.grad(y.real.sum(), h0)[0] for y in found]
    assert [grad.isfinite().all().item() for grad in grads] == [power in (1.5, 0)] * 2
    if power in (1.5, 0):
        torch.testing.assert_close([found[0], grads[0]], [found[1], grads[1]], rtol=1e-12, atol=0)


def test_a_wrong_sign_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the self-check, before a wrong number comes out."""
    h0, xs = numbers(N, H), numbers(T, N, H, seed=1)
    right = PAIR_RULES["mul"]

    def wrong(node: Any, *given: Any) -> Pair:
        re, im = right(node, *given)
        return Pair(re, -im)

    monkeypatch.setitem(PAIR_RULES, "mul", wrong)
    rejects(rt.SelfCheckError, lambda: rt.scan(lambda h, x: (h * x, h), h0, xs), "differs")


LENGTHS = torch.tensor([7, 2, 5])


def with_step(name: str = "LRU") -> tuple[Any, Callable[[Any, Any], Any], Any, Any, list[Any]]:
    cell, h0, xs = of_cell(name, torch.complex128)

    def step(h: Any, x: Any) -> Any:
        y, h = cell(x, h)
        return h, y

    return cell, step, h0, xs, [h0, xs, *cell.parameters()]


def test_rows_that_end_packed_rows_and_other_orders_of_steps() -> None:
    cell, step, h0, xs, leaves = with_step()
    h, ys = loop(step, h0, xs, LENGTHS)
    found, last = rt.RNN(cell, batch_first=True)(xs.transpose(0, 1), h0, LENGTHS)
    expect_equal((last, found.transpose(0, 1)), (h, ys), leaves)

    def conjugates(h: Any, x: Any) -> Any:
        return step(h, x)[0], h.conj()

    packed = torch.nn.utils.rnn.pack_padded_sequence(xs, LENGTHS, enforce_sorted=False)
    last, found = rt.scan(conjugates, h0, packed)
    as_real = torch.nn.utils.rnn.PackedSequence(torch.view_as_real(found.data), *found[1:])
    padded = torch.view_as_complex(torch.nn.utils.rnn.pad_packed_sequence(as_real)[0])
    expect_equal((last, padded), loop(conjugates, h0, xs, LENGTHS), leaves)
    h, ys = loop(step, h0, xs.flip(0))
    expect_equal(rt.scan(step, h0, xs, reverse=True), (h, ys.flip(0)), leaves)
    h, _ = step(h0, xs[0])
    h, _ = step(h.detach(), xs[1])
    expect_equal(rt.scan(step, h0, xs[:2], truncate=1)[0], h, leaves)


def test_nested_states_inputs_and_results() -> None:
    """Complex and real ones, and None among them, with and without a sequence."""
    z, r, u = numbers(N, H), numbers(N, H, dtype=torch.float64), numbers(T, N, H, seed=2)

    def step(carry: Any, x: Any) -> Any:
        made = carry["z"] * A + (0.1j if x is None else x["u"].conj())
        after = {"z": made / (1 + made.abs()), "r": carry["r"] * 0.5 + made.imag, "none": None}
        return after, (made, [carry["r"], None])

    def by_loop(carry: Any, x: Any) -> Any:
        after, (made, (r, _)) = step({"z": carry[0], "r": carry[1]}, None if x is None else {"u": x})
        return (after["z"], after["r"]), (made, r)

    for xs, steps in ((u, None), (None, T)):
        after, (made, (found, none)) = rt.scan(
            step, {"z": z, "r": r, "none": None}, None if xs is None else {"u": xs}, steps=steps
        )
        assert [after["none"], none] == [None, None]
        wanted = loop(by_loop, (z, r), xs, steps=steps)
        expect_equal(((after["z"], after["r"]), (made, found)), wanted, [z, r, A] if steps else [z, r, A, u])
    conjugate, closed = z.conj(), A.conj()  # views that conjugate, which hold the numbers of others
    step_of_views = lambda h, x: (h * closed + x, h)  # noqa: E731
    expect_equal(rt.scan(step_of_views, conjugate, u.conj()), loop(step_of_views, conjugate, u.conj()), [z, u, A])


def test_calls_with_other_sizes_and_weights() -> None:
    cell, step, _, _, _ = with_step()
    rnn = rt.RNN(cell)
    for rows in (1, 2, N, N, 5):
        h0, xs = numbers(rows, H, seed=rows), numbers(T, rows, D, dtype=torch.float64)
        ys, h = rnn(xs, h0)
        expect_equal((h, ys), loop(step, h0, xs), [h0, xs, *cell.parameters()])
        with torch.no_grad():
            cell.B.mul_(1j)
    cell.B = torch.nn.Parameter(cell.B.detach() * 2)
    ys, h = rnn(xs, h0)
    expect_equal((h, ys), loop(step, h0, xs), [h0, xs, *cell.parameters()])


def test_numbers_held_as_reals_are_read_by_their_parts() -> None:
    """Their elements would lie apart in memory, which makes products slow."""
    cell, h0, xs = of_cell("S4D", torch.complex128)
    rnn = rt.RNN(cell)
    rnn(xs, h0)
    shapes = {spec.name: spec.shape for spec in rnn.net.input_specs}
    assert [shapes["cell.C.real"], shapes["cell.C.imag"]] == [(D, H)] * 2
    assert rnn.plan(xs, h0).source


def test_numbers_held_as_reals_may_be_read_as_reals_too() -> None:
    pairs, h0, xs = R.detach().view(H, 1).repeat(1, 2).requires_grad_(), numbers(N, H), numbers(T, N, H, seed=1)

    def step(h: Any, x: Any) -> Any:
        h = h * torch.view_as_complex(pairs) * 0.3 + x * pairs[:, 0]
        return h, h.abs() * pairs.sum()

    expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [h0, xs, pairs])


def test_a_narrow_step_may_read_one_wide_number() -> None:
    """Its gradient is as exact as the step."""
    wide, h0, xs = (
        torch.tensor(0.3 + 0.2j, dtype=torch.complex128, requires_grad=True),
        *(numbers(*shape, dtype=torch.complex64) for shape in ((30, 40), (T, 30, 40))),
    )

    def step(h: Any, x: Any) -> Any:
        h = h * wide + x
        return h, h

    expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [h0, xs, wide], 1e-4)


def test_derivatives_of_derivatives_forward_mode_and_vmap() -> None:
    cell, step, h0, xs, leaves = with_step()

    def slopes(found: Any) -> Any:
        total = found[0].abs().square().sum() + found[1].square().sum()
        return torch.autograd.grad(total, leaves, create_graph=True)

    expect_equal(slopes(rt.scan(step, h0, xs)), slopes(loop(step, h0, xs)), leaves, 1e-10)
    h, tangent = h0.detach(), numbers(N, H, seed=7).detach()
    rnn = rt.RNN(cell)
    rnn(xs, h)
    pairs = (
        torch.func.jvp(lambda h: rnn(xs, h)[0], (h,), (tangent,)),
        torch.func.jvp(lambda h: loop(step, h, xs)[1], (h,), (tangent,)),
    )
    for mine, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    mapped = torch.func.vmap(lambda h: rnn(xs, h)[0])(torch.stack([h, tangent]))
    torch.testing.assert_close(mapped[1], rnn(xs, tangent)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["LRU", "S4D"])
def test_graphs_of_compilers(name: str) -> None:
    cell, step, h0, xs, leaves = with_step(name)
    rnn = rt.RNN(cell)
    torch._dynamo.reset()
    graph = torch.compile(lambda xs, h: rnn(xs, h), backend="aot_eager", fullgraph=True)
    ys, h = graph(xs, h0)
    expect_equal((h, ys), loop(step, h0, xs), leaves)
    exported = torch.export.export(rnn, (xs.detach(), h0.detach()), strict=False).module()
    torch.testing.assert_close(exported(xs, h0)[1], h, rtol=1e-12, atol=1e-12)


def test_autocast_leaves_complex_numbers_alone() -> None:
    cell, h0, xs = of_cell("LRU", torch.complex64)
    exact = rt.RNN(cell)(xs, h0)

    def real(h: Any, x: Any) -> Any:
        return torch.tanh(h + x @ cell.D.T), h

    with torch.autocast("cpu", torch.bfloat16):
        ys, h = rt.RNN(cell)(xs, h0)
        by_loop = loop(lambda h, x: cell(x, h)[::-1], h0, xs)
        rounded = rt.scan(real, torch.zeros(N, M), xs)[0]
    assert (h.dtype, ys.dtype) == (by_loop[0].dtype, by_loop[1].dtype)
    torch.testing.assert_close(h, by_loop[0], rtol=1e-5, atol=1e-5)
    assert torch.equal(h, exact[1])
    assert (rounded - rt.scan(real, torch.zeros(N, M), xs)[0]).abs().max() > 1e-4  # of reals, products are rounded


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Any) -> Any:
        return z * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


class Held(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(N, H, dtype=torch.complex128))

    def forward(self, x: Any, h: Any) -> Any:
        self.memory = self.memory * 0.5 + x
        return h + self.memory


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], tuple[str, ...]]] = {
    "fft": (lambda h, x: (torch.fft.fft(h) * x, h), ("op 'aten._fft_c2c.default'", "x.real, x.imag")),
    "solve": (lambda h, x: (torch.linalg.solve(B, h.mT).mT, h), ("op 'aten._linalg_solve_ex.default'", "pairs of re")),
    "bits": (lambda h, x: (h, h.view(torch.float64)), ("op 'aten.view.dtype'", "used as a real tensor")),
    "integers": (lambda h, x: (h, h.to(torch.int64)), ("a complex tensor is converted",)),
    "random": (lambda h, x: (h, torch.randn_like(h)), ("op 'aten.rand_like.default'",)),
    "another precision": (lambda h, x: (h, h.to(torch.complex64)), ("wanted torch.float64", "got torch.complex64")),
    "a real state": (lambda h, x: (h.real, h), ("state 0", "wanted a complex tensor; got a real one")),
    "a function": (lambda h, x: (Doubled.apply(h), h), ("the autograd function Doubled takes complex numbers",)),
}


def test_what_is_refused_is_named() -> None:
    h0, xs = numbers(N, H), numbers(2, N, H, seed=1)

    def check(name: str) -> None:
        step, words = REFUSED[name]
        rejects(rt.StepError, lambda: rt.scan(step, h0, xs), *words)

    check_each(list(REFUSED), check)
    rejects(rt.StepError, lambda: rt.RNN(Held())(xs, h0), "sets a complex tensor", "Carry it as a state")


def test_parameters_that_are_views_with_another_sign_are_given_as_numbers() -> None:
    """Of a conjugate, and of its imaginary part, PyTorch keeps the sign beside the memory."""

    class Cell(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.gain = (torch.nn.Parameter(numbers(H, seed=i).detach().conj()) for i in range(2))
            self.shift = torch.nn.Parameter(numbers(H, seed=2).detach().conj().imag)

        def forward(self, x: Any, h: Any) -> Any:
            return self.w * h + self.gain * x + self.shift

    cell = Cell()
    assert cell.w.is_conj()
    assert cell.shift.is_neg()
    rnn, h, xs = rt.RNN(cell), numbers(N, H), numbers(T, N, H)
    ys, last = rnn(xs, h)
    expect_equal((last, ys), loop(lambda h, x: (cell(x, h),) * 2, h, xs), [h, xs, *cell.parameters()])
    params = rnn.get_params()
    for name, wanted in (("w", cell.w), ("gain", cell.gain)):
        found = params[f"cell.{name}.real"] + 1j * params[f"cell.{name}.imag"]
        np.testing.assert_array_equal(found, wanted.detach().resolve_conj())
    np.testing.assert_array_equal(params["cell.shift"], cell.shift.detach().resolve_neg())
