"""What a kernel's machine code holds: the text of nvdisasm, its step loop, and instructions counted by kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
LABEL = re.compile(r"^(\.L_x_\d+|\$[\w$]+):", re.MULTILINE)
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
WIDTHS = {"64": "8", "128": "16"}


@dataclass(frozen=True)
class Instruction:
    """One of them: its name with modifiers, and its operands."""

    name: str
    operands: str

    @property
    def kind(self) -> str:
        """What it is counted as; loads and stores by bytes."""
        base, *modifiers = self.name.split(".")
        if base in ("LDG", "LDS", "STS", "STG", "LDL", "STL", "LDGSTS"):
            nbytes = next((WIDTHS[one] for one in modifiers if one in WIDTHS), "4")
            if base == "LDG" and "STRONG" in modifiers:
                return "LDG strong"
            return f"{base} {nbytes}"
        if base in ("CALL", "I2F", "MUFU") and self._divides(base, modifiers):
            return "division 64" if base == "CALL" or "U64" in modifiers else "division 32"
        return base

    def _divides(self, base: str, modifiers: list[str]) -> bool:
        if base == "CALL":
            return re.search(r"(div|rem)_[su]64", self.operands) is not None
        return base == "I2F" and "RP" in modifiers


def kernel_text(text: str) -> str:
    """The part of a disassembly that is the kernel itself, without functions that it calls."""
    parts = re.split(r"^\.section\s+\.text\.|^\s*\.section\s+\.text\.", text, flags=re.MULTILINE)
    kernels = [part for part in parts[1:] if re.match(r"_Z\S*(loop_|unit_|kernel)", part)]
    return max(kernels or parts, key=len)


def instructions(text: str) -> tuple[list[Instruction], dict[str, int]]:
    """All instructions in order, and at which of them labels are."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        label = LABEL.match(line)
        if label:
            labels[label[1]] = len(found)
        one = INSTRUCTION.search(line)
        if one:
            found.append(Instruction(one[1], one[2]))
    return found, labels


def step_loop(text: str) -> list[Instruction]:
    """The longest loop in which lanes wait for each other, else the longest of all; all instructions without a loop."""
    found, _ = instructions(text)
    loops = list(loops_of(text))
    waiting = [loop for loop in loops if any(one.name.startswith("BAR") for one in loop)]
    return max(waiting or loops or [found], key=len)


def loops_of(text: str) -> Iterator[list[Instruction]]:
    """What lies between a label and a branch back to it."""
    found, labels = instructions(text)
    for place, one in enumerate(found):
        target = TARGET.search(one.operands) if one.name.startswith("BRA") else None
        start = labels.get(target[1], place) if target else place
        if start < place:
            yield found[start : place + 1]


def counted(body: list[Instruction]) -> Counter[str]:
    """How many there are of each kind."""
    return Counter(one.kind for one in body)
