"""Nodes of a step: statements, products, and the layouts of the memory that they read and write.

**Layouts**: where the elements of a blob lie in the memory of the blob that owns it. Some ops move elements without
computing (Split, Transpose, Concat, Pad, ...). Their reference is run on an array of element numbers, so no op needs a
second definition. If the numbers of the result are an affine function of the position, it is a view. Otherwise it is a
copy.

Limits: the numbers of a blob are held while a plan is made, eight bytes an element.

**Statements**: the effect of one op on single elements, `target[i, j, ...] = f(operands[i, j, ...])`, folded or not.
Every op of a step becomes statements or views. Later passes turn large matrix products into nodes of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from rnnops.net.loop_forms import Reduction, normal_text, places_of
from rnnops.net.schema import Call
from rnnops.sizes import is_symbolic
from rnnops.types import Array, Shape, is_signed
from rnnops.util import cached_property


@dataclass(frozen=True)
class Layout:
    """Element (i, j, ...) is number `offset + i * strides[0] + j * strides[1] + ...` of the owner's elements.

    Axes of size 1 have stride 0, so that equal layouts compare equal.
    """

    offset: int
    shape: Shape
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        if 1 in self.shape:
            still = tuple(0 if size == 1 else stride for size, stride in zip(self.shape, self.strides, strict=True))
            object.__setattr__(self, "strides", still)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @cached_property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest number."""
        moves = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        return self.offset + sum([m for m in moves if m < 0]), self.offset + sum([m for m in moves if m > 0])

    def numbers(self) -> Array:
        """The owner's element numbers, in the layout's shape."""
        total = np.full(self.shape, self.offset, np.int64)
        for axis, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = np.arange(size, dtype=np.int64) * stride
            total += steps.reshape(-1, *(1,) * (len(self.shape) - axis - 1))
        return total

    def numbers_at(self, positions: Array) -> Array:
        """The owner's element numbers at these positions, counted row by row."""
        if self.strides == dense(self.shape).strides:  # most layouts are; the divisions below take long
            return positions + self.offset
        total = np.full(positions.shape, self.offset, np.int64)
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            positions, place = np.divmod(positions, size)
            total += place * stride
        return total

    def broadcast_to(self, shape: Shape) -> Layout:
        """The layout over a larger shape. Nothing moves along axes that are missing here, or have size 1."""
        missing = len(shape) - len(self.shape)
        return Layout(self.offset, shape, (*(0,) * missing, *self.strides))

    def with_axes(self, axes: tuple[int | None, ...], shape: Shape) -> Layout:
        """The layout over other axes: axis `axes[i]` becomes axis i. None is an axis along which nothing moves."""
        strides = tuple(0 if axis is None else self.strides[axis] for axis in axes)
        return Layout(self.offset, shape, strides)


def dense(shape: Shape) -> Layout:
    """Row-major order without gaps."""
    return _dense(shape) if is_symbolic(shape) else _known_dense(shape)


@lru_cache(maxsize=1024)
def _known_dense(shape: Shape) -> Layout:
    return _dense(shape)


def _dense(shape: Shape) -> Layout:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return Layout(0, shape, tuple(reversed(strides)))


def affine(numbers: Array) -> Layout | None:
    """The layout with these numbers; None if they are not an affine function of the position."""
    if numbers.size == 0:
        return None
    first = numbers[(0,) * numbers.ndim]
    strides = []
    for axis, size in enumerate(numbers.shape):
        second = tuple(1 if other == axis else 0 for other in range(numbers.ndim))
        strides.append(int(numbers[second] - first) if size > 1 else 0)
    layout = Layout(int(first), numbers.shape, tuple(strides))
    return layout if np.array_equal(layout.numbers(), numbers) else None


def split_axes(numbers: Array) -> Shape | None:
    """The shape in which these numbers may have constant strides: an axis is split where its steps first differ.

    None if an axis cannot be split evenly. A reshaped view can: `[N, 4, 64]`, read as `[N, 256]`.
    """
    shape: list[int] = []
    for axis in range(numbers.ndim):
        line = numbers[tuple(slice(None) if other == axis else 0 for other in range(numbers.ndim))]
        parts: list[int] = []
        while True:
            steps = np.diff(line)
            changes = np.flatnonzero(steps != steps[0]) if steps.size else steps
            if not changes.size:
                shape += [line.size, *parts]
                break
            part = int(changes[0]) + 1
            if part == 1 or line.size % part:
                return None
            parts.insert(0, part)
            line = line[::part]
    return tuple(shape)


def box(mask: Array) -> tuple[slice, ...] | None:
    """The slices, with steps, that hold all true elements and no others; None if there are no such slices."""
    if not mask.any():
        return None
    slices = []
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        found = np.flatnonzero(mask.any(axis=others))
        step = int(found[1] - found[0]) if found.size > 1 else 1
        slices.append(slice(int(found[0]), int(found[-1]) + 1, step))
    region = tuple(slices)
    return region if mask[region].all() and mask[region].size == mask.sum() else None


Number = bool | int | float


@dataclass(frozen=True)
class Access:
    """Elements of a blob that has memory of its own.

    Args:
        owner: that blob.
        layout: over the axes of the statement that reads or writes it.
        index: if given, its element times `index_step` is added to the element number. A negative index counts from
            the end.
        index_size: indices must lie in `[-index_size, index_size)`; 0 if they need no check and none is negative.
    """

    owner: str
    layout: Layout
    index: Access | None = None
    index_step: int = 0
    index_size: int = 0

    def renamed(self, names: Mapping[str, str]) -> Access:
        """The same with other owners, also in its index."""
        index = None if self.index is None else self.index.renamed(names)
        return replace(self, owner=names.get(self.owner, self.owner), index=index)


@dataclass(frozen=True)
class Statement:
    """One loop nest over `extents`.

    Args:
        blob: the name of the result, for people.
        form: how the value is computed: `apply` (the call's Pointwise form), `element` or `finish` (of its Reduction
            form), a key of `FORMS`, or a word of pointwise kernels: `sum`, `uniform`, `dropped`, `labels`.
        call: the op that the statement comes from; None for copies that passes make.
        fold: how values that meet in one element of the target are joined: a key of `FOLDS`, or the `combine` of the
            call's Reduction form; `""` if none meet.
        start: the number that a fold starts from; None if it goes on from the target's content.
        dtype: of the value computed.
        rounding: as in `StepProduct`.
        row_axis: the axis of `extents` that runs over the batch.
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
    row_axis: int | None = field(default=None, compare=False)
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

    def reading(self, places: Mapping[str, str]) -> Statement:
        """The same with other owners of operands: old owner -> new owner."""
        moved = (replace(o, owner=places.get(o.owner, o.owner)) if isinstance(o, Access) else o for o in self.operands)
        return replace(self, operands=tuple(moved))

    def mapped(self, change: Callable[[Access], Access], **others: Any) -> Statement:
        """The same with its target and all operands in memory changed, and other fields as given."""
        operands = tuple(change(o) if isinstance(o, Access) else o for o in self.operands)
        return replace(self, target=change(self.target), operands=operands, **others)

    def writing(self, owner: str) -> Statement:
        """The same with another target of the same layout."""
        return self if owner == self.target.owner else replace(self, target=replace(self.target, owner=owner))

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
        """True if a run checks a number here: an index or a label for its range, or the exponent of an integer."""
        accesses = [self.target, *(operand for operand in self.operands if isinstance(operand, Access))]
        indexed = any(access.index is not None and access.index_size > 0 for access in accesses)
        return indexed or self.form == "labels" or self.is_integer_power()

    def is_integer_power(self) -> bool:
        """True if it is a power of signed integers, whose exponent may not be negative."""
        is_power = self.form == "apply" and self.call is not None and self.call.op.type == "Pow"
        return is_power and is_signed(self.dtype)

    def moved(self, order: tuple[int, ...]) -> Statement:
        """The same statement with its axes in another order."""
        extents = tuple(self.extents[axis] for axis in order)
        return self.mapped(lambda access: moved_access(access, order, extents), extents=extents)

    def __str__(self) -> str:
        operands = ", ".join(o.owner if isinstance(o, Access) else str(o) for o in self.operands)
        name = self.call.op.type if self.form == "apply" and self.call else self.form
        sign = f" {self.fold}=" if self.fold else " ="
        name = f"{self.rounding} {name}" if self.rounding else name
        return f"{self.blob}{list(self.extents)}{sign} {name}({operands})"


FORMS = {"copy": "{0}", "product": "{0} * {1}", "square": "{0} * {0}", "quotient": "{0} / {1}"}
FOLDS = {  # combinations that kernels have a step of their own for
    "add": "{a} + {b}",
    "max": "maximum({a}, {b})",
    "min": "minimum({a}, {b})",
    "or": "{a} or {b}",
    "and": "{a} and {b}",
}
WORDS = {
    normal_text(text.format(a=f"{{{a}}}", b=f"{{{b}}}")): word for word, text in FOLDS.items() for a, b in ("ab", "ba")
}
IDEMPOTENT = ("max", "min", "or", "and")  # folding x with x gives x


def fold_word(combine: str) -> str:
    """The word of `FOLDS` for a combination, its places in either order; empty for any other."""
    return WORDS.get(normal_text(combine), "")


def operands_of(form: Reduction) -> list[int]:
    """The inputs of an op that its reduction's `element` reads, in order."""
    return sorted(int(place) for place in places_of(form.element) if place.isdigit())


def moved_access(access: Access, order: tuple[int, ...], extents: Shape) -> Access:
    index = None if access.index is None else moved_access(access.index, order, extents)
    return replace(access, layout=access.layout.with_axes(order, extents), index=index)


@dataclass(frozen=True)
class StepProduct:
    """`target[rows, columns] (+)= left[rows, inner] @ right[inner, columns] (+ bias)`, once a step.

    Args:
        rows, inner, columns: sizes in one step.
        row_stride, offset: of `left` in its owner.
        right: over (inner, columns).
        accumulate: whether the product is added to the target's content.
        bias: `[columns]`, added by the first product of a sum.
        rounding: the dtype that operands are rounded to first, or the whole numbers that `right` is packed as
            (`INT8`, `BYTES`); empty for neither.
    """

    blob: str
    left: str
    rows: int
    inner: int
    columns: int
    offset: int
    row_stride: int
    right: Access
    target: str
    accumulate: bool = False
    bias: Access | None = None
    rounding: str = ""

    @property
    def size(self) -> int:
        """The count of numbers that it writes."""
        return self.rows * self.columns

    def reads(self) -> list[str]:
        """Owners that vary from step to step."""
        return [self.left, *([self.target] if self.accumulate else [])]

    def __str__(self) -> str:
        sign = "+=" if self.accumulate else "="
        bias = f" + {self.bias.owner}" if self.bias else ""
        sizes = f"[{self.rows}, {self.inner}] @ [{self.inner}, {self.columns}]"
        return f"{self.target} {sign} {self.left} @ {self.right.owner}{bias}: {sizes}{_rounded(self.rounding)}"


@dataclass(frozen=True)
class Contraction:
    """`target[rows, columns] += left[inner, rows]^T @ right[inner, columns]`, summed over all steps.

    Args:
        target_offset, target_stride: of the result in its owner. Several products may write parts of one owner.
    """

    blob: str
    left: str
    right: str
    inner: int
    rows: int
    columns: int
    left_offset: int
    left_stride: int
    right_offset: int
    right_stride: int
    target: str
    target_offset: int = 0
    target_stride: int = 0
    rounding: str = ""

    def reads(self) -> list[str]:
        return [self.left, self.right]

    def turned(self, target: str, size: int) -> Contraction:
        """The same product, written into the transpose of its target, whose rows have `size` numbers."""
        row, column = divmod(self.target_offset, self.target_stride)
        return replace(
            self,
            left=self.right,
            right=self.left,
            rows=self.columns,
            columns=self.rows,
            left_offset=self.right_offset,
            left_stride=self.right_stride,
            right_offset=self.left_offset,
            right_stride=self.left_stride,
            target=target,
            target_offset=column * size + row,
            target_stride=size,
        )

    def placed(self, target: str, row: int, column: int, size: int) -> Contraction:
        """The same product, written into another target at a row and a column. Rows of that target have `size`
        numbers."""
        own_row, own_column = divmod(self.target_offset, self.target_stride)
        offset = (row + own_row) * size + column + own_column
        return replace(self, target=target, target_offset=offset, target_stride=size)

    def __str__(self) -> str:
        sizes = f"[{self.inner}, {self.rows}]^T @ [{self.inner}, {self.columns}]"
        row, column = divmod(self.target_offset, self.target_stride) if self.target_offset else (0, 0)
        part = f"[{row}:, {column}:]" if self.target_offset else ""
        return f"{self.target}{part} += {self.left}^T @ {self.right}: {sizes}{_rounded(self.rounding)}"


def _rounded(rounding: str) -> str:
    return f" of {rounding}" if rounding else ""


Node = Statement | StepProduct | Contraction


@dataclass(frozen=True)
class Stage:
    """Nodes between two barriers.

    Args:
        nodes: in an order in which they can run.
        loop: whether they run step by step (else once for all steps of a tile).
        cyclic: whether a step needs the one before.
    """

    nodes: tuple[Node, ...]
    loop: bool
    cyclic: bool

    @property
    def head(self) -> str:
        """A heading for people that tells how its nodes run."""
        return ("loop over steps" if self.cyclic else "for each step") if self.loop else "all steps of a tile at once"

    def __str__(self) -> str:
        return "\n    ".join([self.head, *map(str, self.nodes)])


def node_reads(node: Node) -> list[str]:
    """The owners that a node reads, with its target if the node adds to it."""
    if isinstance(node, Statement):
        adds = [node.target.owner] if node.fold and node.start is None else []
        index = [node.target.index.owner] if node.target.index else []
        return [*(access.owner for access in node.reads()), *adds, *index]
    return node.reads()


def read_counts(nodes: Iterable[Node]) -> Counter[str]:
    """How often nodes read each owner."""
    return Counter(owner for node in nodes for owner in node_reads(node))


def node_writes(node: Node) -> str:
    return node.target.owner if isinstance(node, Statement) else node.target
