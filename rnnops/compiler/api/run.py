"""`Run`: a net on a device, called with arrays.

Devices: `"reference"`, the interpreter, and `"cpu"`, which compiles recurrences to fused kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rnnops.arguments import named_arguments
from rnnops.checkpoints.policy import DEFAULT_SAVING, Policy, Saving, as_policy
from rnnops.compiler.api.feeds import (
    as_array,
    as_arrays,
    as_given,
    check_bound,
    checked_seed,
    checked_wrt,
    merge_feeds,
    plain_arrays,
)
from rnnops.compiler.api.planned_run import PlannedRun
from rnnops.compiler.api.precision import check_floats
from rnnops.compiler.api.printed_run import PrintedRun
from rnnops.compiler.api.pullback import Pullback
from rnnops.compiler.api.type_feeds import types_of_feeds
from rnnops.compiler.api.weights import check_weights
from rnnops.compiler.execute.compiled_scan import EXACT, REFERENCE, Options, steps_of_tile
from rnnops.compiler.pipeline import (
    ForwardPlan,
    PlanCache,
    TrainingPlan,
    forward_structure,
    live_net,
    saved_by,
    training_structure,
    with_memory,
)
from rnnops.compiler.plan_templates import PlanTemplates
from rnnops.compiler.rewrite.number_random_ops import first_live_random_op
from rnnops.compiler.saving.fit_budget import Saved, fit_budget
from rnnops.errors import DeviceError
from rnnops.interpreter import Program, Workspace, execute, is_whole
from rnnops.lazy import LazyModule
from rnnops.net import Net
from rnnops.schema import Call, RunContext
from rnnops.types import Array, Type, type_of

if TYPE_CHECKING:
    from rnnops.compiler.api import bound_run as bound_run, stream as streams
    from rnnops.compiler.api.stream import Stream
    from rnnops.compiler.export.export_native import ExportedFiles
    from rnnops.compiler.report import (
        budget_curve as budget_curve,
        estimates as estimates,
        profile as profile,
        saved_residuals as saved_residuals,
    )
    from rnnops.compiler.report.budget_curve import BudgetCurve
    from rnnops.compiler.report.estimates import Estimate, EstimateTable
    from rnnops.compiler.report.profile import Profile
    from rnnops.compiler.report.saved_residuals import SavedResiduals
else:  # a first call does without
    bound_run = LazyModule("rnnops.compiler.api.bound_run")
    budget_curve = LazyModule("rnnops.compiler.report.budget_curve")
    estimates = LazyModule("rnnops.compiler.report.estimates")
    profile = LazyModule("rnnops.compiler.report.profile")
    saved_residuals = LazyModule("rnnops.compiler.report.saved_residuals")
    streams = LazyModule("rnnops.compiler.api.stream")

CUDA = "cuda"
PLANS = 512  # of one run, for calls and for `vjp`; one takes about a hundred kilobytes
Feeds = Mapping[str, Any]


class Run(PrintedRun):
    """A compiled net. Calls may come from several threads; all state of a backward pass lives in its pullback."""

    pullback: ClassVar[type[Pullback]] = Pullback
    symbolic: ClassVar[bool] = True  # whether plans for new sizes are filled in

    def __init__(
        self,
        net: Net,
        device: str,
        options: Options = REFERENCE,
        bound: Feeds | None = None,
        saving: Saving = DEFAULT_SAVING,
    ) -> None:
        self.net, self.device, self._options, self._saving = net, device, options, saving
        self._live = live_net(net, "" if options.precision == EXACT else options.precision)
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

    def __call__(
        self, *dicts: Feeds, seed: int | None = None, training: bool = False, **feeds: Any
    ) -> dict[str, Array]:
        """Forward pass.

        Args:
            dicts, feeds: input name -> array.
            seed: of random ops; needed where they are live and `training` is on.
            training: whether Dropout is active.

        Returns: output name -> array. Raises FeedError and TypeRuleError for feeds that do not fit.
        """
        arrays, kinds = self._read(dicts, feeds)
        context = self._context(seed, training)
        plan = self._forward.get(kinds, lambda: self._planned_forward(*self._types(arrays, kinds)))
        plan.compiled.rouse()
        arrays = self._workspace_arrays(plan, arrays)
        workspace = _filled(arrays)
        with plan.compiled.running_forward() as kernels:
            execute(plan.program, workspace, context, kernels=self._kernels(plan, kernels))
        return _outputs(plan.program, workspace, arrays)

    def vjp(
        self, *dicts: Feeds, seed: int | None = None, training: bool = True, wrt: Any = None, **feeds: Any
    ) -> tuple[dict[str, Array], Pullback]:
        """Forward pass that keeps what backward reads, and the pullback that runs backward.

        Args:
            wrt: names of the inputs whose gradients are wanted; all float inputs if left out.

        Feeds are borrowed until the pullback is used or dropped; outputs that backward reads are read-only until then.
        Raises what a call raises, and GradientError where the net cannot be differentiated.
        """
        arrays, kinds = self._read(dicts, feeds)
        context, names = self._context(seed, training), checked_wrt(self.net, wrt)
        plan = self._training.get((names, kinds), lambda: self._planned_training(names, *self._types(arrays, kinds)))
        plan.compiled.rouse()
        arrays = self._workspace_arrays(plan, arrays)
        workspace, kept = _filled(arrays), Workspace()
        kept.parent = workspace
        with plan.compiled.running_forward() as kernels:
            found = self._kernels(plan, kernels)
            execute(plan.program, workspace, context, plan.residuals.kept, kept, found)
        outputs = _outputs(plan.program, kept, arrays)
        held = {name: kept[name] for name in (*plan.residuals.kept, *plan.residuals.free)}
        fed = as_given(names, arrays, (*dicts, feeds))
        return outputs, self.pullback(plan, held, outputs, context, fed)

    def plan(
        self, *dicts: Feeds, backward: bool = True, wrt: Any = None, dtype: Any = None, **feeds: Any
    ) -> PlannedRun:
        """What a run does with feeds of certain shapes: loops, memory, generated source. Nothing is computed.

        Args:
            dicts, feeds: input name -> array or shape; inputs with declared shapes may be left out.
            backward: whether `vjp` and its pullback are planned, or a call.
            wrt: as for `vjp`.
            dtype: of floats where no arrays are given; float32 if left out.

        Raises FeedError for what is missing or does not fit, and what planning a call raises.
        """
        types, float_dtype = types_of_feeds(self.net, (self._bound, *dicts), feeds, dtype, self._fed)
        kinds = tuple((np.dtype(types[name].dtype), types[name].shape) for name in self._names)
        if not backward:
            planned = self._forward.get(kinds, lambda: self._planned_forward(types, float_dtype))
            return PlannedRun(self.device, planned)
        names = checked_wrt(self.net, wrt)
        return PlannedRun(
            self.device, self._training.get((names, kinds), lambda: self._planned_training(names, types, float_dtype))
        )

    def warm_up(self, *dicts: Feeds, backward: bool = True, wrt: Any = None, dtype: Any = None, **feeds: Any) -> None:
        """Compile what calls with such feeds run, before the first one; arguments as for `plan`."""
        self.plan(*dicts, backward=False, dtype=dtype, **feeds).load()
        if backward:
            self.plan(*dicts, wrt=wrt, dtype=dtype, **feeds).load()

    def saved_residuals(self, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any) -> SavedResiduals:
        """What `vjp` keeps for its pullback, blob by blob; arguments as for `plan`, and nothing is computed."""
        planned = self.plan(*dicts, wrt=wrt, dtype=dtype, **feeds).plan
        assert isinstance(planned, TrainingPlan)
        return saved_residuals.saved_residuals(planned)

    def memory_estimate(
        self, checkpoints: Any = None, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any
    ) -> Estimate:
        """Bytes and predicted time of a policy; arguments as for `plan`, and nothing is computed.

        Args:
            checkpoints: as for `compile`; what the run itself does, its budget included, if left out.

        Raises CheckpointError for a policy that makes no sense, and what `plan` raises.
        """
        policy = self._saving.policy if checkpoints is None else as_policy(checkpoints, self.net)
        saved, tile = self._saved_by(dicts, wrt, dtype, feeds)
        if checkpoints is None and self._saving.budget is not None:
            policy = fit_budget(saved, self._saving.budget, tile).policy
        return estimates.estimate_of(saved, policy)

    def memory_estimates(self, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any) -> EstimateTable:
        """Bytes against predicted time for all that a budget chooses from; arguments as for `plan`."""
        return estimates.estimates(*self._saved_by(dicts, wrt, dtype, feeds))

    def budget_curve(self, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any) -> BudgetCurve:
        """Bytes against predicted time of what `memory_budget=` takes, down to the least; arguments as for `plan`.

        Returns:
            A picture; `print` says the same in words, and `rows` are the estimates.

        Raises:
            CheckpointError: where nothing fits what the run was compiled with, and what `plan` raises.
        """
        chosen = self.memory_estimate(None, *dicts, wrt=wrt, dtype=dtype, **feeds)
        return budget_curve.budget_curve(self.net.name, *self._saved_by(dicts, wrt, dtype, feeds), chosen)

    def profile(
        self,
        *dicts: Feeds,
        backward: bool = True,
        rounds: int = 10,
        warm_up: int = 3,
        seed: int | None = None,
        training: bool | None = None,
        wrt: Any = None,
        **feeds: Any,
    ) -> Profile:
        """How long each op takes and what it makes, on average over some rounds.

        Args:
            dicts, feeds: input name -> array.
            backward: whether rounds are `vjp` and its pullback, or calls.
            rounds: that are timed.
            warm_up: rounds before them, which are not.
            training: on where `backward` is, if left out.

        Raises what a call raises, and FeedError for numbers of rounds that make no sense.
        """
        watched, active = copy(self), backward if training is None else training
        plans = profile.WatchedPlans(self._training if backward else self._forward, self._clock, self._reference)
        if backward:
            watched._training = plans
            return profile.profile_run(
                lambda: watched.vjp(*dicts, seed=seed, training=active, wrt=wrt, **feeds), plans, True, rounds, warm_up
            )
        watched._forward = plans
        return profile.profile_run(
            lambda: watched(*dicts, seed=seed, training=active, **feeds), plans, False, rounds, warm_up
        )

    @named_arguments
    def bind(self, *, weights: Any = None, **params: Any) -> Run:
        """A run with some inputs fed once and for all (copies are taken).

        Args:
            weights: `"int8"` keeps bound weights of products as whole numbers of a byte with a scale for each column
                (docs/precision.md); None as they are. An array is for an input of that name.
            params: input name -> array.

        Raises FeedError for what names no input or does not fit, DeviceError where weights cannot be kept so.
        """
        if weights is not None and not isinstance(weights, str):
            weights, params = None, {**params, "weights": weights}
        if weights is not None:
            check_weights(self.net.name, weights, self.device, self._options)
        for name in params:
            check_bound(self.net, name)
        arrays, _ = as_arrays(self.net, {**self._bound, **params}, self._fed)
        kept = weights or self._options.weights
        options = replace(self._options, fixed=frozenset(arrays), weights=kept)
        copies = {name: array.copy().view() for name, array in arrays.items()}
        for array in copies.values():
            array.flags.writeable = False  # packed copies would not follow; kernels take the memory behind the view
        if options.interpreted and not kept:
            return Run(self.net, self.device, options, copies, self._saving)
        made = bound_run.BoundRun(self.net, self.device, options, copies, self._saving)
        if weights is not None:
            _ = made.served  # which finds what is wrong with weights
        return made

    def export_native(
        self,
        folder: str | os.PathLike[str],
        *dicts: Feeds,
        name: str | None = None,
        states: Mapping[str, str] | None = None,
        dtype: Any = None,
        source: str | None = None,
        **feeds: Any,
    ) -> ExportedFiles:
        """Write a call as an object file, a C header and weights, which need no Python where they run.

        Args:
            folder: for NAME.o (or NAME.c), NAME.h and NAME.weights; made if it is not there.
            dicts, feeds: as for `plan`: arrays or shapes of inputs that are not bound.
            name: that the functions of C begin with; the net's if it is a word of C, else `model`.
            states: output -> input of the next call: these stay in the memory of the C program.
            dtype: of floats where no arrays are given.
            source: "c99" for plain C99 in place of an object: for any little-endian processor, whose numbers are those
                of other devices within rounding; None for an object for this processor, with the bits of a call.

        The code is for one thread. Raises FeedError for feeds, states and names that do not fit,
        DeviceError on other devices and where Python has a part in the plan, OSError where files cannot be written.
        """
        self._check_exported()

        def call(run: Run) -> PlannedRun:
            return run.plan(*dicts, backward=False, dtype=dtype, **feeds)

        return self._bound_for_export().write_export(call, (dicts, feeds), folder, name, states, source)

    def _bound_for_export(self) -> bound_run.BoundRun:
        run = self.bind()
        assert isinstance(run, bound_run.BoundRun)
        return run

    def _check_exported(self) -> None:
        if self._options.interpreted or self.device == CUDA:
            raise DeviceError("only the CPU device is exported", net=self.net.name, came=self.device)

    @named_arguments
    def stream(
        self,
        states: Mapping[str, str],
        rows: int | None = None,
        shapes: Any = None,
        initial: Any = None,
        dtype: Any = None,
    ) -> Stream:
        """This run, called frame by frame: states stay inside from call to call.

        Args:
            states: name of an output -> name of the input that it feeds at the next call.
            rows: of the batch; 1 if left out.
            shapes: input name -> numbers, and a name in place of the number of rows, as `(1, "N", 64)`. Shapes that are
                declared need not be said, nor those of initial arrays; their axis of rows is then the one of `rows=`
                elements, if that is said. Inputs that are no states are looked past: `OnnxModel.shapes` will do.
            initial: input name -> what a state begins with, an array that broadcasts to its shape; zeros if left out.
            dtype: of float states where no arrays are given; float32 if left out.

        Raises StreamError for what does not fit.
        """
        return streams.open_stream(self, self._bound, self._fed, states, rows, shapes, initial, dtype)

    def _saved_by(
        self, dicts: tuple[Feeds, ...], wrt: Any, dtype: Any, feeds: Feeds
    ) -> tuple[Callable[[Policy], Saved], Callable[[int, int], int]]:
        """What each policy saves with feeds of certain shapes, and the steps of tiles."""
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

    def _workspace_arrays(self, plan: ForwardPlan | TrainingPlan, arrays: dict[str, Array]) -> dict[str, Array]:
        """Feeds where the ops of a plan want them."""
        return arrays

    def _kernels(self, plan: ForwardPlan | TrainingPlan, kernels: Mapping[str, Any]) -> Mapping[str, Any]:
        """What runs the ops of a forward pass in place of their references, by key."""
        return kernels

    def _reference(self, call: Call) -> Any:
        """What runs an op that is not compiled; None for its reference."""
        return None

    def _clock(self) -> float:
        """Seconds, when all work so far is done."""
        return perf_counter()

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

    def _context(self, seed: int | None, training: bool) -> RunContext:
        return RunContext(checked_seed(self.net, seed, self._random_ops[bool(training)]), bool(training))


def _filled(arrays: Mapping[str, Array]) -> Workspace:
    workspace = Workspace()
    workspace.local.update(arrays)
    return workspace


def _outputs(program: Program, workspace: Workspace, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs as arrays of the caller's own: copies where they would share memory with feeds, constants or each other.

    `_all` and `_last` of a state stay views of one tensor where both are outputs; `_last` alone does not keep it alive.
    """
    arrays = {name: workspace[blob] for name, blob in program.net.output_blobs.items()}
    whole = {id(_root(array)) for array in arrays.values() if is_whole(array)}
    borrowed = {id(array) for feed in feeds.values() for array in (feed, feed.base) if array is not None}
    outputs: dict[str, Array] = {}
    seen: set[int] = set()
    for name, array in arrays.items():
        shared = not array.flags.writeable or id(_root(array)) in borrowed
        alone = array.base is not None and id(array.base) not in whole
        outputs[name] = array.copy() if shared or id(array) in seen or alone else array.view()
        seen.add(id(array))
    return outputs


def _root(array: Array) -> Any:
    """What owns an array's memory."""
    return array if array.base is None else array.base
