"""Walks through everything that a step can read: its function, closures, globals and attributes that code names.

A walk gives a key. Steps with equal keys have equal traces. It also gives the tensors that it met, which are not in the
key, and a flat list of fetches and comparisons. With this list nothing has to be walked again while all objects are the
same (`watch.py`). In the key an object stands as its type and contents, or as its identity if it is written in C.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import sys
import threading
import types
import weakref
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from operator import attrgetter, getitem, itemgetter, methodcaller
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._ops import OpOverload, OpOverloadPacket
from torch.nn import Module
from torch.nn.parameter import is_lazy

from rnnops.torch import code_reads
from rnnops.torch.errors import StepError

# limits: elements of a container, bytes of an array, objects of a walk
MOST_ELEMENTS, MOST_BYTES, MOST_OBJECTS = 20_000, 2**22, 200_000
ATOMS = (
    *(bool, int, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
# attributes of rnnops.torch.RNN, which a step may reach through the module that holds it
OWN = {"_prepared", "_made", "_number", "_calls"}
TENSORS = ("_parameters", "_buffers", "_modules")
# PyTorch's own code names their parts
LISTS = (nn.ModuleDict, nn.ModuleList, nn.ParameterDict, nn.ParameterList, nn.Sequential)
DATA = ("types", "argparse", "collections", "configparser")  # modules whose objects hold values of users
PLAIN = (dict, list, tuple, set, frozenset, deque, OrderedDict)
CONTAINERS = (dict, list, tuple, set, frozenset, deque)
NOT_FOLLOWED = (types.CodeType, types.FrameType, types.TracebackType)
Path = tuple[Any, str] | None
Slot = tuple[Any, Any, Callable[[Any, Any], Any]]  # holder, key, function that reads the key


class Walk:
    """A walk from roots.

    Args:
        ignored: pairs (id of a holder, key in it) that are left out. Key None leaves out the whole object.
        tensor_parts: True to put dtypes and shapes of tensors into the key. A walk in the middle of a trace must not do
            so.

    Attributes:
        key: tokens. Two walks with equal keys read the same values.
        objects: each object that was met, once, in order. paths: the path to each.
        slots: places that hold tensors. slot_objects: the number of the tensor in each.
        modules: the modules among the objects.
        unseen: paths of objects that are too large to be compared.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        reads: code_reads.Reads,
        tensor_parts: bool = True,
        ignored: Collection[tuple[int, Any]] = (),
    ) -> None:
        self.roots, self._ignored = tuple(roots.values()), ignored
        self.key: list[Any] = []
        self.objects: list[Any] = []
        self.paths: list[Path] = []
        self.slots: list[Slot] = []
        self.slot_objects: list[int] = []
        self.fetches: list[tuple[Callable[[Any], Iterable[Any]], Any]] = []
        self.expected: list[Any] = []
        self.tensor_fetches: list[tuple[Callable[[Any], Iterable[Any]], Any]] = []
        self.typed: list[Any] = []  # objects whose class may change
        self.sized: list[Any] = []
        self.named: list[dict[Any, Any]] = []  # dicts whose keys may change
        self.arrays: list[tuple[Any, Any]] = []
        self.apart: list[tuple[Any, frozenset[str]]] = []  # dicts that must not have these names
        self.with_attributes: list[Tensor] = []
        self.holder_paths: list[Path] = []
        self.holders: list[Any] = []  # objects whose contents may be changed in place
        self.iterators: list[tuple[Any, Path]] = []
        self.modules: list[Module] = []
        self.functions: list[types.FunctionType] = []
        self.unseen: list[str] = []
        self.reads, self._names, self._tensor_parts = reads, reads.names, tensor_parts
        self._seen: dict[int, int] = {}
        self._met_again: set[int] = set()
        for name, root in roots.items():
            self.key.append(self._child(root, (None, name)))
        self._walk_globals()
        number = 0
        while number < len(self.objects):
            self._visit(self.objects[number], self.paths[number])
            number += 1

    def where_slot(self, number: int) -> str:
        """The path to the tensor of a slot."""
        return text_of(self.paths[self.slot_objects[number]])

    def tensors(self) -> list[Tensor]:
        """The tensor of each slot."""
        return [self.objects[number] for number in self.slot_objects]

    def _walk_globals(self) -> None:
        for held, names in self.reads.globals.values():
            present = sorted(name for name in names if name in held)
            path = (None, f"{held.get('__name__', '?')}")
            self.key.append((id(held), *present))
            self._hold(held, path)
            self._fetch_items(held, present, path)
            absent = frozenset(names.difference(present))
            if absent:
                self.apart.append((held, absent))
        modules = sorted(name for name in self.reads.imports if name in sys.modules)
        self.key.append(tuple(modules))
        self._fetch_items(sys.modules, modules, None)
        if self.reads.reads_environment:
            self.key.append(self._child(os.environ._data, (None, "os.environ")))  # type: ignore[attr-defined]

    def _hold(self, holder: Any, path: Path) -> None:
        self.holders.append(holder)
        self.holder_paths.append(path)

    def _child(self, value: Any, path: Path) -> Any:
        """A token for a value. A value that can hold others is walked later."""
        kind = type(value)
        if kind in ATOMS:
            return kind, value
        if kind is float:
            return kind, value if value and value == value else repr(value)
        if kind is complex:
            return kind, repr(value)
        number = self._seen.get(id(value))
        if number is None:
            number = self._seen[id(value)] = len(self.objects)
            self.objects.append(value)
            self.paths.append(path)
        else:
            self._met_again.add(id(value))
        return number

    def is_separate(self, root: Any, parts: Sequence[Any]) -> bool:
        """True if the walk met a root once, and no other object shares its parts."""
        fetched = [id(holder) for _, holder in (*self.fetches, *self.tensor_fetches)]
        is_shared = any(fetched.count(id(part)) > 1 or id(part) in self._seen for part in parts if part is not root)
        return not (is_shared or id(root) in self._met_again)

    def _visit(self, value: Any, path: Path) -> None:
        if len(self.objects) > MOST_OBJECTS:
            self.key.append(id(value))
            if len(self.objects) == MOST_OBJECTS + 1:
                self.unseen.append(f"what lies behind {text_of(path)}")
            return
        if self._ignored and (id(value), None) in self._ignored:
            self.key.append(id(value))
            return
        handler = _handler_of(type(value))
        handler(self, value, path)

    # Keys of a holder: values to compare by identity, and tensors to fetch.

    def _fetch_items(self, holder: Any, keys: Sequence[Any], path: Path) -> None:
        values = [holder[key] for key in keys]
        self._fetch(holder, keys, values, path, itemgetter, getitem)

    def _fetch_attributes(self, holder: Any, names: Sequence[str], path: Path) -> None:
        values = [getattr(holder, name) for name in names]
        self._fetch(holder, names, values, path, attrgetter, getattr)

    def _fetch(
        self, holder: Any, keys: Sequence[Any], values: Sequence[Any], path: Path, getter: Any, read: Any
    ) -> None:
        tensors, others = [], []
        for key, value in zip(keys, values, strict=True):
            if self._ignored and (id(holder), key) in self._ignored:
                continue
            self.key.append(self._child(value, (path, code_reads.text_of_key(key))))
            if isinstance(value, Tensor):
                tensors.append(key)
                self.slots.append((holder, key, read))
                self.slot_objects.append(self._seen[id(value)])
            else:
                others.append((key, value))
        if tensors:
            self.tensor_fetches.append(
                (getter(*tensors) if len(tensors) > 1 else code_reads.AsOneOfSeveral(getter(tensors[0])), holder)
            )
        if others:
            keys, found = zip(*others, strict=True)
            self.fetches.append((code_reads.several(getter, keys), holder))
            self.expected += found if len(found) > 1 else found * 2

    def _fetch_namespace(self, holder: Any, path: Path, every: bool) -> None:
        """Walks the attributes in a namespace dict that code names. None of these names may come or go."""
        names = [name for name in holder if (every or name in self._names) and name not in OWN]
        self.key.append(tuple(names))
        self._hold(holder, path)
        (self.named if holder else self.sized).append(holder)
        self._fetch_items(holder, names, path)

    def _of_type(self, value: Any, path: Path) -> None:
        kind = type(value)
        self.key.append(self._child(kind, (path, ".__class__")))
        self.typed.append(value)

    # Handlers, one for each kind of object.

    def _tensor(self, value: Tensor, path: Path) -> None:
        if is_lazy(value):
            hint = "Run one step of the cell before: cell(x, h)."
            raise StepError("a parameter has no shape yet", came=text_of(path), hint=hint)
        self.key.append(Tensor)
        if self._tensor_parts:
            self.key.append((value.dtype, value.shape, value.device))
            if "requires_grad" in self._names:
                self.key.append(value.requires_grad)
        attributes = value.__dict__
        if attributes:
            self.with_attributes.append(value)
            self._fetch_namespace(attributes, path, False)
        else:
            self.sized.append(attributes)

    def _module(self, value: Module, path: Path) -> None:
        self.modules.append(value)
        self._of_type(value, path)
        own, every = value.__dict__, self.reads.all_names
        names = [name for name in own if (every or name in self._names) and name not in OWN]
        for held in (own.get(name) for name in TENSORS):
            if isinstance(held, dict):
                self._fetch_namespace(held, path, every or isinstance(value, LISTS))
        self.key.append(tuple(names))
        self._hold(own, path)
        self.named.append(own)
        self._fetch_items(own, names, path)

    def _class(self, value: type, path: Path) -> None:
        self.key.append(id(value))
        if code_reads.is_unread(value.__module__):
            if issubclass(value, Module) and not issubclass(value, torch.jit.ScriptModule):
                self._fetch_attributes(value, ("forward", "__call__"), path)
            return
        self.key.append(self._child(type(value), (path, ".__class__")))
        self.fetches.append((attrgetter("__mro__", "__mro__"), value))
        self.expected += (value.__mro__, value.__mro__)
        self._hold(value, path)
        self._class_names(value, path)
        self.key += [self._child(base, (None, base.__qualname__)) for base in value.__mro__[1:-1]]

    def _class_names(self, value: type, path: Path) -> None:
        names = [name for name in value.__dict__ if name in self._names or name[:2] == name[-2:] == "__"]
        names = [name for name in names if name not in CLASS_NOISE]
        self.key.append(tuple(names))
        self.fetches.append((code_reads.keys_of_class, value))
        self.expected += tuple(value.__dict__)
        values = [value.__dict__[name] for name in names]
        self._fetch(value, names, values, path, code_reads.names_in_class, getattr)

    def _function(self, value: types.FunctionType, path: Path) -> None:
        self.functions.append(value)
        self.key += (value.__code__, id(value.__globals__))
        is_torch = str(value.__module__).startswith("torch.nn.modules")
        if is_torch or id(value.__code__) not in self.reads.codes:
            return
        self._fetch_attributes(value, ("__code__", "__defaults__", "__kwdefaults__"), path)
        self._fetch_namespace(value.__dict__, path, False)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            if code_reads.is_filled(cell):
                self._hold(cell, path)
                self._fetch(cell, ("cell_contents",), (cell.cell_contents,), (path, f" ({name})"), attrgetter, getattr)
            else:
                self.key.append(code_reads.MISSING)

    def _cached(self, value: Any, path: Path) -> None:
        """Walks a function of `functools.lru_cache`.

        What it reads counts as read: a cached result would hide these reads.
        """
        function = value.__wrapped__
        if isinstance(function, types.FunctionType):
            self.reads.add(function.__code__, function.__globals__)
        self.key.append(id(value))
        self._fetch_attributes(value, ("__wrapped__",), path)
        self.key.append(value.cache_info().currsize)

    def _package(self, value: types.ModuleType, path: Path) -> None:
        self.key.append(id(value))
        if not code_reads.is_unread(value.__name__):
            held = value.__dict__
            names = sorted(name for name in self._names if name in held and name != "__builtins__")
            self.key.append(tuple(names))
            self._hold(held, path)
            self._fetch_items(held, names, path)
            self.sized.append(held)

    def _array(self, value: Any, path: Path) -> None:
        is_array = isinstance(value, np.ndarray)
        size = value.nbytes if is_array else len(value) * getattr(value, "itemsize", 1)
        self.key += (type(value), (value.dtype, value.shape) if is_array else getattr(value, "typecode", ""))
        if is_array and value.dtype.hasobject:
            objects = code_reads.elements(value)
            self.key += [self._child(part, (path, "[...]")) for part in objects]
            self.fetches.append((code_reads.elements, value))
            self.expected += objects
        elif size <= MOST_BYTES:
            before = code_reads.bytes_of(value)
            self._hold(value, path)
            self.arrays.append((value, before))
            self.key.append(before)
        else:
            self.key.append(id(value))
            self.unseen.append(f"an array of {size} bytes at {text_of(path)}")

    def _variable(self, value: ContextVar[Any], path: Path) -> None:
        self.key.append(id(value))
        self._hold(value, path)
        self._fetch(
            value, (None,), (value.get(code_reads.MISSING),), path, code_reads.of_variable, code_reads.variable_now
        )

    def _reference(self, value: Any, path: Path) -> None:
        self.key.append(weakref.ref)
        referent = value()
        self.key.append(self._child(referent, path))
        self.fetches.append((referent, value))
        self.expected.append(referent)

    def _local(self, value: threading.local, path: Path) -> None:
        """Walks the values of this thread. Other threads have their own."""
        self._hold(value, path)
        held = value.__dict__
        present = sorted(name for name in self._names if name in held)
        self.key += (id(value), tuple(present))
        getter = functools.partial(code_reads.slots_now, tuple(sorted(self._names.difference(present))))
        self.fetches.append((getter, value))
        self.expected += getter(value)
        self._fetch_attributes(value, present, path)

    def _number(self, value: np.generic, path: Path) -> None:
        self.key += (type(value), value.tobytes())

    def _builtin(self, value: types.BuiltinFunctionType, path: Path) -> None:
        owner = value.__self__
        if isinstance(owner, types.ModuleType | type | None):
            self.key.append(id(value))
        else:
            self.key += (value.__name__, self._child(owner, path))

    def _getter(self, value: Any, path: Path) -> None:
        self.key.append(repr(value))
        self._names.update(re.findall(r"\w+", repr(value)))

    def _opaque(self, value: Any, path: Path) -> None:
        self.key.append(id(value))

    def _object(self, value: Any, path: Path) -> None:
        """Walks an object of any class: its contents first, then its attributes."""
        if type(value) in PLAIN:
            self.key.append(type(value))
            self._contents(value, path)
            return
        self._of_type(value, path)
        if isinstance(value, CONTAINERS):
            self._contents(value, path)
        elif isinstance(value, types.MappingProxyType):
            self.key += [self._child(behind, path) for behind in gc.get_referents(value)]
        known = len(self.key)
        try:
            held = object.__getattribute__(value, "__dict__")
        except AttributeError:
            held = None
        module = type(value).__module__
        every = self.reads.all_names and (module in DATA or not code_reads.is_unread(module))
        # the code of these packages is not read for names
        every |= module.partition(".")[0] in ("torch", *code_reads.PACKAGES)
        if type(held) is dict:
            self._fetch_namespace(held, path, every)
        slots = [name for name in code_reads.slots_of(type(value)) if every or name in self._names]
        present = [name for name in slots if code_reads.has_slot(value, name)]
        if slots:
            self.key.append(tuple(present))
            self._hold(value, path)
            getter = functools.partial(code_reads.slots_now, tuple(name for name in slots if name not in present))
            self.fetches.append((getter, value))
            self.expected += getter(value)
            self._fetch_attributes(value, present, path)
        if known == len(self.key) and not isinstance(value, CONTAINERS):
            self.key.append(id(value))  # an object written in C, whose contents cannot be compared
            if hasattr(type(value), "__next__"):
                self.iterators.append((value, path))

    def _contents(self, value: Any, path: Path) -> None:
        size = len(value)
        self.key.append(size)
        if size > MOST_ELEMENTS:
            self.key.append(id(value))
            self.unseen.append(f"{size} elements at {text_of(path)}")
            self.sized.append(value)
            return
        if not size:
            self.sized.append(value)
            self._hold(value, path)
        elif isinstance(value, dict):
            self._hold(value, path)
            keys = list(dict.keys(value))
            self.named.append(value)
            self.key += [self._child(key, (path, " (a key)")) for key in keys]
            getter: Any = itemgetter if type(value) in PLAIN else code_reads.items_of_dict
            self._fetch(value, keys, list(dict.values(value)), path, getter, dict.__getitem__)
        elif isinstance(value, set | frozenset):
            self._members(value, path)
        elif isinstance(value, tuple):
            self._fetch_constant(value, path)
        else:
            self._hold(value, path)
            self.sized.append(value)
            getter = itemgetter if type(value) in PLAIN else code_reads.items_of_sequence
            self._fetch(value, range(size), list(value), path, getter, getitem)

    def _fetch_constant(self, value: tuple[Any, ...], path: Path) -> None:
        """Walks the elements of a tuple, which are fixed."""
        places = [place for place, part in enumerate(value) if isinstance(part, Tensor)]
        self.key += [self._child(part, (path, code_reads.text_of_key(place))) for place, part in enumerate(value)]
        self._fetch(value, places, [value[place] for place in places], path, code_reads.items_of_sequence, getitem)

    def _members(self, value: Any, path: Path) -> None:
        members = list(value)
        self.key += sorted((self._child(member, (path, " (a member)")) for member in members), key=repr)
        self._hold(value, path)
        self.sized.append(value)
        self.fetches.append((list, value))
        self.expected += members


CLASS_NOISE = {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__slots__"} | {
    *("__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl", "__parameters__"),
    *("__orig_bases__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__match_args__"),
}


def walk_all(
    roots: Mapping[str, Any],
    reads: code_reads.Reads,
    tensor_parts: bool = True,
    ignored: Collection[tuple[int, Any]] = (),
) -> Walk:
    """A walk that also takes up the names in functions that it meets."""
    while True:
        before = len(reads.names), len(reads.codes)
        walk = Walk(roots, reads, tensor_parts, ignored)
        if before == (len(reads.names), len(reads.codes)):
            return walk


def static_walk(roots: Mapping[str, Any]) -> Walk:
    """A walk that treats all functions that it meets as functions that run."""
    reads = code_reads.Reads()
    while True:
        walk = walk_all(roots, reads, tensor_parts=False)
        before = len(reads.codes)
        for function in walk.functions:
            if not code_reads.is_unread(function.__module__):
                reads.add(function.__code__, function.__globals__)
        if len(reads.codes) == before:
            return walk


def text_of(path: Path) -> str:
    """The path to an object as text: `cell.config.steps[0]`."""
    parts: list[str] = []
    while path is not None:
        parts.append(path[1])
        path = path[0]
    return "".join(reversed(parts)) or "what it reads"


def _made_of(*names: str) -> Callable[[Walk, Any, Path], None]:
    """The handler for objects that consist of these attributes."""

    def visit(walk: Walk, value: Any, path: Path) -> None:
        walk.key.append(type(value))
        walk._fetch_attributes(value, names, path)

    return visit


_HANDLERS: list[tuple[Any, Any]] = [
    (Tensor, Walk._tensor),
    (Module, Walk._module),
    (type, Walk._class),
    (types.FunctionType, Walk._function),
    (types.MethodType, _made_of("__func__", "__self__")),
    (property, _made_of("fget", "fset", "fdel")),
    (staticmethod | classmethod, _made_of("__func__")),
    (functools.partial, _made_of("func", "args", "keywords")),
    (functools._lru_cache_wrapper, Walk._cached),
    (types.ModuleType, Walk._package),
    (np.ndarray | array | bytearray, Walk._array),
    (np.generic, Walk._number),
    (types.BuiltinFunctionType, Walk._builtin),
    (attrgetter | methodcaller, Walk._getter),
    (ContextVar, Walk._variable),
    (weakref.ref, Walk._reference),
    (threading.local, Walk._local),
    (NOT_FOLLOWED, Walk._opaque),
    (OpOverload | OpOverloadPacket, Walk._opaque),
]


_handlers: weakref.WeakKeyDictionary[type, Any] = weakref.WeakKeyDictionary()


def _handler_of(kind: type) -> Any:
    found = _handlers.get(kind)
    if found is None:
        found = next((handler for known, handler in _HANDLERS if issubclass(kind, known)), Walk._object)
        _handlers[kind] = found
    return found
