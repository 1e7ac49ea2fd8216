"""Layer: parameters under a name of their own, and the ops that it appends to a net.

Layers hold settings and other layers, never arrays: a model keeps those by name, so that one layer can be written into
any number of nets. A layer's name is where a model finds it: `encoder`, `blocks.0.dense`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from rnnops.blob import Blob
from rnnops.cells.step import parameter
from rnnops.errors import ModelError
from rnnops.model.structure import leaves
from rnnops.net import Net, common_net
from rnnops.types import Shape, Type


@dataclass(frozen=True)
class Written:
    """A layer that was written into a net, and the types of what came out."""

    layer: Layer
    outputs: tuple[Type | None, ...]


_WRITTEN: ContextVar[list[Written] | None] = ContextVar("written", default=None)


class Layer(ABC):
    """Base of all layers; a subclass says in `forward` what it appends.

    A layer that is called twice uses the same parameters both times.
    """

    path: str = ""  # with slashes, as blobs are named; a model sets it

    @abstractmethod
    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Append the layer's ops to the net of the input blobs and return its output."""

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        net = common_net(blobs_of([inputs, options]))
        if net.claims.setdefault(f"{self.scope}/", self) is not self:
            raise ModelError(
                "two layers have one name",
                net=net.name,
                blob=self.scope,
                hint="Make both attributes of a model, or give each a name with .named(...).",
            )
        written = _WRITTEN.get()
        place = 0 if written is None else len(written)
        result = self.forward(*inputs, **options)
        if written is not None:
            written.insert(place, Written(self, tuple(blob.type for blob in blobs_of(result))))
        return result

    @property
    def scope(self) -> str:
        """What the names of its parameters begin with."""
        return self.path or type(self).__name__.lower()

    def named(self, name: str) -> Layer:
        """Give it a name outside of a model, and return it."""
        self.path = name
        return self

    def parameter(self, net: Net, name: str, shape: Sequence[int], init: object = "xavier") -> Blob:
        """A parameter `<layer>/<name>` of a net; the one that is there already, if this layer was written before.

        Args:
            init: as for `net.parameter`.
        """
        return parameter(net, f"{self.scope}/{name}", shape, init)

    def layers(self) -> Iterator[tuple[str, Layer]]:
        """The layers among its attributes, and in lists, tuples and dicts there, each with its name."""
        for name, value in vars(self).items():
            yield from _layers_in(name, value)


def name_layers(parent: Layer, prefix: str = "", found: set[int] | None = None) -> None:
    """Give every layer below a model the name of the first attribute path that leads to it."""
    found = {id(parent)} if found is None else found
    for name, layer in parent.layers():
        if id(layer) not in found:
            found.add(id(layer))
            layer.path = prefix + name
            name_layers(layer, f"{layer.path}/", found)


@contextmanager
def layers_written() -> Iterator[list[Written]]:
    """The list of what layers write while this is open, outer ones first."""
    written: list[Written] = []
    token = _WRITTEN.set(written)
    try:
        yield written
    finally:
        _WRITTEN.reset(token)


def blobs_of(structure: Any) -> list[Blob]:
    """The blobs in nested lists, tuples and dicts, in order."""
    return [leaf for _, leaf in leaves(structure, "") if isinstance(leaf, Blob)]


def sizes_of(blob: object, least_rank: int, what: str) -> Shape:
    """The shape of an input of a layer. Raises ModelError for what is no blob, of unknown shape or too small a rank."""
    if not isinstance(blob, Blob):
        raise ModelError("an input is no blob", wanted=f"a blob {what}", came=type(blob).__name__)
    if blob.type is None:
        hint = "Give the net's inputs their shapes, and the net sizes_for=, or compile the layer in a model."
        raise ModelError("the shape of a layer's input is not known", net=blob.net.name, blob=blob.name, hint=hint)
    if blob.type.rank < least_rank:
        wanted = f"{what}, at least {least_rank} axes"
        raise ModelError("a layer's input has too few axes", blob=blob.name, wanted=wanted, came=blob.type)
    return blob.type.shape


def _layers_in(name: str, value: object) -> Iterator[tuple[str, Layer]]:
    if isinstance(value, Layer):
        yield name, value
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _layers_in(f"{name}/{place}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _layers_in(f"{name}/{_key(name, key, item)}", item)


def _key(name: str, key: object, item: object) -> object:
    if isinstance(item, Layer) and not str(key).replace("_", "a").isalnum():
        raise ModelError("a layer's key is no name", blob=name, wanted="letters, digits and _", came=repr(key))
    return key
