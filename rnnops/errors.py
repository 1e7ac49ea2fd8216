"""All errors of rnnops have one base class. Functions that check arguments raise them.

Each error names its net, op and blob, what was wanted, what came, and what to do. Checks find misspelt names, unknown
arguments, and flags that are not bools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeVar

import numpy as np

from rnnops.util import LazyModule

difflib = LazyModule("difflib")  # for hints only

if TYPE_CHECKING:
    from rnnops.net.op import Op


class RnnopsError(Exception):
    """Base of all errors that rnnops raises on purpose; each argument is also an attribute of the error.

    Args:
        problem: one sentence on what is wrong.
        net, op, blob: the names that the error is about, if they are known.
        wanted, came: what was expected and what was found.
        hint: what the user can do.

    Example:
        >>> net = ro.Net("n")
        >>> try:
        ...     net.blob("z")
        ... except ro.RnnopsError as error:
        ...     print(type(error).__name__, error.net, error.blob, error.problem)
        NetError n z no such blob
    """

    def __init__(
        self,
        problem: str,
        *,
        net: str | None = None,
        op: str | None = None,
        blob: str | None = None,
        wanted: object = None,
        came: object = None,
        hint: str | None = None,
    ) -> None:
        self.problem, self.net, self.op, self.blob = problem, net, op, blob
        self.wanted, self.came, self.hint = wanted, came, hint
        super().__init__(self._text())

    def again(self) -> RnnopsError:
        """A new error with the same content, to raise an error again that was found earlier."""
        return type(self)(
            self.problem, net=self.net, op=self.op, blob=self.blob, wanted=self.wanted, came=self.came, hint=self.hint
        )

    def _text(self) -> str:
        where = [f"{kind} '{name}'" for kind, name in (("net", self.net), ("op", self.op), ("blob", self.blob)) if name]
        text = f"{', '.join(where)}: {self.problem}" if where else self.problem
        if self.wanted is not None:
            text += f"; wanted {self.wanted}"
        if self.came is not None:
            text += f"; got {self.came}"
        return f"{text}. {self.hint}" if self.hint else text


class NetError(RnnopsError):
    """A net is built wrongly: unknown, duplicate or clashing names, wrong operands or attributes.

    Example:
        >>> ro.Net("n").blob("x")
        Traceback (most recent call last):
            ...
        rnnops.errors.NetError: net 'n', blob 'x': no such blob; wanted none
    """


class OpError(RnnopsError):
    """An op is declared wrongly, or behaves differently from its declaration. For authors of ops.

    Example:
        >>> from rnnops.net.schema import OpSchema, register
        >>> class Square(OpSchema):
        ...     loop = "x * x"
        >>> register(Square())
        Traceback (most recent call last):
            ...
        rnnops.errors.OpError: op 'Square': it has no rule `shapes`; wanted a method `shapes(self, call, ...)`. ...
    """


OWN_ERRORS = (RnnopsError, MemoryError)  # these texts need no name of a rule


def failed_rule(rule: str, error: Exception, net: str, op: str) -> OpError:
    """The error that names the rule which raised `error`."""
    return OpError(f"its rule `{rule}` fails with {type(error).__name__}: {error}", net=net, op=op)


class NamedRule:
    """Turns an exception of an op's rule into an OpError that names net, op and rule. Errors of rnnops pass unchanged.

    A class is faster here than a generator, and every call of a rule runs in one. The op's label is made only for
    errors.
    """

    def __init__(self, rule: str, net: str, op: Op) -> None:
        self.rule, self.net, self.op = rule, net, op

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, OWN_ERRORS):
            raise failed_rule(self.rule, error, self.net, self.op.label) from error


class TypeRuleError(RnnopsError):
    """Shapes or dtypes do not fit an op. Dtypes are checked when the op is called, shapes when they are known.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=a + b)
        >>> ro.compile(net)({"a": np.ones(2), "b": np.ones(3)})
        Traceback (most recent call last):
            ...
        rnnops.errors.TypeRuleError: net 'n', op 'Add -> add_0 (a: float64[2], b: float64[3])': operands do not ...
    """


class FeedError(RnnopsError):
    """A run was given wrong arrays: missing, extra, of a wrong rank, size or dtype, or no seed.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=net.input("x", shape=[2]) + 1.0)
        >>> ro.compile(net)({"x": np.ones(3)})
        Traceback (most recent call last):
            ...
        rnnops.errors.FeedError: net 'n', blob 'x': a feed of a wrong shape; wanted [2]; got [3]
    """


class StreamError(RnnopsError):
    """A stream was opened or used wrongly: names, shapes of states, rows that do not exist, two threads.

    Example:
        >>> net = ro.Net("n")
        >>> x, h = net.inputs("x", "h")
        >>> net.outputs(h_last=x + h)
        >>> ro.compile(net).stream({"h_last": "state"})
        Traceback (most recent call last):
            ...
        rnnops.errors.StreamError: net 'n', blob 'state': states= feeds no input of the net; wanted one of x, h
    """


class RecurrentError(RnnopsError):
    """A recurrence was given links, states, sequences or recompute lists that do not fit the cell.

    Example:
        >>> @ro.cell
        ... def add_up(x, h):
        ...     return dict(h=x + h)
        >>> ro.scan(add_up, ro.Net("n").input("xs"))
        Traceback (most recent call last):
            ...
        rnnops.errors.RecurrentError: net 'add_up', blob 'h': a state has no initial value; wanted an array or a ...
    """


class GradientError(RnnopsError):
    """A gradient was asked for where there is none, or a pullback was used wrongly.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=net.input("x") * 2.0)
        >>> out, pullback = ro.compile(net).vjp({"x": np.ones(2)})
        >>> pullback({"z": np.ones(2)})
        Traceback (most recent call last):
            ...
        rnnops.errors.GradientError: net 'n', blob 'z': no float output of this name; wanted one of y
    """


class NumericsError(RnnopsError):
    """A run with `check_numerics=True` made a number that is not finite. Or a matrix has no inverse or factor.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.log(net.input("x")))
        >>> ro.compile(net, check_numerics=True)({"x": np.array([1.0, -1.0])})
        Traceback (most recent call last):
            ...
        rnnops.errors.NumericsError: net 'n', op 'Log -> log_0', blob 'log_0': the first NaN is made here; wanted ...
    """


class CheckpointError(RnnopsError):
    """A checkpoint policy, or an argument of one, is wrong.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=net.input("x") * 2.0)
        >>> ro.compile(net, checkpoints="everything")
        Traceback (most recent call last):
            ...
        rnnops.errors.CheckpointError: net 'n': no such checkpoint policy; wanted None, one of 'all', 'speed', ...
    """


class UnknownCheckpointError(CheckpointError):
    """A checkpoint policy names blobs that do not exist.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.tanh(net.input("x")))
        >>> ro.compile(net, checkpoints=["gates"]).vjp({"x": np.ones(2)})
        Traceback (most recent call last):
            ...
        rnnops.errors.UnknownCheckpointError: net 'n', blob 'gates': checkpoints= names a blob that no op of the ...
    """


class NothingToRecomputeError(CheckpointError):
    """A checkpoint policy was meant to leave blobs to recompute, but leaves none.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.tanh(net.input("x")).named("y"))
        >>> ro.compile(net, checkpoints=["y"]).vjp({"x": np.ones(2)})
        Traceback (most recent call last):
            ...
        rnnops.errors.NothingToRecomputeError: net 'n': checkpoints=y leaves nothing to compute again. Everything ...
    """


class NoBottleneckError(CheckpointError):
    """A net has no blobs at which it can be cut into segments.

    Example:
        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> net.outputs(y=ro.sum(*[ro.tanh(x * k) for k in range(1, 9)]))
        >>> ro.compile(net, checkpoints="memory").vjp({"x": np.ones(2)})
        Traceback (most recent call last):
            ...
        rnnops.errors.NoBottleneckError: net 'n': no bottleneck was found at which the net can be cut. Give the ...
    """


class BudgetError(CheckpointError):
    """No way to run a net backward fits a memory budget.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.exp(ro.tanh(net.input("x"))))
        >>> ro.compile(net, memory_budget=1).vjp({"x": np.ones(8)})
        Traceback (most recent call last):
            ...
        rnnops.errors.BudgetError: net 'n': no way to run backward fits the memory budget; wanted at least 128 ...
    """


class DeviceError(RnnopsError):
    """A device is unknown or cannot do what was asked.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=net.input("x") * 2.0)
        >>> ro.compile(net, device="tpu")
        Traceback (most recent call last):
            ...
        rnnops.errors.DeviceError: net 'n': no such device; wanted one of reference, cpu, cuda; got 'tpu'. Did ...
    """


class ParseError(RnnopsError):
    """The text of a net cannot be read. `came` is the text at that place.

    Example:
        >>> ro.parse_net("net n(x: flaot)")
        Traceback (most recent call last):
            ...
        rnnops.errors.ParseError: line 1: this cannot be read; wanted float or float32 or float64 or int8 or ...
    """


class OutOfMemoryError(RnnopsError, MemoryError):
    """An array, or a plan, does not fit in memory. It is also a MemoryError of Python.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.expand(net.input("x"), [2**50]))
        >>> ro.compile(net, device="reference")({"x": np.ones(1)})
        Traceback (most recent call last):
            ...
        rnnops.errors.OutOfMemoryError: net 'n', op 'Expand -> expand_0', blob 'expand_0': memory has no room for ...
    """


# words of operating systems
NO_ROOM = ("cannot allocate memory", "failed to map segment", "not enough memory", "out of memory")


def out_of_memory_of(error: Exception, net: str | None, op: str | None = None) -> OutOfMemoryError | None:
    """The error to raise for an error that says that memory ran out. It names the net. None for other errors."""
    if isinstance(error, OutOfMemoryError):
        problem, details = error.problem, {"op": error.op or op, "blob": error.blob, "hint": error.hint}
        found = OutOfMemoryError(problem, net=net, wanted=error.wanted, came=error.came, **details)
        return found if error.net is None and net is not None else error
    said = isinstance(error, OSError | ImportError) and any(words in str(error).lower() for words in NO_ROOM)
    if not isinstance(error, MemoryError) and not said:
        return None
    came = f"{type(error).__name__}: {error}" if str(error) else None
    return OutOfMemoryError("memory has no room for this call", net=net, op=op, came=came, hint=MORE_ROOM)


MORE_ROOM = "Give the process more memory; run.plan(...).memory() shows what each pass needs."


def op_label(op_type: str, outputs: tuple[str, ...]) -> str:
    """`Add -> gates`: the name of an op in errors."""
    return f"{op_type} -> {', '.join(name for name in outputs if name)}"


class UnknownNameError(RnnopsError, AttributeError):
    """An object has no attribute of this name. It is also an AttributeError of Python.

    Example:
        >>> ro.arctan
        Traceback (most recent call last):
            ...
        rnnops.errors.UnknownNameError: rnnops has no 'arctan'. Did you mean atan?
    """


class ArgumentError(RnnopsError, TypeError):
    """A function was called with unknown arguments, or without required ones. It is also a TypeError of Python.

    Example:
        >>> ro.softmax(ro.Net("n").input("x"), dim=1)
        Traceback (most recent call last):
            ...
        rnnops.errors.ArgumentError: Softmax: got an unexpected keyword argument 'dim'; wanted (x, axis). Did you ...
    """


class ModelError(RnnopsError):
    """A model or a layer is built or called wrongly.

    Example:
        >>> ro.model.Dense(-1)
        Traceback (most recent call last):
            ...
        rnnops.errors.ModelError: units of Dense is not a size; wanted an integer of 1 or more; got -1
    """


class OptimizerError(RnnopsError):
    """Settings, parameters, gradients or state of an optimizer do not fit.

    Example:
        >>> ro.model.SGD(-1.0)
        Traceback (most recent call last):
            ...
        rnnops.errors.OptimizerError: the learning_rate of step 0 is out of range; wanted a finite number >= 0; ...
    """


class GradientNormError(OptimizerError):
    """The global gradient norm is not finite.

    Example:
        >>> ro.model.clip_by_global_norm({"w": np.array([1.0, np.nan])}, 1.0)
        Traceback (most recent call last):
            ...
        rnnops.errors.GradientNormError: blob 'w': the gradient norm is not finite; got nan. Use a smaller ...
    """


class SaveError(RnnopsError):
    """A model cannot be saved, or a file does not hold an intact model, or not this one.

    Example:
        >>> class Line(ro.model.Model):
        ...     def __init__(self):
        ...         self.dense = ro.model.Dense(1)
        ...     def forward(self, x):
        ...         return self.dense(x)
        >>> model = Line().compile([np.ones((2, 3), "float32")])
        >>> model.load("no such file")
        Traceback (most recent call last):
            ...
        rnnops.errors.SaveError: no such file does not exist
    """


Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
Settings = TypeVar("Settings", bound=type)
MEANINGS = {  # names of other libraries -> argument here
    "dim": "axis",
    "dims": "axes",
    "keepdim": "keepdims",
    "eps": "epsilon",
    "shapes": "shape",
    "lr": "learning_rate",
}


class OnnxError(RnnopsError):
    """A file is not an ONNX model that rnnops can read, or a net cannot be written as one.

    Example:
        >>> try:
        ...     ro.onnx.load("nowhere.onnx")
        ... except ro.onnx.OnnxError as error:
        ...     print(str(error).split(":")[0])
        nowhere.onnx
    """


class MissingPackageError(OnnxError, ImportError):
    """The package `onnx`, which reads and writes the files, is not installed.

    It is raised by `import rnnops.onnx`, and is also an ImportError.

    Example:
        >>> issubclass(ro.onnx.MissingPackageError, (ro.onnx.OnnxError, ImportError))
        True
    """


def did_you_mean(name: object, known: Iterable[str], meanings: Mapping[str, str] | None = None) -> str | None:
    """A hint for a misspelt name. None if no known name is near.

    Args:
        meanings: names of other libraries -> names here.
    """
    word, names = str(name), list(known)
    lower = {known.lower(): known for known in names}
    found = (meanings or {}).get(word.lower()) or lower.get(word.lower())
    near = [found] if found else [lower[close] for close in difflib.get_close_matches(word.lower(), lower, 1)]
    return f"Did you mean {near[0]}?" if near else None


def is_flag(value: object) -> bool:
    """True for a flag: a bool of Python or NumPy, or the integer 1 or 0."""
    return isinstance(value, bool | np.bool_) or (isinstance(value, int | np.integer) and value in (0, 1))


def check_flags(owner: str, **flags: object) -> None:
    """Raise ArgumentError for flags of `owner` that are not flags. Without this check `"no"` would count as true."""
    for name, value in flags.items():
        if not is_flag(value):
            came = repr(value)[:60]
            raise ArgumentError(f"{owner}: {name}= is neither on nor off", wanted="True or False", came=came)


def named_arguments(
    function: Callable[Parameters, Returned], hints: Mapping[str, str] | None = None
) -> Callable[Parameters, Returned]:
    """Makes an error of a call with unknown arguments. It lists the arguments that the function has.

    Args:
        hints: unknown argument -> what to do.
    """

    @wraps(function)
    def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            check_call(function, args, kwargs, error, hints or {})
            raise

    return called


def named_options(init: Callable[..., None]) -> Callable[..., None]:
    """As `named_arguments`, for an `__init__`. Errors name the class that is made, not its base."""

    @wraps(init)
    def called(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError as error:
            if type(self).__init__ is called:
                check_call(type(self), args, kwargs, error, {})
            raise

    return called


def named_settings(settings: Settings) -> Settings:
    """As `named_options`, a decorator for a class whose `__init__` is generated (a dataclass)."""
    settings.__init__ = named_options(settings.__init__)  # type: ignore[misc]
    return settings


def check_call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    cause: TypeError,
    hints: Mapping[str, str],
) -> None:
    """Raise ArgumentError if arguments do not fit the function. Otherwise the TypeError came from inside it."""
    shape = signature(function)
    try:
        shape.bind(*args, **kwargs)
    except TypeError as error:
        names = [name for name in shape.parameters if name != "self"]
        unknown = [name for name in kwargs if name not in names]
        meanings = {other: here for other, here in MEANINGS.items() if here in names}
        hint = hints.get(unknown[0]) or did_you_mean(unknown[0], names, meanings) if unknown else None
        # an op has its own name, while the function's name would be that of its base
        is_op = function.__name__ == "__call__"
        called = type(args[0]).__name__ if is_op and args else function.__qualname__
        hint = hint or (getattr(args[0], "call_hint", None) if is_op and args else None)
        kinds = {parameter.kind: name for name, parameter in shape.parameters.items()}
        if not unknown and Parameter.VAR_KEYWORD in kinds and any(isinstance(given, Mapping) for given in args):
            hint = hint or f"A dict is unpacked: {function.__name__}(**{kinds[Parameter.VAR_KEYWORD]})."
        raise ArgumentError(f"{called}: {error}", wanted=f"({', '.join(names)})", hint=hint) from cause


class Attributes:
    """A class whose unknown attributes raise errors that suggest near names.

    `_attribute_meanings`: attributes of other libraries -> attributes here.
    """

    __slots__ = ()
    _attribute_meanings: ClassVar[Mapping[str, str]] = {}

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(type(self), name):  # a property lacks another attribute, and its own error names that one
            object.__getattribute__(self, name)
        problem = f"a {type(self).__name__} has no attribute '{name}'"
        if name.startswith("_"):  # Python asks for such attributes before the object has a name
            raise UnknownNameError(problem)
        known = [known for known in dir(type(self)) if not known.startswith("_")]
        hint = did_you_mean(name, known, self._attribute_meanings) or self._attribute_hint(name)
        raise UnknownNameError(problem, hint=hint, **self._place())

    def _place(self) -> dict[str, str]:
        """The net and the blob of this object, for errors.

        It reads attributes by `object.__getattribute__`, because a missing attribute would lead to endless recursion.
        """
        return {}

    def _attribute_hint(self, name: str) -> str | None:
        """A hint for an unknown attribute."""
        return None
