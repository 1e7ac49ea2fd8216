"""`random_net`: nets around random cells, the same for a seed on every platform.

They are made to break what hand-written cells leave alone: ops that mix rows of the batch, equal sizes of different
axes, blobs used in several places, integer and bool side paths, dropout, recurrences that read each other's results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rnnops.cells import BasicRNNCell, DropoutCell, GRUCell, LSTMCell, MultiRNNCell, RNNCell
from rnnops.errors import FeedError
from rnnops.net import Net
from rnnops.testing.draw import Draw
from rnnops.testing.random_builder import TAME, Builder, Item
from rnnops.testing.random_cell import Setting, add_recurrence
from rnnops.testing.random_ops import add_ops
from rnnops.types import FLOAT, Array, Shape, is_float


@dataclass(frozen=True)
class RandomNet:
    """A net with float64 feeds, as `random_net` makes it; prints as text that `ro.parse_net` reads.

    Args:
        net: around random recurrences.
        feeds: input name -> array.
        seed: what it was made from, and the seed of its runs.

    Raises:
        FeedError: by `random_net`, which makes it.

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

    Such nets are made to break what hand-written cells leave alone: ops that mix rows of the batch, equal sizes of
    different axes, blobs used in several places, integer and bool side paths, dropout.

    Args:
        seed: an integer of 0 or more.

    Returns:
        A `RandomNet`.

    Raises:
        FeedError: what is no seed.

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
        """Sizes of all axes; often they are equal, so that axes which are mixed up do not show by their sizes."""
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
        """What nobody reads, and some of the others."""
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
