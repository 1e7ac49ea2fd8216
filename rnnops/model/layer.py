"""Layer: parameters under a name of their own, and the ops that it appends to a net.

Layers hold settings and other layers, never arrays: a model keeps those by name, so that one layer can be written into
any number of nets, and belong to several models. In a model its name is that of the attribute where it was found when
the model was compiled: `encoder`, `blocks/0/dense`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rnnops.arguments import named_options
from rnnops.blob import Blob
from rnnops.cells.base import parameter
from rnnops.errors import ModelError
from rnnops.model.arguments import leaves
from rnnops.net import Net
from rnnops.scopes import check_name
from rnnops.types import Shape, Type

OWNERS = ("rnnops.model.layer", "rnnops.model.model")  # whose attributes subclasses may not hide


@dataclass(frozen=True)
class WrittenLayer:
    """A layer that was written into a net: its name, its kind, and the types of what came out."""

    name: str
    kind: str
    outputs: tuple[Type | None, ...]


@dataclass
class LayerNames:
    """The layers of a model and their names; the model itself has none."""

    found: dict[int, tuple[Layer, str]]  # with the layer, so that its id stays its own

    def of(self, layer: Layer) -> str | None:
        """A layer's name, None for one that is not in the model."""
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


class Layer(ABC):
    """Base of all layers; a subclass says in `forward` what it appends to the net of its input.

    A layer that is called twice uses the same parameters both times. In a model its name is the attribute where it was
    found; outside of one it is the name of the class, or what `named` says.

    Raises:
        ModelError: when it is called, without a blob, with a name that another layer has, or outside of the model that
            is being written.
        ArgumentError: arguments that the class does not have, or that it lacks.

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

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = named_options(vars(cls)["__init__"])  # type: ignore[method-assign]

    if not TYPE_CHECKING:  # to which any attribute would be one, then

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
            inputs, options: of `forward`: blobs, and values of Python.

        Returns:
            What `forward` returns.

        Raises:
            ModelError: there is no blob among them, or they do not fit the layer.
        """
        blobs = blobs_of([inputs, options])
        if not blobs:
            hint = "Layers, and functions that call them, take blobs; with arrays use model.run(function, ...)."
            raise ModelError(f"{type(self).__name__} was called without a blob", hint=hint)
        name, writing = self._claimed(blobs[0].net), _WRITING.get()
        place = 0 if writing is None else len(writing.written)
        result = self.forward(*inputs, **options)
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
        """True if what is written is a step of training; False outside of models."""
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
        """A parameter `<layer>/<name>` of a net; the one that is there already, if this layer was written before.

        Args:
            net: of the blobs.
            name: within the layer.
            shape: of it.
            init: as for `Net.parameter`.

        Raises:
            NetError: it is there already with another shape, or init is none.
        """
        return parameter(net, f"{self.scope}/{name}".lstrip("/"), shape, init)

    def _claimed(self, net: Net) -> str:
        """The layer's name, which no other layer in the net has."""
        if net.claims.setdefault(f"{self.scope}/", self) is not self:
            hint = "Make both attributes of a model, or give each a name with .named(...)."
            raise ModelError("two layers have one name", net=net.name, blob=self.scope, hint=hint)
        return self.scope


def _check_free(layer: Layer, name: str, value: object) -> None:
    """Raise ModelError for an attribute that would hide one of the library; a function in place of a method is fine."""
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
    """While this is open layers have their names in a model."""
    now = Writing(names, training)
    token = _WRITING.set(now)
    try:
        yield now
    finally:
        _WRITING.reset(token)


def being_written() -> Writing | None:
    """The context at present; None outside of models."""
    return _WRITING.get()


def blobs_of(structure: Any) -> list[Blob]:
    """The blobs in nested lists, tuples and dicts, in order."""
    return [leaf for _, leaf in leaves(structure, "") if isinstance(leaf, Blob)]


def sizes_of(blob: object, least_rank: int, what: str) -> Shape:
    """The shape of an input of a layer. Raises ModelError if it is not a blob, or its rank is unknown or too small."""
    if not isinstance(blob, Blob):
        raise ModelError("an input is not a blob", wanted=f"a blob {what}", came=type(blob).__name__)
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
