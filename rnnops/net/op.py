"""Op and Input, the immutable values that a net is made of; initializers and `init_params`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnops.arguments import named_arguments
from rnnops.errors import FeedError, NetError, op_label
from rnnops.net.schema import REQUIRED, schema_of
from rnnops.net.text import is_net
from rnnops.symbolic.sizes import whole
from rnnops.types import FLOAT, Array, Shape
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.net.net import Net

hashlib = LazyModule("hashlib")  # for initial values only
ARGUMENTS = {"zeros": 0, "ones": 0, "constant": 1, "uniform": 2, "normal": 2, "xavier": (0, 1)}


@dataclass(frozen=True)
class Initializer:
    """A kind from `ARGUMENTS` with its numbers."""

    kind: str
    numbers: tuple[float, ...] = ()

    def array(self, shape: Shape, generator: np.random.Generator) -> Array:
        """An array of this shape, in float64."""
        if self.kind == "uniform":
            low, high = self.numbers
            return generator.uniform(low, high, shape)
        if self.kind == "normal":
            mean, deviation = self.numbers
            return generator.normal(mean, deviation, shape)
        if self.kind == "xavier":
            fan_in = self.numbers[0] if self.numbers else shape[-1] if shape else 1
            bound = (3.0 / max(fan_in, 1)) ** 0.5
            return generator.uniform(-bound, bound, shape)
        return np.full(shape, {"zeros": 0.0, "ones": 1.0}.get(self.kind, *self.numbers[:1] or (0.0,)))


def as_initializer(init: object, net: str, name: str) -> Initializer:
    """Read what a user gave as `init`: a kind, a number, or a tuple of a kind and its numbers."""
    if isinstance(init, Initializer):
        return init
    if isinstance(init, int | float | np.number) and not isinstance(init, bool):
        return Initializer("constant", (float(init),))
    kind, *numbers = init if isinstance(init, tuple | list) and init else (init,)
    if isinstance(kind, str) and kind in ARGUMENTS and all(isinstance(number, int | float) for number in numbers):
        wanted = ARGUMENTS[kind]
        if len(numbers) == wanted or (isinstance(wanted, tuple) and len(numbers) in wanted):
            return _distribution(Initializer(kind, tuple(float(number) for number in numbers)), net, name)
    wanted = 'a number, "zeros", "ones", "xavier", ("uniform", low, high) or ("normal", mean, deviation)'
    raise NetError("unknown initializer", net=net, blob=name, wanted=wanted, came=repr(init))


def _distribution(init: Initializer, net: str, name: str) -> Initializer:
    """The initializer itself. Raises NetError for numbers that make no distribution."""
    numbers = init.numbers
    wrong = init.kind != "constant" and not all(map(math.isfinite, numbers))
    wrong = wrong or (init.kind == "uniform" and numbers[0] > numbers[1])
    wrong = wrong or (init.kind == "normal" and numbers[1] < 0)
    if wrong or (init.kind == "xavier" and min(numbers, default=1) <= 0):
        raise NetError("an initializer's numbers make no distribution", net=net, blob=name, came=(init.kind, *numbers))
    return init


@named_arguments
def init_params(net: Net, seed: int, dtype: object = "float32") -> dict[str, Array]:
    """Start values of all parameters of a net.

    Each array depends only on seed and name, so neither order nor other parameters matter.

    Args:
        net: whose `net.parameters` are wanted, those of cells in it among them.
        seed: an integer of 0 or more.
        dtype: float32 or float64; the float64 values, rounded.

    Returns:
        Parameter name -> array of its shape.

    Raises:
        NetError: net is not a net.
        FeedError: dtype is not a float, or seed is no such integer.

    Example:
        >>> net = ro.Net("n")
        >>> w = net.parameter("w", [2, 3], ("uniform", -0.1, 0.1))
        >>> ro.init_params(net, seed=0)
        {'w': array([[ 0.0044, -0.0228, -0.0241],
               [-0.0484,  0.0266, -0.0689]], dtype=float32)}
    """
    if not hasattr(net, "parameters"):
        raise NetError("this is not a net", wanted="a ro.Net", came=type(net).__name__)
    if not _is_float_dtype(dtype):
        raise FeedError("parameters are floats", net=net.name, wanted="float32 or float64", came=dtype)
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise FeedError("not a seed", net=net.name, wanted="an integer of 0 or more", came=repr(seed))
    return {
        spec.name: spec.initializer.array(spec.shape or (), _generator(int(seed), spec.name)).astype(dtype)  # type: ignore[call-overload]
        for spec in net.parameters
        if spec.initializer is not None
    }


def _is_float_dtype(dtype: object) -> bool:
    if not isinstance(dtype, str | type | np.dtype):
        return False  # NumPy would look for an attribute `dtype` on anything else
    try:
        return np.dtype(dtype).name in ("float32", "float64")
    except TypeError:
        return False


def _generator(seed: int, name: str) -> np.random.Generator:
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest, dtype=np.uint32)])


@dataclass(frozen=True)
class Op:
    """One use of an op in a net.

    Args:
        type: its ONNX name.
        inputs: names of blobs, `""` for an optional one that is left out.
        outputs: names of blobs, `""` for one that is not wanted.
        attributes: by name, without defaults.
        layer: that it belongs to, `""` for none.

    Attributes:
        memory: what `infer.py` has found of the op last; passes make nets of the same ops again and again.
    """

    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    layer: str = ""
    memory: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """The name of the first output that has one; unique in a net."""
        for name in self.outputs:  # in half the time of `next`: passes ask for it again and again
            if name:
                return name
        return ""

    @property
    def holds_net(self) -> bool:
        """True if an attribute is a net: a recurrence, or fused ops."""
        return any(is_net(value) for value in self.attributes.values())

    @property
    def label(self) -> str:
        """`Add -> gates`, for errors."""
        return op_label(self.type, self.outputs)


@dataclass(frozen=True)
class Input:
    """An input of a net; a parameter where it has an initializer (and then a shape).

    Args:
        name: after which runs are fed.
        dtype: `"float"` for the float dtype of the run, or a fixed one.
        shape: sizes that feeds must have, None for any.
        initializer: how it starts, None for what is not a parameter.
    """

    name: str
    dtype: str = FLOAT
    shape: Shape | None = None
    initializer: Initializer | None = None


def checked_attributes(op_type: str, attributes: Mapping[str, Any], net: str) -> dict[str, Any]:
    """Attributes as plain values. Raises NetError for an unknown or a missing one."""
    known = schema_of(op_type).attributes
    given = {name: plain_value(value) for name, value in attributes.items() if value is not None}
    for name in given:
        if name not in known:
            raise NetError(f"unknown attribute '{name}'", net=net, op=op_type, wanted=some_of(known))
    for name, default in known.items():
        if default is REQUIRED and name not in given:
            raise NetError(f"attribute '{name}' is missing", net=net, op=op_type)
        if isinstance(default, float) and name in given and not is_a_float(given[name]):
            came = repr(given[name])[:40]
            raise NetError(f"attribute '{name}' is not a number of a float's size", net=net, op=op_type, came=came)
    return given


def is_a_float(value: object) -> bool:
    """True if a plain value is a number that a float holds, if rounded."""
    if not isinstance(value, int | float):
        return isinstance(value, np.ndarray) and value.ndim == 0
    try:
        return isinstance(float(value), float)
    except OverflowError:
        return False


def check_ports(op: Op, net: str) -> None:
    """Raise NetError for a wrong number of inputs or outputs, or one written twice."""
    ports = schema_of(op.type).inputs
    least = sum(not port.endswith(("?", "*")) for port in ports)
    most = None if ports and ports[-1].endswith("*") else len(ports)
    if len(op.inputs) < least or (most is not None and len(op.inputs) > most):
        wanted = f"{least}" if least == most else f"{least} to {most}" if most is not None else f"at least {least}"
        raise NetError("wrong number of inputs", net=net, op=op.label, wanted=wanted, came=len(op.inputs))
    if "" in op.inputs[:least]:
        raise NetError(f"input '{ports[op.inputs.index('')]}' is left out", net=net, op=op.label, wanted="a blob")
    count, written = schema_of(op.type).output_count(op.attributes), [name for name in op.outputs if name]
    if len(op.outputs) != count:
        raise NetError("wrong number of outputs", net=net, op=op.label, wanted=count, came=len(op.outputs))
    if len(set(written)) != len(written):
        raise NetError("an op writes a blob twice", net=net, op=op.label)


def checked_shape(shape: object, net: str) -> Shape:
    """Sizes as a tuple of integers. Raises NetError for anything else."""
    listed = isinstance(shape, Sequence) or (isinstance(shape, np.ndarray) and shape.ndim == 1)
    sizes: list[Any] = list(shape) if listed else [shape]  # type: ignore[call-overload]
    for size in sizes:
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 0:
            raise NetError("not a shape", net=net, wanted="integers of 0 or more", came=repr(shape))
    return tuple(map(whole, sizes))


def plain_value(value: Any) -> Any:
    """Attribute values are plain: NumPy scalars become Python's, lists become tuples, arrays are copied and locked."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        value = value.copy()
        value.flags.writeable = False
        return value
    if isinstance(value, list | tuple):
        return tuple(plain_value(item) for item in value)
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, str | int | float) or is_net(value):
        return value
    came = f"{type(value).__name__} {getattr(value, 'dtype', '')}".rstrip()
    raise NetError("an attribute cannot hold this", wanted="numbers, strings, arrays, nets or tuples", came=came)


def some_of(names: Mapping[str, Any]) -> str:
    """`one of a, b, c, ...`, for errors."""
    shown = list(names)[:12]
    return "one of " + ", ".join(shown) + (", ..." if len(names) > len(shown) else "") if shown else "none"
