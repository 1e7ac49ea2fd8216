"""The training form of a recurrence: its backward step net, the blobs that it keeps of each step, masks of padding.

rewrite: `h_all, h_last = RecurrentNetwork(...)`
    -->  `h_all, h_last, step_workspaces = RecurrentNetwork(..., keep=[gates], backward=<net>)`

The order here: which axis rows are on (`row_axes`), masks of padding (`mask_padding`), kept blobs as bfloat16
(`round_kept`), then the training form (`training_form`) and the open form (`open_form`).

**Masks of padding**: no padding reaches a gradient. Past a row's end masked results get a gradient of zeros. But zero
times NaN is NaN, and a sum over rows spreads it to all rows. So NaN in padding, or computed from it, would reach all
gradients. Therefore operands are masked too, before the net is differentiated, if only masked results depend on them.
They are masked with zeros, and with ones if their op has no value or slope at zero (Log, Sqrt). Devices that compute
nothing for finished rows drop these masks again. A mask lies along the axis of a blob that runs over the rows.

Limits: operands that are the same at every step are not padding, and are not masked. An op that mixes rows reads all
rows as they are. Look-ups and ops that fill in elements (Pad) count as mixing rows.

**Kept as bfloat16**: blobs may be kept with half the bytes and 8 of 24 significant bits. The forward pass goes on with
the float32 numbers, so its results do not change. States stay float32, because their tensors hold them in any case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rnnops.autodiff import differentiate
from rnnops.checkpoints.policy import (
    BFLOAT16,
    DEFAULT_POLICY,
    SEGMENTS,
    Policy,
    backward_net,
    cheap_descendants,
    choose_residuals,
)
from rnnops.errors import CheckpointError, GradientError
from rnnops.interpreter import Program, fold_constants, prepare_again, prune, rewritten
from rnnops.net.loop_forms import MATMULS, Pointwise, Reduction, View
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, free_name, unused_name
from rnnops.net.schema import Call, form_of, is_ours, schema_of
from rnnops.ops.base import BITS, from_bfloat16, to_bfloat16
from rnnops.ops.reduction import Reduce
from rnnops.recurrent.recurrence import Recurrence, cell_program, input_types, is_training_form, step_of_window
from rnnops.templates import agreed
from rnnops.types import Array, Shape, is_float

Axes = Sequence[int | None]
OF_ALL_AXES_ON = ("LayerNormalization", "RMSNormalization")  # ops that mix all axes from `axis` on


def row_axes(call: Call, axis: int) -> Axes:
    """For each operand of an op the axis that rows run along, None if the operand is the same for all rows.

    Args:
        axis: the axis of the results that rows run along.

    Returns: an empty list for an op that mixes rows.
    """
    form, schema = form_of(call), schema_of(call.op.type)
    if isinstance(form, Pointwise):
        begins = dict(form.begins)
        return [_aligned(call, i, axis, begins.get(i)) for i in range(len(call.op.inputs))]
    if call.op.type in ("Dropout", "RandomUniformLike"):
        return [_aligned(call, 0, axis)]
    if call.op.type in MATMULS:
        return _of_product(call, axis)
    if isinstance(form, Reduction) or isinstance(schema, Reduce):
        return _of_reduction(call, axis)
    if call.op.type in ("Softmax", "LogSoftmax", *OF_ALL_AXES_ON):
        first = call.axis(call.attr("axis"), call.rank(0))
        mixed = axis >= first if call.op.type in OF_ALL_AXES_ON else axis == first
        return [] if mixed else [_aligned(call, i, axis) for i in range(len(call.op.inputs))]
    if not isinstance(form, View):
        return []
    of_view = partial(_of_view, axis, form)
    return agreed(of_view, call) if is_ours(schema) else of_view(call)


def _aligned(call: Call, i: int, axis: int, begin: int | None = None) -> int | None:
    """The axis of operand `i` that lies along an axis of the result.

    Args:
        begin: the axis of the result where the operand's first axis lies; by broadcasting if left out.
    """
    if not call.has(i):
        return None
    kind = call.output_types[0]
    own = axis - (kind.rank - call.rank(i) if begin is None else begin)
    return own if 0 <= own < call.rank(i) and call.shape(i)[own] == kind.shape[axis] else None


def _of_product(call: Call, axis: int) -> Axes:
    """The axes of a product's operands: rows of the left one, columns of the right one, or a stacked axis of both."""
    rank = call.output_types[0].rank
    if call.rank(0) == 1 or call.rank(1) == 1:
        return [axis, None] if call.rank(0) > 1 else []
    left, right = _aligned(call, 0, axis), _aligned(call, 1, axis)
    return [left if axis != rank - 1 else None, right if axis != rank - 2 else None]


def _of_reduction(call: Call, axis: int) -> Axes:
    folded = schema_of(call.op.type).reduced_axes(call)
    has_all_axes = call.output_types[0].rank == call.rank(0)
    kept = [a for a in range(call.rank(0)) if has_all_axes or a not in folded]
    return [] if kept[axis] in folded else [kept[axis], *(None for _ in call.op.inputs[1:])]


def _of_view(axis: int, form: View, call: Call) -> Axes:
    """The axis of the operand that becomes `axis`. It is found by running the reference on an array of row numbers."""
    rows = call.output_types[0].shape[axis]
    moved = len(call.op.inputs) if form.all_inputs else 1
    if any(call.has(i) and call.values[i] is None for i in range(moved, len(call.op.inputs))):
        return []
    for own in [own for own, size in enumerate(call.shape(0)) if size == rows]:
        arrays = [_numbers(call.shape(i), own) for i in range(moved)] + list(call.values[moved:])
        found = schema_of(call.op.type).reference(call, *arrays)
        results = found if isinstance(found, tuple) else (found,)
        if all(np.array_equal(result, _numbers(result.shape, axis)) for result in results):
            return [own] * moved + [None] * (len(call.op.inputs) - moved)
    return []


def _numbers(shape: Shape, axis: int) -> Array:
    """For each element its position along an axis."""
    return np.broadcast_to(np.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - axis - 1)), shape)


UNDEFINED_AT_ZERO = ("Div", "Log", "Pow", "Reciprocal", "Sqrt")


@dataclass(frozen=True)
class Rows:
    """How the rows of a blob are masked.

    Args:
        axis: the axis that rows run along.
        lengths, timestep: the blobs that say where rows end; empty if the mask is outside of the net.
    """

    axis: int
    lengths: str = ""
    timestep: str = ""


def mask_padding(program: Program, same: Collection[str] = ()) -> Net:
    """Mask the operands of ops on which only masked results depend; the net itself if there are none.

    rewrite: `s = Add(x, h); h_t = SelectValid(s, h, lengths, timestep)`  -->
        `x' = MaskRows(x, lengths, timestep); h' = MaskRows(h, ...); s = Add(x', h'); h_t = SelectValid(s, h, ...)`

    Args:
        same: inputs that are the same at every step.
    """
    read = _how_blobs_are_read(program, {})
    inside = {call.op.key: rows for call in program.calls if (rows := _rows_made(call, read))}
    if not inside:
        return program.net
    risky = {call.op.key for call in program.calls if call.op.key in inside and _is_undefined_at_zero(call)}
    made_inside = {name for call in program.calls if call.op.key in inside.keys() - risky for name in call.op.outputs}
    writer = _MaskWriter(program)
    for call in program.calls:
        if call.op.key in writer.written:
            continue
        names = list(call.op.inputs)
        for i, rows in enumerate(_operands(call, inside[call.op.key]) if call.op.key in inside else ()):
            is_zero = names[i] in made_inside and call.op.key not in risky
            if rows and is_float(call.dtype(i)) and names[i] not in same and not is_zero:
                names[i] = writer.masked(names[i], rows, call.op.key in risky, call.op.layer)
        writer.write(replace(call.op, inputs=tuple(names)))
    return program.net.with_ops(writer.ops).snapshot()


class _MaskWriter:
    """Collects the ops of a net with masks between them. Readers that need the same mask of a blob share it."""

    def __init__(self, program: Program) -> None:
        self.taken = set(program.types)
        self.producers = {name: call.op for call in program.calls for name in call.op.outputs}
        self.ops: list[Op] = []
        self.written: set[str] = set()
        self.masks: dict[tuple[object, ...], str] = {}

    def masked(self, name: str, rows: Rows, gradient: bool, layer: str) -> str:
        """The blob with its rows masked.

        Args:
            gradient: whether the gradient is masked too, and the rows are filled with ones.
        """
        key = (name, rows, gradient, layer)
        if key not in self.masks:
            self.require(rows.lengths, rows.timestep)
            self.masks[key] = free_name(f"{name}/masked", self.taken)
            inputs, risky = (name, rows.lengths, rows.timestep), int(gradient)
            attributes = {"axis": rows.axis, "gradient": risky, "fill": risky}  # all ops have a value and a slope at 1
            self.ops.append(Op("MaskRows", inputs, (self.masks[key],), attributes, layer))
        return self.masks[key]

    def require(self, *names: str) -> None:
        """Write the ops that make these blobs, if they are not written yet. They make lengths and timesteps, and need
        no masks."""
        for op in (self.producers[name] for name in names if name in self.producers):
            if op.key not in self.written:
                self.require(*op.inputs)
                self.write(op)

    def write(self, op: Op) -> None:
        self.ops.append(op)
        self.written.add(op.key)


def _how_blobs_are_read(program: Program, outputs: Mapping[str, Rows]) -> dict[str, Rows | None]:
    """Blob that is read -> the one mask of all results that depend on it; None if they are not all masked alike.

    Args:
        outputs: blob -> its mask outside of the net.
    """
    uses: dict[str, set[Rows | None]] = defaultdict(set)
    for name in program.net.output_blobs.values():
        uses[name].add(outputs.get(name))
    for call in reversed(program.calls):
        read = {name: _only(uses[name]) for name in call.op.outputs if name in uses}
        for name, rows in zip(call.op.inputs, _operands(call, _rows_made(call, read)), strict=True):
            uses[name].add(rows)
    return {name: _only(rows) for name, rows in uses.items()}


def _only(uses: Collection[Rows | None]) -> Rows | None:
    return next(iter(uses)) if len(uses) == 1 else None


def _rows_made(call: Call, read: Mapping[str, Rows | None]) -> Rows | None:
    """The one mask of all results of an op; None if they are not all masked alike, or the op mixes rows."""
    rows = _only({read[name] for name in call.op.outputs if name in read})
    return rows if rows is not None and _axes(call, rows.axis) else None


def _operands(call: Call, made: Rows | None) -> list[Rows | None]:
    """The masks of the operands of an op, given the mask of its results."""
    if made is not None:
        return [None if axis is None else replace(made, axis=axis) for axis in _axes(call, made.axis)]
    selects = call.op.type == "SelectValid"
    masked = 0 if not selects else 2 if call.attr("drop") else 1  # with drop=0 its second operand is read past the end
    return [Rows(0, *call.op.inputs[2:]) if i < masked else None for i in range(len(call.op.inputs))]


def _axes(call: Call, axis: int) -> Axes:
    return _axes_of_recurrence(call, axis) if call.op.type == "RecurrentNetwork" else row_axes(call, axis)


def _axes_of_recurrence(call: Call, axis: int) -> Axes:
    """The row axes of a recurrence inside a cell: its batch axes, or none if its own cell mixes rows."""
    recurrence = Recurrence(call.op, call.net)
    program = cell_program(recurrence, call)
    if recurrence.sums or recurrence.sequences != recurrence.row_sequences:  # their rows may be on any axis
        return []
    read = _how_blobs_are_read(program, dict.fromkeys(program.net.output_blobs.values(), Rows(0)))
    steps = dict.fromkeys(recurrence.sequences, 0)
    steps.update((state.input, int(state.window > 1)) for state in recurrence.states)
    if axis != 1 or any(name in read and read[name] != Rows(own) for name, own in steps.items()):
        return []
    ranks = {state.input: state.feature_rank for state in recurrence.states}
    references = [None if rows is None else rows.axis for rows in map(read.get, recurrence.references)]
    states = [call.rank(i) - ranks[name] - 1 for i, name in enumerate(recurrence.ports()) if name in ranks]
    return [*(1 for _ in recurrence.sequences), *(own if own >= 0 else None for own in states), *references]


def rows_are_apart(program: Program, rows: Collection[str]) -> bool:
    """True if rows (axis 0) do not mix: each row of a result depends only on the same row of these inputs."""
    types, batch = program.types, {program.types[name].shape[0] for name in rows}
    results = {name: blob for name, blob in program.net.output_blobs.items() if {*types[blob].shape[:1]} == batch}
    net = prune(program.net, outputs=results)
    program = prepare_again(program, net, {name: types[name] for name in net.input_names})
    read = _how_blobs_are_read(program, dict.fromkeys(results.values(), Rows(0)))
    return all(read.get(name, Rows(0)) == Rows(0) for name in rows)


def _is_undefined_at_zero(call: Call) -> bool:
    """True if an op or its slope may have no finite value at zero operands."""
    return call.op.type in UNDEFINED_AT_ZERO or (call.op.type in OF_ALL_AXES_ON and not call.attr("epsilon"))


def round_kept(program: Program, kept: Sequence[str], backward: Net) -> tuple[Net, tuple[str, ...], Net]:
    """A step, its kept blobs and its backward net, with floats kept as the bits of bfloat16.

    rewrite: `keep=[gates]`, `backward(gates)`
        -->  `gates/bits = ToBfloat16(gates)`, `keep=[gates/bits]`, `backward(gates/bits)`

    Blobs that the backward net compares are not rounded. A maximum, for example, has its gradient where an element
    equals it, and rounding could change that. Raises CheckpointError for a step of float64.
    """
    if program.float_dtype != "float32":
        problem = "residuals='bfloat16' rounds only float32"
        raise CheckpointError(problem, net=program.net.name, wanted="feeds of float32", came=program.float_dtype)
    compared, taken = _compared(backward), {*program.types, *backward.blob_names}
    rounded = [name for name in kept if is_float(program.types[name].dtype) and name not in compared]
    bits = {name: free_name(f"{name}/bits", taken) for name in rounded}
    stores = [Op(to_bfloat16.name, (name,), (stored,), {}) for name, stored in bits.items()]
    cell = program.net.with_ops([*program.net.ops, *stores]).snapshot()
    return cell, tuple(bits.get(name, name) for name in kept), _widened(backward, bits, taken, program.float_dtype)


def rounded_blobs(cell: Net) -> dict[str, str]:
    """Blob of bits that a step keeps -> the blob that was rounded."""
    return {op.outputs[0]: op.inputs[0] for op in cell.ops if op.type == to_bfloat16.name}


def _widened(backward: Net, bits: Mapping[str, str], taken: set[str], float_dtype: str) -> Net:
    """A backward net whose inputs are bits. It converts them to numbers first."""
    inputs = [Input(bits[one.name], BITS, one.shape) if one.name in bits else one for one in backward.input_specs]
    numbers, loads = {}, list[Op]()
    for name, stored in bits.items():
        whole, numbers[name] = (free_name(f"{stored}/{what}", taken) for what in ("whole", "number"))
        loads.append(Op("Cast", (stored,), (whole,), {"to": float_dtype}))
        loads.append(Op(from_bfloat16.name, (whole,), (numbers[name],), {}))
    ops = [replace(op, inputs=tuple(numbers.get(name, name) for name in op.inputs)) for op in backward.ops]
    return backward.with_ops([*loads, *ops], inputs=inputs).snapshot()


def _compared(backward: Net) -> set[str]:
    """Blobs of a backward net on which bools or integers depend."""
    found: set[str] = set()
    for op in reversed(backward.ops):
        if any(name and (name in found or not is_float(backward.dtype_of(name))) for name in op.outputs):
            found.update(op.inputs)
    return found


def training_form(
    program: Program,
    wrt: Collection[str],
    policy: Policy = DEFAULT_POLICY,
    same: Collection[str] = (),
    in_segments: Callable[[Call], bool] = lambda call: False,
) -> Net:
    """The net with its padding masked. Every recurrence that depends on `wrt` is in training form.

    Args:
        policy: which blobs the steps of cells keep.
        same: if the net is a cell, inputs that are the same at every step.
        in_segments: returns True for a recurrence that runs segments of its steps again.

    Raises GradientError if such a recurrence was built with forward_only.
    """
    program = _masked(program, same)

    def trained(call: Call, active: Collection[str]) -> Op:
        again = in_segments(call)
        op = _training_op(call, active, program.types, Policy(SEGMENTS) if again else policy)
        return replace(op, attributes={**op.attributes, "segments": 1}) if again else op

    return _with_active_recurrences(program, wrt, trained)


def open_form(program: Program, wrt: Collection[str], same: Collection[str] = ()) -> Net:
    """The net with its padding masked. Recurrences that depend on `wrt` return the values that backward steps read.

    It is a plain net: values that `training_form` keeps in workspaces are step outputs here, or states whose steps are
    read. The gradient of such a recurrence is a recurrence that runs the other way (`reversed_recurrence.py`).

    rewrite: `_, h_last = RecurrentNetwork(...)`
        -->  `h_all, h_last, gates_all, _ = RecurrentNetwork(..., wanted=[x, w])`

    Arguments and errors are those of `training_form`.
    """
    program = _masked(program, same)
    taken = set(program.types)
    return _with_active_recurrences(program, wrt, lambda call, active: _open_op(call, active, taken))


def _with_active_recurrences(
    program: Program, wrt: Collection[str], changed: Callable[[Call, Collection[str]], Op]
) -> Net:
    """The net in which recurrences that depend on `wrt` are changed.

    Args:
        changed: from a recurrence, and all blobs so far that depend on `wrt`, to the new op.
    """
    active, ops = set(wrt), []
    for call in program.calls:
        if schema_of(call.op.type).differentiable and any(name in active for name in call.op.inputs):
            active.update(n for n in call.op.outputs if n and is_float(program.types[n].dtype))
        is_recurrence = call.op.type == "RecurrentNetwork" and any(name in active for name in call.op.outputs)
        ops.append(changed(call, active) if is_recurrence else call.op)
    return rewritten(program.net, ops)


def _masked(program: Program, same: Collection[str]) -> Program:
    """The program with its padding masked."""
    net = mask_padding(program, same)
    types = {name: program.types[name] for name in net.input_names}
    return prepare_again(program, net, types)


def plain_form(op: Op) -> Op:
    """The recurrence without training form: it keeps nothing for a backward pass."""
    if not is_training_form(op):
        return op
    attributes = {key: value for key, value in op.attributes.items() if key not in ("keep", "backward", "output_grads")}
    return replace(op, outputs=op.outputs[:-1], attributes=attributes)


def _training_op(call: Call, active: Collection[str], taken: Collection[str], policy: Policy) -> Op:
    recurrence = Recurrence(call.op, call.net)
    wrt, step = _wanted_inputs(recurrence, call, active), _step(recurrence, call)
    trained = training_form(step, wrt, policy, recurrence.references)
    program = prepare_again(step, trained, {name: step.types[name] for name in step.net.input_names})
    gradient = differentiate(program, wrt)
    free = _free_blobs(recurrence, program)
    recompute = recurrence.op.attributes.get("recompute", ())
    residuals = choose_residuals(program, gradient.reads, free, recompute, policy)
    cell, keep, backward = program.net, residuals.kept, backward_net(program, gradient, residuals)
    if policy.residuals == BFLOAT16:
        cell, keep, backward = round_kept(program, keep, backward)
    attributes = {
        **call.op.attributes,
        "cell": cell,
        "keep": keep,
        "backward": backward,
        "output_grads": tuple(gradient.output_grads.items()),
        "outputs_with_grads": _with_grads(recurrence, gradient.refused),
    }
    return replace(
        call.op, outputs=(*call.op.outputs, unused_name(f"{call.op.key}/step_workspaces", taken)), attributes=attributes
    )


def _step(recurrence: Recurrence, call: Call) -> Program:
    """One step, in which results that are known before a run are constants. Raises GradientError for a recurrence that
    was built with forward_only."""
    if call.op.attributes.get("forward_only"):
        hint = "Build it without forward_only to differentiate it."
        problem = "this recurrence was built with forward_only=True"
        raise GradientError(problem, net=call.net, op=call.op.label, hint=hint)
    step = cell_program(recurrence, call)
    return prepare_again(step, fold_constants(step), recurrence.step_types(input_types(recurrence, call)))


def _open_op(call: Call, active: Collection[str], taken: set[str]) -> Op:
    """The op in open form: values that backward steps read are step outputs, and results that they read have names."""
    recurrence = Recurrence(call.op, call.net)
    wrt, step = _wanted_inputs(recurrence, call, active), _step(recurrence, call)
    opened = open_form(step, wrt, recurrence.references)
    recurrence = Recurrence(replace(call.op, attributes={**call.op.attributes, "cell": opened}), call.net)
    program = prepare_again(step, opened, {name: step.types[name] for name in step.net.input_names})
    gradient = differentiate(program, wrt)
    recompute = recurrence.op.attributes.get("recompute", ())
    residuals = choose_residuals(program, gradient.reads, _free_blobs(recurrence, program), recompute)
    blobs = dict(program.net.output_blobs)
    there = {blob for name, blob in blobs.items() if name not in recurrence.sums}
    read = {*gradient.reads, *residuals.free, *residuals.kept}
    ops, seen = _steps_seen(recurrence, program, read)
    blobs.update((free_name(f"before/{name}", set(blobs)), name) for name in seen if name not in there)
    blobs.update((free_name(f"kept/{name}", set(blobs)), name) for name in residuals.kept if name not in there)
    cell = program.net.with_ops([*program.net.ops, *ops], blobs).snapshot()
    attributes = {**call.op.attributes, "cell": cell, "wanted": tuple(wrt)}
    with_grads = _with_grads(recurrence, gradient.refused)
    attributes.update({} if with_grads is None else {"outputs_with_grads": with_grads})
    changed = replace(call.op, attributes=attributes)
    return replace(changed, outputs=_opened_results(Recurrence(changed, call.net), {*read, *seen}, taken))


def _steps_seen(recurrence: Recurrence, program: Program, read: Collection[str]) -> tuple[list[Op], list[str]]:
    """The blobs that are single steps of states, as a step reads them; with them the ops that cut these out of windows.
    The ops come first."""
    there = {place: program.net.output_blobs[name] for name, place in recurrence.before.items()}
    there.update(((state, 0), state.input) for state in recurrence.states if state.window == 1)
    taken, ops, seen = set(program.types), list[Op](), list[str]()
    for place in ((state, j) for state in recurrence.states if state.input in read for j in range(state.window)):
        if place not in there:
            name, (cut, drop) = place[0].input, step_of_window(place[1])
            part, there[place] = (free_name(f"{name}/{what}{place[1]}", taken) for what in ("cut", "step"))
            ops += [Op("Slice", (name,), (part,), cut), Op("Squeeze", (part,), (there[place],), drop)]
        seen.append(there[place])
    return ops, seen


def _opened_results(recurrence: Recurrence, read: Collection[str], taken: set[str]) -> tuple[str, ...]:
    """The names of a recurrence's results. Each output that backward steps read has a name for all of its steps."""
    blobs = recurrence.cell.output_blobs
    names, (scope, slash, _) = [*recurrence.op.outputs], recurrence.op.key.rpartition("/")
    for i, output in enumerate(recurrence.output_names()):
        names += ["", ""] if len(names) == 2 * i else []
        if blobs[output] in read and not names[2 * i] and output not in recurrence.sums:
            own = output if output.startswith(scope + slash) else scope + slash + output
            names[2 * i] = free_name(f"{own}_all", taken)
    return tuple(names)


def _wanted_inputs(recurrence: Recurrence, call: Call, active: Collection[str]) -> list[str]:
    """Float cell inputs whose gradients are needed: inputs that are bound to an active blob, and, unless T is 1, all
    states."""
    steps, _ = recurrence.steps_and_batch(input_types(recurrence, call))
    carried, wanted = ("initial" if steps != 1 else ""), []
    for (kind, name, outer), outer_type in zip(recurrence.bindings(), call.types, strict=True):
        if outer_type is not None and is_float(outer_type.dtype) and (kind == carried or outer in active):
            wanted.append(name)
    return wanted


def _with_grads(recurrence: Recurrence, refused: Mapping[str, GradientError]) -> tuple[int, ...] | None:
    """Positions of results that may get gradients: those of the op, without outputs that the cell refuses.

    Raises GradientError if a state is refused, because gradients always flow back through states.
    """
    allowed: tuple[int, ...] | None = recurrence.op.attributes.get("outputs_with_grads")
    for state in recurrence.states:
        if state.output in refused:
            raise refused[state.output].again()
    names = [name for name in recurrence.output_names() for _ in ("all", "last")]
    open_ = tuple(i for i, name in enumerate(names) if name not in refused and (allowed is None or i in allowed))
    return allowed if allowed is None and len(open_) == len(names) else open_


def _free_blobs(recurrence: Recurrence, program: Program) -> set[str]:
    """Blobs of a step that are stored in any case: its inputs, its states, and step outputs that are read.

    A step output is left out if it is listed for recompute, or if cheap ops compute it from a listed blob.
    """
    blobs = program.net.output_blobs
    stored = {*program.net.input_names, *(blobs[state.output] for state in recurrence.states)}
    again = cheap_descendants(program, recurrence.op.attributes.get("recompute", ()), stored)
    return stored | ({blobs[name] for name in recurrence.wanted_step_outputs} - again)
