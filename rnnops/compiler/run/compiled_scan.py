"""A scan that is ready to run: its plan, its module, its memory, and its calls.

First come the ops that run once (`Once`): before the first step (`lower_ops.py`), or on sums over steps after the last.
Then come the options of all scans, memory that lasts from call to call, and `CompiledScan`. `compile_scan` at the end
makes one.

The first call packs weights (`run` with `packed` false). Later calls find them packed in the memory that lasts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from rnnops.compiler.codegen.places import Layouts
from rnnops.compiler.codegen.scan_module import HEADER_SIZES, PACK_BITS, Again, Packed, ScanModule
from rnnops.compiler.lower.scan import Scan, StepPlan, TensorName, UnsupportedError
from rnnops.compiler.lower.statements import Contraction, Statement, StepProduct, node_writes
from rnnops.compiler.memory.memory import (
    GRADIENT,
    OUTPUT,
    PACKED,
    PLAIN,
    SCRATCH,
    SUMS,
    Block,
    Buffer,
    Memory,
    Pool,
    allocate,
    block_bytes,
)
from rnnops.compiler.schedule.batch_axis import ScanTeam
from rnnops.compiler.schedule.plan_step import RingError, plan_step
from rnnops.compiler.targets.target import PLAIN_PYTHON, PROCESSOR, Target
from rnnops.errors import TypeRuleError
from rnnops.interpreter import Program, Workspace, execute
from rnnops.kernels.cpu.native import products_of, rounded_products_of
from rnnops.kernels.cpu.processor import QUADS
from rnnops.kernels.cpu.words import new_barrier
from rnnops.net.schema import RunContext, schema_of
from rnnops.ops.linear_algebra import BFLOAT16, BYTES, INT8
from rnnops.sizes import lazy_text
from rnnops.templates import Own, Shared
from rnnops.types import Array, Shape, Type
from rnnops.util import cached_property, told_if_long

BEFORE, ON_SUMS = "once, before the first step", "once, on sums"


@dataclass(frozen=True)
class Once:
    """A net that runs once for all steps.

    Args:
        kernels: key of an op -> the function that runs it instead of its reference.
    """

    program: Program
    kernels: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, arrays: Mapping[str, Array], target: Target) -> Workspace:
        """Run it. `arrays` may have more than its inputs."""
        workspace = Workspace()
        workspace.local.update((name, arrays[name]) for name in self.program.net.input_names)
        kernels = {**target.references(self.program), **self.kernels}
        execute(self.program, workspace, RunContext(), kernels=kernels)
        return workspace


Made = TypeVar("Made")
TO_PACK = HEADER_SIZES.index("to_pack")  # from here on sizes differ from call to call
EXACT = "float32"  # the precision that rounds no operands of products
FEW_RESULTS = 1 << 20  # with more elementwise results than this, the cost of calling NumPy is a small part


@dataclass(frozen=True)
class Options:
    """How scans run.

    Args:
        threads: the largest number of threads.
        width: width of vectors in bits; the host's if None. It chooses only the library of products; LLVM chooses the
            width of pointwise loops.
        compiled: True: kernels are compiled. False: they are plain Python.
        device: the target of the kernels, if it is not the processor.
        tile: steps of a tile; None for a choice by size.
        fixed: inputs of the net that are the same at every call, so that matrices are packed only once.
        around: the ops around recurrences that are fused and compiled: `"none"`; `"rows"`, those that work row by row;
            `"all"`; or `""`, which means `"all"` if they are little work and `"rows"` if they are much.
        pool: from which scans borrow scratch, and passes borrow shared memory.
        recycle: whether ops run in an order in which little memory is alive, and results that die within a pass share
            memory.
        interpreted: whether the interpreter runs recurrences.
        precision: the format that operands of products are rounded to; `"float32"` for no rounding.
        weights: the format that bound weights of products are kept in; `""` for their own.
    """

    threads: int = 1
    width: int | None = None
    compiled: bool = True
    device: Target | None = None
    tile: int | None = None
    fixed: frozenset[str] = frozenset()
    around: str = ""
    pool: Pool = field(default_factory=Pool, compare=False, repr=False)
    recycle: bool = True
    interpreted: bool = False
    precision: str = EXACT
    weights: str = ""

    @property
    def target(self) -> Target:
        """The target of the scans."""
        return self.device or (PROCESSOR if self.compiled else PLAIN_PYTHON)


REFERENCE = Options(around="none", recycle=False, interpreted=True)  # the reference device: nothing is compiled


@dataclass
class Scratch:
    """Memory that lasts from call to call. One call at a time uses it.

    Args:
        packed: whether an earlier call has packed matrices into it.
    """

    arrays: dict[str, Array]
    packed: bool = False


class Lasting(Shared):
    """The function and the scratch of a scan, which last from call to call. Plans for all T and N share them.

    The function is loaded again if a plan has another module. Scratch is kept by its shapes.
    """

    def __init__(self) -> None:
        self._function: tuple[object, Any] = (None, None)
        self._idle: dict[tuple[Shape, ...], list[Scratch]] = {}  # `pop` and `append` need no lock

    def function(self, text: ScanModule, load: Callable[[], Any]) -> Any:
        """The function of a module. It is loaded only if the module is another one than before."""
        known, function = self._function
        if known is not text.module:
            function = load()
            self._function = (text.module, function)
        return function

    def idle(self, lasting: Mapping[str, Buffer]) -> list[Scratch]:
        """The list of free scratch with buffers of these shapes."""
        return self._idle.setdefault(tuple(buffer.shape for buffer in lasting.values()), [])


@dataclass
class Carry:
    """The values that a recurrence in parts carries from part to part.

    Args:
        pool, memory: where blocks go back to at the end.
        last: True in the last part: totals of the sums can be computed.
        sums: the sums over the steps so far.
        blocks: id of a scan -> its scratch, in which matrices are packed already.
    """

    pool: Pool
    memory: Memory = PLAIN
    last: bool = False
    sums: dict[str, Array] = field(default_factory=dict)
    blocks: dict[int, Block] = field(default_factory=dict)

    def end(self) -> None:
        """Give the blocks back."""
        for block in self.blocks.values():
            self.memory.give_back(self.pool, block)
        self.blocks.clear()


@dataclass(eq=False)
class CompiledScan(Own):
    """Runs a scan over arrays."""

    scan: Scan
    plan: StepPlan
    layouts: Layouts
    text: ScanModule
    tile: int
    team: ScanTeam
    options: Options
    float_dtype: str
    fixed: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    kept: Lasting = field(default_factory=Lasting)

    def run(
        self,
        tensors: Mapping[TensorName, Array],
        references: Mapping[str, Array],
        context: RunContext,
        carry: Carry | None = None,
        make: Memory = PLAIN,
    ) -> dict[str, Array]:
        """Run all steps.

        Args:
            tensors, references: the memory of tensors and references.
            carry: sums and scratch that a recurrence in parts carries from part to part.
            make: makes the memory of sums and scratch.

        Returns: the sums over steps, by owner. Raises TypeRuleError if an index or a label was out of range.
        """
        held = None if carry is None else carry.blocks.get(id(self))
        target = self.options.target
        block, start = make.borrow(self.options.pool, self.block) if held is None else (held, 0)
        scratch = self._scratch()
        goes_on = carry is not None and bool(carry.sums)
        sums = self._sums(carry, make)
        lent = {**scratch.arrays, **block.parts(self, self.lent, start)}
        owned = {**self._constants, **references, **sums}
        if self.plan.lengths:
            part = (context.first, context.all_steps(self.scan.steps))
            target.order_rows(references[self.plan.lengths], self.scan.steps, lent["order"], lent["ends"], part)
        given = (
            *map(tensors.__getitem__, self.layouts.tensors),
            *map(owned.__getitem__, self.layouts.arrays),
            *map(lent.__getitem__, self._lent_names),
        )
        sizes = self._sizes(context, scratch.packed, held is not None, goes_on)
        work = (scratch.arrays["barrier"], scratch.arrays["status"], sizes, *map(target.flat, given))
        wrong = target.call(self._function, self.team, work, self.plan.may_fail)
        scratch.packed = True
        self._idle.append(scratch)
        if carry is None:
            make.give_back(self.options.pool, block)
        else:
            carry.blocks[id(self)] = block
        if wrong:
            raise TypeRuleError(
                "an index or a label is out of range, or an integer's power below 0", net=self.scan.program.net.name
            )
        return sums

    def prepare(self) -> None:
        """Compute the cached values that do not depend on sizes, so that plans filled in from a template share them."""
        _ = self._lent_names, self._constants, self._known, self.plan.may_fail, self._draws

    def load(self) -> None:
        """Compile its function, or load it from the disk."""
        _ = self._function

    @cached_property
    def _lent_names(self) -> tuple[str, ...]:
        """Names of the array parameters for lent memory; they come after those of tensors and of other arrays."""
        return self.text.arrays[len(self.layouts.tensors) + len(self.layouts.arrays) :]

    @cached_property
    def _constants(self) -> dict[str, Array]:
        return {name: self.options.target.constant(array) for name, array in self.plan.constants.items()}

    @cached_property
    def _all_sizes(self) -> Array:
        rows = self.scan.batch * self.plan.heads
        fixed = {"T": self.scan.steps, "N": rows, "K": self.tile, "backwards": int(self.scan.reverse)}
        return np.array([*(fixed.get(name, 0) for name in HEADER_SIZES), *self.text.sizes], np.int64)

    @cached_property
    def _function(self) -> Any:
        with told_if_long(f"'{self.scan.program.net.name}' ({len(self.scan.program.calls)} ops)"):
            return self.kept.function(self.text, lambda: self.options.target.load(self.text, self.options.width))

    @cached_property
    def _draws(self) -> bool:
        """True if it has random ops, or runs segments again, which may have random ops."""
        again = any(tensor.segment for tensor in self.scan.tensors.values())
        return again or any(schema_of(call.op.type).random for call in self.scan.program.calls)

    @cached_property
    def _idle(self) -> list[Scratch]:
        return self.kept.idle(self.lasting)

    @cached_property
    def _known(self) -> int:
        """Bit mask of the packed matrices that are the same at every call."""
        return sum(1 << i for i, packed in enumerate(self.text.packed[:PACK_BITS]) if packed.owner in self.fixed)

    @cached_property
    def _sizes_of_whole_runs(self) -> dict[tuple[bool, bool], Array]:
        """(matrices are packed, training) -> sizes, for calls without random numbers and in one part."""
        return {}

    def _sizes(self, context: RunContext, packed: bool, all_packed: bool, goes_on: bool) -> Array:
        draws = self._draws and context.seed is not None
        if draws or context.part is not None or all_packed or goes_on:
            return self._written_sizes(context, packed, all_packed, goes_on)
        known, key = self._sizes_of_whole_runs, (packed, context.training)
        if key not in known:
            known[key] = self._written_sizes(context, packed, all_packed, goes_on)
        return known[key]

    def _written_sizes(self, context: RunContext, packed: bool, all_packed: bool, goes_on: bool) -> Array:
        sizes: Array = self._all_sizes.copy()
        to_pack = 0 if all_packed else (1 << PACK_BITS) - 1 & ~(self._known if packed else 0)
        drawn = (0, 0)
        if self._draws and context.seed is not None:
            seed = context.seed - 2**64 if context.seed >= 2**63 else context.seed  # as int64
            drawn = (seed, context.t * context.all_steps(self.scan.steps) + context.first)
        more = (context.training, context.first, goes_on, self.team.by_columns)
        sizes[TO_PACK : TO_PACK + 7] = (to_pack, *drawn, *more)
        return sizes

    def _sums(self, carry: Carry | None, make: Memory) -> dict[str, Array]:
        """Memory for the sums over steps: zeros, or the sums of the parts before."""
        if carry is not None and carry.sums:
            return carry.sums
        sums = {owner: make(b, zeros=owner not in self._overwritten) for owner, b in self.accumulators.items()}
        if carry is not None:
            carry.sums = sums
        return sums

    @property
    def threads(self) -> int:
        """How many threads run it."""
        return self.team.threads

    @cached_property
    def _overwritten(self) -> set[str]:
        """Sums that products write completely in the first tile, so that they need no zeros; none if T is 0."""
        nodes = [node for stage in self.plan.stages for node in stage.nodes]
        others = {node_writes(node) for node in nodes if not isinstance(node, Contraction)}
        written = Counter[str]()
        for node in nodes:
            if isinstance(node, Contraction) and self.scan.steps:
                written[node.target] += node.rows * node.columns
        return {owner for owner, count in written.items() if count == self.plan.types[owner].size} - others

    # -- memory --------------------------------------------------------------------------------------------------

    @cached_property
    def accumulators(self) -> dict[str, Buffer]:
        """Owner of a sum over steps -> its memory: the result's, if nothing more is computed from the sum."""
        plan, found = self.plan, {}
        results = {owner: result for result, owner in plan.sums.items()}
        for owner, by_row in plan.accumulators.items():
            kind, what = plan.types[owner], f"{owner}, row by row" if by_row else owner
            is_result = owner in results and not by_row
            made = result_of_sum(self.scan.sums_are, results[owner], kind) if is_result else None
            found[owner] = made or Buffer(what, SUMS, kind.dtype, kind.shape)
        return found

    @cached_property
    def lent(self) -> dict[str, Buffer]:
        """Scratch of one call, by array parameter."""
        what = "blobs of a step" if self.tile == 1 else lazy_text("blobs of {} steps", self.tile)
        sizes = {dtype: (max(size, 1),) for dtype, size in self.layouts.scratch.items()}
        kinds = {dtype: "uint8" if dtype == "bool" else dtype for dtype in sizes}
        scratch = {f"w_{dtype}": Buffer(what, SCRATCH, kinds[dtype], shape) for dtype, shape in sizes.items()}
        return {**scratch, **self._packed(fixed=False), **(self._row_lists() if self.plan.lengths else {})}

    def _row_lists(self) -> dict[str, Buffer]:
        """The arrays of `ROW_ARRAYS`, by name."""
        batch = self.scan.batch
        return {
            "order": Buffer("order of rows", SCRATCH, "int64", (batch,)),
            "ends": Buffer("lengths of rows", SCRATCH, "int64", (batch,)),
            "lists": Buffer("rows that are not over", SCRATCH, "int64", (self.threads, self.tile, batch + 2)),
        }

    @cached_property
    def lasting(self) -> dict[str, Buffer]:
        """The arrays that last from call to call, by parameter: packed matrices."""
        return self._packed(fixed=True)

    @cached_property
    def block(self) -> int:
        """Size in bytes of the block that it borrows."""
        return block_bytes(self.lent.values())

    def reserve(self, block: int) -> None:
        """From now on borrow a block of at least this size, so that all scans of a plan can use one block."""
        self.block = max(self.block, block)

    def _packed(self, fixed: bool) -> dict[str, Buffer]:
        """Packed matrices that are the same at every call (`fixed`), or all others."""
        return {
            f"packed{i}": Buffer(p.owner, PACKED, p.dtype_of(self.float_dtype), self._packed_shape(p))
            for i, p in enumerate(self.text.packed)
            if (i < PACK_BITS and p.owner in self.fixed) == fixed
        }

    def _packed_shape(self, packed: Packed) -> Shape:
        """The shape that the product with this packed matrix needs."""
        width = self.options.width
        ways = {BFLOAT16: None, BYTES: QUADS}
        rounded = packed.rounding in ways
        products = (
            rounded_products_of(width, ways[packed.rounding]) if rounded else products_of(self.float_dtype, width)
        )
        shape: Shape = products.packed_shape(packed.inner, packed.columns)
        return shape

    def _scratch(self) -> Scratch:
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_scratch()

    def _new_scratch(self) -> Scratch:
        scratch = {name: allocate(buffer) for name, buffer in self.lasting.items()}
        scratch["barrier"], scratch["status"] = new_barrier(), self.options.target.constant(np.zeros(4, np.int64))
        return Scratch(scratch)


def result_of_sum(are: str, result: str, kind: Type) -> Buffer:
    """Memory for a sum over steps that is a result.

    Args:
        are: kind of the results: `GRADIENT`, or another word for outputs.
    """
    return Buffer(f"{are} of {result}", GRADIENT if are == GRADIENT else OUTPUT, kind.dtype, kind.shape)


def with_whole_tensors(compile_with: Callable[[frozenset[TensorName]], Made]) -> Made:
    """Compile with rings for all tensors except those that must hold all steps.

    Args:
        compile_with: compiles, given the tensors that hold all steps. It raises RingError with more such tensors.
    """
    whole: frozenset[TensorName] = frozenset()
    while True:
        try:
            return compile_with(whole)
        except RingError as error:
            if error.tensors <= whole:
                raise
            whole |= error.tensors


def compile_scan(scan: Scan, float_dtype: str, options: Options, fixed: frozenset[str] = frozenset()) -> CompiledScan:
    """Plan a scan and write its module.

    Args:
        fixed: references that are the same at every call.

    Raises UnsupportedError and RingError.
    """
    target = options.target
    plan = plan_step(scan, target.compacts, target.in_place, target.calls)
    tile = steps_of_tile(options, scan.steps, max(scan.batch, _rows_at_once(plan)))
    return written_scan(scan, plan, float_dtype, options, tile, fixed)


def _rows_at_once(plan: StepPlan) -> int:
    """The largest number of rows of a step in products over whole tiles. It may be a multiple of the batch size."""
    nodes = (node for stage in plan.stages if not stage.loop for node in stage.nodes)
    products = (node for node in nodes if not isinstance(node, Statement))
    rows = (node.rows if isinstance(node, StepProduct) else node.inner for node in products)
    return max(rows, default=0)


def written_scan(
    scan: Scan,
    plan: StepPlan,
    float_dtype: str,
    options: Options,
    tile: int,
    fixed: frozenset[str] = frozenset(),
    again: Again | None = None,
    notes: tuple[str, ...] = (),
) -> CompiledScan:
    """The scan of a plan, with its module written.

    Args:
        tile: steps of a tile.
        again: steps of the forward pass that a backward pass runs again.
        notes: notes for people, which come after those of the target.
    """
    _check_rounding(plan, options.target)
    more = {} if again is None else {"again": again}
    written = options.target.write(scan, plan, tile, float_dtype, options.threads, options.width, **more)
    return CompiledScan(
        scan,
        written.plan or plan,
        written.layouts,
        written.text,
        tile,
        written.team,
        options,
        float_dtype,
        fixed,
        (*written.notes, *notes),
    )


def _check_rounding(plan: StepPlan, target: Target) -> None:
    """Raise UnsupportedError if a product rounds its operands, or has narrow weights, and the target cannot do this."""
    nodes = (node for stage in (*plan.stages, *plan.past_end) for node in stage.nodes)
    known = {*target.precisions, *target.weight_types}
    for rounding in {node.rounding for node in nodes if node.rounding}.difference(known):
        what = "have weights of int8" if rounding == INT8 else f"are of operands rounded to {rounding}"
        raise UnsupportedError(f"its products {what}, which the device does not do")


def steps_of_tile(options: Options, steps: int, batch: int) -> int:
    """The number of steps of a tile."""
    return options.tile or max(1, min(steps, options.target.tile_rows // max(1, batch)))
