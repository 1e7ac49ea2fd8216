"""A recorded plan as C99 text: its drivers, the list of its jobs as tables, and three functions for C.

All but `NAME_init`, `NAME_reset` and `NAME_run` is static. Tables hold offsets and no addresses, so that the text is
for processors of any width; a memory begins with the address of its weights. Limits: one thread; little-endian
processors, as weights are read as they lie in the file; bools of one byte, IEEE's floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from rnnops.compiler.codegen.scan_module import ScanModule
from rnnops.compiler.execute.recorder import Job
from rnnops.compiler.export.header import Argument
from rnnops.compiler.export.memory_map import MemoryMap
from rnnops.compiler.ir.kernel import Do, For, If, Module, Statement
from rnnops.compiler.targets.c99.target import HEADER as RUNTIME
from rnnops.compiler.targets.c99.text import c_type, driver_text, program_text
from rnnops.kernels.cpu.exported import WEIGHTS

ADDRESS_BYTES = 16  # of the weights' address, at most
IN_MEMORY, IN_WEIGHTS, FIRST_GIVEN = range(3)  # what places count from
JOBS = Path(__file__).with_name("jobs.h")
# A plan needs a part of what there is, and macros serve integers with and without a sign.
QUIET = ("unused-function", "unused-variable", "unused-but-set-variable", "type-limits")


def c_source(plan: MemoryMap, name: str, dtype: str, arguments: Mapping[int, Argument]) -> str:
    """The text.

    Args:
        name: that its functions begin with, a word of C.
        dtype: of products.
        arguments: the arrays that `NAME_run` takes, by number, in order; the others are states.
    """
    names, drivers = _drivers(plan.recorded.jobs)
    most = max((len(job.places) for job in plan.recorded.jobs), default=0) + 1
    head = [
        f'/* Written by rnnops; {name}.h says how it is used. */\n#include "{name}.h"\n#include <stddef.h>',
        "#include <string.h>\n" + "\n".join(_demands(plan, dtype)),
        f"#define NUMBER {c_type(dtype)}\n#define MOST_PLACES {most}",
    ]
    runtime = [path.read_text("ascii").strip() for path in (RUNTIME, JOBS)]
    functions = [_init(name, plan), _reset(name, plan), _run(name, plan, arguments)]
    return "\n\n".join([*head, *runtime, *drivers, *_tables(plan, names), *functions]) + "\n"


def _demands(plan: MemoryMap, dtype: str) -> Iterator[str]:
    """Lines that refuse processors for which the text is wrong."""
    yield f"#if SIZE_MAX < {max(plan.nbytes, len(plan.weights()))}"
    yield "#error The memory or the weights are larger than what this processor addresses."
    yield "#endif"
    yield "#if defined __BYTE_ORDER__ && defined __ORDER_BIG_ENDIAN__ && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__"
    yield "#error The file of weights is little-endian."
    yield "#endif"
    yield "#ifdef __GNUC__"
    yield from (f'#pragma GCC diagnostic ignored "-W{warning}"' for warning in QUIET)
    yield "#endif"
    sizes = f"sizeof(_Bool) == 1 && sizeof({c_type(dtype)}) == {np.dtype(dtype).itemsize}"
    yield f"typedef char sizes_are_as_wanted[{sizes} ? 1 : -1];"


# -- drivers ------------------------------------------------------------------------------------------------------


def _drivers(jobs: Sequence[Job]) -> tuple[dict[int, str], list[str]]:
    """Names of drivers in C by their identity, and the texts of all functions; equal drivers are one."""
    names, known = dict[int, str](), dict[str, str]()
    texts: list[str] = []
    for driver in {id(job.driver): job.driver for job in jobs}.values():
        if not isinstance(driver, ScanModule):  # one of jobs.h
            names[id(driver)] = str(driver)
            continue
        assert isinstance(driver.module, Module)
        plain = "\n\n".join(_functions(driver.module))
        if plain not in known:
            known[plain] = f"scan_{len(known)}"
            texts += _functions(_named(driver.module, known[plain]))
        names[id(driver)] = known[plain]
    return names, texts


def _functions(module: Module) -> list[str]:
    return [*map(program_text, module.programs), f"static {driver_text(module)}"]


def _named(module: Module, name: str) -> Module:
    """A module whose driver has a name, with which all of its functions begin."""
    names = {program.name: f"{name}_{program.name}" for program in module.programs}
    programs = tuple(replace(program, name=names[program.name]) for program in module.programs)
    body = tuple(_renamed(line, names) for line in module.driver.body)
    return replace(module, programs=programs, driver=replace(module.driver, name=name, body=body))


def _renamed(line: Statement, names: Mapping[str, str]) -> Statement:
    """A statement that calls functions by other names."""
    if isinstance(line, Do):
        return replace(line, function=names.get(line.function, line.function))
    if isinstance(line, For | If):
        return replace(line, body=tuple(_renamed(one, names) for one in line.body))
    return line


# -- the list of jobs ---------------------------------------------------------------------------------------------


def _tables(plan: MemoryMap, names: Mapping[int, str]) -> Iterator[str]:
    """What jobs are given, in two tables, and the jobs."""
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


def _init(name: str, plan: MemoryMap) -> str:
    lines = [f"memset(memory, 0, {name}_MEMORY);", "*(char **)memory = (char *)weights;"]
    return _function(f"void {name}_init(void *memory, const void *weights)", lines)


def _reset(name: str, plan: MemoryMap) -> str:
    states = plan.state_offsets.items()
    lines = [f"memset((char *)memory + {offset}, 0, {plan.states[number]});" for number, offset in states]
    return _function(f"void {name}_reset(void *memory)", lines or ["(void)memory;"])


def _run(name: str, plan: MemoryMap, arguments: Mapping[int, Argument]) -> str:
    """Words of its own for arguments: those of the header may be names of what is called here."""
    taken = ", ".join(["void *memory", *(str(replace(one, name=f"a{n}")) for n, one in arguments.items())])
    given = [
        f"(char *)a{n}" if n in arguments else f"(char *)memory + {plan.state_offsets[plan.state_of[n]]}"
        for n in range(plan.count)
    ]
    bases = ", ".join(["memory", "*(char **)memory", *given])
    return _function(
        f"int {name}_run({taken})", [f"char *const bases[] = {{{bases}}};", "return perform(jobs, bases);"]
    )


def _function(head: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{head} {{", *(f"    {line}" for line in lines), "}"])
