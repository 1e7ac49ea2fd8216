"""Steps of cells on their way to code, for the tests of the passes; and statements run in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import rnnops as ro
from rnnops.compiler.lower.lower_ops import expand_ops, lower_ops
from rnnops.compiler.lower.scan import Lowered
from rnnops.compiler.lower.statements import Access, Statement, dense
from rnnops.compiler.run.backward import BackwardScan
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.run.forward import ForwardScan
from rnnops.compiler.run.pipeline import live_net, training_structure, with_memory
from rnnops.compiler.targets.target import Target
from rnnops.interpreter import Program, prepare
from rnnops.net.schema import schema_of
from rnnops.types import Type

Array = np.ndarray
FORMS = {"copy": np.array, "labels": np.array, "product": np.multiply, "square": np.square, "quotient": np.divide}
FOLDS = {"add": np.add, "max": np.maximum, "min": np.minimum, "or": np.logical_or, "and": np.logical_and}


def types_of(**kinds: Any) -> dict[str, Type]:
    """Types from shapes, which mean float64, and from `(dtype, shape)`."""
    return {
        name: Type(*kind) if kind and isinstance(kind[0], str) else Type("float64", kind)
        for name, kind in kinds.items()
    }


def step_of(cell: ro.Net, **kinds: Any) -> Program:
    """A cell as a program of primitive ops."""
    return expand_ops(prepare(cell.snapshot(), types_of(**kinds), "float64"))


def lowered_step(cell: ro.Net, **kinds: Any) -> Lowered:
    """A cell as statements."""
    program = step_of(cell, **kinds)
    return lower_ops(program, {name: Access(name, dense(program.types[name].shape)) for name in kinds}, {})


def training_scans(
    net: ro.Net, tile: int | None = 2, device: Target | None = None, **kinds: Any
) -> tuple[list[ForwardScan], list[BackwardScan]]:
    """The compiled passes of all recurrences of a net, forward and backward; none may be left to the interpreter."""
    types = types_of(**kinds)
    wrt = tuple(name for name, kind in types.items() if kind.dtype == "float64")
    options = Options(compiled=False, tile=tile, device=device)
    plan = with_memory(training_structure(live_net(net), types, "float64", wrt, options))
    assert not plan.compiled.interpreted
    scans = plan.compiled.kernels
    return [s for s in scans if isinstance(s, ForwardScan)], [s for s in scans if isinstance(s, BackwardScan)]


def recurrent(cell: ro.Net, sequences: Mapping[str, str], states: Mapping[str, str], **options: Any) -> ro.Net:
    """A net around a cell; `sequences` are input -> feed, state `h` starts from feed `h0`, all results are outputs."""
    net = ro.Net("outer")
    inputs = [(name, net.input(feed)) for name, feed in sequences.items()]
    initial = [(name, net.input(f"{name}0")) for name in states]
    results = ro.recurrent_net(net, cell, inputs, initial, dict(states), **options)
    net.outputs(**{blob.name: blob for blob in results})
    return net


def run_statements(lowered: Lowered, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Run statements in order, all elements of one at once; the result by owner."""
    memory = {name: np.ascontiguousarray(array).reshape(-1) for name, array in {**lowered.constants, **arrays}.items()}
    for statement in lowered.statements:
        owner = statement.target.owner
        kind = lowered.types[owner]
        memory.setdefault(owner, np.full(kind.size, 99 if kind.dtype != "bool" else True, kind.dtype))
        _run(statement, memory)
    return memory


def value_of(lowered: Lowered, memory: Mapping[str, Array], blob: str) -> Array:
    """The elements of a blob, wherever they lie."""
    if blob in lowered.numbers:
        return np.asarray(lowered.numbers[blob])
    return memory[lowered.views[blob].owner][_places(lowered.views[blob], memory)]


def _places(access: Access, memory: Mapping[str, Array]) -> Array:
    places = access.layout.numbers()
    if access.index is not None:
        index = memory[access.index.owner][_places(access.index, memory)].astype(np.int64)
        places = places + np.where(index < 0, index + access.index_size, index) * access.index_step
    return places


def _run(statement: Statement, memory: dict[str, Array]) -> None:
    operands = [
        memory[o.owner][_places(o, memory)] if isinstance(o, Access) else np.full(statement.extents, o)
        for o in statement.operands
    ]
    if statement.form == "apply":
        result = schema_of(statement.made_by().op.type).reference(statement.made_by(), *operands)
    else:
        simple = {
            "copy": np.array,
            "labels": np.array,
            "product": np.multiply,
            "square": np.square,
            "quotient": np.divide,
        }
        result = simple[statement.form](*operands)
    target, places = memory[statement.target.owner], _places(statement.target, memory)
    if not statement.fold:
        target[places] = result
        return
    if statement.start is not None:
        target[np.unique(places)] = statement.start
    FOLDS[statement.fold].at(target, places, np.broadcast_to(result, statement.extents))
