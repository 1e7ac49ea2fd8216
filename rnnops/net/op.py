"""The immutable values that a net is made of: Op and Input, their names, initializers and `init_params`.

Names are prefixed by the scopes that are open when they are given.

A parameter starts from a kind with numbers, from an array, or from a function of the shape. The text of a net holds
only a digest of an array with more than `WHOLE` numbers, and only the name of a function. A net that is read from such
a text runs, but cannot draw these parameters: `init_params` raises an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import Parameter, signature
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnops.errors import FeedError, NetError, named_arguments, op_label
from rnnops.net.schema import REQUIRED, schema_of
from rnnops.sizes import whole
from rnnops.templates import Shared
from rnnops.types import FLOAT, Array, Shape
from rnnops.util import LazyModule, cached_property

if TYPE_CHECKING:
    from rnnops.net.net import Net

hashlib = LazyModule("hashlib")  # needed for initial values only
_PREFIX: ContextVar[str] = ContextVar("rnnops_name_scope", default="")


@contextmanager
def name_scope(name: str) -> Iterator[str]:
    """Puts `<name>/` before names inside of the `with`, both given and made-up ones. Scopes nest.

    Only scopes that are opened after a net was made apply to it. So a cell that is written in a scope has names without
    prefix.

    Args:
        name: a non-empty string; slashes at its ends are left out.

    Yields:
        The whole prefix, including outer scopes.

    Raises:
        NetError: the name is empty or not a string.

    Example:
        >>> net = ro.Net("n")
        >>> with ro.name_scope("encoder") as prefix:
        ...     x = net.input("x")
        >>> prefix, x.name
        ('encoder/', 'encoder/x')
    """
    if not isinstance(name, str) or not name.strip("/"):
        raise NetError("a name scope needs a name", wanted="a non-empty string", came=repr(name))
    token = _PREFIX.set(scoped(name.strip("/")) + "/")
    try:
        yield _PREFIX.get()
    finally:
        _PREFIX.reset(token)


@contextmanager
def absolute_names() -> Iterator[None]:
    """Switches scopes off: inside, names are taken as they are. Parameters of cells have absolute names."""
    token = _PREFIX.set("")
    try:
        yield
    finally:
        _PREFIX.reset(token)


def scoped(name: str) -> str:
    """`name` with the prefix of the open scopes."""
    return _PREFIX.get() + name


def check_name(name: object, kind: str, net: str | None = None) -> str:
    """Returns the name.

    It must be a non-empty printable string without blanks at its ends, quotes or control characters.
    """
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable() or '"' in name:
        raise NetError(f"not a name for a {kind}", net=net, wanted="a non-empty printable string", came=repr(name))
    return name


def dotted(name: str) -> str:
    """A name with dots: `encoder/layer_0/gates_t_w` -> `encoder.layer_0.gates_t_w`."""
    return name.replace("/", ".")


def unused_name(name: str, taken: Container[str]) -> str:
    """The name, with a number added if it is taken."""
    return next(free for free in chain([name], (f"{name}_{k}" for k in count(1))) if free not in taken)


def free_name(name: str, taken: set[str]) -> str:
    """The name, with a number added if it is taken. The result is taken from then on."""
    found = unused_name(name, taken)
    taken.add(found)
    return found


ARGUMENTS = {"zeros": 0, "ones": 0, "constant": 1, "uniform": 2, "normal": 2, "xavier": (0, 1)}
ARRAY, FUNCTION = "array", "function"  # kinds of given values
WANTED = (
    'a number, "zeros", "ones", "xavier", ("uniform", low, high), ("normal", mean, deviation), an array, '
    "or a function of the shape"
)
WHOLE = 64  # most numbers of an array that the text of a net holds


@dataclass(frozen=True, eq=False)
class Initializer(Shared):
    """A kind from `ARGUMENTS` with its numbers, or a given array or function.

    Args:
        kind: from `ARGUMENTS`, or `ARRAY` or `FUNCTION`.
        numbers: arguments of a kind from `ARGUMENTS`.
        given: a locked array, or a function. If the net was read from text, their text.
    """

    kind: str
    numbers: tuple[float, ...] = ()
    given: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Initializer) or (self.kind, self.numbers) != (other.kind, other.numbers):
            return False
        return _is_same(self.given, other.given)

    def __hash__(self) -> int:
        return hash((self.kind, self.numbers))

    def __deepcopy__(self, memo: object) -> Initializer:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """In a pickle a function is replaced by its text."""
        return Initializer, (self.kind, self.numbers, self.text if self.kind == FUNCTION else self.given)

    @cached_property
    def text(self) -> str:
        """The text of the initializer in the text of a net."""
        if isinstance(self.given, str):
            return self.given
        if self.kind == FUNCTION:
            return f"({FUNCTION}, {format_value(_name(self.given))})"
        if self.kind == ARRAY:
            return format_value(self.given) if self.given.size <= WHOLE else _digested(self.given)
        numbers = [format_value(float(number)) for number in self.numbers]
        return f"({', '.join([self.kind, *numbers])})" if numbers else self.kind

    def array(self, shape: Shape, generator: np.random.Generator) -> Array:
        """An array of this shape in float64. Functions are not handled here."""
        if self.kind == ARRAY:
            return np.broadcast_to(self.given, shape).astype(float, order="C")
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


def _is_same(one: Any, other: Any) -> bool:
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return one is other or (isinstance(one, str) and isinstance(other, str) and one == other)
    return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _digested(array: Array) -> str:
    digest = hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()[:16]
    return f"{ARRAY}({array.dtype.name}, {list(array.shape)}, {format_value(digest)})"


def as_initializer(init: object, net: str, name: str, shape: Shape = ()) -> Initializer:
    """Reads the `init` that a user gave for a parameter of this shape. Raises NetError for all other values."""
    if isinstance(init, Initializer):
        return init
    init = init.item() if isinstance(init, np.generic) else init
    if isinstance(init, int | float) and not isinstance(init, bool) and is_a_float(init):
        return _distribution(Initializer("constant", (float(init),)), net, name)
    kind, *numbers = init if isinstance(init, tuple | list) and init else (init,)
    if isinstance(kind, str) and kind in ARGUMENTS and all(map(is_a_float, numbers)):
        wanted = ARGUMENTS[kind]
        if len(numbers) == wanted or (isinstance(wanted, tuple) and len(numbers) in wanted):
            return _distribution(Initializer(kind, tuple(float(number) for number in numbers)), net, name)
    if hasattr(init, "__array__") or (isinstance(init, tuple | list) and init and not isinstance(kind, str)):
        return Initializer(ARRAY, given=_fitting(init, net, name, shape))
    if callable(init):
        return Initializer(FUNCTION, given=init)
    raise NetError("unknown initializer", net=net, blob=name, wanted=WANTED, came=repr(init))


def _distribution(init: Initializer, net: str, name: str) -> Initializer:
    """The initializer itself. Raises NetError if its numbers do not make a distribution."""
    numbers = init.numbers
    wrong = any(map(math.isnan, numbers)) or (init.kind != "constant" and not all(map(math.isfinite, numbers)))
    wrong = wrong or (init.kind == "uniform" and numbers[0] > numbers[1])
    wrong = wrong or (init.kind == "normal" and numbers[1] < 0)
    if wrong or (init.kind == "xavier" and min(numbers, default=1) <= 0):
        raise NetError("its numbers do not fit the distribution", net=net, blob=name, came=(init.kind, *numbers))
    return init


def _fitting(init: Any, net: str, name: str, shape: Shape) -> Array:
    """A copy of an array that broadcasts to the shape. Raises NetError for other arrays."""
    values = _numbers(init, net, name)
    try:
        np.broadcast_to(values, shape)
    except ValueError as error:
        wanted, came = list(shape), list(values.shape)
        problem, hint = "an initial array has another shape", "NumPy has to broadcast it to the parameter's shape."
        raise NetError(problem, net=net, blob=name, wanted=wanted, came=came, hint=hint) from error
    array: Array = plain_value(values)
    return array


def _numbers(init: Any, net: str, name: str) -> Array:
    """Initial values as an array. Raises NetError for values that are not an array of numbers, and for NaN."""
    try:
        values = np.asarray(init)
    except Exception as error:  # another library may raise any error
        raise NetError(f"initial values are not an array: {error}", net=net, blob=name) from error
    if values.dtype.kind == "c":
        hint = "Make two parameters, of the real and the imaginary parts: values.real and values.imag."
        raise NetError("initial values are complex", net=net, blob=name, wanted="floats", came=values.dtype, hint=hint)
    if values.dtype.kind not in "biuf" or values.dtype.itemsize > 8 or isinstance(init, np.ma.MaskedArray):
        came = f"{type(init).__name__} of {values.dtype}"
        raise NetError("initial values are not numbers", net=net, blob=name, wanted="an array of floats", came=came)
    lost = np.argwhere(np.isnan(values))
    if len(lost):
        came = f"{len(lost)} NaN of {values.size} values, the first at {lost[0].tolist()}"
        raise NetError("initial values are not numbers", net=net, blob=name, wanted="no NaN", came=came)
    return values


@named_arguments
def init_params(net: Net, seed: int, dtype: object = "float32") -> dict[str, Array]:
    """Start values of all parameters of a net.

    Each array depends only on seed and name, not on order or other parameters.

    Args:
        net: the net whose `net.parameters` are made. Those of its cells are among them.
        seed: an integer of 0 or more.
        dtype: float32 or float64. float64 values are drawn and rounded.

    Returns:
        Parameter name -> array of its shape.

    Raises:
        NetError: net is not a net. Or a function fails, or returns values that are not numbers of the shape. Or the net
            was read from text, which does not hold the array or function.
        FeedError: dtype is not a float dtype, seed is wrong, or values are too large for the dtype.

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
        raise FeedError("parameters must be floats", net=net.name, wanted="float32 or float64", came=dtype)
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise FeedError("not a seed", net=net.name, wanted="an integer of 0 or more", came=repr(seed))
    return {spec.name: _rounded(_start(spec, net.name, int(seed)), dtype, spec, net.name) for spec in net.parameters}


def _start(spec: Input, net: str, seed: int) -> Array:
    """The values of a parameter, in float64 or as its function made them. Raises NetError if they are not known."""
    initializer, shape, generator = spec.initializer, spec.shape or (), _generator(seed, spec.name)
    assert initializer is not None
    if isinstance(initializer.given, str):
        hint = "Feed its array, declare the parameter again with init=, or load what a model has saved."
        problem = f"the text of a net does not hold these initial values, {initializer.given}"
        raise NetError(problem, net=net, blob=spec.name, hint=hint)
    if initializer.kind != FUNCTION:
        return initializer.array(shape, generator)
    try:
        made = initializer.given(*([shape, generator] if _takes_two(initializer.given) else [shape]))
    except Exception as error:
        problem = f"the function of its initial values fails with {type(error).__name__}: {error}"
        raise NetError(problem, net=net, blob=spec.name, wanted="function(shape) or function(shape, rng)") from error
    values = _numbers(made, net, spec.name)
    if values.shape != shape:
        hint = "np.broadcast_to(values, shape) repeats values."
        problem = "the function of its initial values returns another shape"
        raise NetError(problem, net=net, blob=spec.name, wanted=list(shape), came=list(values.shape), hint=hint)
    return values


def _takes_two(function: Callable[..., Any]) -> bool:
    """True if a second argument must be given. np.zeros has a second one that may be left out."""
    try:
        given = signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in places and one.default is Parameter.empty for one in given) > 1


def _rounded(values: Array, dtype: Any, spec: Input, net: str) -> Array:
    """A copy in a dtype. Raises FeedError if a finite number does not fit it."""
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype, order="C")
    if np.any(np.isinf(rounded) & np.isfinite(values)):
        came = f"{np.abs(values[np.isfinite(values)]).max():.3g}"
        raise FeedError("initial values do not fit the dtype", net=net, blob=spec.name, wanted=dtype, came=came)
    return rounded


def _is_float_dtype(dtype: object) -> bool:
    if not isinstance(dtype, str | type | np.dtype):
        return False  # NumPy would look for an attribute `dtype` on any other object
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
        inputs: names of blobs, `""` for an optional input that is left out.
        outputs: names of blobs, `""` for an output that is not wanted.
        attributes: by name, without default values.
        layer: the layer to which it belongs, `""` for none.

    Attributes:
        memory: the last results of `infer.py` for this op. Passes make nets of the same ops again and again.
    """

    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    layer: str = ""
    memory: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """The name of the first output that has one. It is unique in a net."""
        for name in self.outputs:  # twice as fast as `next`, and passes ask for it again and again
            if name:
                return name
        return ""

    @property
    def holds_net(self) -> bool:
        """True if an attribute is a net, as in a recurrence or in fused ops."""
        return any(is_net(value) for value in self.attributes.values())

    @property
    def label(self) -> str:
        """The op's name in errors: `Add -> gates`."""
        return op_label(self.type, self.outputs)


@dataclass(frozen=True)
class Input:
    """An input of a net. It is a parameter if it has an initializer, and then has a shape.

    Args:
        name: key of its feed in a run.
        dtype: `"float"` for the float dtype of the run, or a fixed one.
        shape: sizes that feeds must have. None for any.
        initializer: None if it is not a parameter.
        fixed: axis -> size, for a file that fixes some axes and leaves others open. Errors show it, text does not.
    """

    name: str
    dtype: str = FLOAT
    shape: Shape | None = None
    initializer: Initializer | None = None
    fixed: Mapping[int, int] = field(default_factory=dict, compare=False)


def is_net(value: object) -> bool:
    """True if an attribute is a net."""
    return hasattr(value, "input_specs") and hasattr(value, "ops")


def format_value(value: Any) -> str:
    """An attribute as text: JSON, with `NaN`/`Infinity`, and arrays as `array(dtype, [shape], [values])`."""
    if isinstance(value, np.ndarray):
        return f"array({value.dtype.name}, {list(value.shape)}, {json.dumps(value.ravel().tolist())})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(format_value, value))}]"
    # escape signs that are not printable: some of them would end the line
    plain = value.item() if isinstance(value, np.generic) else value
    return json.dumps(plain, ensure_ascii=isinstance(plain, str) and not plain.isprintable())


def checked_attributes(op_type: str, attributes: Mapping[str, Any], net: str) -> dict[str, Any]:
    """Attributes as plain values. Raises NetError for an unknown or missing attribute."""
    known = schema_of(op_type).attributes
    given = {name: plain_value(value) for name, value in attributes.items() if value is not None}
    for name in given:
        if name not in known:
            raise NetError(f"unknown attribute '{name}'", net=net, op=op_type, wanted=some_of(known))
    for name, default in known.items():
        if default is REQUIRED and name not in given:
            raise NetError(f"attribute '{name}' is missing", net=net, op=op_type, hint=f"Give {name}=.")
        if isinstance(default, float) and name in given and not is_a_float(given[name]):
            came = repr(given[name])[:40]
            raise NetError(f"attribute '{name}' is not a number that a float holds", net=net, op=op_type, came=came)
    return given


def is_a_float(value: object) -> bool:
    """True if a plain value is a number in the range of floats."""
    if not isinstance(value, int | float):
        return isinstance(value, np.ndarray) and value.ndim == 0
    try:
        return isinstance(float(value), float)
    except OverflowError:
        return False


def check_ports(op: Op, net: str) -> None:
    """Raise NetError for a wrong number of inputs or outputs, or for an output that is written twice."""
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


def checked_shape(shape: object, net: str, name: object) -> Shape:
    """Sizes as a tuple of integers. Raises NetError for all other values."""
    listed = isinstance(shape, Sequence) or (isinstance(shape, np.ndarray) and shape.ndim == 1)
    sizes: list[Any] = list(shape) if listed else [shape]  # type: ignore[call-overload]
    for size in sizes:
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 0:
            wanted, hint = ("integers of 0 or more", "No size can be left open. Leave out shape= for any shape.")
            raise NetError("not a shape", net=net, blob=str(name), wanted=wanted, came=repr(shape), hint=hint)
    return tuple(map(whole, sizes))


def plain_value(value: Any) -> Any:
    """A plain attribute value: NumPy scalars become Python's, lists become tuples, arrays are copied and locked."""
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


def some_of(names: Collection[str]) -> str:
    """`one of a, b, c, ...`, for errors."""
    shown = list(names)[:12]
    return "one of " + ", ".join(shown) + (", ..." if len(names) > len(shown) else "") if shown else "none"
