"""Tracing: a step of PyTorch code, run once on tensors without data, as a graph of ops that change nothing in place.

`make_fx` over functionalization, on fake tensors whose batch size is a symbol: a graph serves all batch sizes for which
the decisions that the step took by sizes come out the same (`Trace.fits`). Sizes 0 and 1 are traced by themselves, as
PyTorch broadcasts and squeezes by them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymInt, Tensor, autocast, dtype, empty_like, enable_grad, fx, rand_like
from torch._decomp import core_aten_decompositions
from torch._dynamo.source import ConstantSource
from torch._guards import tracing
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.backends import cudnn, mkldnn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from rnnops.torch.arguments import TensorLayout
from rnnops.torch.aten import RULES
from rnnops.torch.code_reads import CodeRecorder
from rnnops.torch.errors import StepError
from rnnops.torch.step_modes import (
    Decisions,
    DetachWithoutGrad,
    ElementwiseFunctions,
    NoReading,
    PlainCells,
    RandomFunctions,
    SizedByTensors,
)

SYMBOLIC_FROM = 2  # the smallest batch size that stands for others
DECOMPOSED = {  # what has a translation of its own stays; `alias` for `detach` would let gradients through
    op: rule for op, rule in core_aten_decompositions().items() if op._schema.name.removeprefix("aten::") not in RULES
}


@dataclass(frozen=True)
class Example:
    """What stands for an argument of a step: a tensor without data, and which of its axes is the batch, if any."""

    like: Tensor
    batch_axis: int | None


@dataclass(frozen=True)
class Trace:
    """A step as a graph.

    Args:
        module: the graph, with the tensors that the step closes over as attributes.
        env: what was decided about the batch size while it was traced.
        symbols: of the batch size in sizes of the graph; none where it was traced for one size only.
        layout: for which it was made.
        result_tree: the structure of what a step gives beside its carry.
    """

    module: fx.GraphModule
    env: ShapeEnv
    symbols: tuple[Any, ...]
    layout: TensorLayout
    result_tree: Any

    def fits(self, layout: TensorLayout) -> bool:
        """Whether the step would take the same way with these sizes: no others than the batch's may differ."""
        if not self.symbols:
            return layout == self.layout
        if layout.batch is None or layout.batch < SYMBOLIC_FROM:
            return False
        where = dict.fromkeys(self.symbols, layout.batch)
        return layout.rows() == self.layout.rows() and all(bool(guard.expr.subs(where)) for guard in self.env.guards)

    def size(self, value: int | SymInt, batch: Any) -> Any:
        """A size of the graph as a number, or of another graph's symbols where the batch size is one of these."""
        if isinstance(value, int):
            return value
        if isinstance(batch, SymInt):
            return sympy_interp(PythonReferenceAnalysis, dict.fromkeys(self.symbols, batch), value.node.expr)
        return int(value.node.expr.subs(dict.fromkeys(self.symbols, batch)))

    def places(self) -> list[fx.Node]:
        """Nodes of states and inputs."""
        return [node for node in self.module.graph.nodes if node.op == "placeholder"]

    def result_kinds(self, batch: Any) -> list[tuple[dtype, tuple[Any, ...]]]:
        """Dtype and shape of each result of a step."""
        output = next(node for node in self.module.graph.nodes if node.op == "output")
        values = [node.meta["val"] for node in output.args[0]]
        return [(value.dtype, tuple(self.size(size, batch) for size in value.shape)) for value in values]


def trace_step(
    step: Callable[..., Sequence[Tensor]],
    layout: TensorLayout,
    recorder: CodeRecorder | None = None,
    assume: Sequence[bool] = (),
    mutations: TorchDispatchMode | None = None,
) -> Trace:
    """Trace a function of tensors that gives tensors.

    Args:
        recorder: which is told of the code that runs.
        assume: answers to `if tensor:` in the step, in order.
        mutations: a mode that sees ops that change tensors in place.

    Raises StepError where the step decides by a tensor's value, and for custom autograd functions that are not
    elementwise.
    """
    axes = [None if layout.batch is None else kind.batch_axis for kind in layout.kinds]
    examples = [Example(kind.without_data(), axis) for kind, axis in zip(layout.kinds, axes, strict=True)]
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())  # first, as what is left at the end warns, too
        warnings.simplefilter("ignore")
        stack.enter_context(unset_fake_temporarily())  # Dynamo may be at work around us
        stack.enter_context(tracing(None))
        stack.enter_context(autocast(layout.device.type, enabled=False))
        stack.enter_context(mkldnn.flags(enabled=False))  # which would be one opaque op for an LSTM, as the next
        stack.enter_context(cudnn.flags(enabled=False))
        fakes = [_fake(mode, number, example, layout.device) for number, example in enumerate(examples)]
        symbols = {size.node.expr for fake in fakes for size in fake.shape if isinstance(size, SymInt)}

        def run(*tensors: Tensor) -> Sequence[Tensor]:
            with ExitStack() as modes:
                for mode in (
                    enable_grad(),
                    ElementwiseFunctions(),
                    DetachWithoutGrad(),
                    PlainCells(),
                    NoReading(),
                ):
                    modes.enter_context(mode)
                modes.enter_context(SizedByTensors(tensors[0]))
                modes.enter_context(RandomFunctions(rand_like))
                modes.enter_context(Decisions(assume))
                modes.enter_context(mutations or nullcontext())
                modes.enter_context(recorder or nullcontext())
                return step(*tensors)

        traced = dispatch_functionalize(run, FunctionalTensorMode())
        try:
            module = make_fx(traced, DECOMPOSED, tracing_mode="real", _allow_non_fake_inputs=True)(*fakes)
        except RuntimeError as error:
            if any(said in str(error) for said in ("two different devices", "on the same device")):
                raise _on_two_devices(error, layout) from error
            if "SymInt" not in str(error):
                raise
            hint = "Make such tensors by the step's arguments (x.new_zeros), and let them broadcast."
            raise StepError("a tensor that the step makes gets the batch's size", hint=hint) from error
    module.graph.eliminate_dead_code(_has_effect)
    return Trace(module, env, tuple(symbols), layout, getattr(step, "result_tree", None))


def _on_two_devices(error: RuntimeError, layout: TensorLayout) -> StepError:
    """The error for a step that reaches what lies elsewhere than its inputs."""
    wanted = f"what it reaches on {layout.device}, as states and inputs"
    hint = f"Move the module: module.to('{layout.device}')."
    return StepError("a step computes with tensors on two devices", wanted=wanted, came=str(error)[-60:], hint=hint)


def _fake(mode: FakeTensorMode, number: int, example: Example, device: torch.device) -> Tensor:
    sizes = [
        DimDynamic.DUCK if axis == example.batch_axis and size >= SYMBOLIC_FROM else DimDynamic.STATIC
        for axis, size in enumerate(example.like.shape)
    ]
    context = StatelessSymbolicContext(dynamic_sizes=sizes)
    fake = mode.from_tensor(example.like, source=ConstantSource(f"argument_{number}"), symbolic_context=context)
    if device.type == "cpu":
        return fake
    with mode:
        return empty_like(fake, device=device)


def _has_effect(node: fx.Node) -> bool:
    """Whether a node stays where nobody reads it: random numbers do, as each is drawn by its place in a step."""
    return node.op in ("placeholder", "output") or "copy_" in str(node.target) or "rand_like" in str(node.target)
