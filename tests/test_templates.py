"""Templates: values with numbers in place of sizes, filled in where they are read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest

from rnnops.sizes import Symbols, Values, lazy_text
from rnnops.templates import Fresh, NoTemplateError, Own, Shared, Template, filled_now
from rnnops.util import cached_property


class Table(Fresh):
    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def fresh(self) -> Table:
        return Table()


class Tools(Shared):
    def __init__(self) -> None:
        self.function = lambda: self


class Pair(NamedTuple):
    name: str
    size: int


@dataclass(frozen=True)
class Leaf:
    name: str
    shape: tuple[int, ...] = (1,)
    notes: dict[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def elements(self) -> int:
        return self.shape[0] * 2


@dataclass(eq=False)
class Tree(Own):
    leaves: list[Leaf]
    by_name: dict[str, Leaf]
    tools: Tools = field(default_factory=Tools)
    table: Table = field(default_factory=Table)


def template() -> tuple[Template[Tree], Tree]:
    symbols = Symbols([6])
    T = symbols.symbol(0)
    leaves = [Leaf("steps", (T, 3)), Leaf("plain", (4,)), Leaf(lazy_text("{} of them", T))]
    tree = Tree(leaves, {leaf.name: leaf for leaf in leaves[:2]})
    return Template(tree, symbols), tree


def test_numbers_are_filled_in_and_what_is_one_object_stays_one() -> None:
    made, source = template()
    for T in (6, 9):
        tree = made.at([T])
        assert tree is not None
        assert tree is not source
        steps, plain, them = tree.leaves
        assert (steps.shape, steps.elements, them.name) == ((T, 3), 2 * T, f"{T} of them")
        assert steps is tree.by_name["steps"]
        assert plain is source.leaves[1]
        assert steps == Leaf("steps", (T, 3))
        assert replace(steps, name="other").shape == (T, 3)
        assert isinstance(steps, Leaf)
        assert tree.tools is source.tools


def test_what_grows_later_is_of_one_plan() -> None:
    made, source = template()
    one, other = made.at([6]), made.at([7])
    assert one is not None
    assert other is not None
    one.leaves[0].notes["seen"] = 6
    one.table.known["seen"] = 6
    one.leaves.append(Leaf("more"))
    assert not other.leaves[0].notes
    assert not source.leaves[0].notes
    assert not other.table.known
    assert not source.table.known
    assert len(other.leaves) == len(source.leaves) == 3


def test_own_objects_are_not_shared_even_without_sizes() -> None:
    symbols = Symbols([6])
    made = Template((Tree([Leaf("plain")], {}), symbols.symbol(0)), symbols)
    one, other = made.at([6]), made.at([7])
    assert one is not None
    assert other is not None
    assert one[0] is not other[0]
    assert one[0].leaves[0] is other[0].leaves[0]


def test_named_tuples_stay_named_tuples() -> None:
    symbols = Symbols([6])
    pairs = [Pair("sized", symbols.symbol(0)), Pair("plain", 2)]
    for filled in (Template(pairs, symbols).at([8]), filled_now(pairs, Values([8]))):
        assert filled is not None
        assert filled[0] == Pair("sized", 8)
        assert filled[1] is pairs[1]
        assert isinstance(filled[0], Pair)


def test_what_cannot_be_looked_into_is_no_template() -> None:
    size = 3
    for value in (lambda: size, iter([]), {Leaf("key"): 1}, [1].append):
        with pytest.raises(NoTemplateError):
            Template([value], Symbols([2]))


def test_small_values_are_copied_at_once() -> None:
    T = Symbols([6]).symbol(0)
    leaf, values = Leaf("plain"), Values([8])
    assert filled_now((T, [leaf, 2 * T], {"a": Leaf("b", (T,))}), values) == (8, [leaf, 16], {"a": Leaf("b", (8,))})
    assert filled_now(leaf, values) is leaf
