"""Traces a step of PyTorch code as a graph of ops, and translates the graph to nets.

**Tracing**: a step of PyTorch code runs once on tensors without data. The result is a graph of ops that change nothing
in place. Tools are `make_fx` and functionalization, on fake tensors whose batch size is a symbol. A graph serves all
batch sizes for which the step's decisions by sizes come out the same (`Trace.fits`). Sizes 0 and 1 have traces of their
own, as PyTorch broadcasts and squeezes by them.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import SymInt, Tensor, autocast, dtype, empty_like, enable_grad, fx, rand_like
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo import config as dynamo
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

import rnnops as ro
from rnnops.interpreter import prepare
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.recurrent.scan import STEPS, TIMESTEP, steps_of, truncated
from rnnops.recurrent.training_form import rows_are_apart
from rnnops.torch import step_modes
from rnnops.torch.arguments import TensorKind, TensorLayout
from rnnops.torch.aten import BY_PARTS, PAIR_RULES, RULES, AtenNode, Pair, is_of_pairs, op_name
from rnnops.torch.aten.movement import spread_masks
from rnnops.torch.aten.table import array_of
from rnnops.torch.code_reads import CodeRecorder
from rnnops.torch.errors import ONE_DTYPE, SHARDED, StepError
from rnnops.types import FLOAT, Type

SYMBOLIC_FROM = 2  # the smallest batch size for which a symbol is used
OWN = {*RULES, *PAIR_RULES}
MORE = ("adaptive_max_pool2d", "dist", "grid_sampler_2d")  # ops to decompose that the core list leaves out
DECOMPOSED = {  # ops without a rule of their own. For `detach`, PyTorch would make an `alias` with a gradient.
    op: rule
    for op, rule in {
        **core_aten_decompositions(),
        **get_decompositions([getattr(torch.ops.aten, name) for name in MORE]),
    }.items()
    if op._schema.name.removeprefix("aten::") not in OWN
}


class SymbolRefusedError(Exception):
    """An op of a step takes no symbol for a size. The step is then traced with plain numbers."""


@dataclass(frozen=True)
class Example:
    """The stand-in for an argument of a step: a tensor without data, and its batch axis, if there is one."""

    like: Tensor
    batch_axis: int | None


@dataclass(frozen=True)
class Trace:
    """A step as a graph.

    Args:
        module: the graph. Its attributes are the tensors that the step closes over.
        env: the decisions about the batch size that the trace took.
        symbols: symbols of the batch size; empty if the trace is for one size only.
        layout: the layout for which the trace was made.
        result_tree: the structure of the step's results, without its carry.
        names: names of the cell's parameters and buffers, by the tensors' ids.
    """

    module: fx.GraphModule
    env: ShapeEnv
    symbols: tuple[Any, ...]
    layout: TensorLayout
    result_tree: Any
    names: Mapping[int, str] = field(default_factory=dict)

    def fits(self, layout: TensorLayout) -> bool:
        """True if the step takes the same decisions for these sizes. Only the batch size may differ."""
        if not self.symbols:
            return layout == self.layout
        if layout.batch is None or layout.batch < SYMBOLIC_FROM:
            return False
        where = dict.fromkeys(self.symbols, layout.batch)
        return layout.rows() == self.layout.rows() and all(bool(guard.expr.subs(where)) for guard in self.env.guards)

    def size(self, value: int | SymInt, batch: Any) -> Any:
        """A size of the graph for a batch size. The batch size is a number, or a symbol of another graph."""
        if isinstance(value, int):
            return value
        if isinstance(batch, SymInt):
            return sympy_interp(PythonReferenceAnalysis, dict.fromkeys(self.symbols, batch), value.node.expr)
        return int(value.node.expr.subs(dict.fromkeys(self.symbols, batch)))

    @property
    def has_slopes(self) -> bool:
        """True if the graph has custom autograd functions."""
        return any("with_slopes" in str(node.target) for node in self.module.graph.nodes)

    @property
    def has_complex(self) -> bool:
        """True if the graph has complex numbers."""
        return any(map(is_of_pairs, self.module.graph.nodes))

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
    open_sizes: bool = True,
) -> Trace:
    """Trace a function that takes and returns tensors.

    Args:
        recorder: is told of the code that runs.
        assume: answers to `if tensor:` in the step, in order.
        mutations: a mode that sees ops that change tensors in place.
        open_sizes: True for a symbol as batch size, so that the trace serves other batches too.

    Raises StepError if the step decides by a tensor's value, or has a custom autograd function that cannot be followed.
    Raises SymbolRefusedError if an op takes no symbol for a size.
    """
    axes = [kind.batch_axis if open_sizes and layout.batch is not None else None for kind in layout.kinds]
    examples = [Example(kind.without_data(), axis) for kind, axis in zip(layout.kinds, axes, strict=True)]
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    with ExitStack() as stack:
        # entered first and left last, as leaving other contexts may warn too
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_without_log())
        stack.enter_context(unset_fake_temporarily())  # Dynamo may be tracing around this call
        # functions that torch.compile made run as plain functions
        stack.enter_context(dynamo.patch(error_on_nested_fx_trace=False))
        stack.enter_context(tracing(None))
        stack.enter_context(autocast(layout.device.type, enabled=False))
        stack.enter_context(mkldnn.flags(enabled=False))  # mkldnn and cudnn would make one opaque op of an LSTM
        stack.enter_context(cudnn.flags(enabled=False))
        fakes = [_fake(mode, number, example, layout.device) for number, example in enumerate(examples)]
        symbols = {size.node.expr for fake in fakes for size in fake.shape if isinstance(size, SymInt)}

        def run(*tensors: Tensor) -> Sequence[Tensor]:
            with ExitStack() as modes:
                for mode in (
                    enable_grad(),
                    step_modes.ElementwiseFunctions(),
                    step_modes.DetachWithoutGrad(),
                    step_modes.NoChecks(),
                    step_modes.PlainCells(),
                    step_modes.NoReading(),
                ):
                    modes.enter_context(mode)
                modes.enter_context(step_modes.SizedByTensors(tensors[0]))
                modes.enter_context(step_modes.RandomFunctions(rand_like))
                modes.enter_context(step_modes.Decisions(assume))
                modes.enter_context(mutations or nullcontext())
                modes.enter_context(recorder or nullcontext())
                return step(*tensors)

        traced = dispatch_functionalize(run, FunctionalTensorMode())
        try:
            module = make_fx(traced, DECOMPOSED, tracing_mode="real", _allow_non_fake_inputs=True)(*fakes)
        except AssertionError as error:
            if "EffectType" not in str(error):
                raise
            problem = "a step uses an op that is not translated, as it has an effect besides its result"
            hint = SHARDED if "c10d" in str(error) else "Write it by other ops."
            raise StepError(problem, came=str(error).split()[-1], hint=hint) from error
        except RuntimeError as error:
            if any(said in str(error) for said in ("two different devices", "on the same device")):
                raise _on_two_devices(error, layout) from error
            if step_modes.SYMBOL_REFUSED not in str(error) or not open_sizes:
                raise
            raise SymbolRefusedError(str(error)) from error
    _read_parts(module.graph)
    spread_masks(module.graph)
    module.graph.eliminate_dead_code(_has_effect)
    return Trace(module, env, tuple(symbols), layout, getattr(step, "result_tree", None))


def _read_parts(graph: fx.Graph) -> None:
    """Makes one op of `x.real` and one of `x.imag`, which are traced as views of a view."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.select.int):
        source, axis, place = node.args
        if source.target is view_as_real and axis in (-1, source.meta["val"].dim() - 1):
            node.target, node.args = PART_OPS[place], source.args


@contextmanager
def _without_log() -> Iterator[None]:
    """Keeps PyTorch's log of a failing op off the screen. The error itself says what failed."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _on_two_devices(error: RuntimeError, layout: TensorLayout) -> StepError:
    """The error for a step that reaches tensors on another device than its inputs."""
    wanted = f"all tensors that it reaches on {layout.device}, where states and inputs are"
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
    """True if a node stays even if it is not read. Random numbers stay, as each follows from its place in a step."""
    return node.op in ("placeholder", "output") or "copy_" in str(node.target) or "rand_like" in str(node.target)


IGNORED = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit", "generator")
lift = torch.ops.aten.lift_fresh_copy.default
view_as_real, view_as_complex = torch.ops.aten.view_as_real.default, torch.ops.aten.view_as_complex.default
PART_OPS = torch.ops.aten.real.default, torch.ops.aten.imag.default
PARTS = "real", "imag"


@dataclass(frozen=True)
class Translation:
    """A step as nets.

    Args:
        net: runs the cell over time. Its inputs are `names`.
        cell: one step.
        names: of states, inputs, lengths (if there are any), then of the tensors that the step closes over.
        float_dtype: dtype of all floats.
        closed_over: the tensors that the step closes over. A complex tensor is there twice, and so is a real tensor of
            pairs `[..., 2]` that becomes complex.
        parts: "real" or "imag", by the names of those inputs that read a part of such a tensor.
        last, steps: names of the net's outputs: for each last state, and for each result of the steps.
        result_kinds: dtype and shape of each result of one step.
    """

    net: Net
    cell: Net
    names: tuple[str, ...]
    float_dtype: torch.dtype
    closed_over: tuple[Tensor, ...]
    parts: dict[str, str]
    last: tuple[str, ...]
    steps: tuple[str, ...]
    result_kinds: tuple[tuple[torch.dtype, tuple[int, ...]], ...]

    @cached_property
    def closed_over_names(self) -> tuple[str, ...]:
        return self.names[len(self.names) - len(self.closed_over) :]

    def part(self, name: str, tensor: Tensor) -> Tensor:
        """The part of a complex tensor (or of pairs `[..., 2]`) that the net reads. Other tensors stay whole."""
        if name not in self.parts:
            return tensor
        part = self.parts[name]
        return tensor.select(-1, PARTS.index(part)) if tensor.is_floating_point() else getattr(tensor, part)

    def as_fed(self, name: str, tensor: Tensor) -> Tensor:
        """A closed-over tensor in the run's float dtype, to which PyTorch promotes it (or raises an error)."""
        tensor = self.part(name, tensor)
        other = tensor.is_floating_point() and tensor.dtype != self.float_dtype
        return tensor.to(self.float_dtype) if other else tensor

    def keeps_rows_apart(self, layout: TensorLayout) -> bool:
        """True if each row of states and results depends only on the same row of states and inputs."""
        if layout.batch is None:
            return False
        dtype, rows = _dtype_name(self.float_dtype), self.names[: len(layout.kinds)]
        types = {
            spec.name: Type(dtype if spec.dtype == FLOAT else spec.dtype, spec.shape or ())
            for spec in self.cell.input_specs
        }
        for name, kind in zip(rows, layout.kinds, strict=True):
            types[name] = Type(_dtype_name(kind.dtype), tuple(kind.shape[axis] for axis in kind.to_front()))
        return rows_are_apart(prepare(self.cell, types, dtype), rows)


def _dtype_name(kind: dtype) -> str:
    return str(kind).removeprefix("torch.")


@dataclass
class _Cell:
    """The cell of a net while it is written."""

    net: Net
    trace: Trace
    layout: TensorLayout
    float_dtype: torch.dtype
    closed_over: dict[str, Tensor]
    parts: dict[str, str]
    blobs: dict[fx.Node, Any]
    states: list[Blob]  # states as the step reads them


def translate(
    trace: Trace,
    layout: TensorLayout,
    reverse: bool,
    lengths: bool,
    ending: int | None = None,
    truncate: int | None = None,
) -> Translation:
    """The nets of a traced step.

    Args:
        lengths: True if rows end. Then their states stay, and their results are zero.
        ending: number of states (the first ones) that stay after a row's end; None for all. Other states go on as in a
            loop.
        truncate: number of steps after which gradients of states end; None for no end.

    Raises StepError for an op without a translation, and for a state that changes its dtype or shape.
    """
    cell = _Cell(ro.Net("step"), trace, layout, _float_dtype(layout), {}, {}, {}, [])
    _read_arguments(cell, reverse, truncate)
    ends = [cell.net.input("lengths", "int32"), _timestep(cell)] if lengths else []
    results: Sequence[Any] = ()
    for node in trace.module.graph.nodes:
        if node.op == "get_attr":
            _read_closed_over(cell, node)
        elif node.op == "call_function":
            cell.blobs[node] = _translated(cell, node)
        elif node.op == "output":
            results = node.args[0]
    _check_states(cell, results)
    produced = _declare_outputs(cell, results, ends, len(layout.states) if ending is None else ending)
    return _around(cell, produced, results, reverse)


def _float_dtype(layout: TensorLayout) -> torch.dtype:
    """The one float dtype of states, inputs and closed-over tensors."""
    dtypes = [kind.dtype for kind in layout.kinds if kind.dtype.is_floating_point]
    dtype = dtypes[0] if dtypes else torch.float32
    if len({*dtypes}) > 1:
        came = ", ".join(f"{name} {kind.dtype}" for name, kind in zip(_names(layout), layout.kinds, strict=True))
        raise StepError("states and inputs have different float dtypes", came=came, hint=ONE_DTYPE)
    if dtype not in (torch.float32, torch.float64):
        raise StepError("kernels do not have this dtype of states and inputs", wanted="float32 or float64", came=dtype)
    return dtype


def _names(layout: TensorLayout) -> list[str]:
    return [*(f"state_{i}" for i in range(len(layout.states))), *(f"input_{i}" for i in range(len(layout.inputs)))]


def _read_arguments(cell: _Cell, reverse: bool, truncate: int | None) -> None:
    """Reads the cell's inputs in the step's form: batch axis in place; in a layout of one row, no row axis."""
    places = [node for node in cell.trace.module.graph.nodes if node.op == "placeholder"]
    if any(kind.dtype.is_complex for kind in cell.layout.kinds):
        raise StepError("a step sets a complex tensor that is not its carry", hint="Carry it as a state.")
    named = zip(_names(cell.layout), places, cell.layout.kinds, strict=True)
    blobs = [cell.net.input(name, _kind(cell, place, kind.dtype)) for name, place, kind in named]
    count = len(cell.layout.states)
    if truncate is not None:
        steps = cell.net.input(STEPS, "int32") if reverse else None
        blobs[:count] = truncated(blobs[:count], truncate, _timestep(cell), steps)
    cell.states = blobs[:count]
    for place, kind, blob in zip(places, cell.layout.kinds, blobs, strict=True):
        cell.blobs[place] = _as_in_step(cell.layout, kind, blob)


def _timestep(cell: _Cell) -> Blob:
    return cell.net.blob(TIMESTEP) if TIMESTEP in cell.net else cell.net.input(TIMESTEP, "int32")


def _as_in_step(layout: TensorLayout, kind: TensorKind, blob: Blob) -> Blob:
    if layout.batch is None:
        return ro.squeeze(blob, [0])
    return ro.transpose(blob, kind.back()) if kind.batch_axis else blob


def _as_in_cell(layout: TensorLayout, kind: TensorKind, blob: Blob) -> Blob:
    if layout.batch is None:
        return ro.unsqueeze(blob, [0])
    return ro.transpose(blob, kind.to_front()) if kind.batch_axis else blob


def _node(cell: _Cell, node: fx.Node) -> AtenNode:
    def size(value: Any) -> int:
        return cell.trace.size(value, cell.layout.batch)

    def draw(node: fx.Node, shape: Sequence[int]) -> Blob:
        raise StepError("random numbers in a step are not translated", op=str(node.target))

    return AtenNode(cell.net, node, cell.float_dtype, size, draw)


def _kind(cell: _Cell, node: fx.Node, dtype: torch.dtype) -> str:
    return _node(cell, node).kind(dtype)


def _read_closed_over(cell: _Cell, node: fx.Node) -> None:
    """Makes an input of the cell of each tensor that the step closes over.

    A tensor that the step makes itself becomes a constant.
    """
    tensor = getattr(cell.trace.module, str(node.target))
    node.meta.setdefault("val", tensor)
    is_float = tensor.is_floating_point() or tensor.is_complex()
    # floats are converted before a run
    kind, read = "float" if is_float else _kind(cell, node, tensor.dtype), _constant
    if any(user.target is not lift for user in node.users):
        read = _closed_over
    nodes = (one for one in node.graph.nodes if one.op == "get_attr")
    users = {
        user.target for one in nodes if getattr(cell.trace.module, str(one.target)) is tensor for user in one.users
    }
    of_pairs = users == {view_as_complex}  # parts that lie apart in memory make products slow
    parts = PARTS if tensor.is_complex() or of_pairs else (None,)
    blobs = [read(cell, tensor, part, kind) for part in parts]
    cell.blobs[node] = Pair(*blobs) if len(blobs) > 1 else blobs[0]


def _constant(cell: _Cell, tensor: Tensor, part: str | None, kind: str) -> Blob:
    return cell.net.constant(array_of(getattr(tensor, part) if part else tensor), kind)


def _closed_over(cell: _Cell, tensor: Tensor, part: str | None, kind: str) -> Blob:
    """The input for a closed-over tensor, or for a part of a complex one. Parameters and buffers keep their names."""
    for name, other in cell.closed_over.items():
        if other is tensor and cell.parts.get(name) == part:
            return cell.net.blob(name)
    known = cell.trace.names.get(id(tensor))
    name = f"closed_over_{len(cell.closed_over)}" if known is None else f"{known}.{part}" if part else known
    cell.closed_over[name] = tensor
    if part:
        cell.parts[name] = part
    of_pairs = part is not None and not tensor.is_complex()
    return cell.net.input(name, kind, tuple(tensor.shape[:-1] if of_pairs else tensor.shape))


def _translated(cell: _Cell, node: fx.Node) -> Any:
    """Translates a node. Returns blobs for tensors, numbers for sizes."""
    arguments, options = fx.node.map_arg((node.args, node.kwargs), lambda given: cell.blobs[given])
    if node.target is operator.getitem:
        return _part(node, *arguments)
    if isinstance(node.meta.get("val"), int | torch.SymInt):
        return cell.trace.size(node.meta["val"], cell.layout.batch)
    if isinstance(node.meta.get("val"), torch.SymFloat):
        return float(node.meta["val"].node.expr.subs(dict.fromkeys(cell.trace.symbols, cell.layout.batch)))
    name, rules, problem = op_name(node), RULES, "a step uses an op that is not translated"
    if is_of_pairs(node):
        rules, problem = PAIR_RULES, f"{problem} for complex numbers"
        _check_complex(cell, node)
    if name not in rules:
        hint = "Write it by other ops." if rules is RULES else BY_PARTS
        raise StepError(problem, op=str(node.target), hint=hint)
    return rules[name](_node(cell, node), *arguments, **{k: v for k, v in options.items() if k not in IGNORED})


def _check_complex(cell: _Cell, node: fx.Node) -> None:
    """Raise StepError for complex numbers of another precision than the run's. Constants are converted instead."""
    for value in pytree.tree_leaves(node.meta["val"]) if node.target is not lift else ():
        _kind(cell, node, value.dtype)


def _part(node: fx.Node, values: Sequence[Any], number: int) -> Any:
    """One of the results of an op with several results."""
    if values[number] is None:
        problem, came = "a step uses a result of an op that is not translated", f"result {number}"
        raise StepError(problem, op=str(node.all_input_nodes[0].target), came=came, hint="Write it by other ops.")
    return values[number]


def _check_states(cell: _Cell, results: Sequence[Any]) -> None:
    for number, (kind, node) in enumerate(zip(cell.layout.states, results, strict=False)):
        shape, dtype = _result_kind(cell, node)[::-1]
        if (shape, dtype) != (kind.shape, kind.dtype):
            raise StepError(
                f"state {number} changes its dtype or shape in a step",
                wanted=f"{kind.dtype} {list(kind.shape)}",
                came=f"{dtype} {list(shape)}",
            )


def _result_kind(cell: _Cell, node: fx.Node) -> tuple[torch.dtype, tuple[int, ...]]:
    value = node.meta["val"]
    return value.dtype, tuple(cell.trace.size(size, cell.layout.batch) for size in value.shape)


def _declare_outputs(cell: _Cell, results: Sequence[Any], ends: Sequence[Blob], ending: int) -> list[str]:
    """Declares the outputs of the cell. Returns the output's name for each result of the step."""
    layout, produced, known = cell.layout, [], dict[fx.Node, str]()
    for number, node in enumerate(results):
        is_state, name = number < len(layout.states), f"result_{number}"
        if not is_state and node in known:
            produced.append(known[node])
            continue
        blob = cell.blobs[node]
        if is_state:
            kind = layout.states[number]
            blob = _as_in_cell(layout, kind, blob)
            if ends and number < ending:
                blob = ro.select_valid(blob, cell.states[number], ends[0], ends[1])
        else:
            blob = ro.unsqueeze(blob, [0]) if layout.batch is None else blob
            blob = ro.select_valid(blob, blob, ends[0], ends[1], drop=1) if ends else blob
        if not ends and (not is_state or not layout.states[number].batch_axis):
            known.setdefault(node, name)
        cell.net.outputs(**{name: ro.identity(blob)})
        produced.append(name)
    return produced


def _around(cell: _Cell, produced: list[str], results: Sequence[Any], reverse: bool) -> Translation:
    layout, names, net = cell.layout, _names(cell.layout), ro.Net("scan")
    count = len(layout.states)
    given = {spec.name: net.add_input(spec) for spec in cell.net.input_specs if spec.name not in (TIMESTEP, STEPS)}
    states = [_as_in_cell(layout, kind, given[name]) for kind, name in zip(layout.states, names, strict=False)]
    inputs = [ro.unsqueeze(given[name], [1]) if layout.batch is None else given[name] for name in names[count:]]
    references = {name: blob for name, blob in given.items() if name not in names}
    if STEPS in cell.net:
        references[STEPS] = steps_of(inputs[0])
    rank = 2 if layout.batch is not None else 1  # the rank of states whose shape is found without being declared
    shapes = {
        name: _features(layout, kind)
        for name, kind in zip(names, layout.states, strict=False)
        if len(kind.shape) != rank
    }
    found = ro.recurrent_net(
        net, cell.net, list(zip(names[count:], inputs, strict=True)), list(zip(names, states, strict=False)),
        {f"state_{i}": f"result_{i}" for i in range(count)}, timestep=TIMESTEP if TIMESTEP in cell.net else None,
        references=references, reverse=reverse, state_shapes=shapes,
    )  # fmt: skip
    declared = list(dict.fromkeys(produced))
    every = dict(zip(declared, found[::2], strict=True))
    last = dict(zip(declared, found[1::2], strict=True))
    outputs = {
        **{f"last_{i}": _as_last(layout, kind, last[f"result_{i}"]) for i, kind in enumerate(layout.states)},
        **{
            f"all_{name}": ro.squeeze(every[name], [1]) if layout.batch is None else every[name]
            for name in produced[count:]
        },
    }
    net.outputs(**outputs)
    return Translation(
        net,
        cell.net,
        tuple(net.input_names),
        cell.float_dtype,
        tuple(cell.closed_over.values()),
        cell.parts,
        tuple(f"last_{i}" for i in range(count)),
        tuple(f"all_{name}" for name in produced[count:]),
        tuple(_result_kind(cell, node) for node in results),
    )


def _features(layout: TensorLayout, kind: TensorKind) -> tuple[int, ...]:
    """Shape of a state in the cell, without its rows."""
    return kind.shape if layout.batch is None else tuple(kind.shape[axis] for axis in kind.to_front()[1:])


def _as_last(layout: TensorLayout, kind: TensorKind, blob: Blob) -> Blob:
    """A last state `[1, N, ...]` in the form that the step has."""
    return _as_in_step(layout, kind, ro.squeeze(blob, [0]))
