"""`Run`: a net on a device, called with arrays.

**Devices**: `"reference"`, the interpreter, and `"cpu"`, which compiles recurrences to fused kernels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from rnnops.arguments import check_flags, named_arguments
from rnnops.compiler.api.feeds import (
    as_arrays,
    as_given,
    check_bound,
    check_weights,
    checked_seed,
    checked_wrt,
    memory_named,
    of_run,
)
from rnnops.compiler.api.planning_run import Feeds, PlannedRun, PlanningRun
from rnnops.compiler.api.pullback import Pullback
from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan
from rnnops.errors import DeviceError, FeedError
from rnnops.interpreter import Program, Workspace, execute, is_whole
from rnnops.net.schema import Call, RunContext
from rnnops.types import Array
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.compiler.api import bound_run as bound_run, stream as streams
    from rnnops.compiler.api.stream import Stream
    from rnnops.compiler.report import profile as profile
    from rnnops.compiler.report.profile import Profile
    from rnnops.compiler.run.export_native import ExportedFiles
else:  # a first call does without
    bound_run = LazyModule("rnnops.compiler.api.bound_run")
    profile = LazyModule("rnnops.compiler.report.profile")
    streams = LazyModule("rnnops.compiler.api.stream")

CUDA = "cuda"


class Run(PlanningRun):
    """A compiled net, made by `ro.compile`; called with arrays, it gives arrays.

    Calls may come from several threads; all state of a backward pass lives in its pullback. Runs print, copy and
    pickle.

    Args:
        net: the net that runs, a snapshot.
        device: `"cpu"`, `"reference"` or `"cuda"`.
        options: of kernels; from `ro.compile`.
        bound: inputs that are fed already; from `bind`.
        saving: policy and budget; from `ro.compile`.

    Raises:
        FeedError: in calls, for feeds that do not fit.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.tanh(net.input("x")))
        >>> run = ro.compile(net)
        >>> out, pullback = run.vjp({"x": np.array([0.0, 1.0])})
        >>> out["y"], pullback(np.ones(2))["x"]
        (array([0.    , 0.7616]), array([1.  , 0.42]))
    """

    pullback: ClassVar[type[Pullback]] = Pullback

    @memory_named(of_run)
    def __call__(
        self, *dicts: Feeds, seed: int | None = None, training: bool = False, **feeds: Any
    ) -> dict[str, Array]:
        """Forward pass.

        Args:
            dicts, feeds: input name -> array of the input's dtype and shape; floats are all float32 or all float64,
                integers of any size go where an integer dtype is declared. Inputs that are bound may be fed anew.
            seed: of random ops, an integer of 0 or more; needed where they are live and `training` is on.
            training: whether Dropout is active.

        Returns:
            Output name -> array, the caller's own.

        Raises:
            FeedError: feeds are missing, unknown, twice, of another dtype or shape, or a seed is missing.
            TypeRuleError: shapes do not fit the ops.
            OutOfMemoryError: an array does not fit in memory.
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

    @memory_named(of_run)
    def vjp(
        self, *dicts: Feeds, seed: int | None = None, training: bool = True, wrt: Any = None, **feeds: Any
    ) -> tuple[dict[str, Array], Pullback]:
        """Forward pass that keeps what backward reads, and the pullback that runs backward.

        Feeds are borrowed until the pullback is used or dropped; outputs that backward reads are read-only until then.

        Args:
            dicts, feeds: as of a call.
            seed: as of a call.
            training: whether Dropout is active.
            wrt: names of the inputs whose gradients are wanted; all float inputs if left out.

        Returns:
            Output name -> array, and a `ro.Pullback`.

        Raises:
            FeedError: as a call, and for names in `wrt` that are not float inputs.
            TypeRuleError: as a call.
            GradientError: the net cannot be differentiated.
            CheckpointError: the policy names blobs that are not there, leaves nothing to compute again, or no budget
                fits.

        Example:
            >>> net = ro.Net("n")
            >>> x, w = net.inputs("x", "w")
            >>> net.outputs(y=x @ w)
            >>> feeds = {"x": np.ones((1, 2)), "w": np.array([[1.0], [3.0]])}
            >>> out, pullback = ro.compile(net).vjp(feeds, wrt=["w"])
            >>> pullback({"y": np.ones((1, 1))})
            {'w': array([[1.],
                   [1.]])}
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

    @memory_named(of_run)
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
            backward: whether rounds are `vjp` and its pullback, for gradients of ones, or calls.
            rounds: that are timed.
            warm_up: rounds before them, which are not.
            seed: as of a call.
            training: whether Dropout is active; on where `backward` is, if left out.
            wrt: as for `vjp`.

        Returns:
            A profile that prints as tables; `trace(path)` writes it for Perfetto.

        Raises:
            FeedError: as a call, and for numbers of rounds that make no sense.
        """
        check_flags("profile", backward=backward)
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

    @memory_named(of_run)
    @named_arguments
    def bind(self, *, weights: Any = None, **params: Any) -> Run:
        """A run with some inputs fed once and for all (copies are taken).

        Args:
            weights: `"int8"` keeps bound weights of products as whole numbers of a byte with a scale for each column
                (docs/precision.md); None as they are. An array is for an input of that name.
            params: input name -> array.

        Returns:
            A run whose calls take the other inputs.

        Raises:
            FeedError: a name is not an input, or an array does not fit.
            DeviceError: weights cannot be kept so.

        Example:
            >>> net = ro.Net("n")
            >>> net.outputs(y=net.input("x") @ net.input("w"))
            >>> run = ro.compile(net).bind(w=np.eye(2))
            >>> run({"x": np.array([[1.0, 2.0]])})["y"]
            array([[1., 2.]])
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

    @memory_named(of_run)
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
            name: that files and functions of C begin with; by default the net's name, or `model` where C cannot have
                that: keywords of C and C++, names that C's library or compiler has taken, other letters.
            states: output -> input of the next call: these stay in the memory of the C program.
            dtype: of floats where no arrays are given.
            source: `"c99"` for plain C99 in place of an object: for any little-endian processor, whose numbers are
                those of other devices within rounding; None for an object for this processor, with the bits of a call.

        Returns:
            Paths of the files, and names of inputs and outputs in C. The code is for one thread.

        Raises:
            FeedError: feeds, states or names do not fit.
            DeviceError: the device is another, or Python has a part in the plan.
            OSError: files cannot be written.
            SaveError: a file of one of these names was not written by rnnops, or is of an export of the other kind.
        """
        self._check_exported()
        if not isinstance(folder, str | os.PathLike):
            raise FeedError(
                "folder is not a path", net=self.net.name, wanted="a string or a Path", came=repr(folder)[:60]
            )

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

    @memory_named(of_run)
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
                elements, if that is said. Inputs that are not states are looked past: `OnnxModel.shapes` will do.
            initial: input name -> what a state begins with, an array that broadcasts to its shape; zeros if left out.
            dtype: of float states where no arrays are given; float32 if left out.

        Returns:
            A stream, called with the other inputs.

        Raises:
            StreamError: names, shapes, rows or initial states do not fit.

        Example:
            >>> net = ro.Net("n")
            >>> x, h = net.inputs("x", "h")
            >>> net.outputs(h_next=x + 0.5 * h)
            >>> stream = ro.compile(net).stream({"h_next": "h"}, shapes={"h": ("N", 1)})
            >>> out = stream(x=np.ones((1, 1), "float32"))
            >>> out = stream(x=np.ones((1, 1), "float32"))
            >>> stream.states["h"]
            array([[1.5]], dtype=float32)
        """
        return streams.open_stream(self, self._bound, self._fed, states, rows, shapes, initial, dtype)

    def _workspace_arrays(self, plan: ForwardPlan | TrainingPlan, arrays: dict[str, Array]) -> dict[str, Array]:
        """Feeds where the ops of a plan want them."""
        return arrays

    def _kernels(self, plan: ForwardPlan | TrainingPlan, kernels: Mapping[str, Any]) -> Mapping[str, Any]:
        """The runners of the ops of a forward pass, by key."""
        return kernels

    def _reference(self, call: Call) -> Any:
        """The runner of an op that is not compiled; None for its reference."""
        return None

    def _clock(self) -> float:
        """Seconds, when all work so far is done."""
        return perf_counter()

    def _context(self, seed: int | None, training: bool) -> RunContext:
        if training is not True and training is not False:  # most are, and calls are frequent
            check_flags("a run", training=training)
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
    """The array that owns an array's memory."""
    return array if array.base is None else array.base
