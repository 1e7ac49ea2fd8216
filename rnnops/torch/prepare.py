"""Makes steps ready to run: traces, translates and compiles them, or lets PyTorch's own loop run them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch
from torch import Tensor

from rnnops import util
from rnnops.compiler.api.planned_run import PlannedRun
from rnnops.compiler.api.run import Run
from rnnops.errors import check_flags
from rnnops.net.net import Net
from rnnops.net.schema import schema_of
from rnnops.torch.arguments import TensorLayout, checked_count, with_values
from rnnops.torch.autograd import RowAxes, outside_of_transforms, run_recurrence, wanted_of, with_gradients
from rnnops.torch.effects import Journal
from rnnops.torch.errors import SelfCheckError, StepError
from rnnops.torch.sides import Side, TensorCall, TensorRun, as_read
from rnnops.torch.traced import TensorStep, TorchStep, TracedStep, carrying, check_step, traced_step
from rnnops.torch.translate import Trace, Translation, translate
from rnnops.torch.walk import static_walk
from rnnops.torch.watch import Computed, tensor_at


def run_plainly(
    function: TensorStep,
    states: Sequence[Tensor],
    inputs: Sequence[Tensor],
    lengths: Tensor | None,
    reverse: bool,
    axes: Sequence[int | None],
) -> tuple[list[Tensor], list[Tensor]]:
    """Runs the step by PyTorch's own loop. Returns the last states, and the results of all steps.

    Args:
        axes: batch axis of each state.
    """
    carried, rows, steps = list(states), [], inputs[0].shape[0]
    if not steps:
        raise StepError("PyTorch's own loop has no step to run, so results have no shape", wanted="1 step or more")
    for t in reversed(range(steps)) if reverse else range(steps):
        results = list(function(*carried, *[sequence[t] for sequence in inputs]))
        found, ys = results[: len(states)], results[len(states) :]
        if lengths is not None:
            live = t < lengths
            found = [_where(live, new, old, axis) for new, old, axis in zip(found, carried, axes, strict=True)]
            ys = [_where(live, y, torch.zeros_like(y), 0) for y in ys]
        carried = found
        rows.append(ys)
    if reverse:
        rows.reverse()
    return carried, [torch.stack(list(column)) for column in zip(*rows, strict=True)]


def _where(live: Tensor, new: Tensor, old: Tensor, axis: int | None) -> Tensor:
    if axis is None or axis >= new.dim():
        return new
    shape = [1] * new.dim()
    shape[axis] = len(live)
    return torch.where(live.reshape(shape), new, old)


PREPARING = threading.RLock()  # Tracing changes PyTorch for the whole process, so only one thread may prepare a step.
util.wait_for(PREPARING)
ROWS = 3  # A step that was first called with one row is traced again with this number of rows.
KEPT_SIZES = 64  # batch sizes for which a step stays compiled
KEPT_TRACES = 8  # traces that are kept for other values that a step reads, and for other decisions by sizes


class ScanSettings(NamedTuple):
    """Settings of a recurrence.

    Args:
        options: other options of `rnnops.compile`.
        threads: None means as many as PyTorch uses.
        truncate: number of steps after which gradients of states end; None for no end.
        autocast_to: the dtype to which autocast rounds operands of products. Nets with complex numbers ignore it.
    """

    reverse: bool
    options: tuple[tuple[str, Any], ...]
    threads: int | None
    truncate: int | None = None
    autocast_to: torch.dtype | None = None

    def for_net(self, has_complex: bool) -> dict[str, Any]:
        """Options of `rnnops.compile`."""
        is_autocast = self.autocast_to is not None and not has_complex
        return ({"precision": str(self.autocast_to).removeprefix("torch.")} if is_autocast else {}) | dict(self.options)

    def now(self) -> ScanSettings:
        """These settings, with PyTorch's present number of threads if none was given."""
        return self if self.threads else self._replace(threads=torch.get_num_threads())


def settings_of(reverse: bool, truncate: Any, options: Mapping[str, Any]) -> ScanSettings:
    """Settings of a recurrence, from its options."""
    check_flags("rnnops.torch", reverse=reverse)
    others = {name: value for name, value in options.items() if name != "threads"}
    hashable = {name: tuple(value) if isinstance(value, list) else value for name, value in others.items()}
    ends = checked_count("truncate", truncate)
    return ScanSettings(reverse, tuple(sorted(hashable.items())), options.get("threads"), ends)


@dataclass(frozen=True)
class CompiledStep:
    """A step compiled for a batch size.

    Args:
        numbers: for each tensor that the step closes over, its place among the tensors that the trace reads; None for a
            constant.
        outputs: numbers of the run's outputs: first for each last state, then for each result of the steps.
        resized: returns the run of the same trace for another batch size.
        of_rows: returns the step compiled for several rows, from a trace of its own; None if it has none.
    """

    traced: TracedStep
    translation: Translation
    tensor_run: TensorRun
    numbers: tuple[int | None, ...]
    outputs: tuple[int, ...]
    is_random: bool
    resized: Callable[[int], TensorRun]
    of_rows: Callable[[], CompiledStep | None]

    @cached_property
    def _has_copies(self) -> bool:
        return len(set(self.outputs)) < len(self.outputs)

    @cached_property
    def rows(self) -> RowAxes | None:
        """Axes of the rows; None if a state or result has no rows."""
        trace, layout = self.trace, self.trace.layout
        batch = layout.batch
        if batch == 1:
            return self._rows_of_one
        if batch is None or not trace.symbols:
            return None
        axes = [*(kind.batch_axis or 0 for kind in layout.states)]
        results = [axes[i] if i < len(axes) else 0 for i in range(len(self.outputs))]
        for (_, few), (_, more), axis in zip(*map(trace.result_kinds, (batch, batch + 1)), results, strict=True):
            if few[axis:][:1] != (batch,) or more != (*few[:axis], batch + 1, *few[axis + 1 :]):
                return None
        places = dict(zip(self.outputs, [*axes, *[1] * len(results[len(axes) :])], strict=True))
        inputs = [*axes, *[1] * len(layout.inputs), *[0] * ("lengths" in self.translation.names)]
        others = [None] * (len(self.translation.names) - len(inputs))
        return RowAxes(
            (*inputs, *others), tuple(places[i] for i in range(len(places))), cache(self._fits), cache(self.resized)
        )

    @cached_property
    def _rows_of_one(self) -> RowAxes | None:
        """Axes of the rows, if one row is computed by the same ops as several rows; else None."""
        more = self.of_rows()
        if more is None or more.rows is None or not self._is_alike(more):
            return None
        own, rows = more.trace.layout.batch or 0, more.rows
        return replace(rows, fits=lambda _, other: other > 1 and rows.fits(own, other))

    def _is_alike(self, other: CompiledStep) -> bool:
        """True if two steps have the same ops and read the same tensors."""
        mine, theirs = self.translation, other.translation
        if (self.numbers, self.outputs) != (other.numbers, other.outputs):
            return False
        pairs = zip(self.numbers, mine.closed_over, theirs.closed_over, strict=True)
        is_same = all(number is not None or torch.equal(one, two) for number, one, two in pairs)
        return is_same and _without_sizes(mine.cell) == _without_sizes(theirs.cell)

    def _fits(self, batch: int, other: int) -> bool:
        """True if rows of both batch sizes are computed alike: rows are apart, and no op contains a size."""
        layouts = [self.trace.layout.of_batch(size) for size in (batch, other)]
        if not all(map(self.trace.fits, layouts)):
            return False
        here, there = (translate(self.trace, layout, False, False) for layout in layouts)
        return _without_sizes(here.cell) == _without_sizes(there.cell) and there.keeps_rows_apart(layouts[1])

    def step_again(self, leaves: list[Tensor], reached: Sequence[Tensor]) -> RepeatedStep | None:
        """The fast path for a repetition of this call. None if the call needs more than a list of jobs.

        Args:
            leaves: states and inputs.
        """
        effects, tensors = self.traced.effects, [*leaves, *self.closed_over(reached)]
        numbers = [number for number in self.numbers if number is not None]
        is_direct = [*map(id, tensors)] == [*map(id, leaves), *(id(reached[number]) for number in numbers)]
        is_direct = is_direct and not torch._C._are_functorch_transforms_active()
        is_pure = is_direct and not (self.is_random or self.traced.computed)
        if not is_pure or self._has_copies or effects.carried or effects.counted:
            return None
        call = self.tensor_run.call_for(tensors, wanted_of(tensors))
        every = [*leaves, *(reached[number] for number in self.traced.watch.distinct)]
        is_known = TensorGuards is not None and call.lists is not None and len({*map(id, every)}) == len(every)
        if not is_known or as_read(self.translation.names, tensors)[1] is not None:
            return None
        return RepeatedStep(self, call, numbers, every)

    @property
    def run(self) -> Run:
        """The run of its net."""
        return self.tensor_run.run

    @property
    def trace(self) -> Trace:
        assert self.traced.trace is not None
        return self.traced.trace

    def closed_over(self, reached: Sequence[Tensor]) -> list[Tensor]:
        """The present tensors that the step closes over.

        Args:
            reached: the tensors that the trace reads, at this call.
        """
        now, made = [], self.translation
        for name, tensor, number in zip(made.closed_over_names, made.closed_over, self.numbers, strict=True):
            found = tensor if number is None else reached[number]
            is_fed = found.dtype == made.float_dtype and name not in made.parts
            now.append(found if is_fed else made.as_fed(name, found))
        return now

    def closed_over_now(self, place: int) -> Tensor:
        """One tensor that the step closes over, read from its place or computed."""
        slots, number = self.traced.watch.slots, self.numbers[place]
        if number is None:
            return self.translation.closed_over[place]
        is_held = number < len(slots)
        return tensor_at(slots[number]) if is_held else [*self.traced.computed_now().values()][number - len(slots)]

    def plan(self, tensors: Sequence[Tensor], backward: bool) -> PlannedRun:
        """The plan for states, inputs and lengths of these shapes."""
        made = self.translation
        fed = [*tensors, *map(made.part, made.closed_over_names, made.closed_over)]
        named = dict(zip(made.names, fed, strict=True))
        shapes = {name: tuple(tensor.shape) for name, tensor in named.items()}
        wrt = [name for name, tensor in named.items() if tensor.requires_grad]
        dtype = str(self.translation.float_dtype).removeprefix("torch.")
        return self.run.plan(shapes, backward=backward, wrt=wrt if backward else None, dtype=dtype)

    def over_time(
        self, states: Sequence[Tensor], inputs: Sequence[Tensor], lengths: Tensor | None, reached: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Runs the compiled step over time. Returns the last states, and the results of all steps.

        Tensors and counters that the step sets get the values that a loop would leave.
        """
        effects = self.traced.effects
        if not (effects.carried or effects.counted):  # true for most steps
            return self(states, inputs, lengths, reached)
        if effects.carried and torch._C._are_functorch_transforms_active():
            hint = "Carry it as a state: torch.func wants functions that change nothing."
            raise StepError("a step sets a tensor under torch.func", came=effects.where, hint=hint)
        carried = [effect.now(inputs[0].device, inputs[0].shape[1]) for effect in effects.carried]
        last, steps = self([*states, *carried], inputs, lengths, reached)
        count = inputs[0].shape[0]
        if count:
            for effect, tensor in zip(effects.carried, last[len(states) :], strict=True):
                effect.write_back(tensor)
            for counted in effects.counted:
                counted.write_back(count)
        return last[: len(states)], steps

    def __call__(
        self, states: Sequence[Tensor], inputs: Sequence[Tensor], lengths: Tensor | None, reached: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Calls the compiled net. Returns the last states, and the results of all steps."""
        named = () if lengths is None else (lengths,)
        tensors = (*states, *inputs, *named, *self.closed_over(reached))
        out = run_recurrence(self.tensor_run, self.is_random, tensors, lambda: self.rows)
        results = [out[place] for place in self.outputs]
        if self._has_copies:  # Results must be tensors of their own, as the results of a loop are.
            results = [
                x.clone() if self.outputs.index(p) < i else x
                for i, (x, p) in enumerate(zip(results, self.outputs, strict=True))
            ]
        return results[: len(states)], results[len(states) :]


def _without_sizes(cell: Net) -> str:
    """Text of a step without the shapes of Reshape ops. These contain the batch size but do not change numbers."""
    ops = [replace(op, attributes={}) if op.type == "Reshape" else op for op in cell.ops]
    return str(cell.with_ops(ops))


# private to PyTorch; only the fast path needs it
TensorGuards: Any = getattr(getattr(torch._C._dynamo, "guards", None), "TensorGuards", None)


class RepeatedStep:
    """The fast path of a call that repeats an earlier one: the step reads the same objects, and tensors of equal kinds.

    One native call of PyTorch compares types, dtypes, devices, shapes, strides, whether gradients are wanted, and the
    surroundings of the call (autocast, torch.func, inference mode).

    Args:
        numbers: for each tensor that the step closes over, its place among the tensors that the trace reads.
        every: all tensors that are compared, without repetitions.

    Attributes:
        counted: the integers that say T and N if the call has no inputs.
    """

    counted: Tensor | None = None

    def __init__(self, compiled: CompiledStep, call: TensorCall, numbers: list[int], every: list[Tensor]) -> None:
        self._call, self._numbers, watch = call, numbers, compiled.traced.watch
        self._same_tensors, self._distinct = watch.same_tensors, None if watch.distinct == numbers else watch.distinct
        self._places = None if compiled.outputs == (*range(len(compiled.outputs)),) else compiled.outputs
        self.result_tree = compiled.trace.result_tree
        sizes, strides = [list(x.shape) for x in every], [list(x.stride()) for x in every]
        self._fits = TensorGuards(*every, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check

    def outputs(self, roots: Mapping[str, Any], leaves: list[Tensor]) -> Sequence[Tensor] | None:
        """Last states, then results of all steps. None if anything differs from the earlier call."""
        reached = self._same_tensors(roots)
        if reached is None:
            return None
        tensors = leaves + [reached[number] for number in self._numbers]
        every = tensors if self._distinct is None else leaves + [reached[number] for number in self._distinct]
        if not self._fits(*every):
            return None
        call, words = self._call, [x.data_ptr() for x in tensors]
        out: Any = with_gradients(call, 0, words, *tensors) if call.wanted else call.lists(words)
        return out if out is None or self._places is None else [out[place] for place in self._places]


@dataclass(frozen=True)
class PlainLoop:
    """A step that runs by PyTorch's own loop, because values that it changes may decide how it goes on.

    Args:
        axes: batch axis of each state.
    """

    traced: TracedStep
    reverse: bool
    axes: tuple[int | None, ...]

    def refuse(self, what: str) -> NoReturn:
        """Raise StepError for a feature that needs a compiled step."""
        hint = "Carry it as a state, or count by an attribute that the step only adds to."
        came = f"it reads or changes {self.traced.effects.where}"
        raise StepError(f"{what}: the step runs by PyTorch's own loop", came=came, hint=hint)


TraceOfLayout: TypeAlias = tuple[TracedStep, list[Tensor], TensorLayout]


def keeps_rows_apart(traced: TracedStep, layout: TensorLayout) -> bool:
    """True if the step is known to keep rows of the batch apart."""
    full = traced.effects.full(layout)
    return traced.trace is not None and translate(traced.trace, full, False, False).keeps_rows_apart(full)


@dataclass
class Prepared:
    """All results of preparing one step with one structure of states and inputs.

    Args:
        side: the device side on which its tensors lie (`sides.py`).
        code: the step's code. It is kept alive because its id is a part of the key of this entry.
        traces: the trace that was used last comes first. Others hold for other values that a step reads, or for other
            sizes.
        compiled: compiled steps by sizes and by the trace's id.
        runs: keys are the net's text, and whether it has custom functions and complex numbers. Steps of other sizes
            often have the same net. Its plans are then filled in with the sizes.
        loop_dtypes: dtypes of the results of PyTorch's own loop, by the dtypes of its arguments.
    """

    settings: ScanSettings
    side: Side
    code: Any
    traces: list[TracedStep] = field(default_factory=list)
    compiled: dict[Any, CompiledStep | PlainLoop] = field(default_factory=dict)
    runs: dict[tuple[str, bool, bool], TensorRun] = field(default_factory=dict)
    loop_dtypes: dict[Any, list[torch.dtype]] = field(default_factory=dict)

    def for_shapes(
        self, step: TorchStep, shapes: Any, lengths: bool, layouts: Callable[[], Sequence[TensorLayout]]
    ) -> tuple[CompiledStep | PlainLoop, list[Tensor]]:
        """The step compiled for the sizes of one step, and the present tensors that its trace reads.

        Args:
            shapes: a key that decides the layouts.
            layouts: makes the layouts that these sizes may have, the likeliest first.
        """
        key = (shapes, lengths)
        for place, traced in enumerate(self.traces):
            found = self.compiled.get((key, id(traced)))
            tensors = None if found is None else traced.watch.tensors_now(step.roots)
            if found is not None and tensors is not None:
                if place:
                    self.traces = [traced, *(other for other in self.traces if other is not traced)]
                return found, tensors
        with PREPARING:
            return self._make(step, key, layouts(), lengths)

    def check_again(
        self, step: TorchStep, layouts: Sequence[TensorLayout], compiled: CompiledStep, reached: Sequence[Tensor]
    ) -> None:
        """Repeats the self-check of a compiled step with the present values that it reads.

        Raises SelfCheckError, and forgets the trace, if the step behaves differently now.
        """
        traced = compiled.traced
        full = map(traced.effects.full, layouts)
        layout = next(layout for layout in full if compiled.trace.fits(layout))
        translation = translate(compiled.trace, layout, False, False)
        numbers = (traced.numbers.get(id(tensor)) for tensor in translation.closed_over)
        computed = Computed(dict(zip(traced.computed_now(), reached[len(traced.watch.slots) :], strict=True)))
        pairs = zip(translation.closed_over, numbers, strict=True)
        now = [tensor if number is None else reached[number] for tensor, number in pairs]
        journal = Journal(step.roots, static_walk(step.roots))
        with PREPARING, computed, journal:
            try:
                check_step(carrying(step, traced.effects), translation, layout, nullcontext(), now)
            except SelfCheckError:
                self.forget(compiled.traced)
                raise

    def forget(self, traced: TracedStep) -> None:
        """Drops a trace, so that the next call makes a new one."""
        self.traces = [other for other in self.traces if other is not traced]
        self.compiled = {key: made for key, made in self.compiled.items() if made.traced is not traced}
        self.loop_dtypes.clear()

    def _make(
        self, step: TorchStep, key: Any, layouts: Sequence[TensorLayout], lengths: bool
    ) -> tuple[CompiledStep | PlainLoop, list[Tensor]]:
        known = (self._known_trace(step, layout) for layout in layouts)
        traced, tensors, layout = next(filter(None, known), None) or self._best_trace(step, layouts)
        if (key, id(traced)) not in self.compiled:
            of_rows = partial(self._of_rows, step, layout, lengths)
            self.compiled[key, id(traced)] = self._compile(traced, layout, lengths, of_rows)
        made = self.compiled[key, id(traced)]
        while len(self.compiled) > KEPT_SIZES:
            self.compiled.pop(next(iter(self.compiled)))
        return made, tensors

    def _known_trace(self, step: TorchStep, layout: TensorLayout) -> TraceOfLayout | None:
        """Finds a trace that holds for these sizes and for the present values that the step reads.

        None if there is none.
        """
        for traced in self.traces:
            tensors = traced.watch.tensors_now(step.roots) if traced.fits(layout) else None
            if tensors is not None:
                return traced, tensors, layout
        return None

    def _best_trace(self, step: TorchStep, layouts: Sequence[TensorLayout]) -> TraceOfLayout:
        """A trace for the first layout in which the step keeps rows apart, else for the first that can be traced."""
        found, of_rows = list[TraceOfLayout](), sum(layout.batch is not None for layout in layouts)
        for layout in layouts:
            if found and layout.batch is None:
                break
            try:
                found.append((*self._trace(step, layout), layout))
            # A step that needs N as a plain number cannot be traced in this layout. The next layout has N as a number.
            except Exception:
                if not found and layout is layouts[-1]:
                    raise
                continue
            if of_rows < 2 or keeps_rows_apart(found[-1][0], layout):
                found.insert(0, found.pop())
                break
        for traced, _, _ in found[1:]:
            self.forget(traced)
        return found[0]

    def _compile(
        self,
        traced: TracedStep,
        layout: TensorLayout,
        lengths: bool,
        of_rows: Callable[[], CompiledStep | None] = lambda: None,
    ) -> CompiledStep | PlainLoop:
        full = traced.effects.full(layout)
        if traced.trace is None or (
            lengths and full.batch != layout.batch
        ):  # with lengths, each tensor that the step sets needs an axis of rows
            loop = PlainLoop(traced, self.settings.reverse, tuple(kind.batch_axis for kind in layout.states))
            return loop.refuse("truncate= needs a step that is compiled") if self.settings.truncate else loop
        reverse, truncate = self.settings.reverse, self.settings.truncate
        translation = translate(traced.trace, full, reverse, lengths, len(layout.states), truncate)
        numbers = tuple(traced.numbers.get(id(tensor)) for tensor in translation.closed_over)
        is_random = any(schema_of(op.type).random for op in translation.cell.ops)
        tensor_run = self._run_of(translation.net, traced.trace)
        known = list(tensor_run.run.net.output_blobs)
        outputs = tuple(known.index(name) for name in (*translation.last, *translation.steps))
        resized = partial(self._resized, traced, layout, lengths)
        return CompiledStep(traced, translation, tensor_run, numbers, outputs, is_random, resized, of_rows)

    def _of_rows(self, step: TorchStep, layout: TensorLayout, lengths: bool) -> CompiledStep | None:
        more = layout.of_batch(ROWS)
        with PREPARING, outside_of_transforms():
            try:
                traced, _, _ = self._known_trace(step, more) or (*self._trace(step, more), more)
                made = self._compile(traced, more, lengths)
            except Exception:  # a step that takes one row only
                return None
        return made if isinstance(made, CompiledStep) else None

    def _resized(self, traced: TracedStep, layout: TensorLayout, lengths: bool, batch: int) -> TensorRun:
        with PREPARING:
            made = self._compile(traced, layout.of_batch(batch), lengths)
        assert isinstance(made, CompiledStep)
        return made.tensor_run

    def _run_of(self, net: Net, trace: Trace) -> TensorRun:
        key = str(net), trace.has_slopes, trace.has_complex
        if key not in self.runs:
            self.runs = dict([*self.runs.items()][1 - KEPT_TRACES :])
            options = self.settings.for_net(trace.has_complex)
            compiled = partial(self.side.compile, threads=self.settings.threads, options=options)
            self.runs[key] = TensorRun(self.side, compiled(net), compiled, trace.has_slopes, "")
        return self.runs[key]

    def _trace(self, step: TorchStep, layout: TensorLayout) -> tuple[TracedStep, list[Tensor]]:
        """Makes a new trace, which has passed the self-check."""
        with with_values(static_walk(step.roots).modules):
            traced = traced_step(step, layout)
        self.traces.insert(0, traced)
        for old in self.traces[KEPT_TRACES:]:
            self.forget(old)
        return traced, [*map(tensor_at, traced.watch.slots)]
