"""The residuals of a training plan: policies, segments, predicted times and byte budgets.

**Segments**: a recurrence computes the steps of a segment again, instead of keeping their states, if that is predicted
to be faster. Keeping writes and reads all states of all steps, past the cache. Computing again takes one more forward
pass, over memory in the cache. Only cells without products may do so.

The plan gives the length of a segment, or tells that none is possible (`run/segments.py`).

Limits: the two speeds are those of one kind of server. On others the choice may be the slower one; results are the
same.

**Predicted time of a training step, before any data exists**. The unit is a training step in which nothing is computed
twice. It is taken for three forward passes: one forward, and two for the two products that the gradient of each product
needs. Work that is done again adds its share of the multiply-adds of products. In steps with products, elementwise
results count by a speed (`IN_STEPS`) that covers all other time of a step, too. Steps without products may have large
states. They count by their elementwise results, and by the bytes that are kept past the cache. A product of a state
with a matrix takes at least as long as reading the matrix. Starting the kernel of a part takes time, too, because it
reads the matrices of all products: short parts of small steps do little else.

**The fastest way to run backward within a byte budget**. Ways are tried in order of predicted time:

1. everything is kept;
2. no product is done again;
3. the same with longer segments, where recurrences run in segments;
4. results of products are kept;
5. states are kept;
6. recurrences run in parts, in as many slots as fit, of the kind that takes the fewest steps.

For each length of parts, more bytes allow more slots, and more slots take less time. So a larger budget never takes
longer. The bytes are those kept between the passes and those that the backward pass makes again. Outputs, feeds,
parameters, gradients and scratch of kernels are not among them. If a part is shorter than a tile of the CPU device,
sums over steps are rounded another way.

Limits: recurrences are cut into at most `MOST_PARTS` parts, as the schedule is worked out beforehand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rnnops.autodiff import GradientNet, differentiate
from rnnops.checkpoints.policy import (
    ALL,
    COLLECTION,
    DEFAULT,
    EXACT,
    MEMORY,
    NAMES,
    SPEED,
    Policy,
    Residuals,
    Saving,
    Slots,
    backward_net,
    choose_residuals,
)
from rnnops.checkpoints.slot_schedule import forward_steps
from rnnops.compiler.memory.allocations import PartBytes, bytes_of_blobs, part_bytes, state_types, workspace_bytes
from rnnops.errors import BudgetError, NoBottleneckError, NothingToRecomputeError
from rnnops.interpreter import Program, merged_within, prepare, prepare_again, rewritten
from rnnops.net.loop_forms import PRODUCTS
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.net.schema import Call
from rnnops.recurrent.recurrence import (
    Recurrence,
    backward_program,
    cell_program,
    input_types,
    is_training_form,
    runs_in_parts,
)
from rnnops.recurrent.training_form import plain_form, training_form
from rnnops.types import OPAQUE, Type
from rnnops.util import readable

Saved = tuple[Program, GradientNet, Residuals]  # the net in training form, its gradient, the blobs kept between them
StepsOf = Callable[[Call, Call], int]  # a recurrence, its gradient -> steps of a segment, 0 if there can be none
CACHE = 4 * 1024 * 1024  # bytes that stay in the cache from one pass to the other
BANDWIDTH, ELEMENTWISE_SPEED = 2e10, 4e10  # bytes of memory and elementwise results in a second
COSTLY_OPS = ("Exp", "Log", "Sigmoid", "Tanh", "Softplus", "Erf", "Gelu", "Sin", "Cos", "Tan", "Pow", "Softmax")
COST_OF_FUNCTION = 8  # additions that take as long as one result of a costly op
HEAVY = (*PRODUCTS, "RecurrentNetwork")


def goes_in_segments(call: Call) -> bool:
    """True if computing the steps of a recurrence again is predicted to take less time than keeping its states."""
    kept, again = seconds(call)
    return again < kept


def seconds(call: Call) -> tuple[float, float]:
    """Seconds to keep all states of a recurrence (0 if they stay in the cache), and to recompute them."""
    recurrence, steps = Recurrence(call.op, call.net), _steps(call)
    program = cell_program(recurrence, call)
    wanted = call.op.outputs[: 2 * len(recurrence.states) : 2]
    nbytes = steps * sum(kind.nbytes for kind in state_types(recurrence, call))
    if any(wanted) or nbytes <= CACHE or any(inner.op.type in HEAVY for inner in program.calls):
        return 0.0, 1.0
    return 2 * nbytes / BANDWIDTH, steps * sum(map(elementwise_results, program.calls)) / ELEMENTWISE_SPEED


def elementwise_results(call: Call) -> float:
    """The count of elementwise results of an op. Each result of a costly op counts as `COST_OF_FUNCTION`."""
    results = sum(kind.size for kind in call.output_types if kind.dtype != OPAQUE)
    return results * (COST_OF_FUNCTION if call.op.type in COSTLY_OPS else 1)


def with_segments(saved: Saved, steps: StepsOf, longer: int = 1) -> tuple[Saved, frozenset[str]]:
    """The net with segments in each op that can have them, and the keys of ops that cannot.

    Args:
        saved: a net in which recurrences that want segments are marked by segments of one step.
        longer: factor for the length of segments.
    """
    program, gradient, residuals = saved
    marked = {call.op.outputs[-1]: call for call in program.calls if call.op.attributes.get("segments")}
    if not marked:
        return saved, frozenset()
    ops = [merged_within(op) if _workspace(op) in marked else op for op in gradient.net.ops]
    gradient = replace(gradient, net=gradient.net.with_ops(ops).snapshot())
    net, found = backward_net(program, gradient, residuals), dict.fromkeys(marked, 0)
    types = {spec.name: Type(spec.dtype, spec.shape or ()) for spec in net.input_specs}
    for call in prepare(net, types, program.float_dtype).calls:
        if _workspace(call.op) in marked:
            found[_workspace(call.op)] = longer * steps(marked[_workspace(call.op)], call)
    ahead = program.net.with_ops([_in_segments(op, found.get(op.outputs[-1], 0)) for op in program.net.ops])
    behind = gradient.net.with_ops([_in_segments(op, found.get(_workspace(op), 0)) for op in ops])
    types = {name: program.types[name] for name in program.net.input_names}
    chosen = prepare(ahead.snapshot(), types, program.float_dtype), replace(gradient, net=behind.snapshot()), residuals
    return chosen, frozenset(call.op.key for name, call in marked.items() if not found[name])


def _in_segments(op: Op, steps: int) -> Op:
    return replace(op, attributes={**op.attributes, "segments": steps}) if steps else op


def _workspace(op: Op) -> str:
    """The workspace that the gradient of a recurrence reads, `""` for other ops."""
    return op.inputs[len(op.outputs)] if op.type == "RecurrentNetworkGradient" else ""


MULTIPLY_ADDS, IN_STEPS = 8e10, 2e10  # in a second: multiply-adds of products; elementwise results next to products
START, READING = 6e-5, 1.5e10  # of a part's kernel: seconds to start, and bytes of matrices that it reads in a second
NEAR, NEAR_BANDWIDTH = 1 << 20, 5e10  # bytes of matrices that stay in a core's cache, and bytes it reads in a second


@dataclass(frozen=True)
class StepCost:
    """The cost of a training step, in multiply-adds of products.

    Args:
        once: the cost of a step that does nothing twice.
        again: the cost of work that is done a second time, without recurrences in parts.
        parted: for each recurrence in parts: T, the cost of its forward pass, and that of starting a kernel.
    """

    once: float
    again: float
    parted: Sequence[tuple[int, float, float]]

    def time(self, chosen: Slots) -> float:
        """The time with these slots, in units of a step that does nothing twice."""
        again = self.again
        for steps, forward, start in self.parted:
            count = -(-steps // chosen.steps)
            runs = forward_steps(count, chosen.count, chosen.kind, chosen.cost)
            again += (runs / count - 1) * forward + (runs + 2 * count - 3) * start
        return 1 + again / max(self.once, 1)


def step_cost(saved: Saved) -> StepCost:
    """The cost of a training step."""
    program, _, residuals = saved
    passes = {call.op.key: (call, *_pass(call)) for call in program.calls}
    once = sum(3 * work + 2 * wait + 3 * start for _, work, wait, start in passes.values())
    again = sum(passes[key][1] for key in {op.key for op in residuals.rerun} & passes.keys())
    again += sum(_again(call) + _moved(call) for call in program.calls if is_training_form(call.op))
    parted = [(_steps(call), w + wait, start) for call, w, wait, start in passes.values() if runs_in_parts(call.op)]
    return StepCost(once, again, parted)


def _pass(call: Call) -> tuple[float, float, float]:
    """The work of an op, the time that it waits for matrices beyond its work, and the time to start it.

    Products of states read their matrices at each step: from the cache if they fit, else from memory. A kernel that
    starts reads all other matrices, and those of states, too, if they fit the cache.
    """
    if call.op.type != "RecurrentNetwork":
        return float(call.output_types[0].size * call.shape(0)[-1]) if call.op.type in PRODUCTS else 0.0, 0.0, 0.0
    ops, speed = [*_moving(call)], IN_STEPS if _has_products(call) else ELEMENTWISE_SPEED
    products = [found for found in ops if found[0].op.type in PRODUCTS]
    chained = sum(nbytes for _, follows, nbytes in products if follows)
    bandwidth, again = (NEAR_BANDWIDTH, 0) if chained <= NEAR else (BANDWIDTH, chained)
    wait = chained / bandwidth * MULTIPLY_ADDS - sum(_work(one) for one, follows, _ in products if follows)
    start = (START + (sum(nbytes for *_, nbytes in products) - again) / READING) * MULTIPLY_ADDS
    work = _steps(call) * sum(_work(one) or _elementwise(one, speed) for one, *_ in ops)
    return work, _steps(call) * max(0.0, wait), start


def _work(call: Call) -> float:
    """The work of an op, in multiply-adds of products."""
    return _pass(call)[0]


def _moving(call: Call) -> Iterator[tuple[Call, bool, int]]:
    """For each op whose result differs from step to step: the op, whether it depends on states, and bytes that it reads
    of values which are the same at every step."""
    recurrence = Recurrence(call.op, call.net)
    states, moving = {state.input for state in recurrence.states}, set(recurrence.sequences)
    for one in cell_program(recurrence, call).calls:
        read = {name: kind.nbytes for name, kind in zip(one.op.inputs, one.types, strict=True) if kind is not None}
        fixed = sum(nbytes for name, nbytes in read.items() if name not in states | moving)
        if (states | moving) & read.keys():
            follows = bool(states & read.keys())
            (states if follows else moving).update(one.op.outputs)
            yield one, follows, fixed


def _elementwise(call: Call, speed: float = ELEMENTWISE_SPEED) -> float:
    return elementwise_results(call) * MULTIPLY_ADDS / speed


def _has_products(call: Call) -> bool:
    """True if a step of a recurrence has products."""
    return any(inner.op.type in HEAVY for inner in cell_program(Recurrence(call.op, call.net), call).calls)


def _again(call: Call) -> float:
    """The work that the backward pass of a recurrence repeats."""
    if call.op.attributes.get("segments"):
        return _work(call)
    made = {name for op in call.op.attributes["cell"].ops for name in op.outputs if name}
    calls = [inner for inner in backward_program(call).calls if set(inner.op.outputs) & made]
    return _steps(call) * sum(map(_work if _has_products(call) else _elementwise, calls))


def _moved(call: Call) -> float:
    """Time to write and read residuals of steps without products, in multiply-adds; 0 if they stay in the cache.

    States at borders of segments are few and count nothing.
    """
    nbytes = workspace_bytes(call)
    is_little = nbytes <= CACHE or _has_products(call) or call.op.attributes.get("segments")
    return 0.0 if is_little else 2 * nbytes / BANDWIDTH * MULTIPLY_ADDS


def _steps(call: Call) -> int:
    recurrence = Recurrence(call.op, call.net)
    return recurrence.steps_and_batch(input_types(recurrence, call))[0]


By = Callable[[Policy], Saved]
MOST_PARTS = 4096
LONGER = (2, 4)  # factors for the length of segments that fit half of a small cache; they are not much slower
POLICIES = (Policy(ALL), Policy(DEFAULT), Policy(SPEED), Policy(MEMORY))


@dataclass(frozen=True)
class Candidate:
    """A way to run backward.

    Args:
        nbytes: the bytes that it holds.
        time: the predicted time.
    """

    policy: Policy
    nbytes: int
    time: float


def fit_budget(by: By, budget: int | float, tile: Callable[[int, int], int]) -> Candidate:
    """The fastest way that fits.

    Args:
        by: gives the net for a policy.
        budget: bytes, or a fraction of what the policy `all` keeps.
        tile: T and N -> steps of a tile of kernels; parts of whole tiles give the same bits as no parts.

    Raises BudgetError, which names the least budget that is enough.
    """
    everything = held_bytes(by(Policy(ALL)))
    limit = budget if isinstance(budget, int) else int(budget * everything)
    found = ways(by, tile, limit)
    for way in found:
        if way.nbytes <= limit:
            return way
    least = min(found, key=lambda way: way.nbytes)
    share = f", memory_budget={-(-1000 * least.nbytes // max(everything, 1)) / 1000}"
    raise BudgetError(
        "no way to run backward fits the memory budget",
        net=by(Policy())[0].net.name,
        wanted=f"at least {least.nbytes} bytes{share}",
        came=f"{limit} bytes" + ("" if isinstance(budget, int) else f", which are {budget} of what 'all' holds"),
        hint=f"{_most_of(by(least.policy), least)} Shorter sequences or smaller batches need less.",
    )


SHOWN = 3  # blobs that an error names


def _most_of(saved: Saved, way: Candidate) -> str:
    """A sentence that names the largest blobs of a way."""
    nbytes, largest = bytes_of_blobs(saved[0]), dict[str, int]()
    most = 0
    for held, alive in _moments(saved):
        if held > most:
            most, largest = held, {name: nbytes[name] for name in alive}
    for call in saved[0].calls:
        if runs_in_parts(call.op) and way.policy.slots is not None:
            largest[call.op.outputs[-1]] = part_bytes(call).held(way.policy.slots)
    first = sorted(largest.items(), key=lambda item: -item[1])[:SHOWN]
    return f"Most of it: {', '.join(f'{name} {readable(size)}' for name, size in first)}."


def ways(by: By, tile: Callable[[int, int], int], limit: int | None = None) -> list[Candidate]:
    """All ways, the fastest first. With a limit, parts have as many slots as fit it."""
    found: list[Candidate] = []
    for policy in POLICIES:
        try:
            saved = by(policy)
        except NoBottleneckError:
            continue
        found.append(Candidate(policy, held_bytes(saved), step_cost(saved).time(Slots(1))))
        if policy.kind == DEFAULT and any(op.attributes.get("segments") for op in saved[0].net.ops):
            longer = [(policy, by(policy)) for policy in (Policy(longer=times) for times in LONGER)]
            found += [Candidate(policy, held_bytes(saved), step_cost(saved).time(Slots(1))) for policy, saved in longer]
    for kind in (DEFAULT, MEMORY):
        try:
            saved = by(Policy(kind, slots=Slots(1)))
        except NoBottleneckError:
            continue
        found += _ways_in_parts(kind, saved, tile, limit)
    return sorted(found, key=lambda way: way.time)


def _ways_in_parts(kind: str, saved: Saved, tile: Callable[[int, int], int], limit: int | None) -> list[Candidate]:
    calls = [call for call in saved[0].calls if runs_in_parts(call.op)]
    if not calls:
        return []
    bytes_of = [part_bytes(call) for call in calls]
    longest = max(one.steps for one in bytes_of)
    step = min(tile(one.steps, one.batch) for one in bytes_of)
    cut = _Cut(Policy(kind), held_bytes(saved), step_cost(saved), bytes_of, longest)
    sizes = [steps for steps in _sizes(longest, step) if steps < longest]
    sizes += [steps for steps in _halves(step) if longest <= steps * MOST_PARTS]
    if limit is not None:
        return [cut.in_slots(steps, limit) for steps in sizes]
    chosen = [Slots(-(-longest // steps), "state", steps) for steps in sizes]
    return [cut.way(one) for one in (*chosen, *(Slots(count, "state", step) for count in _halves(-(-longest // step))))]


@dataclass(frozen=True)
class _Cut:
    """A net whose recurrences are cut into parts.

    Args:
        policy: of the outer net and within steps.
        outer: bytes that the net holds outside of the parts.
        cost: of a training step.
        longest: timesteps of the longest recurrence.
    """

    policy: Policy
    outer: int
    cost: StepCost
    bytes_of: Sequence[PartBytes]
    longest: int

    def way(self, chosen: Slots) -> Candidate:
        """The way with these slots."""
        return Candidate(Policy(self.policy.kind, slots=chosen), self.held(chosen), self.cost.time(chosen))

    def held(self, chosen: Slots) -> int:
        """The bytes that the net holds with these slots."""
        return self.outer + sum(one.held(chosen) for one in self.bytes_of)

    def in_slots(self, steps: int, limit: int) -> Candidate:
        """Parts of so many steps in as many slots as fit, in the kind of slot that takes the fewest forward steps."""
        found = [Slots(self._most_slots(kind, steps, limit), kind, steps) for kind in ("state", "step")]
        return min(map(self.way, found), key=lambda way: (way.nbytes > limit, way.time))

    def _most_slots(self, kind: str, steps: int, limit: int) -> int:
        """The largest number of slots within the limit, at least 1."""
        counts = range(1, -(-self.longest // steps) + 1)
        return max(1, bisect_right(counts, limit, key=lambda count: self.held(Slots(count, kind, steps))))


def _sizes(longest: int, step: int) -> Iterator[int]:
    """Lengths of parts: whole tiles, from half of all steps down to one tile."""
    tiles, parts, last = -(-longest // step), 2, 0
    while last != 1:
        size = -(-tiles // parts)
        if size != last:
            yield size * step
        last, parts = size, max(parts + 1, parts * 9 // 8)


def _halves(number: int) -> Iterator[int]:
    while number > 1:
        number //= 2
        yield number


def held_bytes(saved: Saved) -> int:
    """The most bytes of forward blobs that are there at once, kept or made again, from the end of the forward pass on.

    Bytes of recurrences in parts are not counted.
    """
    return max(held for held, _ in _moments(saved))


def _moments(saved: Saved) -> Iterator[tuple[int, set[str]]]:
    """For each moment from the end of the forward pass on: bytes of the forward blobs that are there, and the blobs."""
    program, gradient, residuals = saved
    nbytes = bytes_of_blobs(program)
    parted = {call.op.outputs[-1] for call in program.calls if runs_in_parts(call.op)}
    nbytes.update(dict.fromkeys(parted, 0))
    net = backward_net(program, gradient, residuals)
    made = {name for op in program.net.ops for name in op.outputs if name}
    last = {name: i for i, op in enumerate(net.ops) for name in op.inputs}
    alive = set(residuals.kept)
    held = sum(nbytes[name] for name in alive)
    yield held, alive
    for i, op in enumerate(net.ops):
        begun = made.intersection(op.outputs) - alive
        held += sum(nbytes[name] for name in begun)
        alive |= begun
        yield held, alive
        ended = {name for name in (*op.inputs, *begun) if name in alive and last.get(name, -1) <= i}
        held -= sum(nbytes[name] for name in ended)
        alive -= ended


@dataclass(frozen=True)
class ByPolicy:
    """The forward net in training form, its gradient net, and the values kept between them, by policy.

    Args:
        residuals: the dtype that floats of steps are kept as.
        segments: gives the length of segments; None if no recurrence can have segments.
    """

    live: Program
    types: Mapping[str, Type]
    wrt: tuple[str, ...]
    residuals: str = EXACT
    segments: StepsOf | None = None

    def __call__(self, policy: Policy, whole: frozenset[str] = frozenset()) -> Saved:
        """The result for a policy. Recurrences whose keys are in `whole` have no segments.

        Raises CheckpointError if the policy does not fit the net.
        """
        policy = replace(policy, residuals=self.residuals)
        if self.segments is None or policy.kind != DEFAULT or policy.slots is not None:
            return self._chosen(policy, lambda call: False)
        marked = self._chosen(policy, lambda call: call.op.key not in whole and goes_in_segments(call))
        saved, refused = with_segments(marked, self.segments, policy.longer)
        return self(policy, whole | refused) if refused else saved

    def _chosen(self, policy: Policy, in_segments: Callable[[Call], bool]) -> Saved:
        live, types = self.live, self.types
        program = prepare_again(live, training_form(live, self.wrt, policy, in_segments=in_segments), types)
        if policy.slots is not None:
            program = prepare(in_parts(program, policy.slots), types, live.float_dtype)
        gradient = differentiate(program, self.wrt)
        free, nbytes = set(program.net.input_names), bytes_of_blobs(program)
        residuals = choose_residuals(program, gradient.reads, free, (), policy, nbytes)
        _check(program, residuals, policy)
        return _without_unkept(program, types, residuals), gradient, residuals


def choose_saved(by: ByPolicy, saving: Saving, tile: Callable[[int, int], int]) -> Saved:
    """The net for the policy that is asked for, or for the fastest one that fits a budget.

    Args:
        tile: T and N of a recurrence -> steps of a tile of kernels.

    Raises CheckpointError if a policy or a budget does not fit the net.
    """
    return by(saving.policy if saving.budget is None else fit_budget(by, saving.budget, tile).policy)


def in_parts(program: Program, slots: Slots) -> Net:
    """The net in training form with its recurrences in parts, except those without steps or with sums."""
    schedule = (slots.steps, slots.count, slots.kind, slots.cost)
    ops = [
        replace(call.op, attributes={**call.op.attributes, "schedule": schedule}) if _has_steps(call) else call.op
        for call in program.calls
    ]
    return program.net.with_ops(ops).snapshot()


def _has_steps(call: Call) -> bool:
    """True if a recurrence in training form has steps and no sums: parts cannot pass on a sum over steps."""
    return is_training_form(call.op) and _steps(call) > 0 and not call.op.attributes.get("sums")


def _without_unkept(program: Program, types: Mapping[str, Type], residuals: Residuals) -> Program:
    """The forward net in which recurrences that backward runs again keep nothing."""
    ops = [
        plain_form(op) if op.type == "RecurrentNetwork" and op.outputs[-1] not in residuals.kept else op
        for op in program.net.ops
    ]
    return prepare_again(program, rewritten(program.net, ops), types)


def _check(program: Program, residuals: Residuals, policy: Policy) -> None:
    """Raise an error where a policy that was asked for changes nothing."""
    recurrences = [op for op in program.net.ops if is_training_form(op)]
    again = residuals.rerun or any(runs_again(op.attributes["cell"], op.attributes["backward"]) for op in recurrences)
    if policy.kind in (NAMES, COLLECTION) and not again:
        raise NothingToRecomputeError(
            f"checkpoints={policy} leaves nothing to compute again",
            net=program.net.name,
            hint="Everything that backward reads is kept or at hand: leave checkpoints= out.",
        )


def runs_again(forward: Net, backward: Net) -> list[str]:
    """Blobs of a forward net that a backward net computes a second time."""
    made = {name for op in forward.ops for name in op.outputs if name}
    return [name for op in backward.ops for name in op.outputs if name in made]
