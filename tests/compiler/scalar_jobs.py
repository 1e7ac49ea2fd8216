"""Scalar expressions as loops over arrays: uses of ops with operands and results, and the module that runs them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from native_loops import NativeRows

from rnnops.compiler.lower.expressions import Constants, Expr, Literal, Load, Name, compare, scalar_expression
from rnnops.compiler.lower.kernel import Assign, For, Function, Parameter, Store
from rnnops.kernels.scalar_functions import implementations
from rnnops.net.infer import infer_call
from rnnops.net.op import Op
from rnnops.net.schema import REGISTRY, Call
from rnnops.testing.gradient_check import tolerance_of
from rnnops.types import type_of

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Job:
    """One expression over all its operands.

    Args:
        operands: by identifier; all of one length.
        wanted: what the reference gives.
    """

    op: str
    value: Expr
    operands: Mapping[str, Array]
    wanted: Array

    @property
    def expression(self) -> str:
        return str(self.value)

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two jobs one: the expression; the dtypes of operands are in their names."""
        return self.op, self.expression, self.wanted.dtype.name

    def joined(self, other: Job) -> Job:
        operands = {name: np.concatenate([array, other.operands[name]]) for name, array in self.operands.items()}
        return Job(self.op, self.value, operands, np.concatenate([self.wanted, other.wanted]))


def use_of(op_type: str, attributes: Mapping[str, Any], *arrays: Array) -> tuple[Call, tuple[Array, ...]]:
    """A call of an op on arrays; float attributes and constants are those of the first float array."""
    arrays = tuple(map(np.asarray, arrays))
    op = Op(op_type, tuple(f"in{i}" for i in range(len(arrays))), ("out",), attributes)
    floats = [array.dtype.name for array in arrays if array.dtype.kind == "f"]
    call, _ = infer_call(
        op, [type_of(array) for array in arrays], [None] * len(arrays), "case", (floats or ["float32"])[0]
    )
    return call, arrays


def job_of(call: Call, arrays: Sequence[Array | None], constants: Constants, numbers: bool) -> Job:
    """The loop of a call; scalars among the operands are written as numbers if `numbers` says so."""
    shape = call.output_types[0].shape
    loads: dict[str, Array] = {}
    operands: list[Any] = []
    for i, array in enumerate(arrays):
        if array is None or (numbers and array.ndim == 0):
            operands.append(0 if array is None else array.item())
            continue
        operands.append(Name(f"{array.dtype.name}_{i}", dtype=array.dtype.name))
        loads[operands[-1].name] = array
    value = scalar_expression(call, operands, constants)
    used = {name: spread(call, array, shape) for name, array in loads.items() if re.search(rf"\b{name}\b", str(value))}
    return Job(call.op.type, value, used, np.ravel(REGISTRY[call.op.type].reference(call, *arrays)))


def spread(call: Call, array: Array, shape: tuple[int, ...]) -> Array:
    """An operand in the shape of the result, flat; what has an element for each row is lengths."""
    if call.op.type in ("SelectValid", "MaskRows"):
        axis = call.axis(call.attr("axis") or 0, len(shape))
        if array.shape == shape[axis : axis + 1]:
            array = array.reshape(-1, *(1,) * (len(shape) - axis - 1))
    return np.ravel(np.broadcast_to(array, shape))


def merged(jobs: Iterable[Job]) -> list[Job]:
    """One job for each expression."""
    found: dict[tuple[str, ...], Job] = {}
    for job in jobs:
        found[job.key] = found[job.key].joined(job) if job.key in found else job
    return list(found.values())


def store(out: Array, i: int, value: Any) -> None:
    """`out[i] = value`, where value has the dtype of out."""
    assert np.asarray(value).dtype == out.dtype, f"{np.asarray(value).dtype} instead of {out.dtype}"
    out[i] = value


def module_of(jobs: Sequence[Job], constants: Constants) -> str:
    """Functions `loops_0`, `loops_1`, ... of a job each, in plain Python."""
    lines = [*constants.lines()]
    for number, job in enumerate(jobs):
        names = ["out", *(f"{x}_of" for x in job.operands)]
        lines.append(f"def loops_{number}({', '.join(names)}):")
        lines.append("    for i in range(out.size):")
        lines += [f"        {x} = {x}_of[i]" for x in job.operands]
        lines.append(f"        store(out, i, {job.expression})")
    return "\n".join(lines)


def native_loop(job: Job, number: int) -> Function:
    """The same as kernel IR."""
    i, memory = Name("i"), {"out": job.wanted, **{f"{x}_of": array for x, array in job.operands.items()}}
    kinds = {name: "uint8" if array.dtype == bool else array.dtype.name for name, array in memory.items()}
    loads: list[Any] = []
    for x, array in job.operands.items():
        element = Load(f"{x}_of", i, dtype=kinds[f"{x}_of"])
        loads.append(Assign(x, compare("!=", element, 0) if array.dtype == bool else element))
    assert job.value.dtype == job.wanted.dtype, f"{job.value.dtype} instead of {job.wanted.dtype}"
    body = *loads, Store("out", i, job.value)
    parameters = *(Parameter(name, f"{kind}*") for name, kind in kinds.items()), Parameter("n")
    return Function(f"loops_{number}", parameters, (For("i", Literal(0), Name("n"), Literal(1), body),))


def functions_of(jobs: Sequence[Job], constants: Constants) -> list[Callable[..., None]]:
    namespace: dict[str, Any] = {**implementations("cpu"), "np": np, "store": store}
    exec(module_of(jobs, constants), namespace)  # our own text
    return [namespace[f"loops_{k}"] for k in range(len(jobs))]


def run(jobs: Sequence[Job], constants: Constants, compiled: bool) -> list[Array]:
    """The results of all jobs."""
    outs = [np.empty_like(job.wanted) for job in jobs]
    given = [(out, *map(np.ascontiguousarray, job.operands.values())) for job, out in zip(jobs, outs, strict=True)]
    if compiled:
        rows = NativeRows(tuple(native_loop(job, number) for number, job in enumerate(jobs)))
        for number, arrays in enumerate(given):
            rows(*arrays, arrays[0].size, number=number)
    else:
        for function, arrays in zip(functions_of(jobs, constants), given, strict=True):
            function(*arrays)
    return outs


def failures(jobs: Sequence[Job], came: Sequence[Array]) -> Iterator[str]:
    """What is wrong, one line for each job that fails."""
    for job, array in zip(jobs, came, strict=True):
        wrong = np.flatnonzero(~agrees(array, job.wanted))
        if wrong.size:
            at = {name: values[wrong[:3]] for name, values in job.operands.items()}
            yield f"{job.op}: {job.expression} gives {array[wrong[:3]]}, not {job.wanted[wrong[:3]]}, at {at}"


def agrees(came: Array, wanted: Array) -> Array:
    """Where numbers are those that are wanted; each number is measured by its own size."""
    if wanted.dtype.kind != "f":
        return np.asarray(came == wanted)
    limits = tolerance_of(wanted.dtype)
    off = np.abs(came.astype(np.float64) - wanted)
    near = off <= limits.relative * np.abs(wanted.astype(np.float64)) + limits.absolute
    return np.where(np.isfinite(wanted), near, (came == wanted) | (np.isnan(came) & np.isnan(wanted)))
