"""A module of kernel IR as LLVM IR: its pointwise kernels and its driver. Text that repeats is written only once.

Pointwise kernels are not copied into the driver: their pointers do not overlap within one call, but one step reads the
values that another wrote. `kernels/cpu/threads.py` describes the arguments of drivers.

**Repeated bodies**. A step of 100 equal layers has 100 equal pointwise kernels, products and loops over rows, which
differ in the arrays and sizes that they are given. LLVM's time grows with the text, and faster than the text where a
function has hundreds of addresses to keep. So pointwise kernels with the same text are one function, and a body that
the driver has `MANY` times becomes a function too. Such a body finds its arrays and sizes by numbers in a table; it is
called with its part of the table, and with the driver's variables.

Bodies are the parts of a driver without loops in loops, each with the variables that only it reads. Drivers with fewer
bodies stay as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.lower.expressions import INDEX, Expr, Literal, Name, ScalarCall, names_in, parts_of
from rnnops.compiler.targets.llvm_text import (
    BLOCK,
    CUT,
    FLOATS,
    LANES,
    NO_SYMBOLS,
    PIECE_LANES,
    QUICK,
    STEPS,
    Body,
    RowSum,
    Scalars,
    declared,
    llvm_type,
)
from rnnops.kernels.cpu.processor import host
from rnnops.util import MadeOnDemand

MANY = 8  # equal bodies from which on they become a function
PERIOD = 16  # the longest sequence of calls that is looked for again right after it
MASKED = 4  # bytes of the smallest numbers that masked loads and stores take
CHEAP = ("wait", "prefetch")  # calls that are not worth a function around them
MARK = re.compile(r"!llvm\.loop !\d+")
Place = tuple[int, int]  # id of the statements around a body, and the number of the body's first


def llvm_text(module: ir.Module, name: str, symbols: Mapping[str, str], given: Sequence[str]) -> tuple[str, Scalars]:
    """The text of an LLVM module, and the scalar functions that it needs.

    Args:
        name: of the driver in LLVM.
        symbols: function that drivers call -> its name in LLVM.
        given: names of the arrays that every driver gets before those of the module, all int64.
    """
    scalars = Scalars()
    programs, same = _programs(module, scalars, symbols)
    driver = _Driver(module, scalars, symbols, given, same)
    texts = driver.text(name)
    return "\n\n".join([*scalars.declared.values(), *programs, *texts, *scalars.metadata(), ""]), scalars


def _programs(module: ir.Module, scalars: Scalars, symbols: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The texts of pointwise kernels, and kernel -> the first one with its text."""
    firsts: dict[tuple[str, ...], str] = {}
    texts, same = [], {}
    for program in module.programs:
        marks = len(scalars.marks)
        text = Row(replace(program, name=""), scalars, symbols).text()
        key = MARK.sub("", text), *scalars.marks[marks:]
        same[program.name] = firsts.setdefault(key, program.name)
        if same[program.name] == program.name:
            texts.append(_named(text, program.name))
        else:
            del scalars.marks[marks:]
    return texts, same


def _named(text: str, name: str) -> str:
    return text.replace(" @(", f" @{name}(", 1)


class Row(Body):
    """Writes a pointwise kernel. Its sums go by blocks (`llvm_text.py`)."""

    def __init__(self, function: ir.Function, scalars: Scalars, symbols: Mapping[str, str] = NO_SYMBOLS) -> None:
        super().__init__(function, scalars, symbols)
        self.factors = sums_of(function.body)
        self.sums: dict[str, RowSum] = {}
        self.depth = 0

    def body(self, statements: Sequence[ir.Statement]) -> None:
        starts: dict[str, str] = {}
        for s in statements:
            if isinstance(s, ir.Assign) and s.name in self.factors and not is_step(s):
                starts[s.name] = self._start(s)
                continue
            self.statement(s)
            ended = sums_of(s.body) if isinstance(s, ir.For) else {}
            for name in filter(starts.__contains__, ended):  # in the order of the text, whatever hashes are
                self._end(name, starts[name])

    def statement(self, s: ir.Statement) -> None:
        if is_step(s):
            assert isinstance(s, ir.Assign)
            assert isinstance(s.value, ScalarCall)
            self.sums[s.name].put([self.value(x) for x in s.value.operands[1:]])
        else:
            super().statement(s)

    def _start(self, s: ir.Assign) -> str:
        """Begin a sum. Returns the number that it starts from."""
        dtype, factors = s.value.dtype, self.factors[s.name]
        if factors > 1:
            self.scalars.declare(*declared(dtype, PIECE_LANES[dtype]))
        self.count += 1
        self.sums[s.name] = RowSum(self, f"s{self.count}", dtype, factors, self.depth)
        self.sums[s.name].start()
        return self.value(s.value)

    def _end(self, name: str, start: str) -> None:
        one = self.sums.pop(name)
        kind = FLOATS[one.dtype]
        self.set(name, self.op(f"fadd {kind} {start}, {one.total()}"), one.dtype)

    def _loop(self, s: ir.For) -> None:
        sums = [self.sums[one.name] for one in s.body if isinstance(one, ir.Assign) and is_step(one)]
        goes_on = any(one.depth != self.depth for one in sums)
        self.depth += 1
        if not sums:
            super()._loop(s)
        elif not goes_on and 0 < _known_count(s) <= BLOCK:
            self._one_block(s, sums, _known_count(s))
        elif goes_on or not (is_straight(s) or self._is_masked(s)):
            self._any_blocks(s, sums, goes_on)
        else:
            self._whole_blocks(s, sums)
        self.depth -= 1

    def _is_masked(self, s: ir.For) -> bool:
        """True if the processor has masked loads and stores for all memory of a loop."""
        touched = set().union(*map(ir.buffers_of, ir.statements_of(s.body)))
        return has_masks() and all(np.dtype(self.memory[buffer][1]).itemsize >= MASKED for buffer in touched)

    def _one_block(self, s: ir.For, sums: Sequence[RowSum], count: int) -> None:
        """The loop as one block, which is no longer than it needs to be."""
        for one in sums:
            one.block = -(-count // CUT) * CUT
            if count < one.block:
                one.clear()
        few = is_straight(s) or count <= BLOCK // 2
        self._within(
            s, sums, "part", self.value(s.begin), str(count), self.scalars.mark("unrolled" if few else "by ones")
        )
        for one in sums:
            one.add("part", first=True)

    def _whole_blocks(self, s: ir.For, sums: Sequence[RowSum]) -> None:
        """A loop over full blocks, then a block for the elements that are left."""
        begin, end, straight = self.value(s.begin), self.value(s.end), is_straight(s)
        size = self.op(f"sub nsw i64 {end}, {begin}")
        whole = self.op(f"add nsw i64 {begin}, {self.op(f'and i64 {size}, {-BLOCK}')}")

        def block(now: str) -> None:
            self._within(s, sums, "full", now, str(BLOCK), self.scalars.mark("unrolled" if straight else "by twos"))
            for one in sums:
                one.add("full")

        self.loop(begin, whole, str(BLOCK), block)
        rest, after = self.label(), self.label()
        self.do(f"br i1 {self.op(f'icmp slt i64 {whole}, {end}')}, label %{rest}, label %{after}")
        self.begin(rest)
        left = self.op(f"sub nsw i64 {end}, {whole}")
        if self._is_masked(s):
            self._masked_rest(s, sums, whole, left, straight)
        else:
            for one in sums:
                one.clear()
            self._within(s, sums, "part", whole, left)
        for one in sums:
            one.add("part")
        self.do(f"br label %{after}")
        self.begin(after)

    def _masked_rest(self, s: ir.For, sums: Sequence[RowSum], first: str, left: str, straight: bool) -> None:
        """A block with `left` elements. Its other places are zeros, for which no memory is touched."""
        count = str(BLOCK)
        if not straight:  # the block is cut off behind the last vector that has some
            for one in sums:
                one.clear()
            count = self.op(f"and i64 {self.op(f'add nsw i64 {left}, {CUT - 1}')}, {-CUT}")
        start = self.op(f"sub nsw i64 {BLOCK}, {left}")
        mask = self.op(f"getelementptr inbounds i32, ptr @{self.scalars.mask()}, i64 {start}")

        def write(now: str) -> None:
            inside, after, before = self.label(), self.label(), self.block
            there = self.op(f"load i32, ptr {self.op(f'getelementptr inbounds i32, ptr {mask}, i64 {now}')}")
            self.do(f"br i1 {self.op(f'icmp slt i32 {there}, 0')}, label %{inside}, label %{after}")
            self.begin(inside)
            self.values[s.index] = self.op(f"add nsw i64 {first}, {now}")
            for one in sums:
                one.into = "", ""
            self.body(s.body)
            self.do(f"br label %{after}")
            there = self.block
            self.begin(after)
            given = [
                [self.op(f"phi {FLOATS[one.dtype]} [ {x}, %{there} ], [ 0.0, %{before} ]") for x in one.held]
                for one in sums
            ]
            for one, values in zip(sums, given, strict=True):
                one.into = "part", now
                one.put(values)

        self.loaded = {load: self.value(load) for load in ir.fixed_loads(s)}  # in a branch they would prevent vectors
        self.loop("0", count, "1", write, self.scalars.mark("unrolled" if straight else "by ones"))
        self.loaded = {}

    def _any_blocks(self, s: ir.For, sums: Sequence[RowSum], goes_on: bool) -> None:
        """The loop in pieces, each as long as the blocks of all its sums have room. Full blocks are added to lanes."""
        end, self.count = self.value(s.end), self.count + 1
        at, head, inside, after = f"%at.{self.count}", self.label(), self.label(), self.label()
        self.entry.append(f"  {at} = alloca i64")
        self.do(f"store i64 {self.value(s.begin)}, ptr {at}")
        self.do(f"br label %{head}")
        self.begin(head)
        now = self.op(f"load i64, ptr {at}")
        left = self.op(f"sub nsw i64 {end}, {now}")
        self.do(f"br i1 {self.op(f'icmp sgt i64 {left}, 0')}, label %{inside}, label %{after}")
        self.begin(inside)
        for room in [str(BLOCK), *(one.room() for one in sums if goes_on)]:
            left = self._least(left, room)
        for one in sums:
            one.goes_on = goes_on
            one.open()
        self._within(s, sums, "part", now, left)
        for one in sums:
            one.close(left)
        self.do(f"store i64 {self.op(f'add nsw i64 {now}, {left}')}, ptr {at}")
        self.do(f"br label %{head}")
        self.begin(after)

    def _within(self, s: ir.For, sums: Sequence[RowSum], kind: str, first: str, count: str, mark: str = "") -> None:
        """`count` elements of a loop, from `first` on, within a block of each sum."""
        places = [one.place() if one.goes_on else "" for one in sums]

        def write(now: str) -> None:
            for one, place in zip(sums, places, strict=True):
                one.into = kind, self.op(f"add nsw i64 {place}, {now}") if place else now
            self.values[s.index] = self.op(f"add nsw i64 {first}, {now}")
            self.body(s.body)

        self.loop("0", count, "1", write, mark)

    def _least(self, a: str, b: str) -> str:
        name = self.scalars.declare("llvm.smin.i64", "i64", ["i64", "i64"])
        return self.op(f"call i64 @{name}(i64 {a}, i64 {b})")

    def text(self, linkage: str = "internal ") -> str:
        taken = []
        for parameter in self.function.parameters:
            if parameter.is_memory:
                self.memory[parameter.name] = f"%a.{parameter.name}", parameter.dtype
                taken.append(f"ptr noalias %a.{parameter.name}")
            else:
                self.set(parameter.name, f"%a.{parameter.name}", parameter.dtype)
                taken.append(f"{llvm_type(parameter.dtype)} %a.{parameter.name}")
        self.body(self.function.body)
        head = f"define {linkage}void @{self.function.name}({', '.join(taken)}) noinline nounwind {{"
        return "\n".join([head, "entry:", *self.entry, *self.lines, "  ret void", "}"])


def _known_count(s: ir.For) -> int:
    """The count of rounds of a loop, if its bounds are constants; else 0."""
    if not isinstance(s.begin, Literal) or not isinstance(s.end, Literal):
        return 0
    return s.end.value - s.begin.value


def has_masks() -> bool:
    """True if the processor can read and write only some numbers of a vector."""
    return "avx" in host().features


def is_step(statement: ir.Statement) -> bool:
    """True if a statement adds to a sum of floats in lanes."""
    value = statement.value if isinstance(statement, ir.Assign) else None
    return isinstance(value, ScalarCall) and value.function in STEPS and value.dtype in LANES


def sums_of(body: Sequence[ir.Statement]) -> dict[str, int]:
    """Sum that statements add to -> the count of factors of its summands."""
    found: dict[str, int] = {}
    for statement in ir.statements_of(body):
        if is_step(statement):
            assert isinstance(statement, ir.Assign)
            found[statement.name] = len(parts_of(statement.value)) - 1
    return found


def is_straight(loop: ir.For) -> bool:
    """True if a loop has only cheap arithmetic, so that several copies of its body are small."""
    return all(_is_quick(e) for s in ir.statements_of(loop.body) for e in ir.expressions_of(s))


def _is_quick(e: Expr) -> bool:
    own = not isinstance(e, ScalarCall) or e.function in QUICK
    return own and all(map(_is_quick, parts_of(e)))


class _Calls(Body):
    """A body that calls pointwise kernels.

    Args:
        rows: kernel -> the kernel with the same text that is called in its place.
    """

    rows: Mapping[str, str]

    def call(self, s: ir.Do) -> None:
        if s.function in self.rows:
            given = [text for argument in s.arguments for text in self._argument(argument)]
            self.do(f"call void @{self.rows[s.function]}({', '.join(given)})")
        else:
            super().call(s)


class _Driver(_Calls):
    """The function that threads start."""

    def __init__(
        self,
        module: ir.Module,
        scalars: Scalars,
        symbols: Mapping[str, str],
        given: Sequence[str],
        rows: Mapping[str, str],
    ) -> None:
        super().__init__(module.driver, scalars, symbols)
        self.arrays = [*(ir.Parameter(name, "int64[]") for name in given), *module.arrays]
        self.array_places = {array.name: place for place, array in enumerate(self.arrays)}
        self.size_places = {size: place for place, size in enumerate(module.sizes)}
        self.rows = rows
        self.repeated: dict[Place, _DriverPart] = {}
        self.parts: dict[str, tuple[str, str]] = {}  # key of a part -> name and text of its function
        self.table: list[int] = []

    def text(self, name: str) -> list[str]:
        """The texts of a driver's table and parts, then that of the driver under a name."""
        for number in ("rank", "threads"):
            self.set(number, f"%a.{number}", "int64")
        for array, place in zip(self.arrays, self.array_places.values(), strict=True):
            self.memory[array.name] = self._word("ptr", "%a.words", place), array.dtype
            self.lengths[array.name] = self._word("i64", "%a.words", len(self.arrays) + place)
        for size, place in self.size_places.items():
            self.set(size, self._word("i64", self.memory["sizes"][0], place), "int64")
        self._find_repeated()
        self.body(self.function.body)
        head = f'define void @"{name}"(i64 %a.rank, i64 %a.threads, ptr %a.words) nounwind {{'
        driver = "\n".join([head, "entry:", *self.entry, *self.lines, "  ret void", "}"])
        numbers = ", ".join(f"i64 {number}" for number in self.table)
        table = [f"@table = internal constant [{len(self.table)} x i64] [{numbers}]"] if self.table else []
        return [*table, *(text for _, text in self.parts.values()), driver]

    def _word(self, kind: str, start: str, place: int) -> str:
        """The word at a place of an array of words."""
        return self.op(f"load {kind}, ptr {self.op(f'getelementptr inbounds i64, ptr {start}, i64 {place}')}")

    def _find_repeated(self) -> None:
        found = list(_Bodies(self.function.body).found(self.function.body))
        if len(found) < MANY:
            return
        declared = dict(self.scalars.declared)
        parts = {place: _DriverPart(self, statements) for place, statements in found}
        counts = Counter(part.key for part in parts.values())
        self.repeated = {place: part for place, part in parts.items() if counts[part.key] >= MANY}
        if not self.repeated:
            self.scalars.declared = declared

    def body(self, statements: Sequence[ir.Statement]) -> None:
        at = 0
        while at < len(statements):
            run = list(self._run(statements, at)) if self.repeated else []
            if run:
                self._in_loops(run)
                at += sum(len(one.function.body) if isinstance(one, _DriverPart) else 1 for one in run)
            else:
                self.statement(statements[at])
                at += 1

    def _run(self, statements: Sequence[ir.Statement], at: int) -> Iterator[_DriverPart | ir.Do]:
        """Parts that follow each other, and cheap calls between them."""
        while at < len(statements):
            part, s = self.repeated.get((id(statements), at)), statements[at]
            if part is not None:
                yield part
                at += len(part.function.body)
            elif isinstance(s, ir.Do) and s.function in CHEAP:
                yield s
                at += 1
            else:
                return

    def _in_loops(self, run: Sequence[_DriverPart | ir.Do]) -> None:
        """Write calls. A sequence of calls that repeats becomes a loop."""
        keys, at = [one.key if isinstance(one, _DriverPart) else one for one in run], 0
        while at < len(run):
            period, times = _repetition(keys, at)
            self._repeated(run[at : at + period * times], period)
            at += period * times

    def _repeated(self, run: Sequence[_DriverPart | ir.Do], period: int) -> None:
        """Write a sequence of calls that repeats. Only their tables differ, which lie one after another."""
        start = len(self.table)
        tables = [one.table if isinstance(one, _DriverPart) else [] for one in run]
        self.table += chain.from_iterable(tables)
        stride = sum(map(len, tables[:period]))

        def write(now: str) -> None:
            place = self.op(f"add nsw i64 {self.op(f'mul nsw i64 {now}, {stride}')}, {start}")
            for one, table in zip(run[:period], tables, strict=False):
                if isinstance(one, ir.Do):
                    self.call(one)
                    continue
                self._call_part(one, self.op(f"getelementptr inbounds i64, ptr @table, i64 {place}"))
                place = self.op(f"add nsw i64 {place}, {len(table)}")

        if len(run) == period:
            write("0")
        else:
            self.loop("0", str(len(run) // period), "1", write)

    def _call_part(self, part: _DriverPart, table: str) -> None:
        if part.key not in self.parts:
            name = f"part_{len(self.parts)}"
            self.parts[part.key] = name, part.text(name)
        name, _ = self.parts[part.key]
        taken = [f"{llvm_type(one.dtype)} {self.value(one)}" for one in part.taken]
        given = ["ptr %a.words", f"ptr {self.memory['sizes'][0]}", f"ptr {table}", *taken]
        self.do(f"call void @{name}({', '.join(given)})")


def _repetition(keys: Sequence[Any], at: int) -> tuple[int, int]:
    """The length of the sequence that the next calls repeat, and how often it is there; (1, 1) if that is too few."""
    best = 1, 1
    for period in range(1, PERIOD + 1):
        first, times = keys[at : at + period], 1
        while keys[at + times * period : at + (times + 1) * period] == first:
            times += 1
        if times >= MANY and period * times > best[0] * best[1]:
            best = period, times
    return best


class _DriverPart(_Calls):
    """A body of a driver as a function. Equal keys are equal functions.

    Args:
        table: the numbers of its table.
        found: for each number of the table, the kind and the array of the word at that place; no array if the number
            is used itself.
        taken: variables of the driver that it takes.
    """

    def __init__(self, driver: _Driver, statements: Sequence[ir.Statement]) -> None:
        super().__init__(ir.Function("", (), tuple(statements)), driver.scalars, driver.symbols)
        self.driver, self.rows = driver, driver.rows
        self.table: list[int] = []
        self.found: list[tuple[str, str]] = []
        self.taken: list[Name] = []
        self.memory, self.lengths = MadeOnDemand(self._address), MadeOnDemand(self._length)
        self.in_test = False
        self.body(statements)
        self.key = "\n".join([*map(" ".join, self.found), *map(str, self.taken), *self.entry, *self.lines])

    def text(self, name: str) -> str:
        taken = ["ptr %a.words", "ptr %a.sizes", "ptr %a.table"]
        taken += [f"{llvm_type(one.dtype)} %a.{one.name}" for one in self.taken]
        head = f"define internal void @{name}({', '.join(taken)}) noinline nounwind {{"
        words = [line for k, one in enumerate(self.found) for line in self._lines(k, *one)]
        return "\n".join([head, "entry:", *words, *self.entry, *self.lines, "  ret void", "}"])

    def _lines(self, k: int, kind: str, words: str) -> Iterator[str]:
        """The lines that load number k of the table, or the word at the place that the number names."""
        yield f"  %e{k} = getelementptr inbounds i64, ptr %a.table, i64 {k}"
        if not words:
            yield f"  %w{k} = load i64, ptr %e{k}"
            return
        yield f"  %n{k} = load i64, ptr %e{k}"
        yield f"  %p{k} = getelementptr inbounds i64, ptr {words}, i64 %n{k}"
        yield f"  %w{k} = load {kind}, ptr %p{k}"

    def test(self, e: Expr) -> str:
        """The value of a test. Its numbers go into the table, because bodies may differ only in these."""
        self.in_test = True
        result = self.value(e)
        self.in_test = False
        return result

    def value(self, e: Expr) -> str:
        if isinstance(e, Literal) and self.in_test and e.dtype == INDEX and e.value > 1:
            return self._word("i64", "", e.value)
        if isinstance(e, Name) and e.name not in self.values and e.name not in self.variables:
            self.values[e.name] = self._given(e)
        return super().value(e)

    def _given(self, e: Name) -> str:
        place = self.driver.size_places.get(e.name)
        if place is not None:
            return self._word("i64", "%a.sizes", place)
        self.taken.append(e)
        return f"%a.{e.name}"

    def _address(self, name: str) -> tuple[str, str]:
        place = self.driver.array_places[name]
        return self._word("ptr", "%a.words", place), self.driver.arrays[place].dtype

    def _length(self, name: str) -> str:
        return self._word("i64", "%a.words", len(self.driver.arrays) + self.driver.array_places[name])

    def _word(self, kind: str, words: str, number: int) -> str:
        """A word whose place is a number of the table. Without an array of words it is the number itself."""
        self.table.append(number)
        self.found.append((kind, words))
        return f"%w{len(self.table) - 1}"


class _Bodies:
    """The bodies in statements that may become functions, each with the statements that set its own variables."""

    def __init__(self, statements: Sequence[ir.Statement]) -> None:
        self.reads: dict[int, set[str]] = {}  # id of a statement -> variables that it reads
        self.outside = self._read_outside(statements)

    def found(self, statements: Sequence[ir.Statement]) -> Iterator[tuple[Place, Sequence[ir.Statement]]]:
        first = 0
        for at, s in enumerate(statements):
            if _only_sets(s):
                continue
            begin = next((b for b in (first, at) if self._is_closed(statements[b : at + 1])), None)
            if isinstance(s, ir.For | ir.If) and (begin is None or not _is_body(s)):
                yield from self.found(s.body)
            elif begin is not None and not (isinstance(s, ir.Do) and (s.results or s.function in CHEAP)):
                yield (id(statements), begin), statements[begin : at + 1]
            first = at + 1

    def _is_closed(self, statements: Sequence[ir.Statement]) -> bool:
        """True if only these statements read the variables that they set, and not before they are set."""
        names = {one.name for one in ir.statements_of(statements) if isinstance(one, ir.Assign)}
        return not names or names.isdisjoint(self.outside | self._read_in(statements))

    def _read_outside(self, statements: Sequence[ir.Statement]) -> set[str]:
        """Variables that a body reads although neither it nor the statements right before it set them."""
        found, body = set[str](), list[ir.Statement]()
        for s in statements:
            body.append(s)
            if _only_sets(s):
                continue
            if _is_body(s):
                found |= self._read_in(body)
            elif isinstance(s, ir.For | ir.If):
                found |= self._read_in(body[:-1]) | _names_of(s) | self._read_outside(s.body)
            body = []
        return found | self._read_in(body)

    def _read_in(self, statements: Sequence[ir.Statement]) -> set[str]:
        """Variables that statements read before they set them. Settings inside tests and loops do not count."""
        found, known = set[str](), set[str]()
        for s in statements:
            if id(s) not in self.reads:
                inside = self._read_in(s.body) - {getattr(s, "index", "")} if isinstance(s, ir.For | ir.If) else set()
                self.reads[id(s)] = _names_of(s) | inside
            found |= self.reads[id(s)] - known
            known |= {s.name} if isinstance(s, ir.Assign) else set()
        return found


def _is_body(s: ir.Statement) -> bool:
    """True if a statement has no loop inside a loop or a test."""
    return not isinstance(s, ir.For | ir.If) or not any(isinstance(inner, ir.For) for inner in ir.statements_of(s.body))


def _only_sets(s: ir.Statement) -> bool:
    return isinstance(s, ir.Assign) or (isinstance(s, ir.If) and all(isinstance(inner, ir.Assign) for inner in s.body))


def _names_of(s: ir.Statement) -> set[str]:
    return set[str]().union(*map(names_in, ir.expressions_of(s)))
