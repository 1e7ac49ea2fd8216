"""Sizes as symbols, and the conditions under which a plan for some sizes is also a plan for others.

A `Size` is a number that remembers how it was computed. `Symbols` notes all decisions that depended on sizes. A plan
that is made with symbols holds for all sizes that lead to the same decisions.

A size is a polynomial over atoms. Atoms are symbols, which stand for sizes of feeds, and results of arithmetic other
than sums and products. A comparison of two sizes returns its result for the current numbers. The result becomes a
condition of the plan, unless it is the same for all sizes. NumPy and dictionaries need a plain number. To give them one
is to **guard** the size: the plan then holds only for this number.

A symbol is at least 2. Sizes 0 and 1, and which sizes are equal, belong to the structure of feeds (`pipeline.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import product
from math import prod
from typing import Any, NoReturn

import numpy as np

Number = int | float
Monomial = tuple[int, ...]  # a product of atoms: their numbers, sorted, with repetitions
Terms = dict[Monomial, int]  # a polynomial: product of atoms -> its factor
Relation = Callable[[Any, Any], bool]
Choice = Callable[[Sequence[int]], tuple[Any, bool]]  # returns a choice, and True if its cost is linear in the numbers
MORE, LESS, SAME = operator.gt, operator.lt, operator.eq


class Size:
    """A number that is computed from symbols. If a plain number is needed, it becomes one and is guarded.

    Args:
        symbols: the symbols of the plan.
        terms: its polynomial over atoms.
        key: equal for sizes with the same polynomial.
        real: whether it is an atom that is not a whole number.
    """

    __slots__ = ("_bounds", "_told", "_value", "key", "real", "symbols", "terms")

    def __init__(self, symbols: Symbols, terms: Terms, key: Any, real: bool = False) -> None:
        self.symbols, self.terms, self.key, self.real = symbols, terms, key, real
        self._value: Any = None
        self._bounds: Any = None
        self._told: dict[Any, bool] = {}

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # rules of ops ask `isinstance(size, int)`
        return float if self.real else int

    @property
    def value(self) -> Any:
        """Its number for the sizes with which the plan is made."""
        if self._value is None:
            self._value = self.with_atoms(self.symbols.values)
        return self._value

    def with_atoms(self, atoms: Sequence[Number]) -> Any:
        """Its number for these values of atoms."""
        total: Any = 0
        for monomial, factor in self.terms.items():
            for atom in monomial:
                factor = factor * atoms[atom]  # type: ignore[assignment]
            total += factor
        return total

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The least and the largest number that it can be; None if this is not known."""
        if self._bounds is None:
            self._bounds = self._found_bounds()
        found: tuple[int | None, int | None] = self._bounds
        return found

    def _found_bounds(self) -> tuple[int | None, int | None]:
        """The bounds, from the Taylor series at the least values of atoms. The distance of an atom from its least value
        is at least 0. So if all factors but the constant are at least 0, the constant is the least number."""
        least, moved = self.symbols.least, dict[Monomial, int]()
        for monomial, factor in self.terms.items():
            parts: Terms = {(): factor}
            for atom in monomial:
                start = least[atom]
                if start is None:
                    return None, None
                more = {(*rest, atom): value for rest, value in parts.items()}
                for rest, value in parts.items():
                    more[rest] = more.get(rest, 0) + value * start
                parts = more
            for rest, value in parts.items():
                moved[rest] = moved.get(rest, 0) + value
        start = moved.pop((), 0)
        return (start if all(v >= 0 for v in moved.values()) else None), (
            start if all(v <= 0 for v in moved.values()) else None
        )

    def _terms_of(self, other: Any) -> Terms:
        """Another whole number as a polynomial. Raises TypeError if it belongs to another plan."""
        if type(other) is Size and other.symbols is not self.symbols:
            raise TypeError("sizes of different plans meet: something has been kept that belongs to another plan")
        return terms_of(other)

    # -- whole arithmetic ------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if not is_whole(self, other):
            return _other(operator.add, self, other)
        terms = dict(self.terms)
        for monomial, factor in self._terms_of(other).items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return self.symbols.made(terms)

    def __mul__(self, other: Any) -> Any:
        if not is_whole(self, other):
            return _other(operator.mul, self, other)
        terms: Terms = {}
        for one, factor in self.terms.items():
            for two, times in self._terms_of(other).items():
                monomial = tuple(sorted(one + two)) if one and two else one + two
                terms[monomial] = terms.get(monomial, 0) + factor * times
        return self.symbols.made(terms)

    def __neg__(self) -> Any:
        return _other(operator.mul, self, -1.0) if self.real else self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other if is_whole(self, other) else _other(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other if is_whole(self, other) else _other(operator.sub, other, self)

    def __radd__(self, other: Any) -> Any:
        return self + other if is_whole(self, other) else _other(operator.add, other, self)

    def __rmul__(self, other: Any) -> Any:
        return self * other if is_whole(self, other) else _other(operator.mul, other, self)

    def __floordiv__(self, other: Any) -> Any:
        if not is_whole(self, other):
            return _other(operator.floordiv, self, other)
        exact = _exact(self, other)
        if exact is not None:
            return exact
        if _is_under(self, other):
            return 0
        high = self.bounds[1]
        if high is not None and high <= 0 and _least(other) > 0:
            return -_other(ceiling, -self, other)
        return _other(operator.floordiv, self, other)

    def __mod__(self, other: Any) -> Any:
        if is_whole(self, other) and _exact(self, other) is not None:
            return 0
        return self if _is_under(self, other) else _other(operator.mod, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return 0 if _is_under(other, self) else _other(operator.floordiv, other, self)

    def __rmod__(self, other: Any) -> Any:
        return other if _is_under(other, self) else _other(operator.mod, other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return _other(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _other(operator.truediv, other, self)

    def __pow__(self, other: Any) -> Any:
        return prod([self] * other) if type(other) is int and other > 0 else _other(operator.pow, self, other)

    def __rpow__(self, other: Any) -> Any:
        return _other(operator.pow, other, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.symbols.guard(self), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Arithmetic with numbers of NumPy is symbolic, as with numbers of Python. With arrays the size is guarded."""
        if ufunc in OPERATORS and method == "__call__" and not (options or any(map(_is_array, inputs))):
            return OPERATORS[ufunc](*(one.item() if isinstance(one, np.generic) else one for one in inputs))
        plain = [self.symbols.guard(one) if type(one) is Size else one for one in inputs]
        return getattr(ufunc, method)(*plain, **options)

    # -- decisions -------------------------------------------------------------------------------------------------

    def _is(self, relation: Relation, other: Any) -> bool:
        """True if a relation holds. The answer is cached."""
        key = relation, type(other), id(other) if type(other) is Size else other  # each size is one object
        told = self._told.get(key)
        if told is None:
            told = self._told[key] = self.symbols.decide(relation, self, other)
        return told

    def __eq__(self, other: object) -> bool:
        return self is other or (self._is(SAME, other) if _is_number(other) else NotImplemented)

    def __ne__(self, other: object) -> bool:
        return self is not other and (not self._is(SAME, other) if _is_number(other) else NotImplemented)

    def __lt__(self, other: Any) -> bool:
        return self._is(LESS, other) if _is_number(other) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self._is(MORE, other) if _is_number(other) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return not self._is(MORE, other) if _is_number(other) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return not self._is(LESS, other) if _is_number(other) else NotImplemented

    def __bool__(self) -> bool:
        return self != 0

    # -- plain numbers ---------------------------------------------------------------------------------------------

    def __index__(self) -> int:
        if self.real:
            raise TypeError("a real number is not an index")
        return int(self.symbols.guard(self))

    def __int__(self) -> int:
        return int(self.symbols.guard(self))

    def __float__(self) -> float:
        return float(self.symbols.guard(self))

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.symbols.guard(self), digits)

    def __trunc__(self) -> int:
        return int(self.symbols.guard(self))

    def __floor__(self) -> Any:
        return int(self // 1) if self.real else self

    def __ceil__(self) -> Any:
        return int(-(-self // 1)) if self.real else self

    def __hash__(self) -> int:
        return hash(self.symbols.guard(self))

    def __str__(self) -> str:
        return str(self.symbols.guard(self))

    __repr__ = __str__

    def __format__(self, how: str) -> str:
        return format(self.symbols.guard(self), how)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"sizes have no '{name}'")

    def __reduce__(self) -> NoReturn:
        raise TypeError("sizes belong to a plan that is being made")


def whole(number: Any) -> Any:
    """A size unchanged, or any other whole number as an int. Raises TypeError for other values."""
    return number if type(number) is Size else operator.index(number)


def guarded(function: Choice, numbers: Sequence[Any]) -> Any:
    """The choice of a function of plain numbers. For sizes, it becomes a condition that the choice stays the same.

    Args:
        function: from numbers to (choice, True if the cost of each choice is linear in the numbers). With linear costs,
            a choice that is best at all corners of a box of numbers is best inside of it.
    """
    symbols = next((number.symbols for number in numbers if type(number) is Size), None)
    return function(numbers)[0] if symbols is None else symbols.guard_choice(function, numbers)


@dataclass(frozen=True)
class LazyText:
    """A text with sizes in its places `{}`, in order."""

    template: str
    sizes: tuple[Any, ...]

    def text(self, numbers: Sequence[int]) -> str:
        """The text with plain numbers."""
        return self.template.format(*numbers)


def lazy_text(template: str, *sizes: int) -> Any:
    """A text for people with sizes in its places `{}`. The sizes are not guarded."""
    return LazyText(template, sizes) if is_symbolic(sizes) else template.format(*sizes)


def sizes_in(value: Any) -> list[Size]:
    """All sizes within a value of tuples, lists, mappings and dataclasses, without cached attributes of dataclasses."""
    if type(value) is Size:
        return [value]
    if isinstance(value, Mapping):
        return [size for part in value.values() for size in sizes_in(part)]
    if isinstance(value, list | tuple):
        return [size for part in value for size in sizes_in(part)]
    if is_dataclass(value) and not isinstance(value, type):
        return [size for field in fields(value) if field.init for size in sizes_in(getattr(value, field.name))]
    return []


def is_symbolic(numbers: Sequence[Any]) -> bool:
    """True if one of these numbers is a `Size`."""
    for number in numbers:  # noqa: SIM110 - half the time of `any`, and called for all shapes
        if type(number) is Size:
            return True
    return False


OPERATORS = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _is_number(other: object) -> bool:
    return type(other) in (int, Size) or isinstance(other, int | float | np.generic)


def _is_real(number: Any) -> bool:
    return number.real if type(number) is Size else isinstance(number, float | np.floating)


def is_whole(*numbers: Any) -> bool:
    """True if all are whole numbers."""
    return all(type(one) is int or (_is_number(one) and not _is_real(one)) for one in numbers)


def terms_of(number: Any) -> Terms:
    """A whole number as a polynomial."""
    return number.terms if type(number) is Size else {(): int(number)}


def with_monomials(number: Any, monomials: dict[Monomial, int]) -> int:
    """The number of a size, from values of products of atoms."""
    return sum(factor * monomials[monomial] for monomial, factor in terms_of(number).items())


def key_of(number: Any) -> Any:
    """A key that is equal for numbers with the same polynomial."""
    return number.key if type(number) is Size else (type(number), number)


def value_of(number: Any) -> Any:
    """A plain number, or the number of a size for the sizes with which the plan is made."""
    return number.value if type(number) is Size else number


def _other(function: Callable[..., Any], a: Any, b: Any) -> Any:
    """The result of arithmetic that is not a polynomial, as a new atom."""
    if not (_is_number(a) and _is_number(b)):
        return NotImplemented
    return (a if type(a) is Size else b).symbols.computed(function, a, b)


def ceiling(a: Any, b: Any) -> Any:
    """A quotient, rounded up."""
    return -(-a // b)


def _least(number: Any) -> int:
    """The least number that a whole number can be; -1 if it is not known."""
    low = number.bounds[0] if type(number) is Size else number
    return -1 if low is None else int(low)


def _is_under(a: Any, b: Any) -> bool:
    """True if it is certain that 0 <= a < b."""
    return is_whole(a, b) and _least(a) >= 0 and _least(b - a) > 0


def least_result(function: Callable[..., Any], a: Any, b: Any) -> int | None:
    """The least result of arithmetic that is not a polynomial; None if it is not known."""
    if not is_whole(a, b) or _least(a) < 0 or _least(b) <= 0:
        return None
    return {operator.floordiv: 0, operator.mod: 0, ceiling: min(_least(a), 1)}.get(function)


def _exact(a: Size, b: Any) -> Any:
    """The quotient of a polynomial and a single term that is never 0; None if the division leaves a remainder."""
    divisor = a._terms_of(b)
    if len(divisor) != 1 or (type(b) is Size and _least(b) <= 0):
        return None
    ((monomial, factor),) = divisor.items()
    terms: Terms = {}
    for one, times in a.terms.items():
        rest = list(one)
        for atom in monomial:
            if atom not in rest:
                return None
            rest.remove(atom)
        if factor == 0 or times % factor:
            return None
        terms[tuple(rest)] = times // factor
    return a.symbols.made(terms)


RATIOS, MOST_MONOMIALS = (16, 4), 3  # a linear choice is tried for sizes 16 (or 4) times smaller and larger
LEAST = 2  # the least number that a symbol stands for


class Symbols:
    """The symbols of one plan, the numbers computed from them, and the decisions made by them.

    Args:
        hints: the numbers of the symbols for which the plan is made.
    """

    def __init__(self, hints: Sequence[int]) -> None:
        self.count = len(hints)
        self.values: list[Number] = list(hints)  # numbers of atoms, symbols first
        self.least: list[int | None] = [LEAST] * len(hints)
        self.formulas: list[tuple[Callable[..., Any], Any, Any]] = []  # how atoms other than symbols are computed
        self.conditions: dict[tuple[Relation, Any], tuple[Any, Any, bool]] = {}
        self.choices: list[tuple[Choice, Sequence[int], Any]] = []
        self._atoms: dict[Any, Size] = {}
        self._made: dict[Any, Size] = {}  # each polynomial is one object

    def symbol(self, number: int) -> Any:
        """The size of a symbol."""
        return self.made({(number,): 1})

    def made(self, terms: Terms) -> Any:
        """A polynomial as a size; as a plain number if it is constant."""
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
        """The result of arithmetic that is not a polynomial, as an atom."""
        key = function, key_of(a), key_of(b)
        if any(type(one) is Size and one.symbols is not self for one in (a, b)):
            raise TypeError("sizes of different plans meet: something has been kept that belongs to another plan")
        if key not in self._atoms:
            try:
                result = function(value_of(a), value_of(b))
            except ArithmeticError:  # code that catches it depends on these numbers
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
        """True if a relation holds. The answer becomes a condition, unless it is the same for all sizes."""
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

    def guard(self, size: Size) -> Any:
        """The plain number of a size. From now on the plan holds only for this number."""
        self.decide(SAME, size, size.value)
        return size.value

    def guard_choice(self, function: Choice, numbers: Sequence[int]) -> Any:
        """The choice of a function of the plain numbers of sizes. That it stays the same becomes a condition."""
        outcome, is_linear = function([value_of(number) for number in numbers])
        if not (is_linear and self._is_same_around(function, numbers, outcome)):
            self.choices.append((function, tuple(numbers), outcome))
        return outcome

    def _is_same_around(self, function: Choice, numbers: Sequence[int], outcome: Any) -> bool:
        """True if a linear choice is the same for much smaller and much larger sizes. Then it becomes a condition that
        sizes stay within these bounds.

        Products of atoms are treated as if they were independent of each other.
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
        """The values of atoms for other sizes; None if these would lead to other decisions."""
        found = Values(values)
        try:
            for function, a, b in self.formulas:
                found.atoms.append(function(found.number(a), found.number(b)))
        except ArithmeticError:
            return None
        return found if self._holds(found.number) else None

    def _holds(self, number: Callable[[Any], Any]) -> bool:
        """True if all decisions would be the same."""
        for key, (a, b, told) in self.conditions.items():
            if key[0](number(a), number(b)) != told:
                self.conditions = {key: (a, b, told), **self.conditions}  # tested first: it may soon fail again
                return False
        for function, numbers, outcome in self.choices:
            if function([number(one) for one in numbers])[0] != outcome:
                return False
        return True


class Values:
    """The numbers of sizes for certain values of the symbols.

    Args:
        atoms: values of atoms, symbols first.
    """

    def __init__(self, atoms: Sequence[Number]) -> None:
        self.atoms: list[Number] = list(atoms)
        self._known: dict[int, Number] = {}

    def number(self, size: Any) -> Any:
        """A size as a plain number; other values unchanged."""
        if type(size) is not Size:
            return size
        found = self._known.get(id(size))  # `Symbols` keeps each size as one object
        if found is None:
            found = self._known[id(size)] = size.with_atoms(self.atoms)
        return found
