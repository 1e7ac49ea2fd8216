"""The equation of an Einsum: which axes of its operands and its result are one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters

from rnnops.types import Shape

MOST_LABELS = 32  # as many axes as NumPy has for such a sum
Labels = tuple[str, ...]
TERM = re.compile(r"([A-Za-z]*)(\.\.\.)?([A-Za-z]*)")


class EquationError(ValueError):
    """An equation that says nothing, or does not fit its operands."""


@dataclass(frozen=True)
class Equation:
    """Labels of all axes: letters, and numbers for those of an ellipsis, counted from its end.

    Args:
        operands: for each operand the labels of its axes; one that is there twice takes the diagonal.
        result: those of the result; all others are summed over.
        sizes: label -> size; an axis of size 1 broadcasts.
    """

    operands: tuple[Labels, ...]
    result: Labels
    sizes: dict[str, int]

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return tuple(self.sizes[label] for label in self.result)


def terms_of(equation: str) -> tuple[list[str], str | None]:
    """The terms of the operands, and that of the result, None where it is left out."""
    text = re.sub(r"\s", "", equation)
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    for term in (*terms, right):
        if not TERM.fullmatch(term):
            raise EquationError(f"'{term}' is no term of letters with at most one '...'")
    if len(set(right)) < len(right.replace("...", ".")):
        raise EquationError(f"the result has a letter twice: '{right}'")
    if unknown := sorted(set(right) - {"."} - set("".join(terms))):
        raise EquationError(f"the result has letters that no operand has: {', '.join(unknown)}")
    return terms, right if arrow else None


def read_equation(equation: str, shapes: Sequence[Shape]) -> Equation:
    """The labels of all axes of operands of these shapes. Raises EquationError where they do not fit."""
    terms, right = terms_of(equation)
    if len(terms) != len(shapes):
        raise EquationError(f"it has {len(terms)} terms for {len(shapes)} operands")
    operands = tuple(labels_of(term, len(shape)) for term, shape in zip(terms, shapes, strict=True))
    sizes = sizes_of(operands, shapes)
    dots = tuple(sorted((label for label in sizes if label.isdigit()), key=int, reverse=True))
    letters = "".join(terms)
    once = tuple(letter for letter in sorted(set(letters) - {"."}) if letters.count(letter) == 1)
    if right is None:
        return Equation(operands, dots + once, sizes)
    before, dotted, after = parts_of(right)
    return Equation(operands, (*before, *(dots if dotted else ()), *after), sizes)


def labels_of(term: str, rank: int) -> Labels:
    """The labels of the axes of one operand."""
    before, dotted, after = parts_of(term)
    rest = rank - len(before) - len(after)
    if rest < 0 or (rest and not dotted):
        raise EquationError(f"'{term}' does not name the axes of an operand of rank {rank}")
    return (*before, *(str(i) for i in reversed(range(rest))), *after)


def parts_of(term: str) -> tuple[str, bool, str]:
    """Letters before an ellipsis, whether there is one, letters after it."""
    before, dots, after = term.partition("...")
    return before, bool(dots), after


def sizes_of(operands: Sequence[Labels], shapes: Sequence[Shape]) -> dict[str, int]:
    """The size of each label. Raises EquationError where two sizes that are not 1 differ."""
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        own = dict(zip(labels, shape, strict=True))
        for label, size in zip(labels, shape, strict=True):
            known = sizes.get(label, size)
            if own[label] != size or (known != size and 1 not in (known, size)):
                name = "an axis of '...'" if label.isdigit() else f"'{label}'"
                raise EquationError(f"{name} has sizes {known if known != size else own[label]} and {size}")
        sizes.update((label, size) for label, size in own.items() if sizes.get(label, 1) == 1)
    if len(sizes) > MOST_LABELS:
        raise EquationError(f"it has more than {MOST_LABELS} axes")
    return sizes


def written(operands: Sequence[Labels], result: Labels) -> str:
    """An equation without ellipsis for such labels."""
    labels = list(dict.fromkeys(label for term in (*operands, result) for label in term))
    letters = dict(zip(labels, ascii_letters, strict=False))
    terms = ["".join(letters[label] for label in term) for term in (*operands, result)]
    return f"{','.join(terms[:-1])}->{terms[-1]}"
