"""Scalar expressions as loops over arrays: uses of ops with operands and results, and the module that runs them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba.core.errors import TypingError

from rnnops.compiler.scalar_text import Constants, scalar_expression
from rnnops.infer import infer_call
from rnnops.kernels.cpu.fastmath import INLINED, OPTIONS, extending, types
from rnnops.kernels.cpu.pointwise import FUNCTIONS
from rnnops.op import Op
from rnnops.schema import REGISTRY, Call
from rnnops.testing.tolerances import tolerance_of
from rnnops.types import type_of

Array = npt.NDArray[Any]
JOBS_IN_A_FUNCTION = 12


@dataclass(frozen=True)
class Job:
    """One expression over all its operands.

    Args:
        operands: by identifier; all of one length.
        wanted: what the reference gives.
    """

    op: str
    expression: str
    operands: Mapping[str, Array]
    wanted: Array

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two jobs one: the expression; the dtypes of operands are in their names."""
        return self.op, self.expression, self.wanted.dtype.name

    def joined(self, other: Job) -> Job:
        operands = {name: np.concatenate([array, other.operands[name]]) for name, array in self.operands.items()}
        return Job(self.op, self.expression, operands, np.concatenate([self.wanted, other.wanted]))


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
        operands.append(f"{array.dtype.name}_{i}")
        loads[operands[-1]] = array
    expression = scalar_expression(call, operands, constants)
    used = {name: spread(call, array, shape) for name, array in loads.items() if re.search(rf"\b{name}\b", expression)}
    return Job(call.op.type, expression, used, np.ravel(REGISTRY[call.op.type].reference(call, *arrays)))


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


@extending.overload(store, jit_options=INLINED)
def _store(out: Any, i: Any, value: Any) -> Any:
    if types.unliteral(value) != out.dtype:
        raise TypingError(f"{value} instead of {out.dtype}")

    def stored(out: Any, i: Any, value: Any) -> None:
        out[i] = value

    return stored


def module_of(jobs: Sequence[Job], constants: Constants, assign: str = "store({out}, i, {value})") -> str:
    """Functions `loops_0`, `loops_1`, ... of some jobs each."""
    lines = [*constants.lines()]
    for number, first in enumerate(range(0, len(jobs), JOBS_IN_A_FUNCTION)):
        some = jobs[first : first + JOBS_IN_A_FUNCTION]
        names = [name for k, job in enumerate(some) for name in (f"out{k}", *(f"{x}_of{k}" for x in job.operands))]
        lines.append(f"def loops_{number}({', '.join(names)}):")
        for k, job in enumerate(some):
            lines.append(f"    for i in range(out{k}.size):")
            lines += [f"        {x} = {x}_of{k}[i]" for x in job.operands]
            lines.append("        " + assign.format(out=f"out{k}", value=job.expression))
    return "\n".join(lines)


def functions_of(jobs: Sequence[Job], constants: Constants) -> list[Callable[..., None]]:
    namespace: dict[str, Any] = {**FUNCTIONS, "np": np, "store": store}
    exec(module_of(jobs, constants), namespace)  # our own text
    return [namespace[f"loops_{k}"] for k in range(-(-len(jobs) // JOBS_IN_A_FUNCTION))]


def run(jobs: Sequence[Job], constants: Constants, compiled: bool) -> list[Array]:
    """The results of all jobs."""
    outs = [np.empty_like(job.wanted) for job in jobs]
    for k, function in enumerate(functions_of(jobs, constants)):
        some = slice(k * JOBS_IN_A_FUNCTION, (k + 1) * JOBS_IN_A_FUNCTION)
        arguments = [x for job, out in zip(jobs[some], outs[some], strict=True) for x in (out, *job.operands.values())]
        (numba.njit(nogil=True, **OPTIONS)(function) if compiled else function)(*arguments)
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
