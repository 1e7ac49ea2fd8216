"""Products on tensor cores: fragments, warps, rounding.

**bfloat16 on a CUDA device**: the same bits as in `kernels/cpu/pointwise.py`.

**The instruction `mma.sync`**: the register and the lane of each matrix element, and the product itself. A warp of 32
lanes multiplies A [16, k] by B [k, 8] and adds C [16, 8]. Each lane holds parts of all three. The places are those of
the PTX ISA ("Warp-level matrix instructions", matrix fragments for `mma.m16n8k8` of `.tf32`, and for `mma.m16n8k16` of
`.bf16` and `.f16`), with lane = 4 * group + member. `multiplied` computes the instruction for all lanes at once. The
simulator uses it, so an element in a wrong lane or register gives a wrong result there, too.

Limits: sums are exact here, and rounded once. Hardware adds products in an order of its own and cuts bits off on the
way. PTX does not specify this.

**Warps in the simulator, which has none**. On a device all 32 lanes of a warp run an instruction together. In the
simulator lanes are threads, which come one after another. Each brings its operands, and the last one computes the
instruction for all (`Warps`). Tests replace `simulated` by an object whose threads take turns. Limits: all 32 lanes of
a warp must come, in the same order of instructions; blocks have one axis of threads.

**Products on tensor cores**: rounding of operands, a warp's fragment of a left side, and its products with weights. A
chunk is 16 numbers of k. Two instructions of tf32, or one of bf16 or f16, multiply it. The instruction's k may stand
for any numbers of k, if both sides use the same ones. Here member t of a group takes the numbers 4 t ... 4 t + 3 of a
chunk, so that one read of 16 bytes gives them. Weights are stored in the order of lanes, `[chunk, tile of 8 columns,
column, 16 numbers of k]`. A lane's four weights of a tile are one read, and those of a warp are neighbours, so that
reads have no bank conflicts.

A warp has one or two groups of 16 rows, and a few tiles of columns. A lane's sums are a tuple of tuples: for each group
of rows, four sums for each tile. Tuples stay in registers, and their type tells the counts. Each function has a twin
for the simulator, exact lane by lane. Limits: compute capability 8.0 or more; all 32 lanes of a warp call
`multiply_...` together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from llvmlite import ir

from rnnops.kernels.cuda.facade import SIMULATED, compiled_as, intrinsic, types

ONE, HALF, WIDTH, QUIET_NAN = np.uint32(1), np.uint32(0x7FFF), np.uint32(16), np.uint32(0x7FC00000)


def _code(kind: Any) -> Callable[[Any], Any]:
    def code(x: Any) -> Any:
        bits = np.uint32(QUIET_NAN if x != x else np.float32(x).view(np.uint32))
        return kind(np.uint32(bits + (np.uint32(bits >> WIDTH) & ONE) + HALF) >> WIDTH)

    return code


def _value(kind: Any) -> Callable[[Any], Any]:
    def value(code: Any) -> Any:
        return kind(np.uint32(np.uint32(code) << WIDTH).view(np.float32))

    return value


_code_single, _code_double = _code(np.float32), _code(np.float64)
_value_single, _value_double = _value(np.float32), _value(np.float64)


@compiled_as(lambda x: {types.float32: _code_single, types.float64: _code_double}.get(x))
def bfloat16_code(x: Any) -> Any:
    """The bits of x as bfloat16, a whole number."""
    return (_code_single if x.dtype == np.float32 else _code_double)(x)


@compiled_as(lambda x: {types.float32: _value_single, types.float64: _value_double}.get(x))
def bfloat16_value(code: Any) -> Any:
    """The number with these bits."""
    return (_value_single if code.dtype == np.float32 else _value_double)(code)


WARP = 32
ROWS, COLUMNS = 16, 8  # of C
MEMBERS = 4  # lanes of a group
SUMS = 4  # numbers of C that a lane holds


@dataclass(frozen=True)
class MmaInstruction:
    """A kind of `mma.sync` with sums in float32.

    Args:
        precision: the format of operands, by its name in `ro.compile`.
        kind: the name of that format in PTX.
        k: elements of a row of A, and of a column of B.
        digits: bits of an operand's significand.
    """

    precision: str
    kind: str
    k: int
    digits: int

    @property
    def name(self) -> str:
        """The instruction's name in PTX."""
        return f"mma.sync.aligned.m16n8k{self.k}.row.col.f32.{self.kind}.{self.kind}.f32"

    @property
    def short(self) -> str:
        """The instruction's name in printed plans."""
        return f"mma.sync.m16n8k{self.k} of {self.kind}"

    @property
    def packed(self) -> int:
        """Elements of an operand that a register holds."""
        return self.k // 8

    @property
    def itemsize(self) -> int:
        """Size of an operand's element in bytes."""
        return 4 // self.packed

    def place_in_a(self, lane: int, number: int) -> tuple[int, int]:
        """Row and k of a lane's element of A; a register holds `packed` neighbouring ones."""
        group, member = divmod(lane, MEMBERS)
        register, half = divmod(number, self.packed)
        return group + 8 * (register % 2), self._k(member, register // 2, half)

    def place_in_b(self, lane: int, number: int) -> tuple[int, int]:
        """K and column of a lane's element of B."""
        group, member = divmod(lane, MEMBERS)
        register, half = divmod(number, self.packed)
        return self._k(member, register, half), group

    def _k(self, member: int, upper: int, half: int) -> int:
        return self.packed * (member + MEMBERS * upper) + half


def place_in_c(lane: int, number: int) -> tuple[int, int]:
    """Row and column of a lane's element of C."""
    group, member = divmod(lane, MEMBERS)
    return group + 8 * (number // 2), 2 * member + number % 2


TFLOAT32 = MmaInstruction("tfloat32", "tf32", 8, 11)
BFLOAT16 = MmaInstruction("bfloat16", "bf16", 16, 8)
FLOAT16 = MmaInstruction("float16", "f16", 16, 11)
INSTRUCTIONS = {one.precision: one for one in (TFLOAT32, BFLOAT16, FLOAT16)}


def multiplied(instruction: MmaInstruction, a: Any, b: Any, c: Any) -> Any:
    """`A @ B + C`, as float32 [32, 4]: the four elements of each lane.

    Args:
        a, b: the registers of all lanes for A and B, as words [32, 4] and [32, 2].
        c: the elements of C of all lanes, float32 [32, 4].
    """
    left, right = np.zeros((ROWS, instruction.k)), np.zeros((instruction.k, COLUMNS))
    total = np.zeros((ROWS, COLUMNS))
    a, b = (elements(instruction, words) for words in (a, b))
    for lane in range(WARP):
        for number, element in enumerate(a[lane]):
            left[instruction.place_in_a(lane, number)] = element
        for number, element in enumerate(b[lane]):
            right[instruction.place_in_b(lane, number)] = element
        for number in range(SUMS):
            total[place_in_c(lane, number)] = c[lane, number]
    with np.errstate(all="ignore"):
        found = (total + left @ right).astype(np.float32)
    return np.array([[found[place_in_c(lane, number)] for number in range(SUMS)] for lane in range(WARP)])


def elements(instruction: MmaInstruction, words: Any) -> Any:
    """The numbers in registers as float64. The lower half of a register comes first; bits below tf32 are cut off."""
    words = np.ascontiguousarray(words, np.uint32)
    if instruction is TFLOAT32:
        return (words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    halves = words.view(np.uint16)
    if instruction is FLOAT16:
        return halves.view(np.float16).astype(np.float64)
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def bits(instruction: MmaInstruction, x: Any) -> Any:
    """The bits of float32 numbers rounded to a precision: uint32 for tf32, uint16 for the others.

    Rounds to the nearest number. Ties: tf32 takes the number of larger size (`cvt.rna`), the others take the even one
    (`cvt.rn`). NaN stays NaN.
    """
    x = np.asarray(x, np.float32)
    if instruction is FLOAT16:
        with np.errstate(over="ignore"):
            return x.astype(np.float16).view(np.uint16)
    pattern = x.view(np.uint32)
    if instruction is TFLOAT32:
        nearest = (pattern + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return np.where(np.isnan(x), np.uint32(0x7FFFE000), nearest)
    nearest = (pattern + np.uint32(0x7FFF) + ((pattern >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint32(0x7FFF), nearest).astype(np.uint16)


def values(instruction: MmaInstruction, pattern: Any) -> Any:
    """The float32 numbers that bits stand for."""
    pattern = np.asarray(pattern)
    if instruction is FLOAT16:
        return pattern.view(np.float16).astype(np.float32)
    shift = np.uint32(0 if instruction is TFLOAT32 else 16)
    return (pattern.astype(np.uint32) << shift).view(np.float32)


SECONDS = 60.0  # time limit for all lanes to come: a lane that has failed never comes


class Meeting:
    """Collects the operands of one warp's lanes for an instruction, and keeps the results."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.round = 0
        self._brought: dict[int, Any] = {}
        self._found: Sequence[Any] = ()

    def bring(self, lane: int, given: Any, together: Callable[[list[Any]], Sequence[Any]]) -> None:
        """Add a lane's operands. The last lane of a round computes the results of all lanes by `together`."""
        self._brought[lane] = given
        if len(self._brought) == WARP:
            self._found = together([self._brought[lane] for lane in range(WARP)])
            self._brought = {}
            self.round += 1
            self.changed.notify_all()

    def taken(self, lane: int) -> Any:
        """A lane's result of the last round. It stays until all lanes have come to the next round."""
        return self._found[lane]


class Warps:
    """The meetings of all warps. The key is the block's object in the simulator, and the warp's number."""

    def __init__(self) -> None:
        self._meetings: dict[tuple[int, int], Meeting] = {}

    def do(self, given: Any, together: Callable[[list[Any]], Sequence[Any]]) -> Any:
        """The result for the calling lane, from the values of all lanes of its warp.

        Args:
            together: a function from the values of all lanes, in their order, to their results.
        """
        thread: Any = threading.current_thread()
        warp, lane = divmod(thread.thread_id, WARP)
        meeting = self._meetings.setdefault((id(self.block_of(thread)), warp), Meeting())
        with meeting.changed:
            before = meeting.round
            meeting.bring(lane, given, together)
            while meeting.round == before:
                self.wait(thread, meeting)
            return meeting.taken(lane)

    def block_of(self, thread: Any) -> Any:
        """The object of a thread's block, which all its threads share."""
        return thread._manager

    def wait(self, thread: Any, meeting: Meeting) -> None:
        """Wait until other lanes come. Raises RuntimeError if one has failed, or after `SECONDS`."""
        if thread.abort or not meeting.changed.wait(SECONDS):
            raise RuntimeError(f"lane {thread.thread_id} waits for others of its warp, which do not come")


simulated = Warps()


CHUNK, TILE_COLUMNS = 16, 8  # numbers of k in a chunk, columns of a tile
OF_TILE = CHUNK * TILE_COLUMNS  # weights of a tile in one chunk
OF_LANE = 4  # weights of a tile in one chunk that a lane holds
HALF_ROWS = ROWS // 2  # distance between the two rows of a lane
CONVERT = {TFLOAT32: "cvt.rna.tf32.f32", BFLOAT16: "cvt.rn.bf16.f32", FLOAT16: "cvt.rn.f16.f32"}
CONVERT_TWO = {BFLOAT16: "cvt.rn.bf16x2.f32", FLOAT16: "cvt.rn.f16x2.f32"}

if SIMULATED:

    def _round_of(instruction: MmaInstruction) -> Any:
        return lambda x: values(instruction, bits(instruction, x))[()]

    def _bits_of(instruction: MmaInstruction) -> Any:
        return lambda x: bits(instruction, x)[()]

    def _left_of(instruction: MmaInstruction) -> Any:
        def left(staged: Any, row: int, last: int, pitch: int, k: int, total: Any) -> tuple[Any, ...]:
            words: list[Any] = []
            for first in range(row, row + ROWS * len(total), ROWS):
                places = [min(one, last) * pitch + k for one in (first, first + HALF_ROWS)]
                rows = [bits(instruction, [staged[place + i] for i in range(OF_LANE)]) for place in places]
                registers = [one.view(np.uint32) for one in rows]  # of two halves, the lower half is the first number
                words += [one[i] for i in range(len(registers[0])) for one in registers]
            return tuple(words)

        return left

    def _multiply_of(instruction: MmaInstruction) -> Any:
        def multiply(total: Any, left: tuple[Any, ...], kept: Any, place: int) -> tuple[Any, ...]:
            sums = np.array(total, np.float32).reshape(len(total), -1, SUMS)
            starts = [place + tile * OF_TILE for tile in range(sums.shape[1])]
            right = [np.array([kept[start + i] for i in range(OF_LANE)]).view(np.uint32) for start in starts]
            given = np.array(left, np.uint32).reshape(len(total), -1), np.array(right), sums
            found: tuple[Any, ...] = simulated.do(given, lambda brought: _together(instruction, brought))
            return found

        return multiply

    def _keep(total: Any, sums: Any, first: int) -> None:
        for number, one in enumerate(chain.from_iterable(total)):
            sums[first + number * WARP] = one

    def _together(instruction: MmaInstruction, brought: list[Any]) -> list[tuple[Any, ...]]:
        """All lanes' sums after all instructions of a chunk."""
        left, right, total = (np.array(parts) for parts in zip(*brought, strict=True))
        for rows, tile in np.ndindex(total.shape[1:3]):
            for one in range(left.shape[2] // 4):
                a, b = left[:, rows, 4 * one : 4 * one + 4], right[:, tile, 2 * one : 2 * one + 2]
                total[:, rows, tile] = multiplied(instruction, a, b, total[:, rows, tile])
        return [tuple(map(tuple, lane)) for lane in total.reshape(*total.shape[:2], -1)]

else:
    WORD, HALF, SINGLE = ir.IntType(32), ir.IntType(16), ir.FloatType()

    def _round_of(instruction: MmaInstruction) -> Any:
        @intrinsic
        def rounded(_context: Any, x: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
                found = _bits(builder, instruction, given[0])
                if instruction is FLOAT16:
                    return builder.fpext(builder.bitcast(found, ir.HalfType()), SINGLE)
                if instruction is BFLOAT16:
                    found = builder.shl(builder.zext(found, WORD), ir.Constant(WORD, 16))
                return builder.bitcast(found, SINGLE)

            return types.float32(types.float32), code

        return rounded

    def _bits_of(instruction: MmaInstruction) -> Any:
        kind = types.uint32 if instruction is TFLOAT32 else types.uint16

        @intrinsic
        def pattern(_context: Any, x: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
                return _bits(builder, instruction, given[0])

            return kind(types.float32), code

        return pattern

    def _left_of(instruction: MmaInstruction) -> Any:
        vector, count = ir.VectorType(SINGLE, OF_LANE), 2 * OF_LANE // instruction.packed

        @intrinsic
        def left(_context: Any, staged: Any, row: Any, last: Any, pitch: Any, k: Any, total: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
                memory, row, last, pitch, k, _ = given
                words = []
                for first in range(0, ROWS * total.count, ROWS):
                    rows = []
                    for more in (first, first + HALF_ROWS):
                        one = builder.add(row, ir.Constant(row.type, more))
                        one = builder.select(builder.icmp_signed("<", one, last), one, last)
                        place = builder.add(builder.mul(one, pitch), k)
                        rows.append(_read(context, builder, staged, memory, place, vector))
                    for i in range(0, OF_LANE, instruction.packed):
                        words += [_register(builder, instruction, one[i : i + instruction.packed]) for one in rows]
                return _array(builder, words)

            numbers = (types.intp,) * 4
            return types.UniTuple(types.uint32, count * total.count)(staged, *numbers, total), code

        return left

    def _multiply_of(instruction: MmaInstruction) -> Any:
        packed = ir.VectorType(WORD, OF_LANE // instruction.packed)

        @intrinsic
        def multiply(_context: Any, total: Any, left: Any, kept: Any, place: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
                words = _numbers(builder, given[1])
                sums = [_numbers(builder, builder.extract_value(given[0], i)) for i in range(total.count)]
                each = len(words) // len(sums)
                for tile in range(len(sums[0]) // SUMS):
                    start = builder.add(given[3], ir.Constant(given[3].type, tile * OF_TILE))
                    right = _read(context, builder, kept, given[2], start, packed)
                    own = slice(SUMS * tile, SUMS * tile + SUMS)
                    for first in range(0, each, 4):  # in between, other rows: their sums need not wait for these
                        for row, some in enumerate(sums):
                            a, b = (
                                words[row * each + first : row * each + first + 4],
                                right[first // 2 : first // 2 + 2],
                            )
                            some[own] = _mma(builder, instruction, [*a, *b, *some[own]])
                return _array(builder, [_array(builder, some) for some in sums])

            return total(total, left, kept, types.intp), code

        return multiply

    @intrinsic
    def _keep(_context: Any, total: Any, sums: Any, first: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> None:
            rows = [_numbers(builder, builder.extract_value(given[0], i)) for i in range(total.count)]
            for number, one in enumerate(chain.from_iterable(rows)):
                place = builder.add(given[2], ir.Constant(given[2].type, number * WARP))
                builder.store(one, builder.gep(_start(context, builder, sums, given[1]), [place]))

        return types.void(total, sums, types.intp), code

    def _mma(builder: Any, instruction: MmaInstruction, operands: list[Any]) -> list[Any]:
        sums = ", ".join(f"${i}" for i in range(SUMS))
        a, b, c = (", ".join(f"${i}" for i in range(*ends)) for ends in ((4, 8), (8, 10), (10, 14)))
        text = f"{instruction.name} {{{sums}}}, {{{a}}}, {{{b}}}, {{{c}}};"
        kind = ir.FunctionType(ir.LiteralStructType([SINGLE] * SUMS), [operand.type for operand in operands])
        constraints = ",".join(["=f"] * SUMS + ["r"] * 6 + ["f"] * SUMS)
        found = builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), operands, attrs=("convergent",))
        return [builder.extract_value(found, i) for i in range(SUMS)]

    def _register(builder: Any, instruction: MmaInstruction, numbers: list[Any]) -> Any:
        """Neighbouring numbers in a register. The first one is in the lower half."""
        if instruction is TFLOAT32:
            return _bits(builder, instruction, numbers[0])
        text = f"{CONVERT_TWO[instruction]} $0, $1, $2;"
        return builder.call(ir.InlineAsm(ir.FunctionType(WORD, [SINGLE, SINGLE]), text, "=r,f,f"), numbers[::-1])

    def _bits(builder: Any, instruction: MmaInstruction, number: Any) -> Any:
        result, constraint = (WORD, "=r") if instruction is TFLOAT32 else (HALF, "=h")
        kind = ir.FunctionType(result, [SINGLE])
        return builder.call(ir.InlineAsm(kind, f"{CONVERT[instruction]} $0, $1;", f"{constraint},f"), [number])

    def _read(context: Any, builder: Any, kind: Any, value: Any, place: Any, vector: Any) -> list[Any]:
        """Neighbouring numbers from memory, by one instruction."""
        pointer = builder.gep(_start(context, builder, kind, value), [place])
        found = builder.load(builder.bitcast(pointer, vector.as_pointer()))
        found.align = 4 * vector.count
        return [builder.extract_element(found, ir.Constant(WORD, i)) for i in range(vector.count)]

    def _start(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        return context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value

    def _numbers(builder: Any, given: Any) -> list[Any]:
        return [builder.extract_value(given, i) for i in range(given.type.count)]

    def _array(builder: Any, numbers: list[Any]) -> Any:
        found = ir.Constant(ir.ArrayType(numbers[0].type, len(numbers)), ir.Undefined)
        for i, number in enumerate(numbers):
            found = builder.insert_value(found, number, i)
        return found


round_tfloat32, round_bfloat16, round_float16 = map(_round_of, (TFLOAT32, BFLOAT16, FLOAT16))
"""A float32 number after rounding, as float32."""
bits_tfloat32, bits_bfloat16, bits_float16 = map(_bits_of, (TFLOAT32, BFLOAT16, FLOAT16))
"""The bits of a rounded float32 number: a word for tf32, half a word for the others."""
left_tfloat32, left_bfloat16, left_float16 = map(_left_of, (TFLOAT32, BFLOAT16, FLOAT16))
"""`left(staged, row, last, pitch, k, total)`: a lane's registers for a chunk of a left side.

They hold the four numbers from `k` on of rows `row` and `row + 8`, and of the rows 16 further on for each more group of
16 rows in `total`. Row `last` replaces all rows after it. Rows are `pitch` numbers apart.
"""
multiply_tfloat32, multiply_bfloat16, multiply_float16 = map(_multiply_of, (TFLOAT32, BFLOAT16, FLOAT16))
"""`multiply(total, left, kept, place)`: the sums `total` of all tiles plus the products of a chunk.

`place` is the index of a lane's four weights of the first tile. Those of the next tile are `OF_TILE` further on.
"""
keep_fragments = _keep
"""`keep_fragments(total, sums, first)`: `sums[first + n * WARP]` becomes a lane's sum `n`, in the order of `total`."""


def no_sums(tiles: int, times: int = 1) -> tuple[tuple[Any, ...], ...]:
    """Sums of a lane before the first product: zeros.

    Args:
        times: groups of 16 rows.
    """
    return ((np.float32(0),) * (SUMS * tiles),) * times
