"""What the docstrings of cells say is so: states, parameters with shapes and start values, and equations, which run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from textwrap import dedent
from types import MappingProxyType
from typing import Any

import numpy as np
from docstrings import own_doc
from each import check_each

import rnnops as ro
from rnnops.cells.base import initial_name
from rnnops.net.op import FUNCTION, Initializer

N, D, H = 2, 6, 8
OPTIONS: dict[str, dict[str, Any]] = {
    "projected_lstm": {"proj_size": 3},
    "cfc": {"backbone_size": 5},
    "lmu": {"order": 5},
    "selective_ssm": {"state_size": 5, "rank": 3},
    "ntm": {"slots": 5, "width": 3},
    "rwkv7": {"rank": 3, "heads": 2},
    "lru": {"state_size": 5},
    "s5": {"state_size": 5},
    "sru": {"highway_bias": 0.5},
    "lem": {"dt": 0.5},
    **{name: {"heads": 2} for name in ("slstm", "mlstm", "mlstm_sigmoid", "block_gru", "retention", "gla")},
    **{name: {"heads": 2} for name in ("delta_net", "gated_delta_net", "kda", "ttt_linear")},
    "gated_delta_product": {"heads": 2, "products": 3},
    "hgrn2": {"heads": 2, "lower_bound": 0.25},
    "mamba2": {"heads": 2, "state_size": 5},
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
    """What the docstring of a cell lists below a heading."""
    return listed_in(own_doc(ro.cells.CELLS[cell]), heading, sizes_of(cell))


def listed_in(doc: str, heading: str, sizes: dict[str, int]) -> list[tuple[str, tuple[int, ...], str]]:
    """Name, shape and what is said of each line's names below a heading."""
    doc = doc.split(f"\n{heading}")[1].split("\n\n", 2)[1]
    items = [" ".join(item.split()) for item in re.split(r"^- ", doc, flags=re.M) if item]
    parts = [(item.rpartition("]`")[0] + "]`", item.rpartition("]`")[2].removeprefix(", ...")) for item in items]
    assert all(said.startswith(": ") for _, said in parts), items
    return [(name, shape_of(text, sizes), said[2:]) for names, said in parts for name, text in NAMED.findall(names)]


def written(cell: str, options: Mapping[str, Any] = MappingProxyType({})) -> tuple[ro.cells.RNNCell, dict[str, Any]]:
    """A cell, and the parameters that it has in a net, but for initial states."""
    made = ro.cells.CELLS[cell](D, H, name="c", **{**OPTIONS.get(cell, {}), **options})
    net = ro.Net("net", sizes_for="float32")
    made.apply_over_sequence(net, net.input("x", shape=(3, N, D)))
    initial = [initial_name(state) for state in made.get_state_names()]
    return made, {spec.name: spec for spec in net.parameters if spec.name not in initial}


def start_of(said: str, sizes: dict[str, int]) -> Initializer:
    """The initializer that a docstring tells."""
    if size := re.match(r"normal, with a variance of 1 / (\w+)", said):
        return Initializer("normal", (0.0, shape_of(size[1], sizes)[0] ** -0.5))
    if numbers := re.match(r"uniform in \[([-\d.]+), ([-\d.]+)\]", said):
        return Initializer("uniform", (float(numbers[1]), float(numbers[2])))
    if number := re.match(r"normal, with a deviation of ([\d.]+)", said):
        return Initializer("normal", (0.0, float(number[1])))
    kind = re.split("[,;]", said)[0]
    kind = str(OPTIONS["sru"]["highway_bias"]) if kind == "`highway_bias`" else kind
    return Initializer("constant", (float(kind),)) if kind[-1].isdigit() else Initializer(kind)


def plain(init: Initializer) -> Initializer:
    if init.kind == FUNCTION:
        return Initializer(f"function `{init.given.__name__}`")
    return Initializer("zeros") if init == Initializer("constant", (0.0,)) else init


def check_parameters(cell: str) -> None:
    _, there = written(cell)
    said = {
        f"c/{name}": (shape, start_of(start, sizes_of(cell)))
        for name, shape, start in listed(cell, "Trained parameters")
    }
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


def test_parameters_of_attention_are_those_of_the_docstring() -> None:
    """Of all kinds together, of which each has some."""
    E, there = 5, {}
    for kind in ("regular", "recurrent", "dot", "soft_coverage"):
        net = ro.Net("net", sizes_for="float32")
        x, encoded = net.input("x", shape=(3, N, D)), net.input("encoded", shape=(4, N, E))
        decoder = ro.cells.GRUCell(D, H, name="decoder")
        cell = ro.cells.AttentionCell(E, encoded, None, decoder, H, kind, name="c")
        cell.apply_over_sequence(net, x)
        there |= {
            spec.name: spec for spec in net.parameters if spec.name.startswith("c/") and "/initial" not in spec.name
        }
        columns = [spec.shape for spec in net.parameters if spec.name == "decoder/reset_gate_t_w"]
        assert columns == [(H, H + E)]
    said = listed_in(own_doc(ro.cells.AttentionCell), "Trained parameters", {"E": E, "H": H})
    assert {f"c/{name}": shape for name, shape, _ in said} == {name: spec.shape for name, spec in there.items()}
    assert all(spec.initializer.kind == ("zeros" if name.endswith("_b") else "xavier") for name, spec in there.items())


# -- equations -------------------------------------------------------------------------------------------------------

BY_HEAD = [name for name, options in OPTIONS.items() if "heads" in options]
NOT_CODE = ("ntm", "layer_norm_milstm")  # places are told in words; what two others say is not said again
ACTIVATIONS: dict[str, Any] = {"basic_rnn": np.tanh, "indrnn": lambda a: np.maximum(a, 0)}


def unit(a: np.ndarray) -> np.ndarray:
    return np.asarray(a / np.sqrt((a**2).sum() + 1e-6))


def normalized(a: np.ndarray, epsilon: float) -> np.ndarray:
    return np.asarray((a - a.mean()) / np.sqrt(a.var() + epsilon))


def split(a: np.ndarray, parts: int | list[int]) -> list[np.ndarray]:
    return np.split(a, parts if isinstance(parts, int) else np.cumsum(parts)[:-1], axis=-1)


FUNCTIONS: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("tanh", "sqrt", "exp", "log", "where", "arange", "outer", "diag", "dot")},
    **{name: name for name in ("receptance", "key", "value", "decay", "rate", "gate")},  # of mixed(...)
    "max": np.maximum,
    "head": 0,
    "unit": unit,
    "swish": lambda a: a / (1 + np.exp(-a)),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "softplus": lambda a: np.log(1 + np.exp(a)),
    "concat": lambda parts, axis=-1: np.concatenate(parts, axis),
    "split": split,
    "mean": lambda a: a.mean(axis=-1, keepdims=True),
    "variance": lambda a: a.var(axis=-1, keepdims=True),
    "g": lambda a: a,  # candidates of minimal cells, where they are not positive
}


def by_cell(name: str) -> tuple[ro.cells.RNNCell, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A cell, feeds of one step, and its results by what the docstring calls them, all without axes of length 1."""
    rng, rows = np.random.default_rng(0), N if name in BY_ROWS else 1
    made, there = written(name, {**({"heads": 1} if name in BY_HEAD else {}), "forget_bias": 0.5})
    net = ro.Net("net", sizes_for="float64")
    letters = [said.split(",")[0] for _, _, said in listed(name, "States")]
    shapes = zip(letters, made.get_state_shapes(), strict=True)
    states = [net.input(f"{letter}_prev", shape=(rows, *shape)) for letter, shape in shapes]
    output, new = made.apply(net, net.input("x", shape=(rows, D)), None, states)
    net.outputs(**{f"out_{letter}": blob for letter, blob in zip(letters, new, strict=True)})
    if named := re.search(r"The output is `(\w+) \[", own_doc(type(made))):
        net.outputs(**{f"out_{named[1]}": output})
    feeds = {key: rng.normal(size=spec.shape) for key, spec in there.items()}
    feeds |= {blob.name: rng.uniform(size=blob.shape) for blob in states}  # adaptations are not negative
    feeds["x"] = rng.normal(size=(rows, D))
    out = {key.removeprefix("out_"): a for key, a in ro.compile(net, device="reference")(feeds).items()}
    params = {key.removeprefix("c/"): a for key, a in feeds.items() if key in there}
    return made, {**params, **{key: a.squeeze() for key, a in feeds.items() if key not in there}}, out


def meanings(name: str, made: ro.cells.RNNCell, feeds: dict[str, np.ndarray]) -> dict[str, Any]:
    """What stands in equations: functions, options, sizes, feeds, and what the text around them explains."""
    d = H if name in BY_HEAD else 5
    sizes = {"S": 5, "d": d, "H": H}
    known: dict[str, Any] = {**FUNCTIONS, **vars(made), **sizes, **feeds, "activation": ACTIVATIONS.get(name)}
    known["normalized"] = lambda a: normalized(a, 1e-5 * (d if name == "rwkv7" else 1))
    known["mixed"] = lambda mix: feeds["x"] + (feeds["x_prev"] - feeds["x"]) * feeds[f"{mix}_mix"]
    if name == "lmu":
        known |= dict(zip("AB", ro.cells.continuous.memory_matrices(5, 64.0), strict=True))
    if name == "layer_norm_lstm":
        gates = feeds["x"] @ feeds["i2h_w"].T + feeds["i2h_b"] + feeds["h_prev"] @ feeds["gates_t_w"].T
        known["z"] = gates + feeds["gates_t_b"]
    return known


def check_equations(name: str) -> None:
    made, feeds, results = by_cell(name)
    blocks = re.findall(r"::\n\n((?:    .*\n)+)", own_doc(type(made)))
    code = (
        "\n".join(map(dedent, blocks)).replace("<head>", "0").replace("= zx + zh", "= [a + b for a, b in zip(zx, zh)]")
    )
    known = meanings(name, made, feeds)
    exec(compile(code, name, "exec"), known)  # our own documents
    for letter, wanted in results.items():
        np.testing.assert_allclose(known[letter], wanted.squeeze(), rtol=1e-9, atol=1e-12, err_msg=letter)


BY_ROWS = [name for name in ro.cells.CELLS if name not in (*BY_HEAD, *NOT_CODE, "selective_ssm")]


def test_equations_compute_what_the_cell_computes() -> None:
    check_each([name for name in own_cells() if name not in NOT_CODE], check_equations)


def own_cells() -> list[str]:
    """Those of the library, without what other tests registered."""
    return [name for name, cell in ro.cells.CELLS.items() if cell.__module__.startswith("rnnops.")]
