"""Makes traces: a step is traced, checked against PyTorch's own step, and watched.

**The self-check of a step**: before its first use, two steps by the interpreter are compared with PyTorch's own, with
all gradients. A trace does not see a custom gradient that is not elementwise, a hook, or a decision by data. The
self-check makes an error of these instead of a wrong number.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, autocast, enable_grad, inference_mode
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import Module

import rnnops as ro
from rnnops.torch.arguments import CPU, TensorKind, TensorLayout
from rnnops.torch.code_reads import CLOCK, CodeRecorder, FirstImport, Reads
from rnnops.torch.effects import CarriedTensor, Change, Counted, Effects, Journal, Mutations, effects_of
from rnnops.torch.errors import IN_PLACE, SelfCheckError, StepError, UnseenWarning
from rnnops.torch.sides import as_array, check_whole
from rnnops.torch.step_modes import Decisions, OwnDraws, RandomFunctions, widened
from rnnops.torch.translate import SymbolRefusedError, Trace, Translation, trace_step, translate
from rnnops.torch.walk import Walk, static_walk, text_of, walk_all
from rnnops.torch.watch import Computed, Owner, Watch, owners_of

SEED = 0
# A loss is multiplied by this number. The gradients of a backward pass that clips are then not this multiple.
FAR = 2.0**20
CHECKED_STEPS = 2  # steps of the self-check. The second one reads states that the first one made.
TOLERANCE = {  # relative to the largest element; wrong gradients are far above it
    torch.float64: 1e-7,
    torch.float32: 1e-3,
    torch.float16: 5e-3,
    torch.bfloat16: 3e-2,
}


def check_step(
    step: TorchStep,
    translation: Translation,
    layout: TensorLayout,
    recorder: AbstractContextManager[Any],
    closed_over: Sequence[Tensor] | None = None,
) -> None:
    """Raise SelfCheckError if outputs or gradients of two steps differ from PyTorch's.

    Args:
        recorder: a context around each of PyTorch's steps.
        closed_over: the present tensors that the step closes over, if they are not those of its trace.
    """
    closed_over = translation.closed_over if closed_over is None else closed_over
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[] if layout.device == CPU else [layout.device]))
        stack.enter_context(_exact_products())
        stack.enter_context(inference_mode(False))
        stack.enter_context(enable_grad())
        stack.enter_context(autocast(layout.device.type, enabled=False))
        stack.enter_context(without_hooks(closed_over))
        torch.manual_seed(0)
        states = [random_tensor(kind, kind.shape, layout.device) for kind in layout.states]
        inputs = [random_tensor(kind, (CHECKED_STEPS, *kind.shape), layout.device) for kind in layout.inputs]
        theirs = _loop(step, states, inputs, layout, recorder)
        _compare(translation, [*states, *inputs, *closed_over], theirs)


@contextmanager
def without_hooks(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Hooks of tensors and of saved tensors are off within, so that they do not see a self-check.

    Graphs of a self-check end here. A graph that held its own outputs would never be freed, and neither would the nodes
    that accumulate gradients of parameters. Such a node belongs to the stream in which it was made, and would forbid
    the capture of a CUDA graph.
    """
    held = [tensor._backward_hooks for tensor in tensors if tensor._backward_hooks]
    before = [dict(hooks) for hooks in held]
    for hooks in held:
        hooks.clear()
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> int:
        saved.append(tensor)
        return len(saved) - 1

    try:
        with saved_tensors_hooks(pack, saved.__getitem__):
            yield
    finally:
        saved.clear()
        for hooks, kept in zip(held, before, strict=True):
            hooks.update(kept)


@contextmanager
def _exact_products() -> Iterator[None]:
    """PyTorch's products of float32 are exact within, as ours are: no TF32."""
    before = torch.get_float32_matmul_precision()
    if before != "highest":
        torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if before != "highest":
            torch.set_float32_matmul_precision(before)


def random_tensor(kind: TensorKind, shape: Sequence[int], device: torch.device) -> Tensor:
    """Random numbers that are the same on every device.

    Square matrices are positive definite, as states of Kalman filters are.
    """
    if not kind.dtype.is_floating_point:
        return torch.randint(0, 2, tuple(shape)).to(device, kind.dtype)
    numbers = torch.rand(tuple(shape), dtype=kind.dtype)
    if len(kind.shape) > 2 and shape[-2] == shape[-1]:
        numbers = numbers / shape[-1] + torch.eye(shape[-1], dtype=kind.dtype)
    return numbers.to(device).requires_grad_()


def results_of_one_step(step: TorchStep, layout: TensorLayout, beside: Sequence[TensorKind]) -> list[Tensor]:
    """The results of one step of PyTorch, without the extra states of tensors that the step sets.

    Args:
        beside: kinds of these extra states.
    """
    count, cards = len(layout.states), [] if layout.device == CPU else [layout.device]
    with inference_mode(False), torch.random.fork_rng(devices=cards), torch.no_grad():
        torch.manual_seed(0)
        states = [random_tensor(kind, kind.shape, layout.device) for kind in layout.states]
        inputs = [random_tensor(kind, kind.shape, layout.device) for kind in layout.inputs]
        others = [random_tensor(kind, kind.shape, layout.device) for kind in beside]
        with RandomFunctions(OwnDraws(SEED).at_step(0)), Decisions(step.assume), CodeRecorder(lambda *_: None):
            results = list(step.function(*states, *others, *inputs))
    return [*results[:count], *results[count + len(beside) :]]


def tried(step: TorchStep, layout: TensorLayout) -> list[Tensor]:
    """The results of one step of PyTorch. All that the step changes is put back."""
    kind = layout.device.type
    cast = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
    # Without the cache of autocast: it would keep weights without gradients for the rest of the caller's region.
    with Computed(), Journal(step.roots, static_walk(step.roots)), autocast(kind, *cast, cache_enabled=False):
        return results_of_one_step(step, layout, [])


def _loop(
    step: TorchStep,
    states: Sequence[Tensor],
    inputs: Sequence[Tensor],
    layout: TensorLayout,
    recorder: AbstractContextManager[Any],
) -> list[Tensor]:
    """Runs steps of PyTorch with the random numbers of the translated step.

    Returns last states, then results of all steps.
    """
    count, carried, rows, draws = len(layout.states), list(states), [], OwnDraws(SEED)
    for t in range(CHECKED_STEPS):
        given = [*carried, *(sequence[t] for sequence in inputs)]
        versions = [x._version for x in given]
        with RandomFunctions(draws.at_step(t)), Decisions(step.assume), recorder:
            results = list(step.function(*given))
        if versions != [x._version for x in given]:
            raise StepError("a step changes its state or input in place", hint=IN_PLACE)
        carried = results[:count]
        rows.append(results[count:])
    return [*carried, *(torch.stack(list(column)) for column in zip(*rows, strict=True))]


def _compare(translation: Translation, tensors: list[Tensor], theirs: list[Tensor]) -> None:
    named = dict(zip(translation.names, tensors, strict=True))
    fed = {name: on_host(translation.as_fed(name, tensor)) for name, tensor in named.items()}
    # arrays made in this way leave the tensors resizable
    feeds = {name: as_array(name, tensor) for name, tensor in fed.items()}
    leaves = {name: tensor for name, tensor in named.items() if tensor.requires_grad}
    results = dict(zip((*translation.last, *translation.steps), theirs, strict=True))
    run = ro.compile(translation.net, device="reference")
    out, pullback = run.vjp(feeds, wrt=list(leaves), seed=SEED)
    for name, tensor in results.items():
        _expect_equal(f"output {name}", out[name], tensor)
    live = {name: tensor for name, tensor in results.items() if tensor.requires_grad}
    given = {name: torch.rand_like(tensor) for name, tensor in live.items()}
    mine = pullback({name: on_host(grad).numpy() for name, grad in given.items()})
    if not live:
        return
    ends, starts = list(live.values()), list(leaves.values())
    grads, far = (_gradients(ends, starts, [grad * scale for grad in given.values()]) for scale in (1, FAR))
    for (name, tensor), grad, other in zip(leaves.items(), grads, far, strict=True):
        wanted = translation.part(name, torch.zeros_like(tensor) if grad is None else grad)
        _expect_equal(f"the gradient of {name}", mine[name], wanted)
        if other is not None and other.isfinite().all():
            scaled = translation.part(name, other / FAR)
            _expect_equal(f"the gradient of {name} for a large loss", mine[name], scaled, NOT_LINEAR)


def _gradients(ends: Sequence[Tensor], starts: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Tensor | None]:
    """Gradients of tensors. A tensor never counts as made of another: a step may read a weight and its view."""
    direct: dict[int, Tensor] = {}

    def cut(number: int, grad: Tensor) -> Tensor:
        direct[number] = grad
        return torch.zeros_like(grad)

    derived = {id(x): x for x in starts if x.grad_fn is not None}
    hooks = [x.register_hook(partial(cut, number)) for number, x in derived.items()]
    try:  # the caller's graph of these tensors must stay
        found = torch.autograd.grad(ends, starts, grads, allow_unused=True, retain_graph=True)
    finally:
        for hook in hooks:
            hook.remove()
    return [direct.get(id(x), grad) for x, grad in zip(starts, found, strict=True)]


def on_host(tensor: Tensor) -> Tensor:
    """A tensor on the host. It is a copy if the tensor lies on another device, or is a view with a lazy sign."""
    return (tensor if tensor.is_cpu else tensor.detach().cpu()).resolve_conj().resolve_neg()


UNSEEN = "The step does something that its graph does not show; write that part with PyTorch's own ops."
NOT_LINEAR = "A custom backward pass is not linear, for example because it clips: clip gradients after backward()."


def _expect_equal(what: str, mine: Any, theirs: Tensor, hint: str = UNSEEN) -> None:
    wanted = on_host(widened(theirs.detach(), torch.float32)).numpy()
    tolerance = max(TOLERANCE.get(kind, 0) for kind in (theirs.dtype, torch.as_tensor(mine).dtype))
    scale = 1 + np.abs(wanted).max(initial=0)
    if not np.allclose(mine, wanted, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        raise SelfCheckError(
            f"the translated step is not PyTorch's own: {what} differs",
            wanted=f"at most {tolerance * scale:.2g} apart",
            came=f"{np.abs(mine - wanted).max():.2g}",
            hint=hint,
        )


TensorStep = Callable[..., Sequence[Tensor]]
GRAD_MODES = ("is_grad_enabled", "is_inference_mode_enabled", "is_inference")


class TorchStep(NamedTuple):
    """A step as a function of tensors.

    Args:
        function: takes states, then inputs; returns states, then results.
        states: number of states.
        roots: the step and its cell, by name. Everything that the step reads is reached from them.
        assume: answers to `if tensor:`.
    """

    function: TensorStep
    states: int
    roots: Mapping[str, Any]
    assume: tuple[bool, ...] = ()


@dataclass(frozen=True)
class TracedStep:
    """A trace that has passed the self-check.

    Args:
        trace: None if the step runs by PyTorch's own loop.
        watch: the reads of the step.
        numbers: slots of the tensors that the graph has, by the tensors' ids.
        effects: what the step changes besides its results.
        computed: places (among the parametrized weights that the step could read) of those that are computed before
            each call. Their numbers follow the numbers of slots.
    """

    trace: Trace | None
    watch: Watch
    numbers: Mapping[int, int]
    effects: Effects
    computed: tuple[int, ...] = ()

    def number_of(self, other: TracedStep, number: int) -> int | None:
        """The number here of a tensor of another trace. None if this trace does not read it."""
        own, first = self.watch.slots, len(other.watch.slots)
        if number >= first:
            made, mine = [*other.owners()][number - first], [*self.owners()]
            return len(own) + mine.index(made) if made in mine else None
        holder, key, _ = other.watch.slots[number]
        return next((place for place, (one, name, _) in enumerate(own) if one is holder and name == key), None)

    def where(self, number: int) -> str:
        """The path to a tensor."""
        is_held = number < len(self.watch.slots)
        return self.watch.walk.where_slot(number) if is_held else "a parametrized weight"

    def owners(self) -> dict[int, Owner]:
        """Owners of the parametrized weights that are computed, by the ids of parametrizations."""
        if not self.computed:
            return {}
        owners = [*owners_of(self.watch.walk.modules).items()]
        return dict(map(owners.__getitem__, self.computed))

    def computed_now(self) -> dict[int, Tensor]:
        """The parametrized weights, computed now, by the ids of parametrizations."""
        return {made: getattr(*owner) for made, owner in self.owners().items()}

    def fits(self, layout: TensorLayout) -> bool:
        """True if the trace holds for these sizes."""
        return self.trace is None or self.trace.fits(self.effects.full(layout))


class Carrying:
    """A step in which tensors that it sets are extra states. They are set before the step, and read after it."""

    def __init__(self, step: TorchStep, carried: Sequence[CarriedTensor]) -> None:
        self._step, self._carried = step, carried

    @property
    def result_tree(self) -> Any:
        return getattr(self._step.function, "result_tree", None)

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        first = self._step.states
        second = first + len(self._carried)
        for carried, tensor in zip(self._carried, tensors[first:second], strict=True):
            carried.set(tensor.clone() if carried.in_place else tensor)
        results = self._step.function(*tensors[:first], *tensors[second:])
        return [*results[:first], *(carried.after() for carried in self._carried), *results[first:]]


def carrying(step: TorchStep, effects: Effects) -> TorchStep:
    """The step with all tensors that it sets as extra states."""
    carried = effects.carried
    return TorchStep(Carrying(step, carried), step.states + len(carried), step.roots, step.assume) if carried else step


def traced_step(step: TorchStep, layout: TensorLayout) -> TracedStep:
    """Traces a step. Returns the trace, which has passed the self-check, with all that the step reads and changes.

    Modules that the step imports for the first time are imported outside of the trace.
    """
    imported: list[str] = []
    while True:
        try:
            return _traced(step, layout, imported)
        except FirstImport as wanted:
            imported.append(str(wanted))
        with suppress(Exception):  # the step will meet the same error
            import_module(imported[-1])


def _traced(step: TorchStep, layout: TensorLayout, imported: Collection[str]) -> TracedStep:
    before = static_walk(step.roots)
    for number, tensor in enumerate(before.tensors()):
        check_whole(f"closed_over_{number}", tensor)
    drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
    try:
        with without_hooks(before.tensors()):
            return copy_context().run(_Study(step, layout, before, imported).traced)
    finally:
        random.setstate(drawn)
        np.random.set_state(drawn_by_numpy)


class _Study:
    """A step while it is traced: the code that ran, and what it changed."""

    def __init__(self, step: TorchStep, layout: TensorLayout, before: Walk, imported: Collection[str]) -> None:
        self._step, self._layout = step, layout
        self._reads, self._journal = Reads(), Journal(step.roots, before)
        self._recorder, self._mixes = CodeRecorder(self._on_code, imported), False
        self._computed = Computed()

    def _on_code(self, code: Any, its_globals: dict[str, Any]) -> None:
        self._journal.on_code(code, its_globals)
        self._reads.add(code, its_globals)

    def traced(self) -> TracedStep:
        """The trace. It has no graph if the step has to run by PyTorch's own loop."""
        trace, changes, mutated = self._trace(self._step, self._layout)
        walk = walk_all(self._step.roots, self._reads, tensor_parts=False)
        effects = effects_of(changes, mutated, walk, self._layout, list(self._reads.codes.values()))
        effects = effects.deciding(self._unseen_state(walk))
        if trace is None and not effects.carried:
            effects = effects.deciding([_unnamed("a tensor in place, as BatchNorm does while it is trained")])
        if effects.carried and not effects.others:
            trace, effects = self._trace_carrying(effects)
        if trace is None or effects.others:
            return self._plain(effects)
        try:
            others = self._check(trace, effects)
        except SelfCheckError:
            if not effects.carried:
                raise
            others = [carried.as_change() for carried in effects.carried]
        if others:
            return self._plain(effects.deciding(others))
        return self._watched(trace, effects)

    def _unseen_state(self, walk: Walk) -> list[Change]:
        """State that a step may change or read, and that cannot be compared."""
        if walk.iterators:
            hint = "Keep what it gives in a list, and carry the place in it as a state."
            came = f"{type(walk.iterators[0][0]).__name__} at {text_of(walk.iterators[0][1])}"
            raise StepError("a step reads an iterator, whose position rnnops cannot see", came=came, hint=hint)
        outside = (f"{what} by {name}" for name, what in sorted(self._recorder.outside) if what != CLOCK)
        modes = sorted(self._reads.user_names.intersection(GRAD_MODES))
        return [*map(_unnamed, outside), *(_unnamed(f"whether gradients are on by {mode}") for mode in modes)]

    def _trace(self, step: TorchStep, layout: TensorLayout) -> tuple[Trace | None, list[Change], list[Tensor]]:
        """Traces for all batch sizes, or for this one only if an op does not take a symbol for the batch size."""
        try:
            return self._trace_with(step, layout, True)
        except SymbolRefusedError:
            _warn(
                "a step makes a tensor of the batch's size in a way that fixes this size: each batch size is traced and"
                " compiled anew. Make such tensors by the step's arguments (x.new_zeros), and let them broadcast."
            )
            return self._trace_with(step, layout, False)

    def _trace_with(
        self, step: TorchStep, layout: TensorLayout, open_sizes: bool
    ) -> tuple[Trace | None, list[Change], list[Tensor]]:
        """Returns the trace and the changes that the step made, which are put back.

        No trace if the step mixes tensors from outside with its own.
        """
        mutations, trace = Mutations(), None
        with self._computed, self._journal:
            try:
                trace = trace_step(step.function, layout, self._recorder, step.assume, mutations, open_sizes)
                trace = replace(trace, names=_names_in(step.roots.get("cell")))
            except RuntimeError as error:
                self._mixes = "mutating a non-functional tensor" in str(error)
                if not mutations.tensors and not self._mixes:
                    raise
            finally:
                changes = self._journal.changes()
                mutations.restore()
                self._journal.forget_versions()
        return trace, changes, mutations.tensors

    def _trace_carrying(self, effects: Effects) -> tuple[Trace | None, Effects]:
        """Traces with the tensors that the step sets as extra states.

        Returns the trace and the effects that hold in it.
        """
        step, layout = carrying(self._step, effects), effects.full(self._layout)
        trace, changes, mutated = self._trace(step, layout)
        others = [change for change in changes if not effects.knows(change)]
        if trace is None or mutated:
            hint = "Call .eval() on BatchNorm, or use LayerNorm." if "num_batches" in effects.where else None
            problem = "a step changes tensors in place in a way that rnnops cannot follow"
            raise StepError(problem, came=effects.where, hint=hint)
        kinds = trace.result_kinds(layout.batch)[self._step.states : step.states]
        places = trace.places()[self._step.states : step.states]
        for carried, kind, place in zip(effects.carried, kinds, places, strict=True):
            fits = kind == (carried.kind.dtype, carried.kind.shape)
            if not fits or (place.users and not carried.is_read):
                others.append(carried.as_change())
        if not others and not all(carried.is_read for carried in effects.carried):
            with self._computed, self._journal:
                one = results_of_one_step(self._step, self._layout, [])
                self._journal.restore()
                kinds_beside = [carried.kind for carried in effects.carried]
                other = results_of_one_step(step, self._layout, kinds_beside)
            if not all(map(_is_close, one, other)):
                others = [carried.as_change() for carried in effects.carried if not carried.is_read]
        if not others:
            effects = effects.growing(self._grown(step, layout), [bool(place.users) for place in places])
        return trace, effects.deciding(others)

    def _grown(self, step: TorchStep, layout: TensorLayout) -> list[bool]:
        """True for each tensor that the step sets and that comes to need a gradient."""
        with self._computed, self._journal, torch.enable_grad():
            states = [random_tensor(kind, kind.shape, layout.device) for kind in layout.states]
            inputs = [random_tensor(kind, kind.shape, layout.device) for kind in layout.inputs]
            own, carried = states[: self._step.states], [state.detach() for state in states[self._step.states :]]
            with RandomFunctions(torch.rand_like), Decisions(step.assume):
                results = step.function(*own, *carried, *inputs)
        return [result.requires_grad for result in results[self._step.states : step.states]]

    def _check(self, trace: Trace, effects: Effects) -> list[Change]:
        """Runs the self-check of a trace. Returns changes that the effects do not describe."""
        step, layout = carrying(self._step, effects), effects.full(self._layout)
        translation = translate(trace, layout, False, False)
        with self._computed, self._journal:
            check_step(step, translation, layout, self._recorder)
            changes, mutated = self._journal.changes(), self._journal.changed_tensors()
        if mutated:
            hint = "Assign a new tensor instead, or carry it as a state."
            raise StepError("a step changes a tensor in place", came=", ".join(mutated), hint=hint)
        counted = {(id(c.holder), c.key): c for c in effects.counted}
        return [c for c in changes if not effects.knows(c) or not _goes_on(c, counted.get((id(c.holder), c.key)))]

    def _watched(self, trace: Trace, effects: Effects) -> TracedStep:
        translation = translate(trace, effects.full(self._layout), False, False)
        watch = Watch(self._step.roots, self._reads, effects.ignored(), effects.holders())
        numbers: dict[int, int] = {}
        for number, tensor in enumerate(watch.walk.tensors()):
            numbers.setdefault(id(tensor), number)
        owners, known = [*owners_of(watch.walk.modules)], self._computed.known
        computed = tuple(place for place, made in enumerate(owners) if made in known and known[made].value is not None)
        numbers.update({id(known[owners[place]].value): len(watch.slots) + i for i, place in enumerate(computed)})
        loose = [tensor for tensor in translation.closed_over if id(tensor) not in numbers]
        if loose:
            self._check_loose(loose, watch, effects)
        warn_of_unseen(watch, self._recorder)
        return TracedStep(trace, watch, numbers, effects, computed)

    def _check_loose(self, loose: Sequence[Tensor], watch: Watch, effects: Effects) -> None:
        """Raise StepError for a tensor in an unknown place, unless the step makes it whenever it runs."""
        layout = effects.full(self._layout)
        again, _, _ = self._trace(carrying(self._step, effects), layout)
        assert again is not None
        found = translate(again, layout, False, False).closed_over
        known = {_memory(tensor) for tensor in watch.walk.tensors()}
        known |= {array.ctypes.data for array, _ in watch.walk.arrays if isinstance(array, np.ndarray)}
        for tensor in loose:
            # a view such as `weight.data`. It holds as long as the weight is the same tensor.
            if _memory(tensor) in known:
                watch.pin_tensors()
            elif tensor.numel() and _memory(tensor) in map(_memory, found):
                came = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
                hint = "Hold it in an attribute, a list, a dict, a closure or a global."
                raise StepError("a step reads a tensor from where rnnops cannot follow it", came=came, hint=hint)

    def _plain(self, effects: Effects) -> TracedStep:
        """Lets PyTorch's own loop run the step, as long as its other reads stay the same."""
        known = Effects(others=effects.all_changes())
        watch = Watch(self._step.roots, self._reads, known.ignored())
        text = (
            f"a step reads or changes {effects.where}, which may decide how it goes on: it runs by PyTorch's own loop"
        )
        _warn(f"{text}. Carry such values as states to have it compiled.")
        warn_of_unseen(watch, self._recorder)
        return TracedStep(None, watch, {}, known)


def _names_in(cell: Module | None) -> dict[int, str]:
    """Names of a cell's parameters and buffers as in `RNN.state_dict`, by the tensors' ids."""
    kinds = () if cell is None else (cell.named_buffers(), cell.named_parameters())
    return {id(tensor): f"cell.{name}" for named in kinds for name, tensor in named}


def _unnamed(what: str) -> Change:
    return Change(object(), None, None, None, what)


def _goes_on(change: Change, counted: Counted | None) -> bool:
    """True if a counter goes on as it began."""
    return counted is None or bool(change.after - change.before == CHECKED_STEPS * counted.by)


def _is_close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= 1e-4 * (1 + one.abs().max()))


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def warn_of_unseen(watch: Watch, recorder: CodeRecorder) -> None:
    """Warns once of reads that cannot be compared before each call."""
    found = [f"{what} by {name}" for name, what in sorted(recorder.outside) if what == CLOCK]
    for what in [*found, *watch.unseen]:
        _warn(f"a step reads {what}, which rnnops does not compare before each call; recheck=n in rt.RNN does.")
    if recorder.has_assertions:
        _warn("a step asserts by torch._assert_async, which is left out where the step is compiled.")


def _warn(text: str) -> None:
    if text not in _told:
        _told.add(text)
        warnings.warn(text, UnseenWarning, stacklevel=2)


_told: set[str] = set()
