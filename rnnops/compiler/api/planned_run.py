"""A plan as users read it: loops, memory, pictures, generated source."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rnnops.compiler.api.feeds import Feeds, plain_arrays
from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan
from rnnops.net.parse import parse_net
from rnnops.types import Array
from rnnops.util import LazyModule, folded, preformatted, scrolled, with_bar

if TYPE_CHECKING:
    from rnnops.compiler.api import bound_run as bound_run
    from rnnops.compiler.report import (
        describe,
        memory_curve,
        memory_timeline,
        profile,
        schedule,
    )
    from rnnops.compiler.report.memory_curve import MemoryCurve
    from rnnops.compiler.report.memory_timeline import MemoryTable
    from rnnops.compiler.report.schedule import Schedule
    from rnnops.pictures.drawing import Drawing
else:  # a first call does without
    bound_run = LazyModule("rnnops.compiler.api.bound_run")
    describe = LazyModule("rnnops.compiler.report.describe")
    memory_curve = LazyModule("rnnops.compiler.report.memory_curve")
    memory_timeline = LazyModule("rnnops.compiler.report.memory_timeline")
    profile = LazyModule("rnnops.compiler.report.profile")
    schedule = LazyModule("rnnops.compiler.report.schedule")


SHORT = 1 << 22  # bytes of a plan whose calls are recorded: of longer ones, Python's part is short


class RepeatedCalls:
    """Calls of which those with feeds of the same types as the one before are recorded: then each is one native call.

    Args:
        names: of inputs, in the order of feeds.
        answer: answers a call by its plan.
        record: makes the list of jobs for feeds.
    """

    def __init__(
        self, names: Sequence[str], answer: Callable[..., dict[str, Array]], record: Callable[[Sequence[Array]], Any]
    ) -> None:
        self._names, self._answer, self._record = names, answer, record
        self._lists: bound_run.NativeCalls | None = None
        self._last: Hashable = None

    def __call__(self, dicts: tuple[Feeds, ...], named: Feeds) -> dict[str, Array]:
        """Outputs by name."""
        feeds = plain_arrays(self._names, dicts, named)
        if feeds is None:
            return self._answer(dicts, named)
        kinds = tuple([(array.dtype, array.shape) for array in feeds])
        if self._lists is None and kinds == self._last:
            self._lists = bound_run.NativeCalls(self._record, SHORT)
            self._lists.answered(kinds)
        found = None if self._lists is None else self._lists.call(kinds, feeds)
        if found is not None:
            return found
        outputs = self._answer(dicts, named)
        self._last = kinds
        if self._lists is not None:
            self._lists.answered(kinds)
        return outputs


@dataclass(frozen=True)
class PlannedRun:
    """The result of `run.plan`; nothing is computed or allocated for it.

    Args:
        device: `"cpu"`, `"reference"` or `"cuda"`.
        plan: the one that calls with such feeds use.
        calls: how bound runs answer these, from the second one on.
    """

    device: str
    plan: ForwardPlan | TrainingPlan
    calls: str = ""

    def describe(self) -> str:
        """Loops, products, what is kept, computed again and aliased, and what runs in the interpreter, as text."""
        return describe.describe_plan(self.plan, self.device, self.calls)

    def memory(self) -> MemoryTable:
        """The allocations at the peak of each pass."""
        return memory_timeline.memory_of(self.plan)

    def memory_curve(self) -> MemoryCurve:
        """Planned bytes from op to op, forward and backward, with the peak and what is there then.

        Returns:
            A picture; `print` says the same in words. Its `peak` is the `total` of `memory()`.
        """
        return memory_curve.memory_curve(self.plan)

    def draw(self) -> Schedule:
        """The schedule: stages over tiles and steps of each recurrence, on which threads, in how many bytes.

        Returns:
            A picture of the forward pass, and of the backward pass where it is planned; `print` says the same in words.
        """
        return schedule.plan_schedule(self.plan, self.device)

    def draw_net(self, opened: bool = True) -> Drawing:
        """The net that is run forward as a picture: what the backward pass finds kept or computes again in colour.

        Args:
            opened: whether cells are drawn within recurrences.

        Returns:
            A picture with the sizes of all blobs, those of one step in cells; `print` says the same in words.
        """
        return profile.draw_saved(self.plan, opened)

    @property
    def source(self) -> str:
        """The generated modules as Python with names of blobs; `""` where everything runs in the interpreter."""
        runners = ((title, call, runner) for title, call, runner in describe.compiled_ops(self.plan) if runner)
        found = [([title, *describe.variables_of(call)], runner.compiled) for title, call, runner in runners]
        heads = (("\n".join(f"# {line}" for line in lines), scan) for lines, scan in found if scan is not None)
        return "\n\n".join(f"{head}\n{scan.text.shown()}" for head, scan in heads)

    def load(self) -> None:
        """Compile all kernels, or have them from the disk, with a bar where there is a terminal."""
        for runner in with_bar(self.plan.compiled.kernels, "compiling", " kernels"):
            runner.compiled.load()

    def __str__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        return scrolled(self.draw().svg) + folded("in words", preformatted(str(self)))


def made_again(kind: Any, text: str, device: str, options: Any, bound: dict[str, Any], saving: Any) -> Any:
    """A run that was pickled: kernels are loaded, or compiled, where it is used."""
    for array in bound.values():
        array.flags.writeable = False  # as `bind` has them: packed copies would not follow
    return kind(parse_net(text).snapshot(), device, options, bound, saving)
