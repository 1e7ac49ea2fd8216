"""`Run`: a net on a device, called with arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from rnnops.checkpoints.policy import DEFAULT_SAVING, Policy, Saving, as_policy
from rnnops.compiler.api.derivatives import Derived, ForwardMode, Pullback
from rnnops.compiler.api.feeds import (
    Feeds,
    as_array,
    as_arrays,
    check_bound,
    check_floats,
    check_weights,
    checked_seed,
    checked_wrt,
    given_once,
    memory_named,
    merge_feeds,
    of_run,
    plain_arrays,
    types_of_feeds,
    with_sizes_of_file,
)
from rnnops.compiler.api.planned_run import SHORT, PlannedRun, RepeatedCalls, call_by_plan, made_again, vjp_by_plan
from rnnops.compiler.memory.memory import Pool, read_only
from rnnops.compiler.run import pipeline
from rnnops.compiler.run.compiled_scan import EXACT, REFERENCE, Options, steps_of_tile
from rnnops.compiler.run.pipeline import ForwardPlan, PlanCache, PlanTemplates, TrainingPlan
from rnnops.errors import DeviceError, check_flags
from rnnops.interpreter import first_live_random_op
from rnnops.net.net import Net
from rnnops.net.schema import Call, RunContext
from rnnops.types import Array, Type, type_of
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.compiler.api import bound_run as bound_run, stream as streams
    from rnnops.compiler.api.streamed_net import StreamedNet
    from rnnops.compiler.memory import choose_saved as choose_saved
    from rnnops.compiler.memory.choose_saved import Saved
    from rnnops.compiler.report import costs as costs, describe as describe
    from rnnops.compiler.report.costs import BudgetCurve, Estimate, EstimateTable, Profile
    from rnnops.compiler.report.describe import SavedResiduals
    from rnnops.compiler.run.export_native import ExportedFiles
    from rnnops.net import text as texts
else:  # a first call does without
    bound_run = LazyModule("rnnops.compiler.api.bound_run")
    costs, describe = LazyModule("rnnops.compiler.report.costs"), LazyModule("rnnops.compiler.report.describe")
    choose_saved = LazyModule("rnnops.compiler.memory.choose_saved")
    streams, texts = LazyModule("rnnops.compiler.api.stream"), LazyModule("rnnops.net.text")

CUDA = "cuda"
SavedBy: TypeAlias = "tuple[Callable[[Policy], Saved], Callable[[int, int], int]]"
Outputs = dict[str, Array]  # by name
PLANS = 512  # plans that a run keeps for calls, and as many for `vjp`; one takes about a hundred kilobytes


class Run(ForwardMode):
    """A compiled net, made by `ro.compile`. A call with arrays returns arrays.

    Several threads may call it at once; a backward pass has its state in its pullback. Runs can be printed, copied and
    pickled.

    Args:
        net: the net that runs, a snapshot.
        device: `"cpu"`, `"reference"` or `"cuda"`.
        options: options of kernels, from `ro.compile`.
        bound: inputs that are fed already, from `bind`.
        saving: policy and budget, from `ro.compile`.

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
    symbolic: ClassVar[bool] = True  # whether plans for new sizes are filled in from templates
    repeats: bool = True  # whether calls with feeds of the same types are recorded

    def __init__(
        self,
        net: Net,
        device: str,
        options: Options = REFERENCE,
        bound: Feeds | None = None,
        saving: Saving = DEFAULT_SAVING,
    ) -> None:
        self.net, self.device, self._options, self._saving = net, device, options, saving
        self._live = pipeline.live_net(net, "" if options.precision == EXACT else options.precision)
        self._random_ops = {training: first_live_random_op(self._live, training) for training in (False, True)}
        self._bound, self._names = dict(bound or {}), tuple(net.input_names)
        self._float_dtypes: PlanCache[str] = PlanCache(limit=256)
        self._forward: PlanCache[ForwardPlan] = PlanCache(PLANS)
        self._training: PlanCache[TrainingPlan] = PlanCache(PLANS)
        self._derived: PlanCache[Derived] = PlanCache()
        self._templates = PlanTemplates[ForwardPlan](), PlanTemplates[TrainingPlan]()
        self.repeats = self.repeats and not options.interpreted
        self._free = tuple(name for name in self._names if name not in self._bound)
        self._calls = RepeatedCalls(self._free, type(self)._called, type(self)._call_lists)
        self._steps = RepeatedCalls(self._free, vjp_by_plan, lambda *given: bound_run.training_lists(*given))
        declared = {spec.name for spec in self._live.input_specs if spec.shape is not None}
        self._known_sizes = frozenset((*self._bound, *declared) if self.symbolic else self._names)

    @memory_named(of_run)
    def __call__(self, *dicts: Feeds, seed: int | None = None, training: bool = False, **feeds: Any) -> Outputs:
        """Forward pass.

        Args:
            dicts, feeds: input name -> array of the input's dtype and shape, without bound inputs. Floats are all
                float32 or all float64. An input of integers takes integers of any dtype.
            seed: seed of random ops, an integer of 0 or more. It is needed if random ops are live.
            training: whether Dropout is active.

        Returns:
            Output name -> array, the caller's own.

        Raises:
            FeedError: a feed is missing, unknown, given twice or of another dtype or shape; or a seed is missing.
            TypeRuleError: shapes do not fit the ops.
            OutOfMemoryError: an array does not fit in memory.
        """
        if self.repeats and seed is None and training is False:
            outputs: Outputs = self._calls(self, dicts, feeds)
            return outputs
        return self._called(dicts, feeds, None, training, seed)

    @memory_named(of_run)
    def vjp(
        self, *dicts: Feeds, seed: int | None = None, training: bool = True, wrt: Any = None, **feeds: Any
    ) -> tuple[dict[str, Array], Pullback]:
        """Forward pass that keeps values for backward, and the pullback that runs the backward pass.

        Do not change feeds until the pullback is used or dropped. Outputs that backward reads are read-only until then.

        Args:
            dicts, feeds: as for a call.
            seed: as for a call.
            training: whether Dropout is active.
            wrt: names of the inputs whose gradients are wanted; all float inputs if left out.

        Returns:
            Output name -> array, and a `ro.Pullback`.

        Raises:
            FeedError: as for a call, and for names in `wrt` that are not float inputs.
            TypeRuleError: as for a call.
            GradientError: the net cannot be differentiated.
            CheckpointError: the policy names unknown blobs or leaves nothing to compute again, or the budget is too
                small.

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
        plain = self.repeats and self.pullback is Pullback and (training is True or training is False)
        seeded = seed is None or (type(seed) is int and 0 <= seed < 2**64)
        if plain and seeded and self._random_ops[training] is None and type(wrt) in (type(None), list, tuple):
            names = wrt if wrt is None else tuple(wrt)
            found: tuple[Outputs, Pullback] = self._steps(self, dicts, feeds, names, training)
            return found
        return vjp_by_plan(self, dicts, feeds, wrt, training, seed)

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
        """The time of each op, on average over some rounds, and its results.

        Args:
            dicts, feeds: input name -> array.
            backward: True: a round is `vjp` and its pullback, for gradients of ones. False: a round is a call.
            rounds: number of rounds that are timed.
            warm_up: number of rounds before these, which are not timed.
            seed: as for a call.
            training: whether Dropout is active; the value of `backward` if left out.
            wrt: as for `vjp`.

        Returns:
            A profile that prints as tables; `trace(path)` writes it for Perfetto.

        Raises:
            FeedError: as for a call, and for wrong numbers of rounds.
        """
        check_flags("profile", backward=backward)
        watched, active = copy(self), backward if training is None else training
        watched.repeats = False
        plans = costs.WatchedPlans(self._training if backward else self._forward, self._clock, self._reference)
        setattr(watched, "_training" if backward else "_forward", plans)
        work = partial(watched.vjp, wrt=wrt) if backward else watched
        return costs.profile_run(
            lambda: work(*dicts, seed=seed, training=active, **feeds), plans, backward, rounds, warm_up
        )

    @memory_named(of_run)
    def bind(self, *, weights: Any = None, **params: Any) -> Run:
        """A run with some inputs fed once and for all, as copies.

        The first call of the new run computes all values that depend only on bound inputs, and packs weights of
        products. Later calls use both again.

        Args:
            weights: `"int8"` keeps bound weights of products as int8 with a scale for each column (docs/precision.md);
                None keeps them unchanged. An array is taken for an input of the name `weights`.
            params: input name -> array.

        Returns:
            A run whose calls take the other inputs.

        Raises:
            FeedError: a name is not an input, or an array does not fit.
            DeviceError: the device or the precision does not allow this format of weights.

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
        # Packed copies would not follow what is written; kernels take the memory behind the view.
        copies = read_only({name: array.copy().view() for name, array in arrays.items()})
        if options.interpreted and not kept:
            return Run(self.net, self.device, options, copies, self._saving)
        made = bound_run.BoundRun(self.net, self.device, options, copies, self._saving)
        if weights is not None:
            _ = made.folded_run  # raises errors of weights now, not at the first call
        return made

    @memory_named(of_run)
    def export_native(
        self,
        folder: str | os.PathLike[str],
        *dicts: Feeds,
        name: str | None = None,
        states: Mapping[str, str] | StreamedNet | None = None,
        initial: Mapping[str, Any] | None = None,
        dtype: Any = None,
        source: str | None = None,
        **feeds: Any,
    ) -> ExportedFiles:
        """Write a call as an object file, a C header and weights. They run without Python.

        Args:
            folder: for NAME.o (or NAME.c), NAME.h, NAME.weights and NAME.json; made if it is not there.
            dicts, feeds: as for `plan`: arrays or shapes of inputs that are not bound.
            name: the NAME of files and functions. By default the net's name, or `model` if C does not allow this name,
                as a keyword, `main`, or a name of C's library.
            states: output -> the input that it feeds at the next call; these stay in the program's memory. Or a
                `StreamedNet`.
            initial: input of a state -> its initial value, an array that broadcasts to it; zeros if left out.
            dtype: dtype of floats if no arrays are given.
            source: `"c99"` for C99 source, for any little-endian processor. Its results equal those of a call within
                rounding. None or `"object"` for an object file for this processor, with the same bits as a call.

        Returns:
            Paths of the files, and names of inputs and outputs in C. The code is for one thread. A UserWarning names
            ops that see one frame in each call, and nothing of earlier calls.

        Raises:
            FeedError: feeds, states or names do not fit.
            DeviceError: the device is not the CPU, Python runs a part of the plan, or random ops are live.
            SaveError: files cannot be written, or a file of this name was not written by rnnops or is the other kind
                of export.
        """
        if self._options.interpreted or self.device == CUDA:
            raise DeviceError("only the CPU device is exported", net=self.net.name, came=self.device)

        def call(run: Run) -> PlannedRun:
            return run.plan(*dicts, backward=False, dtype=dtype, **feeds)

        run = self if isinstance(self, bound_run.BoundRun) else self.bind()
        assert isinstance(run, bound_run.BoundRun)
        return run.write_export(call, (dicts, feeds), folder, name, states, initial, source)

    @memory_named(of_run)
    def stream(
        self, states: Mapping[str, str] | None = None, rows: int | None = None, shapes: Any = None,
        initial: Any = None, dtype: Any = None, steps: str | None = None,
    ) -> streams.Stream:  # fmt: skip
        """A stream: this run, called frame by frame. States stay inside from call to call.

        Args:
            states: name of an output -> name of the input that it feeds at the next call; may be left out with `steps`.
            rows: batch size; 1 if left out.
            shapes: name of a state's input -> its shape, with a name for the axis of rows, as `(1, "N", 64)`. It may be
                left out if the shape is declared or an initial array is given. The axis of rows is then the one with
                `rows=` elements, if `rows=` is given. Other inputs are ignored, so you can give `OnnxModel.shapes`.
            initial: input name -> initial value of a state, an array that broadcasts to its shape; zeros if left out.
            dtype: dtype of float states if no arrays are given; float32 if left out.
            steps: the name in `shapes` for the axis of frames, if the net is for whole sequences (`ro.streamed_net`).

        Returns:
            A stream, which is called with the other inputs.

        Raises:
            StreamError: names, shapes, rows or initial states do not fit, or with `steps` an op needs all frames.

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
        rest, given = (self.device, self._options, self._bound, self._saving), (rows, shapes, initial, dtype, steps)
        of = lambda net: type(self)(net, *rest)  # noqa: E731
        return streams.open_stream(self, self._bound, self._fed, states, *given, of)

    @memory_named(of_run)
    def plan(
        self, *dicts: Feeds, backward: bool = True, wrt: Any = None, dtype: Any = None, **feeds: Any
    ) -> PlannedRun:
        """The plan for feeds of certain shapes: loops, memory, generated source. Nothing is computed.

        Args:
            dicts, feeds: input name -> array or shape; inputs with declared shapes may be left out.
            backward: True: plan `vjp` and its pullback. False: plan a call.
            wrt: as for `vjp`.
            dtype: dtype of floats if no arrays are given; float32 if left out.

        Returns:
            A plan, which can be printed; `memory()` is a table, `source` the generated code.

        Raises:
            FeedError: a feed or shape is missing or does not fit.
            TypeRuleError: shapes do not fit the ops.
            GradientError: the net cannot be differentiated.
            CheckpointError: as for `vjp`.

        Example:
            >>> net = ro.Net("n")
            >>> net.outputs(y=ro.tanh(net.input("x")))
            >>> print(ro.compile(net, threads=1).plan(x=(2, 3), backward=False).memory())
            forward pass: 88 B, most at 'tanh_0'
              kind     what                     of      dtype    shape   bytes
              output   tanh_0                   tanh_0  float32  [2, 3]     24
              scratch  blobs of a step          tanh_0  float32  [1]         4
              scratch  scratch that others use          uint8    [60]       60
              total                                                         88
        """
        check_flags("plan", backward=backward)
        types, float_dtype = types_of_feeds(self.net, (self._bound, *dicts), feeds, dtype, self._fed)
        kinds = tuple((np.dtype(types[name].dtype), types[name].shape) for name in self._names)
        if not backward:
            return PlannedRun(self.device, self._forward.get(kinds, lambda: self._planned_forward(types, float_dtype)))
        names = checked_wrt(self.net, wrt)
        training = self._training.get((names, kinds), lambda: self._planned_training(names, types, float_dtype))
        shapes = {name: kind.shape for name, kind in types.items()}
        budget = partial(self._said_of_budget, shapes, names, float_dtype) if self._saving.budget is not None else None
        return PlannedRun(self.device, training, budget=budget)

    @memory_named(of_run)
    def warm_up(self, *dicts: Feeds, backward: bool = True, wrt: Any = None, dtype: Any = None, **feeds: Any) -> None:
        """Compile all kernels of calls with such feeds, before the first call.

        Args:
            dicts, feeds: as for `plan`: arrays or shapes.
            backward: whether `vjp` and its pullback are compiled, too.
            wrt: as for `vjp`.
            dtype: as for `plan`.

        Raises:
            FeedError: as for `plan`, whose other errors are raised too.
        """
        check_flags("warm_up", backward=backward)
        self.plan(*dicts, backward=False, dtype=dtype, **feeds).load()
        if backward:
            self.plan(*dicts, wrt=wrt, dtype=dtype, **feeds).load()

    def saved_residuals(self, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any) -> SavedResiduals:
        """The residuals that `vjp` keeps for its pullback, blob by blob; nothing is computed.

        Args:
            dicts, wrt, dtype, feeds: as for `plan`.

        Returns:
            A table with `blobs` and `total` bytes, which can be printed.

        Raises:
            FeedError: as for `plan`, whose other errors are raised too.

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
        return describe.saved_residuals(planned)

    @memory_named(of_run)
    def memory_estimate(
        self, checkpoints: Any = None, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any
    ) -> Estimate:
        """Bytes and predicted time of a policy; nothing is computed.

        Args:
            checkpoints: as for `ro.compile`; by default the policy or budget of the run.
            dicts, wrt, dtype, feeds: as for `plan`.

        Returns:
            The policy with `nbytes`, the most bytes that it holds, and its predicted `time`. A policy that computes
            nothing twice has the time 1.

        Raises:
            CheckpointError: this is not a policy.
            FeedError: as for `plan`, whose other errors are raised too.
        """
        policy, (saved, tile) = self._saving.policy, self._saved_by(dicts, wrt, dtype, feeds)
        policy = policy if checkpoints is None else as_policy(checkpoints, self.net)
        if checkpoints is None and self._saving.budget is not None:
            policy = choose_saved.fit_budget(saved, self._saving.budget, tile).policy
        return costs.estimate_of(saved, policy)

    @memory_named(of_run)
    def memory_estimates(self, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any) -> EstimateTable:
        """Bytes and predicted time of all policies that a budget chooses from; nothing is computed.

        Args:
            dicts, wrt, dtype, feeds: as for `plan`.

        Returns:
            A table of estimates, the fastest first, which can be printed. Each takes fewer bytes than those above.

        Raises:
            FeedError: as for `plan`, whose other errors are raised too.
        """
        return costs.estimates(*self._saved_by(dicts, wrt, dtype, feeds))

    def budget_curve(self, *dicts: Feeds, wrt: Any = None, dtype: Any = None, **feeds: Any) -> BudgetCurve:
        """Bytes against predicted time for all values of `memory_budget=`, down to the least; nothing is computed.

        Args:
            dicts, wrt, dtype, feeds: as for `plan`.

        Returns:
            A picture; `print` says the same in words, and `rows` are the estimates.

        Raises:
            CheckpointError: the budget of the run is too small.
            FeedError: as for `plan`, whose other errors are raised too.
        """
        chosen = self.memory_estimate(None, *dicts, wrt=wrt, dtype=dtype, **feeds)
        return costs.budget_curve(self.net.name, *self._saved_by(dicts, wrt, dtype, feeds), chosen)

    def __repr__(self) -> str:
        free = [texts.format_input(spec) for spec in self.net.input_specs if spec.name not in self._bound]
        bound = f"; bound {', '.join(self._bound)}" if self._bound else ""
        ports = f"{', '.join(free)} -> {', '.join(self.net.output_blobs)}"
        return f"<{type(self).__name__} of net '{self.net.name}' on {self.device}: {ports}{bound}>"

    def __copy__(self) -> Run:
        """A copy that shares all plans and kernels."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the text of the net and the options. Kernels are loaded or compiled where the copy is used."""
        options = replace(self._options, pool=Pool())  # without the memory of the old pool
        starts = {spec.name: spec.initializer for spec in self.net.parameters}
        return made_again, (type(self), str(self.net), self.device, options, self._bound, self._saving, starts)

    def _place(self) -> dict[str, str]:
        return {"net": object.__getattribute__(self, "net").name}

    def _attribute_hint(self, name: str) -> str | None:
        return "run(feeds) is a call; out, pullback = run.vjp(feeds) and pullback(grads) train."

    def _saved_by(self, dicts: tuple[Feeds, ...], wrt: Any, dtype: Any, feeds: Feeds) -> SavedBy:
        """Two functions for feeds of certain shapes: from a policy to its residuals, and the steps of a tile."""
        types, float_dtype = types_of_feeds(self.net, (self._bound, *dicts), feeds, dtype, self._fed)
        self._check_derivatives(float_dtype)
        how = checked_wrt(self.net, wrt), self._saving.policy.residuals, self._options
        return pipeline.saved_by(self._live, types, float_dtype, *how), partial(steps_of_tile, self._options)

    def _read(self, dicts: tuple[Feeds, ...], named: Feeds) -> tuple[dict[str, Array], Hashable]:
        """Checked feeds by input, and the key of their plan: dtypes and shapes."""
        names = self._names
        given = given_once(names, (self._bound, *dicts), named)
        plain = None if given is None else plain_arrays(given)
        if plain is not None:
            kinds = tuple([(array.dtype, array.shape) for array in plain])
            if kinds in self._float_dtypes:
                return dict(zip(names, plain, strict=True)), kinds
        arrays, float_dtype = as_arrays(self.net, merge_feeds(self.net, (self._bound, *dicts), named), self._fed)
        kinds = tuple((arrays[name].dtype, arrays[name].shape) for name in names)
        self._float_dtypes.get(kinds, lambda: float_dtype)
        return {name: arrays[name] for name in names}, kinds

    def _fed(self, net: str, name: str, value: Any, what: str = "a feed") -> Any:
        """A feed as an array. Raises FeedError for a value that is not an array."""
        return as_array(net, name, value, what)

    def _called(self, *given: Any) -> Outputs:
        """The answer to a call, op by op."""
        return call_by_plan(self, *given)

    def _call_lists(self, feeds: Sequence[Array], *_: Any) -> Any:
        """The lists of jobs that answer calls with such feeds; or a text on why there are none."""
        return bound_run.call_lists(self, self, feeds, SHORT)

    def _types(self, arrays: Feeds, kinds: Hashable) -> tuple[dict[str, Type], str]:
        float_dtype = self._float_dtypes.get(kinds, lambda: as_arrays(self.net, arrays, self._fed)[1])
        return {name: type_of(array) for name, array in arrays.items()}, float_dtype

    @with_sizes_of_file
    def _planned_forward(self, types: Mapping[str, Type], float_dtype: str) -> ForwardPlan:
        """A plan of a call with feeds of certain types."""
        check_floats(self.net, self._options.precision, float_dtype)

        def make(types: Mapping[str, Type]) -> ForwardPlan:
            return pipeline.forward_structure(self._live, types, float_dtype, self._options)

        return pipeline.with_memory(self._templates[0].plan(float_dtype, types, self._known_sizes, make))

    def _said_of_budget(self, shapes: Mapping[str, Any], wrt: tuple[str, ...], dtype: str) -> str:
        """A line on the choice of the memory budget."""
        whole, chosen = (self.memory_estimate(way, shapes, wrt=wrt, dtype=dtype) for way in ("all", None))
        return costs.said_of_budget(self._saving.budget, chosen, whole)

    @with_sizes_of_file
    def _planned_training(self, wrt: tuple[str, ...], types: Mapping[str, Type], float_dtype: str) -> TrainingPlan:
        """A plan of `vjp` with feeds of certain types."""
        self._check_derivatives(float_dtype)

        def make(types: Mapping[str, Type]) -> TrainingPlan:
            return pipeline.training_structure(self._live, types, float_dtype, wrt, self._options, self._saving)

        return pipeline.with_memory(self._templates[1].plan((wrt, float_dtype), types, self._known_sizes, make))

    def _workspace_arrays(self, plan: ForwardPlan | TrainingPlan, arrays: dict[str, Array]) -> dict[str, Array]:
        """Feeds on the device where the ops of a plan read them."""
        return arrays

    def _kernels(self, plan: ForwardPlan | TrainingPlan, kernels: Mapping[str, Any]) -> Mapping[str, Any]:
        """The runners of the ops of a forward pass, by key."""
        return kernels

    def _reference(self, call: Call) -> Any:
        """The runner of an op that is not compiled; None if its reference runs it."""
        return None

    def _clock(self) -> float:
        """The time in seconds, after all work so far is done."""
        return perf_counter()

    def _context(self, seed: int | None, training: bool) -> RunContext:
        if training is not True and training is not False:  # most are, and calls are frequent
            check_flags("a run", training=training)
        return RunContext(checked_seed(self.net, seed, self._random_ops[bool(training)]), bool(training))
