"""The reads of a step's code: found in its bytecode, recorded while it runs, read again later.

Bytecode of the functions that ran gives names of attributes, globals and imports. All names are put together, so more
attributes of an object may be watched than needed, and none is missed. Code that computes attribute names
(`getattr(self, name)`, `vars(config)`) may read all attributes.

While a step is traced, each code object is recorded before its first instruction: `sys.setprofile` reports each call of
this thread. Recording is off within PyTorch's own functions.
"""

from __future__ import annotations

import dis
import importlib
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
from torch._functorch import eager_transforms
from torch.nn import Module
from torch.nn.modules.module import _global_backward_hooks, _global_backward_pre_hooks
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm
from torch.overrides import TorchFunctionMode

from rnnops.torch.errors import BY_HAND, SEED_OUTSIDE, StepError

MISSING = object()


def several(getter: Any, keys: Sequence[Any]) -> Callable[[Any], Iterable[Any]]:
    """A getter of a tuple. With one key the key is given twice, so that the result is still a tuple."""
    fetch: Callable[[Any], Iterable[Any]] = getter(*keys) if len(keys) > 1 else getter(keys[0], keys[0])
    return fetch


class AsOneOfSeveral:
    """Makes a getter of one value return a tuple of one."""

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
    """Gets items of a dict, even if its class overrides `[]`."""

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
    """Contents of an array, for comparison."""
    if not isinstance(value, np.ndarray):
        return bytes(value)
    mask = np.ndarray.tobytes(np.ma.getmaskarray(value)) if isinstance(value, np.ma.MaskedArray) else b""
    return np.ndarray.tobytes(value), mask, value.shape, value.dtype  # `np.ma.masked` has no working `tobytes`


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
    except ValueError:  # the name of this cell has no value yet
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
PACKAGES = (
    *("numpy", "sympy", "mpmath", "networkx", "functorch", "torchgen", "typing_extensions", "numba", "llvmlite"),
    *("_pytest", "pytest", "pluggy"),  # asserts that pytest has rewritten refer to these
)
# packages whose own values count as constants
UNREAD = ("torch", "rnnops", "builtins", *PACKAGES, *sys.stdlib_module_names)
SITES = ("site-packages", "dist-packages")
ANY_NAME = {"getattr", "hasattr", "attrgetter"}  # with a constant name, these read only that name
ALL_NAMES = {
    *("vars", "dir", "__dict__", "__getattribute__", "eval", "exec", "getattr_static", "getmembers", "asdict"),
    *("str", "repr", "format", "format_map", "dumps", "pformat", "print"),
    *("astuple", "copy", "deepcopy", "__getstate__", "__reduce_ex__"),
}
# these functions read any name that they are asked for
LOOKUP = torch.nn.Module.__getattr__.__code__, torch.nn.Module.__setattr__.__code__


@dataclass(frozen=True)
class CodeReads:
    """Names in one piece of code.

    Args:
        all_names: True if the code may read attributes by names that it computes.
    """

    attributes: frozenset[str]
    globals: frozenset[str]
    imports: frozenset[str]
    all_names: bool


@lru_cache(4096)
def kind_of(filename: str) -> str:
    """Whose code a file is: the user's, a package's or PyTorch's."""
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
    """True if values in modules and classes of this package count as constants."""
    name = module if isinstance(module, str) else ""
    return name.partition(".")[0] in UNREAD


@lru_cache(4096)
def reads_of(code: CodeType) -> CodeReads:
    """Names that a piece of code reads or sets, without those of its inner functions."""
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
    """True if an instruction belongs to a call like `getattr(self, name)`, whose name is not a constant."""
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
        codes: code objects by id, which are kept alive.
        names: names of attributes.
        globals: by id of a dict of globals: the dict, and the names that are read in it.
        imports: modules that the code imports by name.
    """

    codes: dict[int, CodeType] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    globals: dict[int, tuple[dict[str, Any], set[str]]] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    all_names: bool = False
    user_names: set[str] = field(default_factory=set)
    reads_environment: bool = False

    def add(self, code: CodeType, its_globals: dict[str, Any]) -> bool:
        """Adds the names in a piece of code. Returns True if the code is new."""
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
OUTSIDE = {  # modules of C functions that read state outside of Python objects
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
SEEDING = {"manual_seed", "seed", "set_state", "set_offset"}  # methods of a torch.Generator
SETTERS = {getattr(torch.Tensor, name).__set__ for name in ("data", "grad")}
# modules between a random function and the user's code
BETWEEN = (".random", "contextlib", "torch._compile", "torch._dynamo.eval_frame")
CALL, GRAD = Module._call_impl.__code__, torch.autograd.grad.__code__
TRANSFORMS = {made.__code__ for made in (eager_transforms.grad_and_value_impl, eager_transforms._vjp_with_argnums)}
OLD_NORMS = WeightNorm, SpectralNorm
IMPORT = importlib._bootstrap._find_and_load.__code__  # type: ignore[attr-defined]
OutsideRead = tuple[str, str]  # name of a function, description of the state that it reads


class FirstImport(BaseException):  # derived from BaseException, so that no handler of a step catches it
    """A step imports a module for the first time: a trace would leave the module with its own tensors."""


class CodeRecorder(TorchFunctionMode):
    """Reports code that runs within, and functions that read state that cannot be compared.

    Args:
        imported: modules whose first import was already tried outside of a trace. The import of another module raises
            `FirstImport`.
    """

    def __init__(self, on_code: Callable[[CodeType, dict[str, Any]], object], imported: Collection[str] = ()) -> None:
        super().__init__()
        self._on_code, self._imported = on_code, imported
        self._done: dict[int, CodeType] = {}
        self._modules: dict[int, Module] = {}
        self.outside: set[OutsideRead] = set()
        self.has_assertions = False

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
        """Stops another profiler meanwhile."""
        switch = getattr(self._before, "disable" if pause else "enable", None)
        if switch is not None:  # cProfile's
            switch()
        elif not pause and callable(self._before):
            sys.setprofile(self._before)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        sys.setprofile(None)
        if func in SETTERS and isinstance(args[1], torch.Tensor):
            hint = "Write tensor.copy_(value), or set the attribute that holds the tensor."
            raise StepError(f"a step sets tensor.{func.__self__.__name__}, which a trace cannot follow", hint=hint)
        self.has_assertions |= func is torch._assert_async
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
            if code is IMPORT:
                self._on_import(frame)
            if code in TRANSFORMS or (
                code is GRAD and frame.f_locals["create_graph"] and kind_of_caller(frame) == USER
            ):
                raise StepError("a step takes a gradient, which would need a gradient itself", hint=BY_HAND)
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

    def _on_import(self, frame: FrameType) -> None:
        name = frame.f_locals["name"]
        if name not in sys.modules and name not in self._imported and kind_of_caller(frame) == USER:
            raise FirstImport(name)

    def _on_builtin(self, frame: FrameType, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        if isinstance(owner, torch.Generator) and function.__name__ in SEEDING:
            _refuse_seeding(frame, function.__name__)
        module = getattr(function, "__module__", None) or type(owner).__module__
        read = OUTSIDE.get(module)
        if read and function.__name__ not in PURE and kind_of_caller(frame, itself=True) == USER:
            self.outside.add((f"{module.lstrip('_')}.{function.__name__}", read))


def _refuse_seeding(frame: FrameType | None, name: str) -> None:
    """Raise StepError if the user's code seeds random numbers, by a generator or by a function of `torch.random`."""
    while frame is not None and frame.f_globals["__name__"].endswith(BETWEEN):
        is_whole = frame.f_globals["__name__"].endswith(".random")
        name, frame = frame.f_code.co_name if is_whole else name, frame.f_back
    if kind_of_caller(frame, itself=True) == USER:  # PyTorch itself may seed, as in checkpoint
        raise StepError("a step seeds random numbers", op=name, hint=SEED_OUTSIDE)


def refuse_scripted(module: Module) -> None:
    """Raise StepError for a module of torch.jit."""
    if isinstance(module, torch.jit.ScriptModule):
        hint = "Give the module as it was before torch.jit.script."
        raise StepError("a scripted module is part of a step", came=module.original_name, hint=hint)


def _check_module(module: Module) -> None:
    """Raise StepError for modules whose effect a graph would not show."""
    refuse_scripted(module)
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, OLD_NORMS):
            name = "weight_norm" if isinstance(hook, WeightNorm) else "spectral_norm"
            hint = f"Use torch.nn.utils.parametrizations.{name}, which is computed once a call."
            raise StepError("a hook computes a weight at each step", came=f"torch.nn.utils.{name}", hint=hint)
    own = module._backward_hooks, module._backward_pre_hooks
    for hooks in (*own, _global_backward_hooks, _global_backward_pre_hooks):
        for hook in hooks.values():
            came = f"{getattr(hook, '__qualname__', hook)} of {type(module).__name__}"
            hint = "Put it on the rnnops.torch.RNN, or on a parameter."
            raise StepError("a loop would run a module's backward hook at each step", came=came, hint=hint)


def kind_of_caller(frame: FrameType | None, itself: bool = False) -> str:
    """Whose code called. Frames of the standard library are skipped."""
    frame = frame if itself else frame and frame.f_back
    while frame is not None:
        kind = kind_of(frame.f_code.co_filename)
        if kind != STANDARD:
            return USER if kind == MODULES else kind
        frame = frame.f_back
    return USER
