"""Plans: all facts about a net that follow from the types of its feeds.

The order here: the two kinds of plan, the rewrites of nets, how a plan is made (`forward_structure`,
`training_structure`), and caches of plans (`PlanCache`, `PlanTemplates`).

A plan is made once for the types of its feeds and is kept in a bounded cache. Plans for new sizes are filled in from
templates, by structure. Feeds have the same structure if their dtypes and ranks agree, if the same sizes are 0, 1 or
equal to each other, and if all sizes of inputs agree that are bound or declared with a shape. The first plan of a
structure is made only for its sizes, because most runs never have other sizes. The second plan is a template: it has
symbols (`rnnops/sizes.py`) for the sizes that have changed. A template serves all sizes for which the compiler decides
the same: tiles, threads, kept blobs, the order of ops. For other sizes another template is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rnnops.autodiff import GradientNet
from rnnops.checkpoints.policy import DEFAULT_SAVING, Policy, Residuals, Saving, backward_net
from rnnops.compiler.memory.allocations import order_ops
from rnnops.compiler.rewrite.fuse_ops import fuse_ops, round_products, split_states, work_around
from rnnops.compiler.run.compile_programs import Compiled, LiveRanges, Runners, compile_programs, demands_of, ranges_of
from rnnops.compiler.run.compiled_scan import FEW_RESULTS, REFERENCE, Options, steps_of_tile
from rnnops.errors import OutOfMemoryError
from rnnops.interpreter import (
    Program,
    fold_constants,
    merge_equal_ops,
    number_random_ops,
    out_of_memory,
    prepare,
    prepare_again,
    prune,
    prune_cells,
)
from rnnops.net.net import Net
from rnnops.recurrent.cell_rewrites import hoist_out_of_cells, merge_products, order_sums, sink_views, split_products
from rnnops.sizes import Symbols
from rnnops.templates import Fresh, Template
from rnnops.types import Type
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.compiler.memory import choose_saved
    from rnnops.compiler.memory.choose_saved import Saved
    from rnnops.compiler.run import segments as in_segments
else:  # a plan of a forward pass does without
    choose_saved = LazyModule("rnnops.compiler.memory.choose_saved")
    in_segments = LazyModule("rnnops.compiler.run.segments")


@dataclass(frozen=True)
class ForwardPlan:
    """A plan of a forward pass only. Its fields are as in a `TrainingPlan`."""

    program: Program
    compiled: Compiled = field(default_factory=Compiled)
    options: Options = REFERENCE
    live_ranges: tuple[LiveRanges, ...] = ((),)


@dataclass(frozen=True)
class TrainingPlan:
    """A plan of a forward and a backward pass.

    Args:
        program: the forward net in training form.
        gradient: the gradient net, and the meaning of its inputs and outputs.
        residuals: the blobs that are kept, and the ops that run again.
        backward: the backward net: ops that run again, and gradient ops.
        compiled: the runners of ops that the interpreter does not run.
        unfused: the forward net in training form, before ops were fused.
        options: options of the device.
        live_ranges: the arrays that may share memory, of the forward pass and of the backward pass.
        derived: backward passes cut into layers, which are made when they are asked for.
    """

    program: Program
    gradient: GradientNet
    residuals: Residuals
    backward: Program
    compiled: Compiled
    unfused: Program
    options: Options
    live_ranges: tuple[LiveRanges, ...] = ((), ())
    derived: PlanCache[Any] = field(default_factory=lambda: PlanCache(limit=8), compare=False, repr=False)


REWRITES: tuple[Callable[[Net], Net], ...] = (  # rewrites of nets and of their cells
    number_random_ops,  # first: no later pass changes the numbers that are drawn
    merge_equal_ops,
    prune_cells,  # last: drops ops that the other passes left unread
)
REWRITES_OF_SHAPES: tuple[Callable[[Program], Net], ...] = (  # rewrites of outer nets whose types are known
    fold_constants,  # sizes and what follows from them become constants,
    sink_views,  # views of weights move to the ops that read them,
    lambda program: merge_equal_ops(program.net),  # equal ones become one,
    lambda program: prune(program.net),  # and ops that are no longer read are dropped;
    split_states,  # then layers in one state become states of their own;
    hoist_out_of_cells,  # then ops that are the same at every step become ops of the outer net;
    merge_products,  # then products that share an operand become one, before differentiation, so gradients do too;
    split_products,  # products of joined inputs and states become sums of two products,
    order_sums,  # and sums of products get their order, before residuals are chosen
)


def live_net(net: Net, operands: str = "") -> Net:
    """The net with random ops numbered, equal ops merged, and unneeded ops dropped, in cells too.

    Args:
        operands: the format that operands of products are rounded to, in gradients too; empty for no rounding.
    """
    live = reduce(lambda rewritten, rewrite: rewrite(rewritten), REWRITES, net)
    return round_products(live, operands) if operands else live


def rewritten_program(net: Net, types: Mapping[str, Type], float_dtype: str) -> Program:
    """A live net after the rewrites that need known shapes."""
    program = prepare(net, types, float_dtype)
    for rewrite in REWRITES_OF_SHAPES:
        program = prepare_again(program, rewrite(program))
    return program


def forward_structure(
    net: Net, types: Mapping[str, Type], float_dtype: str, options: Options = REFERENCE
) -> ForwardPlan:
    """Plan a forward pass of a live net, without offsets in memory, which `with_memory` adds.

    Sizes may be symbols here, so that one plan serves many sizes (`PlanTemplates`). Offsets need plain integers.
    Raises OutOfMemoryError if planning needs more memory than there is.
    """
    with _planning(net, types, float_dtype):
        return _forward_plan(net, types, float_dtype, options)


def _forward_plan(net: Net, types: Mapping[str, Type], float_dtype: str, options: Options) -> ForwardPlan:
    program = rewritten_program(net, types, float_dtype)
    options = _decided(options, program)
    program = _fused(program, (), options)
    compiled = compile_programs(options, program)
    program, ranges = _ordered(program, compiled.forward, options)
    return ForwardPlan(program, compiled, options, (ranges,))


def training_structure(
    net: Net,
    types: Mapping[str, Type],
    float_dtype: str,
    wrt: tuple[str, ...],
    options: Options = REFERENCE,
    saving: Saving = DEFAULT_SAVING,
) -> TrainingPlan:
    """Plan a forward and a backward pass of a live net, as `forward_structure` does.

    Raises CheckpointError if the policy does not fit the net, and the errors of `forward_structure`.
    """
    with _planning(net, types, float_dtype):
        return _training_plan(net, types, float_dtype, wrt, options, saving)


def _training_plan(
    net: Net, types: Mapping[str, Type], float_dtype: str, wrt: tuple[str, ...], options: Options, saving: Saving
) -> TrainingPlan:
    live = rewritten_program(net, types, float_dtype)
    options = _decided(options, live)
    segments = in_segments.SegmentPlans(options)
    by = choose_saved.ByPolicy(live, types, wrt, saving.policy.residuals, segments.steps)
    program, gradient, residuals = choose_saved.choose_saved(by, saving, partial(steps_of_tile, options))
    net = merge_equal_ops(backward_net(program, gradient, residuals))
    backward = prepare(net, input_types(net), float_dtype)
    unfused, held = program, (*residuals.kept, *residuals.free)
    program, backward = _fused(program, held, options), _fused(backward, (), options)
    compiled = compile_programs(options, program, backward, segments)
    program, ahead = _ordered(program, compiled.forward, options, held)
    backward, behind = _ordered(backward, compiled.backward, options, given=residuals.kept)
    return TrainingPlan(program, gradient, residuals, backward, compiled, unfused, options, (ahead, behind))


def _decided(options: Options, live: Program) -> Options:
    """The options with a choice of `around`, one choice for both passes.

    Calls of little work are replayed without Python, which needs all ops compiled. In calls of much work, NumPy is as
    fast as kernels at ops that do not work row by row. The choice depends only on the live net, not on kept blobs.
    """
    if options.around:
        return options
    return replace(options, around="all" if work_around(live) < FEW_RESULTS else "rows")


def _fused(program: Program, keep: Iterable[str], options: Options) -> Program:
    return program if options.around == "none" else fuse_ops(program, keep, options.around == "all")


def _ordered(
    program: Program, runners: Runners, options: Options, keep: Collection[str] = (), given: Collection[str] = ()
) -> tuple[Program, LiveRanges]:
    """The ops in an order in which little memory is alive, and the arrays that may share memory. Without `recycle` the
    order stays, and no memory is shared."""
    if not options.recycle:
        return program, ()
    program = order_ops(program, demands_of(runners), keep, given)
    return program, ranges_of(program, runners, keep)


AnyPlan = TypeVar("AnyPlan", bound=ForwardPlan | TrainingPlan)


def prepared(plan: AnyPlan) -> AnyPlan:
    """The plan, after its cached values that do not depend on sizes have been computed."""
    for program in [plan.program, *([plan.backward] if isinstance(plan, TrainingPlan) else [])]:
        _ = program.steps, program.stays
    for kernel in plan.compiled.kernels:
        kernel.demand()
        kernel.compiled.prepare()
    return plan


def with_memory(plan: AnyPlan) -> AnyPlan:
    """The plan with offsets for all arrays that share memory within a pass, and one block of scratch for all scans."""
    return replace(plan, compiled=plan.compiled.sharing(plan.options.pool, *plan.live_ranges))


@contextmanager
def _planning(net: Net, types: Mapping[str, Type], float_dtype: str) -> Iterator[None]:
    """If memory runs out, raise an OutOfMemoryError that names the op with the largest result."""
    try:
        yield
    except OutOfMemoryError:  # it names an op already
        raise
    except MemoryError as error:
        calls = prepare(net, types, float_dtype).calls
        largest = max(calls, key=lambda call: max(kind.nbytes for kind in call.output_types))
        raise out_of_memory(largest, "memory has no room to plan a net with this op") from error


def saved_by(
    net: Net, types: Mapping[str, Type], float_dtype: str, wrt: tuple[str, ...], residuals: str, options: Options
) -> Callable[[Policy], Saved]:
    """A function that returns the residuals of a live net for a policy.

    Args:
        residuals: how steps keep floats: `"float32"` or `"bfloat16"`.
    """
    live, segments = rewritten_program(net, types, float_dtype), in_segments.SegmentPlans(options)
    return choose_saved.ByPolicy(live, types, wrt, residuals, segments.steps)


def input_types(net: Net) -> dict[str, Type]:
    """Types of the inputs of a net whose inputs all have shapes."""
    return {spec.name: Type(spec.dtype, spec.shape or ()) for spec in net.input_specs}


Plan = TypeVar("Plan")


class PlanCache(Fresh, Generic[Plan]):
    """The plans that were used last, by key. Several threads may use it.

    It has no lock, which could stay taken in a forked child. Instead a table is replaced by a new one, never changed.
    If two threads do this at once, one of their plans may be lost, and is made again later.
    """

    def __init__(self, limit: int = 32) -> None:
        self._limit = limit
        self._plans: dict[Hashable, Plan] = {}

    def get(self, key: Hashable, make: Callable[[], Plan]) -> Plan:
        """The plan under `key`, made if it is not there."""
        plans = self._plans
        found = plans.get(key)
        if found is not None and found is next(reversed(plans.values())):
            return found
        plan = make() if found is None else found
        plans = dict(self._plans)
        plans.pop(key, None)
        plans[key] = plan  # the most recently used plan is last
        if len(plans) > self._limit:
            del plans[next(iter(plans))]
        self._plans = plans
        return plan

    def fresh(self) -> PlanCache[Plan]:
        return PlanCache(self._limit)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._plans

    def __len__(self) -> int:
        return len(self._plans)


Types = Mapping[str, Type]
Make = Callable[[Types], AnyPlan]
STRUCTURES, TEMPLATES = 32, 16  # structures kept for a run, templates kept for a structure; one has a few megabytes
IDLE = 8  # after 8 templates of a structure that only served their own sizes, fewer and fewer are made


class PlanTemplates(Generic[AnyPlan]):
    """Plans of one run by structure."""

    def __init__(self) -> None:
        self._structures = PlanCache[_Structure[AnyPlan]](STRUCTURES)

    def plan(self, key: Hashable, types: Types, known: Collection[str], make: Make[AnyPlan]) -> AnyPlan:
        """A plan for feeds of certain types.

        Args:
            key: all else that plans depend on.
            known: inputs whose sizes never change.
            make: makes a plan for types whose sizes may be symbols.
        """
        named, sizes = structure_of(types, known)
        structure = self._structures.get((key, named), _Structure)
        return structure.plan(types, named, sizes, make) if sizes else make(types)


@dataclass(frozen=True)
class _Made(Generic[AnyPlan]):
    """A template with its sizes.

    Args:
        sizes: the sizes that it is only for; None for each size that has a symbol.
    """

    sizes: tuple[int | None, ...]
    template: Template[AnyPlan]

    def at(self, sizes: tuple[int, ...]) -> AnyPlan | None:
        """The plan for certain sizes; None if the template does not serve them."""
        if any(own is not None and own != size for own, size in zip(self.sizes, sizes, strict=True)):
            return None
        return self.template.at([size for own, size in zip(self.sizes, sizes, strict=True) if own is None])


class _Structure(Generic[AnyPlan]):
    """The templates of one structure, the most recently used one first."""

    def __init__(self) -> None:
        self.first: tuple[int, ...] | None = None  # sizes of the first plan
        self.templates: tuple[_Made[AnyPlan], ...] = ()
        self.changed: frozenset[int] = frozenset()  # numbers of the sizes that were not always the same
        self.unused = 0  # templates made since one last served other sizes than its own
        self.waits = 0  # how many plans are made without a template before one is tried again

    def plan(self, types: Types, named: Structure, sizes: tuple[int, ...], make: Make[AnyPlan]) -> AnyPlan:
        """A plan for these sizes, from a template if one fits."""
        if self.first is None:
            self.first = sizes
            return make(types)
        for made in self.templates:
            plan = made.at(sizes)
            if plan is not None:
                others = tuple(other for other in self.templates if other is not made)
                self.templates, self.unused, self.waits = (made, *others), 0, 0
                return plan
        self.changed |= {i for i, size in enumerate(sizes) if size != self.first[i]}
        self.waits -= 1
        new = self._new(types, named, sizes, make) if self.waits < 0 else None
        plan = None if new is None else new.at(sizes)
        if new is None or plan is None:
            return make(types)
        self.templates = (new, *self.templates[: TEMPLATES - 1])
        return plan

    def _new(
        self, types: Types, named: Structure, sizes: tuple[int, ...], make: Make[AnyPlan]
    ) -> _Made[AnyPlan] | None:
        """A template with symbols for the sizes that have changed; None if a plan cannot be made with symbols."""
        self.unused += 1
        self.waits = max(0, self.unused - IDLE)  # if each size needs its own template, fewer and fewer are made
        numbers = sorted(self.changed)
        symbols, known = Symbols([sizes[i] for i in numbers]), list[Any](sizes)
        for number, i in enumerate(numbers):
            known[i] = symbols.symbol(number)
        kinds = {
            name: Type(dtype, tuple(known[axis[0]] if isinstance(axis, tuple) else axis for axis in axes))
            for name, dtype, axes in named
        }
        free = tuple(None if i in self.changed else size for i, size in enumerate(sizes))
        try:
            return _Made(free, Template(prepared(make(kinds)), symbols))
        except Exception:  # something cannot be done with symbols; a plan for plain sizes raises the error for people
            self.waits = 2**self.unused  # it will probably fail for other sizes too, so try rarely
            return None


Axes = tuple[int | tuple[int], ...]  # for each axis its size, or (number of a symbol,)
Structure = tuple[tuple[str, str, Axes], ...]  # name, dtype and axes of each input


def structure_of(types: Types, known: Collection[str]) -> tuple[Structure, tuple[int, ...]]:
    """The structure of feeds, and the size of each of its symbols.

    Args:
        known: inputs whose sizes are part of the structure and get no symbols.
    """
    symbols: dict[int, int] = {}
    inputs = []
    for name, kind in types.items():
        axes: Axes = kind.shape
        if name not in known:
            axes = tuple([(symbols.setdefault(size, len(symbols)),) if size > 1 else size for size in kind.shape])
        inputs.append((name, kind.dtype, axes))
    return tuple(inputs), tuple(symbols)
