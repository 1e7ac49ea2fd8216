"""Small helpers: lazy values and modules, locks after a fork, whole files, graphs, output for people.

`cached_property` is that of functools, without the lock that it has before Python 3.12. All objects of a class share
that lock, and it is held while a value is computed: threads wait for each other, and a child that is forked meanwhile
waits for ever. Without it two threads may compute a value at once; both get the first.

A forked child has one thread, and a lock that another thread held stays taken in it for ever. So a fork waits until the
locks named here are free, and both processes go on with them free. That may take as long as another thread compiles a
function. Limit: of imports only those that rnnops does late are waited for.

Graphs have an order and components; output for people is HTML in notebooks, and progress bars in terminals.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from heapq import heapify, heappop, heappush
from importlib import import_module
from pathlib import Path
from time import perf_counter
from types import ModuleType
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


class MadeOnDemand(dict[str, Value]):
    """A dictionary that makes what is missing."""

    def __init__(self, make: Callable[[str], Value]) -> None:
        self.make = make

    def __missing__(self, key: str) -> Value:
        return self.setdefault(key, self.make(key))


class LazyModule:
    """A module that is imported when an attribute is first read, as modules that make code are not always needed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        with LOADING:  # a fork meanwhile waits
            value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


class MovedModule(ModuleType):
    """A module's former name for one release: hands out names of the new module, with a DeprecationWarning."""

    def __init__(self, name: str, new: str) -> None:
        super().__init__(name, f"Moved to `{new}`.")
        self._new = new

    def __getattr__(self, name: str) -> Any:
        there = {one: value for one, value in vars(import_module(self._new)).items() if not one.startswith("_")}
        if name == "__all__":
            return list(there)
        if name not in there:  # as the import system and pickle ask of every module
            raise AttributeError(f"{self._new} has no {name}")
        warnings.warn(f"{self.__name__} is {self._new} now", DeprecationWarning, stacklevel=2)
        return there[name]


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
        raise OSError(f"{target} is there and is not a file")
    if not target.parent.is_dir():
        raise OSError(f"there is no folder {target.parent}")
    temporary = target.parent / f".rnnops-{os.urandom(8).hex()}.tmp"
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


html = LazyModule("html")
CELL = ' style="text-align: left; font-family: monospace"'


def preformatted(text: str) -> str:
    """A text as it is, line by line."""
    return f'<pre style="white-space: pre">{html.escape(text)}</pre>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table with a caption above it, numbers and texts as they are."""
    top = "".join(f"<th{CELL}>{html.escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td{CELL}>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    above = f'<caption style="caption-side: top">{html.escape(caption)}</caption>'
    return f"<table>{above}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def scrolled(markup: str) -> str:
    """Markup that keeps its width, where a page is narrower."""
    return f'<div style="overflow-x: auto">{markup}</div>'


def folded(title: str, markup: str) -> str:
    """Markup that opens below its title."""
    return f"<details><summary>{html.escape(title)}</summary>{markup}</details>"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines in columns, the last one to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("  " + "  ".join([*cells, row[-1].rjust(widths[-1])]))
    return lines


def spaced(count: int) -> str:
    """A number in groups of three digits."""
    return f"{count:,}".replace(",", " ")


def counted(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def readable(count: int) -> str:
    """Bytes with a unit: `512 B`, `13.2 MiB`."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.4g} {units[0]}"


Item = TypeVar("Item")
logging = LazyModule("logging")  # which is wanted where a compile takes long
LONG = 1.0  # seconds, from which on a compile is told of


def is_terminal() -> bool:
    """True if standard error is a terminal that has a width; on others a bar would stay invisible."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):  # no terminal, or no file at all
        return False


def tqdm_or_none() -> Any:
    """The function `tqdm`, None where the package is missing."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm


def with_bar(items: Iterable[Item], what: str, unit: str) -> Iterable[Item]:
    """The items one by one, with a bar that counts them where there is a terminal."""
    tqdm = tqdm_or_none() if is_terminal() else None
    if tqdm is None:
        return items
    shown: Iterable[Item] = tqdm(items, desc=what, unit=unit, leave=False)
    return shown


@contextmanager
def told_if_long(what: str) -> Iterator[None]:
    """Say what was compiled where it took long: a line of the logger `rnnops`, on standard error by default."""
    start = perf_counter()
    yield
    seconds = perf_counter() - start
    if seconds > LONG:
        text = "compiled %s in %.1f s; run.warm_up(...) compiles before the first call"
        logging.getLogger("rnnops").warning(text, what, seconds)


def topological_order(
    before: Sequence[Collection[int]],
    key: Callable[[int], int],
    ran: Callable[[int], Iterable[int]] = lambda number: (),
) -> list[int]:
    """An order in which, of all that may come next, always the one of the smallest key comes; of equals the first.

    Args:
        before: for each number those that it needs.
        key: may get smaller with what has run, never larger.
        ran: is told of each number as its turn comes, and returns those whose key may have changed by that.
    """
    waiting = [len(set(needed)) for needed in before]
    after: list[set[int]] = [set() for _ in before]
    for number, needed in enumerate(before):
        for one in needed:
            after[one].add(number)
    ready = [(key(number), number) for number, count in enumerate(waiting) if not count]
    heapify(ready)  # a number may be there several times: with its key of now, and with larger ones of before
    order: dict[int, None] = {}
    while ready:
        _, chosen = heappop(ready)
        if chosen in order:
            continue
        order[chosen] = None
        for number in ran(chosen):
            if not waiting[number] and number not in order:
                heappush(ready, (key(number), number))
        for number in after[chosen]:
            waiting[number] -= 1
            if not waiting[number]:
                heappush(ready, (key(number), number))
    return list(order)


def makers_before(ops: Sequence[tuple[Collection[str], Collection[str]]]) -> list[set[int]]:
    """For each op, given as its operands and results, the ops that make its operands."""
    makers = {name: number for number, (_, made) in enumerate(ops) for name in made if name}
    return [{makers[name] for name in read if name in makers} for read, _ in ops]


def strong_components(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """For each node of a directed graph the number of its strongly connected component."""
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        after[a].append(b)
    label, index, low, stack = [-1] * count, [-1] * count, [0] * count, list[int]()
    found = visited = 0
    for root in range(count):
        path = [(root, 0)] if index[root] < 0 else []
        while path:
            node, place = path.pop()
            if place == 0:
                index[node] = low[node] = visited
                visited += 1
                stack.append(node)
            else:
                low[node] = min(low[node], low[after[node][place - 1]])
            rest = after[node]
            while place < len(rest) and (index[rest[place]] >= 0):
                if label[rest[place]] < 0:  # still on the stack
                    low[node] = min(low[node], index[rest[place]])
                place += 1
            if place < len(rest):
                path += [(node, place + 1), (rest[place], 0)]
            elif low[node] == index[node]:
                while label[node] < 0:
                    label[stack.pop()] = found
                found += 1
    return label


def weak_components(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """For each node of a graph the number of its component, whichever way edges point."""
    first = list(range(count))  # a node that comes earlier in the component, or the node itself

    def root(node: int) -> int:
        while first[node] != node:
            first[node] = node = first[first[node]]
        return node

    for a, b in edges:
        low, high = sorted((root(a), root(b)))
        first[high] = low
    numbers = {one: i for i, one in enumerate(dict.fromkeys(map(root, range(count))))}
    return [numbers[root(node)] for node in range(count)]
