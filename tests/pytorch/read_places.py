"""Places that a step can read a number or a tensor from: how to make one, to read it, and to change it.

Each `Place` has `read()`, which a step calls, and `put(value)`. Values are numbers for `NUMBERS` and tensors for
`TENSORS`. They are made anew for each test.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextvars
import copy
import dataclasses
import enum
import functools
import importlib
import operator
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

G = 0.5
TEXTS = "a.b.c"


class Place(NamedTuple):
    read: Callable[[], Any]
    put: Callable[[Any], Any]


def held_by(holder: Any, name: str = "value") -> Place:
    """An attribute that is read by its name."""
    assert name == "value"
    return Place(lambda: holder.value, lambda v: setattr(holder, "value", v))


class Plain:
    value: Any = None


def attribute(v: Any) -> Place:
    holder = Plain()
    holder.value = v
    return held_by(holder)


def nested(v: Any) -> Place:
    outer = Plain()
    outer.value = [{"a": (Plain(),)}]
    inner = outer.value[0]["a"][0]
    inner.value = v
    return Place(lambda: outer.value[0]["a"][0].value, lambda v: setattr(inner, "value", v))


def namespace(v: Any) -> Place:
    return held_by(types.SimpleNamespace(value=v))


def object_of_pytorch(v: Any) -> Place:
    made = torch.distributions.transforms.AffineTransform(v, 1.0)
    return Place(lambda: made(0.0), lambda v: setattr(made, "loc", v))


def object_of_numpy(v: Any) -> Place:
    made = np.vectorize(lambda x: x * v)
    return Place(lambda: made(1.0).item(), lambda v: setattr(made, "pyfunc", lambda x: x * v))


def parsed_arguments(v: Any) -> Place:
    return held_by(argparse.Namespace(value=v))


@dataclasses.dataclass
class Record:
    value: Any
    other: str = "x"


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


@dataclasses.dataclass
class Slotted:
    __slots__ = ("value",)
    value: Any


def a_dataclass(v: Any) -> Place:
    return held_by(Record(v))


def a_frozen_dataclass_replaced(v: Any) -> Place:
    held = [Frozen(v)]
    return Place(lambda: held[0].value, lambda v: held.__setitem__(0, Frozen(v)))


def a_dataclass_as_dict(v: Any) -> Place:
    record = Record(v)
    return Place(lambda: {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}["value"],
                 lambda v: setattr(record, "value", v))  # fmt: skip


def a_slot(v: Any) -> Place:
    return held_by(Slotted(v))


def a_class_attribute(v: Any) -> Place:
    kind = type("Kind", (Plain,), {"value": v})
    made = kind()
    return Place(lambda: made.value, lambda v: setattr(kind, "value", v))


def a_base_class_attribute(v: Any) -> Place:
    base = type("Base", (), {"value": v})
    made = type("Kind", (type("Middle", (base,), {}),), {})()
    return Place(lambda: made.value, lambda v: setattr(base, "value", v))


def a_class_attribute_hidden_by_another(v: Any) -> Place:
    base = type("Base", (), {"value": v})
    kind = type("Kind", (base,), {})
    made = kind()
    return Place(lambda: made.value, lambda v: setattr(kind, "value", v))


def a_class_attribute_hidden_by_the_object(v: Any) -> Place:
    made = type("Kind", (), {"value": v})()
    return held_by(made)


def the_class_of_an_object(v: Any) -> Place:
    def kind(v: Any) -> Any:
        return type("Kind", (), {"value": v})

    made = kind(v)()
    return Place(lambda: made.value, lambda v: setattr(made, "__class__", kind(v)))


class Property:
    def __init__(self, v: Any) -> None:
        self._hidden = v

    @property
    def value(self) -> Any:
        return self._hidden


def a_property(v: Any) -> Place:
    made = Property(v)
    return Place(lambda: made.value, lambda v: setattr(made, "_hidden", v))


class Descriptor:
    def __init__(self, v: Any) -> None:
        self.inside = {"v": v}

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self.inside["v"]


def a_descriptor(v: Any) -> Place:
    found = Descriptor(v)
    made = type("Kind", (), {"value": found})()
    return Place(lambda: made.value, lambda v: found.inside.__setitem__("v", v))


class Dynamic:
    def __init__(self, v: Any) -> None:
        object.__setattr__(self, "_store", {"value": v})

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_store")[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._store[name] = value


def getattr_method(v: Any) -> Place:
    return held_by(Dynamic(v))


class Indexed(dict):  # type: ignore[type-arg]
    __getattr__ = dict.__getitem__


def attributes_of_a_dict(v: Any) -> Place:
    made = Indexed(value=v)
    return Place(lambda: made.value, lambda v: made.__setitem__("value", v))


def a_name_made_by_code(v: Any) -> Place:
    made = Plain()
    made.value = v
    return Place(lambda: getattr(made, "".join(["va", "lue"])), lambda v: setattr(made, "value", v))


def by_attrgetter(v: Any) -> Place:
    made, get = types.SimpleNamespace(value=v), operator.attrgetter("value")
    return Place(lambda: get(made), lambda v: setattr(made, "value", v))


def by_vars(v: Any) -> Place:
    made = types.SimpleNamespace(value=v)
    return Place(lambda: vars(made)["val" + TEXTS[:0] + "ue"], lambda v: setattr(made, "value", v))


def by_match(v: Any) -> Place:
    made = Record(v)

    def read() -> Any:
        match made:
            case Record(value=found):
                return found

    return Place(read, lambda v: setattr(made, "value", v))


def a_global(v: Any) -> Place:
    globals()["G"] = v
    return Place(lambda: G, lambda v: globals().__setitem__("G", v))


def a_global_through_calls(v: Any) -> Place:
    globals()["G"] = v

    def deep(n: int) -> Any:
        return deep(n - 1) if n else G

    return Place(lambda: deep(9), lambda v: globals().__setitem__("G", v))


def other_module(v: Any) -> types.ModuleType:
    module = types.ModuleType("module_of_settings")
    exec("value = None\ndef read():\n    return value\nclass Inner:\n    value = None\n", module.__dict__)
    module.value = v
    sys.modules["module_of_settings"] = module
    return module


def a_global_of_another_module(v: Any) -> Place:
    module = other_module(v)
    read = module.read
    return Place(lambda: read(), lambda v: setattr(module, "value", v))


def an_attribute_of_a_module(v: Any) -> Place:
    module = other_module(v)
    return Place(lambda: module.value, lambda v: setattr(module, "value", v))


def a_class_of_a_module(v: Any) -> Place:
    module = other_module(v)
    module.Inner.value = v
    return Place(lambda: module.Inner.value, lambda v: setattr(module.Inner, "value", v))


def a_module_imported_in_the_step(v: Any) -> Place:
    module = other_module(v)

    def read() -> Any:
        import module_of_settings

        return module_of_settings.value

    return Place(read, lambda v: setattr(module, "value", v))


def a_name_imported_in_the_step(v: Any) -> Place:
    module = other_module(v)

    def read() -> Any:
        from module_of_settings import value

        return value

    return Place(read, lambda v: setattr(module, "value", v))


def a_module_imported_by_its_name(v: Any) -> Place:
    module = other_module(v)
    return Place(lambda: importlib.import_module("module_of_settings").value, lambda v: setattr(module, "value", v))


def a_closure_cell(v: Any) -> Place:
    def put(new: Any) -> None:
        nonlocal v
        v = new

    return Place(lambda: v, put)


def a_closure_of_a_closure(v: Any) -> Place:
    def put(new: Any) -> None:
        nonlocal v
        v = new

    def inner() -> Any:
        return (lambda: v)()

    return Place(lambda: inner(), put)


def a_default_argument(v: Any) -> Place:
    def read(value: Any = v) -> Any:
        return value

    return Place(lambda: read(), lambda v: setattr(read, "__defaults__", (v,)))


def a_keyword_default(v: Any) -> Place:
    def read(*, value: Any = v) -> Any:
        return value

    return Place(lambda: read(), lambda v: read.__kwdefaults__.update(value=v))


def a_function_attribute(v: Any) -> Place:
    def read() -> Any:
        return read.value  # type: ignore[attr-defined]

    read.value = v  # type: ignore[attr-defined]
    return Place(read, lambda v: setattr(read, "value", v))


def the_code_of_a_function(v: Any) -> Place:
    def made(v: Any) -> Any:
        def read(v: Any = v) -> Any:
            return v

        return read

    held = made(v)

    def put(v: Any) -> None:
        held.__code__, held.__defaults__ = (lambda v=None: v).__code__, (v,)

    return Place(lambda: held(), put)


def a_dict(v: Any) -> Place:
    held = {"a": {"b": {"c": {"d": {"e": {"f": v}}}}}}
    return Place(
        lambda: held["a"]["b"]["c"]["d"]["e"]["f"], lambda v: held["a"]["b"]["c"]["d"]["e"].__setitem__("f", v)
    )


def a_list(v: Any) -> Place:
    held = [0, v]
    return Place(lambda: held[-1], lambda v: held.__setitem__(1, v))


def a_list_that_grows(v: Any) -> Place:
    held = [v]
    return Place(lambda: held[-1], held.append)


def a_list_in_a_tuple(v: Any) -> Place:
    held = ((([v],),),)
    return Place(lambda: held[0][0][0][0], lambda v: held[0][0][0].__setitem__(0, v))


def a_deque(v: Any) -> Place:
    held = collections.deque([v], maxlen=1)
    return Place(lambda: held[0], held.append)


def an_ordered_dict_reordered(v: Any) -> Place:
    held = collections.OrderedDict(a=v)

    def put(v: Any) -> None:
        held["b"] = v
        held.move_to_end("b", last=False)

    return Place(lambda: next(iter(held.values())), put)


def a_default_dict(v: Any) -> Place:
    held: Any = collections.defaultdict(lambda: v)
    return Place(lambda: held.get("there", v), lambda v: held.__setitem__("there", v))


def a_named_tuple_replaced(v: Any) -> Place:
    kind = collections.namedtuple("kind", "value")
    held = types.SimpleNamespace(pair=kind(v))
    return Place(lambda: held.pair.value, lambda v: setattr(held, "pair", kind(v)))


def a_partial(v: Any) -> Place:
    held = types.SimpleNamespace(call=functools.partial(lambda value: value, value=v))
    return Place(lambda: held.call(), lambda v: held.call.keywords.update(value=v))


def a_callable_object(v: Any) -> Place:
    class Call:
        def __call__(self) -> Any:
            return self.inside

    call: Any = Call()
    call.inside = v
    return Place(lambda: call(), lambda v: setattr(call, "inside", v))


def a_bound_method(v: Any) -> Place:
    class Owner:
        def get(self) -> Any:
            return self.inside

    owner: Any = Owner()
    owner.inside, get = v, owner.get
    return Place(lambda: get(), lambda v: setattr(owner, "inside", v))


def a_class_method(v: Any) -> Place:
    class Owner:
        inside = v

        @classmethod
        def get(cls) -> Any:
            return cls.inside

    return Place(lambda: Owner.get(), lambda v: setattr(Owner, "inside", v))


def a_registry(v: Any) -> Place:
    registry: dict[str, Any] = {}

    def register(name: str) -> Any:
        return lambda function: registry.setdefault(name, function)

    register("read")(lambda: registry["value"])
    registry["value"] = v
    return Place(lambda: registry["read"](), lambda v: registry.__setitem__("value", v))


def a_context_variable(v: Any) -> Place:
    variable: Any = contextvars.ContextVar("variable")
    variable.set(v)
    return Place(lambda: variable.get(), variable.set)


def a_thread_local(v: Any) -> Place:
    held: Any = threading.local()
    held.value = v
    return held_by(held)


def a_weak_reference(v: Any) -> Place:
    made = Plain()
    made.value = v
    reference, keep = weakref.ref(made), [made]
    return Place(lambda: reference().value, lambda v: setattr(keep[0], "value", v))  # type: ignore[union-attr]


def a_cycle(v: Any) -> Place:
    one, other = types.SimpleNamespace(), types.SimpleNamespace()
    one.other, other.one, other.value = other, one, v
    return Place(lambda: one.other.one.other.value, lambda v: setattr(other, "value", v))


def an_object_replaced(v: Any) -> Place:
    held = {"config": types.SimpleNamespace(value=v)}
    return Place(lambda: held["config"].value, lambda v: held.__setitem__("config", types.SimpleNamespace(value=v)))


def a_deep_copy(v: Any) -> Place:
    held = {"config": types.SimpleNamespace(value=v)}

    def put(v: Any) -> None:
        held["config"] = copy.deepcopy(held["config"])
        held["config"].value = v

    return Place(lambda: held["config"].value, put)


def an_absent_attribute(v: Any) -> Place:
    made = types.SimpleNamespace()
    return Place(lambda: getattr(made, "value", v), lambda v: setattr(made, "value", v))


def an_exception_that_is_caught(v: Any) -> Place:
    held: dict[str, Any] = {}

    def read() -> Any:
        try:
            return held["value"]
        except KeyError:
            return v

    return Place(read, lambda v: held.__setitem__("value", v))


def a_cached_property(v: Any) -> Place:
    class Owner:
        inside = v

        @functools.cached_property
        def value(self) -> Any:
            return self.inside

    owner: Any = Owner()
    return Place(lambda: owner.value, lambda v: setattr(owner, "value", v))


def a_cached_function(v: Any) -> Place:
    held = [v]

    @functools.lru_cache
    def read() -> Any:
        return held[0]

    def put(v: Any) -> None:
        held[0] = v
        read.cache_clear()

    return Place(lambda: read(), put)


def a_metaclass(v: Any) -> Place:
    class Meta(type):
        inside = v

        def __call__(cls) -> Any:
            return cls.inside

    class Kind(metaclass=Meta):
        pass

    return Place(lambda: Kind(), lambda v: setattr(Meta, "inside", v))


def a_module_attribute(v: Any) -> Place:
    module = nn.Identity()
    module.value = v
    return held_by(module)


def a_child_of_a_module(v: Any) -> Place:
    module = nn.Sequential(nn.Identity(), nn.Identity())
    module[1].value = v
    return Place(lambda: module[1].value, lambda v: setattr(module[1], "value", v))


class Mode(enum.Enum):
    A = 0.5
    B = 2.0


# Places of numbers alone.


def a_set(v: Any) -> Place:
    held = {v}

    def put(v: Any) -> None:
        held.clear()
        held.add(v)

    return Place(lambda: max(held), put)


def a_numpy_array(v: Any) -> Place:
    held = np.array([[v]])
    return Place(lambda: float(held[0, 0]), lambda v: held.__setitem__((0, 0), v))


def a_numpy_number(v: Any) -> Place:
    held = types.SimpleNamespace(value=np.float32(v))
    return Place(lambda: float(held.value), lambda v: setattr(held, "value", np.float32(v)))


def an_array_of_objects(v: Any) -> Place:
    held = np.array([None, v], dtype=object)
    return Place(lambda: held[1], lambda v: held.__setitem__(1, v))


def an_array_of_python(v: Any) -> Place:
    held = array.array("d", [v])
    return Place(lambda: held[0], lambda v: held.__setitem__(0, v))


def a_byte_array(v: Any) -> Place:
    held = bytearray(str(v).encode())

    def put(v: Any) -> None:
        held[:] = str(v).encode()

    return Place(lambda: float(held), put)


def an_enum(v: Any) -> Place:
    held = types.SimpleNamespace(mode=Mode.A)
    return Place(lambda: held.mode.value, lambda v: setattr(held, "mode", Mode.B))


def an_enum_member_by_name(v: Any) -> Place:
    return Place(lambda: Mode.A.scale, lambda v: setattr(Mode.A, "scale", v))


def the_environment(v: Any) -> Place:
    os.environ["READ_PLACES"] = str(v)
    return Place(lambda: float(os.environ["READ_PLACES"]), lambda v: os.environ.__setitem__("READ_PLACES", str(v)))


def the_environment_by_getenv(v: Any) -> Place:
    os.environ.pop("READ_PLACES", None)
    return Place(lambda: float(os.getenv("READ_PLACES", v)), lambda v: os.environ.__setitem__("READ_PLACES", str(v)))


def a_training_flag(v: Any) -> Place:
    module = nn.Identity()
    return Place(lambda: 0.5 if module.training else 2.0, lambda v: module.eval())


def a_length(v: Any) -> Place:
    held = [0]
    return Place(lambda: 0.5 * len(held), lambda v: held.extend([0] * 3))


def a_parameter_that_is_frozen(v: Any) -> Place:
    module = nn.Linear(1, 1)
    return Place(lambda: 0.5 if module.weight.requires_grad else 2.0, lambda v: module.requires_grad_(False))


def a_sign_of_zero(v: Any) -> Place:
    held = [0.0]
    return Place(lambda: 1.25 + 0.75 * np.copysign(1, held[0]), lambda v: held.__setitem__(0, -0.0))


def an_attribute_of_a_tensor(v: Any) -> Place:
    held = torch.zeros(())
    held.scale = v
    return Place(lambda: held.scale, lambda v: setattr(held, "scale", v))


def an_array_of_a_container(v: Any) -> Place:
    held = {"a": [np.full(3, v)]}
    return Place(lambda: held["a"][0].sum().item() / 3, lambda v: held["a"][0].fill(v))


def text_that_is_parsed(v: Any) -> Place:
    held = {"text": f"dt={v}"}
    return Place(lambda: float(held["text"].partition("=")[2]), lambda v: held.__setitem__("text", f"dt={v}"))


BOTH = [
    object_of_pytorch,
    attribute, nested, namespace, parsed_arguments, a_dataclass, a_frozen_dataclass_replaced, a_dataclass_as_dict,
    a_slot, a_class_attribute, a_base_class_attribute, a_class_attribute_hidden_by_another,
    a_class_attribute_hidden_by_the_object, the_class_of_an_object, a_property, a_descriptor, getattr_method,
    attributes_of_a_dict, a_name_made_by_code, by_attrgetter, by_vars, by_match, a_global, a_global_through_calls,
    a_global_of_another_module, an_attribute_of_a_module, a_class_of_a_module, a_module_imported_in_the_step,
    a_name_imported_in_the_step, a_module_imported_by_its_name, a_closure_cell, a_closure_of_a_closure,
    a_default_argument, a_keyword_default, a_function_attribute, the_code_of_a_function, a_dict, a_list,
    a_list_that_grows, a_list_in_a_tuple, a_deque, an_ordered_dict_reordered, a_default_dict, a_named_tuple_replaced,
    a_partial, a_callable_object, a_bound_method, a_class_method, a_registry, a_context_variable, a_thread_local,
    a_weak_reference, a_cycle, an_object_replaced, a_deep_copy, an_absent_attribute, an_exception_that_is_caught,
    a_cached_property, a_cached_function, a_metaclass, a_module_attribute, a_child_of_a_module,
]  # fmt: skip
ALONE = [
    object_of_numpy,
    a_set, a_numpy_array, a_numpy_number, an_array_of_objects, an_array_of_python, a_byte_array, an_enum,
    an_enum_member_by_name, the_environment, the_environment_by_getenv, a_training_flag, a_length,
    a_parameter_that_is_frozen, a_sign_of_zero, an_attribute_of_a_tensor, an_array_of_a_container, text_that_is_parsed,
]  # fmt: skip
NUMBERS = {make.__name__: make for make in (*BOTH, *ALONE)}
TENSORS = {make.__name__: make for make in BOTH}
