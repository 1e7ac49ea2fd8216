"""Ops: `OpSchema`, one use of it (`Call`), and the registry of all schemas.

A schema holds everything about an op: ports, attributes, rules for dtypes and shapes, NumPy reference, gradient as ops,
values that backward keeps, and the loop form for compilers. An op without a loop form runs by its reference. The schema
object is also the Python function that appends the op to a net (`ro.sigmoid(x)`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from inspect import Signature, cleandoc, signature
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import numpy as np

from rnnops.errors import (
    GradientError,
    NamedRule,
    NetError,
    OpError,
    TypeRuleError,
    did_you_mean,
    named_arguments,
    op_label,
)
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import LoopForm, check_form, check_op, is_cheap
from rnnops.templates import Shared
from rnnops.types import ANY, BOOL, FLOATS, NUMERIC, Array, Shape, Type, broadcast_shapes

if TYPE_CHECKING:
    from rnnops.net.op import Op

REQUIRED: Any = object()  # default of an attribute that must be given
Result = Array | tuple[Array, ...]
Gradients = Blob | None | Sequence[Blob | None]


@dataclass(frozen=True)
class RunContext:
    """The context of a run, which ops may read.

    Args:
        seed: key of random ops. None if the run has no seed.
        training: True if Dropout is active.
        t: number of the step in a step net, 0 in an outer net. Random numbers depend on it.
        part: if a recurrence runs in parts: the first timestep of this part, and the number of all steps.
        watch: is called for each op that runs by its reference, with its inputs, its results and the step.
    """

    seed: int | None = None
    training: bool = False
    t: int = 0
    part: tuple[int, int] | None = None
    watch: Callable[[Call, Sequence[Any], Sequence[Any], int], None] | None = None

    @property
    def first(self) -> int:
        """The first timestep of this part of a recurrence."""
        return 0 if self.part is None else self.part[0]

    def all_steps(self, steps: int) -> int:
        """The number of all steps of a recurrence. `steps` of them run in this part."""
        return steps if self.part is None else self.part[1]

    def at_step(self, t: int, steps: int) -> RunContext:
        """The context of step t of a recurrence with `steps` steps.

        In a nested recurrence, counting goes on through outer steps.
        """
        return replace(self, t=self.t * self.all_steps(steps) + self.first + t, part=None)


@dataclass(frozen=True)
class Call:
    """One op of a net with the types of its inputs, and the values of those that are known before a run."""

    op: Op
    types: tuple[Type | None, ...]
    values: tuple[Array | None, ...] = ()
    net: str = ""
    output_types: tuple[Type, ...] = field(default=(), compare=False)
    output_values: tuple[Array | None, ...] = field(default=(), compare=False)
    float_dtype: str = "float32"  # the dtype for "float" in this run
    # results that are computed once for the call
    derived: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def shape(self, i: int) -> Shape:
        """Shape of input `i`. It must be given."""
        return self._type(i).shape

    def rank(self, i: int) -> int:
        return len(self.shape(i))

    def dtype(self, i: int) -> str:
        return self._type(i).dtype

    def has(self, i: int) -> bool:
        """True if optional input `i` was given."""
        return i < len(self.op.inputs) and bool(self.op.inputs[i])

    def attr(self, name: str) -> Any:
        """The value of an attribute, or its default."""
        return self.op.attributes.get(name, REGISTRY[self.op.type].attributes.get(name))

    def static(self, name: str, i: int) -> Any:
        """An input that holds sizes: attribute `name`, or else input `i`. It must be known. None if neither is set."""
        if name in self.op.attributes:
            return self.op.attributes[name]
        if not self.has(i):
            return None
        if i < len(self.values) and self.values[i] is not None:
            value: Any = self.values[i]
            return value.tolist()
        problem = f"input '{name}' decides a shape, so its value must be constant once shapes are known"
        hint = "Give it as a Python value, or compute it from Shape and constants."
        self.fail(problem, blob=self.op.inputs[i], hint=hint)

    def axis(self, value: int, rank: int) -> int:
        """The axis counted from the front. Raises TypeRuleError if it is out of range."""
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail("an axis is not an integer", came=repr(value))
        if not -rank <= value < rank:
            self.fail("axis out of range", wanted=f"{-rank} to {rank - 1}", came=value)
        return value % rank

    def axes(self, values: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axes counted from the front, in the given order, without repetitions."""
        if not isinstance(values, tuple | list):
            self.fail("axes are not a list of integers", came=repr(values))
        result = tuple(self.axis(value, rank) for value in values)
        if len(set(result)) != len(result):
            self.fail("an axis is named twice", came=list(values))
        return result

    def broadcast(self, *shapes: Shape) -> Shape:
        """The common shape of operands. Raises TypeRuleError if they do not broadcast."""
        result = broadcast_shapes(shapes)
        if result is None:
            self.fail("operands do not broadcast", came=" and ".join(str(list(shape)) for shape in shapes))
        return result

    def fail(self, problem: str, blob: str | None = None, **details: Any) -> NoReturn:
        """Raise a TypeRuleError that names net, op and blob."""
        inputs = ", ".join(
            f"{name}: {kind}" for name, kind in zip(self.op.inputs, self.types, strict=False) if kind is not None
        )
        label = op_label(self.op.type, self.op.outputs) + (f" ({inputs})" if inputs else "")
        raise TypeRuleError(problem, net=self.net, op=label, blob=blob, **details)

    def _type(self, i: int) -> Type:
        kind = self.types[i] if i < len(self.types) else None
        if kind is None:
            self.fail(f"input {i} is missing")
        return kind


class OpSchema(Shared):
    """Base of all ops. A subclass is one op. Its instance is callable and appends the op to a net.

    A port's name ends in `?` if it is optional, and in `*` if it takes any number (only the last may). Once registered,
    an instance has the docstring of its class, so that `help` shows it like a function's. Sections that the class
    leaves out come from its bases.
    """

    __name__: str  # name of the Python function
    inputs: ClassVar[tuple[str, ...]] = ("X",)
    outputs: ClassVar[tuple[str, ...]] = ("Y",)
    attributes: ClassVar[Mapping[str, Any]] = {}  # name -> default, or REQUIRED
    accepts: ClassVar[tuple[str, ...]] = ANY  # dtypes of the inputs that share one dtype
    same_dtype: ClassVar[tuple[int, ...] | None] = None  # numbers of inputs that share one dtype; None: all of them
    keeps: ClassVar[tuple[str, ...]] = ()  # ports whose values `gradient` may read
    static: ClassVar[tuple[str, ...]] = ()  # inputs that decide shapes: their values must be known before a run
    differentiable: ClassVar[bool] = True  # False: gradients stop here
    broadcasts: ClassVar[bool] = False  # autodiff sums gradients down to the inputs' shapes
    optional_grads: ClassVar[bool] = False  # `gradient` accepts None for an output that gets no gradient
    may_omit_outputs: ClassVar[bool] = False  # unread outputs may be left out
    uses_context: ClassVar[bool] = False  # `reference` takes `context=RunContext`
    random: ClassVar[bool] = False
    call_hint: ClassVar[str | None] = None  # hint for a call with wrong arguments
    internal: ClassVar[bool] = False  # not in ONNX: rnnops makes it itself
    loop: ClassVar[LoopForm | None] = None  # None: the op runs by its reference on every device

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__call__" in vars(cls):
            setattr(cls, "__call__", named_arguments(vars(cls)["__call__"]))  # noqa: B010 - mypy wants it

    @property
    def name(self) -> str:
        """The ONNX op name."""
        return type(self).__name__

    def __repr__(self) -> str:
        called = ""
        if callable(self):
            plain = [one.replace(annotation=one.empty) for one in signature(self).parameters.values()]
            called = f": {getattr(self, '__name__', self.name)}{Signature(plain)}"
        return f"<op {self.name}{called}>"

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        """Dtypes of the outputs for those of the inputs. By default all have the first input's dtype."""
        return (dtypes[0] or "",) * self.output_count(attributes)

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        """The number of outputs of an op with these attributes."""
        return len(self.outputs)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        """Shapes of the outputs. Raises TypeRuleError if the inputs do not fit."""
        raise NotImplementedError(self.name)

    def reference(self, call: Call, *arrays: Any, **context: Any) -> Result:
        """The meaning of the op, in NumPy. Returns one array, or a tuple for several outputs.

        Inputs must not be changed.
        """
        raise NotImplementedError(self.name)

    def gradient(self, call: Call, *blobs: Any, **more: Any) -> Gradients:
        """Gradients of the inputs, as ops. Arguments are the inputs, the outputs, then the gradients of outputs."""
        return no_gradient(self, call)

    def draws(self, op: Op, training: bool) -> bool:
        """True if a random op draws numbers. Dropout does in training, if its ratio is above 0."""
        return self.random

    def known_value(self, call: Call) -> Array | None:
        """The output's value if only types and attributes decide it (Constant, Shape). Else None."""
        return None

    def loop_form(self, call: Call) -> LoopForm | None:
        """The loop form for this call, for ops whose form depends on the call. `form_of(call)` reads it."""
        return self.loop

    def reduced_axes(self, call: Call) -> tuple[int, ...]:
        """The axes of the first input that are folded, for the loop form `Reduction`.

        The result has the other axes in order. Folded axes may stay with size 1.
        """
        raise NotImplementedError(self.name)

    def is_cheap(self, call: Call) -> bool:
        """True if computing the call again in the backward pass costs no more than reading and writing its operands."""
        return is_cheap(form_of(call))

    def replay(self, op: Op) -> Op | None:
        """A cheap op that makes the first output again, from the inputs and the op's other (small) outputs."""
        return None

    def outputs_without_grads(self, op: Op) -> Sequence[str]:
        """Names of float outputs that must not get a gradient."""
        return ()

    def check(self, op: Op, net: str) -> None:
        """Raise an RnnopsError if attributes that came from text do not fit each other."""

    def notes(self, op: Op) -> Sequence[str]:
        """Comment lines for this op in the text of a net."""
        return ()

    def types_within(self, call: Call) -> Mapping[str, Type]:
        """Types of the blobs in one step of the net that the op holds. Empty if the op does not hold a net."""
        return {}

    def expand(self, call: Call, *blobs: Any, **more: Any) -> Blob | tuple[Blob, ...]:
        """The op as simpler ops, for loop form `Expansion`."""
        raise NotImplementedError(self.name)


def is_ours(schema: OpSchema) -> bool:
    """True if an op belongs to rnnops, not to a user."""
    return type(schema).__module__.startswith("rnnops.")


class NotKept:
    """Replaces a value that an op did not list in `keeps`. Any use of it is an error."""

    def __init__(self, call: Call, port: str) -> None:
        self._call, self._port = call, port

    def _refuse(self, *others: Any) -> NoReturn:
        problem = f"the gradient rule reads '{self._port}', which the op does not list in `keeps`"
        raise GradientError(problem, net=self._call.net, op=self._call.op.label)

    __getattr__ = __neg__ = __abs__ = _refuse
    __add__ = __sub__ = __mul__ = __truediv__ = __pow__ = __matmul__ = __getitem__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __rmatmul__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse


def no_gradient(schema: OpSchema, call: Call, *blobs: Any, **more: Any) -> Gradients:
    """The gradient rule of ops without a gradient for which asking for one is an error."""
    raise GradientError("this op has no gradient", net=call.net, op=op_label(schema.name, call.op.outputs))


SECTIONS = ("Args", "Returns", "Raises", "Example")  # headings of docstrings, in this order
HEADING = re.compile(rf"^({'|'.join(SECTIONS)}):\n", re.M)
KINDS = {FLOATS: "float", NUMERIC: "float or integer", (BOOL,): "bool", ANY: "any dtype"}


@cache
def sections_of(doc: str) -> dict[str, str]:
    """The parts of a docstring by their headings. The heading of the first part is empty."""
    first, *parts = HEADING.split(cleandoc(doc))
    return {"": first.strip(), **dict(zip(parts[::2], map(str.rstrip, parts[1::2]), strict=True))}


def docstring(sections: Mapping[str, str]) -> str:
    """A docstring from parts as in `sections_of`. Empty parts are left out."""
    parts = [sections[""], *(f"{heading}:\n{sections[heading]}" for heading in SECTIONS if sections.get(heading))]
    return "\n\n".join(parts)


def docstring_of(schema: OpSchema) -> str:
    """The docstring of an op. Sections Args, Returns and Raises that a public op leaves out come from its bases.

    In these, `{dtypes}` stands for the dtypes that the op accepts.
    """
    if schema.internal or not type(schema).__doc__:
        return cleandoc(type(schema).__doc__ or "")
    told = {"Example": "", **sections_of(type(schema).__doc__ or "")}
    for base in type(schema).__mro__[1:]:
        told = {**sections_of(vars(base).get("__doc__") or ""), **told}
    return docstring(told).replace("{dtypes}", KINDS.get(schema.accepts, " or ".join(schema.accepts)))


REGISTRY: dict[str, OpSchema] = {}
Schema = TypeVar("Schema", bound=OpSchema)


def register(schema: Schema) -> Schema:
    """Adds an op to the registry and returns it, so that `sigmoid = register(Sigmoid())` is also the Python function.

    Raises OpError if the class lacks a part (`rnnops.net.loop_forms`), or its name is taken.
    """
    if not isinstance(schema, OpSchema):
        raise OpError("only ops can be registered", wanted="an instance of a subclass of OpSchema", came=repr(schema))
    if schema.name in REGISTRY:
        raise OpError("an op of this name is registered already", op=schema.name, hint="Give the class another name.")
    check_op(schema, OpSchema)
    schema.__name__, schema.__doc__ = schema.name, docstring_of(schema)
    REGISTRY[schema.name] = schema
    return schema


def schema_of(op_type: str, net: str | None = None) -> OpSchema:
    """Finds an op by its ONNX name. Raises NetError for an unknown name."""
    if not isinstance(op_type, str) or op_type not in REGISTRY:
        near = did_you_mean(op_type, REGISTRY)
        hint = near or "ro.op_names() lists the ops there are."
        raise NetError("unknown op", net=net, op=str(op_type), hint=hint)
    return REGISTRY[op_type]


def form_of(call: Call) -> LoopForm | None:
    """The loop form of a call. None for an op that runs by its reference.

    Raises OpError for a form that was made for this call and that compilers cannot follow.
    """
    if "form" not in call.derived:
        schema = schema_of(call.op.type, call.net)
        with NamedRule("loop_form", call.net, call.op):
            form = schema.loop_form(call)
        if form is not None and form is not schema.loop:
            given = frozenset(i for i, name in enumerate(call.op.inputs) if name)
            numbers = frozenset(name for name in schema.attributes if is_number(call.attr(name)))
            try:
                check_form(schema, form, OpSchema, given, numbers)
            except OpError as error:
                hint = error.hint
                raise OpError(error.problem, net=call.net, op=call.op.label, came=error.came, hint=hint) from None
        call.derived["form"] = form
    found: LoopForm | None = call.derived["form"]
    return found


def is_number(value: object) -> bool:
    """True if an attribute is a number, or an array without axes."""
    return isinstance(value, int | float | np.ndarray) and np.ndim(value) == 0


def op_names() -> list[str]:
    """Names of all ops as in ONNX and in printed nets, including those that users registered.

    Returns:
        Sorted names. For most of them `ro.<name>` is the function, in small letters and with underscores.

    Example:
        >>> ro.op_names()[:3]
        ['Abs', 'Add', 'And']
    """
    return sorted(name for name, schema in REGISTRY.items() if not schema.internal)
