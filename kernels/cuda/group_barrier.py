"""Blocks of a group wait for each other, release what they wrote and acquire what the others did.

A group has a word of memory: its highest bit is the turn, the rest counts. Of `members` blocks the first adds
2^31 - (members - 1), all others 1: when all have come, the sum has turned the highest bit and left zeros below, for
the next time, in this launch or another one. Every block knows which turn it waits for: it reads the word before it has
come to any barrier, when the bit cannot turn without it, and counts from there. So nothing is set back between launches
and nobody waits for an answer of his own addition.

Why nobody waits for ever: the launch is cooperative, so that all blocks run at the same time; all members of a group
come to the same barriers in the same order, as a group goes through the same steps and regions; a block comes to a
barrier only after it has left the one before, so that at most one barrier of a group is open, and the members that
have not come to it are not waiting for anything of other groups. Each addition is made before its block begins to read,
and a word that has turned stays so until all members, also the one that reads, have come to the next barrier.

Order: lanes meet before the first one releases, so that it releases what all have written; it acquires before they meet
again, so that all may read what others released (`ordering.py`).

Functions are text (`source`) for generated modules, as the simulator puts its own `cuda` only into the module that a
kernel is from. Limits: words of groups are the launch's own as long as it runs, which a stream's order gives; a launch
that is broken off leaves them as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cuda.facade import cuda
from rnnops.kernels.cuda.function_texts import device_functions
from rnnops.kernels.cuda.ordering import add_release, load_acquire

WORDS = 32  # of a group, so that each has a line of the cache of its own
HALF = 1 << 31


def turn_of(counters: Any, line: int) -> int:
    """The turn of a group's word, before this block has come to any barrier."""
    return np.int64(load_acquire(counters, line)) >> 31


def arrive(counters: Any, line: int, member: int, members: int) -> None:
    """All lanes of a member have come; until the group is waited for, they may do what needs no other member.

    Args:
        line: where the group's word is.
    """
    cuda.syncthreads()
    if members > 1 and cuda.threadIdx.x == 0:
        add_release(counters, line, np.uint32(HALF - members + 1 if member == 0 else 1))


def await_group(counters: Any, line: int, members: int, turns: int) -> None:
    """All members have come, and all lanes see what any of them wrote before.

    Args:
        turns: the turn at the beginning, plus how many barriers lie behind.
    """
    if members > 1:
        if cuda.threadIdx.x == 0:
            while np.int64(load_acquire(counters, line)) >> 31 == turns & 1:
                pass
        cuda.syncthreads()


FUNCTIONS = (turn_of, arrive, await_group)


def source() -> str:
    """The text of the functions, for modules that define `cuda`, `device_function` and what `ordering.py` has."""
    return "\n\n\n".join([f"HALF = {HALF}", *device_functions(FUNCTIONS)])
