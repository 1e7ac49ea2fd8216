"""A recorded plan for C: where its arrays are, the header, the list of jobs of an object file, and C99 source.

**Memory and weights** (`MemoryMap`). An array of an exported plan is in the memory of a caller or in the weights. The
memory has three areas, in this order: a head (the list of jobs of an object file, or an address); arrays that stay from
call to call (a status, states); results and scratch, which share bytes if they live at different times. Weights are
never written: packed matrices, bound inputs, constants, initial states that are not zero. Their end is a digest of the
code that reads them, so that weights of another export are refused.

**The header** declares the functions of the program (`header`). It is the same for an object file and for C99 source.

**The list of jobs of an object file** (`ListWords`) is at the beginning of the memory. It has the form of
`kernels/cpu/threads.py`: counts and addresses, then jobs, places, and words of each job. A table has the first value of
each word.

**C99 source** (`c_source`): the drivers of the plan, the list of its jobs as constant tables, and the functions for C.
All else is static. The tables have offsets instead of addresses, so the source is for processors of any width. The
memory begins with the address of its weights. Limits: one thread; little-endian processors, because weights are read
from the file without conversion; bools of one byte; IEEE floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from rnnops.compiler.codegen.scan_module import ScanModule
from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.memory.allocations import Interval, plan_arena
from rnnops.compiler.memory.memory import rounded
from rnnops.compiler.run.recorder import Job, Recorded, Region
from rnnops.compiler.targets.c99 import HEADER as RUNTIME, c_type, driver_text, program_text
from rnnops.kernels.cpu import threads
from rnnops.kernels.cpu.native import NativeFunction
from rnnops.kernels.cpu.threads import MEMORY, NUMBER, WEIGHTS
from rnnops.kernels.cpu.words import WORD_BYTES
from rnnops.types import BOOL, Array, Type
from rnnops.util import cached_property

DIGEST_BYTES, ALIGNMENT = 32, 64


@dataclass(frozen=True, eq=False)
class MemoryMap:
    """Where the arrays of a recorded plan are, in the memory of a caller and in the weights.

    Args:
        states: number of an input that is a state -> its size in bytes. States stay in the memory.
        state_of: number of an array of a call (an input, or the output that is its next value) -> the number of its
            state.
        start: size in bytes of the head of the memory, before the first array.
        own: arrays of the plan's own that stay from call to call.
        initial: number of a state -> the bytes of its initial value, if this is not zero.
    """

    recorded: Recorded
    states: Mapping[int, int]
    state_of: Mapping[int, int]
    start: int
    own: tuple[Array, ...] = ()
    initial: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of arrays of a call, states included."""
        return self.recorded.given

    @cached_property
    def _staying(self) -> tuple[dict[int, int], dict[int, int], int]:
        """The area of arrays that stay from call to call: offsets of `own` by address, offsets of states by number, and
        the end of the area."""
        at, own, states = rounded(self.start), dict[int, int](), dict[int, int]()
        for array in self.own:
            own[_address(array)] = at
            at += rounded(array.nbytes)
        for number, nbytes in self.states.items():
            states[number] = at
            at += rounded(nbytes)
        return own, states, at

    def own_offset(self, array: Any) -> int:
        """Offset in the memory of an array of `own`."""
        return self._staying[0][_address(array)]

    @property
    def state_offsets(self) -> dict[int, int]:
        """Number of a state -> its offset in the memory."""
        return self._staying[1]

    @cached_property
    def _made(self) -> tuple[dict[int, int], int]:
        """The area of results and scratch: offsets by address, and the end of the area."""
        lives: dict[int, tuple[Region, int, int]] = {}
        for n, job in enumerate(self.recorded.jobs):
            for region, _ in job.places:
                if region.made and region.given < 0:
                    first = lives.get(region.start, (region, n, n))[1]
                    lives[region.start] = region, first, n
        intervals = [Interval(int(region.frame.nbytes), first, last) for region, first, last in lives.values()]
        arena, start = plan_arena(intervals), self._staying[2]
        return dict(zip(lives, (start + offset for offset in arena.offsets), strict=True)), start + arena.nbytes

    @property
    def nbytes(self) -> int:
        """Size of the memory in bytes."""
        return rounded(self._made[1])

    @cached_property
    def _held(self) -> dict[tuple[int, int], tuple[int, Region]]:
        """(address, size) of an array that jobs read from the weights -> its offset there, and its region."""
        found, at = dict[tuple[int, int], tuple[int, Region]](), 0
        for job in self.recorded.jobs:
            for i, (region, _) in enumerate(job.places):
                key = region.start, int(region.frame.nbytes)
                stays = region.given < 0 and not region.made and region.start not in self._staying[0]
                if stays and key not in found and i not in job.unread:
                    found[key] = at, region
                    at += rounded(key[1])
        return found

    @cached_property
    def _behind(self) -> list[int]:
        """Offsets in the weights of each initial state, then of the digest. They come after the arrays of `_held`."""
        start = max((rounded(at + size) for (_, size), (at, _) in self._held.items()), default=0)
        return [*accumulate((rounded(len(array)) for array in self.initial.values()), initial=start)]

    @cached_property
    def initial_offsets(self) -> dict[int, int]:
        """Number of a state -> the offset of its initial value in the weights."""
        return dict(zip(self.initial, self._behind, strict=False))

    @property
    def weights_bytes(self) -> int:
        """Size of the weights in bytes, digest included."""
        return self._behind[-1] + DIGEST_BYTES

    def weights(self, digest: str) -> bytes:
        """The bytes of the weights. Matrices are packed only after a first call of the plan."""
        parts = {at: region.frame.tobytes() for at, region in self._held.values()}
        parts |= dict(zip(self._behind, [*self.initial.values(), digest.encode("ascii")], strict=True))
        whole = bytearray()
        for at, part in parts.items():
            whole += bytes(at - len(whole)) + part
        return bytes(whole)

    def place(self, region: Region, offset: int, unread: bool) -> tuple[int, int]:
        """The base of an address (kernels/cpu/threads.py), and the offset from this base.

        Args:
            unread: True if the job does not read the array, so that any address will do.
        """
        own, _, _ = self._staying
        if region.start in own:
            return MEMORY, own[region.start] + offset
        if region.made:
            return MEMORY, self._made[0][region.start] + offset
        found = self._held.get((region.start, int(region.frame.nbytes)))
        return (NUMBER, 0) if unread or found is None else (WEIGHTS, found[0] + offset)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


FLOATS = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class Argument:
    """An array argument of `NAME_run`.

    Args:
        name: its name in C.
        kind: its dtype and shape; it has no gaps and is in row-major order.
        written: whether it is an output.
        facts: its range, meaning or delay, for the header.
    """

    name: str
    kind: Type
    written: bool
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        const = "" if self.written else "const "
        return f"{const}{header_type(self.kind.dtype)} *{self.name}"

    @property
    def line(self) -> str:
        """Its line in the header, such as `fed: int64_t[1], 0 to 1: frames of this call`."""
        facts, text = self.facts, f"{self.name}: {header_type(self.kind.dtype)}{list(self.kind.shape)}"
        text += f", {facts['least']} to {facts['greatest']}" if "least" in facts else ""
        text += f": {facts['meaning']}" if "meaning" in facts else ""
        return f"{text}, whose first frames mean nothing: {facts['delay']}" if facts.get("delay") else text


def header_type(dtype: str) -> str:
    """The type of an element in C. Bools are bytes."""
    return FLOATS.get(dtype) or ("uint8_t" if dtype == BOOL else f"{dtype}_t")


def header(
    name: str, arguments: Sequence[Argument], states: int, nbytes: int, weights: int, digest: str, made: str
) -> str:
    """The text of the header file.

    Args:
        states: number of states in the memory.
        nbytes, weights: sizes in bytes of the memory and of the weights.
        digest: digest of the code, which is also at the end of the weights.
        made: words on the target processors, and on how to link the program.
    """
    guard, taken = f"RNNOPS_{name}_H", ", ".join(["void *memory", *map(str, arguments)])
    given, passed = ", ".join(map(str, arguments)), ", ".join(["memory", *(one.name for one in arguments)])
    keeps = f"States that stay in the memory: {states}." if states else "No state stays: each call begins anew."
    shapes = [f"     {one.line}" for one in arguments]
    return f"""\
/* Written by rnnops {made}.
   Nothing else is needed but the C library. */
#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

enum {{ {name}_MEMORY = {nbytes}, {name}_WEIGHTS = {weights} }}; /* bytes */
#define {name}_DIGEST "{digest}" /* {name}.weights ends with it */

/* Prepare {name}_MEMORY bytes, aligned to {ALIGNMENT}, for weights: {name}_WEIGHTS bytes, aligned to {ALIGNMENT},
   the contents of {name}.weights. Weights must stay where they are. Any number of memories may share them. The sizes
   are not checked. States get their initial values. Returns 0; or prepares nothing and returns 1 for weights of another
   export, 2 if the memory or the weights are not aligned. */
int {name}_init(void *memory, const void *weights);

/* Use other weights of the same net from now on; states stay. Returns 0; or changes nothing and returns 1 for weights
   of another export, 2 for weights that are not aligned or a memory that {name}_init has not prepared. */
int {name}_set_weights(void *memory, const void *weights);

/* Set all states to their initial values. Does nothing if the memory is not prepared. */
void {name}_reset(void *memory);

/* One call. Returns 0 if all went well, 1 if an integer is out of its range (outputs and states mean nothing then), 2
   if {name}_init has not prepared the memory. Only one thread at a time may use a memory. An output and an input of
   the same size may be the same array. {keeps}
   Arrays have no gaps, rows first:
{chr(10).join(shapes)} */
int {name}_run({taken});

#ifdef __cplusplus
}}

/* The program with its own memory. It cannot be copied, because it holds addresses. `ready` is false if {name}_init
   fails. */
struct {name}_model {{
    bool ready;
    explicit {name}_model(const void *weights) : ready({name}_init(memory, weights) == 0) {{}}
    {name}_model(const {name}_model &) = delete;
    {name}_model &operator=(const {name}_model &) = delete;
    bool set_weights(const void *weights) {{ return {name}_set_weights(memory, weights) == 0; }}
    void reset() {{ {name}_reset(memory); }}
    bool run({given}) {{ return {name}_run({passed}) == 0; }}

  private:
    alignas(64) unsigned char memory[{name}_MEMORY];
}};
#endif
#endif
"""


LIST_WORDS = 8  # words of the list's head: 6 of the list, the address of the weights, the mark of a prepared memory


@dataclass(frozen=True)
class Word:
    """A word of the memory that is set before the first call.

    Args:
        offset: its offset in the memory, in bytes.
        base: the base of `value`: `threads.NUMBER` for a plain number, else the address that `value` is an offset from.
    """

    offset: int
    base: int
    value: int


@dataclass(frozen=True, eq=False)
class ListWords:
    """The words of the list of jobs of an object file.

    Args:
        plan: says where arrays are; all come after the list.
    """

    plan: MemoryMap

    @property
    def recorded(self) -> Recorded:
        """The recorded plan."""
        return self.plan.recorded

    @cached_property
    def drivers(self) -> dict[str, Any]:
        """Name in LLVM -> driver. Drivers are numbered in this order; equal drivers are one."""
        return {symbol_of(job.driver): job.driver for job in self.recorded.jobs}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {symbol: number for number, symbol in enumerate(self.drivers)}

    @cached_property
    def words(self) -> tuple[int, ...]:
        """Offset of the first word of each job."""
        counts = [len(job.places) + len(job.numbers) for job in self.recorded.jobs]
        start = self._places_start + threads.PLACE_BYTES * len(self._given)
        return tuple(start + WORD_BYTES * sum(counts[:n]) for n in range(len(counts) + 1))

    @cached_property
    def _given(self) -> list[tuple[int, int, Region, int]]:
        """The words that get addresses of arrays of the caller: (job, number of the word, array, offset in it)."""
        return [
            (n, i, region, offset)
            for n, job in enumerate(self.recorded.jobs)
            for i, (region, offset) in enumerate(job.places)
            if region.given >= 0
        ]

    @property
    def _jobs_start(self) -> int:
        return int(LIST_WORDS * WORD_BYTES)

    @property
    def _places_start(self) -> int:
        return self._jobs_start + int(threads.JOB_BYTES) * len(self.recorded.jobs)

    def entries(self) -> Iterator[Word]:
        """All words of the list."""
        barrier = self.plan.own_offset(self.recorded.barrier)
        count = len(self.recorded.jobs)
        head = ((0, 1), (1, barrier), (1, self._jobs_start), (0, count), (1, self._places_start), (0, len(self._given)))
        bases = threads.NUMBER, threads.MEMORY
        yield from (Word(i * WORD_BYTES, bases[base], value) for i, (base, value) in enumerate(head))
        yield Word(len(head) * WORD_BYTES, threads.WEIGHTS, 0)
        for n, job in enumerate(self.recorded.jobs):
            at = self._jobs_start + n * threads.JOB_BYTES
            yield Word(at, threads.DRIVERS, self._numbers[symbol_of(job.driver)])
            yield Word(at + threads.TEAM, threads.NUMBER, 1)
            yield Word(at + threads.JOB_WORDS, threads.MEMORY, self.words[n])
            yield Word(at + threads.MEETS, threads.NUMBER, 0)
            yield from self._words_of(n)
        for place, (n, i, region, offset) in enumerate(self._given):
            at = self._places_start + place * threads.PLACE_BYTES
            yield Word(at, threads.MEMORY, self.words[n] + i * WORD_BYTES)
            yield Word(at + WORD_BYTES, threads.NUMBER, region.given)
            yield Word(at + 2 * WORD_BYTES, threads.NUMBER, offset)

    def _words_of(self, n: int) -> Iterator[Word]:
        job, at = self.recorded.jobs[n], self.words[n]
        for i, (region, offset) in enumerate(job.places):
            if region.given < 0:
                yield Word(at + i * WORD_BYTES, *self.plan.place(region, offset, i in job.unread))
        for i, number in enumerate(job.numbers, len(job.places)):
            yield Word(at + i * WORD_BYTES, threads.NUMBER, number)


def symbol_of(driver: Any) -> str:
    """The name of a driver in LLVM's text."""
    return driver.name if isinstance(driver, NativeFunction) else str(driver)


def list_bytes(recorded: Recorded) -> int:
    """Size in bytes of the list of jobs of a plan."""
    places = [region.given >= 0 for job in recorded.jobs for region, _ in job.places]
    words = LIST_WORDS + len(places) + sum(len(job.numbers) for job in recorded.jobs)
    return int(words * WORD_BYTES + threads.JOB_BYTES * len(recorded.jobs) + threads.PLACE_BYTES * sum(places))


ADDRESS_BYTES, MARK_BYTES = 8, 8  # of the head of a memory: the weights' address (at most 8), a mark set by NAME_init
IN_MEMORY, IN_WEIGHTS, FIRST_GIVEN = range(3)  # bases of places: memory, weights, then each array of the caller
JOBS = Path(__file__).with_name("jobs.h")
# A plan does not use all functions of the runtime. Its macros are for signed and for unsigned integers.
QUIET = ("unused-function", "unused-variable", "unused-but-set-variable", "type-limits")


def c_source(plan: MemoryMap, name: str, dtype: str, arguments: Mapping[int, Argument]) -> str:
    """The text of the C99 source.

    Args:
        name: the NAME that its functions begin with.
        dtype: dtype of products.
        arguments: number of an array -> the argument of `NAME_run`, in order. All other arrays are states.
    """
    names, drivers = _drivers(plan.recorded.jobs)
    most = max((len(job.places) for job in plan.recorded.jobs), default=0) + 1
    head = [
        f'/* Written by rnnops; {name}.h says how it is used. */\n#include "{name}.h"\n#include <stdbool.h>',
        "#include <stddef.h>",
        "#include <string.h>\n" + "\n".join(_demands(plan, dtype)),
        f"#define NUMBER {c_type(dtype)}\n#define MOST_PLACES {most}",
    ]
    runtime = [path.read_text("ascii").strip() for path in (RUNTIME, JOBS)]
    functions = [_reset(name, plan), *_init(name, plan), _run(name, plan, arguments)]
    return "\n\n".join([*head, *runtime, *drivers, *_tables(plan, names), *functions]) + "\n"


def _demands(plan: MemoryMap, dtype: str) -> Iterator[str]:
    """Lines that make the compiler stop on processors for which the source is wrong."""
    yield f"#if SIZE_MAX < {max(plan.nbytes, plan.weights_bytes)}"
    yield "#error The memory or the weights are larger than what this processor addresses."
    yield "#endif"
    yield "#if defined __BYTE_ORDER__ && defined __ORDER_BIG_ENDIAN__ && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__"
    yield "#error The file of weights is little-endian."
    yield "#endif"
    yield "#ifdef __GNUC__"
    yield from (f'#pragma GCC diagnostic ignored "-W{warning}"' for warning in QUIET)
    yield "#endif"
    sizes = f"sizeof(bool) == 1 && sizeof({c_type(dtype)}) == {np.dtype(dtype).itemsize}"
    yield f"typedef char sizes_are_as_wanted[{sizes} ? 1 : -1];"


# -- drivers ------------------------------------------------------------------------------------------------------


def _drivers(jobs: Sequence[Job]) -> tuple[dict[int, str], list[str]]:
    """The id of each driver -> its name in C; and the texts of all functions. Equal drivers are one."""
    names, known = dict[int, str](), dict[str, str]()
    texts: list[str] = []
    for driver in {id(job.driver): job.driver for job in jobs}.values():
        if not isinstance(driver, ScanModule):  # a function of jobs.h
            names[id(driver)] = str(driver)
            continue
        assert isinstance(driver.module, ir.Module)
        plain = "\n\n".join(_functions(driver.module))
        if plain not in known:
            known[plain] = f"scan_{len(known)}"
            texts += _functions(_named(driver.module, known[plain]))
        names[id(driver)] = known[plain]
    return names, texts


def _functions(module: ir.Module) -> list[str]:
    return [*map(program_text, module.programs), f"static {driver_text(module)}"]


def _named(module: ir.Module, name: str) -> ir.Module:
    """The module with this name for its driver. The names of all its functions begin with it."""
    names = {program.name: f"{name}_{program.name}" for program in module.programs}
    programs = tuple(replace(program, name=names[program.name]) for program in module.programs)
    body = tuple(_renamed(line, names) for line in module.driver.body)
    return replace(module, programs=programs, driver=replace(module.driver, name=name, body=body))


def _renamed(line: ir.Statement, names: Mapping[str, str]) -> ir.Statement:
    """A statement that calls functions by other names."""
    if isinstance(line, ir.Do):
        return replace(line, function=names.get(line.function, line.function))
    if isinstance(line, ir.For | ir.If):
        return replace(line, body=tuple(_renamed(one, names) for one in line.body))
    return line


# -- the list of jobs ---------------------------------------------------------------------------------------------


def _tables(plan: MemoryMap, names: Mapping[int, str]) -> Iterator[str]:
    """The arguments of jobs, in two tables, and the jobs."""
    jobs = plan.recorded.jobs
    numbers = [", ".join(map(str, job.numbers)) for job in jobs if job.numbers]
    places = [", ".join(_places(plan, job)) for job in jobs if job.places]
    number_starts = accumulate((len(job.numbers) for job in jobs), initial=0)
    place_starts = accumulate((len(job.places) for job in jobs), initial=0)
    entries = [
        f"{{{names[id(job.driver)]}, numbers + {number}, places + {place}, {len(job.places)}}}"
        for job, number, place in zip(jobs, number_starts, place_starts, strict=False)
    ]
    yield _table("int64_t numbers", [*numbers, "0"])
    yield _table("place places", [*places, "{0, 0}"])
    yield _table("job jobs", [*entries, "{0, 0, 0, 0}"])


def _table(what: str, lines: Sequence[str]) -> str:
    return "\n".join([f"static const {what}[] = {{", *(f"    {line}," for line in lines), "};"])


def _places(plan: MemoryMap, job: Job) -> Iterator[str]:
    for i, (region, offset) in enumerate(job.places):
        if region.given >= 0:
            yield f"{{{FIRST_GIVEN + region.given}, {offset}}}"
        else:
            base, at = plan.place(region, offset, i in job.unread)
            yield f"{{{IN_WEIGHTS if base == WEIGHTS else IN_MEMORY}, {at}}}"


# -- functions for C ----------------------------------------------------------------------------------------------


def _init(name: str, plan: MemoryMap) -> Iterator[str]:
    at = f"(const char *)weights + {plan.weights_bytes - DIGEST_BYTES}"
    refused = f"if (memcmp({at}, {name}_DIGEST, {DIGEST_BYTES})) return 1;"
    kept = "*(char **)memory = (char *)weights;"
    mark = f"memcpy((char *)memory + {ADDRESS_BYTES}, {name}_DIGEST, {MARK_BYTES});"
    skewed = f"if (((uintptr_t)memory | (uintptr_t)weights) % {ALIGNMENT}) return 2;"
    first = [skewed, refused, f"memset(memory, 0, {name}_MEMORY);", kept, mark, f"{name}_reset(memory);", "return 0;"]
    yield _function(f"int {name}_init(void *memory, const void *weights)", first)
    others = [skewed, f"if ({_unprepared(name)}) return 2;", refused, kept, "return 0;"]
    yield _function(f"int {name}_set_weights(void *memory, const void *weights)", others)


def _unprepared(name: str) -> str:
    return f"memcmp((char *)memory + {ADDRESS_BYTES}, {name}_DIGEST, {MARK_BYTES})"


def _reset(name: str, plan: MemoryMap) -> str:
    lines = [f"if ({_unprepared(name)}) return;"]
    for number, offset in plan.state_offsets.items():
        to, size = f"(char *)memory + {offset}", plan.states[number]
        source = f"*(char **)memory + {plan.initial_offsets[number]}" if number in plan.initial else ""
        lines.append(f"memcpy({to}, {source}, {size});" if source else f"memset({to}, 0, {size});")
    return _function(f"void {name}_reset(void *memory)", lines)


def _run(name: str, plan: MemoryMap, arguments: Mapping[int, Argument]) -> str:
    """The function `NAME_run`. Its arguments are a0, a1, ..., because names of the header may be names of functions."""
    taken = ", ".join(["void *memory", *(str(replace(one, name=f"a{n}")) for n, one in arguments.items())])
    given = [
        f"(char *)a{n}" if n in arguments else f"(char *)memory + {plan.state_offsets[plan.state_of[n]]}"
        for n in range(plan.count)
    ]
    bases = ", ".join(["(char *)memory", "*(char **)memory", *given])
    lines = [
        f"char *const bases[] = {{{bases}}};",
        f"if ({_unprepared(name)}) return 2;",
        "return perform(jobs, bases);",
    ]
    return _function(f"int {name}_run({taken})", lines)


def _function(head: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{head} {{", *(f"    {line}" for line in lines), "}"])
