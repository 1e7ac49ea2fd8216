"""Addresses: where the elements of a place lie at step `t`, or in a tile of steps, as expressions of sizes."""

from __future__ import annotations

from dataclasses import dataclass

from rnnops.compiler.codegen.pointwise_kernel import Sizes
from rnnops.compiler.ir.expressions import Expr, Literal, Name, total
from rnnops.compiler.schedule.places import Place

T, LOW, RANK, APART = Name("t"), Name("low"), Name("rank"), Name("apart")


@dataclass(frozen=True)
class Addresses:
    """Writes addresses with the sizes of one module.

    Args:
        batched: whether there are rows.
    """

    sizes: Sizes
    batched: bool

    def of_row(self, place: Place, row: Expr) -> Expr:
        """The address of a row of step `t`, which is step `i` of its tile."""
        terms = self._start(place)
        if place.step and place.over:
            position = self._shifted(Name("i") if place.over == "i" else T, place)
            if place.ring:
                position = self._remainder(position, self.sizes.of(place.ring)) if place.ring > 1 else Literal(0)
            terms.append(position * self.sizes.of(place.step))
        if place.row and self.batched:
            sharing = row if place.together == 1 else self._quotient(row, self.sizes.of(place.together))
            terms.append(sharing * self.sizes.of(place.row))
        if place.thread:
            terms.append(RANK * self.sizes.of(place.thread))
        if place.apart:
            terms.append(APART * self.sizes.of(place.apart))
        return total(terms)

    def of_tile(self, place: Place) -> Expr:
        """The address of the first step of a tile."""
        terms = self._start(place)
        if place.over == "t":
            terms.append(self._shifted(LOW, place) * self.sizes.of(place.step))
        return total(terms)

    def _quotient(self, a: Expr, b: Expr) -> Expr:
        return a // b

    def _remainder(self, a: Expr, b: Expr) -> Expr:
        return a % b

    def _start(self, place: Place) -> list[Expr]:
        return [self.sizes.of(place.start)] if place.start else []

    def _shifted(self, step: Expr, place: Place) -> Expr:
        return step + self.sizes.of(place.shift) if place.shift else step
