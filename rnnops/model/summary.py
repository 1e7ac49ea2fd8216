"""The text of a model: its layers, shapes, parameter counts and planned bytes, before there is any data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rnnops.compiler.memory_table import aligned, readable, spaced
from rnnops.model.arrays import Arrays, dotted
from rnnops.model.graphs import Graph
from rnnops.model.layer import Layer, Written
from rnnops.model.store import Store
from rnnops.model.tracing import LOSS

HEAD = ("layer", "kind", "output", "parameters")


def summary(name: str, layers: Iterable[tuple[str, Layer]], compiled: Mapping[str, Graph], store: Store) -> str:
    """Tables of a compiled model; of one that is not, the names of its layers."""
    if not compiled:
        listed = "".join(f"\n  {dotted(path)}: {type(layer).__name__}" for path, layer in layers)
        return f"{name}, not compiled{listed}"
    graph = next(iter(compiled.values()))
    inputs = ", ".join(f"{key}: {kind}" for key, kind in graph.types.items())
    return "\n".join([f"{name}({inputs})", *aligned(list(_rows(graph, store.params))), *_bytes(compiled, store)])


def _rows(graph: Graph, params: Arrays) -> Iterator[tuple[str, ...]]:
    yield HEAD
    first = {id(one.layer): one for one in reversed(graph.traced.written)}
    shown = [one for one in graph.traced.written if first[id(one.layer)] is one]
    paths = [one.layer.scope for one in shown]
    for one in shown:
        count = sum(array.size for name, array in params.items() if _owner(name, paths) == one.layer.scope)
        yield dotted(one.layer.scope), type(one.layer).__name__, _types(one), spaced(count)
    rest = sum(array.size for name, array in params.items() if _owner(name, paths) is None)
    if rest:
        yield "of the model itself", "", "", spaced(rest)
    yield "total", "", "", spaced(sum(array.size for array in params.values()))


def _owner(parameter: str, paths: list[str]) -> str | None:
    """The innermost layer whose name a parameter's begins with."""
    return max((path for path in paths if parameter.startswith(f"{path}/")), key=len, default=None)


def _types(one: Written) -> str:
    first, more = str(one.outputs[0] or "?") if one.outputs else "", len(one.outputs) - 1
    return f"{first} and {more} more" if more > 0 else first


def _bytes(compiled: Mapping[str, Graph], store: Store) -> Iterator[str]:
    """What is held, and what the passes of each function allocate when they need most."""
    yield f"parameters {_size(store.params)}, optimizer {_size(store.state)}"
    for function, graph in compiled.items():
        backward = LOSS in graph.traced.net.output_blobs
        moved = [name for name in graph.traced.net.input_names if name in set(store.trainable)]
        shapes = {**store.of(graph.traced.net), **{name: kind.shape for name, kind in graph.types.items()}}
        planned = graph.run.plan(shapes, backward=backward, wrt=moved if backward else None)
        passes = ", ".join(f"{one.name} pass {readable(one.total)}" for one in planned.memory().passes)
        yield f"{function}: {passes}"


def _size(arrays: Arrays) -> str:
    return readable(sum(array.nbytes for array in arrays.values()))
