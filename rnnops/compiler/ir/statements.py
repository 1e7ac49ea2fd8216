"""Statements: what one op does to single elements, `target[i, j, ...] = f(operands[i, j, ...])`, folded or not.

Every op of a step but large matrix products becomes statements; a blob whose elements are another's is a view of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rnnops.compiler.ir.layouts import Layout
from rnnops.loops import Reduction
from rnnops.scalar_texts import normal_text, places_of
from rnnops.schema import Call
from rnnops.types import Shape, is_signed

Number = bool | int | float


@dataclass(frozen=True)
class Access:
    """Elements of a blob that has memory of its own.

    Args:
        owner: that blob.
        layout: over the axes of the statement that reads or writes it.
        index: where given, its element (an integer, counted from the end where negative) times `index_step` is added
            to the element number.
        index_size: indices must lie in `[-index_size, index_size)`; 0 where they are known to lie in `[0, ...)`.
    """

    owner: str
    layout: Layout
    index: Access | None = None
    index_step: int = 0
    index_size: int = 0


@dataclass(frozen=True)
class Statement:
    """One loop nest over `extents`.

    Args:
        blob: what is computed, for people.
        form: `apply` (the call's Pointwise form), `element` and `finish` (those of its Reduction form), one of `FORMS`,
            or what pointwise kernels have words for: `sum`, `uniform`, `dropped`, `labels`.
        call: the op it comes from, None for copies.
        fold: `""`, or how the values that meet in one element of the target are joined: one of `FOLDS`, or the
            `combine` of the call's Reduction form.
        start: what a fold starts from; None where it goes on from what is there.
        dtype: of the value computed.
        rounding: as of a `Product`.
    """

    blob: str
    extents: Shape
    target: Access
    operands: tuple[Access | Number, ...]
    form: str
    call: Call | None
    dtype: str
    fold: str = ""
    start: Number | None = None
    row_axis: int | None = field(default=None, compare=False)  # the axis of `extents` that runs over the batch
    rounding: str = ""

    def accesses(self) -> Iterator[Access]:
        """All memory it touches, the target first, indices included."""
        for access in (self.target, *self.reads()):
            yield access
            if access is self.target and access.index is not None:
                yield access.index

    def reads(self) -> Iterator[Access]:
        """The operands in memory, indices included."""
        for operand in self.operands:
            if isinstance(operand, Access):
                yield operand
                if operand.index is not None:
                    yield operand.index

    def made_by(self) -> Call:
        """The op it comes from. Raises ValueError for a copy that comes from none."""
        if self.call is None:
            raise ValueError(f"{self} comes from no op")
        return self.call

    def folded_axes(self) -> tuple[int, ...]:
        """Axes along which several values meet in one element of the target."""
        if not self.fold:
            return ()
        layouts = [self.target.layout, *([self.target.index.layout] if self.target.index else [])]
        still = [all(layout.strides[axis] == 0 for layout in layouts) for axis in range(len(self.extents))]
        return tuple(axis for axis, size in enumerate(self.extents) if size > 1 and still[axis])

    def may_fail(self) -> bool:
        """Whether a run says so where an index or a label is out of range, or an integer's power is below 0."""
        accesses = [self.target, *(operand for operand in self.operands if isinstance(operand, Access))]
        indexed = any(access.index is not None and access.index_size > 0 for access in accesses)
        return indexed or self.form == "labels" or self.is_integer_power()

    def is_integer_power(self) -> bool:
        """Whether it is a power of signed integers, which there is none of below 0."""
        is_power = self.form == "apply" and self.call is not None and self.call.op.type == "Pow"
        return is_power and is_signed(self.dtype)

    def moved(self, order: tuple[int, ...]) -> Statement:
        """The same statement with its axes in another order."""
        extents = tuple(self.extents[axis] for axis in order)
        return replace(
            self,
            extents=extents,
            target=moved_access(self.target, order, extents),
            operands=tuple(moved_access(o, order, extents) if isinstance(o, Access) else o for o in self.operands),
        )

    def __str__(self) -> str:
        operands = ", ".join(o.owner if isinstance(o, Access) else str(o) for o in self.operands)
        name = self.call.op.type if self.form == "apply" and self.call else self.form
        sign = f" {self.fold}=" if self.fold else " ="
        name = f"{self.rounding} {name}" if self.rounding else name
        return f"{self.blob}{list(self.extents)}{sign} {name}({operands})"


FORMS = {"copy": "{0}", "product": "{0} * {1}", "square": "{0} * {0}", "quotient": "{0} / {1}"}
FOLDS = {  # the combinations that kernels have steps of their own for
    "add": "{a} + {b}",
    "max": "maximum({a}, {b})",
    "min": "minimum({a}, {b})",
    "or": "{a} or {b}",
    "and": "{a} and {b}",
}
WORDS = {
    normal_text(text.format(a=f"{{{a}}}", b=f"{{{b}}}")): word for word, text in FOLDS.items() for a, b in ("ab", "ba")
}
IDEMPOTENT = ("max", "min", "or", "and")  # which make x of any number of x


def fold_word(combine: str) -> str:
    """The word of `FOLDS` for a combination, its places in either order; empty for any other."""
    return WORDS.get(normal_text(combine), "")


def operands_of(form: Reduction) -> list[int]:
    """The inputs whose elements a reduction reads, which are the operands of an `element`."""
    return sorted(int(place) for place in places_of(form.element) if place.isdigit())


def moved_access(access: Access, order: tuple[int, ...], extents: Shape) -> Access:
    index = None if access.index is None else moved_access(access.index, order, extents)
    return replace(access, layout=access.layout.with_axes(order, extents), index=index)
