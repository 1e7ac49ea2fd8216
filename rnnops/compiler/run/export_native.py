"""Export: writes a recorded plan as an object file or C99 source, with a C header, weights and a manifest.

**Names** come first. A program may include headers of the standard library before ours, and their macros replace words.
So no name of a function, a file or an argument is a keyword of C or C++, or a name or macro of their libraries.

**The object file** has the drivers of the plan, the library functions that they call, and the functions for C. All code
is compiled for one thread of this processor. `NAME_init` writes the list of jobs into a caller's memory.
`NAME_set_weights` writes it again. `NAME_reset` sets states. `NAME_run` is a call. The C99 source is in `c_source.py`.

**The files** are written by `export_recorded`, at the end.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from rnnops.compiler.codegen.scan_module import Packed, ScanModule
from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.run import recorder
from rnnops.compiler.run.c_source import (
    ADDRESS_BYTES,
    ALIGNMENT,
    DIGEST_BYTES,
    LIST_WORDS,
    MARK_BYTES,
    Argument,
    ListWords,
    MemoryMap,
    c_source,
    header,
    list_bytes,
)
from rnnops.compiler.schedule.batch_axis import ScanTeam
from rnnops.compiler.targets.target import Work
from rnnops.errors import DeviceError, FeedError, SaveError, did_you_mean
from rnnops.interpreter import Program
from rnnops.kernels.cpu.gemm import int8_products_text, products_text, rounded_products_text
from rnnops.kernels.cpu.native import (
    LEVEL,
    PRODUCTS_LEVEL,
    NativeFunction,
    int8_products,
    linked,
    processor,
    products,
    rounded_products,
    threads,
    way_of,
)
from rnnops.kernels.cpu.processor import QUADS, WRITE, WRITE_PRODUCTS, demand, vector_width
from rnnops.kernels.cpu.threads import EXPORTED, threads_text
from rnnops.kernels.cpu.words import WORD_BYTES
from rnnops.net.schema import schema_of
from rnnops.ops.loss import CheckCount, CheckLabels
from rnnops.types import FLOATS, Type
from rnnops.util import replaced

FUNCTIONS = ("init", "set_weights", "reset", "run")  # endings of the names of functions: NAME_init, ...
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")  # words that begin with _ belong to the compiler
DEFAULT = "model"
WORDS_OF_C = """
auto break case char const constexpr continue default do double else enum extern float for goto if inline int long
nullptr register restrict return short signed sizeof static struct switch typedef typeof typeof_unqual union unsigned
void volatile while alignas alignof bool true false int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t"""
WORDS_OF_CPP = """
and and_eq asm bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl concept const_cast
consteval constexpr constinit decltype delete dynamic_cast explicit export friend mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public reinterpret_cast requires static_assert static_cast template
this thread_local throw try typeid typename using virtual wchar_t xor xor_eq"""
MACROS = """
BIG_ENDIAN BUFSIZ BYTE_ORDER EOF F_LOCK F_OK F_TEST F_TLOCK F_ULOCK I INFINITY LITTLE_ENDIAN L_INCR L_SET L_XTND
L_ctermid L_cuserid L_tmpnam MAXFLOAT MAX_CANON MAX_INPUT MINSIGSTKSZ NAN NFDBITS NGREG NSIG NULL NZERO ONCE_FLAG_INIT
PDP_ENDIAN PIPE_BUF P_tmpdir R_OK STDERR_FILENO STDIN_FILENO STDOUT_FILENO WCONTINUED WEOF WEXITED WNOHANG WNOWAIT
WSTOPPED WUNTRACED W_OK X_OK assert complex errno h_errno i386 imaginary linux math_errhandling noreturn sa_handler
sa_sigaction si_addr si_addr_lsb si_arch si_band si_call_addr si_fd si_int si_lower si_overrun si_pid si_pkey si_ptr
si_status si_stime si_syscall si_timerid si_uid si_upper si_utime si_value sigev_notify_attributes sigev_notify_function
st_atime st_ctime st_mtime stderr stdin stdout unix"""  # macros that a compiler or a standard header defines
FAMILIES = re.compile(
    r"E[A-Z0-9]{2,} | SIG[A-Z0-9_]+ | (PRI|SCN)[a-zX]+[A-Z0-9]* | (SNAN|HUGE_VAL)[A-Z0-9_]* | CLOCKS_PER_SEC"
    r"| [A-Z0-9_]+_(MAX|MIN|WIDTH|BIT)"
    r"| (ADJ|ATOMIC|BUS|CLD|CLOCK|CLOSE|DBL|DEC\d*X?|EXIT|FD|FE|FLT\d*X?|FP|FPE|ILL|LC|LDBL|M|MATH|MOD|NL|POLL"
    r"|PTHREAD|REG|RENAME|SA|SEEK|SEGV|SI|SS|STA|TIME|TIMER|TRAP|TSS)_[A-Z0-9_]+ | DECIMAL_DIG"
    r"| M_[A-Z0-9_]+(f\d*x?|l)",
    re.VERBOSE,
)  # families of macros in headers of C and POSIX
OWN = "main memory weights ready"  # words that a program or an exported header uses
HEADERS_OF_C = """
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbit
stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype"""
HEADERS = f"{HEADERS_OF_C} alloca endian features malloc memory pthread sched strings unistd"  # NAME.h would hide these
FILES_OF_WINDOWS = "aux con nul prn " + " ".join(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))
INITIALIZED = """
atomic cnd mtx obstack posix_spawn_file_actions posix_spawnattr pthread_attr pthread_barrier pthread_barrierattr
pthread_cond pthread_condattr pthread_mutex pthread_mutexattr pthread_rwlock pthread_rwlockattr pthread_spin
sem"""  # NAME_init is a function or a macro of a library
RESERVED = frozenset(" ".join([WORDS_OF_C, WORDS_OF_CPP, MACROS, OWN]).split())
FILES = frozenset(f"{HEADERS} {FILES_OF_WINDOWS}".split())


def is_name(name: str) -> bool:
    """True if functions and files may have this name. Capitals do not count for files, as some systems ignore them."""
    taken = name in RESERVED or name in INITIALIZED.split() or name.lower() in FILES
    return WORD.fullmatch(name) is not None and not taken


def name_of(net: str) -> str:
    """The name for functions and files of a net: its own, or `model`."""
    return net if is_name(net) else DEFAULT


def checked_name(name: object, net: str) -> str:
    """The name, which a user chose for functions and files. Raises FeedError if they cannot have it."""
    if not isinstance(name, str) or not is_name(name):
        wanted = "a word of C: at most 60 letters, digits and _, a letter first, no keyword, and no name of C's library"
        raise FeedError("this name cannot be used in C", net=net, wanted=wanted, came=repr(name)[:80])
    return name


def c_names(names: Sequence[str], header: str) -> list[str]:
    """Words of C for names of blobs. All differ, and none is declared or defined by the header of this name."""
    parts, found = (*FUNCTIONS, "model", "MEMORY", "WEIGHTS", "DIGEST"), list[str]()
    taken = {*RESERVED, f"RNNOPS_{header}_H", *(f"{header}_{part}" for part in parts)}
    for name in names:
        word = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:50] or "blob"
        word = f"_{word}" if word[0].isdigit() else word
        word = f"{word}_value" if FAMILIES.fullmatch(word) else word
        unique, count = word, 1
        while unique in found or unique in taken:
            count += 1
            unique = f"{word}_{count}"
        found.append(unique)
    return found


SCALAR_WIDTH = 64  # width of vectors in bits for C99: one number, so that packed matrices have no gaps


@dataclass(frozen=True, eq=False)
class SourceRecorder(recorder.Recorder):
    """Records a plan for C99: the driver of a job is a `ScanModule`, its places are arrays, its numbers are sizes."""

    def load(self, text: ScanModule, width: int | None) -> ScanModule:
        return text

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        _, _, sizes, *arrays = work
        module, to_pack = function.module, int(sizes[recorder.TO_PACK])
        names = [array.name for array in module.arrays]
        _pack_source(function, dict(zip(names, arrays, strict=True)), to_pack)
        once = recorder.packed_once(module, to_pack)
        unread = frozenset(n for n, name in enumerate(names) if name in once)
        places = tuple(array.place for array in arrays)
        self.jobs.append(recorder.Job(function, 1, places, tuple(map(int, sizes)), unread))
        return False


def _pack_source(text: ScanModule, arrays: dict[str, recorder.RecordedArray], to_pack: int) -> None:
    """Pack the matrices that calls will not pack. Raises NotRecordedError if one is a result of a call."""
    assert isinstance(text.module, ir.Module)
    for source, number in _packs(text.module):
        if not to_pack >> number & 1:
            if arrays[source].memory.made:
                raise recorder.NotRecordedError("a matrix is packed once that each call makes anew")
            whole = _matrix(text.packed[number], arrays[source].twin.reshape(-1)).reshape(-1)
            target = arrays[f"packed{number}"].twin.reshape(-1)
            target[: whole.size] = whole  # the memory of int8 matrices may be larger, as it has whole words


def _packs(module: ir.Module) -> Iterator[tuple[str, int]]:
    """The matrices that the driver packs: (name of the source array, number of the packed matrix)."""
    for line in ir.statements_of(module.driver.body):
        if isinstance(line, ir.Do) and line.function in recorder.PACKS:
            matrix, packed = line.arguments
            assert isinstance(matrix, ir.MatrixOperand)
            assert isinstance(packed, ir.Array)
            yield matrix.buffer, int(packed.buffer.removeprefix("packed"))


def _matrix(packed: Packed, flat: Any) -> Any:
    """The matrix `[inner, columns]` that is to be packed, as a view of its owner's memory."""
    how, shape = packed.packing, (packed.inner, packed.columns)
    rows, width = shape[::-1] if how.transposed else shape
    strides = how.stride * flat.itemsize, flat.itemsize
    matrix = np.lib.stride_tricks.as_strided(flat[how.start + how.column :], (rows, width), strides, writeable=False)
    return matrix.T if how.transposed else matrix


def for_processor(name: str, triple: str, processor: str) -> str:
    """The words in the header of an object file."""
    machine, cpu = (re.sub(r"[^A-Za-z0-9_.+-]", "?", text) for text in (triple, processor))
    return f"for {cpu} ({machine}), one thread. Link {name}.o"


def for_any_processor(name: str) -> str:
    """The words in the header of C99 source."""
    return f"for little-endian processors, one thread. Compile {name}.c with -std=c99, link -lm"


def digest_of(*texts: object) -> str:
    """A digest of texts: the code, and all facts that decide where arrays are in memory and weights."""
    return sha256(chr(0).join(map(str, texts)).encode()).hexdigest()[:DIGEST_BYTES]


def object_file(plan: MemoryMap, name: str, arguments: Sequence[int]) -> tuple[bytes, str]:
    """The object file, and the digest of its code.

    Args:
        name: the NAME that its functions begin with.
        arguments: numbers of the arrays that `NAME_run` takes, in order. All other arrays are states.
    """
    demand(WRITE, "write and compile kernels")
    words = ListWords(plan)
    drivers = [driver for driver in words.drivers.values() if isinstance(driver, NativeFunction)]
    own = [driver.write() for driver in drivers if driver.write is not None]
    interface = _interface(words, name, arguments)
    digest = digest_of(interface, *own, plan.nbytes, plan.weights_bytes)
    given = f'@digest = internal constant [{DIGEST_BYTES} x i8] c"{digest}"'
    texts = [(f"{interface}{given}\n", LEVEL), *((text, LEVEL) for text in own)]
    own_list = threads_text({name: name for name in EXPORTED})
    texts += [(text, PRODUCTS_LEVEL) for text in (own_list, *_runtime("\n".join(own)))]
    made: bytes = linked(texts, {f"{name}_{function}" for function in FUNCTIONS})
    return made, digest


def _runtime(drivers: str) -> Iterator[str]:
    """LLVM texts of the libraries that drivers call."""
    width, symbols = vector_width(), threads().symbols
    demand(WRITE_PRODUCTS if "_products_" in drivers else WRITE, "write and compile kernels")
    waits = {function: symbols[function] for function in ("wait", "list_rows")}
    if any(symbol in drivers for symbol in waits.values()):
        yield threads_text(waits)
    for dtype in FLOATS[1:]:
        library = products(dtype, width)
        if any(symbol in drivers for symbol in library.symbols.values()):
            yield products_text(library.symbols, dtype, width)
    if "_products_int8_" in drivers:  # asked first, as a look at its symbols would compile it
        yield int8_products_text(int8_products(width).symbols, width)
    for way in (way_of(width), QUADS):
        if f"_products_{way}_" in drivers:
            yield rounded_products_text(rounded_products(way, width).symbols, way, width)


def _interface(listed: ListWords, name: str, arguments: Sequence[int]) -> str:
    """The functions for C, in LLVM IR."""
    plan = listed.plan
    words = [number for word in listed.entries() for number in (word.offset, word.base, word.value)]
    names = [f'@"{symbol}"' for symbol in listed.drivers]
    tables = [
        f"@entries = internal constant [{len(words)} x i64] [{', '.join(f'i64 {word}' for word in words)}]",
        f"@drivers = internal constant [{len(names)} x ptr] [{', '.join(f'ptr {one}' for one in names)}]",
    ]
    declared = [f"declare void {one}(i64, i64, ptr)" for one in names]
    declared += ["declare void @set_up(ptr, ptr, ptr, i64, ptr)", "declare void @perform_alone(ptr, ptr)"]
    declared += ["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)", "declare i32 @memcmp(ptr, ptr, i64)"]
    declared += ["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"]
    functions = [*_init(name, len(words) // 3, plan), _reset(name, plan), _run(name, plan, arguments)]
    return "\n".join([*tables, *declared, *functions]) + "\n"


ALIGNED = (
    "%one = ptrtoint ptr %memory to i64",
    "%two = ptrtoint ptr %weights to i64",
    "%both = or i64 %one, %two",
    f"%rest = and i64 %both, {ALIGNMENT - 1}",
    "%skew = icmp ne i64 %rest, 0",
    "br i1 %skew, label %skewed, label %aligned",
    "aligned:",
)
MARKED = f"%marked = getelementptr i8, ptr %memory, i64 {(LIST_WORDS - 1) * WORD_BYTES}"


def _init(name: str, entries: int, plan: MemoryMap) -> Iterator[str]:
    set_up = f"call void @set_up(ptr %memory, ptr %weights, ptr @entries, i64 {entries}, ptr @drivers)"
    clear = f"call void @llvm.memset.p0.i64(ptr %memory, i8 0, i64 {plan.nbytes}, i1 false)"
    refuse = [
        f"%at = getelementptr i8, ptr %weights, i64 {plan.weights_bytes - DIGEST_BYTES}",
        f"%order = call i32 @memcmp(ptr %at, ptr @digest, i64 {DIGEST_BYTES})",
        "%other = icmp ne i32 %order, 0",
        "br i1 %other, label %refused, label %prepared",
    ]
    ends = ["ret i32 0", "refused:", "ret i32 1", "skewed:", "ret i32 2"]
    mark = "%mark = load i64, ptr @digest, align 1", "store i64 %mark, ptr %marked"
    reset = f"call void @{name}_reset(ptr %memory)"
    first = [*ALIGNED, *refuse, "prepared:", clear, set_up, MARKED, *mark, reset, *ends]
    yield _function(f"i32 @{name}_init(ptr %memory, ptr %weights)", first)
    others = [*ALIGNED, *_prepared("ret i32 2"), *refuse, "prepared:", set_up, *ends]
    yield _function(f"i32 @{name}_set_weights(ptr %memory, ptr %weights)", others)


def _prepared(end: str) -> list[str]:
    """Lines that end a function if the memory has no mark of `NAME_init`."""
    return [
        MARKED,
        "%found = load i64, ptr %marked",
        "%wanted = load i64, ptr @digest, align 1",
        "%same = icmp eq i64 %found, %wanted",
        "br i1 %same, label %marked_here, label %unmarked",
        "unmarked:",
        end,
        "marked_here:",
    ]


def _reset(name: str, plan: MemoryMap) -> str:
    lines = [
        *_prepared("ret void"),
        f"%base = getelementptr i8, ptr %memory, i64 {(LIST_WORDS - 2) * WORD_BYTES}",
        "%weights = load ptr, ptr %base",
    ]
    for number, offset in plan.state_offsets.items():
        lines.append(f"%s{number} = getelementptr i8, ptr %memory, i64 {offset}")
        if number in plan.initial:
            lines.append(f"%i{number} = getelementptr i8, ptr %weights, i64 {plan.initial_offsets[number]}")
        copied = f"@llvm.memcpy.p0.p0.i64(ptr %s{number}, ptr %i{number}, "
        cleared = f"@llvm.memset.p0.i64(ptr %s{number}, i8 0, "
        call = copied if number in plan.initial else cleared
        lines.append(f"call void {call}i64 {plan.states[number]}, i1 false)")
    return _function(f"void @{name}_reset(ptr %memory)", [*lines, "ret void"])


def _run(name: str, plan: MemoryMap, arguments: Sequence[int]) -> str:
    """The function `NAME_run`: it stores the arguments, runs all jobs, and returns 1 if an integer was out of range."""
    lines = [f"%given = alloca [{plan.count} x ptr]", *_prepared("ret i32 2")]
    for number in range(plan.count):
        value = f"%a{number}"
        if number not in arguments:
            value = f"%s{number}"
            lines.append(f"{value} = getelementptr i8, ptr %memory, i64 {plan.state_offsets[plan.state_of[number]]}")
        lines.append(f"%p{number} = getelementptr ptr, ptr %given, i64 {number}")
        lines.append(f"store ptr {value}, ptr %p{number}")
    lines += [
        "call void @perform_alone(ptr %memory, ptr %given)",
        f"%place = getelementptr i8, ptr %memory, i64 {plan.own_offset(plan.recorded.status)}",
        "%status = load i64, ptr %place",
        "store i64 0, ptr %place",
        "%wrong = icmp ne i64 %status, 0",
        "%result = zext i1 %wrong to i32",
        "ret i32 %result",
    ]
    taken = ", ".join(["ptr %memory", *(f"ptr %a{number}" for number in arguments)])
    return _function(f"i32 @{name}_run({taken})", lines)


def _function(head: str, lines: Sequence[str]) -> str:
    return "\n".join([f"define {head} nounwind {{", *(f"  {line}" for line in lines), "}"])


MADE = b"/* Written by rnnops"  # beginning of sources and headers


@dataclass(frozen=True)
class ExportedFiles:
    """The files that `export_native` has written.

    Args:
        object: the object file, to be linked; None if there is a source.
        source: the C99 source, to be compiled; None if there is an object.
        header: declares the functions.
        weights: its bytes are an argument of `NAME_init`.
        manifest: the facts of the header as JSON, for other programs.
        inputs, outputs: the arrays of `NAME_run`, in order, inputs first: their names in the net, and in C.
    """

    object: Path | None
    source: Path | None
    header: Path
    weights: Path
    manifest: Path
    inputs: dict[str, str]
    outputs: dict[str, str]


def export_recorded(
    recorded: recorder.Recorded,
    feeds: Mapping[str, Type],
    states: Mapping[str, str],
    initial: Mapping[str, Any],
    folder: str | os.PathLike[str],
    name: str,
    net: str,
    products: str | None = None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
) -> ExportedFiles:
    """Write all files of an export, or none.

    Args:
        feeds: input -> type, in the order of the recorded call.
        states: output -> the input that it feeds at the next call. States stay in the memory.
        initial: input of a state -> its initial value; zeros if left out.
        name: the NAME of files and functions.
        net: name of the net, for errors.
        products: dtype of products if the plan was recorded for C99; None if it was recorded for this processor.
        facts: input or output -> its range, meaning or delay, for the header and the manifest.

    Raises FeedError if the types of a state's output and input differ, DeviceError if C99 is asked for on a big-endian
    machine.
    """
    if products is not None and sys.byteorder != "little":
        raise DeviceError("C99 is written only on little-endian machines", net=net, wanted="little-endian")
    outputs = {output: Type(str(np.dtype(dtype)), shape) for output, dtype, shape in recorded.outputs}
    _check_states(feeds, outputs, states, net)
    names, given = [*feeds, *outputs], [*feeds.values(), *outputs.values()]
    numbers = {one: number for number, one in enumerate(feeds)}
    state_of = {numbers[one]: numbers[one] for one in states.values()}
    state_of |= {len(feeds) + [*outputs].index(output): numbers[one] for output, one in states.items()}
    kept = {number: given[number].nbytes for number in sorted(set(state_of.values()))}
    free = [number for number in range(len(given)) if number not in state_of]
    words, facts = dict(zip(free, c_names([names[number] for number in free], name), strict=True)), facts or {}
    arguments = {
        number: Argument(word, given[number], number >= len(feeds), facts.get(names[number], {}))
        for number, word in words.items()
    }
    first = {numbers[one]: array.tobytes() for one, array in _initial(feeds, states, initial, net).items()}
    if products is None:
        _pack(recorded, feeds)
        own = recorded.status, recorded.barrier
        plan = MemoryMap(recorded, kept, state_of, list_bytes(recorded), own, first)
        ending, (code, digest), made = ".o", object_file(plan, name, [*arguments]), for_processor(name, *processor())
    else:
        plan = MemoryMap(recorded, kept, state_of, ADDRESS_BYTES + MARK_BYTES, initial=first)
        text = c_source(plan, name, products, arguments)
        digest = digest_of(text, plan.nbytes, plan.weights_bytes)
        ending, code, made = ".c", text.encode("ascii"), for_any_processor(name)
    sizes = len(kept), plan.nbytes, plan.weights_bytes
    declared = header(name, [*arguments.values()], *sizes, digest, made).encode("ascii")
    taken = {names[number]: word for number, word in words.items() if number < len(feeds)}
    written = {names[number]: word for number, word in words.items() if number >= len(feeds)}
    told = {"name": name, "net": net, "digest": digest, "memory": plan.nbytes, "weights": plan.weights_bytes}
    told |= {"inputs": _listed(taken, feeds, facts), "outputs": _listed(written, outputs, facts)}
    told["states"] = [
        {"output": output, "input": one, **_kind(feeds[one]), "offset": plan.state_offsets[numbers[one]]}
        | {"initial": "given" if numbers[one] in first else "zero"}
        for output, one in states.items()
    ]
    manifest = json.dumps(told, indent=1).encode("ascii") + b"\n"
    texts = {ending: code, ".h": declared, ".weights": plan.weights(digest), ".json": manifest}
    files = _written(Path(folder), name, texts)
    code_files = files.get(".o"), files.get(".c")
    return ExportedFiles(*code_files, files[".h"], files[".weights"], files[".json"], taken, written)


def _listed(
    words: Mapping[str, str], kinds: Mapping[str, Type], facts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The arguments of a call for the manifest, in order."""
    return [{"name": name, "c": word, **_kind(kinds[name]), **facts.get(name, {})} for name, word in words.items()]


def _kind(kind: Type) -> dict[str, Any]:
    return {"dtype": kind.dtype, "shape": list(kind.shape)}


def _initial(
    feeds: Mapping[str, Type], states: Mapping[str, str], initial: Mapping[str, Any], net: str
) -> dict[str, Any]:
    """Initial states in full size. Raises FeedError for unknown names, and for arrays that do not fit."""
    found = {}
    if not isinstance(initial, Mapping):
        raise FeedError("initial= is not a dict", net=net, wanted="input -> array", came=repr(initial)[:60])
    for name, value in initial.items():
        if name not in states.values():
            wanted = f"one of {', '.join(states.values()) or 'none'}"
            hint = did_you_mean(name, states.values()) if states else "States are named by states=, output -> input."
            hint = f"That output feeds '{states[name]}': name the input." if name in states else hint
            raise FeedError("initial= names no state", net=net, blob=str(name), wanted=wanted, hint=hint)
        kind, came = feeds[name], "rows of different lengths"
        try:
            array = np.asarray(value)
            came = f"{array.dtype}{list(array.shape)}"
            whole = np.broadcast_to(array, kind.shape)
        except ValueError:
            raise FeedError("an initial state of another shape", net=net, blob=name, wanted=kind, came=came) from None
        if array.dtype.kind == "f" and np.isnan(array).any():
            hint = "NaN stays in states: take them from a stream whose outputs are numbers."
            raise FeedError("an initial state has NaN", net=net, blob=name, wanted="numbers", hint=hint)
        if not np.can_cast(array.dtype, kind.dtype, "same_kind"):
            raise FeedError("an initial state of another dtype", net=net, blob=name, wanted=kind, came=array.dtype)
        found[name] = np.ascontiguousarray(whole, kind.dtype)
    return found


def _check_states(feeds: Mapping[str, Type], outputs: Mapping[str, Type], states: Mapping[str, str], net: str) -> None:
    if not isinstance(states, Mapping):
        raise FeedError("states= is not a dict", net=net, wanted="output -> input", came=repr(states)[:60])
    for output, one in states.items():
        if output not in [*outputs] or one not in [*feeds]:  # lists, because given names may have no hash
            wanted = f"an output ({', '.join(outputs)}) and an input ({', '.join(feeds)})"
            raise FeedError("states go from an output to an input", net=net, wanted=wanted, came=f"{output} -> {one}")
        if _packed_type(outputs[output]) != _packed_type(feeds[one]):
            problem = "a state differs from one call to the next"
            raise FeedError(problem, net=net, blob=one, wanted=outputs[output], came=feeds[one])
    if len(set(states.values())) < len(states):
        raise FeedError("two outputs become one input", net=net, came=str(dict(states)))


def _packed_type(kind: Type) -> tuple[str, tuple[int, ...]]:
    """A key that two arrays share if their elements are laid out alike."""
    return kind.dtype, tuple(size for size in kind.shape if size != 1)


def _pack(recorded: recorder.Recorded, feeds: Mapping[str, Type]) -> None:
    """Call the plan once, so that its matrices are packed."""
    arrays = [np.zeros(kind.shape, kind.dtype) for kind in feeds.values()]
    recorder.JobList(recorded)(arrays)


def _written(folder: Path, name: str, texts: Mapping[str, bytes]) -> dict[str, Path]:
    """Write the files, all or none, and return their paths, by ending.

    Raises SaveError if they cannot be written, or if the folder has the other kind of code (object or source), which
    needs another header.
    """
    other = folder / f"{name}{'.c' if '.o' in texts else '.o'}"
    if other.exists():
        problem = f"'{folder}' would have an object and a source of one name, but their memory and weights differ"
        hint = "Give another folder or name=, or remove the old export."
        raise SaveError(problem, wanted=f"no {other.name}", hint=hint)
    paths = {ending: folder / f"{name}{ending}" for ending in texts}
    for path in paths.values():
        _check_own(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            for ending, path in paths.items():
                stack.enter_context(replaced(path)).write_bytes(texts[ending])
    except OSError as error:
        raise SaveError(f"'{folder}' cannot be written ({error})") from error
    return paths


def _check_own(path: Path) -> None:
    """Raise SaveError if this path is a source or a header that rnnops has not written. It is not replaced."""
    if path.suffix not in (".c", ".h") or not path.is_file():
        return
    with path.open("rb") as file:
        if file.read(len(MADE)) != MADE:
            hint = "Give another folder or name=, or remove the file."
            raise SaveError(f"'{path}' was not written by rnnops", wanted="no file, or an old export", hint=hint)


def ranges_of_inputs(program: Program) -> dict[str, tuple[int, int]]:
    """Input that is checked for its range (classes, indices, counts) -> the least and the greatest allowed number."""
    found, inputs = dict[str, tuple[int, int]](), {*program.net.input_names}
    for call in program.calls:
        schema, blob = schema_of(call.op.type), next(iter(call.op.inputs), None)
        if isinstance(schema, CheckLabels | CheckCount) and call.op.attributes.get("ignore_index") is None:
            found |= {blob: (0, schema.greatest(call))} if blob in inputs else {}
    return found
