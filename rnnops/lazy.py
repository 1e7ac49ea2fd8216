"""What is worked out when it is first read: values of objects, and modules.

`cached_property` is that of functools, without the lock that it has before Python 3.12. All objects of a class share
that lock, and it is held while a value is computed: threads wait for each other, and a child that is forked meanwhile
waits for ever. Without it two threads may compute a value at once; both get the first.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar, overload

from rnnops.forks import LOADING

Value = TypeVar("Value")


class cached_property(Generic[Value]):  # noqa: N801 - its name in functools
    """An attribute that is computed when it is first read."""

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> cached_property[Value] | Value:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self.name, self.function(instance))  # type: ignore[no-any-return]


class LazyModule:
    """A module that is imported when something of it is first read, as what makes code is where there is none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        with LOADING:  # a fork meanwhile waits
            value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value
