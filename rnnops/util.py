"""Small helpers: lazy values and modules, locks and forks, whole files, output for people, graphs.

**Lazy values**: `cached_property` is that of functools, without the lock that it has before Python 3.12. All objects of
a class share this lock, and it is held while a value is computed. So threads wait for each other, and a child that is
forked meanwhile waits forever. Without the lock two threads may compute a value at once; both get the first result.

**Locks and forks** (`wait_for`). A forked child has one thread. A lock that another thread held stays taken in the
child forever. So a fork waits until all locks that are named here are free, and both processes then have them free.
This may take as long as another thread compiles a function. Limit: a fork waits only for imports that `LazyModule`
does.

**Output for people** is HTML in notebooks, tables of text, and progress bars in terminals. **Graphs** have an order
(`topological_order`) and components.
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
    """A dictionary that makes missing values by a function of the key."""

    def __init__(self, make: Callable[[str], Value]) -> None:
        self.make = make

    def __missing__(self, key: str) -> Value:
        return self.setdefault(key, self.make(key))


class LazyModule:
    """A module that is imported when an attribute is first read. This saves time if it is never needed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        with LOADING:  # so that a fork waits for the import
            value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


class MovedModule(ModuleType):
    """A former module under its old name, for one release. It returns names of the new module, with a
    DeprecationWarning."""

    def __init__(self, name: str, new: str) -> None:
        super().__init__(name, f"Moved to `{new}`.")
        self._new = new

    def __getattr__(self, name: str) -> Any:
        there = {one: value for one, value in vars(import_module(self._new)).items() if not one.startswith("_")}
        if name == "__all__":
            return list(there)
        if name not in there:  # the import system and pickle ask every module for some names
            raise AttributeError(f"{self._new} has no {name}")
        warnings.warn(f"{self.__name__} is {self._new} now", DeprecationWarning, stacklevel=2)
        return there[name]


LOADING = threading.RLock()  # held during late imports of modules of rnnops, or of modules that it wrote
_locks: list[AbstractContextManager[Any]] = [LOADING]
_taken: list[ExitStack] = []  # the locks that the current fork has taken; used only while all locks are held


def wait_for(lock: AbstractContextManager[Any], outer: bool = False) -> None:
    """Let forks wait for one more lock. The forking thread itself may hold it.

    Args:
        outer: True if threads take it before the locks that are named already, False if after them.
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
    """A context with a new file to write. If it ends without an error, the file replaces the target and gets its mode;
    else the file is removed.

    Raises OSError, and does not change the target, if the target cannot be a file. If `path` is a link, the file behind
    it is replaced. A process that is killed meanwhile leaves a `.rnnops-*.tmp` behind.
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
        temporary.chmod(stat.S_IMODE(mode))  # a writer may have replaced the file, with another mode
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
    """A text as HTML that keeps its lines and spaces."""
    return f'<pre style="white-space: pre">{html.escape(text)}</pre>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """An HTML table with a caption above it. Texts are escaped."""
    top = "".join(f"<th{CELL}>{html.escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td{CELL}>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    above = f'<caption style="caption-side: top">{html.escape(caption)}</caption>'
    return f"<table>{above}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def scrolled(markup: str) -> str:
    """Markup that keeps its width, and scrolls on a narrower page."""
    return f'<div style="overflow-x: auto">{markup}</div>'


def folded(title: str, markup: str) -> str:
    """Markup that is hidden until its title is clicked."""
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
logging = LazyModule("logging")  # needed only if a compile takes long
LONG = 1.0  # a compile of more than so many seconds is logged


def is_terminal() -> bool:
    """True if standard error is a terminal with a width. Without a width, a progress bar would be invisible."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):  # no terminal, or no file at all
        return False


def tqdm_or_none() -> Any:
    """The function `tqdm`; None if the package is missing."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm


def with_bar(items: Iterable[Item], what: str, unit: str) -> Iterable[Item]:
    """The items one by one, with a progress bar in a terminal."""
    tqdm = tqdm_or_none() if is_terminal() else None
    if tqdm is None:
        return items
    shown: Iterable[Item] = tqdm(items, desc=what, unit=unit, leave=False)
    return shown


@contextmanager
def told_if_long(what: str) -> Iterator[None]:
    """If the work in this context takes long, log a line that names it (logger `rnnops`, standard error by default)."""
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
    """An order of numbers in which each comes after those that it needs. Of all that may come next, the one with the
    smallest key comes; of equal keys, the smallest number.

    Args:
        before: for each number, the numbers that it needs.
        key: the key of a number. It may get smaller while others run, never larger.
        ran: called with each number when its turn comes. It returns the numbers whose keys may have changed.
    """
    waiting = [len(set(needed)) for needed in before]
    after: list[set[int]] = [set() for _ in before]
    for number, needed in enumerate(before):
        for one in needed:
            after[one].add(number)
    ready = [(key(number), number) for number, count in enumerate(waiting) if not count]
    heapify(ready)  # it may have a number several times: with its current key, and with larger, older keys
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
    """For each op, the numbers of the ops that make its operands. An op is given as (operands, results)."""
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
    """For each node of a graph, the number of its component. The direction of edges does not count."""
    first = list(range(count))  # an earlier node of the same component, or the node itself

    def root(node: int) -> int:
        while first[node] != node:
            first[node] = node = first[first[node]]
        return node

    for a, b in edges:
        low, high = sorted((root(a), root(b)))
        first[high] = low
    numbers = {one: i for i, one in enumerate(dict.fromkeys(map(root, range(count))))}
    return [numbers[root(node)] for node in range(count)]
