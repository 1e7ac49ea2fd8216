"""Ops of PyTorch in a step equal PyTorch's own, with all gradients in float64, or are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

import torch.nn.functional as F  # noqa: E402, N812
from each import check_each  # noqa: E402
from scipy import special  # noqa: E402
from test_torch import DOUBLE, expect_equal, loop, numbers  # noqa: E402
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.errors import NumericsError  # noqa: E402
from rnnops.torch import step_modes, traced  # noqa: E402
from rnnops.torch.errors import StepError, UnseenWarning  # noqa: E402

H = 4
W, ONES, INDEX = numbers(H, H), torch.ones(H, dtype=DOUBLE), torch.tensor([2, 0, -1])


def inner(x: Any) -> Any:
    return torch.tanh(x) * 0.9


SIZED: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda x: (W @ x[..., None])[..., 0],
    "expand_as": lambda x: ONES.expand_as(x) * x,
    "broadcast_to": lambda x: torch.broadcast_to(ONES, x.shape) * x,
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, ONES)[1] * x,
    "repeat": lambda x: ONES.repeat(x.shape[0], 1) * x,
    "tile": lambda x: ONES.tile((x.shape[0], 1)) * x,
    "cosine_similarity": lambda x: x * F.cosine_similarity(x, x.flip(-1), dim=-1)[:, None],
    "baddbmm": lambda x: torch.baddbmm(ONES[None, None], x[None], W[None], beta=0.5, alpha=2)[0],
    "diag_embed": lambda x: torch.diag_embed(x).mul(W).sum(1) + x.diag_embed(1).sum(1)[:, 1:],
    "eye": lambda x: torch.eye(x.shape[0], dtype=DOUBLE) @ x,
}
ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: x / x.abs().max(),
    "min": lambda x: x * x.min(),
    "lgamma": lambda x: torch.lgamma(3 * x) + torch.mvlgamma(x.abs() + 2, 3),
    "round": lambda x: x + torch.round(x, decimals=1) + torch.round(100 * x, decimals=-1),
    "clamp": lambda x: torch.clamp(x.sin(), min=x - 1, max=x * 0.5),
    "clamp_min": lambda x: torch.clamp_min(x, x.flip(-1)),
    "asin": lambda x: torch.asin(inner(x)),
    "acos": lambda x: torch.acos(inner(x)),
    "asinh": lambda x: torch.asinh(x) + torch.asinh(1e200 * x.detach()) * x,
    "acosh": lambda x: torch.acosh(1.1 + x.abs()),
    "atanh": lambda x: torch.atanh(inner(x)),
    "hypot": lambda x: torch.hypot(x, x.flip(-1)) + torch.hypot(x.detach() * 1e200, x.detach()) * 1e-200,
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(-1)),
    "any": lambda x: torch.where((x > 0).any(-1, keepdim=True), x, -x) + x.any(),
    "all": lambda x: torch.where((x > 0).all(-1, keepdim=True), x, -x) + (x > -9).all() + x.all(0),
}
ORDERED: dict[str, Callable[[Any], Any]] = {
    "cumprod": lambda x: torch.cumprod(x, -1),
    "sort": lambda x: torch.sort(x, -1)[0] + torch.sort(x, dim=1, descending=True, stable=True)[1],
    "argsort": lambda x: x * torch.argsort(x, dim=-1),
    "median": lambda x: x * x.median(-1, keepdim=True)[0] + x.median(),
    "kthvalue": lambda x: x * x.kthvalue(2, -1)[0][:, None],
    "scatter": lambda x: torch.zeros_like(x).scatter(1, x.argsort(1)[:, :2], x[:, :2].square()),
    "scatter_add": lambda x: x.scatter_add(1, x.argsort(1).clamp(max=2), x * x),
    "scatter_value": lambda x: x.scatter(1, x.argsort(1)[:, :2], 3.0),
    "diagonal": lambda x: x[:, :, None].mul(W).diagonal(1, 1, 2).sum(-1, keepdim=True) * x,
    "unfold": lambda x: F.pad(x, (1, 1)).unfold(1, 3, 1).prod(-1),
    "index": lambda x: W[INDEX, torch.tensor([[1], [-2]])].sum() * x,
    "index_apart": lambda x: x.reshape(-1, 2, 1, 2)[:, [0, 1, 0], :, [1, 0, -1]].sum((0, 2))[0] * x,
    "roll": lambda x: torch.roll(x, 1, -1),
}


def changed(x: Any, index: Any, value: Any) -> Any:
    x = x.clone()
    x[index] = value
    return x


ORDERED.update({
    "put": lambda x: changed(x, (slice(None), torch.tensor([0, -2])), x[:, :2].sin()),
    "put_rows": lambda x: changed(x, (torch.arange(x.shape[0]), x.argmax(1)), x.sum(1)),
    "put_apart": lambda x: changed(
        x[:, None].repeat(1, 3, 1), (torch.tensor([0, 1]), slice(None), INDEX[:2]), x[:2, :3].cos()
    )[:, 1],
    "put_table": lambda x: changed(
        x[:, None].repeat(1, 3, 1), (slice(None), torch.tensor([[0], [2]]), INDEX), x[:, None, :3] ** 2
    )[:, 2],
    "index_add": lambda x: x.index_add(1, torch.tensor([0, 0, 3]), x[:, :3]),
    "fold": lambda x: F.fold(F.unfold(image(x), 2), (8, 8), 2).sum((1, 2))[:, :H],
    "cdist": lambda x: torch.cdist(W + x[:, None], W).sum(1) + torch.cdist(W * x[:, None], W, 1.0)[:, 2],
    "pdist": lambda x: torch.pdist(x).sum() * x + torch.dist(x, 2 * x),
})  # fmt: skip
image = lambda x: x[:, None, None, :].mul(W).repeat(1, 2, 2, 2)  # noqa: E731
SPATIAL: dict[str, Callable[[Any], Any]] = {
    "max_pool2d": lambda x: F.max_pool2d(image(x), 2, padding=1).sum((1, 2))[:, :H],
    "max_pool1d": lambda x: F.max_pool1d(image(x)[:, 0], 3, 1, 1).sum(1)[:, :H],
    "max_pool_alone": lambda x: F.max_pool2d(image(x)[0], 2).sum(0)[0] * x,
    "avg_pool2d": lambda x: F.avg_pool2d(image(x), 2, padding=1, count_include_pad=False).sum((1, 2))[:, :H],
    "avg_pool1d": lambda x: F.avg_pool1d(image(x)[:, 0], 3, 1, 1).sum(1)[:, :H],
    "instance_norm": lambda x: F.instance_norm(image(x)).mul(image(x.detach())).sum((1, 2))[:, :H],
    "attention": lambda x: F.scaled_dot_product_attention(image(x), image(x).sin(), image(x)).sum((1, 2))[:, :H],
}


def resized(axes: int = 2, **options: Any) -> Callable[[Any], Any]:
    """`interpolate` of images, or of their rows, or of volumes, weighted."""

    def resize(x: Any) -> Any:
        images = image(x).mul(x[:, :1, None, None])
        y = F.interpolate(images[:, 0] if axes == 1 else images if axes == 2 else images[:, None], **options)
        return x * y.mul(torch.arange(y[0].numel()).reshape(y[0].shape)).mean(tuple(range(1, y.dim())))[:, None]

    return resize


SPATIAL.update({
    "nearest": resized(size=(3, 5)),
    "nearest_exact": resized(scale_factor=1.3, mode="nearest-exact"),
    "linear": resized(1, scale_factor=1.5, mode="linear"),
    "bilinear": resized(size=(7, 3), mode="bilinear"),
    "bilinear_of_corners": resized(size=(7, 3), mode="bilinear", align_corners=True),
    "bilinear_of_a_scale": resized(scale_factor=(1.6, 0.7), mode="bilinear", recompute_scale_factor=False),
    "bilinear_without_aliases": resized(size=(3, 2), mode="bilinear", antialias=True),
    "bicubic": resized(scale_factor=2, mode="bicubic", align_corners=True),
    "trilinear": resized(3, size=(3, 1, 5), mode="trilinear"),
    "grid_sample": lambda x: F.grid_sample(image(x), W.tanh().reshape(1, 2, 4, 2).repeat(len(x), 1, 1, 1)).sum((1, 2)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(image(x), (2, H)).sum((1, 2)),
    "area": resized(size=(3, 5), mode="area"),
})  # fmt: skip
UNIT = torch.eye(H, dtype=DOUBLE)


def matrix(x: Any) -> Any:
    """Matrices without symmetry, far from singular ones."""
    return x[:, None].tanh() * x[:, :, None].sin() + 4 * UNIT + torch.diag_embed(x.square().mean(-1, keepdim=True), 3)


def factor(x: Any) -> Any:
    return torch.linalg.cholesky(matrix(x) + matrix(x).mT)


LINEAR: dict[str, Callable[[Any], Any]] = {
    "inv": lambda x: torch.linalg.inv(matrix(x))[:, 0] + torch.inverse(W @ W.T + UNIT)[0] + matrix(x).inverse()[:, 1],
    "solve": lambda x: torch.linalg.solve(matrix(x), x) + torch.linalg.solve(W @ W.T + UNIT, matrix(x))[:, 0],
    "solve_vector": lambda x: torch.linalg.solve(matrix(x), W[0]) + torch.linalg.solve(matrix(x), W)[:, 0],
    "solve_right": lambda x: torch.linalg.solve(matrix(x), W[:2], left=False).sum(1),
    "cholesky": lambda x: factor(x).sum(1) + torch.cholesky(matrix(x) + matrix(x).mT)[:, 2],
    "cholesky_upper": lambda x: torch.linalg.cholesky(matrix(x), upper=True).mul(W).sum(1),
    "cholesky_lower": lambda x: torch.linalg.cholesky(matrix(x)).mul(W).sum(1),
    "det": lambda x: x * torch.linalg.det(matrix(x))[:, None] * torch.det(-matrix(x)[:, :3, :3])[:, None] * 1e-3,
    "slogdet": lambda x: x * (torch.linalg.slogdet(-matrix(x))[1] + torch.logdet(matrix(x)))[:, None],
    "solve_triangular": lambda x: torch.linalg.solve_triangular(matrix(x), W, upper=False)[:, 0],
    "solve_triangular_right": lambda x: torch.linalg.solve_triangular(
        matrix(x), W, upper=True, left=False, unitriangular=True
    ).sum(1),
    "cholesky_solve": lambda x: torch.cholesky_solve(W, factor(x)).sum(1) + W.cholesky_solve(factor(x).mT, True)[:, 0],
    "cholesky_inverse": lambda x: torch.cholesky_inverse(factor(x)).mul(W).sum(1),
    "matrix_power": lambda x: torch.linalg.matrix_power(matrix(x), -2)[:, 0],
    "multivariate": lambda x: (
        x * MultivariateNormal(x, scale_tril=factor(x), validate_args=False).log_prob(-x)[:, None]
    ),
}
attention = torch.nn.MultiheadAttention(H, 2, batch_first=True).to(DOUBLE)
RANDOM: dict[str, Callable[[Any], Any]] = {
    "MultiheadAttention": lambda x: attention(x[:, None], W.expand(x.shape[0], H, H), W.expand(x.shape[0], H, H))[0][
        :, 0
    ],
    "log_prob": lambda x: Normal(x, 1.0 + x.square(), validate_args=False).log_prob(x.flip(-1)),
    "entropy": lambda x: Normal(0.0, x.exp(), validate_args=False).entropy(),
    "kl_divergence": lambda x: kl_divergence(Normal(x, x.exp(), False), Normal(x.flip(-1), 1.0, False)),
    "independent": lambda x: x * Independent(Normal(x, x.exp(), False), 1, False).log_prob(x)[:, None],
}
OPS = {**SIZED, **ELEMENTWISE, **ORDERED, **SPATIAL, **LINEAR, **RANDOM}


RESIZED = {*SIZED, "median", "scatter", "put_rows", "unfold", "fold", "instance_norm", "attention", "bilinear", "solve"}


@pytest.mark.parametrize("name", OPS)
def test_an_op_equals_pytorch(name: str) -> None:
    """Ops that read the batch size, and one of each other kind, get a second one."""
    assert_equal_pytorch(name, (3, 5) if name in RESIZED else (3,))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OPS if name not in RESIZED])
def test_an_op_equals_pytorch_for_another_batch_size(name: str) -> None:
    assert_equal_pytorch(name, (3, 5))


def assert_equal_pytorch(name: str, sizes: tuple[int, ...]) -> None:
    def step(h: Any, x: Any) -> Any:
        y = OPS[name](0.5 * h + x)
        return 0.5 * h + 0.1 * torch.tanh(y), y

    for N in sizes:
        xs, h0 = numbers(3, N, H), numbers(N, H)
        expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [xs, h0, W])


INF, NAN = float("inf"), float("nan")
EDGES = [[1.0, NAN, -1.0, INF], [0.0, 0.0, 0.0, 0.0], [INF, 2.0, -INF, 2.0], [-0.5, 0.5, -2.0, 1.5]]
AT_EDGES: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: torch.sort(x, dim=-1, stable=True)[0] * torch.arange(1, 5),
    "argsort": lambda x: x * torch.sort(x, dim=-1, stable=True)[1],
    "median": lambda x: x.median(-1, keepdim=True)[0] * torch.ones(H, dtype=DOUBLE),
    "median_of_all": lambda x: x[1:2] + x[1:2].median(),
    "hypot": lambda x: torch.hypot(x, x.flip(-1)),
    "attention": lambda x: F.scaled_dot_product_attention(*[x[3:, None].expand(4, 1, H)] * 3, x[:, None, :1] > 0)[:, 0],
}


@pytest.mark.parametrize("name", AT_EDGES)
def test_nan_infinity_ties_and_masks_that_leave_nothing(name: str) -> None:
    def step(h: Any, x: Any) -> Any:
        return h, AT_EDGES[name](x)

    xs, found = torch.tensor([EDGES], dtype=DOUBLE, requires_grad=True), []
    for run in (rt.scan, loop):
        _, ys = run(step, torch.zeros(4, 1, dtype=DOUBLE), xs)
        found.append([ys, *torch.autograd.grad((ys * torch.arange(1, 5)).sum(), xs)])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12, equal_nan=True)


AT_BOUNDS: dict[str, Callable[[Any], Any]] = {
    "hardtanh": F.hardtanh,
    "hardtanh_of_3": lambda x: F.hardtanh(x, -3, 3),
    "relu6": F.relu6,
    "clamp": lambda x: x.clamp(-1, 3),
    "clamp_tensors": lambda x: x.clamp(-torch.ones_like(x), torch.ones_like(x)),
    "hardswish": F.hardswish,
    "hardsigmoid": lambda x: 6 * F.hardsigmoid(x),
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "sinc": torch.sinc,
    "max_pool1d": lambda x: F.max_pool1d(x.clamp(-0.5, 0.5).reshape(1, 1, 8), 3).reshape(*x.shape[:-1], 2),
}


@pytest.mark.parametrize("name", AT_BOUNDS)
def test_gradients_at_bounds(name: str) -> None:
    x = torch.tensor([[[-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0]]], requires_grad=True)
    mine = rt.scan(lambda h, x: (h, AT_BOUNDS[name](x)), torch.zeros(1, 1), x)[1]
    for one, other in zip(*([y, *torch.autograd.grad(y.sum(), x)] for y in (mine, AT_BOUNDS[name](x))), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("dtype", "within"), [(DOUBLE, 1e-12), (torch.float32, 3e-6)])
def test_gamma_functions_on_the_whole_line(dtype: Any, within: float) -> None:
    x = torch.cat([torch.linspace(-9.97, 12, 397), torch.logspace(-18, 30, 49), torch.tensor([1.0, 2.0, 8.0])]).to(
        dtype
    )
    x, at = x[None, :, None].requires_grad_(), x.double().numpy()[None, :, None]
    wanted = special.gammaln(at), special.psi(at), special.zeta(2, at)  # each the slope of the one before
    for function, value, slope in ((torch.lgamma, *wanted[:2]), (torch.digamma, *wanted[1:])):
        _, ys = rt.scan(lambda h, x, function=function: (h, function(x)), x[0, :, 0] * 0, x)
        for found, exact in ((ys, value), (torch.autograd.grad(ys.sum(), x)[0], slope)):
            torch.testing.assert_close(found.double(), torch.tensor(exact), rtol=within, atol=within)


@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
def test_gamma_functions_at_poles_and_ends(dtype: Any) -> None:
    """Zeros have the sign of their infinity; the other poles of digamma have no value."""
    ends = torch.tensor([0.0, -0.0, -1, -2, -9, -100, -1e10, -1e30, -INF, INF, NAN], dtype=dtype)[None, :, None]
    ends.requires_grad_()
    for function in (torch.lgamma, torch.digamma):
        _, ys = rt.scan(lambda h, x, function=function: (h, function(x)), ends[0].detach(), ends)
        torch.testing.assert_close(ys, function(ends), equal_nan=True)
        if function is torch.lgamma:
            mine, theirs = (torch.autograd.grad(made.sum(), ends)[0][:, :9] for made in (ys, function(ends)))
            torch.testing.assert_close(mine, theirs, equal_nan=True)


FAR = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 20.0, -20.0, 100.0, -100.0, 1000.0, -1000.0, 1e30, -1e30)
PLAIN = (
    torch.abs, torch.asinh, torch.atan, torch.ceil, torch.cos, torch.cosh, torch.erf, torch.exp, torch.exp2,
    torch.expm1, torch.floor, torch.frac, torch.neg, torch.relu, torch.round, torch.selu, torch.sigmoid,
    torch.sign, torch.sin, torch.sinc, torch.sinh, torch.square, torch.tan, torch.tanh, torch.trunc, F.celu,
    F.elu, F.gelu, F.hardshrink, F.hardsigmoid, F.hardswish, F.hardtanh, F.leaky_relu, F.logsigmoid, F.mish,
    F.relu6, F.silu, F.softplus, F.softshrink, F.softsign, F.tanhshrink,
)  # fmt: skip
OF_ONE: dict[str, Callable[[Any], Any]] = {
    **{function.__name__: function for function in PLAIN},
    **{
        f"{f.__name__}_above_1": lambda x, f=f: f(x.abs() + 1)
        for f in (torch.acosh, torch.log, torch.log10, torch.log1p)
    },
    **{f"{f.__name__}_above_1": lambda x, f=f: f(x.abs() + 1) for f in (torch.log2, torch.rsqrt)},
    **{f"{f.__name__}_inside": lambda x, f=f: f(x / (1 + x.abs())) for f in (torch.acos, torch.asin, torch.atanh)},
    "celu_of_3": lambda x: F.celu(x, 3.0),
    "clamp": lambda x: x.clamp(-1, 3),
    "copysign": lambda x: torch.copysign(x, x.flip(-1)),
    "elu_of_2": lambda x: F.elu(x, 2.0),
    "fmax": lambda x: torch.fmax(x, x.flip(-1)),
    "fmin": lambda x: torch.fmin(x, 0 * x),
    "gelu_by_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "huber": lambda x: F.huber_loss(x, 0 * x, reduction="none"),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(-1)),
    "logaddexp2": lambda x: torch.logaddexp2(x, 0 * x),
    "logit": lambda x: torch.logit(x, 1e-3),
    "pow": lambda x: x**2 + x.abs() ** 0.5,
    "reciprocal": lambda x: 1 / (x + x.sign()).masked_fill(x == 0, 1),
    "signbit": lambda x: torch.signbit(x) * x,
    "softplus_of_2": lambda x: F.softplus(x, beta=2),
    "softplus_below": lambda x: F.softplus(x, 1.5, 3.0),
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "xlogy": lambda x: torch.xlogy(x.abs(), x.abs()),
}


def test_functions_of_one_number_from_afar() -> None:
    """Beyond where a part of a formula overflows, each result and gradient is PyTorch's: one row of x for each."""
    xs = torch.tensor(FAR).expand(1, 2, len(OF_ONE), -1).clone().requires_grad_()

    def step(h: Any, x: Any) -> Any:
        return h, torch.stack([function(x[:, place]) for place, function in enumerate(OF_ONE.values())], 1)

    mine, theirs = (
        [y, *torch.autograd.grad(y.sum(), xs)] for y in (run(step, xs[0, 0], xs)[1] for run in (rt.scan, loop))
    )

    def check(named: tuple[int, str]) -> None:
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one[0, 0, named[0]], other[0, 0, named[0]], rtol=1e-5, atol=1e-5, equal_nan=True)

    check_each(enumerate(OF_ONE), check, lambda named: named[1])


def test_floors_of_quotients() -> None:
    """The remainder decides where a quotient is rounded up, and integers go down, too."""
    xs, whole = torch.tensor([[FAR]]), torch.arange(-7, 8)[None, None]
    with torch.no_grad():
        for by in (2, 0.1, -0.3):
            floors = lambda h, x, by=by: (h, (x // by, 1 // (x + by), torch.floor_divide(x, 3 * by)))  # noqa: E731
            mine, theirs = (run(floors, torch.zeros(1, 1), xs)[1] for run in (rt.scan, loop))
            torch.testing.assert_close(mine, theirs)
        for divisor in (2, -3):
            mine, theirs = rt.scan(lambda t, x, by=divisor: (t + 1, x // by), whole[0], whole)[1], whole // divisor
            assert torch.equal(mine, theirs)
        _, ys = rt.scan(lambda h, x: (h, torch.heaviside(x, h)), torch.full((1, len(FAR)), 0.5), xs)
        assert torch.equal(ys[0], torch.heaviside(xs[0], torch.tensor(0.5)))


def test_cumulative_products_in_order() -> None:
    """A 0 that comes first is times numbers whose own product overflows."""
    xs = torch.tensor([[[0.0, 1e20, 1e20, 1e20]]])
    assert rt.scan(lambda h, x: (h, x.cumprod(-1)), torch.zeros(1, 1), xs)[1].tolist() == [[[0.0] * 4]]
    wide = numbers(3, 2, 17)
    mine, theirs = (
        run(lambda h, x: (h, x.cumprod(1) + x[:, :1].cumprod(1)), numbers(2, 1), wide)[1] for run in (rt.scan, loop)
    )
    torch.testing.assert_close(mine, theirs)


def test_a_bound_of_nan() -> None:
    x, bound = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[NAN, 1.0]]])
    for clamp in (torch.clamp_min, torch.clamp_max):
        _, ys = rt.scan(lambda h, pair, clamp=clamp: (h, clamp(*pair)), torch.zeros(1, 1), (x, bound))
        torch.testing.assert_close(ys, clamp(x, bound), equal_nan=True)


@pytest.mark.parametrize("function", [torch.hypot, torch.atan2])
def test_second_derivatives_of_functions_of_two_numbers(function: Callable[..., Any]) -> None:
    xs = numbers(2, 2, H)
    run = lambda xs: rt.scan(lambda h, x: (h, function(x, x.flip(-1) + 2 * h)), numbers(2, H), xs)[1]  # noqa: E731
    assert torch.autograd.gradgradcheck(run, (xs,))


def test_a_step_that_takes_no_symbol_is_traced_for_each_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(step_modes.CELLS, F.cosine_similarity)
    monkeypatch.setattr(traced, "_told", set())

    def step(h: Any, x: Any) -> Any:
        h = 0.5 * h + x * F.cosine_similarity(h, x, dim=-1)[:, None]
        return h, h

    with pytest.warns(UnseenWarning, match="each batch size"):
        rt.scan(step, numbers(3, H), numbers(3, 3, H))
    for N in (3, 5):
        xs, h0 = numbers(3, N, H), numbers(N, H)
        expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [xs, h0])


class Spike(torch.autograd.Function):
    """A surrogate gradient with a learnable width."""

    @staticmethod
    def forward(ctx: Any, x: Any, width: Any) -> Any:
        ctx.save_for_backward(x, width)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, width = ctx.saved_tensors
        s = torch.sigmoid(width * x)
        slope = grad * s * (1 - s)
        return slope * width, (slope * x).sum()


class Once(Spike):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        return Spike.backward(ctx, grad)


def test_a_custom_gradient_of_an_operand_of_another_shape() -> None:
    width, xs, h0 = torch.tensor(2.0, dtype=DOUBLE, requires_grad=True), numbers(4, 3, H), numbers(3, H)

    def step(h: Any, x: Any, spike: Any = Spike) -> Any:
        s = spike.apply(h - 0.5, width)
        return 0.9 * h + x - s, s + h

    expect_equal(rt.scan(step, h0, xs), loop(step, h0, xs), [xs, h0, width])
    with pytest.raises(StepError, match="Once cannot be differentiated"):
        rt.scan(lambda h, x: step(h, x, Once), h0, xs)


class Clipped(torch.autograd.Function):
    """Its backward pass is not linear, which is not seen of gradients below 1."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.clamp(-1, 1)


def test_a_custom_gradient_that_is_not_linear_is_refused() -> None:
    with pytest.raises(StepError, match=r"for a large loss differs.*not linear"):
        rt.scan(lambda h, x: (0.1 * Clipped.apply(h) + x, 0.1 * x), numbers(3, H), numbers(2, 3, H))


@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")
def test_second_derivatives_of_a_custom_function_are_refused() -> None:
    """The backward pass that a trace has holds the slope as it is."""
    xs, width = numbers(2, 3, H), torch.tensor(2.0, dtype=DOUBLE, requires_grad=True)

    def run(xs: Any) -> Any:
        return rt.scan(lambda h, x: (h, Spike.apply(x, width)), torch.zeros(3, 1, dtype=DOUBLE), xs)[1]

    (grad,) = torch.autograd.grad(run(xs).sum(), xs, create_graph=True)
    with pytest.raises(StepError, match="a custom autograd function has no second derivative"):
        grad.sum().backward()
    _, moved = torch.func.jvp(run, (xs,), (torch.ones_like(xs),))
    with pytest.raises(StepError, match="a custom autograd function has no second derivative"):
        moved.sum().backward()


def test_an_op_with_an_effect_and_a_result_that_is_not_there_are_refused() -> None:
    with pytest.raises(StepError, match="has an effect besides its result"):
        rt.scan(lambda h, x: (torch.ops.aten._print("x"), (h, x))[1], numbers(3, H), numbers(2, 3, H))
    with pytest.raises(StepError, match=r"index_put.* places of a mask"):
        rt.scan(lambda h, x: (h, x.clone().index_put_((x > 0,), x[0])), numbers(3, H), numbers(2, 3, H))
    with pytest.raises(StepError, match=r"linalg_inv_ex.*uses a result .* not translated; got result 1"):
        rt.scan(lambda h, x: (h * torch.linalg.inv_ex(W @ W.T)[1], x), numbers(3, H), numbers(2, 3, H))


@pytest.mark.parametrize("function", [torch.linalg.inv, torch.linalg.cholesky, lambda a: torch.linalg.solve(a, UNIT)])
def test_a_matrix_without_a_result_is_an_error(function: Callable[[Any], Any]) -> None:
    diagonals = torch.rand(3, 2, H, dtype=DOUBLE)
    step = lambda h, x: (h, function(torch.diag_embed(x)))  # noqa: E731
    assert rt.scan(step, torch.zeros(2, 1, dtype=DOUBLE), diagonals)[1].isfinite().all()
    diagonals[2, 1, 3] = 0
    with pytest.raises(NumericsError, match=r"op '(Solve|Cholesky) -> .*singular or not positive definite"):
        rt.scan(step, torch.zeros(2, 1, dtype=DOUBLE), diagonals)
    with pytest.raises(torch.linalg.LinAlgError):
        loop(step, torch.zeros(2, 1, dtype=DOUBLE), diagonals)


@pytest.mark.parametrize("name", ["cholesky", "slogdet"])
def test_second_derivatives_of_matrices(name: str) -> None:
    run = lambda xs: rt.scan(lambda h, x: (0.5 * h + LINEAR[name](x),) * 2, numbers(2, H), xs)[1]  # noqa: E731
    assert torch.autograd.gradgradcheck(run, (numbers(2, 2, H),))


def test_a_filter_whose_state_is_factored_and_solved() -> None:
    """Kalman's, with sigma points: the self-check's states have to be positive definite, too."""

    def step(carry: Any, z: Any) -> Any:
        mean, P = carry
        points = torch.tanh(mean[:, :, None] + torch.linalg.cholesky(P))
        off = points - points.mean(-1, keepdim=True)
        P = off @ off.mT / H + 0.1 * UNIT
        S = P[:, :2, :2] + UNIT[:2, :2]
        gain = torch.linalg.solve(S, P[:, :2]).mT
        mean = points.mean(-1) + (gain @ (z - mean[:, :2])[:, :, None])[:, :, 0]
        return (mean, P - gain @ P[:, :2]), torch.linalg.slogdet(S)[1]

    init, zs = (numbers(3, H), UNIT.repeat(3, 1, 1).requires_grad_()), numbers(4, 3, 2)
    expect_equal(rt.scan(step, init, zs), loop(step, init, zs), [zs, *init])
