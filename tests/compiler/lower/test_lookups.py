"""Look-ups and labels at run time: the reference's error for what is out of range, and no memory but the blob's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from devices import DEVICES
from scan_cases import recurrent
from small_programs import memory_of, program_of, texts_of

import rnnops as ro
from rnnops.compiler.lower.movements import lower_check_labels, lower_gather, lower_scatter_add
from rnnops.compiler.lower.scan import Lowered, UnsupportedError
from rnnops.compiler.lower.statements import Access, Layout
from rnnops.types import Type

T, N, D = 4, 3, 5
Arrays = dict[str, np.ndarray]
COMPILED = ["plain", "cpu"]


def table_net() -> ro.Net:
    """`h_t = tanh(h + table[i])`; reading past the table by much would end the process."""
    cell = ro.Net("embedding")
    i, h, table = cell.input("i", "int32"), cell.input("h"), cell.input("table")
    cell.outputs(h_t=ro.tanh(h + ro.gather(table, i, axis=0)))
    net = ro.Net("outer")
    results = ro.recurrent_net(net, cell, [("i", net.input("ids", "int32"))], [("h", net.input("h0"))], {"h": "h_t"})
    net.outputs(y=results[0])
    return net


def feeds_with(ids: np.ndarray) -> Arrays:
    rng = np.random.default_rng(0)
    return {"ids": ids.astype("int32"), "h0": rng.normal(size=(N, D)), "table": rng.normal(size=(7, D))}


def good_ids() -> np.ndarray:
    return np.random.default_rng(1).integers(-7, 7, (T, N))


def test_negative_indices_count_from_the_end() -> None:
    ro.testing.check_devices(table_net(), feeds_with(good_ids()), {name: DEVICES[name] for name in COMPILED})


@pytest.mark.parametrize("wrong", [7, -8, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("device", COMPILED)
def test_an_index_out_of_range_is_the_references_error(device: str, training: bool, wrong: int) -> None:
    ids = good_ids()
    ids[2, 1] = wrong
    run, reference = DEVICES[device](table_net()), DEVICES["reference"](table_net())
    messages = []
    for one in (reference, run):
        with pytest.raises(ro.TypeRuleError) as caught:
            one.vjp(feeds_with(ids)) if training else one(feeds_with(ids))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert str(wrong) in messages[0]
    assert "Gather" in messages[0]
    same = run(feeds_with(good_ids()))["y"]
    np.testing.assert_allclose(
        same, reference(feeds_with(good_ids()))["y"], rtol=1e-12, err_msg="the run is as good as new"
    )


@pytest.mark.parametrize("wrong", [7, -8])
def test_a_wrong_index_past_the_end_of_a_row_is_found_too(wrong: int) -> None:
    """Rows that are over cost no product, but what they look up is checked as the reference does."""
    cell = ro.Net("embedding")
    i, h, table, w = cell.input("i", "int32"), cell.input("h"), cell.input("table"), cell.input("w")
    n, t = cell.input("n", "int32"), cell.input("t", "int32")
    new = ro.tanh(h @ w + ro.gather(table, i, axis=0))
    cell.outputs(h_t=cell.append("SelectValid", [new, h, n, t], {"drop": 0})[0])
    net = ro.Net("outer")
    ids, h0, lengths = net.input("ids", "int32"), net.input("h0"), net.input("lengths", "int32")
    options = {"timestep": "t", "references": {"n": lengths}}
    net.outputs(y=ro.recurrent_net(net, cell, [("i", ids)], [("h", h0)], {"h": "h_t"}, **options)[0])
    feeds = {**feeds_with(good_ids()), "w": np.eye(D), "lengths": np.array([4, 2, 4], "int32")}
    run = DEVICES["plain"](net)
    np.testing.assert_allclose(run(feeds)["y"], DEVICES["reference"](net)(feeds)["y"], rtol=1e-12)
    (plan,) = run._forward._plans.values()
    assert [kernel.compiled.plan.lengths for kernel in plan.compiled.kernels] == ["n"], "rows shrink"
    feeds["ids"][3, 1] = wrong
    with pytest.raises(ro.TypeRuleError, match=f"came|got {wrong}"):
        run(feeds)


def label_net(ignore_index: int | None = None) -> ro.Net:
    """A loss at every step of a recurrence."""
    cell = ro.Net("loss")
    x, w = cell.inputs("x", "w")
    label, h = cell.input("label", "int64"), cell.input("h")
    h_t = ro.tanh(x + h)
    loss = ro.softmax_cross_entropy_loss(h_t @ w, label, reduction="none", ignore_index=ignore_index)
    cell.outputs(h_t=h_t, loss=loss)
    net = ro.Net("outer")
    inputs = [("x", net.input("xs")), ("label", net.input("labels", "int64"))]
    results = ro.recurrent_net(net, cell, inputs, [("h", net.input("h0"))], {"h": "h_t"})
    net.outputs(loss=results[2])
    return net


def label_feeds(labels: np.ndarray) -> Arrays:
    rng = np.random.default_rng(3)
    feeds = {name: rng.normal(size=shape) for name, shape in {"xs": (T, N, D), "h0": (N, D), "w": (D, 4)}.items()}
    return {**feeds, "labels": labels.astype("int64")}


@pytest.mark.parametrize("ignore_index", [None, -1, 2, 2**40])
def test_labels_count_or_are_ignored(ignore_index: int | None) -> None:
    labels = np.random.default_rng(4).integers(0, 4, (T, N))
    if ignore_index is not None:
        labels[1] = ignore_index
    ro.testing.check_devices(label_net(ignore_index), label_feeds(labels), {"plain": DEVICES["plain"]})


@pytest.mark.parametrize(("wrong", "ignore_index"), [(4, None), (-1, None), (-1, 0), (2**40, -1)])
def test_a_label_that_is_no_class_is_the_references_error(wrong: int, ignore_index: int | None) -> None:
    labels = np.ones((T, N))
    labels[3, 2] = wrong
    messages = []
    for device in ("reference", "plain"):
        with pytest.raises(ro.TypeRuleError, match="a label is not a class") as caught:
            DEVICES[device](label_net(ignore_index)).vjp(label_feeds(labels))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert str(wrong) in messages[0]


Look = Callable[[ro.Blob, ro.Blob], ro.Blob]
LOOKS: dict[str, tuple[Look, int]] = {  # `[N, ...]` of states [N, D] and D indices below a size
    "in features": (lambda h, i: ro.gather(ro.tanh(h), i, axis=1), D),
    "in rows": (lambda h, i: ro.transpose(ro.gather(ro.tanh(h), i, axis=0), perm=[1, 0]), N),
    "in a view": (lambda h, i: ro.transpose(ro.gather(ro.transpose(h, perm=[1, 0]), i, axis=0), perm=[1, 0]), D),
    "in a part": (lambda h, i: ro.gather(ro.slice(h, [1], [4], [1]), i, axis=1), 3),
    "in a single number": (lambda h, i: ro.gather(ro.reduce_sum(h, axes=[1]), i, axis=1), 1),
    "of a look-up": (lambda h, i: ro.gather(ro.gather(h, i, axis=1), i, axis=1), D),
    "with indices from behind": (lambda h, i: ro.gather(h, ro.slice(i, [-1], [-99], [0], [-1]), axis=1), D),
    "with a matrix of indices": (lambda h, i: ro.gather(h, ro.unsqueeze(i, [1]), axis=1), D),
    "with computed indices": (lambda h, i: ro.gather(h, i + ro.cast(ro.less(i, 0), "int32"), axis=1), D),
    "in a table of numbers": (lambda h, i: ro.gather(h.net.constant(np.arange(4.0)), i, axis=0) * h, 4),
    "in a number": (lambda h, i: ro.gather(h.net.constant(np.array([0.5])), i, axis=0) * h, 1),
}


@pytest.mark.parametrize("name", LOOKS)
def test_look_ups_of_many_kinds(name: str) -> None:
    """Values and gradients; then the same error where an index is one too large."""
    look, size = LOOKS[name]
    cell = ro.Net("cell")
    h, i = cell.input("h"), cell.input("i", "int32")
    cell.outputs(h_t=ro.tanh(h + ro.reduce_mean(look(h, i), keepdims=0)))
    net, rng = recurrent(cell, {}, {"h": "h_t"}, steps=T), np.random.default_rng(5)
    feeds = {"h0": rng.normal(size=(N, D)), "i": rng.integers(-size, size, D).astype("int32")}
    ro.testing.check_devices(net, feeds, {"plain": DEVICES["plain"]})
    feeds["i"][3] = size
    messages = []
    for device in ("reference", "plain"):
        with pytest.raises(ro.TypeRuleError) as caught:
            DEVICES[device](net)(feeds)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


# -- as statements -----------------------------------------------------------------------------------------------------

INDEX = Access("i", Layout(0, (2, 3), (1, 0)))
LOWER = {"Gather": lower_gather, "ScatterAdd": lower_scatter_add, "CheckLabels": lower_check_labels}


def lowered_alone(text: str, known: list[int] | None = None) -> Lowered:
    """One op on x [2, 3] and two indices i, which may be known before a run."""
    inputs: dict[str, Any] = {"x": (2, 3), "i": Type("int32", (2,))} if "x" in text else {"i": Type("int32", (2,))}
    program = program_of(text, **inputs)
    found, (call,) = memory_of(program), program.calls
    if known is not None:
        found.know("i", np.array(known))
    LOWER[call.op.type](found, call)
    return found


def test_a_look_up_reads_through_its_index() -> None:
    (statement,) = lowered_alone("y = Gather(x, i, axis=0)").statements
    assert str(statement) == "y[2, 3] = copy(x)"
    assert statement.operands == (Access("x", Layout(0, (2, 3), (0, 1)), INDEX, 3, 2),)
    assert statement.may_fail()


def test_an_index_that_is_known_makes_a_view_or_a_copy() -> None:
    turned = lowered_alone("y = Gather(x, i, axis=0)", [1, -2])
    assert (texts_of(turned), turned.views["y"]) == ([], Access("x", Layout(3, (2, 3), (-3, 1))))
    with pytest.raises(UnsupportedError, match="out of range"):
        lowered_alone("y = Gather(x, i, axis=0)", [1, 2])


def test_slices_are_added_to_zeros_where_the_index_says() -> None:
    found = lowered_alone("y = ScatterAdd(x, i, axis=0, size=5)")
    assert texts_of(found) == ["y[5, 3] = copy(0)", "y[2, 3] add= copy(x)"]
    assert found.statements[1].target == Access("y", Layout(0, (2, 3), (0, 1)), INDEX, 3, 5)


def test_labels_are_looked_at() -> None:
    (statement,) = lowered_alone("y = CheckLabels(i, classes=3)").statements
    assert str(statement) == "y[2] = labels(i)"
    assert statement.may_fail()
