"""The part of a run that plans, and the plan that users read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rnnops.arguments import Attributes, check_flags
from rnnops.checkpoints.policy import DEFAULT_SAVING, Policy, Saving, as_policy
from rnnops.compiler.api.feeds import (
    as_array,
    as_arrays,
    check_floats,
    checked_wrt,
    memory_named,
    merge_feeds,
    of_run,
    plain_arrays,
    types_of_feeds,
)
from rnnops.compiler.memory.choose_saved import Saved, fit_budget
from rnnops.compiler.memory.memory import Pool
from rnnops.compiler.rewrite.fuse_ops import first_live_random_op
from rnnops.compiler.run.compiled_scan import EXACT, REFERENCE, Options, steps_of_tile
from rnnops.compiler.run.pipeline import (
    ForwardPlan,
    PlanCache,
    TrainingPlan,
    forward_structure,
    live_net,
    saved_by,
    training_structure,
    with_memory,
)
from rnnops.compiler.run.plan_templates import PlanTemplates
from rnnops.net.net import Net
from rnnops.net.parse import parse_net
from rnnops.net.text import format_input
from rnnops.types import Array, Type, type_of
from rnnops.util import LazyModule, folded, preformatted, scrolled, with_bar

if TYPE_CHECKING:
    from rnnops.compiler.report import (
        budget_curve,
        describe,
        memory_curve,
        memory_timeline,
        profile,
        schedule,
    )
    from rnnops.compiler.report.budget_curve import BudgetCurve, Estimate, EstimateTable
    from rnnops.compiler.report.memory_curve import MemoryCurve
    from rnnops.compiler.report.memory_timeline import MemoryTable
    from rnnops.compiler.report.profile import SavedResiduals
    from rnnops.compiler.report.schedule import Schedule
    from rnnops.pictures.drawing import Drawing
else:  # a first call does without
    budget_curve = LazyModule("rnnops.compiler.report.budget_curve")
    describe = LazyModule("rnnops.compiler.report.describe")
    memory_curve = LazyModule("rnnops.compiler.report.memory_curve")
    memory_timeline = LazyModule("rnnops.compiler.report.memory_timeline")
    profile = LazyModule("rnnops.compiler.report.profile")
    schedule = LazyModule("rnnops.compiler.report.schedule")


@dataclass(frozen=True)
class PlannedRun:
    """The result of `run.plan`; nothing is computed or allocated for it.

    Args:
        device: `"cpu"` or `"reference"`.
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


class PrintedRun(Attributes):
    """Base of runs: a net, a device, options and what is bound; all else is made again where it is wanted."""

    net: Net
    device: str
    _options: Options
    _saving: Saving
    _bound: dict[str, Any]

    def __repr__(self) -> str:
        free = [format_input(spec) for spec in self.net.input_specs if spec.name not in self._bound]
        bound = f"; bound {', '.join(self._bound)}" if self._bound else ""
        ports = f"{', '.join(free)} -> {', '.join(self.net.output_blobs)}"
        return f"<{type(self).__name__} of net '{self.net.name}' on {self.device}: {ports}{bound}>"

    def __copy__(self) -> PrintedRun:
        """The same plans and kernels, as a copy that differs in some attribute has."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """By the text of the net and by options: kernels are loaded, or compiled, where the copy is used."""
        options = replace(self._options, pool=Pool())  # which holds memory, and what was packed once
        return _again, (type(self), str(self.net), self.device, options, self._bound, self._saving)

    def _place(self) -> dict[str, str]:
        return {"net": object.__getattribute__(self, "net").name}

    def _attribute_hint(self, name: str) -> str | None:
        return "run(feeds) is a call; out, pullback = run.vjp(feeds) and pullback(grads) train."


def _again(kind: Any, text: str, device: str, options: Options, bound: dict[str, Any], saving: Saving) -> PrintedRun:
    for array in bound.values():
        array.flags.writeable = False  # as `bind` has them: packed copies would not follow
    found: PrintedRun = kind(parse_net(text).snapshot(), device, options, bound, saving)
    return found


PLANS = 512  # of one run, for calls and for `vjp`; one takes about a hundred kilobytes
Feeds = Mapping[str, Any]


class PlanningRun(PrintedRun):
    """Base of runs: plans by the types of feeds, and tables of what they keep and cost."""

    symbolic: ClassVar[bool] = True  # whether plans for new sizes are filled in
    numbered: ClassVar[bool] = False  # whether the net's random ops are

    def __init__(
        self,
        net: Net,
        device: str,
        options: Options = REFERENCE,
        bound: Feeds | None = None,
        saving: Saving = DEFAULT_SAVING,
    ) -> None:
        self.net, self.device, self._options, self._saving = net, device, options, saving
        self._live = live_net(net, "" if options.precision == EXACT else options.precision, self.numbered)
        self._random_ops = {training: first_live_random_op(self._live, training) for training in (False, True)}
        self._bound = dict(bound or {})
        self._names = tuple(net.input_names)
        self._float_dtypes: PlanCache[str] = PlanCache(limit=256)
        self._forward: PlanCache[ForwardPlan] = PlanCache(PLANS)
        self._training: PlanCache[TrainingPlan] = PlanCache(PLANS)
        self._templates: tuple[PlanTemplates[ForwardPlan], PlanTemplates[TrainingPlan]]
        self._templates = PlanTemplates(), PlanTemplates()
        declared = {spec.name for spec in self._live.input_specs if spec.shape is not None}
        self._known_sizes = frozenset(self._bound) | declared

    @memory_named(of_run)
    def plan(
        self, *dicts: Feeds, backward: bool = True, wrt: Any = None, dtype: Any = None, **feeds: Any
    ) -> PlannedRun:
        """The plan for feeds of certain shapes: loops, memory, generated source. Nothing is computed.

        Args:
            dicts, feeds: input name -> array or shape; inputs with declared shapes may be left out.
            backward: whether `vjp` and its pullback are planned, or a call.
            wrt: as for `vjp`.
            dtype: of floats where no arrays are given; float32 if left out.

        Returns:
            A plan, which prints; `memory()` is a table, `source` the generated code.

        Raises:
            FeedError: what is given is missing or does not fit.
            TypeRuleError: shapes do not fit the ops.
            GradientError: the net cannot be differentiated.
            CheckpointError: as `vjp`.

        Example:
            >>> net = ro.Net("n")
            >>> net.outputs(y=ro.tanh(net.input("x")))
            >>> print(ro.compile(net, threads=1).plan(x=(2, 3), backward=False).memory())
            forward pass: 24 B, most at 'tanh_0'
              kind    what    of      dtype    shape   bytes
              output  tanh_0  tanh_0  float32  [2, 3]     24
              total                                       24
            <BLANKLINE>
            Not counted: what the interpreter needs within an op.
        """
        check_flags("plan", backward=backward)
        types, float_dtype = types_of_feeds(self.net, (self._bound, *dicts), feeds, dtype, self._fed)
        kinds = tuple((np.dtype(types[name].dtype), types[name].shape) for name in self._names)
        if not backward:
            planned = self._forward.get(kinds, lambda: self._planned_forward(types, float_dtype))
            return PlannedRun(self.device, planned)
        names = checked_wrt(self.net, wrt)
        return PlannedRun(
            self.device, self._training.get((names, kinds), lambda: self._planned_training(names, types, float_dtype))
        )

    @memory_named(of_run)
    def warm_up(self, *dicts: Feeds, backward: bool = True, wrt: Any = None, dtype: Any = None, **feeds: Any) -> None:
        """Compile what calls with such feeds run, before the first one.

        Args:
            dicts, feeds: as for `plan`: arrays or shapes.
            backward: whether `vjp` and its pullback are compiled, too.
            wrt: as for `vjp`.
            dtype: as for `plan`.

        Raises:
            FeedError: as `plan`, and what else it raises.
        """
        check_flags("warm_up", backward=backward)
        self.plan(*dicts, backward=False, dtype=dtype, **feeds).load()
        if backward:
            self.plan(*dicts, wrt=wrt, dtype=dtype, **feeds).load()

    def saved_residuals(self, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any) -> SavedResiduals:
        """The residuals that `vjp` keeps for its pullback, blob by blob; nothing is computed.

        Args:
            dicts, feeds: as for `plan`: arrays or shapes.
            wrt: as for `vjp`.
            dtype: as for `plan`.

        Returns:
            A table with `blobs` and `total` bytes, which prints.

        Raises:
            FeedError: as `plan`, and what else it raises.

        Example:
            >>> net = ro.Net("n")
            >>> net.outputs(y=ro.exp(ro.tanh(net.input("x"))))
            >>> print(ro.compile(net).saved_residuals(x=(2, 3)))
              status      blob    of  dtype    shape   bytes
              recomputed  tanh_0      float32  [2, 3]      0
              recomputed  exp_0       float32  [2, 3]      0
              total                                        0
        """
        planned = self.plan(*dicts, wrt=wrt, dtype=dtype, **feeds).plan
        assert isinstance(planned, TrainingPlan)
        return profile.saved_residuals(planned)

    @memory_named(of_run)
    def memory_estimate(
        self, checkpoints: Any = None, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any
    ) -> Estimate:
        """Bytes and predicted time of a policy; nothing is computed.

        Args:
            checkpoints: as for `ro.compile`; what the run itself does, its budget included, if left out.
            dicts, feeds: as for `plan`: arrays or shapes.
            wrt: as for `vjp`.
            dtype: as for `plan`.

        Returns:
            The policy with `nbytes` held at most and `time`, that of one that does nothing twice being 1.

        Raises:
            CheckpointError: the policy makes no sense.
            FeedError: as `plan`, and what else it raises.
        """
        policy = self._saving.policy if checkpoints is None else as_policy(checkpoints, self.net)
        saved, tile = self._saved_by(dicts, wrt, dtype, feeds)
        if checkpoints is None and self._saving.budget is not None:
            policy = fit_budget(saved, self._saving.budget, tile).policy
        return budget_curve.estimate_of(saved, policy)

    @memory_named(of_run)
    def memory_estimates(self, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any) -> EstimateTable:
        """Bytes against predicted time for all that a budget chooses from; nothing is computed.

        Args:
            dicts, feeds: as for `plan`: arrays or shapes.
            wrt: as for `vjp`.
            dtype: as for `plan`.

        Returns:
            A table of estimates, the fastest first, which prints.

        Raises:
            FeedError: as `plan`, and what else it raises.
        """
        return budget_curve.estimates(*self._saved_by(dicts, wrt, dtype, feeds))

    def budget_curve(self, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any) -> BudgetCurve:
        """Bytes against predicted time of what `memory_budget=` takes, down to the least; nothing is computed.

        Args:
            dicts, feeds: as for `plan`: arrays or shapes.
            wrt: as for `vjp`.
            dtype: as for `plan`.

        Returns:
            A picture; `print` says the same in words, and `rows` are the estimates.

        Raises:
            CheckpointError: nothing fits what the run was compiled with.
            FeedError: as `plan`, and what else it raises.
        """
        chosen = self.memory_estimate(None, *dicts, wrt=wrt, dtype=dtype, **feeds)
        return budget_curve.budget_curve(self.net.name, *self._saved_by(dicts, wrt, dtype, feeds), chosen)

    def _saved_by(
        self, dicts: tuple[Feeds, ...], wrt: Any, dtype: Any, feeds: Feeds
    ) -> tuple[Callable[[Policy], Saved], Callable[[int, int], int]]:
        """The residuals of each policy for feeds of certain shapes, and the steps of tiles."""
        types, float_dtype = types_of_feeds(self.net, (self._bound, *dicts), feeds, dtype, self._fed)
        check_floats(self.net, self._options.precision, float_dtype)
        residuals = self._saving.policy.residuals
        saved = saved_by(self._live, types, float_dtype, checked_wrt(self.net, wrt), residuals, self._options)
        return saved, partial(steps_of_tile, self._options)

    def _read(self, dicts: tuple[Feeds, ...], named: Feeds) -> tuple[dict[str, Array], Hashable]:
        """Checked feeds by input, and what plans depend on: their dtypes and shapes."""
        names = self._names
        plain = plain_arrays(names, (self._bound, *dicts), named)
        if plain is not None:
            kinds = tuple([(array.dtype, array.shape) for array in plain])
            if kinds in self._float_dtypes:
                return dict(zip(names, plain, strict=True)), kinds
        arrays, float_dtype = as_arrays(self.net, merge_feeds(self.net, (self._bound, *dicts), named), self._fed)
        kinds = tuple((arrays[name].dtype, arrays[name].shape) for name in names)
        self._float_dtypes.get(kinds, lambda: float_dtype)
        return {name: arrays[name] for name in names}, kinds

    def _fed(self, net: str, name: str, value: Any) -> Any:
        """A feed of an input as an array. Raises FeedError for what is none."""
        return as_array(net, name, value)

    def _types(self, arrays: Feeds, kinds: Hashable) -> tuple[dict[str, Type], str]:
        float_dtype = self._float_dtypes.get(kinds, lambda: as_arrays(self.net, arrays, self._fed)[1])
        return {name: type_of(array) for name, array in arrays.items()}, float_dtype

    def _planned_forward(self, types: Mapping[str, Type], float_dtype: str) -> ForwardPlan:
        """A plan of a call with feeds of certain types."""
        check_floats(self.net, self._options.precision, float_dtype)

        def make(types: Mapping[str, Type]) -> ForwardPlan:
            return forward_structure(self._live, types, float_dtype, self._options)

        if not self.symbolic:
            return with_memory(make(types))
        return with_memory(self._templates[0].plan(float_dtype, types, self._known_sizes, make))

    def _planned_training(self, wrt: tuple[str, ...], types: Mapping[str, Type], float_dtype: str) -> TrainingPlan:
        """A plan of `vjp` with feeds of certain types."""
        check_floats(self.net, self._options.precision, float_dtype)

        def make(types: Mapping[str, Type]) -> TrainingPlan:
            return training_structure(self._live, types, float_dtype, wrt, self._options, self._saving)

        if not self.symbolic:
            return with_memory(make(types))
        return with_memory(self._templates[1].plan((wrt, float_dtype), types, self._known_sizes, make))
