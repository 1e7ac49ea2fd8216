"""Name scopes: `with ro.name_scope("enc"):` prefixes the names that nets give and are given inside it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, count

from rnnops.errors import NetError

_PREFIX: ContextVar[str] = ContextVar("rnnops_name_scope", default="")


@contextmanager
def name_scope(name: str) -> Iterator[str]:
    """Prefix names with `<name>/` that nets give, and are given, inside; scopes nest.

    A net leaves out the scopes in which it was made, so that a cell can be written inside one.

    Args:
        name: a non-empty string; slashes at its ends are left out.

    Yields:
        The whole prefix, those of outer scopes included.

    Raises:
        NetError: the name is empty or no string.

    Example:
        >>> net = ro.Net("n")
        >>> with ro.name_scope("encoder") as prefix:
        ...     x = net.input("x")
        >>> prefix, x.name
        ('encoder/', 'encoder/x')
    """
    if not isinstance(name, str) or not name.strip("/"):
        raise NetError("a name scope needs a name", wanted="a non-empty string", came=repr(name))
    token = _PREFIX.set(scoped(name.strip("/")) + "/")
    try:
        yield _PREFIX.get()
    finally:
        _PREFIX.reset(token)


@contextmanager
def absolute_names() -> Iterator[None]:
    """Switch scopes off: inside, names are taken as they are (parameters of cells carry absolute names)."""
    token = _PREFIX.set("")
    try:
        yield
    finally:
        _PREFIX.reset(token)


def scoped(name: str) -> str:
    """`name` with the prefix of the open scopes."""
    return _PREFIX.get() + name


def check_name(name: object, kind: str, net: str | None = None) -> str:
    """Names are non-empty printable strings without blanks at their ends; quotes and control characters are refused."""
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable() or '"' in name:
        raise NetError(f"not a name for a {kind}", net=net, wanted="a non-empty printable string", came=repr(name))
    return name


def unused_name(name: str, taken: Container[str]) -> str:
    """The name, or it with a number behind, such that it is not taken."""
    return next(free for free in chain([name], (f"{name}_{k}" for k in count(1))) if free not in taken)


def free_name(name: str, taken: set[str]) -> str:
    """The name, or it with a number behind, such that it is not taken; it is from then on."""
    found = unused_name(name, taken)
    taken.add(found)
    return found
