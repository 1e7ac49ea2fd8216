"""What code can read by name: attributes, globals and imports, taken from the bytecode of functions that ran.

Names are collected for all code together, so that they are more than each object is asked for, and never fewer. Code
that asks for attributes by names of its own making (`getattr(self, name)`, `vars(config)`) may read all of them.
"""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

import torch

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
    """Whether the values of a module or a class of this module name count as constants."""
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
    """Whether an instruction is of a call such as `getattr(self, name)`, whose name is no constant."""
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
