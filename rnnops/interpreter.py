"""The reference interpreter, which runs a net op by op in NumPy, and rewrites of nets that all devices use.

The interpreter is the specification that every device is compared with. It comes first (`prepare`, `execute`). Rewrites
drop ops that nothing reads, merge equal ops, number random ops, and fold constants once shapes are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from operator import is_
from typing import Any

import numpy as np

from rnnops.errors import OWN_ERRORS, NetError, OpError, OutOfMemoryError, failed_rule, out_of_memory_of
from rnnops.net.infer import calls_of
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, is_net
from rnnops.net.schema import Call, OpSchema, RunContext, form_of, schema_of
from rnnops.sizes import Size
from rnnops.types import OPAQUE, Array, TwinArray, Type, is_float
from rnnops.util import cached_property

Kernel = Callable[[Sequence[Any], RunContext], tuple[Any, ...]]  # from the arrays of an op's inputs to its results


class Workspace:
    """Arrays by blob name; a name that is not here is looked up in the parent."""

    def __init__(self, parent: Workspace | None = None) -> None:
        self.parent = parent
        self.local: dict[str, Array] = {}

    def __setitem__(self, name: str, array: Array) -> None:
        self.local[name] = array

    def __getitem__(self, name: str) -> Array:
        workspace: Workspace | None = self
        while workspace is not None:
            if name in workspace.local:
                return workspace.local[name]
            workspace = workspace.parent
        raise NetError("the blob is in no workspace of this run", blob=name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.local)

    def drop(self, name: str) -> None:
        """Forget a blob of this workspace (not of its parents)."""
        self.local.pop(name, None)


@dataclass(frozen=True)
class Program:
    """A net whose types are all known.

    Args:
        net: an immutable net.
        calls: one call for each op, in order.
        types: the type of every blob.
        float_dtype: the dtype that `"float"` stands for in this run.
    """

    net: Net
    calls: tuple[Call, ...]
    types: Mapping[str, Type]
    float_dtype: str

    @cached_property
    def steps(self) -> tuple[tuple[Call, OpSchema, tuple[str, ...]], ...]:
        """Each call with its schema and the blobs that no later op reads."""
        return tuple(
            (call, schema_of(call.op.type), dead) for call, dead in zip(self.calls, _dead_after(self.net), strict=True)
        )

    @cached_property
    def stays(self) -> frozenset[str]:
        """Inputs and outputs, which `execute` does not drop."""
        return frozenset([*self.net.input_names, *self.net.output_blobs.values()])


def prepare(net: Net, feeds: Mapping[str, Type], float_dtype: str) -> Program:
    """Infer all types of a net and make it ready to run. Raises TypeRuleError if types do not fit an op."""
    calls, types = tuple(calls_of(net, feeds, float_dtype)), dict(feeds)
    for call in calls:
        types.update(zip(call.op.outputs, call.output_types, strict=True))
    types.pop("", None)
    return Program(net.snapshot(), calls, types, float_dtype)


def prepare_again(program: Program, net: Net, feeds: Mapping[str, Type] | None = None) -> Program:
    """`prepare` for a net that a rewrite of a program returned; the program itself if the net is unchanged.

    Args:
        feeds: types of the inputs; by default the types of these blobs in the program.
    """
    types = {name: program.types[name] for name in net.input_names} if feeds is None else feeds
    return program if net is program.net else prepare(net, types, program.float_dtype)


def execute(
    program: Program,
    workspace: Workspace,
    context: RunContext,
    keep: Iterable[str] = (),
    kept: Workspace | None = None,
    kernels: Mapping[str, Kernel] | None = None,
    given: Iterable[str] = (),
) -> None:
    """Run every op of a program.

    Args:
        workspace: holds the inputs and gets the results. A result that does not stay is dropped after its last use.
        keep: blobs that stay; outputs of the net stay in any case.
        kept: the workspace that gets blobs in `keep`, each with memory of its own; `workspace` if left out.
        kernels: key of an op -> the function that runs it instead of its reference.
        given: inputs that are also dropped after their last use.
    """
    stay = program.stays if not given else program.stays - (set(given) - set(program.net.output_blobs.values()))
    wanted, source = frozenset(keep), workspace if kept is None else kept
    for call, schema, dead in program.steps:
        try:
            results = run_call(call, schema, source, context, (kernels or {}).get(call.op.key))
            for name, array in zip(call.op.outputs, results, strict=True):
                if name in wanted and kept is not None:
                    kept[name] = owned(array)
                elif name:
                    workspace[name] = array
        except MemoryError as error:
            known = isinstance(error, OutOfMemoryError)
            named = out_of_memory_of(error, call.net, call.op.label) if known else None
            raise named or out_of_memory(call, "memory has no room for what this op makes") from error
        for name in dead:
            if name not in stay and (name not in wanted or kept is not None):
                workspace.drop(name)


def out_of_memory(call: Call, problem: str) -> OutOfMemoryError:
    """The error for memory that has no room for an op, with the size of its largest result."""
    kinds = dict(zip(call.op.outputs, call.output_types, strict=True))
    blob, largest = max(kinds.items(), key=lambda item: item[1].nbytes)
    return OutOfMemoryError(
        problem,
        net=call.net,
        op=call.op.label,
        blob=blob,
        came=largest.in_words(),
        hint="run.plan(...).memory() shows what each pass needs.",
    )


def run_call(
    call: Call, schema: OpSchema, workspace: Workspace, context: RunContext, kernel: Kernel | None
) -> tuple[Any, ...]:
    """The results of one op, run by its kernel; by its reference if there is no kernel."""
    arrays = [workspace[name] if name else None for name in call.op.inputs]
    return run_reference(call, schema, arrays, context) if kernel is None else kernel(arrays, context)


def run_reference(call: Call, schema: OpSchema, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
    """The results of one op, by its reference."""
    extra: dict[str, Any] = {"context": context} if schema.uses_context else {}
    try:
        result = schema.reference(call, *arrays, **extra)
    except OWN_ERRORS:
        raise
    except Exception as error:  # caught here and not by `NamedRule`, which costs as much as a small op
        raise failed_rule("reference", error, call.net, call.op.label) from error
    results = result if isinstance(result, tuple) else (result,)
    if "checked" not in call.derived:
        _check_results(call, results)
        if form_of(call) is not None:  # other ops are checked each time, because compiled code may read their results
            call.derived["checked"] = True
    if context.watch is not None:
        context.watch(call, arrays, results, context.t)
    return results


def _check_results(call: Call, results: Sequence[Any]) -> None:
    """Raise OpError if the results of a reference do not have the types of its op."""
    problem = "its reference returned something else than `shapes` and `dtypes` say"
    if len(results) != len(call.output_types):
        wanted = f"{len(call.output_types)} arrays"
        raise OpError(problem, net=call.net, op=call.op.label, wanted=wanted, came=len(results))
    for name, array, kind in zip(call.op.outputs, results, call.output_types, strict=True):
        if not name or kind.dtype == OPAQUE:
            continue
        shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
        special = isinstance(array, np.ndarray) and type(array) is not np.ndarray  # masked arrays, matrices
        if shape != kind.shape or dtype != kind.dtype or special:
            came = type(array).__name__ if shape is None or special else f"{dtype}{list(shape)}"
            raise OpError(problem, net=call.net, op=call.op.label, blob=name, wanted=kind, came=came)


def owned(array: Array) -> Array:
    """The array; a copy if it is a small part of another array, so that keeping it does not keep the other alive."""
    return array if is_whole(array) else array.copy()


def is_whole(array: Array) -> bool:
    """True if an array, of a device too, is most of the memory that it keeps alive."""
    base: Any = array.memory.frame if isinstance(array, TwinArray) else getattr(array, "base", None)
    return not isinstance(base, np.ndarray) or 4 * array.nbytes >= 3 * base.nbytes


def _dead_after(net: Net) -> list[tuple[str, ...]]:
    """For each op, the blobs that are alive after it and that no later op reads."""
    last: dict[str, int] = {}
    for index, op in enumerate(net.ops):
        last.update((name, index) for name in (*op.outputs, *op.inputs) if name)
    dead: list[list[str]] = [[] for _ in net.ops]
    for name, index in last.items():
        dead[index].append(name)
    return [tuple(names) for names in dead]


def rewritten(
    net: Net, ops: Sequence[Op], outputs: Mapping[str, str] | None = None, inputs: Sequence[Input] | None = None
) -> Net:
    """An immutable net with other ops, outputs and inputs; the net itself if it is immutable and has these already.

    In that case, facts that are cached for the net stay known.

    Args:
        ops: all of them, in order.
        outputs: output name -> blob; those of the net if left out.
        inputs: all of them, in order; those of the net if left out.
    """
    same_outputs = outputs is None or list(outputs.items()) == list(net.output_blobs.items())
    same_inputs = inputs is None or _are_these(inputs, net.input_specs)
    if same_outputs and same_inputs and _are_these(ops, net.ops):
        return net.snapshot()
    return net.with_ops(ops, outputs, inputs).snapshot()


def _are_these(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """True if the same objects come in the same order."""
    return len(values) == len(others) and all(map(is_, values, others))


def prune(net: Net, keep_inputs: Iterable[str] | None = None, outputs: Mapping[str, str] | None = None) -> Net:
    """Drop ops that no output needs. If an op can leave outputs out, outputs that are not read get the name `""`.

    rewrite: `a = Exp(x); b = Tanh(x); return b`  -->  `b = Tanh(x); return b`

    Args:
        keep_inputs: inputs that stay even if they are not used; all of them if left out.
        outputs: output name -> blob; those of the net if left out.
    """
    needed = set((net.output_blobs if outputs is None else outputs).values())
    ops = []
    for op in reversed(net.ops):
        if any(name in needed for name in op.outputs):
            needed.update(filter(None, op.inputs))  # without "", or ops with an output "" would count as needed
            ops.append(_without_unread(op, needed) if schema_of(op.type).may_omit_outputs else op)
    stay = set(net.input_names) if keep_inputs is None else {*keep_inputs, *needed}
    inputs = [spec for spec in net.input_specs if spec.name in stay]
    return rewritten(net, ops[::-1], outputs, inputs)


def prune_cells(net: Net) -> Net:
    """Prune a net and the cells of its recurrences, cells inside cells included."""
    pruned = prune(net)
    return rewritten(pruned, [_with_pruned_cell(op) for op in pruned.ops])


def _with_pruned_cell(op: Op) -> Op:
    if not isinstance(op.attributes.get("cell"), Net):
        return op
    cell = prune_cells(op.attributes["cell"])
    recompute = tuple(name for name in op.attributes.get("recompute", ()) if name in cell)
    if cell is op.attributes["cell"] and recompute == op.attributes.get("recompute", ()):
        return op
    return replace(op, attributes={**op.attributes, "cell": cell, "recompute": recompute})


def _without_unread(op: Op, needed: set[str]) -> Op:
    outputs = tuple(name if name in needed else "" for name in op.outputs)
    return op if outputs == op.outputs else replace(op, outputs=outputs)


Key = tuple[Hashable, ...]


def merge_equal_ops(net: Net, keep: Collection[str] = ()) -> Net:
    """Drop ops that compute the same as an earlier op of their layer. Ops within nets in attributes are merged first.

    Ops are equal only if their attributes agree to the last bit; random ops only if they have the same ordinal. Ops of
    some blobs stay: of `.named` blobs, of blobs that a recurrence recomputes, and of blobs in `keep`.

    rewrite: `a = Exp(x); b = Exp(x); y = Add(a, b)`  -->  `a = Exp(x); y = Add(a, a)`
    """
    found: dict[Key, Op] = {}
    symbolic = _has_sizes(net)
    same: dict[str, str] = {}
    ops = []
    for before in net.ops:
        op = _renamed(merged_within(before), same)
        key = _key(op, symbolic)
        first = op if key is None else found.setdefault(key, op)
        if first is op or _is_kept(net, op, keep):
            ops.append(op)
        else:
            same.update((name, other) for name, other in zip(op.outputs, first.outputs, strict=True) if name)
    outputs = {name: same.get(blob, blob) for name, blob in net.output_blobs.items()}
    unchanged = all(a is b for a, b in zip(ops, net.ops, strict=False)) and len(ops) == len(net.ops)
    return net if unchanged else net.with_ops(ops, outputs=outputs).snapshot()


def merged_within(op: Op) -> Op:
    """The op after `merge_equal_ops` of the nets in its attributes."""
    recompute = op.attributes.get("recompute", ())
    nets = {name: merge_equal_ops(value, recompute) for name, value in op.attributes.items() if is_net(value)}
    changed = any(op.attributes[name] is not value for name, value in nets.items())
    return replace(op, attributes={**op.attributes, **nets}) if changed else op


def _renamed(op: Op, same: dict[str, str]) -> Op:
    inputs = tuple(same.get(name, name) for name in op.inputs)
    return op if inputs == op.inputs else replace(op, inputs=inputs)


def _is_kept(net: Net, op: Op, keep: Collection[str]) -> bool:
    return any(name in keep or net.is_capturable(name) for name in op.outputs if name)


def _key(op: Op, symbolic: bool) -> Key | None:
    """A key that equal ops share; None if an op equals no other op, because it draws its own random numbers."""
    if schema_of(op.type).random and "ordinal" not in op.attributes:
        return None
    attributes = []
    for name, value in sorted(op.attributes.items()):
        exact = _exact(value, symbolic)
        if exact is None:
            return None
        attributes.append((name, exact))
    return (op.type, op.inputs, tuple(map(bool, op.outputs)), op.layer, *attributes)


def _exact(value: Any, symbolic: bool) -> Hashable | None:
    """A key for an attribute: keys are equal only if values are the same to the last bit (0.0 is not -0.0, 1 is not
    True). None if a value equals no other.

    Args:
        symbolic: whether there are symbols for sizes, which may be equal to whole numbers.
    """
    if is_net(value):
        return _net_key(value, symbolic)
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, tuple):
        parts = tuple(_exact(part, symbolic) for part in value)
        return None if None in parts else ("tuple", *parts)
    return _Equal(value) if symbolic and type(value) in (Size, int) else (type(value).__name__, repr(value))


def _net_key(net: Net, symbolic: bool) -> Hashable | None:
    """A key for a net: nets are equal if their inputs, ops and outputs are equal, names of blobs included."""
    ops = [(_key(op, symbolic), op.outputs) for op in net.ops]
    if any(key is None for key, _ in ops):
        return None
    inputs = tuple(
        (spec.name, spec.dtype, _exact(spec.shape, symbolic), repr(spec.initializer), spec.initializer)
        for spec in net.input_specs
    )
    return (net.float_dtype, inputs, tuple(ops), tuple(net.output_blobs.items()))


def _has_sizes(value: Any) -> bool:
    """True if a net or an attribute has symbols for sizes."""
    if is_net(value):
        attributes = (part for op in value.ops for part in op.attributes.values())
        return any(map(_has_sizes, chain((spec.shape for spec in value.input_specs), attributes)))
    return any(map(_has_sizes, value)) if isinstance(value, tuple) else type(value) is Size


class _Equal:
    """A whole number as part of a key. It is compared but not hashed, because a hash would fix a symbol's value."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __hash__(self) -> int:
        return hash(_Equal)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Equal) and self.size == other.size


def number_random_ops(net: Net, ordinals: Iterator[int] | None = None) -> Net:
    """Give each random op a number (`ordinal`), in order, cells included. An op that has a number keeps it.

    So an op that runs again for a gradient draws the same random numbers, even if its net is numbered again.

    rewrite: `y, m = Dropout(x); z, n = Dropout(y)`  -->  `y, m = Dropout(x, ordinal=0); z, n = Dropout(y, ordinal=1)`

    Args:
        ordinals: the numbers to give; if left out, all numbers from 0 on that no op has.
    """
    if ordinals is None:
        taken = set(_ordinals(net))
        ordinals = (number for number in count() if number not in taken)
    return rewritten(net, [_numbered_op(op, ordinals) for op in net.ops])


def _ordinals(net: Net) -> Iterator[int]:
    """The numbers that random ops have already, in cells too."""
    for op in net.ops:
        for value in op.attributes.values():
            yield from _ordinals(value) if isinstance(value, Net) else ()
        if schema_of(op.type).random and "ordinal" in op.attributes:
            yield op.attributes["ordinal"]


def _numbered_op(op: Op, ordinals: Iterator[int]) -> Op:
    found: dict[str, Any] = {
        name: number_random_ops(value, ordinals) for name, value in op.attributes.items() if isinstance(value, Net)
    }
    if schema_of(op.type).random and "ordinal" not in op.attributes:
        found["ordinal"] = next(ordinals)
    changed = any(op.attributes.get(name) is not value for name, value in found.items())
    return replace(op, attributes={**op.attributes, **found}) if changed else op


def first_live_random_op(net: Net, training: bool) -> str | None:
    """The label of the first random op that draws numbers, in training or not; None if there is none."""
    for op in net.ops:
        if schema_of(op.type).draws(op, training):
            return op.label
        for value in op.attributes.values():
            if isinstance(value, Net) and (label := first_live_random_op(value, training)):
                return label
    return None


def draws(op: Op, training: bool) -> bool:
    """True if an op, or an op in its cell, draws random numbers."""
    cells = [value for value in op.attributes.values() if isinstance(value, Net)]
    return schema_of(op.type).draws(op, training) or any(first_live_random_op(cell, training) for cell in cells)


def fold_constants(program: Program) -> Net:
    """Replace ops whose results are known by constants, so that backward need not keep their operands. Some results,
    such as those of Shape, are known once shapes are.

    rewrite: `n = Shape(x); m = Gather(n, i)`  -->  `n = Constant([4, 3]); m = Constant(4)`
    """
    return rewritten(program.net, [_folded(call) for call in program.calls])


def _folded(call: Call) -> Op:
    if len(call.op.outputs) != 1 or call.output_values[0] is None or call.op.type == "Constant":
        return call.op
    value, dtype = call.output_values[0], call.output_types[0].dtype
    if is_float(dtype):  # the net says "float", but this call has the dtype of one run
        return call.op
    return Op(
        "Constant",
        (),
        call.op.outputs,
        {"value": value.item() if value.ndim == 0 else value, "dtype": dtype},
        call.op.layer,
    )
