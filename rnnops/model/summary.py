"""The text of a model: its layers, shapes, parameter counts and planned bytes, before there is any data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rnnops.compiler.report.memory_table import aligned, readable, spaced
from rnnops.model.arrays import Arrays, dotted
from rnnops.model.graphs import Graph
from rnnops.model.layer import Layer, Written
from rnnops.model.store import Store

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
    shown = {one.name: one for one in reversed(graph.traced.written)}  # a layer's first call
    owners = [_owner(name, shown) for name in params]
    sizes = {name: sum(a.size for a, own in zip(params.values(), owners, strict=True) if own == name) for name in shown}
    for name, one in reversed(shown.items()):
        yield dotted(name), one.kind, _types(one), spaced(sizes[name])
    rest = sum(array.size for array, own in zip(params.values(), owners, strict=True) if own is None)
    if rest:
        yield "of the model itself", "", "", spaced(rest)
    yield "total", "", "", spaced(sum(array.size for array in params.values()))


def _owner(parameter: str, layers: Iterable[str]) -> str | None:
    """The innermost layer whose name a parameter's begins with."""
    return max((name for name in layers if parameter.startswith(f"{name}/")), key=len, default=None)


def _types(one: Written) -> str:
    first, more = str(one.outputs[0] or "?") if one.outputs else "", len(one.outputs) - 1
    return f"{first} and {more} more" if more > 0 else first


def _bytes(compiled: Mapping[str, Graph], store: Store) -> Iterator[str]:
    """What is held, and what the passes of each function allocate when they need most."""
    yield f"parameters {_size(store.params)}, optimizer {_size(store.held.state)}"
    for function, graph in compiled.items():
        passes = ", ".join(f"{one.name} pass {readable(one.total)}" for one in graph.planned().memory().passes)
        yield f"{function}: {passes}"


def _size(arrays: Arrays) -> str:
    return readable(sum(array.nbytes for array in arrays.values()))
