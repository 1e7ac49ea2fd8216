"""LLVM on this machine: its room in memory, the processor, the width of vectors, the object code that is kept.

**Room.** LLVM ends the process if memory runs out. So the memory that it may need is requested before it is called, and
given back. The sizes follow from measurements: the least room under RLIMIT_AS in which modules of 13 to 810 KB of text
are compiled and loaded (`tests/compiler/test_little_room.py`). They are 1.3 to 2 times that for generated modules, and
more for libraries of products. Limits: memory that another thread takes meanwhile, and systems that promise more than
they have.

**The processor that code is made for**: this machine's, or one that `RNNOPS_CPU` names and whose code this machine can
run. `RNNOPS_CPU` is `native`, a level such as `x86-64-v3`, or any name that LLVM has for a processor of this
architecture. It is read once in a process. The features of a named processor are found by a trial: LLVM inlines a
function only into code for a processor with all features that the function needs.

**The width of vectors** follows from that processor: 512 bits with AVX-512, 256 with AVX, 128 with SSE2 or on aarch64,
64 (scalar code) elsewhere. It chooses the library of products. Virtual machines may hide features. That gives a
warning, as kernels then run at a fraction of their speed. A caller may pass another width.

**Revision.** A number that changes with the source of any kernel. Names of compiled objects on disk depend on it.

**The cache folder** is never inside the installed package, which belongs to its installer. It is `RNNOPS_CACHE_DIR`,
else `rnnops` in the user's cache folder, else a folder that is deleted with this process. It may be deleted at any
time; missing objects are compiled again.

**Object code** has one file for each text that was compiled. It is checked before it is used. A file has a digest of
its name and the object, then the object. The name is a hash of all that the object depends on: the text, the processor
and its features, the compiler's version. Files are written whole or not at all. A damaged file is ignored and written
anew. Foreign code is kept out: files and folders are used only if they belong to this user or to the system's, and only
their owner may write to them. If there are too many files, the oldest are removed.

Limit: anyone who can write as this user, or as the system's, can change the code that runs.
"""

from __future__ import annotations

import atexit
import hashlib
import mmap
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rnnops.errors import DeviceError, OutOfMemoryError

MIB = 1 << 20
COMPILE, LOAD = 4 * MIB, 2 * MIB  # to compile any module, and to load any object
OF_TEXT, OF_FUNCTION, OF_OBJECT = 16, 500, 4  # for each byte of all texts, of the longest function, of an object
WRITE, WRITE_PRODUCTS = 8 * MIB, 56 * MIB  # at least, to write and to compile a module, or products
ASK = 112 * MIB  # to find the features of a named processor, which takes 64 to 96 MiB for a while
SPARE = MIB  # that is left for Python, at least for errors
HELD_BACK = 2 * MIB  # address space whose pages are never touched; Python takes 1 MiB at once for its objects


def room_to_compile(texts: Sequence[str]) -> int:
    """Bytes that LLVM may need to make one object of modules."""
    longest = max(len(function) for text in texts for function in text.split("\ndefine"))
    return COMPILE + OF_TEXT * sum(map(len, texts)) + OF_FUNCTION * longest


def room_to_load(nbytes: int) -> int:
    """Bytes that LLVM may need to load an object."""
    return LOAD + OF_OBJECT * nbytes


def demand(nbytes: int, what: str) -> None:
    """Raise OutOfMemoryError if the system has no room for so many bytes.

    Args:
        what: the work that needs the room, for the error.
    """
    if not has_room(nbytes + SPARE):
        raise OutOfMemoryError(
            f"memory has no room to {what}",
            wanted=f"{nbytes + SPARE} bytes",
            hint="Give the process more memory, or compile where there is more: objects are kept in the cache folder.",
        )


def has_room(nbytes: int) -> bool:
    """True if the system gives so many bytes. They are given back at once."""
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

    Code that makes an error of memory closes `room` itself, because calling a Python function may need memory.
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
ALWAYS = {**dict.fromkeys(X86, "cx8"), **dict.fromkeys(ARM, "fp-armv8")}  # machine -> a feature that all have in LLVM
SPELLING = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class TargetProcessor:
    """The processor that code is compiled for.

    Args:
        machine: the architecture.
        name: LLVM's name of the processor.
        features: that code may use.
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
    """A processor by its name. Raises DeviceError if LLVM does not know it, or this machine cannot run its code."""
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
    """Those of the `asked` features that a named processor has; empty if LLVM does not know it."""
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
    """An LLVM module with a caller for the processor, and with a function for each feature, to be inlined there."""
    mode = "+64bit" if platform.machine().lower() in X86 else ""  # LLVM ends the process if x86 code has no mode
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
    """Feature that LLVM looks for on this machine -> whether it is there."""
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
PAIRS, SINGLES = "pairs", "singles"  # ways of operands in bfloat16: two numbers, or one, in a word of 32 bits
INT8 = "int8"  # way of products whose B is packed as whole numbers of a byte each
BYTES = "bytes"  # products of whole numbers, from 0 to 255 on the left and from -128 to 127 on the right
QUADS = "quads"  # way of these: four numbers in a word of 32 bits
NUMBERS = {QUADS: 4, PAIRS: 2, SINGLES: 1}  # way -> numbers in a word
ITEM_SIZES = {"float32": 4, "float64": 8, PAIRS: 4, QUADS: 4}
BASELINE_NAMES = ("", "generic", *LEVELS[:2], "nocona", "core2")


def lanes(width: int, dtype: str) -> int:
    """Numbers in a vector of `width` bits."""
    return 1 if width == 64 else width // 8 // ITEM_SIZES[dtype]


def vector_width(forced: int | None = None) -> int:
    """The bits of a vector: `forced`, or the processor's own."""
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
    """Warn if a processor has only a baseline name and few features, unless that was asked for."""
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
REVISION = source_revision([*HOME.glob("*.py"), HOME.parent / "scalar_functions.py"])  # the last one names modules


def cache_folder() -> Path:
    """The cache folder. If `RNNOPS_CACHE_DIR` names it, it may not exist yet."""
    given = os.environ.get("RNNOPS_CACHE_DIR")
    if given:
        return Path(given).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(home) / "rnnops"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return folder_of_process()
    return folder if os.access(folder, os.W_OK) else folder_of_process()


@cache
def folder_of_process() -> Path:
    """A folder that is deleted at the end of this process."""
    folder = Path(tempfile.mkdtemp(prefix="rnnops-"))
    atexit.register(_remove, folder, os.getpid())
    return folder


@cache
def warn_once(what: str, folder: str, problem: str) -> None:
    """Warn once in a process that a folder keeps no files, and why.

    Args:
        what: the kind of files.
    """
    text = f"{what} cannot be kept in {folder} ({problem}), so every process makes them anew: "
    warnings.warn(
        text + "set RNNOPS_CACHE_DIR to a folder of your own that can be written", RuntimeWarning, stacklevel=3
    )


def reason(error: OSError) -> str:
    """An error of a file system in words."""
    return error.strerror or str(error)


def _remove(folder: Path, owner: int) -> None:
    """Remove a folder that a process has made. Its forked children end first, or go on without the folder."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


FOLDER, KERNELS = "objects", "compiled kernels"
MOST_FILES = 8192  # files of 6 to 60 KB each
DIGEST_BYTES = hashlib.sha256().digest_size
FOLDER_MODE, FILE_MODE = 0o755, 0o644  # less what the user's mask takes away
FOREIGN_WRITES = stat.S_IWGRP | stat.S_IWOTH
NOT_WAITING = getattr(os, "O_NONBLOCK", 0)  # a pipe that has a file's name must not make us wait for a writer


class ForeignFilesError(OSError):
    """A folder or a file belongs to others, or others may write to it."""


def key_of(*parts: str) -> str:
    """The name of an object that depends on these texts only."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def load_object(key: str) -> bytes | None:
    """The object of a key; None if there is none that may be used."""
    path = cache_folder() / FOLDER / f"{key}.o"
    try:
        _check_ours(path.parent)
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | NOT_WAITING)) as file:
            _check_ours(path, os.fstat(file.fileno()))
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        warn_once(KERNELS, str(path.parent), reason(error))
        return None
    digest, code = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    return code if digest == _digest(key, code) else None


def save_object(key: str, code: bytes) -> None:
    """Put an object on disk. If that fails, warn once."""
    folder = cache_folder() / FOLDER
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        _check_ours(folder)
        _write(folder / f"{key}.o", _digest(key, code) + code)
        _drop_oldest(folder)
    except OSError as error:
        warn_once(KERNELS, str(folder), reason(error))


def _digest(key: str, code: bytes) -> bytes:
    """The digest at the head of a file. It covers the key, as a file may have been renamed to another's key."""
    return hashlib.sha256(key.encode() + code).digest()


def _check_ours(path: Path, found: os.stat_result | None = None) -> None:
    """Raise ForeignFilesError if others own a folder or an open file, or may write to it.

    Args:
        found: the status of an open file; None for a folder.
    """
    if not hasattr(os, "getuid"):
        return  # on Windows a user's folders are the user's
    status = found or path.stat()
    if found and not stat.S_ISREG(status.st_mode):
        raise ForeignFilesError(f"{path} is not a file")
    if status.st_uid not in (os.getuid(), 0):
        raise ForeignFilesError(f"{path} belongs to another user")
    if status.st_mode & FOREIGN_WRITES:
        raise ForeignFilesError(f"others may write to {path}")


def _write(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all, with mode `FILE_MODE`. It is not forced to disk: it can be made again."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), FILE_MODE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _drop_oldest(folder: Path) -> None:
    """If there are too many files, remove the oldest. Temporary files that killed processes have left count, too."""
    names = os.listdir(folder)
    if len(names) > MOST_FILES:
        ages = {name: age for name in names if (age := _age(folder / name)) is not None}
        for name in sorted(ages, key=lambda name: ages[name])[: len(ages) - MOST_FILES * 3 // 4]:
            (folder / name).unlink(missing_ok=True)


def _age(path: Path) -> float | None:
    """The time at which a file was written; None if another process has just removed it."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None
