"""The training form of a recurrence: its backward step net, the blobs that it keeps of each step, masks of padding.

rewrite: `h_all, h_last = RecurrentNetwork(...)`
    -->  `h_all, h_last, step_workspaces = RecurrentNetwork(..., keep=[gates], backward=<net>)`

Blobs may be kept as bfloat16: half the bytes, 8 significant bits of 24. The forward pass goes on with the numbers
themselves, so that its results do not change. States stay float32: they are carried, and lie in their tensors anyway.

No padding reaches a gradient. A blob from which only masked results follow reads as zeros in finished rows. Past a
row's end masked results get a gradient of zeros. But zero times NaN is NaN, and sums over rows hand it on to every row:
NaN in padding, or made by it, would be in all gradients. So operands are masked too, before the net is differentiated.
Rows that come in are masked with zeros. Operands of ops without a value or a slope at zero (Log, Sqrt) are masked with
ones. Devices that leave finished rows out of their work drop these masks again. Masks lie along the axis of each blob
that runs over the rows.

Limits: operands that are the same at every step are not padding; an op that mixes rows reads all that is there, and
look-ups and ops that fill in elements (Pad) are said to mix rows.
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
OF_ALL_AXES_ON = ("LayerNormalization", "RMSNormalization")  # they mix all axes from `axis` on


def row_axes(call: Call, axis: int) -> Axes:
    """For each operand of an op the axis that rows run along, None where it is the same for all rows.

    Args:
        axis: of the results that rows run along.

    Returns: nothing for an op whose rows do not follow only from the same rows of its operands.
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
    """The axis of operand `i` along an axis of the result: by broadcasting, unless its form says where it begins."""
    if not call.has(i):
        return None
    kind = call.output_types[0]
    own = axis - (kind.rank - call.rank(i) if begin is None else begin)
    return own if 0 <= own < call.rank(i) and call.shape(i)[own] == kind.shape[axis] else None


def _of_product(call: Call, axis: int) -> Axes:
    """Rows of the left operand, columns of the right one, or an axis over which both are stacked."""
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
    """The axis of the operand that lands on `axis`: the reference moves an array of row numbers, which shows it."""
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
    """How the rows of a blob are masked: the axis they run along, and the blobs that say where they end."""

    axis: int
    lengths: str = ""
    timestep: str = ""


def mask_padding(program: Program, same: Collection[str] = ()) -> Net:
    """Mask the operands of ops from which only masked results follow; the net itself where there are none.

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
    """Ops with masks between them, one for all that read a blob alike."""

    def __init__(self, program: Program) -> None:
        self.taken = set(program.types)
        self.producers = {name: call.op for call in program.calls for name in call.op.outputs}
        self.ops: list[Op] = []
        self.written: set[str] = set()
        self.masks: dict[tuple[object, ...], str] = {}

    def masked(self, name: str, rows: Rows, gradient: bool, layer: str) -> str:
        """The blob that is another with its rows masked."""
        key = (name, rows, gradient, layer)
        if key not in self.masks:
            self.require(rows.lengths, rows.timestep)
            self.masks[key] = free_name(f"{name}/masked", self.taken)
            inputs, risky = (name, rows.lengths, rows.timestep), int(gradient)
            attributes = {"axis": rows.axis, "gradient": risky, "fill": risky}  # 1: where all have a value and a slope
            self.ops.append(Op("MaskRows", inputs, (self.masks[key],), attributes, layer))
        return self.masks[key]

    def require(self, *names: str) -> None:
        """Write what makes blobs, if it is not there yet: lengths and timesteps, whose ops have nothing to mask."""
        for op in (self.producers[name] for name in names if name in self.producers):
            if op.key not in self.written:
                self.require(*op.inputs)
                self.write(op)

    def write(self, op: Op) -> None:
        self.ops.append(op)
        self.written.add(op.key)


def _how_blobs_are_read(program: Program, outputs: Mapping[str, Rows]) -> dict[str, Rows | None]:
    """Blob that is read -> how all that follows from it is masked, None where something is not.

    Args:
        outputs: blobs that are masked outside of the net.
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
    """How all results of an op are masked where they are read, None where not alike, or where it mixes rows."""
    rows = _only({read[name] for name in call.op.outputs if name in read})
    return rows if rows is not None and _axes(call, rows.axis) else None


def _operands(call: Call, made: Rows | None) -> list[Rows | None]:
    """How the operands of an op are masked by what follows from them, given how its results are."""
    if made is not None:
        return [None if axis is None else replace(made, axis=axis) for axis in _axes(call, made.axis)]
    selects = call.op.type == "SelectValid"
    masked = 0 if not selects else 2 if call.attr("drop") else 1  # what it was is read past an end, unless dropped
    return [Rows(0, *call.op.inputs[2:]) if i < masked else None for i in range(len(call.op.inputs))]


def _axes(call: Call, axis: int) -> Axes:
    return _axes_of_recurrence(call, axis) if call.op.type == "RecurrentNetwork" else row_axes(call, axis)


def _axes_of_recurrence(call: Call, axis: int) -> Axes:
    """Rows of a recurrence inside a cell are those of its batch, unless its own cell mixes them."""
    recurrence = Recurrence(call.op, call.net)
    program = cell_program(recurrence, call)
    if recurrence.sums or recurrence.sequences != recurrence.row_sequences:  # rows may be on any axis, or none
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
    """True if each row, along axis 0, of all results that have rows follows only from the same row of these inputs."""
    types, batch = program.types, {program.types[name].shape[0] for name in rows}
    results = {name: blob for name, blob in program.net.output_blobs.items() if {*types[blob].shape[:1]} == batch}
    net = prune(program.net, outputs=results)
    program = prepare_again(program, net, {name: types[name] for name in net.input_names})
    read = _how_blobs_are_read(program, dict.fromkeys(results.values(), Rows(0)))
    return all(read.get(name, Rows(0)) == Rows(0) for name in rows)


def _is_undefined_at_zero(call: Call) -> bool:
    """True if an op, or its slope, may have no finite value where its operands are zero."""
    return call.op.type in UNDEFINED_AT_ZERO or (call.op.type in OF_ALL_AXES_ON and not call.attr("epsilon"))


def round_kept(program: Program, kept: Sequence[str], backward: Net) -> tuple[Net, tuple[str, ...], Net]:
    """A step, its kept blobs, and its backward net, with bits of bfloat16 kept in place of floats.

    rewrite: `keep=[gates]`, `backward(gates)`
        -->  `gates/bits = ToBfloat16(gates)`, `keep=[gates/bits]`, `backward(gates/bits)`

    What backward compares stays as it is: a rounded number may not be equal to the largest one any more, and whether
    it is decides whether it has a gradient. Raises CheckpointError for a step of float64.
    """
    if program.float_dtype != "float32":
        problem = "residuals='bfloat16' rounds what would be float32"
        raise CheckpointError(problem, net=program.net.name, wanted="feeds of float32", came=program.float_dtype)
    compared, taken = _compared(backward), {*program.types, *backward.blob_names}
    rounded = [name for name in kept if is_float(program.types[name].dtype) and name not in compared]
    bits = {name: free_name(f"{name}/bits", taken) for name in rounded}
    stores = [Op(to_bfloat16.name, (name,), (stored,), {}) for name, stored in bits.items()]
    cell = program.net.with_ops([*program.net.ops, *stores]).snapshot()
    return cell, tuple(bits.get(name, name) for name in kept), _widened(backward, bits, taken, program.float_dtype)


def rounded_blobs(cell: Net) -> dict[str, str]:
    """Bits that a step keeps -> the blob that they are of."""
    return {op.outputs[0]: op.inputs[0] for op in cell.ops if op.type == to_bfloat16.name}


def _widened(backward: Net, bits: Mapping[str, str], taken: set[str], float_dtype: str) -> Net:
    """A backward net that is given bits, and reads numbers of them."""
    inputs = [Input(bits[one.name], BITS, one.shape) if one.name in bits else one for one in backward.input_specs]
    numbers, loads = {}, list[Op]()
    for name, stored in bits.items():
        whole, numbers[name] = (free_name(f"{stored}/{what}", taken) for what in ("whole", "number"))
        loads.append(Op("Cast", (stored,), (whole,), {"to": float_dtype}))
        loads.append(Op(from_bfloat16.name, (whole,), (numbers[name],), {}))
    ops = [replace(op, inputs=tuple(numbers.get(name, name) for name in op.inputs)) for op in backward.ops]
    return backward.with_ops([*loads, *ops], inputs=inputs).snapshot()


def _compared(backward: Net) -> set[str]:
    """Blobs of a backward net from which truths or whole numbers follow."""
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
    """The net with its padding masked, and every recurrence on a way from `wrt` in training form.

    Args:
        policy: what the steps of cells keep.
        same: of a cell, inputs that are the same at every step.
        in_segments: whether a recurrence is to run segments of its steps again.

    Raises GradientError for a recurrence there that was built with forward_only.
    """
    program = _masked(program, same)

    def trained(call: Call, active: Collection[str]) -> Op:
        again = in_segments(call)
        op = _training_op(call, active, program.types, Policy(SEGMENTS) if again else policy)
        return replace(op, attributes={**op.attributes, "segments": 1}) if again else op

    return _with_active_recurrences(program, wrt, trained)


def open_form(program: Program, wrt: Collection[str], same: Collection[str] = ()) -> Net:
    """The net with its padding masked, in which every recurrence on a way from `wrt` hands out values for backward.

    It is a plain net: what `training_form` keeps in workspaces are step outputs here, and states whose steps are read.
    The gradient of such a recurrence is a recurrence that runs the other way (`reversed_recurrence.py`).

    rewrite: `_, h_last = RecurrentNetwork(...)`
        -->  `h_all, h_last, gates_all, _ = RecurrentNetwork(..., wanted=[x, w])`

    Args and errors: as of `training_form`.
    """
    program = _masked(program, same)
    taken = set(program.types)
    return _with_active_recurrences(program, wrt, lambda call, active: _open_op(call, active, taken))


def _with_active_recurrences(
    program: Program, wrt: Collection[str], changed: Callable[[Call, Collection[str]], Op]
) -> Net:
    """The net with the recurrences on a way from `wrt` changed, given the blobs that are on such a way."""
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
    """A recurrence that keeps nothing, whether it was in training form or not."""
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
    """One step, what is known before a run folded. Raises GradientError for a recurrence that is only for forward."""
    if call.op.attributes.get("forward_only"):
        hint = "Build it without forward_only to differentiate it."
        problem = "this recurrence was built with forward_only=True"
        raise GradientError(problem, net=call.net, op=call.op.label, hint=hint)
    step = cell_program(recurrence, call)
    return prepare_again(step, fold_constants(step), recurrence.step_types(input_types(recurrence, call)))


def _open_op(call: Call, active: Collection[str], taken: set[str]) -> Op:
    """The op with step outputs for the values of steps that backward reads, and names for the results that it reads."""
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
    """The blobs that are states as a step reads them, and ops that cut those of windows out."""
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
    """The names of a recurrence's results, with one for all steps of each output that backward reads."""
    blobs = recurrence.cell.output_blobs
    names, (scope, slash, _) = [*recurrence.op.outputs], recurrence.op.key.rpartition("/")
    for i, output in enumerate(recurrence.output_names()):
        names += ["", ""] if len(names) == 2 * i else []
        if blobs[output] in read and not names[2 * i] and output not in recurrence.sums:
            own = output if output.startswith(scope + slash) else scope + slash + output
            names[2 * i] = free_name(f"{own}_all", taken)
    return tuple(names)


def _wanted_inputs(recurrence: Recurrence, call: Call, active: Collection[str]) -> list[str]:
    """Float cell inputs whose gradients are needed: what is bound to an active blob, and states that steps hand on."""
    steps, _ = recurrence.steps_and_batch(input_types(recurrence, call))
    carried, wanted = ("initial" if steps != 1 else ""), []
    for (kind, name, outer), outer_type in zip(recurrence.bindings(), call.types, strict=True):
        if outer_type is not None and is_float(outer_type.dtype) and (kind == carried or outer in active):
            wanted.append(name)
    return wanted


def _with_grads(recurrence: Recurrence, refused: Mapping[str, GradientError]) -> tuple[int, ...] | None:
    """Positions that may get gradients: those of the op, less what follows from a refused output inside the cell.

    Raises GradientError where a state does, as gradients always flow back through states.
    """
    allowed: tuple[int, ...] | None = recurrence.op.attributes.get("outputs_with_grads")
    for state in recurrence.states:
        if state.output in refused:
            raise refused[state.output].again()
    names = [name for name in recurrence.output_names() for _ in ("all", "last")]
    open_ = tuple(i for i, name in enumerate(names) if name not in refused and (allowed is None or i in allowed))
    return allowed if allowed is None and len(open_) == len(names) else open_


def _free_blobs(recurrence: Recurrence, program: Program) -> set[str]:
    """Blobs of a step that are stored anyway: its inputs, its states, and step outputs that somebody reads.

    A step output that is listed for recompute, or follows from a listed blob, is not among them: it is computed again.
    """
    blobs = program.net.output_blobs
    stored = {*program.net.input_names, *(blobs[state.output] for state in recurrence.states)}
    again = cheap_descendants(program, recurrence.op.attributes.get("recompute", ()), stored)
    return stored | ({blobs[name] for name in recurrence.wanted_step_outputs} - again)
