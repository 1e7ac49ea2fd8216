"""A loop over steps as blocks of a CUDA device share it out."""

from __future__ import annotations

from dataclasses import dataclass

from rnnops.compiler.ir.nodes import Product
from rnnops.compiler.targets.cuda.cyclic_distribution import BY_ROWS, TOTAL, Region
from rnnops.compiler.targets.cuda.place_barriers import COPIES
from rnnops.compiler.targets.cuda.split_products import Sharing


@dataclass(frozen=True)
class Loop:
    """A loop over steps as blocks share it out.

    Args:
        regions: of a step, in order.
        waits: numbers of the regions before which all blocks wait.
        persistent: whether one launch runs all steps of a tile.
        apart: whether its steps do not depend on each other, and run at once.
        groups: of blocks, each with rows of its own.
        members: blocks of a group.
        parts: blocks that share a row where work goes by rows (`share_rows.py`).
        over: what blocks do instead at a step when all rows of their group are over; empty where that is all of it.
        lengths: the reference by which rows end, of `over`.
        weights: of each product, where its columns or rows begin in shared memory, counted in weights.
        staged: where rows of a product's left side begin there, `depth` numbers of each at a time.
        sums: where lanes leave their sums.
        numbers: that shared memory holds in all.
        copies: of partial sums of products, used in turn.
        partials: of each product whose inner axis members share out, where its partial sums begin, and where all end.
        scratch: where the first of them begins in scratch of the dtype of products.
    """

    regions: tuple[Region, ...]
    waits: frozenset[int]
    persistent: bool
    groups: int
    members: int
    apart: bool = False
    weights: tuple[int, ...] = ()
    staged: int = 0
    depth: int = 1
    sums: int = 0
    numbers: int = 0
    copies: int = COPIES
    partials: tuple[int, ...] = ()
    scratch: int = 0
    parts: int = 1
    over: tuple[Region, ...] = ()
    lengths: str = ""

    def sharing(self, rows: int) -> Sharing:
        """Its groups and members, for so many rows of the batch."""
        return Sharing(rows, self.groups, self.members)

    @property
    def blocks(self) -> int:
        """Of a launch."""
        return self.groups * self.members

    @property
    def period(self) -> int:
        """The most features that members share out."""
        return max((region.period for region in self.regions), default=BY_ROWS)

    def lines(self, itemsize: int) -> list[str]:
        """What a plan says of it.

        Args:
            itemsize: bytes of a number.
        """
        if not self.persistent:
            return ["weights do not fit on chip: step by step, products and what is between them a launch each"]
        waits = f"{len(self.waits)} wait{'s' if len(self.waits) != 1 else ''} a step"
        members = f"{self.members} block{'s' if self.members != 1 else ''}"
        groups = f"{self.groups} group{'s' if self.groups != 1 else ''} of {members}"
        groups += f", {self.parts} blocks a row" if self.parts > 1 else ""
        sums = f", {self.partials[-1] * itemsize} bytes of partial sums" if self.partials else ""
        weights = f"{self.staged * itemsize} bytes of weights on chip in each block"
        over = ["groups whose rows are all over leave products and waits"] if self.over else []
        return [f"one launch a tile: {groups}, {waits}, {weights}{sums}", *over]

    @property
    def products(self) -> list[Product]:
        """Its products, in order."""
        return [region.product for region in self.regions if region.product and region.part != TOTAL]
