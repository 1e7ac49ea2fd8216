"""The compiled nets of a model: traced by the shapes of inputs, compiled by what was traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rnnops.compiler import PlannedRun, Run, compile as compile_net
from rnnops.compiler.pipeline import PlanCache
from rnnops.compiler.rewrite.number_random_ops import first_live_random_op
from rnnops.model.arguments import Arguments
from rnnops.model.layer import LayerNames
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

    @cached_property
    def draws(self) -> bool:
        """Whether a step of training needs a seed."""
        return first_live_random_op(self.traced.net, True) is not None

    def planned(self) -> PlannedRun:
        """What a call does; nothing is computed. Raises BudgetError where no way of training fits a budget."""
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
