"""What `rnnops onnx` does with a file that can be read: its feeds, pictures, plans, comparisons and times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rnnops.cli.onnx_file import OnnxFile, shapes_of_feeds
from rnnops.cli.onnx_report import plain, print_table, print_times
from rnnops.cli.onnx_stream import stream
from rnnops.cli.report import show
from rnnops.compiler import compile as compile_net
from rnnops.errors import RnnopsError, SaveError
from rnnops.lazy import cached_property
from rnnops.net import Net
from rnnops.onnx.beside import THEIRS, call_times
from rnnops.onnx.difference import distance_of
from rnnops.onnx.feeds import ChosenSizes, choose_sizes, random_feeds
from rnnops.onnx.load import OnnxModel, fixed_inputs
from rnnops.onnx.open_sizes import open_sizes
from rnnops.onnx.runtime import Session
from rnnops.pictures.draw_net import draw_net
from rnnops.types import FLOAT, Array

if TYPE_CHECKING:
    from rnnops.cli.onnx_command import OnnxOptions
    from rnnops.compiler.api.run import Run


QUANTISED = f"""\
the file is quantised: {THEIRS} rounds what its LSTMs read, by the range of all rows, and rnnops does not;
some hundredths need be no error (--tolerance 0.05)"""


class OnnxRuns:
    """A file that was read, with feeds."""

    def __init__(self, options: OnnxOptions, file: OnnxFile, model: OnnxModel) -> None:
        self.options, self.file, self.graph, self.model = options, file, file.graph, model
        self.random = np.random.default_rng(options.seed)
        self.constants = fixed_inputs(file.graph, options.constants, model.dtype)

    # -- what is fed -----------------------------------------------------------------------------------------------

    @cached_property
    def types(self) -> dict[str, str]:
        """Input that is fed -> dtype."""
        specs = [spec for spec in self.model.net.input_specs if spec.name not in self.model.params]
        return {spec.name: self.model.dtype if spec.dtype == FLOAT else spec.dtype for spec in specs}

    @cached_property
    def sizes(self) -> ChosenSizes:
        """Shapes of inputs, said once."""
        sizes = choose_sizes(*shapes_of_feeds(self.file, self.types))
        if sizes.open:
            show(f"sizes: {plain(sizes.text(), 400)}")
        return sizes

    @cached_property
    def feeds(self) -> dict[str, Array]:
        """Random arrays for all inputs."""
        return self.more_feeds()

    def more_feeds(self) -> dict[str, Array]:
        """Other random arrays."""
        return random_feeds(self.types, self.sizes.shapes, self.options.ranges, self.random)

    @cached_property
    def run(self) -> Run:
        """The net on one thread, its parameters bound."""
        return self.of(self.model.net)

    def of(self, net: Net) -> Run:
        """A net that has the file's parameters, on one thread."""
        return compile_net(net, threads=1).bind(**self.model.params)

    @cached_property
    def theirs(self) -> Session:
        """The file in ONNX Runtime."""
        return Session(self.options.file)

    # -- what is asked for -----------------------------------------------------------------------------------------

    def all(self) -> bool:
        """Do all that is asked for; whether it was right. Raises RnnopsError, with made-up sizes as a hint."""
        options = self.options
        works: dict[str, Callable[[], bool]] = {"plan": self.plan, "check": self.check, "speed": self.speed}
        works["stream"] = partial(stream, self)
        try:
            if options.draw is not None:
                self.draw(options.draw)
            right = [work() for name, work in works.items() if getattr(options, name)]
            return all(right)
        except RnnopsError as error:
            if error.hint or not self.sizes.made_up:
                raise
            told = error.again()
            told.hint = (
                f"Sizes are made up: say --sizes {' --sizes '.join(f'{one}=...' for one in self.sizes.made_up)}."
            )
            raise told.again() from error

    def draw(self, path: Path) -> None:
        """Save a picture of the net, with sizes where they are known."""
        shapes = self.model.shapes.items()
        known = {name: self.sizes.shapes[name] for name, dims in shapes if not open_sizes(name, dims)}
        if self.options.sizes:
            known = self.sizes.shapes
        try:
            draw_net(self.model.net, known).save(path)
        except OSError as error:
            raise SaveError(f"{path} cannot be written ({error.strerror})") from error
        show(f"picture: {path}")

    def plan(self) -> bool:
        """Print the plan of a call."""
        show(f"\nplan:\n{self.run.plan(self.feeds, backward=False)}")
        return True

    def check(self) -> bool:
        """Compare outputs with ONNX Runtime's."""
        theirs, ours = self.theirs({**self.feeds, **self.constants}), self.run(self.feeds)
        return self.compare(f"beside {THEIRS}", {name: distance_of(ours[name], theirs[name]) for name in theirs})

    def speed(self) -> bool:
        """Time both."""
        print_times("a call", call_times(self.run, self.theirs, self.feeds, self.constants))
        return True

    # -- parts -----------------------------------------------------------------------------------------------------

    def compare(self, title: str, distances: Mapping[str, float]) -> bool:
        """Print differences; whether all are within the tolerance."""
        print_table(
            f"differences, {title}, over the largest value",
            [
                (
                    plain(name),
                    f"{found:.1e}",
                    "" if found <= self.options.tolerance else f"more than {self.options.tolerance:g}",
                )
                for name, found in distances.items()
            ],
        )
        right = all(found <= self.options.tolerance for found in distances.values())
        if not right and any("Quantize" in op or "Integer" in op or "QLinear" in op for op in self.file.outline.ops):
            show(QUANTISED)
        return right
