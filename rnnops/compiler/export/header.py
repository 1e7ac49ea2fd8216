"""The C header of an exported plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rnnops.errors import FeedError
from rnnops.types import BOOL, Type

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
FLOATS = {"float32": "float", "float64": "double"}
WORDS_OF_C = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while alignas alignof bool
true false int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t"""
WORDS_OF_CPP = """
and and_eq asm bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl concept const_cast
consteval constexpr constinit decltype delete dynamic_cast explicit export friend mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public reinterpret_cast requires static_assert static_cast template
this thread_local throw try typeid typename using virtual wchar_t xor xor_eq"""
MACROS = """
BUFSIZ EDOM EOF ERANGE FILENAME_MAX I INFINITY NAN NULL RAND_MAX assert complex errno i386 imaginary linux stderr stdin
stdout unix"""  # that a compiler defines, or a header of C before this one
RESERVED = frozenset(["memory", "weights", *WORDS_OF_C.split(), *WORDS_OF_CPP.split(), *MACROS.split()])


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


def c_names(names: Sequence[str]) -> list[str]:
    """Words of C for names of blobs, each another."""
    found: list[str] = []
    for name in names:
        word = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:50] or "blob"
        word = f"_{word}" if word[0].isdigit() else word
        taken, count = {*found, *RESERVED}, 1
        unique = word
        while unique in taken:
            count += 1
            unique = f"{word}_{count}"
        found.append(unique)
    return found


def checked_word(name: object, net: str) -> str:
    """A name that functions may begin with. Raises FeedError for what is no word of C."""
    if not isinstance(name, str) or not WORD.fullmatch(name) or name in RESERVED:
        wanted = "a word of C: letters, digits and _, no digit first, no keyword"
        raise FeedError("no name for functions of C", net=net, wanted=wanted, came=repr(name))
    return name


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
