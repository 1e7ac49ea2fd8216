"""Room for LLVM, which ends the process where memory runs out: what it may need is asked for before it is entered.

The sizes are measured: the least room under RLIMIT_AS in which modules of 13 to 810 KB of text are compiled and loaded
(`tests/compiler/test_little_room.py`). They are 1.3 to 2 times that for generated modules, and more for libraries of
products. Limits: memory that another thread takes meanwhile, and systems that promise more than they have.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

from rnnops.errors import OutOfMemoryError

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
