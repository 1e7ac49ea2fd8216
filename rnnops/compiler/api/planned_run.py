"""A plan as users read it: loops, memory, pictures, generated source."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rnnops.compiler.api.derivatives import Pullback
from rnnops.compiler.api.feeds import Feeds, as_given, checked_wrt, filled, outputs_of, plain_arrays
from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan
from rnnops.interpreter import Workspace, execute
from rnnops.net.op import Initializer
from rnnops.types import Array
from rnnops.util import LazyModule, folded, preformatted, scrolled, with_bar

if TYPE_CHECKING:
    from rnnops.compiler.api.run import Run
    from rnnops.compiler.report import describe, memory_timeline, profile, schedule
    from rnnops.compiler.report.memory_timeline import MemoryCurve, MemoryTable
    from rnnops.compiler.report.schedule import Schedule
    from rnnops.net import parse
    from rnnops.net.drawing import Drawing
else:  # a first call does without
    describe = LazyModule("rnnops.compiler.report.describe")
    memory_timeline = LazyModule("rnnops.compiler.report.memory_timeline")
    profile = LazyModule("rnnops.compiler.report.profile")
    parse = LazyModule("rnnops.net.parse")
    schedule = LazyModule("rnnops.compiler.report.schedule")


SHORT = 1 << 22  # bytes of a plan whose calls are recorded: of longer ones, Python's part is short


class RepeatedCalls:
    """Calls with feeds of the same types as the one before are recorded: then each is one native call.

    Args:
        answer: answers a call of a run by its plan.
        lists: makes what answers calls of a run by lists of jobs.
    """

    def __init__(self, answer: Callable[..., Any], lists: Callable[[Run], Any]) -> None:
        self._answer, self._make = answer, lists
        self._lists: Any = None
        self._last: Hashable = None
        self.by_parts = False  # whether pullbacks are asked for more than gradients, which only plans have

    def known(self, kinds: Hashable, *how: Any) -> Any:
        """The lists of jobs that answer such calls, None where there are none."""
        return None if self._lists is None or self.by_parts else self._lists.known((kinds, how) if how else kinds)

    def __call__(self, run: Run, dicts: tuple[Feeds, ...], named: Feeds, *how: Any) -> Any:
        """The answer to a call; `how` are its other arguments."""
        feeds = None if self.by_parts else plain_arrays(run._names, dicts, named)
        if feeds is None:
            return self._answer(run, dicts, named, *how)
        kinds = tuple([(array.dtype, array.shape) for array in feeds])
        key = (kinds, how) if how else kinds
        if self._lists is None and key == self._last:
            self._lists = self._make(run)
            self._lists.answered(key)
        found = None if self._lists is None else self._lists.call(key, feeds, (*dicts, named))
        if found is not None:
            return found
        answer = self._answer(run, dicts, named, *how)
        self._last = key
        if self._lists is not None:
            self._lists.answered(key)
        return answer


def is_plain(wrt: Any) -> bool:
    """True if these names need no check before they are looked up."""
    return wrt is None or (type(wrt) in (list, tuple) and all(type(name) is str for name in wrt))


def is_random(run: Run, seed: Any, training: Any) -> bool:
    """True if a training step draws random numbers, or a seed or a mode is none that needs no check."""
    plain = type(training) is bool and (seed is None or (type(seed) is int and 0 <= seed < 2**64))
    return not plain or run._random_ops[training] is not None


def call_by_plan(
    run: Run, dicts: tuple[Feeds, ...], feeds: Feeds, seed: int | None = None, training: bool = False
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
        plan: the one that calls with such feeds use.
        calls: how bound runs answer these, from the second one on.
        budget: what a memory budget has chosen, as a line; None where there is no budget.
    """

    device: str
    plan: ForwardPlan | TrainingPlan
    calls: str = ""
    budget: Callable[[], str] | None = field(default=None, compare=False, repr=False)

    def describe(self) -> str:
        """Loops, products, what is kept, computed again and aliased, and what runs in the interpreter, as text."""
        return describe.describe_plan(self.plan, self.device, self.calls, self.budget() if self.budget else "")

    def memory(self) -> MemoryTable:
        """The allocations at the peak of each pass."""
        return memory_timeline.memory_of(self.plan)

    def memory_curve(self) -> MemoryCurve:
        """Planned bytes from op to op, forward and backward, with the peak and what is there then.

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
        """The net that is run forward as a picture: borders tell what is kept for the backward pass or computed again.

        Args:
            opened: whether cells are drawn within recurrences.
            views: whether ops that give elements another shape or order are drawn, such as Reshape and Transpose.

        Returns:
            A picture with the sizes of all blobs, those of one step in cells; `print` says the same in words.
        """
        return profile.draw_saved(self.plan, opened, views)

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


def made_again(
    kind: Any,
    text: str,
    device: str,
    options: Any,
    bound: dict[str, Any],
    saving: Any,
    starts: Mapping[str, Initializer | None] = MappingProxyType({}),
) -> Any:
    """A run that was pickled: kernels are loaded, or compiled, where it is used.

    Args:
        starts: initializers of parameters, as the text does not hold large arrays.
    """
    for array in bound.values():
        array.flags.writeable = False  # as `bind` has them: packed copies would not follow
    net = parse.parse_net(text)
    specs = [replace(spec, initializer=starts.get(spec.name, spec.initializer)) for spec in net.input_specs]
    return kind(net.with_ops(net.ops, inputs=specs).snapshot(), device, options, bound, saving)
