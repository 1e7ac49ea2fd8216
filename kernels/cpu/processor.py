"""LLVM on this machine: room for it in memory, the processor that code is made for, the width of its vectors.

**Room.** LLVM ends the process where memory runs out, so that what it may need is asked for before it is entered. The
sizes are measured: the least room under RLIMIT_AS in which modules of 13 to 810 KB of text are compiled and loaded
(`tests/compiler/test_little_room.py`). They are 1.3 to 2 times that for generated modules, and more for libraries of
products. Limits: memory that another thread takes meanwhile, and systems that promise more than they have.

**The processor that code is made for**: this machine's, or one that `RNNOPS_CPU` names and this machine can stand for.
`RNNOPS_CPU` is `native`, a level such as `x86-64-v3`, or any name that LLVM has for a processor of this architecture.
It is read once in a process. LLVM says which features the named processor has: it inlines a function only into code for
a processor with all features that the function needs.

**The width of the vectors that kernels are made for, from the processor that code is made for**. 512 bits with AVX-512,
256 with AVX, 128 with SSE2 or on aarch64, 64 (scalar code) elsewhere. Virtual machines may hide features; that is worth
a warning, as kernels then run at a fraction of their speed. A caller that wants another width passes it.

**Revision.** A number that changes with the source of any kernel: what objects of compiled code are known by on disk.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import platform
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rnnops.errors import DeviceError, OutOfMemoryError

MIB = 1 << 20
COMPILE, LOAD = 4 * MIB, 2 * MIB  # for any module, for any object
OF_TEXT, OF_FUNCTION, OF_OBJECT = 16, 500, 4  # bytes for one of the texts, of the longest function, of an object
WRITE, WRITE_PRODUCTS = 8 * MIB, 56 * MIB  # to write a module, or products, and to compile it, at least
ASK = 112 * MIB  # to find the features of a named processor, which takes 64 to 96 MiB for a while
SPARE = MIB  # that stays for Python, for errors at least
HELD_BACK = 2 * MIB  # address space whose pages are never touched; Python takes 1 MiB at once for its objects


def room_to_compile(texts: Sequence[str]) -> int:
    """Bytes that LLVM may need to make one object of modules."""
    longest = max(len(function) for text in texts for function in text.split("\ndefine"))
    return COMPILE + OF_TEXT * sum(map(len, texts)) + OF_FUNCTION * longest


def room_to_load(nbytes: int) -> int:
    """Bytes that LLVM may need to load an object."""
    return LOAD + OF_OBJECT * nbytes


def demand(nbytes: int, what: str) -> None:
    """Raise OutOfMemoryError where the system has no room of so many bytes."""
    if not has_room(nbytes + SPARE):
        raise OutOfMemoryError(
            f"memory has no room to {what}",
            wanted=f"{nbytes + SPARE} bytes",
            hint="Give the process more memory, or compile where there is more: objects are kept in the cache folder.",
        )


def has_room(nbytes: int) -> bool:
    """True if the system gives so many bytes; they are given back at once."""
    taken = _taken(nbytes)
    if taken is not None:
        taken.close()
    return taken is not None


def _taken(nbytes: int) -> mmap.mmap | None:
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    try:
        return mmap.mmap(-1, nbytes, **private)
    except (OSError, MemoryError):
        return None


class HeldBack:
    """Room that is held back while there is memory.

    Where an error of memory is to be made, `room` is closed there: a call of a Python function may need memory itself.
    """

    def __init__(self) -> None:
        self.room = _taken(HELD_BACK)

    def hold(self) -> None:
        if self.room is None or self.room.closed:
            self.room = _taken(HELD_BACK)


held_back = HeldBack()


INITIAL = 8 * MIB  # in addition to the file's bytes


def _demand_library() -> None:
    spec = find_spec("llvmlite")
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in Path(folder, "binding").glob("*llvmlite.*")]
    size = sum(file.stat().st_size for file in files if file.suffix in (".so", ".dylib", ".dll"))
    demand(size + INITIAL, "load LLVM's library")


if "llvmlite.binding" not in sys.modules:
    _demand_library()

import llvmlite.binding as llvm  # noqa: E402

__all__ = ["llvm"]

VARIABLE, NATIVE = "RNNOPS_CPU", "native"
X86 = ("x86_64", "amd64", "i386", "i686")
ARM = ("aarch64", "arm64")
LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
ALWAYS = {**dict.fromkeys(X86, "cx8"), **dict.fromkeys(ARM, "fp-armv8")}  # that each of these has, as LLVM knows them
SPELLING = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class TargetProcessor:
    """The processor that code is compiled for: machine, LLVM's name of the processor, features it may use.

    Args:
        text: the features that LLVM gets together with the name; empty if the name implies them all.
        chosen: whether it was asked for by name.
    """

    machine: str
    name: str
    features: frozenset[str]
    text: str = ""
    chosen: bool = False


@cache
def host() -> TargetProcessor:
    """The processor that code is made for."""
    demand(room_to_load(0), "ask LLVM for the processor")
    name = os.environ.get(VARIABLE) or NATIVE
    return _native() if name == NATIVE else named(name)


def named(name: str) -> TargetProcessor:
    """A processor by its name. Raises DeviceError where LLVM does not know it, or this machine cannot run its code."""
    machine = platform.machine().lower()
    own = _own_features()
    found = features_of(name, own) if SPELLING.fullmatch(name) else frozenset()
    if ALWAYS.get(machine) not in found:
        wanted = ", ".join([NATIVE, *(LEVELS if machine in X86 else ())])
        raise DeviceError(
            f"{VARIABLE} names no processor that LLVM knows for {machine}",
            wanted=f"{wanted}, or a name of LLVM's",
            came=repr(name),
            hint="`clang --print-supported-cpus` lists names",
        )
    if missing := sorted(feature for feature in found if not own[feature]):
        raise DeviceError(
            f"{VARIABLE}={name} asks for code that this processor cannot run",
            wanted=f"a processor with {', '.join(missing)}",
            came=llvm.get_host_cpu_name(),
            hint=f"Name one that has less, or leave {VARIABLE} out",
        )
    return TargetProcessor(machine, name, found, chosen=True)


def features_of(name: str, asked: Collection[str]) -> frozenset[str]:
    """Those of some features that a processor of LLVM's has; none where LLVM does not know it."""
    asked = sorted(asked)
    trial = _trial(name, asked)
    demand(ASK, "ask LLVM what the processor has")
    llvm.initialize_native_target()
    module = llvm.parse_assembly(trial)
    module.triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(module.triple).create_target_machine()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    left = str(module)
    return frozenset(feature for i, feature in enumerate(asked) if f"@needs_{i}(" not in left)


def _trial(name: str, asked: Collection[str]) -> str:
    """An LLVM module with a caller for the processor, and a function for each feature that wants to be copied there."""
    mode = "+64bit" if platform.machine().lower() in X86 else ""  # LLVM ends the process where x86 code has no mode
    functions, calls, attributes = [], [], [f'attributes #0 = {{ "target-cpu"="{name}" "target-features"="{mode}" }}']
    for i, feature in enumerate(asked):
        body = f"store volatile i32 {i}, ptr %p ret void"
        functions.append(f"define internal void @needs_{i}(ptr %p) #{i + 1} {{ {body} }}")
        calls.append(f"call void @needs_{i}(ptr %p)")
        wanted = ",".join(filter(None, (mode, f"+{feature}")))
        attributes.append(f'attributes #{i + 1} = {{ "target-features"="{wanted}" }}')
    caller = "\n".join(["define void @caller(ptr %p) #0 {", *calls, "ret void", "}"])
    return "\n".join([*functions, caller, *attributes])


def _own_features() -> dict[str, bool]:
    """Each feature that LLVM looks for on this machine, and whether it is there."""
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM cannot tell on this platform
        return {}


def _native() -> TargetProcessor:
    own = _own_features()
    there = frozenset(feature for feature, has in own.items() if has)
    text = llvm.FeatureMap(own).flatten()
    return TargetProcessor(platform.machine().lower(), llvm.get_host_cpu_name(), there, text)


WIDTHS = (512, 256, 128, 64)
PAIRS, SINGLES = "pairs", "singles"  # of numbers rounded to bfloat16, each pair, or each number, a word of 32 bits
INT8 = "int8"  # way of products where B is packed as whole numbers of a byte each
BYTES = "bytes"  # products of whole numbers from 0 to 255 and from -128 to 127
QUADS = "quads"  # of these, four a word of 32 bits
NUMBERS = {QUADS: 4, PAIRS: 2, SINGLES: 1}  # in a word
ITEM_SIZES = {"float32": 4, "float64": 8, PAIRS: 4, QUADS: 4}
BASELINE_NAMES = ("", "generic", *LEVELS[:2], "nocona", "core2")


def lanes(width: int, dtype: str) -> int:
    """Numbers in a vector of `width` bits."""
    return 1 if width == 64 else width // 8 // ITEM_SIZES[dtype]


def vector_width(forced: int | None = None) -> int:
    """Bits of a vector: what is asked for, else what the processor has."""
    if forced is None:
        return _host_width()
    if forced not in WIDTHS:
        raise ValueError(f"vector width {forced}: wanted one of {', '.join(map(str, WIDTHS))}")
    return forced


@cache
def _host_width() -> int:
    warn_if_hidden(host())
    return width_of(host())


def width_of(processor: TargetProcessor) -> int:
    """The widest vectors that the features allow."""
    if processor.machine in X86:
        by_feature = {"avx512f": 512, "avx": 256}
        return next((width for feature, width in by_feature.items() if feature in processor.features), 128)
    return 128 if processor.machine in ARM else 64


def has_pairs(width: int) -> bool:
    """True if the processor multiplies pairs of bfloat16 numbers in vectors of so many bits."""
    return width == 512 and host().machine in X86 and "avx512bf16" in host().features


def has_quads(width: int) -> bool:
    """True if the processor multiplies words of four bytes in vectors of so many bits."""
    feature = {512: "avx512vnni", 256: "avxvnni"}.get(width)
    return host().machine in X86 and feature in host().features


def warn_if_hidden(processor: TargetProcessor) -> None:
    """Warn where a processor hides behind a baseline name, unless that was asked for."""
    hides = processor.name in BASELINE_NAMES and not processor.chosen
    if processor.machine in X86 and hides and width_of(processor) < 256:
        known = f"{processor.name or 'an unnamed processor'!r} with vectors of {width_of(processor)} bits"
        text = f"kernels are compiled for {known}, as it shows no AVX: a virtual machine may hide it"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def source_revision(files: Iterable[Path]) -> int:
    """Sixty bits of a hash over the names and contents of files."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return int.from_bytes(digest.digest()[:8], "little") >> 4


HOME = Path(__file__).parent
REVISION = source_revision([*HOME.glob("*.py"), HOME.parent / "scalar_functions.py"])  # which says where each one is
