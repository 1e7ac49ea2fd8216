"""Calls by their plan, calls that are recorded, and `PlannedRun`, the plan as users read it.

`RepeatedCalls` answers calls of one run: by recorded lists of jobs if feeds have the same types as before, else op by
op (`call_by_plan`, `vjp_by_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rnnops.compiler.api.derivatives import Pullback
from rnnops.compiler.api.feeds import Feeds, as_given, checked_wrt, filled, given_once, outputs_of, plain_arrays
from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan
from rnnops.interpreter import Workspace, execute
from rnnops.net.op import Initializer
from rnnops.types import Array
from rnnops.util import LazyModule, folded, preformatted, scrolled, with_bar

if TYPE_CHECKING:
    from rnnops.compiler.api.run import Run
    from rnnops.compiler.report import describe, memory_timeline, schedule
    from rnnops.compiler.report.memory_timeline import MemoryCurve, MemoryTable
    from rnnops.compiler.report.schedule import Schedule
    from rnnops.net import text as texts
    from rnnops.net.drawing import Drawing
else:  # a first call does without
    describe = LazyModule("rnnops.compiler.report.describe")
    memory_timeline = LazyModule("rnnops.compiler.report.memory_timeline")
    texts = LazyModule("rnnops.net.text")
    schedule = LazyModule("rnnops.compiler.report.schedule")


SHORT = 1 << 22  # calls that need more bytes are not recorded: they are long, so that Python's part is small
KINDS = 8  # for how many types of feeds lists of jobs are kept
Names = tuple[str, ...]


class RepeatedCalls:
    """Answers calls. If two calls in a row have feeds of the same types, they are recorded. Further calls with feeds of
    these types are one native call each.

    Tables are replaced and never changed, so there is no lock.

    Args:
        names: names of the inputs that are fed.
        answer: answers a call of a run by its plan.
        record: from a run, feeds, `wrt` and `training` to the lists of jobs (`bound_run.CallLists`, `TrainingLists`),
            or to a text on why there are none.
    """

    def __init__(self, names: Names, answer: Callable[..., Any], record: Callable[..., Any]) -> None:
        self._names, self._answer, self._record = names, answer, record
        self._lists: dict[Hashable, Any] = {}  # key of a call -> its lists, or why there are none; the newest is last
        self._last: Hashable = None  # key of the last call that the plan answered
        self._used: tuple[Any, Names | None, bool] = None, None, False  # lists used last, with `wrt` and `training`
        self.by_parts = False  # True once a pullback was asked for more than gradients: only plans have the rest

    def known(self, kinds: Hashable, wrt: Names | None = None, training: bool = False) -> Any:
        """The lists of jobs that answer such calls; None if there are none."""
        found = None if self.by_parts else self._lists.get((kinds, wrt, training))
        return None if isinstance(found, str) else found

    def __call__(
        self, run: Run, dicts: tuple[Feeds, ...], named: Feeds, wrt: Names | None = None, training: bool = False
    ) -> Any:
        """The answer to a call. The lists that were used last are tried first; they check the types of feeds."""
        feeds = None if self.by_parts else given_once(self._names, dicts, named)
        if feeds is None:
            return self._answer(run, dicts, named, wrt, training)
        lists, same, mode = self._used
        if lists is not None and mode is training and (wrt is same or _are(wrt, same)):
            found = lists.answer(feeds)
            if found is not None:
                return found
        return self._by_types(run, feeds, dicts, named, wrt, training)

    def _by_types(
        self, run: Run, feeds: list[Any], dicts: tuple[Feeds, ...], named: Feeds, wrt: Names | None, training: bool
    ) -> Any:
        arrays = plain_arrays(feeds)
        if arrays is None or not all(type(name) is str for name in wrt or ()):
            return self._answer(run, dicts, named, wrt, training)
        key = tuple([(array.dtype, array.shape) for array in arrays]), wrt, training
        if key == self._last and key not in self._lists:
            made = self._record(run, arrays, wrt, training)
            self._lists = {**dict([*self._lists.items()][1 - KINDS :]), key: made}
        lists = self.known(*key)
        found = None if lists is None else lists.answer(feeds, arrays)
        if found is not None:
            self._used = lists, wrt, training
            return found
        answer = self._answer(run, dicts, named, wrt, training)
        self._last = key
        return answer


def _are(names: Names | None, others: Names | None) -> bool:
    """True if the same objects are given as names. Wrong arguments may be of types whose `==` is not a bool."""
    return names is not None and others is not None and len(names) == len(others) and all(map(is_, names, others))


def call_by_plan(
    run: Run, dicts: tuple[Feeds, ...], feeds: Feeds, _: Any = None, training: bool = False, seed: int | None = None
) -> dict[str, Array]:
    """The answer to a call of a run, op by op."""
    arrays, kinds = run._read(dicts, feeds)
    context = run._context(seed, training)
    plan = run._forward.get(kinds, lambda: run._planned_forward(*run._types(arrays, kinds)))
    plan.compiled.wake()
    arrays = run._workspace_arrays(plan, arrays)
    workspace = filled(arrays)
    with plan.compiled.running_forward() as kernels:
        execute(plan.program, workspace, context, kernels=run._kernels(plan, kernels))
    return outputs_of(plan.program, workspace, arrays)


def vjp_by_plan(
    run: Run, dicts: tuple[Feeds, ...], feeds: Feeds, wrt: Any = None, training: bool = True, seed: int | None = None
) -> tuple[dict[str, Array], Pullback]:
    """Outputs and pullback of a run, op by op."""
    arrays, kinds = run._read(dicts, feeds)
    context, names = run._context(seed, training), checked_wrt(run.net, wrt)
    plan = run._training.get((names, kinds), lambda: run._planned_training(names, *run._types(arrays, kinds)))
    plan.compiled.wake()
    arrays = run._workspace_arrays(plan, arrays)
    workspace, kept = filled(arrays), Workspace()
    kept.parent = workspace
    with plan.compiled.running_forward() as kernels:
        found = run._kernels(plan, kernels)
        execute(plan.program, workspace, context, plan.residuals.kept, kept, found)
    outputs = outputs_of(plan.program, kept, arrays)
    held = {name: kept[name] for name in (*plan.residuals.kept, *plan.residuals.free)}
    fed = as_given(names, arrays, (*dicts, feeds))
    pullback = run.pullback(plan, held, outputs, context, fed)
    pullback.steps = run._steps
    return outputs, pullback


@dataclass(frozen=True)
class PlannedRun:
    """The result of `run.plan`; nothing is computed or allocated for it.

    Args:
        device: `"cpu"`, `"reference"` or `"cuda"`.
        plan: the plan of calls with such feeds.
        calls: for bound runs: how calls are answered from the second one on, in words.
        budget: returns a line on the choice of the memory budget; None if there is no budget.
    """

    device: str
    plan: ForwardPlan | TrainingPlan
    calls: str = ""
    budget: Callable[[], str] | None = field(default=None, compare=False, repr=False)

    def describe(self) -> str:
        """The plan as text: loops, products, blobs that are kept, computed again or aliased, and interpreted ops."""
        return describe.describe_plan(self.plan, self.device, self.calls, self.budget() if self.budget else "")

    def memory(self) -> MemoryTable:
        """The allocations at the peak of each pass."""
        return memory_timeline.memory_of(self.plan)

    def memory_curve(self) -> MemoryCurve:
        """Planned bytes from op to op, forward and backward, with the peak and the allocations at the peak.

        Returns:
            A picture; `print` says the same in words. Its `peak` is the `total` of `memory()`.
        """
        return memory_timeline.memory_curve(self.plan)

    def draw(self) -> Schedule:
        """The schedule: stages over tiles and steps of each recurrence, on which threads, in how many bytes.

        Returns:
            A picture of the forward pass, and of the backward pass where it is planned; `print` says the same in words.
        """
        return schedule.plan_schedule(self.plan, self.device)

    def draw_net(self, opened: bool = True, views: bool = False) -> Drawing:
        """The forward net as a picture. Borders of boxes show which blobs are kept for backward or computed again.

        Args:
            opened: whether cells are drawn within recurrences.
            views: whether ops that only change shape or order are drawn, such as Reshape and Transpose.

        Returns:
            A picture with the sizes of all blobs, those of one step in cells; `print` says the same in words.
        """
        return describe.draw_saved(self.plan, opened, views)

    @property
    def source(self) -> str:
        """The generated modules as Python with names of blobs; `""` if everything runs in the interpreter."""
        runners = ((title, call, runner) for title, call, runner in describe.compiled_ops(self.plan) if runner)
        found = [([title, *describe.variables_of(call)], runner.compiled) for title, call, runner in runners]
        heads = (("\n".join(f"# {line}" for line in lines), scan) for lines, scan in found if scan is not None)
        return "\n\n".join(f"{head}\n{scan.text.shown()}" for head, scan in heads)

    def load(self) -> None:
        """Compile all kernels, or load them from the disk. Shows a progress bar in a terminal."""
        for runner in with_bar(self.plan.compiled.kernels, "compiling", " kernels"):
            runner.compiled.load()

    def __str__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        return scrolled(self.draw().svg) + folded("in words", preformatted(str(self)))


def made_again(
    kind: Any,
    text: str,
    device: str,
    options: Any,
    bound: dict[str, Any],
    saving: Any,
    starts: Mapping[str, Initializer | None] = MappingProxyType({}),
) -> Any:
    """A run from its pickle. Kernels are loaded or compiled when it is used.

    Args:
        text: the net as text.
        starts: initializers of parameters. They are separate, because the text has no large arrays.
    """
    for array in bound.values():
        array.flags.writeable = False  # as in `bind`: packed copies would not follow a change
    net = texts.parse_net(text)
    specs = [replace(spec, initializer=starts.get(spec.name, spec.initializer)) for spec in net.input_specs]
    return kind(net.with_ops(net.ops, inputs=specs).snapshot(), device, options, bound, saving)
