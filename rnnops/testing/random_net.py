"""`random_net`: random nets around random cells.

**A random recurrence** (`add_recurrence`) is appended to a net, and its results become operands. All arguments of
`recurrent_net` are drawn: sequences of any rank or none, references by name or by argument, and one to three states
with windows, offsets and other shapes. Initial values are 1-D to 3-D. There are lengths, `reverse`, the timestep,
outputs that are not states, and blobs to recompute.

**A random net** (`random_net`) is the same for a seed on every platform. Random nets test cases that hand-written cells
do not have: ops that mix rows of the batch, equal sizes of different axes, blobs with several readers, integers and
bools, dropout, recurrences that read each other's results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

import rnnops as ro
from rnnops.cells import BasicRNNCell, DropoutCell, GRUCell, LSTMCell, MultiRNNCell, RNNCell
from rnnops.errors import FeedError
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.recurrent import Link, recurrent_net
from rnnops.testing import random_makers as makers
from rnnops.testing.random_builder import TAME, Builder, Draw, Item, fit
from rnnops.testing.random_makers import Maker
from rnnops.types import FLOAT, Array, Shape, is_float

MAKERS: dict[Maker, int] = {  # how often each is drawn
    **dict.fromkeys((makers.unary, makers.binary), 6), makers.scaled: 3,
    **dict.fromkeys((makers.compared, makers.truncated, makers.counted, makers.decided), 1), makers.chosen: 2,
    **dict.fromkeys((makers.as_float, makers.clipped, makers.dropped, makers.constant, makers.split), 1),
    **dict.fromkeys((makers.concat, makers.sliced), 1), makers.reshaped: 2, makers.transposed: 1, makers.widened: 2,
    **dict.fromkeys((makers.gathered, makers.scattered), 1), makers.reduced: 3, makers.normalized: 2,
    makers.ordered: 1, makers.multiplied: 4, makers.mixed: 2,
    **dict.fromkeys((makers.general_product, makers.classified), 1),
    **dict.fromkeys((makers.convolved, makers.pooled), 2),
}  # fmt: skip
_DRAWN = [maker for maker, weight in MAKERS.items() for _ in range(weight)]


def add_ops(builder: Builder, count: int) -> None:
    """Append the ops of `count` random makers."""
    for _ in range(count):
        builder.draw.pick(_DRAWN)(builder)


LARGEST_FEED = 16  # the most elements of an input


@dataclass(frozen=True)
class Setting:
    """The setting that all recurrences of one random net share.

    Args:
        T, N: numbers of steps and rows.
        sizes: the sizes that feature axes may have.
        make: from a shape to a new float input of the outer net.
        lengths: the blob int32 `[N]` of the outer net, if rows have lengths.
    """

    draw: Draw
    T: int
    N: int
    sizes: tuple[int, ...]
    make: Callable[[Shape], Item]
    lengths: Blob | None = None

    def features(self, rows: int) -> Shape:
        """Feature sizes of a state or a sequence; smaller if it has many rows."""
        rank = self.draw.pick([1, 1, 1, 1, 0, 2])
        shape = tuple(self.draw.pick(self.sizes) for _ in range(rank))
        return shape if rows * prod(shape) <= LARGEST_FEED else (1,)


@dataclass
class DrawnState:
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
class DrawnRecurrence:
    """One recurrence while it is drawn.

    Args:
        outer, inner: builders of the outer net and of the cell.
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
    states: list[DrawnState] = field(default_factory=list)
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

    def new_state(self, name: str, must_have_rows: bool) -> DrawnState:
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
            return DrawnState(name, initial, features, window, offset, seen)
        newest = ro.squeeze(ro.slice(seen.blob, [-1], [99], axes=[0]), [0])
        return DrawnState(name, initial, features, window, offset, self.inner.add(newest, TAME))

    def initial_value(self, shape: Shape) -> Item:
        """An operand of the outer net, such as the last state of an earlier recurrence, or a new input."""
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

    def new_value(self, state: DrawnState) -> Blob:
        """`[N, ...]`: a new value, a new value plus half of the old one, or another blob."""
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

    def masked(self, blob: Blob, state: DrawnState) -> Blob:
        """A value for which the state stays, or is zero, past a row's end. In reverse it can only stay."""
        if self.lengths is None or self.timestep is None or self.draw.chance(0.15):
            return blob
        drop = 0 if self.reverse else self.draw.integer(0, 1)
        return ro.select_valid(blob, state.previous.blob, self.lengths, self.timestep, drop)

    # -- the op --------------------------------------------------------------------------------------------------

    def recomputed(self) -> list[str]:
        """Some blobs of the cell that are not states."""
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
    recurrence = DrawnRecurrence(setting, outer, inner, name, lead, depth)
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


@dataclass(frozen=True)
class RandomNet:
    """A net with float64 feeds, as `random_net` makes it; prints as text that `ro.parse_net` reads.

    Args:
        net: a net with random recurrences.
        feeds: input name -> array.
        seed: the seed that it was made from, which is also the seed for its runs.

    Raises:
        FeedError: in `random_net`, which makes it.

    Example:
        >>> made = ro.testing.random_net(5)
        >>> ro.parse_net(str(made)).input_names == made.net.input_names
        True
    """

    net: Net
    feeds: Mapping[str, Array]
    seed: int

    def __str__(self) -> str:
        shapes = [f"# {name}: {array.dtype}{list(array.shape)}" for name, array in self.feeds.items()]
        return "\n".join([f"# random net {self.seed}, fed with", *shapes, str(self.net)])


def random_net(seed: int) -> RandomNet:
    """A random net around one to three random recurrences, the same for a seed on every platform.

    Random nets test cases that hand-written cells do not have: ops that mix rows of the batch, equal sizes of different
    axes, blobs with several readers, integers and bools, dropout.

    Args:
        seed: an integer of 0 or more.

    Returns:
        A `RandomNet`.

    Raises:
        FeedError: this is not a seed.

    Example:
        >>> made = ro.testing.random_net(5)
        >>> out = ro.compile(made.net, device="reference")(made.feeds, seed=made.seed)
        >>> sorted(out) == sorted(made.net.output_blobs)
        True
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise FeedError("not a seed", wanted="an integer of 0 or more", came=repr(seed))
    return _Maker(seed).made()


class _Maker:
    """The net while it grows."""

    def __init__(self, seed: int) -> None:
        self.seed, self.draw = seed, Draw(seed)
        self.net = Net(f"random_{seed}")
        self.builder = Builder(self.net, self.draw, "w", parameter_budget=8)
        self.feeds: dict[str, Array] = {}
        self.setting = self._setting()

    def made(self) -> RandomNet:
        T, N = self.setting.T, self.setting.N
        self.make((T, N, *self.setting.features(T * N)))
        if self.draw.chance(0.3):
            self.add_input("labels", self.draw.integers((T, N), -1, 2), 2.0)
        add_ops(self.builder, self.draw.integer(0, 3))
        for k in range(self.draw.pick([1, 1, 1, 2, 2, 3])):
            self.add_recurrence(f"r{k}")
            if self.draw.chance(0.3):
                self.builder.rename(self.draw.pick(self.builder.floats).blob, f"named{k}")
            add_ops(self.builder, self.draw.integer(0, 2))
        with self.net.layer("head"):
            add_ops(self.builder, self.draw.integer(0, 3))
        self._declare_outputs()
        return RandomNet(self.net.snapshot(), self._all_feeds(), self.seed)

    def _setting(self) -> Setting:
        """Sizes of all axes. They are often equal, so that errors which mix up axes are not found only by sizes."""
        draw = self.draw
        T, N = draw.integer(1, 5), draw.integer(1, 3)
        sizes = (N,) if draw.chance(0.3) else (1, 2, 3)
        if draw.chance(0.2):
            T = N
        lengths = None
        if draw.chance(0.5):
            lengths = self.add_input("lengths", draw.integers((N,), 0, T), float(T)).blob
        return Setting(draw, T, N, sizes, self.make, lengths)

    def make(self, shape: Shape) -> Item:
        """A new float input."""
        return self.add_input(f"in{len(self.feeds)}", self.draw.array(shape, -1.2, 1.2), 1.2)

    def add_input(self, name: str, array: Array, bound: float) -> Item:
        self.feeds[name] = array
        blob = self.net.input(name, FLOAT if is_float(array.dtype.name) else array.dtype)
        return self.builder.declare(blob, array.shape, bound)

    def add_recurrence(self, name: str) -> None:
        if self.draw.chance(0.9):
            add_recurrence(self.setting, self.builder, name)
        else:
            self.add_stack(name)

    def add_stack(self, name: str) -> None:
        """A stack of ready-made cells over a sequence."""
        T, N, draw = self.setting.T, self.setting.N, self.draw
        known = [i for i in self.builder.floats if i.rank == 3 and i.shape[:2] == (T, N) and i.shape[2] < 3]
        item = draw.late(known) if known else self.make((T, N, 1))
        classes, options = [BasicRNNCell, GRUCell, LSTMCell], {"memory_optimization": draw.chance(0.5)}
        cells: list[RNNCell] = [
            draw.pick(classes)(size, 1, name=f"{name}_{k}", drop_states=draw.chance(0.5), **options)
            for k, size in enumerate((item.shape[2], 1))
        ]
        cells = [DropoutCell(cell, 0.3) if draw.chance(0.3) else cell for cell in cells]
        stack = MultiRNNCell(cells, draw.subset([1], 0.5), name)
        lengths = self.setting.lengths if draw.chance(0.5) else None
        output, states = stack.apply_over_sequence(self.net, item.blob, lengths)
        for blob in (*states, output):
            self.builder.add(blob, 2.0 * TAME)

    def _declare_outputs(self) -> None:
        """The blobs that are not read, and some of the others."""
        builder, results = self.builder, [i for i in self.builder.floats if i.blob.name not in self.net.input_names]
        side = self.draw.subset([*builder.integers, *builder.bools], 0.1)
        chosen = [*builder.unread(results)[-5:], *self.draw.subset(results, 0.1), results[-1], *side]
        names = dict.fromkeys(item.blob.name for item in chosen)
        self.net.outputs(**{f"y{k}": self.net.blob(name) for k, name in enumerate(names)})

    def _all_feeds(self) -> dict[str, Array]:
        """Feeds of all inputs in order, parameters included."""
        feeds = {}
        for name in self.net.input_names:
            shape = self.builder.type(name).shape
            feeds[name] = self.feeds[name] if name in self.feeds else self.draw.array(shape, -0.9, 0.9)
        return feeds
