"""Micro-kernels of matrix products, as LLVM IR: tiles of C that stay in vector registers while k runs.

The inner levels of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (ACM TOMS 34(3), 2008). A
tile has `rows` x `vectors` sums. A step over k loads `vectors` vectors of B from a panel `[K][vectors * lanes]` and
broadcasts `rows` numbers of A. It then does rows * vectors multiply-adds. A is read in place with any strides, so A^T
costs nothing. A block is all tiles of one panel, from the first row to the last.

With 8 x 3 vectors of 64 bytes a step does 24 multiply-adds of 16 lanes, 768 flops in float32. It reads 192 bytes of B
and 32 of A from L1 or L2, so it does 3.4 flops a byte. The 24 sums, 3 vectors of B and the broadcasts fill the 32
registers of AVX-512 and of aarch64. With 16 registers the tile is 4 x 3.

Every element of C is `addend + sum`. The sum is one chain of multiply-adds over k, in order. It starts from zero, or
from C if the chain goes on from an earlier block of k. The rows of the tile, the lane, the vector width and the cut
into blocks do not change that chain. So results do not depend on how C and k are cut into tiles. Multiply-adds are
fused on all widths if the processor has such an instruction (`llvm.fmuladd`).

On x86 a turn of the loop is four steps, and addresses are offsets of instructions. So a step of 4 x 3 vectors takes 24
instructions for its 12 multiply-adds; few processors decode more in 6 cycles.

Lines of C are prefetched when a tile starts. Each k prefetches two lines of the next panel, whose rows the last tiles
of a block share out among them. A panel that comes from memory is then there when its turn comes (16 x 1024 x 4096 in
float32 takes three quarters of the time).

If B holds whole numbers of a byte each (`narrow`), a vector of a panel has one byte for each lane. It is widened to
floats as it is loaded. The chain of multiply-adds is the same, so the bits are those of the same numbers as floats.

Limits: rows of C and of the addend must be contiguous. The last vector of a block may be partial. C and the addend are
then read and written through a mask. B is not masked, since its panels are padded.

**Vectors of floats in LLVM IR**: loads, stores, masks, broadcasts and multiply-adds. Lanes of pairs are words of two
bfloat16 numbers, which are loaded like float32. A multiply-add of pairs adds the product of the upper halves to
float32, then that of the lower halves, each rounded once. The instruction is `vdpbf16ps` of AVX512-BF16. It takes
numbers below the smallest normal one for zeros and makes zeros of them. Lanes of quads are words of four bytes. A
multiply-add of quads adds four products to a whole number of 32 bits (`vpdpbusd` of VNNI), whose bits lie in a float.

A vector has as many lanes as its width in bits allows. A width of 64 bits means scalar code, one lane of either dtype.
LLVM splits a vector if the processor has no registers of its width: every width runs everywhere, but perhaps slowly.

Masked loads and stores touch no memory outside the mask. AVX and AVX-512 have instructions for them; elsewhere LLVM
makes a branch for each lane, so they are for edges only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from rnnops.kernels.cpu.processor import ARM, ITEM_SIZES, PAIRS, QUADS, host, lanes
from rnnops.kernels.cpu.words import ModulePart

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
BYTES = ir.IntType(8).as_pointer()
FLOATS = {"float32": ir.FloatType(), "float64": ir.DoubleType(), PAIRS: ir.FloatType(), QUADS: ir.FloatType()}


class BFloat16(ir.Type):
    """LLVM's type bfloat, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat16)

    def __hash__(self) -> int:
        return hash(BFloat16)


class Vectors:
    """Emits operations on vectors of one type. Pointers are to bytes, and only aligned to single numbers."""

    def __init__(self, builder: ir.IRBuilder, dtype: str, count: int) -> None:
        self.builder, self.dtype, self.scalar, self.size = builder, dtype, FLOATS[dtype], ITEM_SIZES[dtype]
        self.count, self.bytes = count, count * self.size
        self.type, self.whole = ir.VectorType(self.scalar, count), ir.VectorType(I32, count)
        self.zero = ir.Constant(self.type, [0.0] * count)
        self.name = f"v{count}f{8 * self.size}"

    def load(self, pointer: Any, mask: Any = None) -> Any:
        """Lanes outside the mask are zero."""
        at = self._typed(pointer, self.type)
        if mask is None:
            loaded = self.builder.load(at)
            loaded.align = self.size
            return loaded
        function = self.declare(f"llvm.masked.load.{self.name}.p0", self.type, [at.type, I32, mask.type, self.type])
        return self.builder.call(function, [at, I32(self.size), mask, self.zero])

    def load_bytes(self, pointer: Any) -> Any:
        """Whole numbers of a byte each, with their signs, as floats."""
        loaded = self.builder.load(self._typed(pointer, ir.VectorType(I8, self.count)))
        loaded.align = 1
        return self.builder.sitofp(self.builder.sext(loaded, self.whole), self.type)

    def store(self, value: Any, pointer: Any, mask: Any = None) -> None:
        """Lanes outside the mask keep what they hold."""
        at = self._typed(pointer, self.type)
        if mask is None:
            self.builder.store(value, at).align = self.size
            return
        arguments = [self.type, at.type, I32, mask.type]
        function = self.declare(f"llvm.masked.store.{self.name}.p0", ir.VoidType(), arguments)
        self.builder.call(function, [value, at, I32(self.size), mask])

    def broadcast(self, pointer: Any) -> Any:
        """The number at the pointer in every lane."""
        return self._splat(self.builder.load(self._typed(pointer, self.scalar)), self.type)

    def prefetch(self, pointer: Any, write: bool = False) -> None:
        """Asks for the line of memory around the pointer; never a fault."""
        function = self.declare("llvm.prefetch.p0", ir.VoidType(), [BYTES, I32, I32, I32])
        self.builder.call(function, [pointer, I32(int(write)), I32(3), I32(1)])

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """`a * b + c`, rounded once if the processor can do so. For words, one multiply-add for each number in them."""
        if self.dtype in (PAIRS, QUADS):
            return self._add_words(a, b, c)
        return self.builder.call(self.declare(f"llvm.fmuladd.{self.name}", self.type, [self.type] * 3), [a, b, c])

    def _add_words(self, a: Any, b: Any, c: Any) -> Any:
        halves = ("avx512bf16.dpbf16ps", ir.VectorType(BFloat16(), 2 * self.count), self.type)
        name, words, sums = halves if self.dtype == PAIRS else ("avx512.vpdpbusd", self.whole, self.whole)
        function = self.declare(f"llvm.x86.{name}.{32 * self.count}", sums, [sums, words, words])
        operands = [self.builder.bitcast(x, kind) for x, kind in ((c, sums), (a, words), (b, words))]
        return self.builder.bitcast(self.builder.call(function, operands), self.type)

    def total(self, c: Any) -> Any:
        """The result of multiply-adds, as floats."""
        return self.builder.sitofp(self.builder.bitcast(c, self.whole), self.type) if self.dtype == QUADS else c

    def mask(self, count: Any) -> Any:
        """The first `count` lanes; all lanes if `count` is larger."""
        indices = ir.VectorType(I64, self.count)
        lane = ir.Constant(indices, list(range(self.count)))
        return self.builder.icmp_unsigned("<", lane, self._splat(count, indices))

    def shuffle(self, a: Any, b: Any, places: Sequence[int]) -> Any:
        """A vector of lanes of two vectors, by their places in both, one after the other."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, self.count), [I32(p) for p in places]))

    def _splat(self, value: Any, kind: ir.VectorType) -> Any:
        undefined = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(undefined, value, I32(0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, kind.count), None))

    def _typed(self, pointer: Any, kind: ir.Type) -> Any:
        return self.builder.bitcast(pointer, kind.as_pointer())

    def declare(self, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
        """An intrinsic function."""
        module = self.builder.module
        if name not in module.globals:
            ir.Function(module, ir.FunctionType(result, arguments), name)
        return module.globals[name]


def define(
    module: ir.Module, name: str, arguments: Sequence[ir.Type], emit: Callable[[ir.Function], None]
) -> ir.Function:
    """A function without result in a module. It is emitted at its first use, and not inlined."""
    if name not in module.globals:
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        emit(function)
    return module.globals[name]


@contextmanager
def loop_to(builder: ir.IRBuilder, count: Any) -> Iterator[Any]:
    """A loop over the whole numbers below `count`. Code that is emitted within the context is its body."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(I64(0), before)
    builder.cbranch(builder.icmp_signed("<", index, count), inside, after)
    builder.position_at_end(inside)
    yield index
    index.add_incoming(builder.add(index, I64(1)), builder.block)
    builder.branch(head)
    builder.position_at_end(after)


def strided(builder: ir.IRBuilder, pointer: Any, stride: Any, count: int) -> list[Any]:
    """Pointers to `count` rows that are `stride` bytes apart."""
    return [builder.gep(pointer, [builder.mul(stride, I64(i))]) for i in range(count)]


LINE = 64  # bytes
TILES_AHEAD = 8  # the last tiles of a block, which prefetch lines of the next panel
PANEL_VECTORS = 3  # vectors in a full panel
PANELS_AT_ONCE = {1: (4, 2), 2: (2,)}  # rows -> panels of a tile; with one panel, few rows have too few sums at a time


@dataclass(frozen=True)
class MicroTile:
    """The tile of a micro-kernel: `panels` neighbouring panels of `vectors` vectors of `lanes` numbers."""

    dtype: str
    lanes: int
    rows: int
    vectors: int
    panels: int = 1
    ahead: bool = False  # the tile prefetches lines of the next panel
    narrow: bool = False  # numbers of B are bytes
    turn: int = 1  # steps over k in one turn of the loop

    @property
    def name(self) -> str:
        shape = f"{self.rows}x{self.panels}x{self.vectors}x{self.lanes}"
        return f"tile_{self.dtype}{_of_bytes(self.narrow)}_{shape}{'_ahead' if self.ahead else ''}"

    @property
    def key(self) -> int:
        """A number that no other tile of the same vector width has."""
        return (self.rows * 16 + self.vectors) * 16 + self.panels


@dataclass(frozen=True)
class Operands:
    """Arguments of tiles and blocks. Strides are in bytes.

    Args:
        a_row, a_step, b_panel: strides from row to row of A, from k to k of A, from panel to panel of B.
        addend_row, last: stride of addends, 0 if all rows have the same ones; columns of the last vector.
        ahead, ahead_row, ahead_rate: the next panel, and its row stride; each k prefetches `ahead_rate` / 2^32 rows.
        goes_on: 1 if sums begin with the values of C, 0 if they begin with zero.
    """

    a: Any
    a_row: Any
    a_step: Any
    b: Any
    b_panel: Any
    k: Any
    addend: Any
    addend_row: Any
    c: Any
    c_row: Any
    last: Any
    ahead: Any
    ahead_row: Any
    ahead_rate: Any
    goes_on: Any

    def values(self) -> list[Any]:
        return list(vars(self).values())


TURN = 4  # steps over k in one turn of the loop of a tile, where addresses are offsets of instructions
ROWS_OF_POINTER = 4
WIDEST = PANEL_VECTORS * max(max(some) for some in PANELS_AT_ONCE.values())  # vectors of a tile
TILE_TYPES = (BYTES, I64, I64, BYTES, I64, I64, BYTES, I64, BYTES, I64, I64, BYTES, I64, I64, I64)
BLOCK_TYPES = (I64, I64, I64, *TILE_TYPES)
COPY_TYPES = (BYTES, I64, BYTES, I64, I64)
TURN_TYPES = (BYTES, I64, BYTES, I64)


def most_tile_rows(width: int) -> int:
    """Rows of a full tile: as many as fit the registers, next to three vectors of B and a broadcast."""
    return 8 if width == 512 or host().machine in ARM else 4


def tiles(dtype: str, width: int, narrow: bool = False) -> list[MicroTile]:
    """All tiles that a product may need. Narrow panels are small, a quarter of a line a vector, and not prefetched."""
    count, turn = lanes(width, dtype), 1 if host().machine in ARM else TURN
    shapes = [(r, v) for r in range(1, most_tile_rows(width) + 1) for v in range(1, PANEL_VECTORS + 1)]
    large = [not narrow and 2 * r > most_tile_rows(width) for r, _ in shapes]
    single = [
        MicroTile(dtype, count, *shape, 1, ahead, narrow, turn) for shape, ahead in zip(shapes, large, strict=True)
    ]
    several = [(r, panels) for r, some in PANELS_AT_ONCE.items() for panels in some]
    return single + [
        MicroTile(dtype, count, r, PANEL_VECTORS, panels, narrow=narrow, turn=turn) for r, panels in several
    ]


def micro_kernels(
    dtype: str, width: int, define_more: Callable[[ir.Module], None] | None = None, narrow: bool = False
) -> str:
    """All micro-kernels and copies for products of a dtype, as text of an LLVM module. `define_more` adds others."""
    module = ir.Module("micro_kernels")
    if define_more is not None:
        define_more(module)
    define_block(module, dtype, width, narrow)
    for vectors in range(1, PANEL_VECTORS + 1):
        define_copy(module, dtype, lanes(width, dtype), vectors)
    row = ir.ArrayType(FLOATS[dtype], WIDEST * lanes(512, dtype))
    zeros = ir.GlobalVariable(module, row, zeros_name(dtype))
    zeros.initializer, zeros.linkage, zeros.global_constant = ir.Constant(row, None), "internal", True
    return str(module)


def zeros_name(dtype: str) -> str:
    """The name of a row of zeros as long as the widest tile is at 512 bits."""
    return f"zeros_{dtype}"


def block_part(dtype: str, width: int, narrow: bool = False) -> ModulePart:
    """The function of `define_block`, for calls from functions of words."""
    return ModulePart(_block_name(dtype, width, narrow), _kinds(BLOCK_TYPES))


def copy_part(dtype: str, width: int, vectors: int) -> ModulePart:
    """The function of `define_copy`, for calls from functions of words."""
    return ModulePart(_copy_name(dtype, lanes(width, dtype), vectors), _kinds(COPY_TYPES))


def turn_part(dtype: str, width: int) -> ModulePart:
    """The function of `define_turn`, for calls from functions of words."""
    return ModulePart(_turn_name(dtype, width), _kinds(TURN_TYPES))


def _turn_name(dtype: str, width: int) -> str:
    return f"turn_{dtype}_{width}"


def _kinds(types: Iterable[ir.Type]) -> tuple[str, ...]:
    return tuple("ptr" if kind == BYTES else "i64" for kind in types)


def _block_name(dtype: str, width: int, narrow: bool) -> str:
    return f"block_{dtype}{_of_bytes(narrow)}_{width}"


def _of_bytes(narrow: bool) -> str:
    return "_by_int8" if narrow else ""


def _copy_name(dtype: str, count: int, vectors: int) -> str:
    return f"copy_{dtype}_{vectors}x{count}"


def define_block(module: ir.Module, dtype: str, width: int, narrow: bool = False) -> ir.Function:
    """A function (rows, vectors, panels, *operands): C in the columns of some panels, tile by tile.

    Rows are shared out evenly: 17 are 5, 6 and 6, not 8, 8 and 1.
    """
    choices = tiles(dtype, width, narrow)
    return define(module, _block_name(dtype, width, narrow), BLOCK_TYPES, lambda f: _emit_block(f, choices, width))


def _emit_block(function: ir.Function, choices: list[MicroTile], width: int) -> None:
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    rows, vectors, panels, *rest = function.args
    full = most_tile_rows(width)
    count = builder.udiv(builder.add(rows, I64(full - 1)), I64(full))
    with loop_to(builder, count) as i:
        begin, end = (builder.udiv(builder.mul(rows, one), count) for one in (i, builder.add(i, I64(1))))
        part = _share_ahead(builder, _from_row(builder, Operands(*rest), begin), i, count)
        _emit_choice(builder, (builder.sub(end, begin), vectors, panels), choices, part)
    builder.ret_void()


def _from_row(builder: ir.IRBuilder, operands: Operands, row: Any) -> Operands:
    """The operands of a tile that starts at this row."""
    starts = ((operands.a, operands.a_row), (operands.addend, operands.addend_row), (operands.c, operands.c_row))
    a, addend, c = (builder.gep(pointer, [builder.mul(stride, row)]) for pointer, stride in starts)
    return replace(operands, a=a, addend=addend, c=c)


def _share_ahead(builder: ir.IRBuilder, operands: Operands, index: Any, count: Any) -> Operands:
    """A tile's operands. Each of a block's last tiles prefetches a share of the next panel, a single tile nothing."""
    few = builder.icmp_unsigned("<", count, I64(TILES_AHEAD))
    sharing = builder.select(few, count, I64(TILES_AHEAD))
    idle = builder.sub(count, sharing)
    busy = builder.and_(builder.icmp_unsigned(">=", index, idle), builder.icmp_unsigned(">", count, I64(1)))
    row = builder.udiv(builder.mul(operands.k, builder.sub(index, idle)), sharing)
    ahead = builder.gep(operands.ahead, [builder.mul(operands.ahead_row, row)])
    rate = builder.udiv(operands.ahead_rate, sharing)
    nothing = (operands.ahead, I64(0))
    ahead, rate = (builder.select(busy, x, y) for x, y in zip((ahead, rate), nothing, strict=True))
    return replace(operands, ahead=ahead, ahead_rate=rate)


def _emit_choice(builder: ir.IRBuilder, shape: Iterable[Any], choices: list[MicroTile], operands: Operands) -> None:
    """Calls the tile of this shape (rows, vectors, panels)."""
    key = I64(0)
    for part in shape:
        key = builder.add(builder.mul(key, I64(16)), part)
    nowhere, after = builder.append_basic_block("nowhere"), builder.append_basic_block("after")
    switch = builder.switch(key, nowhere)
    for tile in choices:
        block = builder.append_basic_block(tile.name)
        switch.add_case(I64(tile.key), block)
        builder.position_at_end(block)
        builder.call(define_tile(builder.module, tile), operands.values())
        builder.branch(after)
    builder.position_at_end(nowhere)
    builder.unreachable()
    builder.position_at_end(after)


def define_tile(module: ir.Module, tile: MicroTile) -> ir.Function:
    """A function (*operands) for one tile."""
    return define(module, tile.name, TILE_TYPES, lambda function: _TileBuilder(tile, function).build())


class _TileBuilder:
    """Emits the body of one tile function; sums are rows of vectors."""

    def __init__(self, tile: MicroTile, function: ir.Function) -> None:
        self.tile = tile
        self.operands = Operands(*function.args)
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.vectors = Vectors(self.builder, tile.dtype, tile.lanes)
        self.columns = [I64(v * self.vectors.bytes) for v in range(tile.vectors * tile.panels)]

    def build(self) -> None:
        for row in strided(self.builder, self.operands.c, self.operands.c_row, self.tile.rows):
            for offset in self.columns:
                self.vectors.prefetch(self.builder.gep(row, [offset]), write=True)
        self._store(self._loop())
        self.builder.ret_void()

    def _loop(self) -> list[list[Any]]:
        """`for k: sums[r][v] += a[r] * b[v]`. Without any k, sums have their first values.

        Numbers of A lie side by side along k or along rows. Each case has a loop with a constant stride, for addresses.
        """
        builder, operands, item = self.builder, self.operands, I64(self.vectors.size)
        first = self._first_sums()
        along, across, after = (builder.append_basic_block(name) for name in ("along", "across", "summed"))
        builder.cbranch(builder.icmp_signed("==", operands.a_step, item), along, across)
        ways = []
        for block, known in ((along, {"a_step": item}), (across, {"a_row": item})):
            builder.position_at_end(block)
            self.operands = replace(operands, **known)
            whole = builder.and_(operands.k, I64(-self.tile.turn))
            sums = self._steps(first, I64(0), whole, self.tile.turn)
            if self.tile.turn > 1:
                sums = self._steps(sums, whole, operands.k, 1)
            ways.append((builder.block, sums))
            builder.branch(after)
        builder.position_at_end(after)
        (one, others), (other, more) = ways
        pairs = [zip(*rows, strict=True) for rows in zip(others, more, strict=True)]
        return [[self._either((one, x), (other, y)) for x, y in row] for row in pairs]

    def _steps(self, first: list[list[Any]], begin: Any, end: Any, count: int) -> list[list[Any]]:
        """The sums after all k from `begin` to `end`, in a loop over so many at a time."""
        builder = self.builder
        a_rows = self._rows_of_a()
        b_panels = strided(builder, self.operands.b, self.operands.b_panel, self.tile.panels)
        before, body, after = builder.block, builder.append_basic_block("body"), builder.append_basic_block("after")
        builder.cbranch(builder.icmp_signed("<", begin, end), body, after)
        builder.position_at_end(body)
        k = builder.phi(I64)
        sums = [[builder.phi(self.vectors.type) for _ in self.columns] for _ in a_rows]
        added = sums
        for place in range(count):
            if self.tile.ahead and place % 2 == 0 and count == self.tile.turn:
                self._ask_ahead(builder.add(k, I64(place)))
            added = self._step(a_rows, b_panels, builder.add(k, I64(place)), added)
        next_k = builder.add(k, I64(count))
        builder.cbranch(builder.icmp_signed("<", next_k, end), body, after)
        _set_phi(k, (before, begin), (body, next_k))
        for rows in zip(sums, first, added, strict=True):
            for total, start, more in zip(*rows, strict=True):
                _set_phi(total, (before, start), (body, more))
        builder.position_at_end(after)
        pairs = [zip(*rows, strict=True) for rows in zip(first, added, strict=True)]
        return [[self._either((before, start), (body, total)) for start, total in row] for row in pairs]

    def _rows_of_a(self) -> list[Any]:
        """Pointers to rows of A, each row its own if the stride is constant; else one pointer for four rows.

        LLVM must not see the strides: it would chain addresses or load neighbours together, and lack registers.
        """
        builder, (a, a_row) = self.builder, (self.operands.a, self.operands.a_row)
        hidden = ir.InlineAsm(ir.FunctionType(BYTES, [BYTES]), "", "=r,0")
        rows, each = list[Any](), 1 if isinstance(a_row, ir.Constant) else ROWS_OF_POINTER
        for first in range(0, self.tile.rows, each):
            start = builder.call(hidden, [builder.gep(a, [builder.mul(a_row, I64(first))])])
            rows += strided(builder, start, a_row, min(each, self.tile.rows - first))
        return rows

    def _first_sums(self) -> list[list[Any]]:
        """The values of C, or zeros."""
        builder, zero = self.builder, self.vectors.zero
        before, load, after = builder.block, builder.append_basic_block("load"), builder.append_basic_block("loaded")
        builder.cbranch(builder.icmp_signed(">", self.operands.goes_on, I64(0)), load, after)
        builder.position_at_end(load)
        mask = self.vectors.mask(self.operands.last)
        columns = [(offset, None) for offset in self.columns[:-1]] + [(self.columns[-1], mask)]
        c_rows = strided(builder, self.operands.c, self.operands.c_row, self.tile.rows)
        held = [[self.vectors.load(builder.gep(row, [offset]), only) for offset, only in columns] for row in c_rows]
        builder.branch(after)
        builder.position_at_end(after)
        return [[self._either((before, zero), (load, value)) for value in row] for row in held]

    def _step(self, a_rows: list[Any], b_panels: list[Any], k: Any, sums: list[list[Any]]) -> list[list[Any]]:
        """The sums after one more k."""
        builder, vectors = self.builder, self.vectors
        a_offset = builder.mul(k, self.operands.a_step)
        nbytes, load = (vectors.count, vectors.load_bytes) if self.tile.narrow else (vectors.bytes, vectors.load)
        b_offset = builder.mul(k, I64(self.tile.vectors * nbytes))
        columns = [builder.add(b_offset, I64(v * nbytes)) for v in range(self.tile.vectors)]
        b = [load(builder.gep(panel, [column])) for panel in b_panels for column in columns]
        added = []
        for a_row, row in zip(a_rows, sums, strict=True):
            a = vectors.broadcast(builder.gep(a_row, [a_offset]))
            added.append([vectors.multiply_add(a, y, total) for y, total in zip(b, row, strict=True)])
        return added

    def _ask_ahead(self, k: Any) -> None:
        """Prefetch four lines of a row for every two k. If a turn is one k: two at even k, the next two at odd k."""
        builder, operands, lines = self.builder, self.operands, range(0, 4 * LINE, LINE)
        row = builder.lshr(builder.mul(k, operands.ahead_rate), I64(32))
        start = builder.mul(row, operands.ahead_row)
        if self.tile.turn == 1:
            start = builder.add(start, builder.mul(builder.and_(k, I64(1)), I64(2 * LINE)))
            lines = lines[:2]
        for line in lines:
            self.vectors.prefetch(builder.gep(operands.ahead, [builder.add(start, I64(line))]))

    def _either(self, *incoming: tuple[Any, Any]) -> Any:
        phi = self.builder.phi(self.vectors.type)
        _set_phi(phi, *incoming)
        return phi

    def _store(self, sums: list[list[Any]]) -> None:
        """`c = addend + sum`. The last vector goes through a mask if it is partial."""
        mask = self.vectors.mask(self.operands.last)
        partial = self.builder.icmp_unsigned("<", self.operands.last, I64(self.tile.lanes))
        with self.builder.if_else(partial, likely=False) as (then, otherwise):
            with then:
                self._store_through(mask, sums)
            with otherwise:
                self._store_through(None, sums)

    def _store_through(self, last: Any, sums: list[list[Any]]) -> None:
        """All loads come before all stores, because a load may wait for a store to the same offset in another page.
        Rows of C whose length is a power of two have the same offset."""
        builder, rows = self.builder, self.tile.rows
        columns = [(offset, None) for offset in self.columns[:-1]] + [(self.columns[-1], last)]
        addends = strided(builder, self.operands.addend, self.operands.addend_row, rows)
        loaded = [[self.vectors.load(builder.gep(p, [offset]), mask) for offset, mask in columns] for p in addends]
        totals = [
            [builder.fadd(x, self.vectors.total(own)) for x, own in zip(*pair, strict=True)]
            for pair in zip(loaded, sums, strict=True)
        ]
        for c, row in zip(strided(builder, self.operands.c, self.operands.c_row, rows), totals, strict=True):
            for (offset, mask), total in zip(columns, row, strict=True):
                self.vectors.store(total, builder.gep(c, [offset]), mask)


def _set_phi(phi: Any, *incoming: tuple[Any, Any]) -> None:
    for block, value in incoming:
        phi.add_incoming(value, block)


def define_copy(module: ir.Module, dtype: str, count: int, vectors: int) -> ir.Function:
    """A function (source, source_row, panel, k, last): k rows of a matrix into a panel of `vectors` vectors, zero after
    column `last` of the last vector."""
    return define(module, _copy_name(dtype, count, vectors), COPY_TYPES, lambda f: _emit_copy(f, dtype, count, vectors))


def _emit_copy(function: ir.Function, dtype: str, count: int, vectors: int) -> None:
    source, source_row, panel, k_end, last = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    on = Vectors(builder, dtype, count)
    masks = [None] * (vectors - 1) + [on.mask(last)]
    with loop_to(builder, k_end) as k:
        start = builder.gep(source, [builder.mul(k, source_row)])
        target = builder.gep(panel, [builder.mul(k, I64(vectors * on.bytes))])
        for v, mask in enumerate(masks):
            offset = [I64(v * on.bytes)]
            on.store(on.load(builder.gep(start, offset), mask), builder.gep(target, offset))
    builder.ret_void()


def define_turn(module: ir.Module, dtype: str, width: int) -> ir.Function:
    """A function (source, source_row, target, target_row) that transposes a square of as many rows as lanes."""
    return define(module, _turn_name(dtype, width), TURN_TYPES, lambda f: _emit_turn(f, dtype, lanes(width, dtype)))


def _emit_turn(function: ir.Function, dtype: str, count: int) -> None:
    """In squares of 2 x 2, then 4 x 4 and so on, the two corners off the diagonal change places."""
    source, source_row, target, target_row = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    on, step = Vectors(builder, dtype, count), 1
    rows = [on.load(at) for at in strided(builder, source, source_row, count)]
    while step < count:
        upper = [lane + count - step if lane & step else lane for lane in range(count)]
        lower = [lane + count if lane & step else lane + step for lane in range(count)]
        for i in range(count):
            if not i & step:
                pair = rows[i], rows[i + step]
                rows[i], rows[i + step] = (on.shuffle(*pair, places) for places in (upper, lower))
        step *= 2
    for row, at in zip(rows, strided(builder, target, target_row, count), strict=True):
        on.store(row, at)
    builder.ret_void()
