"""The compiled nets of a model: traced by the shapes of inputs, compiled by what was traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rnnops.compiler import Run, compile as compile_net
from rnnops.compiler.plan import PlanCache
from rnnops.model.arguments import Arguments
from rnnops.model.layer import Layer, name_layers
from rnnops.model.placeholder import as_placeholder
from rnnops.model.tracing import Traced, trace
from rnnops.types import Type

SHAPES = 64  # for which traces are kept


@dataclass(frozen=True)
class Graph:
    """One function of a model for inputs of certain types.

    Args:
        run: shared by all shapes for which the same ops were written; it keeps plans by shape.
    """

    traced: Traced
    run: Run
    types: Mapping[str, Type]


class Graphs:
    """Graphs by function and types.

    Args:
        model: whose layers are named before they are written.
        dtype: what `"float"` stands for.
        options: of `rnnops.compile`.
    """

    def __init__(self, model: Layer, dtype: str, options: Mapping[str, Any]) -> None:
        self.model, self.dtype, self.options = model, dtype, options
        self._graphs: PlanCache[Graph] = PlanCache(SHAPES)
        self._runs: PlanCache[Run] = PlanCache(SHAPES)

    def graph(self, arguments: Arguments) -> Graph:
        """The graph of a function for such inputs, traced and compiled if there is none yet."""
        inputs = arguments.leaves()
        placeholders = {name: as_placeholder(name, value, self.dtype) for name, value in inputs.items()}
        types = {name: one.type(self.dtype) for name, one in placeholders.items()}
        name = f"{type(self.model).__name__}.{arguments.function.__name__}"

        def make() -> Graph:
            name_layers(self.model)
            traced = trace(arguments, placeholders, name, self.dtype)
            run = self._runs.get(str(traced.net), lambda: compile_net(traced.net, **self.options))
            return Graph(traced, run, types)

        return self._graphs.get((arguments.function, tuple(types.items())), make)
