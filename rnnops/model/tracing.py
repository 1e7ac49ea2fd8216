"""Tracing of a model's functions, and the compiled nets that come of it.

**Tracing**: a function of blobs, called once with blobs of known sizes, as a net with parameters, inputs and outputs.
Inputs have the names of the function's arguments, outputs are `output`, or `output_0`, `output_1`, ... as they lie in
what the function returned. While it runs, sizes are known (`blob.type`); the net that comes out holds for all sizes for
which the function writes the same ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rnnops.compiler import PlannedRun, Run, compile as compile_net
from rnnops.compiler.rewrite.fuse_ops import first_live_random_op
from rnnops.compiler.run.pipeline import PlanCache
from rnnops.errors import ModelError
from rnnops.model.layer import (
    Arguments,
    LayerNames,
    Placeholder,
    WrittenLayer,
    as_placeholder,
    leaves,
    mapped,
    sizes_of,
    unique,
    writing,
)
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.types import Array, Type, is_float

LOSS, OUTPUT = "loss", "output"


@dataclass(frozen=True)
class TracedFunction:
    """A function as a net.

    Args:
        net: free of sizes and dtypes.
        structure: what the function returned.
        written: the layers, outer ones first.
        dtype: what `"float"` stood for.
    """

    net: Net
    structure: Any
    written: tuple[WrittenLayer, ...]
    dtype: str

    @property
    def has_loss(self) -> bool:
        return LOSS in self.net.output_blobs

    def results(self, outputs: Mapping[str, Array]) -> Any:
        """Arrays in the structure that the function returned."""
        return mapped(self.structure, lambda name, _: outputs[name], OUTPUT)


def trace(
    arguments: Arguments,
    placeholders: Mapping[str, Placeholder],
    names: LayerNames,
    training: bool,
    name: str,
    dtype: str,
) -> TracedFunction:
    """Call a function with blobs.

    Args:
        placeholders: of the inputs, by name.
        names: of the model's layers; training: what they see as `is_training`.
        name: of the net.
        dtype: what `"float"` stands for.

    Raises ModelError where the function returns anything but blobs.
    """
    net = Net(name, sizes_for=dtype)
    inputs = {key: net.input(key, one.dtype, one.shape) for key, one in placeholders.items()}
    with writing(names, training) as now:
        returned = arguments.call(inputs)
    outputs = unique(list(leaves(returned, OUTPUT)), "outputs")
    for key, blob in outputs.items():
        if not isinstance(blob, Blob) or blob.net is not net:
            wanted = "a blob, or tuples, lists and dicts of blobs"
            raise ModelError("a model returns its blobs", net=name, wanted=wanted, came=repr(blob)[:80])
        net.outputs(**{key: blob})
    return TracedFunction(_without_sizes(net), mapped(returned, lambda key, _: key, OUTPUT), tuple(now.written), dtype)


def minimize(loss: Blob) -> Blob:
    """Mark a blob of one number as what training minimises, once in a net, and return it."""
    if sizes_of(loss, 0, "[]"):
        hint = "Take a mean or a sum."
        raise ModelError("a loss is one number", net=loss.net.name, blob=loss.name, came=loss.type, hint=hint)
    if not is_float(loss.dtype):
        raise ModelError("a loss is a float", net=loss.net.name, blob=loss.name, came=loss.dtype)
    if LOSS in loss.net.output_blobs:
        raise ModelError("a model has one loss", net=loss.net.name, blob=loss.name, hint="Minimize the sum of several.")
    loss.net.outputs(**{LOSS: loss})
    return loss


def _without_sizes(net: Net) -> Net:
    """The net with inputs of any size; parameters keep theirs."""
    inputs = [spec if spec.initializer is not None else replace(spec, shape=None) for spec in net.input_specs]
    return net.with_ops(net.ops, inputs=inputs).snapshot()


SHAPES = 64  # for which traces are kept


@dataclass(frozen=True)
class Graph:
    """One function of a model for inputs of certain types.

    Args:
        run: shared by all shapes for which the same ops were written; it keeps plans by shape.
    """

    traced: TracedFunction
    run: Run
    types: Mapping[str, Type]

    @cached_property
    def draws(self) -> bool:
        """True if a step of training needs a seed."""
        return first_live_random_op(self.traced.net, True) is not None

    def planned(self) -> PlannedRun:
        """The plan of a call; nothing is computed. Raises BudgetError if no plan fits the budget."""
        net = self.traced.net
        shapes = {name: kind.shape for name, kind in self.types.items()}
        params = [spec.name for spec in net.parameters]
        dtype = self.traced.dtype
        wrt = params if self.traced.has_loss else None
        return self.run.plan(shapes, backward=self.traced.has_loss, wrt=wrt, dtype=dtype)


class Graphs:
    """Graphs by function, mode, structure and types of the inputs.

    Args:
        name: of the model; names: of its layers.
        dtype: what `"float"` stands for.
        options: of `rnnops.compile`.
    """

    def __init__(self, name: str, names: LayerNames, dtype: str, options: Mapping[str, Any]) -> None:
        self.name, self.names, self.dtype, self.options = name, names, dtype, options
        self._graphs: PlanCache[Graph] = PlanCache(SHAPES)
        self._runs: PlanCache[Run] = PlanCache(SHAPES)

    def graph(self, arguments: Arguments, training: bool) -> Graph:
        """The graph of a function for such inputs, traced and compiled if there is none yet."""
        inputs = {name: as_placeholder(name, leaf, self.dtype) for name, leaf in arguments.leaves().items()}
        types = {name: one.type(self.dtype) for name, one in inputs.items()}

        def make() -> Graph:
            traced = trace(arguments, inputs, self.names, training, f"{self.name}.{arguments.name}", self.dtype)
            run = self._runs.get(str(traced.net), lambda: compile_net(traced.net, **self.options))
            return Graph(traced, run, types)

        form = arguments.form(lambda name, _: types[name])
        return self._graphs.get((arguments.function, training, form), make)
