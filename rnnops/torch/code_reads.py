"""The reads of a step's code: found in its bytecode, recorded while it runs, read again later.

Bytecode of the functions that ran gives the names of attributes, globals and imports. Names are collected for all code
together: more than each object is asked for may be watched, and no name is missed. Code that asks for attributes by
names of its own making (`getattr(self, name)`, `vars(config)`) may read all of them.

While a step is traced, each code object is recorded before its first instruction: `sys.setprofile` tells of each call
of this thread. PyTorch's own functions are left out: it is off within them.

**Watch.** Watching what a trace read: before each call all of it is compared, and its tensors are fetched.

While all objects are the same a flat list of fetches and comparisons is enough. Where one is another object everything
is walked again, and counts as the same where the walks agree: a list of equal values, a closure that was made anew.
Most loops around `scan` make its function anew each time. That needs no walk: the new function's
cells take the places of those before in the stored walk.
"""

from __future__ import annotations

import copy
import dis
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from operator import is_, itemgetter
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import _global_backward_hooks, _global_backward_pre_hooks
from torch.overrides import TorchFunctionMode

from rnnops.torch.errors import StepError
from rnnops.torch.walk import Slot, Walk, walk_all

MISSING = object()


def several(getter: Any, keys: Sequence[Any]) -> Callable[[Any], Iterable[Any]]:
    """A getter of a tuple, also for one key, which then comes twice."""
    fetch: Callable[[Any], Iterable[Any]] = getter(*keys) if len(keys) > 1 else getter(keys[0], keys[0])
    return fetch


class AsOneOfSeveral:
    """A getter of one thing as one of several."""

    __slots__ = ("_get",)

    def __init__(self, get: Callable[[Any], Any]) -> None:
        self._get = get

    def __call__(self, holder: Any) -> tuple[Any]:
        return (self._get(holder),)


class names_in_class:  # noqa: N801 - used as the getters of `operator` are
    def __init__(self, *names: str) -> None:
        self._get = itemgetter(*names)

    def __call__(self, value: type) -> Any:
        return self._get(value.__dict__)


class items_of_dict:  # noqa: N801
    """Items of a dict, whatever its class makes of `[]`."""

    def __init__(self, *keys: Any) -> None:
        self._keys = keys

    def __call__(self, value: dict[Any, Any]) -> Any:
        found = [dict.__getitem__(value, key) for key in self._keys]
        return found if len(found) > 1 else found[0]


class items_of_sequence:  # noqa: N801
    def __init__(self, *places: int) -> None:
        self._places = places

    def __call__(self, value: Any) -> Any:
        held = list(value)
        found = [held[place] for place in self._places]
        return found if len(found) > 1 else found[0]


def elements(value: Any) -> list[Any]:
    found: list[Any] = value.ravel().tolist()
    return found


def bytes_of(value: Any) -> Any:
    """The contents of an array, to compare."""
    return (value.tobytes(), value.shape, value.dtype) if isinstance(value, np.ndarray) else bytes(value)


def keys_of_class(value: type) -> tuple[str, ...]:
    return tuple(value.__dict__)


def variable_now(value: ContextVar[Any], key: None) -> Any:
    return value.get(MISSING)


def of_variable(*keys: None) -> Callable[[ContextVar[Any]], Any]:
    return (lambda value: [value.get(MISSING)] * 2) if len(keys) > 1 else (lambda value: value.get(MISSING))


def referent(value: Any) -> tuple[Any]:
    return (value(),)


def slots_now(names: tuple[str, ...], value: Any) -> list[bool]:
    return [has_slot(value, name) for name in names]


def has_slot(value: Any, name: str) -> bool:
    try:
        object.__getattribute__(value, name)
    except AttributeError:
        return False
    return True


def slots_of(kind: type) -> list[str]:
    return [
        name
        for base in kind.__mro__
        if not is_unread(base.__module__)
        for name, part in base.__dict__.items()
        if isinstance(part, types.MemberDescriptorType)
    ]


def is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a name that has no value yet
        return False
    return True


def text_of_key(key: Any) -> str:
    if isinstance(key, str):
        return "" if key == "cell_contents" else f".{key}"
    return f"[{key!r}]"[:40]


USER, MODULES, STANDARD, SKIPPED = "user", "modules of PyTorch", "standard library", "skipped"
TORCH = os.path.dirname(torch.__file__) + os.sep
MODULE_CODE = (os.path.join(TORCH, "nn", "modules"), os.path.join(TORCH, "nn", "utils", "parametriz"))
OWN = str(Path(__file__).parents[1]) + os.sep
LIBRARY = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
PACKAGES = ("numpy", "sympy", "mpmath", "networkx", "functorch", "torchgen", "typing_extensions", "numba", "llvmlite")
UNREAD = ("torch", "rnnops", "builtins", *PACKAGES, *sys.stdlib_module_names)  # packages whose own values stay
SITES = ("site-packages", "dist-packages")
ANY_NAME = {"getattr", "hasattr", "attrgetter"}  # with a constant name they read that one
ALL_NAMES = {
    *("vars", "dir", "__dict__", "__getattribute__", "eval", "exec", "getattr_static", "getmembers", "asdict"),
    *("str", "repr", "format", "format_map", "dumps", "pformat", "print"),
    *("astuple", "copy", "deepcopy", "__getstate__", "__reduce_ex__"),
}
LOOKUP = torch.nn.Module.__getattr__.__code__, torch.nn.Module.__setattr__.__code__  # which read what is named


@dataclass(frozen=True)
class CodeReads:
    """Names in one piece of code.

    Args:
        all_names: whether it may read attributes by names that it makes itself.
    """

    attributes: frozenset[str]
    globals: frozenset[str]
    imports: frozenset[str]
    all_names: bool


@lru_cache(4096)
def kind_of(filename: str) -> str:
    """Whose code a file is."""
    if filename.startswith(MODULE_CODE):
        return MODULES
    if filename.startswith((TORCH, OWN, "<eval_with_key")):
        return SKIPPED
    parts = filename.split(os.sep)
    if any(site in parts for site in SITES):
        package = next(parts[parts.index(site) + 1 :] for site in SITES if site in parts)[0]
        return SKIPPED if package.removesuffix(".py") in PACKAGES else USER
    return STANDARD if filename.startswith((*LIBRARY, "<frozen")) else USER


def is_unread(module: Any) -> bool:
    """True if the values of a module or a class of this module name count as constants."""
    name = module if isinstance(module, str) else ""
    return name.partition(".")[0] in UNREAD


@lru_cache(4096)
def reads_of(code: CodeType) -> CodeReads:
    """Names that a piece of code reads or sets, without those of functions in it."""
    instructions = list(dis.get_instructions(code))
    named_globals = {i.argval for i in instructions if i.opname.endswith(("_GLOBAL", "_NAME")) and i.opname[0] != "I"}
    imports = {str(i.argval) for i in instructions if i.opname == "IMPORT_NAME"}
    texts = set(_texts(code.co_consts))
    names = set(code.co_names)
    is_open = (
        bool(names & ALL_NAMES)
        or any(i.opname.startswith("FORMAT_") for i in instructions)
        or any(_is_dynamic(instructions, i) for i in range(len(instructions)))
    )
    attributes = names | {text for text in texts if text.isidentifier()}
    return CodeReads(frozenset(attributes), frozenset(named_globals), frozenset(imports | texts), is_open)


def _texts(constants: tuple[Any, ...] | frozenset[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from _texts(constant)


def _is_dynamic(instructions: list[dis.Instruction], i: int) -> bool:
    """True if an instruction is of a call such as `getattr(self, name)`, whose name is not a constant."""
    if instructions[i].argval not in ANY_NAME or not instructions[i].opname.startswith("LOAD"):
        return False
    pushed: list[Any] = []
    for instruction in instructions[i + 1 :]:
        name = instruction.opname
        if name in ("LOAD_ATTR", "LOAD_METHOD"):
            pushed[-1:] = [None]
        elif name.startswith(("LOAD_FAST_LOAD", "LOAD_FAST_BORROW_LOAD")):
            pushed += (None, None)
        elif name.startswith("LOAD"):
            pushed.append(instruction.argval if name == "LOAD_CONST" else None)
        elif name != "PUSH_NULL":
            break
    return not (len(pushed) > 1 and isinstance(pushed[1], str))


@dataclass
class Reads:
    """Names in all code that ran.

    Args:
        codes: by id; they are kept alive.
        names: of attributes.
        globals: by id, dicts of globals with the names that are read there.
        imports: modules that are read by their names.
    """

    codes: dict[int, CodeType] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    globals: dict[int, tuple[dict[str, Any], set[str]]] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    all_names: bool = False
    user_names: set[str] = field(default_factory=set)
    reads_environment: bool = False

    def add(self, code: CodeType, its_globals: dict[str, Any]) -> bool:
        """Add what code reads. Tells whether it is new."""
        if id(code) in self.codes:
            return False
        self.codes[id(code)] = code
        if code in LOOKUP:
            return True
        kind, reads = kind_of(code.co_filename), reads_of(code)
        self.names |= reads.attributes
        self.all_names |= reads.all_names and not code.co_filename.startswith(MODULE_CODE[0])
        if kind == USER:
            self.user_names |= reads.attributes
        self.reads_environment |= code in ENVIRONMENT
        if kind in (USER, MODULES):
            self.globals.setdefault(id(its_globals), (its_globals, set()))[1].update(reads.globals)
            self.imports.update(_modules_named(reads.imports, its_globals))
        return True


def _modules_named(names: frozenset[str], its_globals: dict[str, Any]) -> Iterator[str]:
    package = its_globals.get("__package__") or ""
    for name in names:
        for full in (name, f"{package}.{name}".lstrip(".")):
            if full in sys.modules and not is_unread(full):
                yield full


ENVIRONMENT = [part.__code__ for part in vars(type(os.environ)).values() if hasattr(part, "__code__")]


CLOCK = "the clock"
OUTSIDE = {  # modules of C functions that read what no object of Python holds
    "time": CLOCK,
    "_random": "Python's random numbers",
    "random": "Python's random numbers",
    "posix": "the file system",
    "nt": "the file system",
    "io": "a file",
    "_io": "a file",
    "_socket": "a socket",
}
PURE = {"putenv", "unsetenv", "fspath", "getpid"}
CALL = Module._call_impl.__code__
OutsideRead = tuple[str, str]  # a function's name, what it reads


class CodeRecorder(TorchFunctionMode):
    """Tells of code that runs within, and of functions that read what cannot be checked."""

    def __init__(self, on_code: Callable[[CodeType, dict[str, Any]], object]) -> None:
        super().__init__()
        self._on_code = on_code
        self._done: dict[int, CodeType] = {}
        self._modules: dict[int, Module] = {}
        self.outside: set[OutsideRead] = set()

    def __enter__(self) -> CodeRecorder:
        self._before = sys.getprofile()
        self._pause_other(True)
        super().__enter__()
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *error: Any) -> None:
        sys.setprofile(None)
        super().__exit__(*error)
        self._pause_other(False)
        for module in self._modules.values():
            _check_module(module)

    def _pause_other(self, pause: bool) -> None:
        """A profiler that is at work is stopped meanwhile."""
        switch = getattr(self._before, "disable" if pause else "enable", None)
        if switch is not None:  # cProfile's
            switch()
        elif not pause and callable(self._before):
            sys.setprofile(self._before)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        sys.setprofile(None)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            sys.setprofile(self._on_event)

    def _on_event(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code is CALL:
                module = frame.f_locals["self"]
                self._modules[id(module)] = module
            if id(code) not in self._done:
                self._on_call(frame, code)
        elif event == "c_call":
            self._on_builtin(frame, function)

    def _on_call(self, frame: FrameType, code: CodeType) -> None:
        kind = kind_of(code.co_filename)
        if kind == STANDARD and kind_of_caller(frame) != USER:
            return
        self._done[id(code)] = code
        if kind != SKIPPED:
            self._on_code(code, frame.f_globals)

    def _on_builtin(self, frame: FrameType, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        module = getattr(function, "__module__", None) or type(owner).__module__
        read = OUTSIDE.get(module)
        if read and function.__name__ not in PURE and kind_of_caller(frame, itself=True) == USER:
            self.outside.add((f"{module.lstrip('_')}.{function.__name__}", read))


def _check_module(module: Module) -> None:
    """Raise StepError for modules that a graph would not show as they are."""
    if isinstance(module, torch.jit.ScriptModule):
        hint = "Give the module as it was before torch.jit.script."
        raise StepError("a scripted module is part of a step", came=module.original_name, hint=hint)
    own = module._backward_hooks, module._backward_pre_hooks
    for hooks in (*own, _global_backward_hooks, _global_backward_pre_hooks):
        for hook in hooks.values():
            came = f"{getattr(hook, '__qualname__', hook)} of {type(module).__name__}"
            hint = "Put it on the rnnops.torch.RNN, or on a parameter."
            raise StepError("a loop would run a module's backward hook at each step", came=came, hint=hint)


def kind_of_caller(frame: FrameType | None, itself: bool = False) -> str:
    """Whose code called, looking past the standard library's."""
    frame = frame if itself else frame and frame.f_back
    while frame is not None:
        kind = kind_of(frame.f_code.co_filename)
        if kind != STANDARD:
            return USER if kind == MODULES else kind
        frame = frame.f_back
    return USER


def tensor_at(slot: Slot) -> Tensor:
    """The tensor that is in a slot now."""
    holder, key, read = slot
    found: Tensor = read(holder, key)
    return found


LISTS_WITH_HOLDERS = ("fetches", "tensor_fetches", "sized", "named", "slots", "holders", "functions")


def _parts(root: Any) -> tuple[Any, ...]:
    """A function or a bound method, and the objects that each new one of the same code has anew."""
    return (root, root.__dict__, *(root.__closure__ or ())) if type(root) is FunctionType else (root,)


def _is_alike(root: Any, other: Any) -> bool:
    """True for two bound methods, or functions of one `def`; the objects that they have are not compared."""
    if type(root) is FunctionType is type(other):
        return root.__code__ is other.__code__ and root.__globals__ is other.__globals__
    return type(root) is MethodType is type(other)


class Successors:
    """The places of a walk's functions in its lists, where other functions of the same code can stand.

    Args:
        kept: ids of objects that nothing else stands for.
    """

    def __init__(self, walk: Walk, kept: Set[int]) -> None:
        self._owners: dict[int, tuple[int, int]] = {}  # by id of a part: the number of its root, and of the part there
        for number, root in enumerate(walk.roots):
            parts = _parts(root) if isinstance(root, FunctionType | MethodType) else ()
            is_known = parts and all(map(is_filled, parts[2:])) and kept.isdisjoint(map(id, parts))
            if is_known and walk.is_separate(root, parts):
                self._owners.update((id(part), (number, place)) for place, part in enumerate(parts))
        self._numbers = {number for number, _ in self._owners.values()}
        self._places = [(name, *place) for name in LISTS_WITH_HOLDERS for place in self._places_in(getattr(walk, name))]
        self._lists = {name for name, *_ in self._places}

    def _places_in(self, entries: list[Any]) -> Iterator[tuple[int, int | None, int, int]]:
        """For each part in a list: its place, its place within a tuple, the numbers of its root and of the part."""
        for place, entry in enumerate(entries):
            if id(entry) in self._owners:
                yield place, None, *self._owners[id(entry)]
            elif type(entry) is tuple:
                for within, value in enumerate(entry):
                    if id(value) in self._owners:
                        yield place, within, *self._owners[id(value)]

    def moved(self, walk: Walk, roots: Mapping[str, Any]) -> Walk | None:
        """The walk for other roots, before its values are compared; None where these have to be walked."""
        parts: dict[int, tuple[Any, ...]] = {}
        for number, (before, root) in enumerate(zip(walk.roots, roots.values(), strict=True)):
            if root is not before:
                if number not in self._numbers or not _is_alike(before, root):
                    return None
                parts[number] = _parts(root)
        moved = copy.copy(walk)
        moved.roots = tuple(roots.values())
        for name in self._lists:
            setattr(moved, name, getattr(walk, name).copy())
        for name, place, within, number, part in self._places:
            if number in parts:
                entries, value = getattr(moved, name), parts[number][part]
                old = entries[place]
                entries[place] = value if within is None else (*old[:within], value, *old[within + 1 :])
        return moved


class Watch:
    """The reads of a trace, by a walk from roots.

    Args:
        roots: by name.
        reads: names in the code that ran.
        ignored: places that are left out, as keys of `Walk`.
        changed: holders that a call sets something in, so that the trace holds for no others.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        reads: Reads,
        ignored: Collection[tuple[int, Any]] = (),
        changed: Collection[Any] = (),
    ) -> None:
        self.reads, self._ignored = reads, ignored
        self._is_fixed = False
        walk = walk_all(roots, reads, ignored=ignored)
        self._changed = {*map(id, changed)}.intersection(map(id, walk.holders))
        self._take(walk)
        self.key, self.unseen = self.walk.key, self.walk.unseen
        self._dtype = torch.get_default_dtype()

    def _take(self, walk: Walk) -> None:
        self.walk, self.slots = walk, walk.slots
        self._successors: Successors | None = None
        tensors = walk.tensors()
        self._grads = "requires_grad" in self.reads.names
        self._kinds = self._kinds_of(tensors)
        self._ids = list(map(id, tensors))
        self._pattern = _pattern(self._ids)
        self._sizes = list(map(len, walk.sized))
        self._types = list(map(type, walk.typed))
        self._names = list(map(tuple, walk.named))
        self._fixed = [(self._ids.index(id(tensor)), id(tensor)) for tensor in walk.with_attributes]
        if self._is_fixed:
            self.fix_tensors()

    def tensors_now(self, roots: Mapping[str, Any]) -> list[Tensor] | None:
        """The tensors at all slots; None where something that the trace read is another now."""
        if torch.get_default_dtype() is not self._dtype:
            return None
        known = self._walk_of(roots)
        tensors = None if known is None else self._fetched(known)
        if known is not None and tensors is not None:
            self.walk, self.slots = known, known.slots
            return tensors
        walk = Walk(roots, self.reads, ignored=self._ignored)
        if walk.key != self.key or not self._changed.issubset(map(id, walk.holders)):
            return None
        if self._is_fixed and list(map(id, walk.tensors())) != self._ids:
            return None
        self._take(walk)
        return walk.tensors()

    def _walk_of(self, roots: Mapping[str, Any]) -> Walk | None:
        """The walk for these roots, if they need no walk of their own."""
        if all(map(is_, roots.values(), self.walk.roots)):
            return self.walk
        if self._successors is None:
            self._successors = Successors(self.walk, self._changed.union(holder for holder, _ in self._ignored))
        return self._successors.moved(self.walk, roots)

    def _fetched(self, walk: Walk) -> list[Tensor] | None:
        found: list[Any] = []
        tensors: list[Tensor] = []
        try:
            if list(map(len, walk.sized)) != self._sizes or list(map(type, walk.typed)) != self._types:
                return None
            if list(map(tuple, walk.named)) != self._names:
                return None
            for fetch, holder in walk.fetches:
                found += fetch(holder)
            if len(found) != len(walk.expected) or not all(map(is_, found, walk.expected)):
                return None
            for fetch, holder in walk.tensor_fetches:
                tensors += fetch(holder)
            if self._kinds_of(tensors) != self._kinds:
                return None
        except Exception:  # something is gone, or cannot be compared
            return None
        ids = list(map(id, tensors))
        if ids != self._ids:
            if _pattern(ids) != self._pattern:
                return None
            self._ids = ids
        is_same = (
            all(bytes_of(array) == before for array, before in walk.arrays)
            and all(names.isdisjoint(held) for held, names in walk.apart)
            and all(ids[place] == tensor for place, tensor in self._fixed)
        )
        return tensors if is_same else None

    def _kinds_of(self, tensors: list[Tensor]) -> list[Any]:
        if self._grads:
            return [(tensor.dtype, tensor.shape, tensor.requires_grad) for tensor in tensors]
        return [(tensor.dtype, tensor.shape) for tensor in tensors]

    def fix_tensors(self) -> None:
        """From now on tensors may not be others."""
        self._is_fixed = True
        self._fixed = list(enumerate(self._ids))


def _pattern(ids: list[int]) -> list[int]:
    first: dict[int, int] = {}
    return [first.setdefault(number, place) for place, number in enumerate(ids)]
