"""Entries: what drivers call by name, with an address and a few numbers for each array.

numba's functions take an array in seven numbers or more, most of which follow from the others. Forty arguments at every
product were a third of what LLVM has to do for a driver; entries spread them out, compiled once on a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import llvmlite.binding as llvm
import numpy as np

from rnnops.kernels.cpu.native import address_of, engine_of, object_of

Kinds = Sequence[str]  # of arguments: a dtype for a number, with brackets for an array, with two pairs for a matrix
TAKEN = {"": ("i64",), "[]": ("ptr", "i64"), "[][]": ("ptr", "i64", "i64", "i64")}  # how entries take them
_engines: list[object] = []  # hold the code


def link_entry(function: str, kinds: Kinds) -> str:
    """Make an entry known to LLVM; its name there.

    Args:
        function: what it calls, by its name in LLVM.
        kinds: of its arguments.
    """
    name = f"{function}.entry"
    engine = engine_of(object_of(_entry(name, function, kinds) + "\n"))
    llvm.add_symbol(name, address_of(engine, name))
    _engines.append(engine)
    return name


def _entry(name: str, function: str, kinds: Kinds) -> str:
    """An entry as LLVM IR: it takes where a result goes and where an error, then the arguments."""
    taken, lines, given = ["ptr %result", "ptr %raised"], [], ["ptr %result", "ptr %raised"]
    for i, kind in enumerate(kinds):
        dtype, brackets = kind.rstrip("[]"), kind[len(kind.rstrip("[]")) :]
        parts = [f"%a{i}.{part}" for part in range(len(TAKEN[brackets]))]
        types = ["i8"] if dtype == "bool" else TAKEN[brackets]
        taken += [f"{one} {part}" for one, part in zip(types, parts, strict=True)]
        lines += _products(i, dtype) if brackets == "[][]" else []
        given += _spread(i, dtype, brackets, parts, types)
    declared = ", ".join(one.split()[0] for one in given)
    body = [*lines, f'%ended = call i32 @"{function}"({", ".join(given)})', "ret i32 %ended"]
    head = f'declare i32 @"{function}"({declared})\n\ndefine i32 @"{name}"({", ".join(taken)}) {{\n'
    return head + "\n".join(f"  {line}" for line in body) + "\n}"


def _products(i: int, dtype: str) -> Iterator[str]:
    """How many numbers a matrix has, and how many bytes its rows are apart."""
    yield f"%a{i}.size = mul nsw i64 %a{i}.1, %a{i}.3"
    yield f"%a{i}.apart = mul nsw i64 %a{i}.2, {np.dtype(dtype).itemsize}"


def _spread(i: int, dtype: str, brackets: str, parts: Sequence[str], types: Sequence[str]) -> list[str]:
    """An argument as numba's functions take it: counts of references, size, item, address, shape, strides."""
    if not brackets:
        return [f"{types[0]} {parts[0]}"]
    item, size = np.dtype(dtype).itemsize, f"%a{i}.size" if brackets == "[][]" else parts[1]
    head = ["ptr null", "ptr null", f"i64 {size}", f"i64 {item}", f"ptr {parts[0]}"]
    if brackets == "[]":
        return [*head, f"i64 {size}", f"i64 {item}"]
    return [*head, f"i64 {parts[1]}", f"i64 {parts[3]}", f"i64 %a{i}.apart", f"i64 {item}"]
