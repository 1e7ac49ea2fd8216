"""Equal ops merged: texts before and after, and equal results in the interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.interpreter import Workspace, execute, merge_equal_ops, number_random_ops, prepare, prune, prune_cells
from rnnops.net.schema import RunContext
from rnnops.recurrent.recurrence import Recurrence
from rnnops.types import type_of

Arrays = dict[str, np.ndarray]


def merged(text: str, **options: Any) -> list[str]:
    """The ops that are left of a text, one a line."""
    net = merge_equal_ops(ro.parse_net(text), **options)
    return [line.strip() for line in str(net).splitlines()[1:]]


def results(net: ro.Net, feeds: Arrays, dtype: str) -> Arrays:
    workspace = Workspace()
    workspace.local.update(feeds)
    program = prepare(net, {name: type_of(array) for name, array in feeds.items()}, dtype)
    execute(program, workspace, RunContext(seed=3, training=True))
    return {name: workspace[blob] for name, blob in net.output_blobs.items()}


CHAIN = """
net n(x)
    a = Exp(x)
    b = Exp(x)
    c = Tanh(a)
    d = Tanh(b)
    y = Add(c, d)
    return y, z=d
"""


def test_what_follows_from_equal_ops_is_equal() -> None:
    assert merged(CHAIN) == ["a = Exp(x)", "c = Tanh(a)", "y = Add(c, c)", "return y, z=c"]


def test_a_net_without_equal_ops_is_itself() -> None:
    net = ro.parse_net("net n(x)\n    a = Exp(x)\n    b = Tanh(x)\n    return a, b\n")
    assert merge_equal_ops(net) is net


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Exp(x)", "Tanh(x)"),
        ("Exp(x)", "Exp(z)"),
        ("Sub(x, z)", "Sub(z, x)"),
        ("Exp(x)", "Exp(x) @ head"),
        ("Softmax(x, axis=0)", "Softmax(x, axis=-1)"),
        ('Constant(value=0.0, dtype="float")', 'Constant(value=-0.0, dtype="float")'),
        ('Constant(value=1, dtype="float")', 'Constant(value=true, dtype="float")'),
        (
            'Constant(value=array(int32, [2], [1, 2]), dtype="int32")',
            'Constant(value=array(int64, [2], [1, 2]), dtype="int64")',
        ),
        (
            'Constant(value=array(int32, [2], [1, 2]), dtype="int32")',
            'Constant(value=array(int32, [2, 1], [1, 2]), dtype="int32")',
        ),
    ],
)
def test_different_ops_stay(first: str, second: str) -> None:
    text = f"net n(x, z)\n    a = {first}\n    b = {second}\n    return a, b\n"
    assert len(merged(text)) == 3


@pytest.mark.parametrize(
    "op", ['Constant(value=NaN, dtype="float")', 'Constant(value=array(int32, [2], [1, 2]), dtype="int32")', "Shape(x)"]
)
def test_equal_ops_with_equal_attributes_go(op: str) -> None:
    assert len(merged(f"net n(x)\n    a = {op}\n    b = {op}\n    return a, b\n")) == 2


def test_named_and_kept_blobs_stay() -> None:
    text = "net n(x)\n    a = Exp(x)\n    {}b = Exp(x)\n    return a, b\n"
    assert len(merged(text.format(""))) == 2
    assert len(merged(text.format("*"))) == 3
    assert len(merged(text.format(""), keep=["b"])) == 3


def test_outputs_that_are_left_out_must_agree() -> None:
    text = "net n(x, s)\n    a, _, v = LayerNormalization(x, s)\n    {} = LayerNormalization(x, s)\n    return a, c\n"
    assert len(merged(text.format("b, _, c"))) == 2
    assert len(merged(text.format("b, c, _"))) == 3


def test_random_ops_are_equal_if_they_draw_the_same() -> None:
    text = "net n(x)\n    a, _ = Dropout(x{})\n    b, _ = Dropout(x{})\n    y = Add(a, b)\n    return y\n"
    unnumbered = ro.parse_net(text.format("", ""))
    assert merge_equal_ops(unnumbered) is unnumbered
    numbered = number_random_ops(unnumbered)
    assert merge_equal_ops(numbered) is numbered
    assert len(merged(text.format(", ordinal=4", ", ordinal=4"))) == 3


# -- nets in attributes ------------------------------------------------------------------------------------------------


def stepped(gates: int = 1, recompute: tuple[str, ...] = ()) -> ro.Net:
    """One cell over two sequences, some of them the same; it computes its candidate twice."""
    cell = ro.Net("cell")
    x_t, h_prev, w = cell.inputs("x_t", "h_prev", "w")
    first, second = (ro.tanh(x_t @ w + h_prev) for _ in range(2))
    cell.outputs(h_t=first * second, copy=second)
    net = ro.Net("net")
    x, z, h0 = net.inputs("x", "z", "h0")
    for number, sequence in enumerate((x, z, x)):
        options: dict[str, Any] = {"references": {"w": net.blob("w") if number else net.inputs("w")}}
        results = ro.recurrent_net(
            net,
            cell,
            [("x_t", sequence)],
            [("h_prev", h0)],
            {"h_prev": "h_t"},
            scope=f"r{number}",
            recompute_blobs_on_backward=list(recompute) or None,
            **options,
        )
        net.outputs(**{f"h{number}": results[0], f"copy{number}": results[2]})
    return net


def test_cells_are_merged_within_and_equal_recurrences_are_one() -> None:
    net = merge_equal_ops(stepped())
    assert [op.type for op in net.ops] == ["RecurrentNetwork"] * 2
    cell = Recurrence(net.ops[0], net.name).cell
    assert [op.type for op in cell.ops] == ["MatMul", "Add", "Tanh", "Mul"]
    assert net.output_blobs["h0"] == net.output_blobs["h2"] != net.output_blobs["h1"]


def test_what_is_to_be_recomputed_keeps_its_name() -> None:
    names = [name for name in Recurrence(stepped().ops[0], "net").cell.blob_names if name.startswith("tanh")]
    net = merge_equal_ops(stepped(recompute=tuple(names)))
    assert set(names) <= set(Recurrence(net.ops[0], net.name).cell.blob_names)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_merged_nets_train(device: str) -> None:
    net = stepped()
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 2, 4), "z": (3, 2, 4), "h0": (2, 5), "w": (4, 5)}
    feeds = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    ro.testing.check_gradient(net, feeds, device=device)


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_random_nets_compute_the_same_bits(seed: int) -> None:
    made = ro.testing.random_net(seed)
    before = number_random_ops(twice(made.net))
    after = prune_cells(merge_equal_ops(before))
    assert sum(map(count, after.ops)) < sum(map(count, before.ops))
    feeds = dict(made.feeds)
    wanted, came = (results(net, feeds, "float64") for net in (before, after))
    for name, array in wanted.items():
        assert came[name].tobytes() == array.tobytes(), name


def twice(net: ro.Net) -> ro.Net:
    """A net that does everything twice, from the same inputs; its outputs are those of both."""
    again = ro.parse_net(str(net))
    names = {name: f"{name}_again" for op in net.ops for name in op.outputs if name}
    for op in net.ops:
        inputs = tuple(names.get(name, name) for name in op.inputs)
        again.add_op(replace(op, inputs=inputs, outputs=tuple(names.get(name, "") for name in op.outputs)))
    again.outputs(**{f"{name}_again": again.blob(names.get(blob, blob)) for name, blob in net.output_blobs.items()})
    return again


def count(op: Any) -> int:
    """An op and those of its nets."""
    nets = [value for value in op.attributes.values() if isinstance(value, ro.Net)]
    return 1 + sum(count(inner) for net in nets for inner in net.ops)


def test_an_input_that_is_left_out_needs_no_output_that_is_left_out() -> None:
    """Else an op of which nobody reads anything would stay, as each name that is left out is empty."""
    lines = ["a, _ = Dropout(x, ratio=0.5)", "y = OneHot(i, _, v, depth=[3], axis=-1)", "return y"]
    net = ro.parse_net("\n    ".join(["net n(x, i: int32, v)", *lines]) + "\n")
    assert [op.type for op in prune(net).ops] == ["OneHot"]
