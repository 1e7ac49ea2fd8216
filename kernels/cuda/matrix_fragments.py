"""What `mma.sync` does: which element of a matrix lies in which register of which lane, and the product itself.

A warp of 32 lanes multiplies A [16, k] by B [k, 8] and adds C [16, 8]; each lane holds parts of all of them. The places
are those of the PTX ISA ("Warp-level matrix instructions", matrix fragments for `mma.m16n8k8` of `.tf32`, and for
`mma.m16n8k16` of `.bf16` and `.f16`), where lane = 4 * group + member. `multiplied` is the instruction for all lanes at
once, the twin that the simulator computes with: an element in a wrong lane or register gives a wrong result there, too.

Limits: sums are exact here, and rounded once. Hardware adds products in an order of its own and cuts bits off on the
way, of which PTX says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

WARP = 32
ROWS, COLUMNS = 16, 8  # of C
MEMBERS = 4  # lanes of a group
SUMS = 4  # numbers of C that a lane holds


@dataclass(frozen=True)
class Instruction:
    """A kind of `mma.sync` with sums in float32.

    Args:
        precision: of operands, as `ro.compile` names it.
        kind: the same in PTX.
        k: elements of a row of A, and of a column of B.
        digits: bits of an operand's significand.
    """

    precision: str
    kind: str
    k: int
    digits: int

    @property
    def name(self) -> str:
        """As PTX has it."""
        return f"mma.sync.aligned.m16n8k{self.k}.row.col.f32.{self.kind}.{self.kind}.f32"

    @property
    def short(self) -> str:
        """As plans have it."""
        return f"mma.sync.m16n8k{self.k} of {self.kind}"

    @property
    def packed(self) -> int:
        """Elements of a register."""
        return self.k // 8

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 4 // self.packed

    def place_in_a(self, lane: int, number: int) -> tuple[int, int]:
        """Row and k of a lane's element of A; a register holds `packed` neighbouring ones."""
        group, member = divmod(lane, MEMBERS)
        register, half = divmod(number, self.packed)
        return group + 8 * (register % 2), self._k(member, register // 2, half)

    def place_in_b(self, lane: int, number: int) -> tuple[int, int]:
        """K and column of a lane's element of B."""
        group, member = divmod(lane, MEMBERS)
        register, half = divmod(number, self.packed)
        return self._k(member, register, half), group

    def _k(self, member: int, upper: int, half: int) -> int:
        return self.packed * (member + MEMBERS * upper) + half


def place_in_c(lane: int, number: int) -> tuple[int, int]:
    """Row and column of a lane's element of C."""
    group, member = divmod(lane, MEMBERS)
    return group + 8 * (number // 2), 2 * member + number % 2


TFLOAT32 = Instruction("tfloat32", "tf32", 8, 11)
BFLOAT16 = Instruction("bfloat16", "bf16", 16, 8)
FLOAT16 = Instruction("float16", "f16", 16, 11)
INSTRUCTIONS = {one.precision: one for one in (TFLOAT32, BFLOAT16, FLOAT16)}


def multiplied(instruction: Instruction, a: Any, b: Any, c: Any) -> Any:
    """What all lanes hold of `A @ B + C` afterwards: float32 [32, 4].

    Args:
        a, b: words [32, 4] and [32, 2], registers of lanes.
        c: float32 [32, 4].
    """
    left, right = np.zeros((ROWS, instruction.k)), np.zeros((instruction.k, COLUMNS))
    total = np.zeros((ROWS, COLUMNS))
    a, b = (elements(instruction, words) for words in (a, b))
    for lane in range(WARP):
        for number, element in enumerate(a[lane]):
            left[instruction.place_in_a(lane, number)] = element
        for number, element in enumerate(b[lane]):
            right[instruction.place_in_b(lane, number)] = element
        for number in range(SUMS):
            total[place_in_c(lane, number)] = c[lane, number]
    with np.errstate(all="ignore"):
        found = (total + left @ right).astype(np.float32)
    return np.array([[found[place_in_c(lane, number)] for number in range(SUMS)] for lane in range(WARP)])


def elements(instruction: Instruction, words: Any) -> Any:
    """The numbers in registers, the lower half of a register first, as float64; tf32 ends at its last bit."""
    words = np.ascontiguousarray(words, np.uint32)
    if instruction is TFLOAT32:
        return (words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    halves = words.view(np.uint16)
    if instruction is FLOAT16:
        return halves.view(np.float16).astype(np.float64)
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def bits(instruction: Instruction, x: Any) -> Any:
    """The bits of float32 numbers rounded to a precision: uint32 for tf32, uint16 for the others.

    To the nearest number, of two that are as near to the one that is larger in size for tf32 (`cvt.rna`), to the even
    one for the others (`cvt.rn`); NaN stays NaN.
    """
    x = np.asarray(x, np.float32)
    if instruction is FLOAT16:
        with np.errstate(over="ignore"):
            return x.astype(np.float16).view(np.uint16)
    pattern = x.view(np.uint32)
    if instruction is TFLOAT32:
        nearest = (pattern + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return np.where(np.isnan(x), np.uint32(0x7FFFE000), nearest)
    nearest = (pattern + np.uint32(0x7FFF) + ((pattern >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint32(0x7FFF), nearest).astype(np.uint16)


def values(instruction: Instruction, pattern: Any) -> Any:
    """The float32 numbers that bits stand for."""
    pattern = np.asarray(pattern)
    if instruction is FLOAT16:
        return pattern.view(np.float16).astype(np.float32)
    shift = np.uint32(0 if instruction is TFLOAT32 else 16)
    return (pattern.astype(np.uint32) << shift).view(np.float32)
