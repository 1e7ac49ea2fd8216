"""Loop forms: what a compiler needs to know of an op to turn it into a loop.

`Pointwise` and `View` are cheap to redo on the backward pass; all other forms are not (design: "no product is redone").
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pointwise:
    """Each output element is one scalar expression of the operands' elements, with broadcasting.

    `text` names operands `{0}`, `{1}`, ... and attributes by name (`{alpha}`). It is Python over the scalar functions
    `abs cos divide_towards_zero erf exp expm1 floor log log1p maximum minimum pow sigmoid sign sin sqrt tanh`,
    arithmetic, comparisons, `and or not`, `inf` and `x if c else y`; its value is cast to the output's dtype. It is
    part of the op's definition and never holds text from a net or a file.
    """

    text: str


@dataclass(frozen=True)
class View:
    """Elements are moved or repeated, nothing is computed (`Reshape`, `Split`, `Concat`, `Transpose`, ...)."""


@dataclass(frozen=True)
class Reduction:
    """Elements are folded over axes: `acc = initial; acc = step({acc}, {x}); result = finish({acc}, {count})`."""

    initial: str
    step: str
    finish: str = "{acc}"


@dataclass(frozen=True)
class Product:
    """A matrix product."""


@dataclass(frozen=True)
class Expansion:
    """The op is a short net of simpler ops: `schema.expand(call, *blobs)` builds it."""


@dataclass(frozen=True)
class Kernel:
    """An own kernel, named: look-ups, random numbers, recurrences."""

    name: str


LoopForm = Pointwise | View | Reduction | Product | Expansion | Kernel


def is_cheap(form: LoopForm) -> bool:
    """Whether redoing the op costs no more than reading and writing its operands once."""
    return isinstance(form, Pointwise | View)
