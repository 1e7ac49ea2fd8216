"""The C header of an exported plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rnnops.types import BOOL, Type

FLOATS = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class Argument:
    """An array that C gives.

    Args:
        name: a word of C.
        kind: its dtype and shape; the array lies without gaps in row-major order.
        written: whether it is an output.
    """

    name: str
    kind: Type
    written: bool

    def __str__(self) -> str:
        const = "" if self.written else "const "
        return f"{const}{c_type(self.kind.dtype)} *{self.name}"


def c_type(dtype: str) -> str:
    """The type of an element in C; bools are bytes."""
    return FLOATS.get(dtype) or ("uint8_t" if dtype == BOOL else f"{dtype}_t")


def for_processor(name: str, triple: str, processor: str) -> str:
    """What a header says of an object file."""
    machine, cpu = (re.sub(r"[^A-Za-z0-9_.+-]", "?", text) for text in (triple, processor))
    return f"for {cpu} ({machine}), one thread. Link {name}.o"


def for_any_processor(name: str) -> str:
    """What a header says of C99 source."""
    return f"for little-endian processors, one thread. Compile {name}.c with -std=c99, link -lm"


def header(name: str, arguments: Sequence[Argument], nbytes: int, weights: int, made: str) -> str:
    """The text.

    Args:
        nbytes, weights: of the memory and of the weights.
        made: what is built with it, and for which processors.
    """
    guard, taken = f"RNNOPS_{name}_H", ", ".join(["void *memory", *map(str, arguments)])
    shapes = [f"     {one.name}: {c_type(one.kind.dtype)}{list(one.kind.shape)}" for one in arguments]
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

/* Prepare {name}_MEMORY bytes, aligned to 64, for weights: the contents of {name}.weights, aligned to 64, which stay
   where they are and may be shared by any number of memories. Its states are zero then. */
void {name}_init(void *memory, const void *weights);

/* Set all states to zero. */
void {name}_reset(void *memory);

/* One call; 0 if all went well, 1 where an index or a label is out of range. One thread at a time uses a memory. An
   output may lie where an input lies that has the same size. Arrays have no gaps, rows first:
{chr(10).join(shapes)} */
int {name}_run({taken});

#ifdef __cplusplus
}}
#endif
#endif
"""
