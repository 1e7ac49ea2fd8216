"""Small helpers: lazy values and modules, locks after a fork, files written whole or not at all.

What is worked out when it is first read: values of objects, and modules.

`cached_property` is that of functools, without the lock that it has before Python 3.12. All objects of a class share
that lock, and it is held while a value is computed: threads wait for each other, and a child that is forked meanwhile
waits for ever. Without it two threads may compute a value at once; both get the first.

Forks: a child has one thread, and a lock that another thread held stays taken in it for ever.

So a fork waits until the locks named here are free, and both processes go on with them free. That may take as long as
another thread compiles a function.

Limit: of imports only those that rnnops does late are waited for.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

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


LOADING = threading.RLock()  # held while a module of rnnops, or one that it wrote, is imported
_locks: list[AbstractContextManager[Any]] = [LOADING]
_taken: list[ExitStack] = []  # of the fork under way; read and written by who holds all locks


def wait_for(lock: AbstractContextManager[Any], outer: bool = False) -> None:
    """Have forks wait for one more lock, which the forking thread may hold.

    Args:
        outer: whether threads take it before those named so far, rather than after them.
    """
    _locks.insert(1 if outer else len(_locks), lock)


def _take() -> None:
    stack = ExitStack()
    for lock in tuple(_locks):
        stack.enter_context(lock)
    _taken.append(stack)


def _free() -> None:
    _taken.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take, after_in_parent=_free, after_in_child=_free)


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file to write, which takes the target's place and rights when this ends well, and is removed otherwise.

    Raises OSError, and leaves the target as it was, where it cannot be a file. A link goes on pointing at its file. A
    process that is killed meanwhile leaves a `.rnnops-*.tmp` behind.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError("there is something that is not a file")
    if not target.parent.is_dir():
        raise OSError(f"there is no folder {target.parent}")
    temporary = target.parent / f".rnnops-{secrets.token_hex(8)}.tmp"
    try:
        temporary.touch(exist_ok=False)
        mode = (target if target.exists() else temporary).stat().st_mode
        yield temporary
        temporary.chmod(stat.S_IMODE(mode))  # writers may have made it their own
        _sync(temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    try:
        _sync(target.parent)
    except OSError:
        return  # not every system opens folders; the file itself is on disk


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
