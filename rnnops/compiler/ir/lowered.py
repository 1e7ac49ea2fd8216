"""What a step becomes when its ops are turned into statements: views, numbers, constants, and the statements."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from rnnops.compiler.ir.layouts import dense
from rnnops.compiler.ir.statements import Access, Number, Statement
from rnnops.types import Array, Shape, Type


class UnsupportedError(Exception):
    """An op that has no compiled form within a scan; its recurrence is stepped from Python, and the plan says so."""


class NothingToDoError(UnsupportedError):
    """No steps, or no elements; the interpreter does nothing as fast as anybody."""


@dataclass
class Lowered:
    """A step as statements.

    Args:
        views: where the elements of each blob lie.
        numbers: blobs that are one known number.
        constants: arrays that are known before a run.
        types: of blobs that own memory.
        statements: in order.
    """

    views: dict[str, Access] = field(default_factory=dict)
    numbers: dict[str, Number] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)

    def copy(self) -> Lowered:
        """A copy that can grow by itself."""
        return Lowered(
            dict(self.views), dict(self.numbers), dict(self.constants), dict(self.types), list(self.statements)
        )

    def own(self, name: str, kind: Type) -> Access:
        """Give a blob memory of its own."""
        self.types[name] = kind
        self.views[name] = Access(name, dense(kind.shape))
        return self.views[name]

    def operand(self, name: str, shape: Shape) -> Access | Number:
        """A blob as an operand over axes of `shape`."""
        if name in self.numbers:
            return self.numbers[name]
        access = self.views[name]
        return replace(access, layout=access.layout.broadcast_to(shape))

    def fresh(self, name: str) -> str:
        """A name like this one that no blob has."""
        count = 0
        while f"{name}.{count}" in self.views:
            count += 1
        return f"{name}.{count}"

    def know(self, name: str, value: Array) -> None:
        """Take a blob's value down, known before a run."""
        if value.size == 1:
            self.numbers[name] = value.reshape(()).item()
        else:
            self.own(name, Type(str(value.dtype), value.shape))
            self.constants[name] = np.ascontiguousarray(value)

    def in_memory(self, name: str, kind: Type) -> Access:
        """Where a blob lies, also one that is a known number."""
        if name not in self.views:
            self.constants[name] = np.full(kind.shape, self.numbers[name], kind.dtype)
            self.own(name, kind)
        return self.views[name]
