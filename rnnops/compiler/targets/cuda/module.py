"""A step plan as kernel IR for a CUDA device: kernels for its loops over steps, and a driver that launches them.

For each tile of steps the driver launches the stages of the plan. Products over a whole tile are launched by
themselves. Each loop is one kernel that runs all its steps; `share_blocks.py` chooses the shares of its blocks. If
weights do not fit in shared memory, the loop goes step by step, with kernels for products and for the elementwise work
between them.

The last section (`cuda_text`) writes kernel IR of a device as a module of numba.cuda.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from types import MappingProxyType

import numpy as np

from rnnops.compiler.codegen.places import SCALARS, Addresses, Layouts, Place, array_parameters
from rnnops.compiler.codegen.pointwise_kernel import ONE, ZERO, PointwiseKernel, SizeArguments
from rnnops.compiler.codegen.scan_module import BACKWARDS, HEADER_SIZES, LOW, STEP, STEPS, TILE, K, N, ScanModule, T
from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.lower.expressions import Constants, Expr, Literal, Load, Name, choice, least, names_in, share_of
from rnnops.compiler.lower.scan import Scan, StepPlan, rows_of_sum
from rnnops.compiler.lower.statements import Contraction, Node, StepProduct, node_reads
from rnnops.compiler.schedule.loop_nests import fuse_nests
from rnnops.compiler.targets.cuda import kernel_parts, lane_nests
from rnnops.compiler.targets.cuda.loop import BY_ROWS, PARTIAL, TOTAL, Loop, LoopRegion, feature_nests, numbers_of
from rnnops.compiler.targets.cuda.share_blocks import WORDS_OF_FRAGMENTS, fragments_of, rounding_of_plan, warps_of
from rnnops.compiler.targets.cuda.share_rows import BEGIN, END, GROUP_BEGIN, first_wait, steps_of_group, two_kinds
from rnnops.kernels.cuda import lane_functions, step_product, step_product_tensor
from rnnops.kernels.cuda.facade import choose
from rnnops.kernels.cuda.lane_functions import WORDS
from rnnops.kernels.cuda.step_product_tensor import sums_name
from rnnops.kernels.scalar_functions import import_lines

RANK, BLOCKS, LANE, LANES = map(Name, ("rank", "blocks", "lane", "lanes"))
GROUP, MEMBER, LINE, TURN = map(Name, ("group", "member", "line", "turn"))
P0, P1, M0, M1, N0, N1, P, U, ROW, E = map(Name, ("p0", "p1", "m0", "m1", "n0", "n1", "p", "u", "n", "e"))
TEAM_NAMES = {"team", "teams", "mate", "mates"}
DRIVER_PARAMETERS = ir.Parameter("on"), ir.Parameter("numbers")
STEP_OF_TILE = kernel_parts.step_of_tile(STEP)
NOWHERE: Mapping[str, ir.Argument] = MappingProxyType({})


@dataclass
class CudaScanWriter:
    """Writes the module of a scan for a CUDA device.

    Args:
        loops: number of a stage that is a loop -> the shares of its blocks.
        weights: the dtype in which shared memory keeps weights.
        shared: period of features -> number of the lane's share of them.
        part_sizes: size of an axis that parts of a row share out -> its number.
    """

    scan: Scan
    plan: StepPlan
    layouts: Layouts
    dtype: str
    loops: Mapping[int, Loop]
    weights: str
    constants: Constants = field(default_factory=Constants)
    sizes: SizeArguments = field(default_factory=SizeArguments)
    programs: list[PointwiseKernel] = field(default_factory=list)
    shared: dict[int, int] = field(default_factory=dict)
    part_sizes: dict[int, int] = field(default_factory=dict)
    kernels: list[ir.DeviceKernel] = field(default_factory=list)

    def written(self) -> ScanModule:
        driver = ir.Function("scan", DRIVER_PARAMETERS, tuple(self._driver()))
        folds = tuple(fold for program in self.programs for fold in program.folds)
        programs = tuple(program.function(self.plan.types) for program in self.programs)
        arrays, sizes = tuple(self._arrays()), self._size_names()
        precision = rounding_of_plan(self.plan)
        given = folds, programs, tuple(self.kernels), driver, arrays, sizes, precision
        module = ir.DeviceModule(self.dtype, self.weights, *given)
        names = tuple(array.name for array in arrays)
        return ScanModule(module, self.constants, tuple(self.sizes.values), names, (), cuda_text)

    def _size_names(self) -> tuple[str, ...]:
        return *HEADER_SIZES, *(f"c{i}" for i in range(len(self.sizes.values)))

    # -- the driver ----------------------------------------------------------------------------------------------

    def _driver(self) -> list[ir.Statement]:
        first = choice(BACKWARDS, T - TILE - STEPS, TILE)
        body: list[ir.Statement] = [ir.Assign("steps", least(K, T - TILE)), ir.Assign("low", first)]
        for number, stage in enumerate(self.plan.stages):
            body += self._launches(number, self.loops[number]) if stage.loop else self._products.of_tile(stage.nodes)
        return [ir.For("tile", ZERO, T, K, tuple(body))]

    def _launches(self, number: int, loop: Loop) -> list[ir.Statement]:
        if loop.persistent:
            kernel = self._kernel(f"loop_{number}", loop, range(len(loop.regions)))
            return [self._launch(kernel, loop, ZERO, STEPS, loop.numbers)]
        lines: list[ir.Statement] = list(STEP_OF_TILE)
        for are_products, group in groupby(enumerate(loop.regions), key=lambda region: region[1].product is not None):
            regions = list(group)
            if are_products:
                lines += self._products.of_step([region.nodes[0] for _, region in regions])
                continue
            kernels = [self._kernel(f"region_{number}_{i}", loop, [i]) for i, _ in regions]
            lines += [self._launch(kernel, loop, STEP, STEP + 1, 0) for kernel in kernels]
        return [ir.For("step", ZERO, STEPS, ONE, tuple(lines))]

    def _launch(self, kernel: ir.DeviceKernel, loop: Loop, begin: Expr, end: Expr, numbers: int) -> ir.Statement:
        grid = self._size(loop.blocks), self._size(numbers * np.dtype(self.dtype).itemsize)
        arrays = [ir.Array(array.name) for array in kernel.arrays]
        return ir.Do("on.launch", (ir.Callee(kernel.name), *grid, LOW, begin, end, STEPS, *arrays))

    # -- kernels -------------------------------------------------------------------------------------------------

    def _kernel(self, name: str, loop: Loop, numbers: Iterable[int]) -> ir.DeviceKernel:
        """Write a kernel for some regions of a loop."""
        programs, regions = len(self.programs), [(i, loop.regions[i]) for i in numbers]
        body = tuple(self._steps_apart(loop) if loop.apart else self._steps_in_order(loop, regions))
        lines = list(ir.statements_of(body))
        buffers = {buffer for line in lines for buffer in ir.buffers_of(line)}
        read = {one for line in lines for expression in ir.expressions_of(line) for one in names_in(expression)}
        kernel = ir.DeviceKernel(
            name,
            arrays=tuple(array for array in self._arrays() if array.name in buffers),
            sizes=tuple(size for size in self._size_names() if size in read),
            folded=self._folded(self.programs[programs:]),
            teams=bool(read & TEAM_NAMES),
            weights=any(region.product for _, region in regions),
            body=body,
            fragments=fragments_of(region.product for _, region in regions),
        )
        self.kernels.append(kernel)
        return kernel

    @cached_property
    def _products(self) -> kernel_parts.DriverProducts:
        return kernel_parts.DriverProducts(self.layouts, self.sizes, bool(self.plan.batch_axes))

    def _arrays(self) -> list[ir.Parameter]:
        return array_parameters(self.scan, self.plan, self.layouts)

    def _folded(self, programs: Sequence[PointwiseKernel]) -> tuple[ir.Parameter, ...]:
        """The memory in which lanes fold, for programs that do."""
        scalars = {name for program in programs for name in program.scalars}
        return tuple(kernel_parts.SHARED[name] for name in sorted(scalars & kernel_parts.SHARED.keys()))

    def _steps_in_order(self, loop: Loop, regions: Sequence[tuple[int, LoopRegion]]) -> list[ir.Statement]:
        rows, together = self._rows_and_together()
        members = self._size(loop.members)
        lines: list[ir.Statement] = [
            ir.Assign("group", RANK // members),
            ir.Assign("member", RANK % members),
            *_share((P0, P1), GROUP, self._size(loop.groups), self._parts(), ONE),
            ir.Assign("m0", P0 * together),
            ir.Assign("m1", least(P1 * together, rows)),
            *(self._own_row(loop, regions) if loop.parts > 1 else self._own_rows(members, together)),
        ]
        if loop.persistent and loop.waits:
            lines += [ir.Assign("line", GROUP * WORDS), ir.Do("turn_of", (ir.Array("counters"), LINE), ("turn",))]
        if loop.over:
            place = self._place(loop.lengths)
            lines += steps_of_group(Load(place.array, self._address(place, ROW), dtype="int32"))
        every = [*(region for _, region in regions), *loop.over]
        for period in sorted({region.period for region in every} - {BY_ROWS}):
            lines += _share(self._features(period), MEMBER, members, self._size(period), ONE)
        lines += self._load_weights(loop, regions)
        steps = self._steps(loop, regions)
        if loop.over:
            over = [line for region in loop.over for line in (kernel_parts.SYNC, *self._region(region, loop))]
            steps = two_kinds(steps, over, self._waited(loop, (STEP - GROUP_BEGIN) * len(loop.waits)))
        return [*lines, ir.For("step", BEGIN, END, ONE, (*STEP_OF_TILE, *steps))]

    def _own_rows(self, members: Expr, together: Expr) -> list[ir.Statement]:
        """The rows of a block, if no row has several blocks."""
        share = _share((N0, N1), MEMBER, members, M1 - M0, together)
        return [*share, ir.Assign("n0", M0 + N0), ir.Assign("n1", M0 + N1)]

    def _own_row(self, loop: Loop, regions: Sequence[tuple[int, LoopRegion]]) -> list[ir.Statement]:
        """The row of a block, if blocks share rows, and the block's part of it. A block may have no row."""
        parts = self._size(loop.parts)
        sizes = sorted({one.size for _, region in regions for one in region.work if one.axis >= 0})
        lines: list[ir.Statement] = [
            ir.Assign(kernel_parts.PART, MEMBER % parts),
            ir.Assign("n0", least(M0 + MEMBER // parts, M1)),
            ir.Assign("n1", least(N0 + 1, M1)),
        ]
        for size in sizes:
            lines += _share(self._part_of(size), Name(kernel_parts.PART), parts, self._size(size), ONE)
        return lines

    def _steps(self, loop: Loop, regions: Sequence[tuple[int, LoopRegion]]) -> list[ir.Statement]:
        lines, meanwhile = list[ir.Statement](), list[ir.Statement]()
        weights, mirrors = _places_of_weights(loop), self._mirrors(loop)
        for i, region in regions:
            if i in loop.waits and loop.persistent:
                lines, meanwhile = [*lines, *self._wait(loop, i, meanwhile)], []
            else:
                lines.append(kernel_parts.SYNC)
            if region.product and region.part:
                lines.append(self._half(i, region.product, loop, weights[region.nodes]))
            elif region.product:
                lines.append(self._step_product(region.product, region.period, loop, weights[region.nodes]))
            else:
                early, late = kernel_parts.deferred(loop, self.plan, i)
                own_row = self._split(loop).own_row(i + 1, ROW - M0) if i in mirrors else {}
                lines += self._region(early, loop, mirrors.get(i, ""), own_row)
                meanwhile += self._region(late, loop) if late else []
        return lines

    def _wait(self, loop: Loop, number: int, meanwhile: Sequence[ir.Statement]) -> list[ir.Statement]:
        """The blocks of a group wait for each other before a region, and fetch values early in that time.

        Args:
            meanwhile: other work until all blocks have arrived.
        """
        begin = GROUP_BEGIN if loop.over else BEGIN
        before = (STEP - begin) * len(loop.waits) + sum(other < number for other in loop.waits)
        known = self.scan, self.plan, self.layouts, loop, self._size, self._address, self._features
        fetched = kernel_parts.FetchLines(*known).before(number)
        return self._waited(loop, before + first_wait() if loop.over else before, [*fetched, *meanwhile])

    def _waited(self, loop: Loop, before: Expr, meanwhile: Sequence[ir.Statement] = ()) -> list[ir.Statement]:
        """The blocks of a group wait for each other, `before` waits after the first wait of the launch."""
        members, group = self._size(loop.members), (ir.Array("counters"), LINE)
        turns = TURN + before
        return [ir.Do("arrive", (*group, MEMBER, members)), *meanwhile, ir.Do("await_group", (*group, members, turns))]

    def _load_weights(self, loop: Loop, regions: Sequence[tuple[int, LoopRegion]]) -> list[ir.Statement]:
        lines: list[ir.Statement] = []
        places = _places_of_weights(loop)
        for region in (region for _, region in regions if region.part != TOTAL):
            node, size, own = region.product, self._size, self._features(region.period)
            if node is None:
                continue
            place, weights = places[region.nodes], self.layouts.arrays[node.right.owner]
            if region.part:
                split = self._split(loop)
                lines += [split.load(node, region.period, weights, place), split.clear(node, region.period)]
                continue
            along, across = node.right.layout.strides
            where = size(node.right.layout.offset), size(along), size(across)
            shape = size(node.inner), size(node.columns), size(region.period)
            if node.rounding:
                tiles, _, groups = warps_of(loop, node, region.period, self.scan.batch)
                kept = size(tiles * groups), ir.Pointer(WORDS_OF_FRAGMENTS, size(place))
                lines.append(ir.Do("load_fragments", (ir.Array(weights), *where, *shape, *own, *kept)))
                continue
            lines.append(
                ir.Do("load_columns", (ir.Array(weights), *where, *shape, *own, ir.Pointer("kept", size(place))))
            )
        return lines

    def _step_product(self, node: StepProduct, period: int, loop: Loop, weights: int) -> ir.Statement:
        size, own = self._size, self._features(period)
        each = node.rows // self.scan.batch if self.plan.batch_axes else node.rows
        left, target = self._place(node.left), self._place(node.target)
        a = ir.Array(left.array), self._address(left, M0) + size(node.offset), size(node.row_stride)
        rows = (M1 - M0) * size(each), size(node.inner)
        staged, sums = (ir.Pointer("shared", size(place)) for place in (loop.staged, loop.sums))
        memory = WORDS_OF_FRAGMENTS if node.rounding else "kept"
        kept = ir.Pointer(memory, size(weights)), staged, size(loop.depth), sums
        c = ir.Array(target.array), self._address(target, M0), size(node.columns), size(period), *own
        array, start = self._products.bias(node)
        bias = Literal(node.accumulate, dtype="bool"), ir.Array(array), start
        if node.rounding:
            *sizes, groups = warps_of(loop, node, period, self.scan.batch)
            return ir.Do("tensor_product", (*a, *rows, *kept, *c, *bias, size(groups), ir.Array(sums_name(*sizes))))
        return ir.Do("step_product", (*a, *rows, *kept, *c, *bias))

    def _half(self, number: int, node: StepProduct, loop: Loop, weights: int) -> ir.Statement:
        """Partial sums of a product, or their totals."""
        each = node.rows // self.scan.batch if self.plan.batch_axes else node.rows
        left, target, rows = self._place(node.left), self._place(node.target), (M1 - M0) * self._size(each)
        lines = self._split(loop)
        if loop.regions[number].part == PARTIAL:
            there = number - 1 in self._mirrors(loop)
            return lines.partial(number, left.array, self._address(left, M0), rows, weights, there)
        array, start = self._products.bias(node)
        return lines.total(number, (ir.Array(target.array), self._address(target, M0)), rows, (ir.Array(array), start))

    def _mirrors(self, loop: Loop) -> dict[int, str]:
        return kernel_parts.mirrored(loop, self.plan, self.scan.batch)

    def _split(self, loop: Loop) -> kernel_parts.SplitLines:
        rows = self.scan.batch if self.plan.batch_axes else 1
        return kernel_parts.SplitLines(loop, rows, f"w_{self.dtype}", self._size, self._features)

    def _region(
        self, region: LoopRegion, loop: Loop, mirror: str = "", own_row: Mapping[str, ir.Argument] = NOWHERE
    ) -> list[ir.Statement]:
        """Statements for elementwise work.

        Args:
            mirror: the owner that is also stored in shared memory.
            own_row: arguments of the kernel for the place there.
        """
        together = self._rows_and_together()[1]
        if region.period == BY_ROWS:
            return [ir.For("n", N0, N1, ONE, (self._call(self._program(region, loop)),))]
        first, last = self._features(region.period)
        width = last - first
        call = self._call(self._program(region, loop, mirror), own_row)
        rows = ir.For("n", P * together, least(P * together + together, M1), ONE, (call,))
        body = (
            ir.Assign("q", lane_nests.quotient(E, width)),
            ir.Assign("u", first + E - Name("q") * width),
            ir.Assign("p", P0 + Name("q")),
            rows,
        )
        return [ir.For("e", LANE, (P1 - P0) * width, LANES, body)]

    def _steps_apart(self, loop: Loop) -> list[ir.Statement]:
        """A stage whose steps and rows do not depend on each other. All run at once."""
        region = loop.regions[0]
        rows = self._rows_and_together()[0]
        if region.period == BY_ROWS:
            before, after = list[ir.Statement](), list[ir.Statement]()
            place = E
            bounds: tuple[Expr, Expr, Expr] = RANK, STEPS * rows, BLOCKS
        else:
            place, period = Name("row"), self._size(region.period)
            bounds = RANK * LANES + LANE, STEPS * rows * period, BLOCKS * LANES
            before, after = lane_nests.columns_and_rows(bounds[0], bounds[2], period)
        body = *lane_nests.step_and_row(place, rows), *STEP_OF_TILE, self._call(self._program(region, loop)), *after
        return [*before, ir.For("e", *bounds, body)]

    def _program(self, region: LoopRegion, loop: Loop, mirror: str = "") -> PointwiseKernel:
        """Write the pointwise kernel of a region."""
        stored = region.written & {*self._read_elsewhere(region), *self.plan.slots, *self.plan.accumulators}
        plan, statements = self.plan, region.statements
        known = f"rows_{len(self.programs)}", plan.types, plan.batch_axes, stored, plan.scalars
        if region.work:
            parts = kernel_parts.PartPointwiseWriter(*known, self.sizes, self.constants)
            parts.work, parts.private = {id(one.nest): one for one in region.work}, region.private
            parts.parts, parts.bounds = loop.parts, self._part_of
            program = parts.write([one.nest for one in region.work])
        elif region.period == BY_ROWS:
            program = kernel_parts.BlockPointwiseWriter(*known, self.sizes, self.constants).write(
                fuse_nests(statements, folds_last=True)
            )
        else:
            writer = (kernel_parts.MirroredPointwiseWriter if mirror else kernel_parts.FeaturePointwiseWriter)(
                *known, self.sizes, self.constants
            )
            if isinstance(writer, kernel_parts.MirroredPointwiseWriter):
                writer.mirrored = mirror
            writer.period, writer.written = region.period, region.written - numbers_of(statements, plan)
            program = writer.write(feature_nests(statements, plan))
        self.programs.append(program)
        return program

    def _read_elsewhere(self, region: LoopRegion) -> Iterator[str]:
        """Owners that other nodes of loops and stages read."""
        own = {id(node) for node in region.nodes}
        for number, stage in enumerate(self.plan.stages):
            loop = self.loops.get(number)
            regions = () if loop is None else loop.over if any(one is region for one in loop.over) else loop.regions
            nodes = [node for other in regions for node in other.nodes]
            for node in nodes if loop else stage.nodes:
                yield from () if id(node) in own else node_reads(node)

    def _call(self, program: PointwiseKernel, own_row: Mapping[str, ir.Argument] = NOWHERE) -> ir.Statement:
        places = [self._place(owner) for owner in program.pointers]
        pointers = [ir.Pointer(place.array, self._address(place, ROW)) for place in places]
        scalars = [own_row.get(name) or self._scalar(name) for name in program.scalars]
        return ir.Do(program.name, (*scalars, *pointers, *map(Name, program.sizes)))

    def _scalar(self, name: str) -> ir.Argument:
        """The scalar arguments of a pointwise kernel."""
        if name in kernel_parts.SHARED:
            return ir.Array(name)
        numbers: Mapping[str, ir.Argument] = {**SCALARS, "n": ROW if self.plan.batch_axes else ZERO}
        return numbers.get(name, Name(name))

    # -- names ---------------------------------------------------------------------------------------------------

    def _place(self, owner: str) -> Place:
        return self.layouts.places[owner]

    @cached_property
    def _addresses_in_kernels(self) -> Addresses:
        return DeviceAddresses(self.sizes, bool(self.plan.batch_axes))

    def _address(self, place: Place, row: Expr) -> Expr:
        return self._addresses_in_kernels.of_row(place, row)

    def _size(self, value: int) -> Expr:
        return self.sizes.of(value)

    def _rows_and_together(self) -> tuple[Expr, Expr]:
        return (N, self._size(rows_of_sum(self.scan.batch))) if self.plan.batch_axes else (ONE, ONE)

    def _parts(self) -> Expr:
        batch = self.scan.batch
        return self._size(-(-batch // rows_of_sum(batch))) if self.plan.batch_axes else ONE

    def _features(self, period: int) -> tuple[Name, Name]:
        """The range of features that a member has."""
        number = self.shared.setdefault(period, len(self.shared))
        return Name(f"a{number}"), Name(f"b{number}")

    def _part_of(self, size: int) -> tuple[Name, Name]:
        """The range of an axis of a row that a block has."""
        number = self.part_sizes.setdefault(size, len(self.part_sizes))
        return Name(f"f{number}"), Name(f"g{number}")


class DeviceAddresses(Addresses):
    """Addresses in kernels. Steps and rows are divided as numbers of 32 bits, which is much faster than 64 bits."""

    def _quotient(self, a: Expr, b: Expr) -> Expr:
        return lane_nests.quotient(a, b)

    def _remainder(self, a: Expr, b: Expr) -> Expr:
        return lane_nests.remainder(a, b)


def _share(
    names: tuple[Name, Name], rank: Expr, parts: Expr, count: Expr, block: Expr
) -> tuple[ir.Statement, ir.Statement]:
    """The statements that set the range of things that one of several ranks takes."""
    first, last = share_of(rank, parts, count, block)
    return ir.Assign(names[0].name, first), ir.Assign(names[1].name, last)


def _places_of_weights(loop: Loop) -> dict[tuple[Node, ...], int]:
    """Nodes of a region with a product -> the place of its weights in shared memory."""
    own = [region.nodes for region in loop.regions if region.product and region.part != TOTAL]
    return dict(zip(own, loop.weights, strict=False))


def write_cuda_scan(
    scan: Scan, plan: StepPlan, layouts: Layouts, dtype: str, loops: Mapping[int, Loop], weights: str
) -> ScanModule:
    """Write a plan as a module. Its function `scan(on, sizes, *arrays)` launches all kernels of a scan.

    Args:
        loops: number of a stage that is a loop -> the shares of its blocks.
        weights: the dtype in which shared memory keeps weights.
    """
    return CudaScanWriter(scan, plan, layouts, dtype, loops, weights).written()


def owners_in_memory(scan: Scan, plan: StepPlan, layouts: Layouts, dtype: str, loops: Mapping[int, Loop]) -> set[str]:
    """Owners that products or pointwise kernels access in memory. Others stay in registers of pointwise kernels.

    Args:
        layouts: places for all owners.
    """
    writer = CudaScanWriter(scan, plan, layouts, dtype, loops, dtype)
    writer.written()
    products = [node for stage in plan.stages for node in stage.nodes if isinstance(node, StepProduct | Contraction)]
    of_products = {owner for node in products for owner in (*node_reads(node), node.target)}
    return of_products.union(*(program.pointers for program in writer.programs))


HEAD = """\
from typing import Any

import numpy as np
from numba import cuda, types

from rnnops.kernels.cuda.lane_functions import copies_done, copy_soon, fetch_early, starts_a_copy
from rnnops.kernels.cuda.facade import at, scan_kernel
from rnnops.kernels.cuda.lane_functions import add_apart, add_batch, clear_four, keep_four, write_four, write_tile
from rnnops.kernels.cuda.gemm import Matrix, Product
from rnnops.kernels.cuda.lane_functions import add_release, load_acquire
from rnnops.kernels.{home} import (
    add_any_order, add_product, add_product_any_order, larger, smaller, uniform,
)
from rnnops.kernels.cuda.lane_functions import add_products, clear_tile, keep_tile
{functions}

device_function = cuda.jit(device=True)"""
DEVICE, HOME = choose(("cuda", "cuda.device_scalars"), ("cpu", "cpu.pointwise"))  # or the simulator's
PLACE = ("rank, blocks = cuda.blockIdx.x, cuda.gridDim.x", "lane, lanes = cuda.threadIdx.x, cuda.blockDim.x")
TEAMS = (  # lanes that do not fill a team are in a team without work
    f"mates = min({choose(lane_nests.MATES, 2)}, lanes)",
    "teams, mate = lanes // mates, lane % mates",
    f"team = lane // mates if lane < teams * mates else {1 << 40}",
)


def cuda_text(module: ir.DeviceModule, constants: Sequence[str], for_people: bool = False) -> str:
    """The text of a module; its function is `scan(on, sizes, *arrays)`.

    Args:
        constants: lines that define the numbers it uses.
        for_people: whether comments name the blobs in arrays. A text that runs may not have such comments.
    """
    head = HEAD.format(home=HOME, functions="\n".join(import_lines(DEVICE)))
    parts = [
        f'"""Generated by rnnops for {module.dtype}, on a CUDA device."""\n\n{head}',
        *(["\n".join(constants)] if constants else []),
        lane_functions.folds_source(),
        lane_functions.groups_source(),
        step_product.source(module.dtype, module.weights),
        step_product.split_source(),
        *([step_product_tensor.source(module.precision)] if module.precision else []),
        *programs_text(module.folds, module.programs),
        *("\n".join(_kernel(kernel, module, for_people)) for kernel in module.kernels),
        "\n".join(_driver(module)),
    ]
    return "\n\n\n".join(parts) + "\n"


def programs_text(folds: Sequence[ir.LaneFold], programs: Sequence[ir.Function]) -> list[str]:
    """The texts of the device's functions."""
    texts = [lane_functions.fold_text(fold.name, str(fold.joined)) for fold in folds]
    return [*texts, *("\n".join(_function(program)) for program in programs)]


def _function(program: ir.Function) -> Iterator[str]:
    yield "@device_function"
    yield f"def {program.name}({', '.join(parameter.name for parameter in program.parameters)}):"
    yield from _lines(program.body)


def _lines(body: Sequence[ir.Statement]) -> Iterator[str]:
    """The lines of statements, indented. A step that is not constant makes a `while` loop: `range` would divide numbers
    of 64 bits."""
    for statement in body:
        if isinstance(statement, ir.If):
            yield f"{ir.INDENT}if {statement.test}:"
            yield from (ir.INDENT + line for line in _lines(statement.body))
        elif not isinstance(statement, ir.For):
            yield from (ir.INDENT + line for line in statement.lines())
        elif isinstance(statement.step, Literal):
            yield ir.INDENT + next(statement.lines())
            yield from (ir.INDENT + line for line in _lines(statement.body))
        else:
            index, end = statement.index, f"{statement.index}_end"
            yield f"{ir.INDENT}{index}, {end} = {statement.begin}, {statement.end}"
            yield f"{ir.INDENT}while {index} < {end}:"
            yield from (ir.INDENT + line for line in _lines(statement.body))
            yield f"{ir.INDENT * 2}{index} += {statement.step}"


def _kernel(kernel: ir.DeviceKernel, module: ir.DeviceModule, for_people: bool) -> Iterator[str]:
    dtypes = ", ".join(f'"{array.dtype}"' for array in kernel.arrays)
    names = ["low", "begin", "end", "steps", "sizes", "status", "counters", *(array.name for array in kernel.arrays)]
    yield f"@scan_kernel({dtypes})"
    yield f"def {kernel.name}({', '.join(names)}):"
    yield from (
        f"{ir.INDENT}# {array.name}:{ir.beside(array.blob)[3:]}" for array in kernel.arrays if for_people and array.blob
    )
    yield from (f"{ir.INDENT}{name} = sizes[{module.sizes.index(name)}]" for name in kernel.sizes)
    yield from (ir.INDENT + line for line in (*PLACE, *(TEAMS if kernel.teams else ())))
    yield from (
        f"{ir.INDENT}{one.name} = cuda.shared.array({lane_nests.LANES}, np.{one.dtype})" for one in kernel.folded
    )
    if kernel.weights:
        aligned = choose(", alignment=16", "")  # four numbers are read at once; the simulator knows no alignment
        yield f"{ir.INDENT}shared = cuda.shared.array(0, types.{module.dtype}{aligned})"
        yield f"{ir.INDENT}kept = cuda.shared.array(0, types.{module.weights}{aligned})  # the same memory"
        for words in kernel.fragments[:1]:
            yield f"{ir.INDENT}{words.name} = cuda.shared.array(0, types.{words.dtype}{aligned})"
    yield from _lines(kernel.body)


def _driver(module: ir.DeviceModule) -> Iterator[str]:
    yield f"def scan({', '.join(['on', 'sizes', *(array.name for array in module.arrays)])}):"
    yield from (f"{ir.INDENT}{name} = sizes[{i}]" for i, name in enumerate(module.sizes))
    yield from (ir.INDENT + line for statement in module.driver.body for line in statement.lines())
