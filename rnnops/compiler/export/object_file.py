"""A recorded plan as an object file: its drivers, what they call, and three functions for C.

Everything is compiled for one thread of this processor. The functions are `NAME_init`, which writes the list of jobs
into a caller's memory, `NAME_reset`, which sets states to zero, and `NAME_run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rnnops.compiler.export.list_words import ListWords
from rnnops.compiler.export.memory_map import MemoryMap
from rnnops.kernels.cpu.native import LEVEL, PRODUCTS_LEVEL, NativeFunction, linked
from rnnops.kernels.cpu.room import WRITE, WRITE_PRODUCTS, demand
from rnnops.kernels.cpu.runtime import int8_products, products, rounded_products, threads, way_of
from rnnops.kernels.cpu.vector_width import vector_width
from rnnops.lazy import LazyModule
from rnnops.types import FLOATS

write_runtime = LazyModule("rnnops.kernels.cpu.write_runtime")
FUNCTIONS = ("init", "reset", "run")


def object_file(plan: MemoryMap, name: str, arguments: Sequence[int]) -> bytes:
    """The object.

    Args:
        name: that its functions begin with, a word of C.
        arguments: numbers of the arrays that `NAME_run` takes, in order; the others are states.
    """
    demand(WRITE, "write and compile kernels")
    words = ListWords(plan)
    drivers = [driver for driver in words.drivers.values() if isinstance(driver, NativeFunction)]
    own = [driver.write() for driver in drivers if driver.write is not None]
    texts = [(_interface(words, name, arguments), LEVEL), *((text, LEVEL) for text in own)]
    texts += [(text, PRODUCTS_LEVEL) for text in (write_runtime.exported(), *_runtime("\n".join(own)))]
    made: bytes = linked(texts, {f"{name}_{function}" for function in FUNCTIONS})
    return made


def _runtime(drivers: str) -> Iterator[str]:
    """Texts of the libraries of which drivers call something."""
    width, symbols = vector_width(), threads().symbols
    demand(WRITE_PRODUCTS if "_products_" in drivers else WRITE, "write and compile kernels")
    waits = {function: symbols[function] for function in ("wait", "list_rows")}
    if any(symbol in drivers for symbol in waits.values()):
        yield write_runtime.waits(waits)
    for dtype in FLOATS[1:]:
        library = products(dtype, width)
        if any(symbol in drivers for symbol in library.symbols.values()):
            yield write_runtime.products(library.symbols, dtype, width)
    if "_products_int8_" in drivers:  # else it need not be compiled
        yield write_runtime.int8_products(int8_products(width).symbols, width)
    way = way_of(width)
    library = rounded_products(way, width)
    if any(symbol in drivers for symbol in library.symbols.values()):
        yield write_runtime.rounded_products(library.symbols, way, width)


def _interface(listed: ListWords, name: str, arguments: Sequence[int]) -> str:
    """The three functions, in LLVM IR."""
    plan = listed.plan
    words = [number for word in listed.entries() for number in (word.offset, word.base, word.value)]
    names = [f'@"{symbol}"' for symbol in listed.drivers]
    tables = [
        f"@entries = internal constant [{len(words)} x i64] [{', '.join(f'i64 {word}' for word in words)}]",
        f"@drivers = internal constant [{len(names)} x ptr] [{', '.join(f'ptr {one}' for one in names)}]",
    ]
    declared = [f"declare void {one}(i64, i64, ptr)" for one in names]
    declared += ["declare void @set_up(ptr, ptr, ptr, i64, ptr)", "declare void @perform_alone(ptr, ptr)"]
    declared += ["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"]
    functions = [_init(name, len(words) // 3, plan), _reset(name, plan), _run(name, plan, arguments)]
    return "\n".join([*tables, *declared, *functions]) + "\n"


def _init(name: str, entries: int, plan: MemoryMap) -> str:
    lines = [
        f"call void @llvm.memset.p0.i64(ptr %memory, i8 0, i64 {plan.nbytes}, i1 false)",
        f"call void @set_up(ptr %memory, ptr %weights, ptr @entries, i64 {entries}, ptr @drivers)",
        "ret void",
    ]
    return _function(f"void @{name}_init(ptr %memory, ptr %weights)", lines)


def _reset(name: str, plan: MemoryMap) -> str:
    lines = []
    for number, offset in plan.state_offsets.items():
        lines.append(f"%s{number} = getelementptr i8, ptr %memory, i64 {offset}")
        lines.append(f"call void @llvm.memset.p0.i64(ptr %s{number}, i8 0, i64 {plan.states[number]}, i1 false)")
    return _function(f"void @{name}_reset(ptr %memory)", [*lines, "ret void"])


def _run(name: str, plan: MemoryMap, arguments: Sequence[int]) -> str:
    """Writes down what is given, has all jobs done, and returns whether an index was out of range."""
    lines = [f"%given = alloca [{plan.count} x ptr]"]
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
