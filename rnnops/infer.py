"""Shape and dtype inference: one op at a time, or a whole net from the types of its feeds.

Values that are known before a run (constants, shapes and integer arithmetic on them) are folded on the way, so that
shape-valued inputs such as Reshape's may be computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rnnops.errors import TypeRuleError, op_label
from rnnops.schema import Call, OpSchema, schema_of
from rnnops.types import FLOAT, Array, Type, is_float

if TYPE_CHECKING:
    from rnnops.net import Net
    from rnnops.op import Op

FOLD_LIMIT = 4096  # elements; shape arithmetic is far below, data far above


def check_dtypes(schema: OpSchema, op: Op, dtypes: Sequence[str | None], net: str) -> None:
    """Raise TypeRuleError unless the inputs that must share a dtype do, and the op accepts it."""
    shared = range(len(dtypes)) if schema.same_dtype is None else schema.same_dtype
    given = [(op.inputs[i], dtypes[i]) for i in shared if i < len(dtypes) and dtypes[i] is not None]
    for name, dtype in given:
        if dtype not in schema.accepts:
            raise TypeRuleError(
                "dtype not accepted by this op",
                net=net,
                op=op_label(op.type, op.outputs),
                blob=name,
                wanted=" or ".join(schema.accepts),
                came=dtype,
                hint="Use ro.cast where a conversion is meant.",
            )
        if dtype != given[0][1]:
            raise TypeRuleError(
                "operands of different dtypes",
                net=net,
                op=op_label(op.type, op.outputs),
                blob=name,
                wanted=f"{given[0][1]} as '{given[0][0]}' has",
                came=dtype,
                hint="Use ro.cast where a conversion is meant.",
            )


def infer_call(
    op: Op, types: Sequence[Type | None], values: Sequence[Array | None], net: str, float_dtype: str
) -> tuple[Call, tuple[Array | None, ...]]:
    """The call with its output types, and the outputs' values where they are known before a run."""
    schema = schema_of(op.type, net)
    dtypes = tuple(kind.dtype if kind else None for kind in types)
    check_dtypes(schema, op, dtypes, net)
    out_dtypes = [float_dtype if dtype == FLOAT else dtype for dtype in schema.dtypes(dtypes, op.attributes)]
    call = Call(op, tuple(types), tuple(values), net, float_dtype=float_dtype)
    shapes = schema.shapes(replace(call, output_types=tuple(Type(dtype, ()) for dtype in out_dtypes)))
    out_types = tuple(Type(dtype, tuple(shape)) for dtype, shape in zip(out_dtypes, shapes, strict=True))
    call = replace(call, output_types=out_types)
    folded = _fold(schema, call)
    return replace(call, output_values=folded), folded


def _fold(schema: OpSchema, call: Call) -> tuple[Array | None, ...]:
    """Values of the outputs where they follow from the call alone (constants, shapes, integer arithmetic on them)."""
    known = schema.known_value(call)
    if known is not None:
        return (known,)
    if not _foldable(schema, call):
        return (None,) * len(call.output_types)
    result = schema.reference(call, *call.values)
    return result if isinstance(result, tuple) else (result,)


def _foldable(schema: OpSchema, call: Call) -> bool:
    small_integers = all(not is_float(kind.dtype) and kind.size <= FOLD_LIMIT for kind in call.output_types)
    known = all(value is not None or not name for name, value in zip(call.op.inputs, call.values, strict=True))
    return bool(call.op.inputs) and small_integers and known and not schema.random and not schema.uses_context


def infer(net: Net, feeds: Mapping[str, Type], float_dtype: str) -> dict[str, Call]:
    """Types of all blobs of a net.

    Args:
        feeds: the type of every input.
        float_dtype: what `"float"` stands for in this run.

    Returns: for each op, by the name of its first output that has one, the call with all types filled in.
    """
    types: dict[str, Type] = dict(feeds)
    values: dict[str, Array] = {}
    calls: dict[str, Call] = {}
    for op in net.ops:
        call, folded = infer_call(
            op, [types.get(name) for name in op.inputs], [values.get(name) for name in op.inputs], net.name, float_dtype
        )
        for name, kind, value in zip(op.outputs, call.output_types, folded, strict=True):
            if name:  # one that is not wanted has no type, nor must an optional input left out find one
                types[name] = kind
            if name and value is not None:
                values[name] = value
        calls[op.key] = call
    return calls
