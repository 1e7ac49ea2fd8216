"""Plans for new sizes: made once for a structure, with symbols for sizes, and filled in for each T and N.

A structure is what feeds agree in: their dtypes and ranks, which sizes are 0, 1 or the same, and all sizes of inputs
that are bound or declared with a shape. The first plan of a structure is made only for its sizes, as most runs see no
others. The second is made with symbols (`rnnops/symbolic/sizes.py`) for the sizes that have changed. It serves every
size that leads to the same decisions: tiles, threads, what is kept, the order of ops. For others another is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan, prepared
from rnnops.symbolic.fill import Template
from rnnops.symbolic.sizes import Symbols
from rnnops.types import Type

Plan = TypeVar("Plan", bound=ForwardPlan | TrainingPlan)
Types = Mapping[str, Type]
Make = Callable[[Types], Plan]
STRUCTURES, TEMPLATES = 32, 16  # that are kept of one run, and of one structure; a template takes a few megabytes
IDLE = 8  # templates of a structure that are made at once before one has served other sizes than its own


class PlanTemplates(Generic[Plan]):
    """Plans of one run by structure.

    There is no lock that a forked child could find taken: tables are replaced and never changed.
    """

    def __init__(self) -> None:
        self._structures: dict[Hashable, _Structure[Plan]] = {}

    def plan(self, key: Hashable, types: Types, known: Collection[str], make: Make[Plan]) -> Plan:
        """A plan for feeds of certain types.

        Args:
            key: what else plans depend on.
            known: inputs whose sizes are always these.
            make: makes a plan; sizes may be symbols.
        """
        named, sizes = structure_of(types, known)
        found = self._structures.get((key, named))
        if found is None:
            structures = dict(self._structures)
            if len(structures) >= STRUCTURES:
                del structures[next(iter(structures))]
            structures[key, named] = _Structure(sizes)
            self._structures = structures
            return make(types)
        return found.plan(types, named, sizes, make) if sizes else make(types)

    def templates(self) -> int:
        """How many templates there are."""
        return sum(len(structure.templates) for structure in self._structures.values())


@dataclass(frozen=True)
class _Made(Generic[Plan]):
    """A template, and the sizes that it is for; None where any will do."""

    sizes: tuple[int | None, ...]
    template: Template[Plan]

    def at(self, sizes: tuple[int, ...]) -> Plan | None:
        """The plan for certain sizes, if it is of this template."""
        if any(own is not None and own != size for own, size in zip(self.sizes, sizes, strict=True)):
            return None
        return self.template.at([size for own, size in zip(self.sizes, sizes, strict=True) if own is None])


class _Structure(Generic[Plan]):
    """The templates of one structure, the one that served last first.

    Args:
        sizes: of the first plan.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.first = sizes
        self.templates: tuple[_Made[Plan], ...] = ()
        self.changed: frozenset[int] = frozenset()  # numbers of the sizes that have
        self.unused = 0  # templates made since one was last used for other sizes than its own
        self.waits = 0  # plans to make only for their sizes before a template is tried again

    def plan(self, types: Types, named: Structure, sizes: tuple[int, ...], make: Make[Plan]) -> Plan:
        """A plan for sizes, from a template where one fits."""
        for made in self.templates:
            plan = made.at(sizes)
            if plan is not None:
                others = tuple(other for other in self.templates if other is not made)
                self.templates, self.unused, self.waits = (made, *others), 0, 0
                return plan
        self.changed |= {i for i, size in enumerate(sizes) if size != self.first[i]}
        self.waits -= 1
        new = self._new(types, named, sizes, make) if self.waits < 0 else None
        plan = None if new is None else new.at(sizes)
        if new is None or plan is None:
            return make(types)
        self.templates = (new, *self.templates[: TEMPLATES - 1])
        return plan

    def _new(self, types: Types, named: Structure, sizes: tuple[int, ...], make: Make[Plan]) -> _Made[Plan] | None:
        """A template for the sizes that have changed; None where a plan cannot be made with symbols."""
        self.unused += 1
        self.waits = max(0, self.unused - IDLE)  # where each size needs a template of its own, ever fewer are made
        numbers = sorted(self.changed)
        symbols, known = Symbols([sizes[i] for i in numbers]), list[Any](sizes)
        for number, i in enumerate(numbers):
            known[i] = symbols.symbol(number)
        kinds = {
            name: Type(dtype, tuple(known[axis[0]] if isinstance(axis, tuple) else axis for axis in axes))
            for name, dtype, axes in named
        }
        free = tuple(None if i in self.changed else size for i, size in enumerate(sizes))
        try:
            return _Made(free, Template(prepared(make(kinds)), symbols))
        except Exception:  # of whatever cannot be done with symbols, only a plan for these sizes says what is wrong
            self.waits = 2**self.unused  # what has no template at one size (parts under a budget) hardly has at another
            return None


Axes = tuple[int | tuple[int], ...]  # sizes, and numbers of symbols
Structure = tuple[tuple[str, str, Axes], ...]  # name, dtype, and axes


def structure_of(types: Types, known: Collection[str]) -> tuple[Structure, tuple[int, ...]]:
    """The structure of feeds, and what its symbols stand for.

    Args:
        known: inputs whose sizes belong to the structure.
    """
    symbols: dict[int, int] = {}
    inputs = []
    for name, kind in types.items():
        axes: Axes = kind.shape
        if name not in known:
            axes = tuple([(symbols.setdefault(size, len(symbols)),) if size > 1 else size for size in kind.shape])
        inputs.append((name, kind.dtype, axes))
    return tuple(inputs), tuple(symbols)
