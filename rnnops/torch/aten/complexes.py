"""aten ops of complex tensors, each as a pair of blobs: the real and the imaginary part.

A part that is 0 everywhere is None and costs nothing, for example in a real tensor that becomes complex, or in `1j *
x`. The gradients of both parts together are PyTorch's gradient of the complex tensor. Limits: such a part times
infinity is 0.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

import rnnops as ro
from rnnops.net.blob import Blob
from rnnops.torch.aten.elementwise import hypotenuse, root_of
from rnnops.torch.aten.movement import VALUES
from rnnops.torch.aten.table import BY_PARTS, RULES, AtenNode, Rule, rule

PAIR_RULES: dict[str, Rule] = {}  # rules for nodes that read or return a complex tensor
Part = Any  # a blob, a number, or None for 0
LARGEST_POWER = 64  # largest whole exponent


class Pair(NamedTuple):
    """A complex tensor or number. The parts have the tensor's shape. At most one part is None."""

    re: Part
    im: Part


def pair_rule(*names: str) -> Callable[[Rule], Rule]:
    """Register `function(node, *arguments)`. It gets pairs for complex tensors, and blobs for other tensors."""
    return rule(*names, table=PAIR_RULES)


def is_of_pairs(node: fx.Node) -> bool:
    """True for a node that reads or returns a complex tensor."""
    return any(_is_complex(place.meta.get("val")) for place in (node, *node.all_input_nodes))


def _is_complex(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_is_complex, value))
    return isinstance(value, torch.Tensor) and value.is_complex()


def _gives_complex(node: AtenNode) -> bool:
    return _is_complex(node.node.meta["val"])


def _pair(node: AtenNode, value: Any) -> Pair:
    """An operand as a pair."""
    if isinstance(value, Pair):
        return value
    if isinstance(value, Blob):
        return Pair(node.blob(value, "float"), None)
    number = complex(value)
    return Pair(number.real if number.real or not number.imag else None, number.imag or None)


def _blobs(node: AtenNode, value: Any) -> tuple[Blob, Blob]:
    """Both parts of an operand as blobs that broadcast."""
    re, im = (0.0 if part is None else part for part in _pair(node, value))
    return node.blob(re, "float"), node.blob(im, "float")


def _whole(node: AtenNode, part: Part, sizes: Sequence[int]) -> Blob:
    """A part as a blob of these sizes. None gives zeros."""
    return part if isinstance(part, Blob) else node.full(part or 0.0, sizes, "float")


def _spread(node: AtenNode, part: Part) -> Part:
    """A part of an operand, broadcast to the result's shape."""
    return None if part is None else node.spread(part)


# Numbers


def _sum(a: Part, b: Part) -> Part:
    return b if a is None else a if b is None else a + b


def _negative(a: Part) -> Part:
    return ro.neg(a) if isinstance(a, Blob) else None if a is None else -a


def _difference(a: Part, b: Part) -> Part:
    return _negative(b) if a is None else a if b is None else a - b


def _product(a: Pair, b: Pair, times: Callable[[Any, Any], Any] = operator.mul) -> Pair:
    """The product of two tensors, or of two matrices."""

    def of(x: Part, y: Part) -> Part:
        return None if x is None or y is None else times(x, y)

    return Pair(_difference(of(a.re, b.re), of(a.im, b.im)), _sum(of(a.re, b.im), of(a.im, b.re)))


def _plus(node: AtenNode, a: Pair, b: Pair) -> Pair:
    """A sum. A part that only one operand has is broadcast to the result's shape."""
    parts = zip(a, b, strict=True)
    return Pair(*(_spread(node, _sum(x, y)) if x is None or y is None else x + y for x, y in parts))


@pair_rule("add", "sub", "rsub")
def _add(node: AtenNode, a: Any, b: Any, alpha: Any = 1) -> Pair:
    a, b = (_pair(node, value) for value in ((b, a) if node.name == "rsub" else (a, b)))
    b = b if alpha == 1 else _product(b, _pair(node, alpha))
    return _plus(node, a, b if node.name == "add" else Pair(*map(_negative, b)))


PAIR_RULES["mul"] = lambda node, a, b: _product(_pair(node, a), _pair(node, b))


@pair_rule("addcmul")
def _addcmul(node: AtenNode, x: Any, a: Any, b: Any, value: Any = 1) -> Pair:
    product = _product(_pair(node, a), _pair(node, b))
    return _plus(node, _pair(node, x), product if value == 1 else _product(product, _pair(node, value)))


@pair_rule("lerp")
def _lerp(node: AtenNode, a: Any, b: Any, weight: Any) -> Pair:
    a, b = _pair(node, a), _pair(node, b)
    way = Pair(_difference(b.re, a.re), _difference(b.im, a.im))
    return _plus(node, a, _product(way, _pair(node, weight)))


@pair_rule("div", "reciprocal")
def _div(node: AtenNode, a: Any, b: Any = None, rounding_mode: str | None = None) -> Pair:
    node.known("rounding_mode of complex numbers", rounding_mode, None)
    a, b = (_pair(node, value) for value in ((1.0, a) if node.name == "reciprocal" else (a, b)))
    return _quotient(node, a, b)


def _quotient(node: AtenNode, a: Pair, b: Pair) -> Pair:
    """Divides by the divisor's larger part first, so that no square overflows."""
    if b.im is None:
        return Pair(*(None if part is None else part / b.re for part in a))
    re, im = _blobs(node, b)
    scale = ro.stop_gradient(ro.max(ro.abs(re), ro.abs(im)))
    re, im = re / scale, im / scale
    square = (re * re + im * im) * scale
    return Pair(*(None if part is None else part / square for part in _product(a, Pair(re, ro.neg(im)))))


@pair_rule("mm", "bmm", "mv", "dot", "vdot")
def _matmul(node: AtenNode, a: Any, b: Any) -> Pair:
    a = _pair(node, a)
    return _product(Pair(a.re, _negative(a.im)) if node.name == "vdot" else a, _pair(node, b), operator.matmul)


@pair_rule("addmm", "addmv")
def _addmm(node: AtenNode, bias: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Pair:
    y, bias = _matmul(node, a, b), _pair(node, bias)
    y = y if alpha == 1 else _product(y, _pair(node, alpha))
    return _plus(node, y, bias if beta == 1 else _product(bias, _pair(node, beta)))


# Parts


PAIR_RULES.update(
    {
        "complex": lambda node, re, im: Pair(_spread(node, re), _spread(node, im)),
        "polar": lambda node, size, angle: Pair(size * ro.cos(angle), size * ro.sin(angle)),
        "real": lambda node, x: _whole(node, x.re, node.out_shape),
        "imag": lambda node, x: _whole(node, x.im, node.out_shape),
        **dict.fromkeys(("_conj", "_conj_physical"), lambda node, x: Pair(x.re, _negative(x.im))),
    }
)


@pair_rule("view_as_complex")
def _view_as_complex(node: AtenNode, x: Blob | Pair) -> Pair:
    if isinstance(x, Pair):  # a closed-over tensor, which is read by its parts
        return x
    return Pair(*(ro.squeeze(part, [-1]) for part in ro.split(x, [1, 1], axis=-1)))


@pair_rule("view_as_real")
def _view_as_real(node: AtenNode, x: Pair) -> Blob:
    sizes = node.shape_of(0)
    return ro.concat([ro.unsqueeze(_whole(node, part, sizes), [len(sizes)]) for part in x], axis=-1)


@pair_rule("_to_copy")
def _converted(node: AtenNode, x: Any, **_: Any) -> Any:
    if _gives_complex(node):
        return _pair(node, x)
    if node.out_kind != "float":
        node.fail("a complex tensor is converted", wanted="complex numbers or floats", came=node.result().dtype)
    return _whole(node, x.re, node.out_shape)


# place of the value among the arguments
FILLED = {"scalar_tensor": 0, "new_full": 2, "full": 1, "full_like": 1, "fill": 1}


@pair_rule(*FILLED, *VALUES, "empty", "empty_like", "new_empty")
def _made(node: AtenNode, *given: Any, **_: Any) -> Any:
    value = given[FILLED[node.name]] if node.name in FILLED else VALUES.get(node.name, 0)
    if not _gives_complex(node):
        return RULES[node.name](node, *given)
    return Pair(*(_spread(node, part) for part in _pair(node, value)))


OF_PARTS = {  # linear ops, and the places of operands that may be complex
    **dict.fromkeys(("_unsafe_view", "cat", "clone", "cumsum", "detach", "diagonal", "expand"), (0,)),
    **dict.fromkeys(("flip", "gather", "index", "index_select", "lift_fresh_copy", "mean", "neg", "permute"), (0,)),
    **dict.fromkeys(("repeat", "select", "slice", "split", "split_with_sizes", "squeeze", "stack", "sum"), (0,)),
    **dict.fromkeys(("t", "transpose", "unbind", "unfold", "unsqueeze", "view"), (0,)),
    **dict.fromkeys(("copy", "select_scatter", "slice_scatter"), (0, 1)),
    **dict.fromkeys(("constant_pad_nd", "index_put", "masked_fill"), (0, 2)),
    **dict.fromkeys(("scatter", "scatter_add"), (0, 3)),
    "where": (1, 2),
}


@pair_rule(*OF_PARTS)
def _of_parts(node: AtenNode, *given: Any, **options: Any) -> Any:
    """Applies the op to all real parts, and to all imaginary ones."""
    if not _gives_complex(node) or isinstance(given[-1], torch.dtype):
        node.fail("a complex tensor is used as a real tensor", hint=BY_PARTS)
    halves = [_half(node, given, number, options) for number in range(2)]
    made: Any = node.node.meta["val"]
    if not isinstance(made, tuple | list):
        return Pair(*halves)
    return tuple(Pair(*parts) for parts in zip(*(half or [None] * len(made) for half in halves), strict=True))


def _half(node: AtenNode, given: Sequence[Any], number: int, options: dict[str, Any]) -> Any:
    """Applies the op to one part of its operands. None if all of these parts are 0."""
    is_list = node.name in ("cat", "stack")
    places = [place for place in OF_PARTS[node.name] if place < len(given)]
    values, sources = ([each[0]] if is_list else [each[place] for place in places] for each in (given, node.node.args))
    values, sources = (values[0], sources[0]) if is_list else (values, sources)
    parts = [_pair(node, value)[number] for value in values]
    if all(part is None for part in parts):
        return None
    pairs = zip(parts, sources, strict=True)
    whole = [
        _whole(node, part, node.shape(source.meta["val"])) if isinstance(source, fx.Node) else part or 0.0
        for part, source in pairs
    ]
    named = {0: whole} if is_list else dict(zip(places, whole, strict=True))
    return RULES[node.name](node, *(named.get(place, value) for place, value in enumerate(given)), **options)


# Functions


def _size(node: AtenNode, x: Pair) -> Blob:
    """The absolute value. Its gradient at 0 is 0."""
    return hypotenuse(*_blobs(node, x), root_of)


def _angle(node: AtenNode, x: Pair) -> Blob:
    """The angle of the node's first argument."""
    is_number = not isinstance(node.node.args[0], fx.Node)
    re, im = _blobs(node, x) if is_number else (_whole(node, part, node.shape_of(0)) for part in x)
    return RULES["atan2"](node, im, re)


def _turned(size: Any, angle: Part) -> Pair:
    """The complex number with this absolute value and angle."""
    return Pair(size, None) if angle is None else Pair(size * ro.cos(angle), size * ro.sin(angle))


def _exp(node: AtenNode, x: Pair) -> Pair:
    return _turned(1.0 if x.re is None else ro.exp(x.re), x.im)


def _log(node: AtenNode, x: Pair, root: Callable[[Blob], Blob] = ro.sqrt) -> Pair:
    """The logarithm. Its gradient at 0 is NaN, unless `root` has a gradient there."""
    return Pair(ro.log(hypotenuse(*_blobs(node, x), root)), _angle(node, x))


def _sqrt(node: AtenNode, x: Pair) -> Pair:
    return _turned(ro.sqrt(hypotenuse(*_blobs(node, x))), _angle(node, x) * 0.5)


def _sgn(node: AtenNode, x: Pair) -> Pair:
    size = _size(node, x)
    none = ro.equal(size, 0.0)
    size = ro.where(none, 1.0, size)
    return Pair(*(ro.where(none, 0.0, part / size) for part in _blobs(node, x)))


def _cosh(node: AtenNode, x: Pair) -> Pair:
    re, im = _blobs(node, x)
    return Pair(ro.cosh(re) * ro.cos(im), ro.sinh(re) * ro.sin(im))


def _sinh(node: AtenNode, x: Pair) -> Pair:
    re, im = _blobs(node, x)
    return Pair(ro.sinh(re) * ro.cos(im), ro.cosh(re) * ro.sin(im))


def _sin(node: AtenNode, x: Pair) -> Pair:
    re, im = _sinh(node, Pair(_negative(x.im), x.re))
    return Pair(im, ro.neg(re))


def _tanh(node: AtenNode, x: Pair) -> Pair:
    """Made from tangents of both parts, which do not overflow."""
    re, im = _blobs(node, x)
    t, b = ro.tanh(re), ro.tan(im)
    below = (t * b) * (t * b) + 1.0
    return Pair(t * (b * b + 1.0) / below, b * (1.0 - t * t) / below)


def _sigmoid(node: AtenNode, x: Pair) -> Pair:
    re, im = _tanh(node, Pair(*(part * 0.5 for part in _blobs(node, x))))
    return Pair(re * 0.5 + 0.5, im * 0.5)


FUNCTIONS: dict[str, Callable[[AtenNode, Pair], Any]] = {
    "abs": _size, "angle": _angle, "exp": _exp, "log": _log, "sgn": _sgn, "sqrt": _sqrt, "cosh": _cosh, "sinh": _sinh,
    "sin": _sin, "tanh": _tanh, "sigmoid": _sigmoid,
    "cos": lambda node, x: _cosh(node, Pair(_negative(x.im), x.re)),
    "rsqrt": lambda node, x: _quotient(node, Pair(1.0, None), _sqrt(node, x)),
}  # fmt: skip


@pair_rule(*FUNCTIONS)
def _of_elements(node: AtenNode, x: Any) -> Any:
    return FUNCTIONS[node.name](node, _pair(node, x))


@pair_rule("pow")
def _pow(node: AtenNode, x: Any, power: Any) -> Pair:
    """Multiplies factors for whole exponents. Other exponents go by the logarithm."""
    x = _pair(node, x)
    if isinstance(power, int | float) and power == 0:
        return Pair(node.full(1.0, node.out_shape, "float"), None)
    if not isinstance(power, int | float) or not 0 < abs(power) <= LARGEST_POWER or power != int(power):
        root = ro.sqrt if isinstance(power, float) and power < 1 else root_of
        return _exp(node, _product(_pair(node, power), _log(node, x, root)))
    made = x
    for digit in f"{abs(int(power)):b}"[1:]:
        made = _product(made, made)
        made = _product(made, x) if digit == "1" else made
    return _quotient(node, Pair(1.0, None), made) if power < 0 else made


@pair_rule("var")
def _var(node: AtenNode, x: Pair, *given: Any, **options: Any) -> Blob:
    return _sum(*(None if part is None else RULES["var"](node, part, *given, **options) for part in x))


PAIR_RULES["linalg_vector_norm"] = lambda node, x, *given, **options: RULES[node.name](
    node, _size(node, x), *given, **options
)


@pair_rule("eq", "ne")
def _equal(node: AtenNode, a: Any, b: Any) -> Blob:
    (re, im), (other_re, other_im) = _blobs(node, a), _blobs(node, b)
    same = ro.equal(re, other_re) & ro.equal(im, other_im)
    return same if node.name == "eq" else ~same


@pair_rule("isnan", "isinf")
def _isnan(node: AtenNode, x: Any) -> Blob:
    re, im = (RULES[node.name](node, part) for part in _blobs(node, x))
    return re | im
