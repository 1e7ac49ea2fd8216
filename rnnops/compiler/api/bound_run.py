"""Runs with bound inputs on processors: what models that are served do.

A call does once, at the first one, what follows from bound inputs alone (`fold_bound.py`), and compiles all other ops
that have a compiled form, however little they do: in a step of one row the interpreter would take longer for one of
them than kernels for the whole net. Feeds of the same types as before are answered by one call of compiled code
(`job_list.py`). `vjp` differentiates the net as it is, unless weights are kept as int8: these have no gradients.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rnnops.arguments import check_flags
from rnnops.checkpoints.policy import Policy
from rnnops.compiler.api.feeds import float_dtype_of, merge_given, plain_arrays
from rnnops.compiler.api.memory_named import memory_named, of_run
from rnnops.compiler.api.native_calls import NativeCalls
from rnnops.compiler.api.planned_run import PlannedRun
from rnnops.compiler.api.planning_run import Feeds
from rnnops.compiler.api.record import record
from rnnops.compiler.api.run import Run
from rnnops.compiler.execute.job_list import Recorded
from rnnops.compiler.execute.recorded_array import NotRecordedError
from rnnops.compiler.execute.recorder import Recorder
from rnnops.compiler.export.c_words import checked_name, name_of
from rnnops.compiler.pipeline import TrainingPlan
from rnnops.compiler.report.profile import Profile
from rnnops.compiler.rewrite.fold_bound import LARGE_CONSTANT, split_bound
from rnnops.compiler.rewrite.int8_weights import int8_weights
from rnnops.compiler.rewrite.lift_from_cells import lift_from_cells
from rnnops.compiler.saving.fit_budget import Saved
from rnnops.compiler.targets.target import PROCESSOR
from rnnops.errors import DeviceError, FeedError, GradientError
from rnnops.interpreter import Workspace, execute, prepare
from rnnops.lazy import LazyModule, cached_property
from rnnops.net import Net
from rnnops.schema import RunContext
from rnnops.types import FLOAT, Array, Type, type_of

if TYPE_CHECKING:
    from rnnops.compiler.export import export_native as export_native, source_recorder as source_recorder
    from rnnops.compiler.export.export_native import ExportedFiles
else:  # who calls does without
    export_native = LazyModule("rnnops.compiler.export.export_native")
    source_recorder = LazyModule("rnnops.compiler.export.source_recorder")

Result = TypeVar("Result")


class ServedRun(Run):
    """What calls of a bound run do; what is drawn is what the net draws that it was folded from."""

    numbered: ClassVar[bool] = True


class BoundRun(Run):
    """A run with some inputs fed once and for all."""

    @memory_named(of_run)
    def __call__(
        self, *dicts: Feeds, seed: int | None = None, training: bool = False, **feeds: Any
    ) -> dict[str, Array]:
        """Forward pass; arguments as of any run."""
        plain = training is not False or seed is not None or self._options.interpreted
        arrays = None if plain else plain_arrays(self._free, dicts, feeds)
        kinds = None if arrays is None else tuple([(array.dtype, array.shape) for array in arrays])
        if arrays is not None:
            found = self._native.call(kinds, arrays)
            if found is not None:
                return found
        outputs = self._served(lambda run: run(*dicts, seed=seed, training=training, **feeds), dicts, feeds)
        self._native.answered(kinds)
        return outputs

    @memory_named(of_run)
    def plan(
        self, *dicts: Feeds, backward: bool = True, wrt: Any = None, dtype: Any = None, **feeds: Any
    ) -> PlannedRun:
        """What a run does; arguments as of any run."""
        check_flags("plan", backward=backward)
        if backward:
            return super().plan(*dicts, wrt=wrt, dtype=dtype, **feeds)
        planned = self._served(lambda run: run.plan(*dicts, backward=False, dtype=dtype, **feeds), dicts, feeds)
        program = planned.plan.program
        try:
            recorded = self._recorded([program.types[name] for name in self._free], program.float_dtype)
        except NotRecordedError as reason:
            return replace(planned, calls=f"op by op, from Python: {reason}")
        count, nbytes = len(recorded.jobs), recorded.nbytes
        return replace(planned, calls=f"one native call of {count} jobs in {nbytes} bytes of memory, weights included")

    def profile(self, *dicts: Feeds, backward: bool = True, **given: Any) -> Profile:
        """How long each op takes; arguments as of any run."""
        check_flags("profile", backward=backward)
        if backward:
            return super().profile(*dicts, **given)
        return self.served.profile(*dicts, backward=False, **given)

    def _bound_for_export(self) -> BoundRun:
        return self

    def write_export(
        self,
        call: Callable[[Run], PlannedRun],
        given: tuple[tuple[Feeds, ...], Feeds],
        folder: str | os.PathLike[str],
        name: str | None,
        states: Mapping[str, str] | None,
        source: str | None,
    ) -> ExportedFiles:
        """What `export_native` does.

        Args:
            call: plans the call that is exported.
            given: what it is given, for errors.
        """
        if source not in (None, "c99"):
            wanted, hint = '"c99" or None', "An object file is written where source= is left out."
            raise FeedError("there is no such source", net=self.net.name, wanted=wanted, came=repr(source), hint=hint)
        word = name_of(self.net.name) if name is None else checked_name(name, self.net.name)
        program = self._served(call, *given).plan.program
        types = {one: program.types[one] for one in self._free}
        recording: dict[str, Any] = {"threads": 1}
        if source:
            recording |= {"recorder": source_recorder.SourceRecorder(), "width": source_recorder.SCALAR_WIDTH}
        try:
            recorded = self._recorded([*types.values()], program.float_dtype, **recording)
        except NotRecordedError as reason:
            problem = f"this plan is not exported: {reason}"
            raise DeviceError(problem, net=self.net.name, wanted="a plan that is one native call") from reason
        written = program.float_dtype if source else None
        return export_native.export_recorded(
            recorded, types, {} if states is None else states, folder, word, self.net.name, written
        )

    @cached_property
    def served(self) -> Run:
        """What a call runs, op by op."""
        if self._options.weights:
            net, arrays = folded(
                lift_from_cells(self._live, self._bound), self._bound, large=inf
            )  # a constant is no weight
            net, arrays = int8_weights(net, arrays, self._bound)
        else:
            net, arrays = folded(self._live, self._bound)
        options = replace(self._options, fixed=frozenset(arrays))
        if options.target == PROCESSOR:
            options = replace(options, least_work=0, all_ops=True)
        return ServedRun(net, self.device, options, arrays)

    @cached_property
    def _free(self) -> tuple[str, ...]:
        return tuple(name for name in self._names if name not in self._bound)

    @cached_property
    def _native(self) -> NativeCalls:
        return NativeCalls(self._recorded_for)

    def _recorded_for(self, feeds: Sequence[Array]) -> Recorded:
        run = self.served
        declared = map(self.net.dtype_of, self._free)
        if any(dtype not in (FLOAT, str(array.dtype)) for dtype, array in zip(declared, feeds, strict=True)):
            raise NotRecordedError("integers are fed in another dtype than their input's")
        dtype = float_dtype_of(run.net, {**run._bound, **dict(zip(self._free, feeds, strict=True))}) or "float32"
        return self._recorded([type_of(array) for array in feeds], dtype)

    def _recorded(
        self, feeds: Sequence[Type], float_dtype: str, recorder: Recorder | None = None, **changed: Any
    ) -> Recorded:
        run = self.served
        options = replace(run._options, **changed)
        if run._options.target != PROCESSOR or run._options.interpreted:
            raise NotRecordedError("kernels are not compiled for threads of this library")
        return record(run._live, run._bound, feeds, float_dtype, options, recorder or Recorder())

    def _planned_training(self, wrt: tuple[str, ...], types: Mapping[str, Type], float_dtype: str) -> TrainingPlan:
        self._check_gradients()
        return super()._planned_training(wrt, types, float_dtype)

    def _saved_by(
        self, dicts: tuple[Feeds, ...], wrt: Any, dtype: Any, feeds: Feeds
    ) -> tuple[Callable[[Policy], Saved], Callable[[int, int], int]]:
        self._check_gradients()
        return super()._saved_by(dicts, wrt, dtype, feeds)

    def _check_gradients(self) -> None:
        if self._options.weights:
            hint = "Differentiate a run bound without weights=; plan and profile calls by backward=False."
            problem = f"weights that are kept as {self._options.weights} are for calls alone"
            raise GradientError(problem, net=self.net.name, hint=hint)

    def _served(self, work: Callable[[Run], Result], dicts: tuple[Feeds, ...], named: Feeds) -> Result:
        """What the run does that is served. Raises FeedError in words of the net as it is."""
        try:
            return work(self.served)
        except FeedError:  # whose inputs may be there only since the net was folded
            merge_given(self.net, (self._bound, *dicts), named)
            raise


def folded(net: Net, bound: dict[str, Array], large: float = LARGE_CONSTANT) -> tuple[Net, dict[str, Array]]:
    """A live net without what follows from bound inputs and constants alone, and what is bound in it.

    Ops of random numbers stay, with the numbers that they have: what they draw stays the same.
    """
    float_dtype = float_dtype_of(net, bound)
    split = None if float_dtype is None else split_bound(net, bound)
    if split is None or float_dtype is None:
        return net, bound
    workspace = Workspace()
    workspace.local.update(bound)
    types = {name: type_of(bound[name]) for name in split.once.input_names}
    execute(prepare(split.once, types, float_dtype), workspace, RunContext())
    return split.with_bound({**bound, **{name: workspace[name] for name in split.once.output_blobs}}, large)
