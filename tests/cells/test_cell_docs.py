"""What the docstrings of cells say of states and parameters, names, shapes and start values, is what the cells have."""

from __future__ import annotations

import re
from math import prod
from typing import Any

from docstrings import own_doc
from each import check_each

import rnnops as ro
from rnnops.cells.base import initial_name
from rnnops.initializers import Initializer

N, D, H = 2, 6, 8
OPTIONS: dict[str, dict[str, Any]] = {
    "projected_lstm": {"proj_size": 3},
    "cfc": {"backbone_size": 5},
    "lmu": {"order": 5},
    "selective_ssm": {"state_size": 5, "rank": 3},
    "ntm": {"slots": 5, "width": 3},
    "rwkv7": {"rank": 3, "heads": 2},
    "sru": {"highway_bias": 0.5},
    **{name: {"heads": 2} for name in ("slstm", "mlstm", "retention", "gla", "delta_net", "gated_delta_net")},
}
LETTERS = {"proj_size": "P", "backbone_size": "U", "order": "d", "state_size": "S"}  # what docstrings call an option
NAMED = re.compile(r"`(\w+) \[([^]]*)\]`")


def sizes_of(cell: str) -> dict[str, int]:
    """What stands in the shapes of a docstring."""
    options = OPTIONS.get(cell, {})
    sizes = {"N": N, "D": D, "H": H, **{LETTERS.get(name, name): value for name, value in options.items()}}
    return {**({"d": H // options["heads"]} if "heads" in options else {}), **sizes}


def shape_of(text: str, sizes: dict[str, int]) -> tuple[int, ...]:
    """`4 width + 12, 2H` in numbers."""
    factors = [[re.findall(r"\d+|[a-zA-Z_]+", term) for term in size.split("+")] for size in text.split(",")]
    return tuple(sum(prod(int(sizes.get(one, one)) for one in term) for term in terms) for terms in factors)


def listed(cell: str, heading: str) -> list[tuple[str, tuple[int, ...], str]]:
    """Name, shape and what is said of each line's names below a heading."""
    doc = own_doc(ro.cells.CELLS[cell]).split(f"\n{heading}")[1].split("\n\n", 2)[1]
    items = [" ".join(item.split()) for item in re.split(r"^- ", doc, flags=re.M) if item]
    parts = [(item.rpartition("]`")[0] + "]`", item.rpartition("]`")[2].removeprefix(", ...")) for item in items]
    assert all(said.startswith(": ") for _, said in parts), items
    sizes = sizes_of(cell)
    return [(name, shape_of(text, sizes), said[2:]) for names, said in parts for name, text in NAMED.findall(names)]


def written(cell: str) -> tuple[ro.cells.RNNCell, dict[str, Any]]:
    """A cell, and the parameters that it has in a net, but for initial states."""
    made = ro.cells.CELLS[cell](D, H, name="c", **OPTIONS.get(cell, {}))
    net = ro.Net("net", sizes_for="float32")
    made.apply_over_sequence(net, net.input("x", shape=(3, N, D)))
    initial = [initial_name(state) for state in made.get_state_names()]
    return made, {spec.name: spec for spec in net.parameters if spec.name not in initial}


def start_of(said: str) -> Initializer:
    """The initializer that a docstring tells."""
    if numbers := re.match(r"uniform in \[([-\d.]+), ([-\d.]+)\]", said):
        return Initializer("uniform", (float(numbers[1]), float(numbers[2])))
    kind = re.split("[,;]", said)[0]
    kind = str(OPTIONS["sru"]["highway_bias"]) if kind == "`highway_bias`" else kind
    return Initializer("constant", (float(kind),)) if kind[0].isdigit() else Initializer(kind)


def plain(init: Initializer) -> Initializer:
    return Initializer("zeros") if init == Initializer("constant", (0.0,)) else init


def check_parameters(cell: str) -> None:
    _, there = written(cell)
    said = {f"c/{name}": (shape, start_of(start)) for name, shape, start in listed(cell, "Parameters")}
    assert said == {name: (spec.shape, plain(spec.initializer)) for name, spec in there.items()}


def check_states(cell: str) -> None:
    made, _ = written(cell)
    found = [(f"c/{name}", shape) for name, shape, _ in listed(cell, "States")]
    states = zip(made.get_state_names(), made.get_state_shapes(), strict=True)
    assert found == [(name, (N, *shape)) for name, shape in states]


def test_parameters_are_those_of_the_docstring() -> None:
    check_each(own_cells(), check_parameters)


def test_states_are_those_of_the_docstring() -> None:
    check_each(own_cells(), check_states)


def own_cells() -> list[str]:
    """Those of the library, without what other tests registered."""
    return [name for name, cell in ro.cells.CELLS.items() if cell.__module__.startswith("rnnops.")]
