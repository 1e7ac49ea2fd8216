"""The context in which a step is traced, and its random numbers.

**Random numbers of a step**: all random functions of PyTorch are written with uniform numbers. A trace then has one
random op, `rand_like`, and a self-check can give PyTorch's step the numbers that the translated step draws. Normal
numbers follow Box and Muller (Annals of Mathematical Statistics 29, 1958). Limits: random functions that are not in
`FUNCTIONS` (dropout of whole features, ...) are left as they are, and are refused.

**Changes to PyTorch while a step is traced**: each class is a context around the step's own code. Functionalization
keeps what a step computes, but loses four things that decide its gradient or its graph: custom autograd functions,
`no_grad`, decisions by a tensor's value, and what a module remembers. Limits: a custom autograd function whose operands
have the shape of its result is taken for elementwise in the operands that it differentiates. The self-check of a step
proves it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import pi
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
import torch.utils._pytree as pytree
from torch import SymFloat, SymInt, Tensor
from torch._C._dynamo.eval_frame import get_eval_frame_callback
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd.function import _SingleLevelFunction
from torch.compiler import set_stance
from torch.distributions import Distribution
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rnnops.kernels.scalar_functions import uniform_rows
from rnnops.ops.shapes import as_floats
from rnnops.torch.errors import SEED_OUTSIDE, StepError

Draw = Callable[[Tensor], Tensor]


class RandomFunctions(TorchFunctionMode):
    """Random functions draw uniform numbers by `draw`, which gets a tensor of the wanted shape."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self._draw = draw

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(kwargs.get("generator"), torch.Generator):
            raise StepError("a step draws from a generator of its own", op=func.__name__, hint=SEED_OUTSIDE)
        made = FUNCTIONS.get(func)
        return func(*args, **kwargs) if made is None else made(self._draw, *args, **kwargs)


class OwnDraws:
    """The uniform numbers of a translated step: a seed gives them to the step's random ops in their order."""

    def __init__(self, seed: int) -> None:
        self._seed, self._t, self._ordinal = seed, 0, 0

    def at_step(self, t: int) -> OwnDraws:
        """Starts again at the first random op of a step."""
        self._t, self._ordinal = t, 0
        return self

    def __call__(self, like: Tensor) -> Tensor:
        rows, size = (like.shape[0], like[0].numel()) if like.dim() and like.shape[0] else (1, like.numel())
        drawn = uniform_rows(self._seed, self._ordinal, self._t, rows, size).reshape(tuple(like.shape))
        self._ordinal += 1
        dtype = np.float32 if like.dtype == torch.float32 else np.float64
        return torch.from_numpy(as_floats(drawn, dtype)).to(like.device, like.dtype)


def _normal_numbers(draw: Draw, like: Tensor) -> Tensor:
    radius = (-2.0 * torch.log1p(-draw(like))).sqrt()
    return radius * torch.cos(2.0 * pi * draw(like))


def _normal(draw: Draw, mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Tensor:
    if size is not None:
        like = torch.empty(size, **_kept(options))
    else:
        like = torch.empty_like(mean if isinstance(mean, Tensor) else std)
    return mean + std * _normal_numbers(draw, like)


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in ("dtype", "device")}


def _bernoulli(draw: Draw, x: Tensor, p: float | None = None, **_: Any) -> Tensor:
    return (draw(torch.empty_like(x)) < (x if p is None else p)).to(x.dtype)


def _dropout(draw: Draw, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not training or p == 0:
        return x
    kept = (draw(torch.empty_like(x)) >= p).to(x.dtype)
    result = x * kept * (1.0 / (1.0 - p)) if p < 1 else x * 0.0
    return x.copy_(result) if inplace else result


def _alpha_dropout(draw: Draw, x: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Klambauer and others, NeurIPS 2017. Dropped elements get SELU's value at minus infinity.

    The mean stays 0, the variance 1.
    """
    if not training or p == 0:
        return x
    low, kept = -1.7580993408473766, (draw(torch.empty_like(x)) >= p).to(x.dtype)
    scale = ((1 - p) * (1 + p * low**2)) ** -0.5
    result = scale * (x * kept + low * (1 - kept)) - scale * low * p
    return x.copy_(result) if inplace else result


def _randint(draw: Draw, low: int, high: Any = None, size: Any = None, **options: Any) -> Tensor:
    if size is None:
        low, high, size = 0, low, high
    like = torch.empty(size, device=options.get("device"))
    return (low + torch.floor(draw(like) * (high - low))).to(options.get("dtype") or torch.int64)


def _multinomial(draw: Draw, p: Tensor, count: int, replacement: bool = False, **_: Any) -> Tensor:
    """Picks the first of exponential waiting times. Without replacement it picks the first `count`."""
    p = p[..., None, :].expand(*p.shape[:-1], count, p.shape[-1]) if replacement else p
    waiting = -torch.log1p(-draw(torch.empty_like(p)))
    rates = p / waiting.clamp_min(torch.finfo(p.dtype).tiny)
    return rates.argmax(-1, not replacement) if replacement or count == 1 else rates.topk(count).indices


def _gumbel_softmax(
    draw: Draw, x: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Jang, Gu, Poole, ICLR 2017. A hard choice has the gradient of the soft one."""
    exponential = -torch.log1p(-draw(torch.empty_like(x)))
    noise = -torch.log(exponential.clamp_min(torch.finfo(x.dtype).tiny))
    soft = torch.softmax((x + noise) / tau, dim)
    if not hard:
        return soft
    places = torch.arange(soft.shape[dim], device=x.device).reshape(
        [-1 if axis == dim % soft.dim() else 1 for axis in range(soft.dim())]
    )
    choice = (places == soft.argmax(dim, keepdim=True)).to(soft.dtype)
    return choice - soft.detach() + soft


def _floor_divide(_: Draw, a: Any, b: Any) -> Tensor:
    """Written by other ops, as PyTorch has no derivative for it. The derivative here is 0."""
    return torch.div(a, b, rounding_mode="floor")


def _heaviside(draw: Draw, x: Tensor, at_zero: Tensor) -> Tensor:
    """Written by other ops, as PyTorch has no derivative for it."""
    return torch.where(x == 0, at_zero.detach(), (x > 0).to(x.dtype))


def _by_names(table: dict[str, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The functions of these names, from all places where PyTorch has them."""
    places = (torch, Tensor, F)
    return {getattr(place, name): made for name, made in table.items() for place in places if hasattr(place, name)}


FUNCTIONS = _by_names({
    "floor_divide": _floor_divide,
    "__floordiv__": _floor_divide,
    "__rfloordiv__": lambda draw, b, a: _floor_divide(draw, torch.as_tensor(a, device=b.device), b),
    "floor_divide_": lambda draw, a, b: a.div_(b, rounding_mode="floor"),
    "heaviside": _heaviside,
    "rand": lambda draw, *size, **options: draw(torch.empty(*size, **_kept(options))),
    "rand_like": lambda draw, x, **options: draw(torch.empty_like(x, **_kept(options))),
    "randint": _randint,
    "randn": lambda draw, *size, **options: _normal_numbers(draw, torch.empty(*size, **_kept(options))),
    "randn_like": lambda draw, x, **options: _normal_numbers(draw, torch.empty_like(x, **_kept(options))),
    "normal": _normal,
    "bernoulli": _bernoulli,
    "multinomial": _multinomial,
    "dropout": _dropout,
    "dropout_": lambda draw, x, p, training: _dropout(draw, x, p, training, inplace=True),
    "uniform_": lambda draw, x, low=0.0, high=1.0, **_: x.copy_(low + (high - low) * draw(x)),
    "normal_": lambda draw, x, mean=0.0, std=1.0, **_: x.copy_(mean + std * _normal_numbers(draw, x)),
    "bernoulli_": lambda draw, x, p=0.5, **_: x.copy_((draw(x) < p).to(x.dtype)),
    "exponential_": lambda draw, x, rate=1.0, **_: x.copy_(-torch.log1p(-draw(x)) / rate),
    "alpha_dropout": _alpha_dropout,
    "gumbel_softmax": _gumbel_softmax,
})  # fmt: skip


detach = torch.ops.aten.detach.default
READERS = ("item", "tolist", "numpy", "__int__", "__float__", "__complex__", "__index__", "__array__")


@torch.library.custom_op("rnnops::with_slopes", mutates_args=())
def with_slopes(y: Tensor, xs: list[Tensor], slopes: list[Tensor]) -> Tensor:
    """Returns `y`.

    Its gradient for each x is y's gradient times a slope: this op stands for a custom autograd function in a graph.
    """
    return y.clone()


@with_slopes.register_fake
def _(y: Tensor, xs: list[Tensor], slopes: list[Tensor]) -> Tensor:
    return torch.empty_like(y)


def has_gradients(x: Tensor) -> bool:
    """True for a tensor of floats or of complex numbers."""
    return x.is_floating_point() or x.is_complex()


class DetachWithoutGrad(TorchDispatchMode):
    """Adds `detach` after ops under `no_grad`. A graph keeps `detach`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if torch.is_grad_enabled() or func is detach or func._schema.is_mutable:
            return out
        return pytree.tree_map_only(Tensor, lambda t: detach(t) if has_gradients(t) else t, out)


class NoChecks(TorchDispatchMode):
    """Drops the ops by which `torch.linalg` looks for singular matrices.

    The op that replaces `torch.linalg`'s raises the error itself.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return None if func is torch.ops.aten._linalg_check_errors.default else func(*args, **(kwargs or {}))


NO_AXES = torch.Size()


class Decisions(TorchFunctionMode):
    """`if tensor:` gets the caller's answers, in order. It is an error if there are none left.

    Distributions check shapes but not values: checks of values would be decisions by a tensor. Functions that
    `torch.compile` made run as plain functions.
    """

    def __init__(self, answers: Sequence[bool]) -> None:
        super().__init__()
        self._answers, self._is_valid = list(answers), False

    def __enter__(self) -> Decisions:
        self._before, tracing = FunctionalTensor.__bool__, threading.get_ident()
        FunctionalTensor.__bool__ = lambda tensor: (
            self._answer() if threading.get_ident() == tracing else self._before(tensor)
        )
        made, checked = self._checks = Distribution.__init__, Distribution._validate_sample

        def make(it: Any, batch: Any = NO_AXES, event: Any = NO_AXES, validate_args: Any = None) -> None:
            if threading.get_ident() != tracing:
                return made(it, batch, event, validate_args)
            made(it, batch, event, False)
            # checks of shapes only
            it._validate_args = Distribution._validate_args if validate_args is None else validate_args

        def check(it: Any, value: Tensor) -> None:
            if threading.get_ident() != tracing:
                return checked(it, value)
            self._is_valid = True
            try:
                checked(it, value)
            finally:
                self._is_valid = False

        _put_checks(make, check)
        is_free = get_eval_frame_callback() in (None, False)  # True if Dynamo is not tracing around this call
        self._stance = set_stance("force_eager") if is_free else nullcontext()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        FunctionalTensor.__bool__ = self._before
        _put_checks(*self._checks)
        self._stance.__exit__(*error)
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._assert_async or (func is torch._is_all_true and self._is_valid):
            return True
        return self._answer() if getattr(func, "__name__", "") == "__bool__" else func(*args, **(kwargs or {}))

    def _answer(self, *_: Any) -> bool:
        if self._answers:
            return self._answers.pop(0)
        raise StepError(
            "the step decides by the value of a tensor (if tensor:), which differs from step to step",
            hint="Choose by torch.where, or give the answers to all such tests in order: assume=[False].",
        )


def _put_checks(make: Any, check: Any) -> None:
    Distribution.__init__, Distribution._validate_sample = make, check


NARROW = (torch.bfloat16, torch.float16)  # floats that kernels compute with as float32


def widened(x: Any, dtype: torch.dtype) -> Any:
    """Widens a tensor of narrower floats to this dtype. Other values stay as they are."""
    is_narrow = isinstance(x, Tensor) and x.is_floating_point() and x.dtype.itemsize < dtype.itemsize
    return x.to(dtype) if is_narrow else x


class Widened(TorchFunctionMode):
    """Ops get narrower floats widened to one dtype, and make no tensors of the dtypes in `NARROW`."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves, tree = pytree.tree_flatten((args, kwargs or {}))
        wide = [self._dtype if leaf in NARROW else widened(leaf, self._dtype) for leaf in leaves]
        copies = [
            copy for copy, leaf in zip(wide, leaves, strict=True) if copy is not leaf and isinstance(leaf, Tensor)
        ]
        versions = [copy._version for copy in copies]
        args, kwargs = pytree.tree_unflatten(wide, tree)
        out = args[0].to(self._dtype) if func in (Tensor.half, Tensor.bfloat16) else func(*args, **kwargs)
        is_set = copies and copies[0] is wide[0] and getattr(func, "__name__", "") == "__set__"
        if is_set or [copy._version for copy in copies] != versions:
            raise StepError(
                "a step changes a tensor of a narrow dtype in place, but steps compute with a wider copy",
                op=getattr(func, "__name__", None),
                wanted=str(self._dtype),
                hint="Carry it as a state, or hold it as float32.",
            )
        return out


class NoReading(TorchFunctionMode):
    """`int(tensor)` is an error: a trace would keep the number of now, or there is no number yet."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in READERS and type(args[0]) in (Tensor, Parameter):
            hint = "Keep it as a Python number or an array, which is compared before each call."
            raise StepError(f"the step reads the value of a tensor by {name}, which may change", hint=hint)
        if name not in READERS:
            return func(*args, **(kwargs or {}))
        problem = f"the step reads a tensor's number by {name}, and each step has another"
        hint = "Go on with the tensor: h * x.mean(), not h * x.mean().item(). torch.where chooses by its value."
        try:
            read = func(*args, **(kwargs or {}))
        except (RuntimeError, TypeError) as error:
            raise StepError(problem, hint=hint) from error
        if any(isinstance(leaf, SymInt | SymFloat) for leaf in pytree.tree_leaves(read)):
            raise StepError(problem, hint=hint)
        return read


class SizedByTensors(TorchFunctionMode):
    """`torch.zeros(x.shape[0], 4)`, `weight.expand(x.shape[0], 4)` and similar calls, in which a size is a symbol.

    An op of tensors that do not come from the step's arguments cannot take symbols. Here an argument of the step makes
    such tensors.
    """

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self._tensor = tensor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made, leaves = FACTORIES.get(func), pytree.tree_leaves((args, kwargs))
        if made is not None and any(isinstance(leaf, SymInt) for leaf in leaves):
            return made(self._tensor, *args, **kwargs)
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if SYMBOL_REFUSED not in str(error):
                raise
        args, kwargs = pytree.tree_map_only(Tensor, self._known, (args, kwargs))
        return func(*args, **kwargs)

    def _known(self, operand: Tensor) -> Tensor:
        """Makes a tensor of an operand that can take symbols, so that an op can repeat it."""
        if _has_symbols(operand):
            return operand
        zero = self._tensor.new_zeros((), dtype=operand.dtype)
        return operand | zero if operand.dtype == torch.bool else operand + zero


def _has_symbols(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and any(isinstance(size, SymInt) for size in leaf.shape)


def _factory(method: str) -> Callable[..., Tensor]:
    def made(tensor: Tensor, *size: Any, dtype: Any = None, **options: Any) -> Tensor:
        sizes = options.get("size") or (size[0] if isinstance(size[0], Sequence) else size)
        return getattr(tensor, method)(sizes, dtype=dtype or torch.get_default_dtype())

    return made


def _full(tensor: Tensor, size: Any, fill_value: Any, dtype: Any = None, **_: Any) -> Tensor:
    return tensor.new_full(size, fill_value, dtype=dtype or torch.tensor(fill_value).dtype)


SYMBOL_REFUSED = "SymInt"  # occurs in the error of an op that gets a symbol but no tensor that can take it
FACTORIES: dict[Any, Callable[..., Tensor]] = {
    torch.empty: _factory("new_empty"),
    torch.zeros: _factory("new_zeros"),
    torch.ones: _factory("new_ones"),
    torch.full: _full,
    Tensor.new: lambda _, x, *size: x.new_empty(*size),
}


class PlainCells(TorchFunctionMode):
    """PyTorch's cells and similar functions as the ops that they consist of. Their C++ would fix the batch size."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cell = CELLS.get(func)
        return func(*args, **(kwargs or {})) if cell is None else cell(*args, **(kwargs or {}))


def _lstm_cell(x: Tensor, states: Any, w_x: Tensor, w_h: Tensor, b_x: Any = None, b_h: Any = None) -> Any:
    h, c = states
    i, f, g, o = (F.linear(x, w_x, b_x) + F.linear(h, w_h, b_h)).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_cell(x: Tensor, h: Tensor, w_x: Tensor, w_h: Tensor, b_x: Any = None, b_h: Any = None) -> Tensor:
    (r, z, n), (r_h, z_h, n_h) = F.linear(x, w_x, b_x).chunk(3, 1), F.linear(h, w_h, b_h).chunk(3, 1)
    n = (n + (r + r_h).sigmoid() * n_h).tanh()
    return (h - n) * (z + z_h).sigmoid() + n


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def cell(x: Tensor, h: Tensor, w_x: Tensor, w_h: Tensor, b_x: Any = None, b_h: Any = None) -> Tensor:
        return activation(F.linear(x, w_x, b_x) + F.linear(h, w_h, b_h))

    return cell


def _baddbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = alpha * torch.bmm(a, b)
    return product if beta == 0 else beta * x + product


def _cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    one, other = (x / torch.linalg.vector_norm(x, dim=dim, keepdim=True).clamp_min(eps) for x in (x1, x2))
    return (one * other).sum(dim)


def _solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    a = a.triu(int(unitriangular)) if upper else a.tril(-int(unitriangular))
    if unitriangular:
        a = a + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    # b has the same rank as a, so it is not taken for a vector
    return torch.linalg.solve(a, b[(None,) * (a.dim() - b.dim())], left=left)


def _cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    return _solve_triangular(lower.mT, _solve_triangular(lower, b, upper=False), upper=True)


def _diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    if (offset, dim1, dim2) != (0, -2, -1):
        return torch.diag_embed(x, offset, dim1, dim2)
    unit = torch.eye(x.shape[-1], dtype=torch.bool, device=x.device)
    return torch.where(unit, x[..., None], torch.zeros((), dtype=x.dtype, device=x.device))


CELLS = {
    torch.linalg.solve_triangular: _solve_triangular,
    **_by_names({
        "diag_embed": _diag_embed,
        "cholesky_inverse": lambda x, *given, **options: _cholesky_solve(
            torch.eye(x.shape[-1], dtype=x.dtype, device=x.device), x, *given, **options
        ),
        "cholesky_solve": _cholesky_solve,
        "cosine_similarity": _cosine_similarity,
        "baddbmm": _baddbmm,
        "lstm_cell": _lstm_cell,
        "gru_cell": _gru_cell,
        "rnn_tanh_cell": _plain_cell(torch.tanh),
        "rnn_relu_cell": _plain_cell(torch.relu),
    }),
}  # fmt: skip


class ElementwiseFunctions:
    """Turns a custom autograd function into a value and a slope for each operand: it traces a backward pass of ones.

    `apply` of the base class of `autograd.Function` is replaced. This also reaches an `apply` that was bound before.
    """

    def __enter__(self) -> None:
        tracing = threading.get_ident()

        def apply(function: Any, *args: Any) -> Any:
            plain = super(_SingleLevelFunction, function).apply  # type: ignore[misc]
            return _applied(function, plain, args) if threading.get_ident() == tracing else plain(*args)

        _SingleLevelFunction.apply = classmethod(apply)

    def __exit__(self, *error: Any) -> None:
        del _SingleLevelFunction.apply


def _applied(function: Any, apply: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    name = function.__name__
    if name == "CheckpointFunction":  # torch.utils.checkpoint: rnnops chooses itself what is recomputed
        return args[0](*args[2:])
    if not torch.is_grad_enabled() or name.startswith("GeneratedBackwardFor_"):
        return apply(*args)
    if any(isinstance(a, Tensor) and a.is_complex() for a in args):
        hint = "Give it x.real and x.imag, or write it by PyTorch's own ops."
        raise StepError(f"the autograd function {name} takes complex numbers", hint=hint)
    leaves = [a.detach().requires_grad_() if _is_float(a) else a for a in args]
    y = apply(*leaves)
    if not isinstance(y, Tensor):
        raise StepError(f"the autograd function {name} has several results", wanted="one tensor")
    if not y.requires_grad:
        return y
    places = [i for i, leaf in enumerate(leaves) if _is_float(leaf)]
    operands, xs = [args[i] for i in places], [leaves[i] for i in places]
    if any(x.shape != y.shape for x in xs):
        operands, slopes = [_with_own_gradient(name, y, xs, operands)], [torch.ones_like(y)]
    else:
        slopes = torch.autograd.grad(y, xs, torch.ones_like(y), allow_unused=True)
    pairs = [(x, slope) for x, slope in zip(operands, slopes, strict=True) if slope is not None]
    with torch._C._AutoDispatchBelowAutograd():  # above autograd's dispatch the op would cut the graph
        return with_slopes(y, [x for x, _ in pairs], [slope for _, slope in pairs])


def _with_own_gradient(name: str, y: Tensor, leaves: Sequence[Tensor], operands: Sequence[Tensor]) -> Tensor:
    """A tensor whose gradient for the operands is that of a custom backward pass. Its value is not used.

    A backward pass is linear in the gradient that it gets. The tensor is the transpose of this linear map, applied to
    the operands.
    """
    given = torch.ones_like(y).requires_grad_()
    try:
        grads = torch.autograd.grad(y, leaves, given, create_graph=True, allow_unused=True)
        used = [i for i, grad in enumerate(grads) if grad is not None]
        if not used:
            return y.detach()
        ends, starts = [grads[i] for i in used], [operands[i] for i in used]
        (transposed,) = torch.autograd.grad(ends, given, starts, create_graph=True)
    except RuntimeError as error:
        problem = f"the backward pass of the autograd function {name} cannot be differentiated"
        wanted, hint = "ops of PyTorch on the gradient, or operands of the result's shape", "Write it by PyTorch's ops."
        raise StepError(problem, wanted=wanted, came=str(error)[:100], hint=hint) from error
    return transposed


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
