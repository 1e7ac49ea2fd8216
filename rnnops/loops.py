"""Loop forms: what a compiler needs to know of an op to turn it into a loop.

An op has one of these, or none: then it runs by its reference on every device, and plans say so. A form says all that
is needed to compile an op; none is compiled by its name, though passes know some library ops by name, to rewrite them.
`Pointwise` and `View` are cheap to redo on the backward pass; all else is not (design: "no product is redone"). What
texts may say stands in `rnnops.scalar_texts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MATMULS = ("MatMul", "RoundedMatMul", "Int8MatMul")
PRODUCTS = (*MATMULS, "Gemm", "RoundedGemm")  # ops whose time goes by multiply-adds


@dataclass(frozen=True)
class Pointwise:
    """Each output element is one scalar expression of the operands' elements, with broadcasting.

    Args:
        text: names operands `{0}`, `{1}`, ... and attributes that are numbers (`{alpha}`); its value is cast to the
            output's dtype. It is part of the op's definition and never holds text from a net or a file.
        begins: (operand, axis of the result where its axes begin), where broadcasting would have the last axes.
    """

    text: str
    begins: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class View:
    """Elements are moved or repeated, or places are filled with 0; nothing is computed.

    What goes where is read off the reference, run on element numbers; other inputs must be known before a run.

    Args:
        all_inputs: whether elements of all inputs go to the result (`Concat`), not only those of the first.
    """

    all_inputs: bool = False


@dataclass(frozen=True)
class Reduction:
    """Elements are folded over `schema.reduced_axes(call)` of the first input.

    Each element contributes `element`; contributions are combined two by two, in any order and in parts, each of which
    starts from `start`; `finish` makes the result of all. Everything between has the output's dtype.

    Args:
        combine: of `{a}` and `{b}`; associative and commutative.
        start: combined with any contribution it gives that contribution.
        element: of operands `{0}`, `{1}`, ..., which broadcast to the first.
        finish: of `{acc}`, and the number of elements, `{count}`.

    All three may name attributes that are numbers.
    """

    combine: str
    start: bool | int | float
    element: str = "{0}"
    finish: str = "{acc}"


@dataclass(frozen=True)
class Product:
    """The matrix product of the first two inputs, as `MatMul` has it.

    Args:
        operands: `"bfloat16"`, `"float16"` or `"tfloat32"`, which they are rounded to first, as `RoundedMatMul` says;
            `"int8"`, what the right ones fit in, as `Int8MatMul` says; empty for products of what they are.
    """

    operands: str = ""


@dataclass(frozen=True)
class Expansion:
    """The op is a short net of simpler ops: `schema.expand(call, *blobs)` builds it."""


@dataclass(frozen=True)
class Kernel:
    """An own kernel, one of `KERNELS`: look-ups, random numbers, recurrences."""

    name: str


LoopForm = Pointwise | View | Reduction | Product | Expansion | Kernel
KERNELS: Mapping[str, tuple[int, tuple[str, ...]]] = {  # name -> inputs and attributes that it reads
    "gather": (2, ("axis",)),
    "scatter_add": (2, ("axis", "size")),
    "check_labels": (1, ("classes", "ignore_index")),
    "dropout": (1, ("ratio", "ordinal")),
    "dropout_grad": (2, ("ratio",)),
    "uniform": (1, ("ordinal",)),
    "recurrence": (0, ()),
    "recurrence backward": (0, ()),
    "pointwise kernel": (0, ("body",)),
}


def is_cheap(form: LoopForm | None) -> bool:
    """Whether redoing the op costs no more than reading and writing its operands once."""
    return isinstance(form, Pointwise | View)
