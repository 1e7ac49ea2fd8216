"""A use of an op as a test case, and how it is run: op by op, each by its reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rnnops.net.infer import infer
from rnnops.net.net import Net
from rnnops.net.schema import Call, RunContext, schema_of
from rnnops.types import FLOAT, type_of

Array = npt.NDArray[Any]
Shapes = list[tuple[Any, ...]]
INF, NAN = math.inf, math.nan
SHAPES: Shapes = [(), (0,), (1,), (7,), (2, 7), (0, 2), (2, 1, 7)]
EDGES = np.array([-INF, -1000.0, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 1000.0, INF, NAN])
SEED = 3  # of cases that draw random numbers


@dataclass(frozen=True)
class Case:
    """One use of an op.

    Args:
        build: appends the op to the net of its arguments.
        inputs: arrays; those of float64 are cast to the dtype of the run.
        expected: results in NumPy, where onnx.reference has no such op or is wrong.
        dtypes: float dtypes of the runs.
    """

    op: str
    label: str
    build: Callable[..., Any]
    inputs: tuple[Array, ...]
    expected: Callable[..., Any] | None = None
    dtypes: tuple[str, ...] = ("float32", "float64")

    def __str__(self) -> str:
        shapes = "-".join("x".join(map(str, array.shape)) or "s" for array in self.inputs)
        return "-".join(part for part in (self.op, self.label, shapes) if part)

    def arrays(self, dtype: str) -> tuple[Array, ...]:
        return tuple(array.astype(dtype) if array.dtype == np.float64 else array.copy() for array in self.inputs)


@dataclass(frozen=True)
class Run:
    """A case that was run: its net, the calls by output, and all arrays by blob."""

    net: Net
    calls: Mapping[str, Call]
    arrays: Mapping[str, Array]

    @property
    def last(self) -> Call:
        """The call of the op that the case is about."""
        return self.calls[self.net.ops[-1].key]

    @property
    def results(self) -> tuple[Array, ...]:
        return tuple(self.arrays[name] for name in self.net.ops[-1].outputs)


def declare(net: Net, arrays: Sequence[Array]) -> list[Any]:
    """One input per array; floats are declared as "float"."""
    return [net.input(f"in_{i}", FLOAT if array.dtype.kind == "f" else array.dtype) for i, array in enumerate(arrays)]


def evaluate(net: Net, feeds: Mapping[str, Array], float_dtype: str, context: RunContext) -> Run:
    """Run a net op by op, each by its reference."""
    calls = infer(net, {name: type_of(array) for name, array in feeds.items()}, float_dtype)
    arrays = dict(feeds)
    for op in net.ops:
        schema = schema_of(op.type)
        extra = {"context": context} if schema.uses_context else {}
        result = schema.reference(calls[op.key], *[arrays[name] if name else None for name in op.inputs], **extra)
        results = result if isinstance(result, tuple) else (result,)
        arrays.update(zip(op.outputs, results, strict=True))
    return Run(net, calls, arrays)


def run_case(
    case: Case,
    arrays: tuple[Array, ...],
    float_dtype: str,
    context: RunContext = RunContext(SEED),  # noqa: B008
) -> Run:
    net = Net("case")
    blobs = declare(net, arrays)
    case.build(*(blobs or [net]))
    return evaluate(net, dict(zip(net.input_names, arrays, strict=True)), float_dtype, context)


def use(function: Callable[..., Any], *after: Any, **options: Any) -> Callable[..., Any]:
    """How an op is called: the blobs of a case first, then what is given here."""
    return lambda *blobs: function(*blobs, *after, **options)


def appended(op: str, **attributes: Any) -> Callable[..., Any]:
    """How an op that is not a function is called: it is appended to the net of its blobs."""
    return lambda *blobs: blobs[0].net.append(op, blobs, attributes)[0]


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    """Seeded floats of a shape, rounded to eighths so that ties and zeros occur."""
    generator = np.random.default_rng(sum(shape) + 31 * len(shape))
    return np.round(generator.uniform(low, high, shape) * 8) / 8


def integers(*shape: int, low: int = -5, high: int = 6, dtype: str = "int32") -> Array:
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> Array:
    return np.asarray(np.random.default_rng(sum(shape) + 7).uniform(size=shape) < 0.5)


def int64(blob: Any, *values: int) -> Any:
    """A shape-valued input as a blob."""
    return blob.net.constant(np.array(values, np.int64), "int64")
