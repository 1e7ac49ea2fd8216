"""From the graph of a step to nets: the cell, and the net around it that steps it over time."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

import rnnops as ro
from rnnops.blob import Blob
from rnnops.net import Net
from rnnops.torch.arguments import TensorKind, TensorLayout
from rnnops.torch.aten import RULES, AtenNode, op_name
from rnnops.torch.aten.table import array_of
from rnnops.torch.errors import StepError
from rnnops.torch.trace import Trace

IGNORED = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit", "generator")
lift = torch.ops.aten.lift_fresh_copy.default


@dataclass(frozen=True)
class Translation:
    """A step as nets.

    Args:
        net: steps the cell; its inputs are `names`.
        cell: one step.
        names: of states, inputs, lengths where there are, then tensors that the step closes over.
        float_dtype: of all that is a float.
        closed_over: those tensors.
        last, steps: the net's output for each last state, and for each result of the steps.
        result_kinds: dtype and shape of each result of one step.
    """

    net: Net
    cell: Net
    names: tuple[str, ...]
    float_dtype: torch.dtype
    closed_over: tuple[Tensor, ...]
    last: tuple[str, ...]
    steps: tuple[str, ...]
    result_kinds: tuple[tuple[torch.dtype, tuple[int, ...]], ...]

    def as_fed(self, tensor: Tensor) -> Tensor:
        """A tensor that the step closes over in the dtype of the run; PyTorch promotes it so, or not at all."""
        other = tensor.is_floating_point() and tensor.dtype != self.float_dtype
        return tensor.to(self.float_dtype) if other else tensor


@dataclass
class _Cell:
    """The cell while it is written."""

    net: Net
    trace: Trace
    layout: TensorLayout
    float_dtype: torch.dtype
    closed_over: list[Tensor]
    blobs: dict[fx.Node, Any]


def translate(
    trace: Trace, layout: TensorLayout, reverse: bool, lengths: bool, ending: int | None = None
) -> Translation:
    """The nets of a traced step.

    Args:
        lengths: whether rows end: their states stay, and their results are zero.
        ending: how many of the states, the first ones, stay where a row ends; all if None. Others go on as in a loop.

    Raises StepError for ops that have no translation, and where a state changes its dtype or shape.
    """
    cell = _Cell(ro.Net("step"), trace, layout, _float_dtype(trace, layout), [], {})
    _read_arguments(cell)
    results: Sequence[Any] = ()
    for node in trace.module.graph.nodes:
        if node.op == "get_attr":
            _read_closed_over(cell, node)
        elif node.op == "call_function":
            cell.blobs[node] = _translated(cell, node)
        elif node.op == "output":
            results = node.args[0]
    _check_states(cell, results)
    produced = _declare_outputs(cell, results, lengths, len(layout.states) if ending is None else ending)
    return _around(cell, produced, results, reverse, lengths)


def _float_dtype(trace: Trace, layout: TensorLayout) -> torch.dtype:
    """The one float dtype of states, inputs and of what the step closes over."""
    dtypes = [kind.dtype for kind in layout.kinds if kind.dtype.is_floating_point]
    dtype = dtypes[0] if dtypes else torch.float32
    if dtype not in (torch.float32, torch.float64):
        raise StepError("states and inputs of this dtype have no kernels", wanted="float32 or float64", came=dtype)
    return dtype


def _names(layout: TensorLayout) -> list[str]:
    return [*(f"state_{i}" for i in range(len(layout.states))), *(f"input_{i}" for i in range(len(layout.inputs)))]


def _read_arguments(cell: _Cell) -> None:
    """Inputs of the cell as the step has them: with the batch where the step has it, without the row of one."""
    places = [node for node in cell.trace.module.graph.nodes if node.op == "placeholder"]
    for place, name, kind in zip(places, _names(cell.layout), cell.layout.kinds, strict=True):
        blob = cell.net.input(name, _kind(cell, place, kind.dtype))
        cell.blobs[place] = _as_in_step(cell.layout, kind, blob)


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
    """A tensor that the step closes over becomes an input of the cell; one that it makes itself, a constant."""
    tensor = getattr(cell.trace.module, str(node.target))
    node.meta.setdefault("val", tensor)
    if all(user.target is lift for user in node.users):
        kind = "float" if tensor.is_floating_point() else _kind(cell, node, tensor.dtype)
        cell.blobs[node] = cell.net.constant(array_of(tensor), kind)
        return
    known = [i for i, other in enumerate(cell.closed_over) if other is tensor]
    if not known:
        cell.closed_over.append(tensor)
        kind = "float" if tensor.is_floating_point() else _kind(cell, node, tensor.dtype)  # converted before a run
        cell.net.input(f"closed_over_{len(cell.closed_over) - 1}", kind, tuple(tensor.shape))
    number = known[0] if known else len(cell.closed_over) - 1
    cell.blobs[node] = cell.net.blob(f"closed_over_{number}")


def _translated(cell: _Cell, node: fx.Node) -> Any:
    """What a node gives: blobs for tensors, numbers for sizes."""
    arguments, options = fx.node.map_arg((node.args, node.kwargs), lambda given: cell.blobs[given])
    if node.target is operator.getitem:
        return arguments[0][arguments[1]]
    if isinstance(node.meta.get("val"), int | torch.SymInt):
        return cell.trace.size(node.meta["val"], cell.layout.batch)
    name = op_name(node)
    if name not in RULES:
        raise StepError("a step uses an op that is not translated", op=str(node.target), hint="Write it by other ops.")
    return RULES[name](_node(cell, node), *arguments, **{k: v for k, v in options.items() if k not in IGNORED})


def _check_states(cell: _Cell, results: Sequence[Any]) -> None:
    for number, (kind, node) in enumerate(zip(cell.layout.states, results, strict=False)):
        shape, dtype = _result_kind(cell, node)[::-1]
        if (shape, dtype) != (kind.shape, kind.dtype):
            raise StepError(
                f"state {number} is not what it was after a step",
                wanted=f"{kind.dtype} {list(kind.shape)}",
                came=f"{dtype} {list(shape)}",
            )


def _result_kind(cell: _Cell, node: fx.Node) -> tuple[torch.dtype, tuple[int, ...]]:
    value = node.meta["val"]
    return value.dtype, tuple(cell.trace.size(size, cell.layout.batch) for size in value.shape)


def _declare_outputs(cell: _Cell, results: Sequence[Any], lengths: bool, ending: int) -> list[str]:
    """Outputs of the cell; for each result of the step the name of the one that it is."""
    layout, produced, known = cell.layout, [], dict[fx.Node, str]()
    ends = [cell.net.input(name, "int32") for name in ("lengths", "timestep")] if lengths else []
    for number, node in enumerate(results):
        is_state, name = number < len(layout.states), f"result_{number}"
        if not is_state and node in known:
            produced.append(known[node])
            continue
        blob = cell.blobs[node]
        if is_state:
            kind = layout.states[number]
            blob = _as_in_cell(layout, kind, blob)
            if lengths and number < ending:
                blob = ro.select_valid(blob, cell.net.blob(f"state_{number}"), ends[0], ends[1])
        else:
            blob = ro.unsqueeze(blob, [0]) if layout.batch is None else blob
            blob = ro.select_valid(blob, blob, ends[0], ends[1], drop=1) if lengths else blob
        if not lengths and (not is_state or not layout.states[number].batch_axis):
            known.setdefault(node, name)
        cell.net.outputs(**{name: ro.identity(blob)})
        produced.append(name)
    return produced


def _around(cell: _Cell, produced: list[str], results: Sequence[Any], reverse: bool, lengths: bool) -> Translation:
    layout, names, net = cell.layout, _names(cell.layout), ro.Net("scan")
    count = len(layout.states)
    given = {spec.name: net.add_input(spec) for spec in cell.net.input_specs if spec.name != "timestep"}
    states = [_as_in_cell(layout, kind, given[name]) for kind, name in zip(layout.states, names, strict=False)]
    inputs = [ro.unsqueeze(given[name], [1]) if layout.batch is None else given[name] for name in names[count:]]
    rank = 2 if layout.batch is not None else 1  # of states whose shape need not be said
    shapes = {
        name: _features(layout, kind)
        for name, kind in zip(names, layout.states, strict=False)
        if len(kind.shape) != rank
    }
    found = ro.recurrent_net(
        net, cell.net, list(zip(names[count:], inputs, strict=True)), list(zip(names, states, strict=False)),
        {f"state_{i}": f"result_{i}" for i in range(count)}, timestep="timestep" if lengths else None,
        references={name: blob for name, blob in given.items() if name not in names}, reverse=reverse,
        state_shapes=shapes,
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
    closed_over = [f"closed_over_{i}" for i in range(len(cell.closed_over))]
    return Translation(
        net,
        cell.net,
        (*names, *(["lengths"] if lengths else []), *closed_over),
        cell.float_dtype,
        tuple(cell.closed_over),
        tuple(f"last_{i}" for i in range(count)),
        tuple(f"all_{name}" for name in produced[count:]),
        tuple(_result_kind(cell, node) for node in results),
    )


def _features(layout: TensorLayout, kind: TensorKind) -> tuple[int, ...]:
    """Sizes of a state in the cell, without its rows."""
    return kind.shape if layout.batch is None else tuple(kind.shape[axis] for axis in kind.to_front()[1:])


def _as_last(layout: TensorLayout, kind: TensorKind, blob: Blob) -> Blob:
    """A last state `[1, N, ...]` as the step has it."""
    return _as_in_step(layout, kind, ro.squeeze(blob, [0]))
