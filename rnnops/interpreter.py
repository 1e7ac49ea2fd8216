"""The reference interpreter walks a net op by op in NumPy, and folds constants.

It is the specification that every device is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.errors import OWN_ERRORS, NetError, OpError, OutOfMemoryError, failed_rule, out_of_memory_of
from rnnops.net.infer import calls_of
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.net.schema import Call, OpSchema, RunContext, form_of, schema_of
from rnnops.rewrites import rewritten
from rnnops.types import OPAQUE, Array, TwinArray, Type, is_float
from rnnops.util import cached_property

Kernel = Callable[[Sequence[Any], RunContext], tuple[Any, ...]]  # from the arrays of an op's inputs to its outputs


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
        calls: one for each op, in order.
        types: of every blob.
        float_dtype: what `"float"` stands for in this run.
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
        """Inputs and outputs."""
        return frozenset([*self.net.input_names, *self.net.output_blobs.values()])


def prepare(net: Net, feeds: Mapping[str, Type], float_dtype: str) -> Program:
    """Infer all types of a net and make it ready to run. Raises TypeRuleError where something does not fit."""
    calls, types = tuple(calls_of(net, feeds, float_dtype)), dict(feeds)
    for call in calls:
        types.update(zip(call.op.outputs, call.output_types, strict=True))
    types.pop("", None)
    return Program(net.snapshot(), calls, types, float_dtype)


def prepare_again(program: Program, net: Net, feeds: Mapping[str, Type] | None = None) -> Program:
    """`prepare` for the net that a pass on a program returned; the program itself if the net is unchanged.

    Args:
        feeds: types of its inputs; those that these blobs have in the program if left out.
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
        workspace: holds the inputs, gets the results; a blob is dropped after its last use.
        keep: blobs that stay, besides the outputs of the net.
        kept: where blobs in `keep` go, each with memory of its own; `workspace` if left out.
        kernels: what runs an op in place of its reference, by the op's key.
        given: inputs that are dropped after their last use as well.
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
    """The results of one op, run by its kernel, or by its reference where that is None."""
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
        if form_of(call) is not None:  # others are looked at each time: compiled code may read what they return
            call.derived["checked"] = True
    if context.watch is not None:
        context.watch(call, arrays, results, context.t)
    return results


def _check_results(call: Call, results: Sequence[Any]) -> None:
    """Raise OpError where a reference returned something else than its op's types."""
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
    """The array itself, or a copy where it is a small part of another, so that keeping it keeps nothing else alive."""
    return array if is_whole(array) else array.copy()


def is_whole(array: Array) -> bool:
    """True if an array, of a device too, is most of the memory that it keeps alive."""
    base: Any = array.memory.frame if isinstance(array, TwinArray) else getattr(array, "base", None)
    return not isinstance(base, np.ndarray) or 4 * array.nbytes >= 3 * base.nbytes


def _dead_after(net: Net) -> list[tuple[str, ...]]:
    """For each op, the blobs that are there after it and read by no later one."""
    last: dict[str, int] = {}
    for index, op in enumerate(net.ops):
        last.update((name, index) for name in (*op.outputs, *op.inputs) if name)
    dead: list[list[str]] = [[] for _ in net.ops]
    for name, index in last.items():
        dead[index].append(name)
    return [tuple(names) for names in dead]


def fold_constants(program: Program) -> Net:
    """Replace ops whose results are known once shapes are, so that backward need not keep their operands.

    rewrite: `n = Shape(x); m = Gather(n, i)`  -->  `n = Constant([4, 3]); m = Constant(4)`
    """
    return rewritten(program.net, [_folded(call) for call in program.calls])


def _folded(call: Call) -> Op:
    if len(call.op.outputs) != 1 or call.output_values[0] is None or call.op.type == "Constant":
        return call.op
    value, dtype = call.output_values[0], call.output_types[0].dtype
    if is_float(dtype):  # a cast number: the net says "float" where this call has the run's own dtype
        return call.op
    return Op(
        "Constant",
        (),
        call.op.outputs,
        {"value": value.item() if value.ndim == 0 else value, "dtype": dtype},
        call.op.layer,
    )
