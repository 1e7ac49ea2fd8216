"""A random cell stepped over time: `add_recurrence` appends one to a net and adds its results to the operands.

It draws all that `recurrent_net` takes: sequences of any rank or none, one to three states with windows, offsets and
other shapes, initial values from 1-D to 3-D, references by name or by argument, lengths, reverse, the timestep, outputs
that are no state, and blobs to recompute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from rnnops import ops
from rnnops.blob import Blob
from rnnops.net import Net
from rnnops.recurrent import Link, recurrent_net
from rnnops.testing.draw import Draw
from rnnops.testing.random_builder import TAME, Builder, Item, fit
from rnnops.testing.random_ops import add_ops
from rnnops.types import Shape

LARGEST_FEED = 16  # elements of one input


@dataclass(frozen=True)
class Setting:
    """What all recurrences of one random net share.

    Args:
        T, N, sizes: numbers of steps and rows, and what feature sizes are drawn from.
        make: makes a new float input of the outer net: (shape) -> operand.
        lengths: int32 `[N]` of the outer net, where rows have lengths.
    """

    draw: Draw
    T: int
    N: int
    sizes: tuple[int, ...]
    make: Callable[[Shape], Item]
    lengths: Blob | None = None

    def features(self, rows: int) -> Shape:
        """Feature sizes of a state or a sequence, few where there are many rows of them."""
        rank = self.draw.pick([1, 1, 1, 1, 0, 2])
        shape = tuple(self.draw.pick(self.sizes) for _ in range(rank))
        return shape if rows * prod(shape) <= LARGEST_FEED else (1,)


@dataclass
class State:
    """A state while its cell is written; `previous` is its newest step, `[N, ...]`."""

    name: str
    initial: Item
    features: Shape
    window: int
    offset: int | None
    previous: Item

    @property
    def output(self) -> str:
        return f"{self.name}_t"


@dataclass
class Recurrence:
    """One recurrence while it is drawn.

    Args:
        outer, inner: builders of the net around and of the cell.
        name: scope of the results.
        lead: T and N.
    """

    setting: Setting
    outer: Builder
    inner: Builder
    name: str
    lead: tuple[int, int]
    depth: int = 0
    sequences: list[tuple[str, Blob]] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    references: dict[str, Blob] = field(default_factory=dict)
    timestep: Blob | None = None
    lengths: Blob | None = None
    reverse: bool = False

    @property
    def draw(self) -> Draw:
        return self.setting.draw

    @property
    def cell(self) -> Net:
        return self.inner.net

    # -- what the cell reads -------------------------------------------------------------------------------------

    def read(self, name: str, outer: Item, shape: Shape) -> Item:
        """An input of the cell that stands for an outer operand."""
        return self.inner.declare(self.cell.input(name, outer.blob.dtype), shape, outer.bound)

    def add_sequences(self) -> None:
        """Operands of the outer net that have the axes T and N, or new inputs."""
        T, N = self.lead
        known = [i for i in [*self.outer.floats, *self.outer.integers, *self.outer.bools] if i.shape[:2] == (T, N)]
        for k in range(self.draw.pick([0, 1, 1, 1, 2, 3])):
            if known and (self.depth or self.draw.chance(0.7)):
                item = self.draw.late(known)
            elif self.depth == 0:
                item = self.setting.make((T, N, *self.setting.features(T * N)))
            else:
                continue
            self.sequences.append((f"x{k}_t", item.blob))
            self.read(f"x{k}_t", item, item.shape[1:])

    def add_states(self) -> None:
        for k in range(self.draw.pick([1, 1, 2, 2, 3])):
            self.states.append(self.new_state(f"s{k}", must_have_rows=k == 0 and not self.sequences))

    def new_state(self, name: str, must_have_rows: bool) -> State:
        """A state with its initial value: `[...]`, `[N, ...]`, or `[L, N, ...]` for its window and offset."""
        draw, N = self.draw, self.lead[1]
        features = self.setting.features(N)
        window = draw.pick([1, 1, 1, 1, 2, 3])
        offset = draw.integer(0, 1) if draw.chance(0.25) else None
        rows = window if offset is None else window + offset + draw.integer(0, 1)
        ranks = [(rows, N)] if rows > 1 else [(N,), (1, N)] if must_have_rows else [(), (N,), (1, N)]
        initial = self.initial_value((*draw.pick(ranks), *features))
        shape = (N, *features) if window == 1 else (window, N, *features)
        seen = self.inner.declare(self.cell.input(f"{name}_prev"), shape, TAME)
        if window == 1:
            return State(name, initial, features, window, offset, seen)
        newest = ops.squeeze(ops.slice(seen.blob, [-1], [99], axes=[0]), [0])
        return State(name, initial, features, window, offset, self.inner.add(newest, TAME))

    def initial_value(self, shape: Shape) -> Item:
        """An operand of the outer net, the last result of an earlier recurrence for one, or a new input."""
        known = [item for item in self.outer.floats if item.shape == shape]
        if known and self.draw.chance(0.5):
            return self.draw.late(known)
        if self.depth or self.draw.chance(0.3):
            return Item(fit(self.outer, self.outer.operand(), shape), shape, TAME)
        return self.setting.make(shape)

    def add_references(self) -> None:
        """Outer blobs at every step: by argument, or by their name."""
        for k in range(self.draw.integer(0, 2)):
            item = self.draw.pick([i for i in self.outer.floats if prod(i.shape) <= 12] or self.outer.floats)
            name = item.blob.name
            if self.outer.net.is_capturable(name) and name not in self.cell and self.draw.chance(0.5):
                self.read(name, item, item.shape)
            else:
                self.references[f"{self.name}_ref{k}"] = item.blob
                self.read(f"{self.name}_ref{k}", item, item.shape)

    def add_time(self) -> None:
        """The timestep, and lengths of rows where there are any."""
        if self.setting.lengths is not None and self.depth == 0 and self.draw.chance(0.7):
            self.lengths = self.cell.input("lengths", "int32")
            self.inner.declare(self.lengths, (self.lead[1],), self.lead[0])
            self.references["lengths"] = self.setting.lengths
        if self.lengths is not None or self.draw.chance(0.3):
            self.timestep = self.cell.input("t", "int32")
            self.inner.declare(self.timestep, (1,), self.lead[0])

    # -- what the cell writes ------------------------------------------------------------------------------------

    def add_outputs(self) -> None:
        for state in self.states:
            self.cell.outputs(**{state.output: self.masked(self.new_value(state), state)})
        written = set(self.cell.output_blobs.values())
        others = [*self.inner.floats, *self.inner.integers, *self.inner.bools]
        for k in range(self.draw.pick([0, 1, 2, 3])):
            item = self.inner.choose(others)
            if item.blob.name not in written and prod(item.shape) <= 12:
                self.cell.outputs(**{f"out{k}": item.blob})
                written.add(item.blob.name)

    def new_value(self, state: State) -> Blob:
        """`[N, ...]`: something new, something leaky, or another blob as it is."""
        shape, draw = state.previous.shape, self.draw
        plain = [i for i in self.inner.floats if i.shape == shape and i.bound <= TAME]
        if draw.chance(0.15):
            return draw.pick(plain).blob
        item = self.inner.operand()
        blob, bound = fit(self.inner, item, shape), item.bound
        for other in draw.subset(self.inner.unread(self.inner.floats), 0.4):
            blob, bound = blob - fit(self.inner, other, shape) * 0.7, bound + other.bound
        if draw.chance(0.4):
            return state.previous.blob * 0.5 + self.inner.squashed(blob, bound)[0]
        return blob if bound <= TAME and draw.chance(0.3) else self.inner.squashed(blob, bound)[0]

    def masked(self, blob: Blob, state: State) -> Blob:
        """Past a row's end the state stays, or is zero; going backwards it may only stay."""
        if self.lengths is None or self.timestep is None or self.draw.chance(0.15):
            return blob
        drop = 0 if self.reverse else self.draw.integer(0, 1)
        return ops.select_valid(blob, state.previous.blob, self.lengths, self.timestep, drop)

    # -- the op --------------------------------------------------------------------------------------------------

    def recomputed(self) -> list[str]:
        """Some blobs of the cell that are no states."""
        states = {self.cell.output_blobs[state.output] for state in self.states}
        names = [name for op in self.cell.ops for name in op.outputs if name not in states]
        return self.draw.subset(names, self.draw.pick([0.0, 0.0, 0.2, 1.0]))

    def append(self) -> None:
        """Append the op and add its results to the operands of the outer net."""
        results = recurrent_net(
            self.outer.net,
            self.cell,
            self.sequences,
            [(f"{s.name}_prev", s.initial.blob) for s in self.states],
            {f"{s.name}_prev": Link(s.output, s.window, s.offset) for s in self.states},
            timestep=self.timestep.name if self.timestep is not None else None,
            scope=self.name,
            recompute_blobs_on_backward=self.recomputed(),
            references=self.references,
            steps=None if self.sequences else self.lead[0],
            reverse=self.reverse,
            state_shapes={f"{s.name}_prev": s.features for s in self.states if len(s.features) != 1},
        )
        for blob in results:
            self.outer.add(blob, TAME)


def add_recurrence(setting: Setting, outer: Builder, name: str, depth: int = 0) -> None:
    """Draw a cell, step it, and add its results to the operands."""
    draw = setting.draw
    lead = (setting.T, setting.N)
    if depth:
        item = outer.of_rank(2)
        lead = (item.shape[0], item.shape[1])
        outer.floats.append(item)
    inner = Builder(Net(f"{name}_cell"), draw, f"{name}_w")
    recurrence = Recurrence(setting, outer, inner, name, lead, depth)
    recurrence.reverse = draw.chance(0.3)
    recurrence.add_sequences()
    recurrence.add_states()
    recurrence.add_references()
    recurrence.add_time()
    add_ops(inner, draw.integer(3, 9 - 5 * depth))
    if depth == 0 and draw.chance(0.08):
        add_recurrence(setting, inner, f"{name}_inner", depth=1)
        add_ops(inner, 1)
    recurrence.add_outputs()
    recurrence.append()
