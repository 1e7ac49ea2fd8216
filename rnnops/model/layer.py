"""Layers, arguments of a model's functions, and these functions as nets.

**Arguments** of functions are nested structures of arrays, blobs or placeholders (`leaves`, `Arguments`).

**A layer** (`Layer`) appends ops to a net, with parameters under its own name. It holds settings and other layers,
never arrays. A model keeps the arrays by name. So one layer can be written into any number of nets, and can belong to
several models. In a model, the name of a layer is that of the attribute where it was found when the model was compiled:
`encoder`, `blocks/0/dense`.

**Tracing** (`TracedFunction`) makes a net of a function of blobs, by one call with blobs of known sizes. Inputs have
the names of the function's arguments. Outputs are `output`, or `output_0`, `output_1`, ... in the order of the returned
structure. The net holds for all sizes for which the function writes the same ops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from inspect import BoundArguments, Parameter, Signature, signature
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnops.cells.base import parameter
from rnnops.compiler import PlannedRun, Run, compile as compile_net
from rnnops.compiler.run.pipeline import PlanCache
from rnnops.errors import Attributes, ModelError, named_options
from rnnops.interpreter import first_live_random_op
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.net.op import check_name
from rnnops.types import FLOAT, Array, Shape, Type, dtype_name, is_float
from rnnops.util import cached_property


def leaves(structure: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The leaves of a structure with their names: `name`, followed by `_<index or key>` for each level."""
    if isinstance(structure, dict | list | tuple):
        for key, part in _parts(structure):
            yield from leaves(part, f"{name}_{key}")
    else:
        yield name, structure


def mapped(structure: Any, function: Callable[[str, Any], Any], name: str) -> Any:
    """A structure of the same kind with `function(name, leaf)` in place of each leaf; names as in `leaves`."""
    if not isinstance(structure, dict | list | tuple):
        return function(name, structure)
    parts = [(key, mapped(part, function, f"{name}_{key}")) for key, part in _parts(structure)]
    if isinstance(structure, dict):
        return dict(parts)
    values = [part for _, part in parts]
    return structure._make(values) if hasattr(structure, "_make") else type(structure)(values)


def form_of(structure: Any, describe: Callable[[str, Any], object], name: str) -> object:
    """A key that is equal for structures of the same kind. A leaf is `describe(name, leaf)` in it; None is None."""
    if not isinstance(structure, dict | list | tuple):
        return None if structure is None else describe(name, structure)
    parts = [(key, form_of(part, describe, f"{name}_{key}")) for key, part in _parts(structure)]
    return (type(structure), *parts)


def _parts(structure: Any) -> Iterator[tuple[Any, Any]]:
    yield from structure.items() if isinstance(structure, dict) else enumerate(structure)


class Placeholder:
    """The shape and dtype of an array. A model can be compiled for it instead of for an array.

    Args:
        shape: sizes, such as `(T, N, D)`.
        dtype: `"float"` is the model's own float dtype; labels, tokens and lengths are `"int32"`.

    Raises:
        ModelError: shape is not a list of sizes.
        NetError: this is not a dtype.

    Example:
        >>> ro.model.Placeholder((7, 2), "int32")
        Placeholder([7, 2], 'int32')
    """

    def __init__(self, shape: Sequence[int], dtype: object = FLOAT) -> None:
        self.shape, self.dtype = _sizes(shape), dtype_name(dtype)

    def type(self, float_dtype: str) -> Type:
        """Its type in a model.

        Args:
            float_dtype: the dtype that `"float"` stands for.
        """
        return Type(float_dtype if self.dtype == FLOAT else self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"Placeholder({list(self.shape)}, {self.dtype!r})"


def as_placeholder(name: str, value: Any, float_dtype: str) -> Placeholder:
    """The placeholder for an array; a given placeholder itself.

    Raises ModelError for other values, and for floats of another dtype than the model's.
    """
    if isinstance(value, Placeholder):
        shape, dtype = value.shape, value.dtype
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        shape, dtype = tuple(value.shape), str(value.dtype).rpartition(".")[2]
    else:
        raise ModelError(
            "this is not an array",
            blob=name,
            wanted="an array or a Placeholder",
            came=type(value).__name__,
            hint="A shape is ro.model.Placeholder((7, 2, 3)), a list np.array(values).",
        )
    if is_float(dtype) and dtype not in (FLOAT, float_dtype):
        hint = "Convert the array, or compile the model with dtype=."
        raise ModelError("floats of another dtype", blob=name, wanted=float_dtype, came=dtype, hint=hint)
    return Placeholder(shape, FLOAT if is_float(dtype) else dtype)


def _sizes(shape: object) -> Shape:
    listed = isinstance(shape, Sequence) and not isinstance(shape, str)
    sizes: tuple[Any, ...] = tuple(shape) if listed else ()  # type: ignore[arg-type]
    if not listed or not all(
        isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0 for size in sizes
    ):
        raise ModelError("not a shape", wanted="a tuple of integers of 0 or more", came=repr(shape))
    return tuple(int(size) for size in sizes)


@dataclass(frozen=True)
class Arguments:
    """Arguments of one function. An argument may be a structure of several arrays."""

    function: Callable[..., Any]
    bound: BoundArguments

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def leaves(self) -> dict[str, Any]:
        """All leaves by the names of net inputs, without those that are None.

        Raises ModelError if two leaves have one name.
        """
        named = [pair for key, value in self.bound.arguments.items() for pair in leaves(value, key)]
        return unique([(name, leaf) for name, leaf in named if leaf is not None], "inputs")

    def form(self, describe: Callable[[str, Any], object]) -> object:
        """A key that is equal for equal arguments, with `describe(name, leaf)` for arrays."""
        return tuple((key, form_of(value, describe, key)) for key, value in self.bound.arguments.items())

    def call(self, replacements: Mapping[str, Any]) -> Any:
        """Call the function with other leaves."""
        values = BoundArguments(self.bound.signature, type(self.bound.arguments)())
        for key, value in self.bound.arguments.items():
            values.arguments[key] = mapped(value, lambda name, leaf: replacements.get(name), key)
        return self.function(*values.args, **values.kwargs)

    def given_to(self, other: Callable[..., Any]) -> Arguments | None:
        """The arguments that another function also has; None if it needs more."""
        given: dict[str, Any] = {}
        for name, value in self.bound.arguments.items():
            given.update(value if _kind(self.bound.signature, name) == Parameter.VAR_KEYWORD else {name: value})
        wanted = signature(other)
        if not any(one.kind == Parameter.VAR_KEYWORD for one in wanted.parameters.values()):
            given = {name: value for name, value in given.items() if name in wanted.parameters}
        try:
            return arguments_of(other, (), given)
        except ModelError:
            return None


def arguments_of(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Bind arguments. Raises ModelError if the function does not take them."""
    if not callable(function):
        raise ModelError("this is not a function", wanted="a method of the model", came=repr(function)[:80])
    try:
        return Arguments(function, signature(function).bind(*args, **kwargs))
    except TypeError as error:
        came = f"{len(args)} in a row" + "".join(f", {name}" for name in kwargs)
        name = getattr(function, "__name__", "the function")
        raise ModelError(
            f"inputs do not fit {name}: {error}", wanted=f"{name}{signature(function)}", came=came
        ) from None


def takes(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a function takes such arguments."""
    try:
        signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def unique(named: Sequence[tuple[str, Any]], what: str) -> dict[str, Any]:
    """Leaves by name. Raises ModelError if two have one name, as in `{"a": [x], "a_0": y}`."""
    found: dict[str, Any] = {}
    for name, leaf in named:
        if name in found:
            raise ModelError(f"two {what} have one name", blob=name, hint="Rename a key or an argument.")
        found[name] = leaf
    return found


def _kind(form: Signature, name: str) -> object:
    return form.parameters[name].kind


OWNERS = ("rnnops.model.layer", "rnnops.model.model")  # subclasses may not hide attributes of their classes


@dataclass(frozen=True)
class WrittenLayer:
    """A layer that was written into a net: its name, its kind, and the types of its outputs."""

    name: str
    kind: str
    outputs: tuple[Type | None, ...]


@dataclass
class LayerNames:
    """The layers of a model and their names. The name of the model itself is empty."""

    found: dict[int, tuple[Layer, str]]  # id -> layer and name; the layer is kept so that no other gets its id

    def of(self, layer: Layer) -> str | None:
        """A layer's name; None if it is not in the model."""
        return self.found[id(layer)][1] if id(layer) in self.found else None


@dataclass
class Writing:
    """The context of layers while a function of a model is written.

    Args:
        training: whether it is a step of training.
        written: the layers so far, outer ones first.
    """

    names: LayerNames
    training: bool
    written: list[WrittenLayer] = field(default_factory=list)


_WRITING: ContextVar[Writing | None] = ContextVar("writing", default=None)


class Layer(Attributes, ABC):
    """Base of all layers. The method `forward` of a subclass appends ops to the net of its input.

    A layer that is called twice uses the same parameters both times. In a model its name is that of the attribute where
    it was found. Outside of models its name is that of its class, or the one given by `named`.

    Raises:
        ModelError: in a call: there is no blob, another layer has its name, or it is not in the model that is being
            written.
        ArgumentError: an argument is unknown or missing.

    Example:
        >>> class Scale(ro.model.Layer):
        ...     def forward(self, x):
        ...         return x * self.parameter(x.net, "scale", x.shape[-1:], "ones")
        >>> net = ro.Net("net", sizes_for="float32")
        >>> y = Scale()(net.input("x", shape=(7, 2, 3)))
        >>> y.shape, [spec.name for spec in net.parameters]
        ((7, 2, 3), ['scale/scale'])
    """

    _name = ""
    _init: Mapping[str, object] | None = None  # name or pattern of a parameter, below the layer's -> initial values

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = named_options(vars(cls)["__init__"])  # type: ignore[method-assign]

    if not TYPE_CHECKING:  # with this method, type checkers would accept any attribute

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_") and hasattr(type(self), name):
                _check_free(self, name, value)
            super().__setattr__(name, value)

    @abstractmethod
    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Append the layer's ops to the net of the input blobs and return its output.

        Args:
            inputs: blobs, or lists, tuples and dicts of blobs.
            **options: further arguments by name.
        """

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Append the layer's ops, which makes its parameters at the first call.

        Args:
            inputs, options: as for `forward`: blobs, and Python values.

        Returns:
            The result of `forward`.

        Raises:
            ModelError: there is no blob among them, or they do not fit the layer.
        """
        blobs = blobs_of([inputs, options])
        if not blobs:
            hint = "Layers take blobs. For arrays call model.compile([x, ...]), then the model, or model.run(f, ...)."
            raise ModelError(f"{type(self).__name__} was called without a blob", hint=hint)
        name, writing = self._claimed(blobs[0].net), _WRITING.get()
        place = 0 if writing is None else len(writing.written)
        result = self.forward(*inputs, **options)
        if self._init is not None:
            blobs[0].net.set_init(self._init, name)
        if writing is not None:
            outputs = tuple(blob.type for blob in blobs_of(result))
            writing.written.insert(place, WrittenLayer(name, type(self).__name__, outputs))
        return result

    @property
    def scope(self) -> str:
        """The prefix of its parameters' names; `""` for a model's own."""
        writing = _WRITING.get()
        name = None if writing is None else writing.names.of(self)
        if name is None and writing is not None and not self._name:
            wanted = "an attribute of the model or of a layer of it, or in a list, tuple or dict there, at compile()"
            hint = "Make layers in __init__, and compile again after changes."
            raise ModelError(f"a {type(self).__name__} is not in the model", wanted=wanted, hint=hint)
        return self._name or type(self).__name__.lower() if name is None else name

    @property
    def is_training(self) -> bool:
        """True if a step of training is being written; False outside of models."""
        writing = _WRITING.get()
        return writing is not None and writing.training

    def named(self, name: str) -> Layer:
        """Give it a name outside of a model, and return it.

        Args:
            name: what the names of its parameters begin with.

        Raises:
            NetError: it is not a name.
        """
        self._name = check_name(name, "layer")
        return self

    def parameter(self, net: Net, name: str, shape: Sequence[int], init: object = "xavier") -> Blob:
        """The parameter `<layer>/<name>` of a net. It is added if the net does not have it.

        Args:
            net: the net of the blobs.
            name: its name within the layer.
            shape: its shape.
            init: as for `Net.parameter`.

        Raises:
            NetError: the net has it with another shape, or init is wrong.
        """
        return parameter(net, f"{self.scope}/{name}".lstrip("/"), shape, init)

    def _claimed(self, net: Net) -> str:
        """The layer's name, which no other layer in the net has."""
        if net.claims.setdefault(f"{self.scope}/", self) is not self:
            hint = "Make both attributes of a model, or give each a name with .named(...)."
            raise ModelError("two layers have one name", net=net.name, blob=self.scope, hint=hint)
        return self.scope


def _check_free(layer: Layer, name: str, value: object) -> None:
    """Raise ModelError for an attribute that would hide one of the library. A function may replace a method."""
    owned = {one: own for base in type(layer).__mro__ if base.__module__ in OWNERS for one, own in vars(base).items()}
    is_patch = callable(value) and not isinstance(value, Layer) and not isinstance(owned.get(name), property)
    if name in owned and not is_patch:
        wanted = f"another name than {', '.join(sorted(one for one in owned if not one.startswith('_')))}"
        problem = f"self.{name} of {type(layer).__name__} belongs to the library"
        raise ModelError(problem, wanted=wanted, hint=f"Call it self.own_{name}, say.")


def name_layers(model: Layer) -> LayerNames:
    """Find the layers below a model; each has the name of the first attribute path that leads to it."""
    found: dict[int, tuple[Layer, str]] = {id(model): (model, "")}
    waiting = [(model, "")]
    while waiting:
        parent, prefix = waiting.pop(0)
        for name, layer in layers_in(parent):
            if id(layer) not in found:
                found[id(layer)] = (layer, prefix + name)
                waiting.append((layer, f"{prefix}{name}/"))
    return LayerNames(found)


def layers_in(parent: Layer) -> Iterator[tuple[str, Layer]]:
    """The layers among a layer's attributes, and in lists, tuples and dicts there, each with its name."""
    for name, value in vars(parent).items():
        yield from _layers_in(name, value, ())


@contextmanager
def writing(names: LayerNames, training: bool) -> Iterator[Writing]:
    """A context in which layers have the names that they have in a model."""
    now = Writing(names, training)
    token = _WRITING.set(now)
    try:
        yield now
    finally:
        _WRITING.reset(token)


def being_written() -> Writing | None:
    """The current context; None outside of models."""
    return _WRITING.get()


def blobs_of(structure: Any) -> list[Blob]:
    """The blobs in nested lists, tuples and dicts, in order."""
    return [leaf for _, leaf in leaves(structure, "") if isinstance(leaf, Blob)]


def blob_of(value: object, what: str, layer: Layer | None = None) -> Blob:
    """An input of a layer. Raises ModelError, which names the layer, if it is not a blob."""
    if isinstance(value, Blob):
        return value
    name = None if layer is None else layer.scope
    called = "layer" if name is None or "/" in name else name
    is_several = isinstance(value, tuple | list) and len(value) > 0
    hint = f"It holds several: RNN returns its output and its states. Take the first, {called}(y[0])."
    problem, came = "an input is not a blob", type(value).__name__
    raise ModelError(problem, blob=name, wanted=f"a blob {what}", came=came, hint=hint if is_several else None)


def sizes_of(value: object, least_rank: int, what: str, layer: Layer | None = None) -> Shape:
    """The shape of an input of a layer. Raises ModelError if it is not a blob, or its rank is unknown or too small."""
    blob = blob_of(value, what, layer)
    if blob.type is None:
        hint = "Give the net's inputs their shapes, and the net sizes_for=, or compile the layer in a model."
        raise ModelError("the shape of a layer's input is not known", net=blob.net.name, blob=blob.name, hint=hint)
    if blob.type.rank < least_rank:
        wanted = f"{what}, at least {least_rank} axes"
        raise ModelError("a layer's input has too few axes", blob=blob.name, wanted=wanted, came=blob.type)
    return blob.type.shape


def _layers_in(name: str, value: object, around: tuple[int, ...]) -> Iterator[tuple[str, Layer]]:
    if isinstance(value, Layer):
        yield name, value
    elif isinstance(value, list | tuple | dict) and id(value) not in around:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, Layer | list | tuple | dict):
                yield from _layers_in(f"{name}/{_key(name, key, item)}", item, (*around, id(value)))


def _key(name: str, key: object, item: object) -> object:
    if isinstance(item, Layer) and not str(key).replace("_", "a").isalnum():
        raise ModelError("a layer's key is not a name", blob=name, wanted="letters, digits and _", came=repr(key))
    return key


LOSS, OUTPUT = "loss", "output"


@dataclass(frozen=True)
class TracedFunction:
    """A function as a net.

    Args:
        net: the net, without sizes and float dtypes.
        structure: the structure that the function returned.
        written: the layers, outer ones first.
        dtype: the dtype that `"float"` stood for.
    """

    net: Net
    structure: Any
    written: tuple[WrittenLayer, ...]
    dtype: str

    @property
    def has_loss(self) -> bool:
        return LOSS in self.net.output_blobs

    def results(self, outputs: Mapping[str, Array]) -> Any:
        """Arrays in the structure that the function returned."""
        return mapped(self.structure, lambda name, _: outputs[name], OUTPUT)


def minimize(loss: Blob) -> Blob:
    """Mark a blob of one number as the loss that training minimises, and return it. A net has only one loss."""
    if sizes_of(loss, 0, "[]"):
        hint = "Take a mean or a sum."
        raise ModelError("a loss is one number", net=loss.net.name, blob=loss.name, came=loss.type, hint=hint)
    if not is_float(loss.dtype):
        raise ModelError("a loss is a float", net=loss.net.name, blob=loss.name, came=loss.dtype)
    if LOSS in loss.net.output_blobs:
        raise ModelError("a model has one loss", net=loss.net.name, blob=loss.name, hint="Minimize the sum of several.")
    loss.net.outputs(**{LOSS: loss})
    return loss


def _without_sizes(net: Net) -> Net:
    """The net with inputs of any size. Parameters keep their sizes."""
    inputs = [spec if spec.initializer is not None else replace(spec, shape=None) for spec in net.input_specs]
    return net.with_ops(net.ops, inputs=inputs).snapshot()


SHAPES = 64  # how many shapes of inputs traces are kept for


@dataclass(frozen=True)
class Graph:
    """One function of a model for inputs of certain types.

    Args:
        run: the run. All shapes for which the same ops were written share it; it keeps plans by shape.
    """

    traced: TracedFunction
    run: Run
    types: Mapping[str, Type]

    @cached_property
    def draws(self) -> bool:
        """True if a step of training needs a seed."""
        return first_live_random_op(self.traced.net, True) is not None

    def planned(self) -> PlannedRun:
        """The plan of a call; nothing is computed. Raises BudgetError if no plan fits the budget."""
        net = self.traced.net
        shapes = {name: kind.shape for name, kind in self.types.items()}
        params = [spec.name for spec in net.parameters]
        dtype = self.traced.dtype
        wrt = params if self.traced.has_loss else None
        return self.run.plan(shapes, backward=self.traced.has_loss, wrt=wrt, dtype=dtype)


class Graphs:
    """Graphs by function, mode, structure and types of the inputs.

    Args:
        name: name of the model.
        names: names of its layers.
        dtype: the dtype that `"float"` stands for.
        options: options of `rnnops.compile`.
    """

    def __init__(self, name: str, names: LayerNames, dtype: str, options: Mapping[str, Any]) -> None:
        self.name, self.names, self.dtype, self.options = name, names, dtype, options
        self._graphs: PlanCache[Graph] = PlanCache(SHAPES)
        self._runs: PlanCache[Run] = PlanCache(SHAPES)

    def graph(self, arguments: Arguments, training: bool) -> Graph:
        """The graph of a function for such inputs, traced and compiled if there is none yet."""
        inputs = {name: as_placeholder(name, leaf, self.dtype) for name, leaf in arguments.leaves().items()}
        types = {name: one.type(self.dtype) for name, one in inputs.items()}

        def make() -> Graph:
            traced = self._traced(arguments, inputs, training)
            run = self._runs.get(str(traced.net), lambda: compile_net(traced.net, **self.options))
            return Graph(traced, run, types)

        form = arguments.form(lambda name, _: types[name])
        return self._graphs.get((arguments.function, training, form), make)

    def _traced(self, arguments: Arguments, placeholders: Mapping[str, Placeholder], training: bool) -> TracedFunction:
        """Call a function with blobs. Raises ModelError if it returns anything but blobs."""
        net = Net(f"{self.name}.{arguments.name}", sizes_for=self.dtype)
        inputs = {key: net.input(key, one.dtype, one.shape) for key, one in placeholders.items()}
        with writing(self.names, training) as now:
            returned = arguments.call(inputs)
        outputs = unique(list(leaves(returned, OUTPUT)), "outputs")
        for key, blob in outputs.items():
            if not isinstance(blob, Blob) or blob.net is not net:
                wanted = "a blob, or tuples, lists and dicts of blobs"
                raise ModelError("a model returns its blobs", net=net.name, wanted=wanted, came=repr(blob)[:80])
            net.outputs(**{key: blob})
        structure = mapped(returned, lambda key, _: key, OUTPUT)
        return TracedFunction(_without_sizes(net), structure, tuple(now.written), self.dtype)
