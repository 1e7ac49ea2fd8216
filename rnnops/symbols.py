"""The symbols of a plan: what was computed from them, what was decided by them, and what it is for other sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

from rnnops.sizes import (
    SAME,
    Choice,
    Number,
    Relation,
    Size,
    Terms,
    is_whole,
    key_of,
    least_result,
    terms_of,
    value_of,
    with_monomials,
)

RATIOS, MOST_MONOMIALS = (16, 4), 3  # of sizes for which a linear choice is tried, and of what, as corners are many
LEAST = 2  # what a symbol stands for at least


class Symbols:
    """The symbols of one plan, what was computed from them, and what was decided by them.

    Args:
        hints: what symbols stand for while the plan is made.
    """

    def __init__(self, hints: Sequence[int]) -> None:
        self.count = len(hints)
        self.values: list[Number] = list(hints)  # of atoms, symbols first
        self.least: list[int | None] = [LEAST] * len(hints)
        self.formulas: list[tuple[Callable[..., Any], Any, Any]] = []  # of atoms behind the symbols
        self.conditions: dict[tuple[Relation, Any], tuple[Any, Any, bool]] = {}
        self.choices: list[tuple[Choice, Sequence[int], Any]] = []
        self._atoms: dict[Any, Size] = {}
        self._made: dict[Any, Size] = {}  # each polynomial is one object

    def symbol(self, number: int) -> Any:
        """The size that a symbol stands for."""
        return self.made({(number,): 1})

    def made(self, terms: Terms) -> Any:
        """A polynomial as a size, or as a number where it is one."""
        if 0 in terms.values():
            terms = {monomial: factor for monomial, factor in terms.items() if factor}
        if not terms or (len(terms) == 1 and () in terms):
            return terms.get((), 0)
        key = frozenset(terms.items())
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Size(self, terms, key)
        return found

    def computed(self, function: Callable[..., Any], a: Any, b: Any) -> Any:
        """The result of other arithmetic, as an atom."""
        key = function, key_of(a), key_of(b)
        if any(type(one) is Size and one.symbols is not self for one in (a, b)):
            raise TypeError("sizes of different plans meet: something has been kept that belongs to another plan")
        if key not in self._atoms:
            try:
                result = function(value_of(a), value_of(b))
            except ArithmeticError:  # whoever catches it makes use of these numbers
                for one in (a, b):
                    self.decide(SAME, one, value_of(one))
                raise
            self.values.append(result)
            self.least.append(least_result(function, a, b))
            self.formulas.append((function, a, b))
            terms: Terms = {(len(self.values) - 1,): 1}
            real = isinstance(result, float)
            self._atoms[key] = Size(self, terms, ("real", len(self.values)), True) if real else self.made(terms)
        return self._atoms[key]

    def decide(self, relation: Relation, a: Any, b: Any) -> bool:
        """Whether a relation holds, which becomes a condition unless it always does or never."""
        if is_whole(a, b):
            a, b = a - b, 0
            if type(a) is not Size:
                return relation(a, 0)
            low, high = a.bounds
            if (low is not None and low > 0) or (high is not None and high < 0):
                return relation(1 if low is not None and low > 0 else -1, 0)
        key = relation, (key_of(a), key_of(b))
        if key not in self.conditions:
            self.conditions[key] = a, b, relation(value_of(a), value_of(b))
        return self.conditions[key][2]

    def pin(self, size: Size) -> Any:
        """The plain number of a size, of which the plan makes use."""
        self.decide(SAME, size, size.value)
        return size.value

    def settle(self, function: Choice, numbers: Sequence[int]) -> Any:
        """What a function makes of the plain numbers of sizes, which becomes a condition."""
        outcome, is_linear = function([value_of(number) for number in numbers])
        if not (is_linear and self._is_same_around(function, numbers, outcome)):
            self.choices.append((function, tuple(numbers), outcome))
        return outcome

    def _is_same_around(self, function: Choice, numbers: Sequence[int], outcome: Any) -> bool:
        """Whether a linear choice is the same for much smaller and much larger sizes; a condition is that they are so.

        Products of atoms are taken to be independent of each other.
        """
        monomials = sorted({monomial for number in numbers for monomial in terms_of(number) if monomial})
        values = [prod(self.values[atom] for atom in monomial) for monomial in monomials]
        for ratio in RATIOS if len(monomials) <= MOST_MONOMIALS else ():
            ranges = [(max(1, int(value) // ratio), int(value) * ratio) for value in values]
            corners = [{(): 1, **dict(zip(monomials, corner, strict=True))} for corner in product(*ranges)]
            found = (function([with_monomials(number, corner) for number in numbers]) for corner in corners)
            if all(one == (outcome, True) for one in found):
                for monomial, (low, high) in zip(monomials, ranges, strict=True):
                    _ = low <= self.made({monomial: 1}) <= high
                return True
        return False

    def at(self, values: Sequence[Number]) -> Values | None:
        """The same with other sizes; None where other things would have been decided."""
        found = Values(values)
        try:
            for function, a, b in self.formulas:
                found.atoms.append(function(found.number(a), found.number(b)))
        except ArithmeticError:
            return None
        return found if self._holds(found.number) else None

    def _holds(self, number: Callable[[Any], Any]) -> bool:
        """Whether all would be decided as it was."""
        for key, (a, b, told) in self.conditions.items():
            if key[0](number(a), number(b)) != told:
                self.conditions = {key: (a, b, told), **self.conditions}  # what fails once may soon fail again
                return False
        for function, numbers, outcome in self.choices:
            if function([number(one) for one in numbers])[0] != outcome:
                return False
        return True


class Values:
    """What sizes are for certain values of the symbols.

    Args:
        atoms: values of atoms, symbols first.
    """

    def __init__(self, atoms: Sequence[Number]) -> None:
        self.atoms: list[Number] = list(atoms)
        self._known: dict[int, Number] = {}

    def number(self, size: Any) -> Any:
        """A size as a plain number; other numbers as they are."""
        if type(size) is not Size:
            return size
        found = self._known.get(id(size))  # each size is one object, which the symbols keep
        if found is None:
            found = self._known[id(size)] = size.with_atoms(self.atoms)
        return found
