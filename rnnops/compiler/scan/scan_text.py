"""A step plan as a Python module of numba functions: row programs, and one driver that all threads run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import ClassVar

from rnnops.compiler.scalar_text import Constants
from rnnops.compiler.scan.module_head import module_head
from rnnops.compiler.scan.nests import fuse_nests
from rnnops.compiler.scan.places import Layouts, Place
from rnnops.compiler.scan.products import Contraction, Packing, Product, packing_of
from rnnops.compiler.scan.row_shares import AllRows, LastingRows, RowsPastEnd
from rnnops.compiler.scan.row_text import INDENT, RowText, RowWriter, Sizes
from rnnops.compiler.scan.scan import Scan
from rnnops.compiler.scan.stages import Node, Stage, node_reads
from rnnops.compiler.scan.statements import Access, Statement
from rnnops.compiler.scan.step_plan import SUM_PARTS, StepPlan, rows_of_sum

HEADER_SIZES = ("T", "N", "K", "backwards", "unpacked", "seed", "draw_t0", "active", "first", "going", "columns")


COLUMNS = 48  # what columns are shared out in: a panel of three vectors of 64 bytes
MASKED = 60  # matrices that bits of `unpacked` tell of; the driver packs those whose bit is set, and all others


@dataclass
class ScanText:
    """Generated source, and what its arguments are.

    Args:
        source: of the module; its function `scan(rank, threads, barrier, status, sizes, arrays)` runs on each thread.
        sizes: numbers behind those of `HEADER_SIZES`.
        arrays: names of array parameters, in order.
        packed: matrices in the order of their parameters.
    """

    source: str
    sizes: tuple[int, ...]
    arrays: tuple[str, ...]
    packed: tuple[Packed, ...]


@dataclass(frozen=True)
class Packed:
    """A matrix that products read, packed once a run: `[inner, columns]` of its owner."""

    owner: str
    packing: Packing
    inner: int
    columns: int


@dataclass(frozen=True)
class _Part:
    """What is done with some of the rows."""

    stages: Sequence[Stage]
    places: Mapping[str, Place]
    shares: AllRows

    @cached_property
    def readers(self) -> dict[str, set[int]]:
        """Owner -> ids of the nodes that read it."""
        readers: dict[str, set[int]] = {}
        for node in (node for stage in self.stages for node in stage.nodes):
            for owner in node_reads(node):
                readers.setdefault(owner, set()).add(id(node))
        return readers


@dataclass
class ScanWriter:
    scan: Scan
    plan: StepPlan
    layouts: Layouts
    dtype: str
    width: int | None
    compiled: bool
    constants: Constants = field(default_factory=Constants)
    sizes: Sizes = field(default_factory=Sizes)
    programs: list[RowText] = field(default_factory=list)
    packed: dict[Packed, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    summed: set[str] = field(default_factory=set)  # what the rows before have added to in this tile
    shared: dict[int, int] = field(default_factory=dict)  # columns of products -> number of the thread's share of them
    part: _Part = field(init=False)
    row_writer: ClassVar[type[RowWriter]] = RowWriter
    step_begins: ClassVar[Sequence[str]] = ("step_begins()",)  # without it LLVM loads vectors across steps

    # -- the module ----------------------------------------------------------------------------------------------

    def text(self) -> ScanText:
        body = self._driver()
        arrays = [
            *self.layouts.arrays.values(),
            *(f"w_{dtype}" for dtype in self.layouts.scratch),
            *self.packed.values(),
            *(ROW_ARRAYS if self.plan.lengths else ()),
        ]
        size_names = [*HEADER_SIZES, *(f"c{i}" for i in range(len(self.sizes.values)))]
        names = [f"{INDENT}{name} = sizes[{i}]" for i, name in enumerate(size_names)]
        source = "\n\n\n".join(self.module(arrays, [*names, *body])) + "\n"
        return ScanText(source, tuple(self.sizes.values), tuple(arrays), tuple(self.packed))

    def module(self, arrays: Sequence[str], body: Sequence[str]) -> list[str]:
        """The parts of the module.

        Args:
            arrays: names of array parameters.
            body: lines of the driver.
        """
        given = [
            f"{INDENT}{name} = memory(arrays, {i}, {len(arrays)}, np.{self._dtype_of(name)})"
            for i, name in enumerate(arrays)
        ]
        driver = "\n".join(["@driver", "def scan(rank, threads, barrier, status, sizes, arrays):", *given, *body])
        head = module_head(self.dtype, self.width, self.compiled, self.constants.lines())
        return [head, *map(self._row_program, self.programs), driver]

    def _row_program(self, program: RowText) -> str:
        kinds = ", ".join(f'"{kind}"' for kind in program.kinds(self.plan.types))
        return program.text(f"row_program({kinds})")

    @cached_property
    def _owners(self) -> dict[str, str]:
        """Array parameter -> whose memory it is."""
        return {name: owner for owner, name in self.layouts.arrays.items()}

    def _dtype_of(self, array: str) -> str:
        """The dtype of an array parameter; bools come as bytes."""
        if array in ROW_ARRAYS:
            return "int64"
        if array in self._owners:
            owner = self._owners[array]
            tensor = self.scan.tensors.get(owner.removeprefix("tensor "))
            found = tensor.dtype if owner.startswith("tensor ") and tensor else self.plan.types[owner].dtype
        else:
            found = array.removeprefix("w_") if array.startswith("w_") else self.dtype
        return "uint8" if found == "bool" else found

    # -- the driver ----------------------------------------------------------------------------------------------

    def _driver(self) -> list[str]:
        rows = "N" if self.plan.batch_axes else "1"
        together = self._size(rows_of_sum(self.scan.batch)) if self.scan.batch > SUM_PARTS else "1"
        parts = [_Part(self.plan.stages, self.layouts.places, LastingRows() if self.plan.lengths else AllRows())]
        if self.plan.past_end:  # of each row behind the others, or before them in reverse
            over = _Part(self.plan.past_end, self.layouts.past_end, RowsPastEnd())
            parts = [over, *parts] if self.scan.reverse else [*parts, over]
        stages = [line for part in parts for line in self._stages(part)]
        self.lines = []
        self._line(1, f"n0, n1 = part(rank, threads, {rows}, {together})")
        if self.shared:
            self._line(1, f"m0, m1, share, shares = (0, {rows}, rank, threads) if columns != 0 else (n0, n1, 0, 1)")
        for count, number in self.shared.items():
            self._line(1, f"a{number}, b{number} = part(share, shares, {self._size(count)}, {COLUMNS})")
        self._packing()
        self._line(1, "for tile in range(0, T, K):")
        self._line(2, "steps = min(K, T - tile)")
        self._line(2, "low = T - tile - steps if backwards != 0 else tile")
        self._block(2, parts[0].shares.before_tile())
        return self.lines + stages

    def _stages(self, part: _Part) -> list[str]:
        """All stages of some rows."""
        self.part, result = part, []
        for stage in part.stages:
            result += self._stage(stage)
            if len(part.stages) > 1 or not stage.loop:
                result.append(INDENT * 2 + "wait(barrier, threads)")
        nodes = [node for stage in part.stages for node in stage.nodes]
        self.summed.update(node.target for node in nodes if isinstance(node, Contraction))
        return result

    def _packing(self) -> None:
        for i, (packed, name) in enumerate(self.packed.items()):
            array, how = self.layouts.arrays[packed.owner], packed.packing
            rows, columns = (packed.columns, packed.inner) if how.transposed else (packed.inner, packed.columns)
            source = self._matrix(array, self._size(how.start), self._size(rows), how.stride, how.column, columns)
            test = f" and unpacked >> {i} & 1" if i < MASKED else ""
            self._line(1, f"if rank == {i} % threads{test}:")
            self._line(2, f"{'pack_transposed_into' if how.transposed else 'pack_into'}({source}, {name})")
        if self.packed:
            self._line(1, "wait(barrier, threads)")

    def _stage(self, stage: Stage) -> list[str]:
        self.lines = []
        if not stage.loop:
            for node in stage.nodes:
                self._batched(node)
            return self.lines
        self._line(2, "for step in range(steps):")
        self._block(3, self.step_begins)
        self._line(3, "i = steps - 1 - step if backwards != 0 else step")
        self._line(3, "t = low + i")
        self._block(3, self.part.shares.before_rows())
        for is_row, group in groupby(stage.nodes, key=lambda node: isinstance(node, Statement)):
            nodes = list(group)
            if is_row:
                self._rows([node for node in nodes if isinstance(node, Statement)])
            else:
                self._products([node for node in nodes if isinstance(node, Product)])
        return self.lines

    def _products(self, nodes: Sequence[Product]) -> None:
        """Products of one step; where threads share out columns, each waits for all that it reads."""
        read: set[str] = set()
        written: set[str] = set()
        self._wait_for_columns()
        for node in nodes:
            if node.left in written or node.target in read:
                self._wait_for_columns()
                read, written = set(), set()
            self._product(node)
            read.add(node.left)
            written.add(node.target)
        self._wait_for_columns()

    def _wait_for_columns(self) -> None:
        if self.part.shares.columns:
            self._line(3, "wait(barrier, shares)")

    def _rows(self, statements: Sequence[Statement]) -> None:
        self._block(3, self.part.shares.each_row())
        own, written = {id(s) for s in statements}, {s.target.owner for s in statements}
        outside = {owner for owner in written if not self.part.readers.get(owner, own) <= own}
        stored = outside | written & {*self.plan.slots, *self.plan.accumulators}
        name, plan = f"rows_{len(self.programs)}", self.plan
        writer = self.row_writer(name, plan.types, plan.batch_axes, stored, plan.scalars, self.sizes, self.constants)
        program = writer.write(fuse_nests(statements))
        self.programs.append(program)
        pointed = [self._place(owner) for owner in program.pointers]
        pointers = [f"at({place.array}, {self._address(place, place.rows)})" for place in pointed]
        numbers = {**SCALARS, "n": "n" if self.plan.batch_axes else "0"}
        scalars = [numbers.get(scalar, scalar) for scalar in program.scalars]
        self._line(4, f"{name}({', '.join([*scalars, *pointers, *program.sizes])})")

    def _place(self, owner: str) -> Place:
        return self.part.places[owner]

    def _address(self, place: Place, row: str) -> str:
        """The address of a row of step t."""
        terms = [] if place.start == 0 else [self._size(place.start)]
        if place.step and place.over:
            position = "i" if place.over == "i" else "t" if place.shift == 0 else f"t + {self._size(place.shift)}"
            if place.ring:
                position = f"({position}) % {self._size(place.ring)}" if place.ring > 1 else "0"
            terms.append(f"({position}) * {self._size(place.step)}")
        if place.row and self.plan.batch_axes:
            place_of = row if place.together == 1 else f"{row} // {self._size(place.together)}"
            terms.append(f"{place_of} * {self._size(place.row)}")
        if place.thread:
            terms.append(f"rank * {self._size(place.thread)}")
        return " + ".join(terms) or "0"

    def _base(self, place: Place) -> str:
        """The address of the first step of a tile."""
        terms = [] if place.start == 0 else [self._size(place.start)]
        if place.over == "t":
            position = "low" if place.shift == 0 else f"(low + {self._size(place.shift)})"
            terms.append(f"{position} * {self._size(place.step)}")
        return " + ".join(terms) or "0"

    def _matrix(self, array: str, start: str, rows: str, stride: int, offset: int, columns: int) -> str:
        """A matrix whose first number lies `offset` behind the start, in rows of `stride` numbers."""
        column = offset % stride
        if column != offset:
            start = f"{start} + {self._size(offset - column)}"
        return f"matrix({array}, {start}, {rows}, {self._size(stride)}, {self._size(column)}, {self._size(columns)})"

    def _product(self, node: Product) -> None:
        """The part of a product of one step that is this thread's: its rows, or columns of all rows."""
        each = node.rows // self.scan.batch if self.plan.batch_axes else node.rows
        rows = f"{self.part.shares.count} * {self._size(each)}"
        left, target = self._place(node.left), self._place(node.target)
        start, end = (self._address(place, self.part.shares.firsts[place.rows]) for place in (left, target))
        a = self._matrix(left.array, start, rows, node.row_stride, node.offset, node.inner)
        c = self._matrix(target.array, end, rows, node.columns, 0, node.columns)
        self._multiply(node, 3, a, c, "0", rows)

    def _multiply(self, node: Product, depth: int, a: str, c: str, first: str, last: str) -> None:
        """Some rows of a product, in the columns that are the thread's: the same wherever there are as many."""
        begin, end = "0", self._size(node.columns)
        if self.part.shares.columns:
            number = self.shared.setdefault(node.columns, len(self.shared))
            begin, end = f"a{number}", f"b{number}"
        packed, bias = self._packed_name(node.right), self._bias(node)
        accumulate = "True" if node.accumulate else "False"
        self._line(depth, f"gemm_packed({a}, {packed}, {c}, {accumulate}, {bias}, {first}, {last}, {begin}, {end})")

    def _batched(self, node: Node) -> None:
        if isinstance(node, Product):
            left, target = self._place(node.left), self._place(node.target)
            rows = self.part.shares.in_tile(node.rows, self.scan.batch, self._size)
            a = self._matrix(left.array, self._base(left), rows, node.row_stride, node.offset, node.inner)
            c = self._matrix(target.array, self._base(target), rows, node.columns, 0, node.columns)
            part = f"part(rank, threads, {rows}, 8)"
            self._line(2, f"r0, r1 = {f'(0, {rows}) if columns != 0 else ' * self.part.shares.columns}{part}")
            self._multiply(node, 2, a, c, "r0", "r1")
        elif isinstance(node, Contraction):
            self._contraction(node)

    def _contraction(self, node: Contraction) -> None:
        left, right, target = (self._place(owner) for owner in (node.left, node.right, node.target))
        rows = self.part.shares.in_tile(node.inner, self.scan.batch, self._size)
        a = self._matrix(left.array, self._base(left), rows, node.left_stride, node.left_offset, node.rows)
        b = self._matrix(right.array, self._base(right), rows, node.right_stride, node.right_offset, node.columns)
        c = self._matrix(target.array, "0", self._size(node.rows), node.columns, 0, node.columns)
        m, n = self._size(node.rows), self._size(node.columns)
        adds = "True" if node.target in self.summed else "tile > 0 or going > 0"
        if self.plan.lengths:  # without rows there is nothing to add, but at first zeros must be written
            self._line(2, f"if {rows} > 0 or not ({adds}):")
        depth = 3 if self.plan.lengths else 2
        if node.columns >= node.rows:
            self._line(depth, f"r0, r1 = part(rank, threads, {n}, {COLUMNS})")
            self._line(depth, f"gemm_tn({a}, {b}, {c}, {adds}, 0, {m}, r0, r1)")
        else:
            self._line(depth, f"r0, r1 = part(rank, threads, {m}, 8)")
            self._line(depth, f"gemm_tn({a}, {b}, {c}, {adds}, r0, r1, 0, {n})")

    def _packed_name(self, right: Access) -> str:
        packing = packing_of(right)
        assert packing is not None
        inner, columns = right.layout.shape
        return self.packed.setdefault(Packed(right.owner, packing, inner, columns), f"packed{len(self.packed)}")

    def _bias(self, node: Product) -> str:
        none = f"vector(w_{self.dtype}, 0, 0)"
        if node.bias is None:
            return none
        array, offset = self.layouts.arrays[node.bias.owner], node.bias.layout.offset
        return f"vector({array}, {self._size(offset)}, {self._size(node.columns)})"

    def _size(self, value: int) -> str:
        return self.sizes.name(value)

    def _block(self, depth: int, lines: Sequence[str]) -> None:
        for line in lines:
            self._line(depth, line)

    def _line(self, depth: int, text: str) -> None:
        self.lines.append(INDENT * depth + text)


ROW_ARRAYS = ("order", "ends", "lists")  # the order of rows, their steps in it, and memory for `list_rows`
SCALARS = {
    "t": "np.int32(first + t)",
    "seed": "seed",
    "draw_t": "draw_t0 + t",
    "active": "active",
    "status": "at(status, 0)",
}


def write_scan(
    scan: Scan, plan: StepPlan, layouts: Layouts, dtype: str, width: int | None = None, compiled: bool = True
) -> ScanText:
    """Write a plan as a module.

    Args:
        width: of vectors, in bits; the host's if left out.
        compiled: whether the module's functions are compiled, or plain Python.
    """
    return ScanWriter(scan, plan, layouts, dtype, width, compiled).text()
