"""Forks: a child has one thread, and a lock that another thread held stays taken in it for ever.

So a fork waits until the locks named here are free, and both processes go on with them free. That may take as long as
another thread compiles a function.

Limit: of imports only those that rnnops does late are waited for.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, ExitStack
from typing import Any

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
