"""Ops around recurrences fused: texts before and after, agreement with the reference, the same bits for all threads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.rewrite.fuse_ops import fuse_ops, work_around
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.schedule import batch_axis
from rnnops.interpreter import Program, prepare
from rnnops.net.op import Op
from rnnops.types import Shape, Type

Arrays = dict[str, np.ndarray]


def typed(text: str, **shapes: Shape) -> Program:
    net = ro.parse_net(text)
    dtypes = {name: "float32" if net.dtype_of(name) == "float" else net.dtype_of(name) for name in shapes}
    return prepare(net, {name: Type(dtypes[name], shape) for name, shape in shapes.items()}, "float32")


def groups(program: Program) -> list[str]:
    """What is left of a net when all that can be is fused, a fused op written as the types of its ops."""
    fused = fuse_ops(program, ())
    return [f"{', '.join(call.op.outputs)} = {what(call.op)}" for call in fused.calls]


def what(op: Op) -> str:
    if op.type != "FusedOps":
        return op.type
    return f"{' '.join(inner.type for inner in op.attributes['body'].ops)}({', '.join(op.inputs)})"


PROJECTION = """
net n(h, w, c)
    a = MatMul(h, w)
    b = Add(a, c)
    y = Tanh(b)
    return y=y
"""


def test_row_local_ops_become_one() -> None:
    program = typed(PROJECTION, h=(6, 4, 3), w=(3, 5), c=(5,))
    assert groups(program) == ["y = MatMul Add Tanh(h, w, c)"]


def test_steps_are_the_rows_of_a_batch_of_one() -> None:
    """Products of one row of the batch are of all its steps, as those of many are."""
    shapes = {"h": (1, 40, 30), "w": (30, 50), "c": (50,)}
    assert groups(typed(PROJECTION, **shapes)) == ["y = MatMul Add Tanh(h, w, c)"]
    run = ro.compile(ro.parse_net(PROJECTION), tuning=Options(around="rows"))
    text = " ".join(str(run.plan(shapes, backward=False)).split())
    assert "40 rows" in text
    assert "h @ w + c: [40, 30] @ [30, 50]" in text


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 3), (1, 2, 4, 3)])
def test_one_row_that_has_no_steps_stays_one(shape: Shape) -> None:
    """Features are not rows, and a product of many matrices is none of rows with one."""
    text = "net n(h, w)\n    y = MatMul(h, w)\n    return y=y\n"
    w = (1, 2, 3, 5) if len(shape) == 4 else (3, 5)
    assert groups(typed(text, h=shape, w=w)) == ["y = MatMul"]


def test_work_around_recurrences_is_counted() -> None:
    """Of 64 multiply-adds one counts as a result."""
    program = typed(PROJECTION, h=(6, 4, 3), w=(3, 5), c=(5,))
    assert work_around(program) == 6 * 4 * 5 * (3 / 64 + 1 + 1)


def test_kept_blobs_stay_readable() -> None:
    program = typed(PROJECTION, h=(6, 4, 3), w=(3, 5), c=(5,))
    (call,) = fuse_ops(program, ("a",)).calls
    assert call.op.outputs == ("a", "y")


def test_what_mixes_rows_stays_outside() -> None:
    """Rows reversed in time are read across rows."""
    text = """
net n(x)
    a = Exp(x)
    b = Slice(a, starts=[-1], ends=[-100], axes=[0], steps=[-1])
    y = Add(a, b)
    return y=y
"""
    assert groups(typed(text, x=(6, 4))) == ["a = Exp(x)", "b = Slice", "y = Add(a, b)"]


def test_a_sum_over_rows_is_read_by_a_later_group() -> None:
    text = """
net n(x)
    a = Exp(x)
    s = ReduceSum(a, axes=[0])
    y = Div(a, s)
    return y=y
"""
    assert groups(typed(text, x=(6, 4))) == ["a, s = Exp ReduceSum(x)", "y = Div(a, s)"]


def test_a_reshape_of_rows_costs_nothing_outside() -> None:
    text = """
net n(x, w)
    a = Exp(x)
    b = Reshape(a, shape=[-1, 3])
    y = MatMul(b, w)
    return y=y
"""
    assert groups(typed(text, x=(6, 4, 3), w=(3, 5))) == ["a = Exp(x)", "b = Reshape", "y = MatMul(b, w)"]


def test_a_group_waits_for_the_one_that_reads_it() -> None:
    """`b` could run at once, but nothing reads it before `s` is there."""
    text = """
net n(x, z)
    s = ReduceSum(z, axes=[0])
    b = Exp(x)
    y = Mul(b, s)
    return y=y
"""
    assert groups(typed(text, x=(6, 4), z=(5, 4))) == ["s = ReduceSum(z)", "y = Exp Mul(x, s)"]


TURNED = """
net n(encoder, w, dy)
    rows = Transpose(encoder, perm=[1, 0, 2])
    y = MatMul(rows, w)
    rows_t = Transpose(rows, perm=[0, 2, 1])
    each = MatMul(rows_t, dy)
    dw = ReduceSum(each, axes=[0], keepdims=0)
    return y=y, dw=dw
"""


def test_a_view_that_keeps_a_product_from_blocks_stays_outside() -> None:
    """Rows that are turned lie side by side in no order that a product of many rows, or over many, could follow."""
    program = typed(TURNED, encoder=(4, 6, 8), w=(8, 16), dy=(6, 4, 16))
    assert groups(program)[0] == "rows = Transpose"
    run = ro.compile(ro.parse_net(TURNED), tuning=Options(around="rows"))
    random = np.random.default_rng(0)
    feeds = {
        "encoder": random.normal(size=(4, 6, 8)),
        "w": random.normal(size=(8, 16)),
        "dy": random.normal(size=(6, 4, 16)),
    }
    text = " ".join(str(run.plan(feeds)).split())
    assert "y = rows @ w: [24, 8] @ [8, 16]" in text
    assert "+= rows^T @ dy: [24, 8]^T @ [24, 16]" in text


def test_one_hot_codes_are_made_where_they_are_read() -> None:
    """The sum of the codes is needed first; `code` is made twice rather than stored."""
    text = """
net n(labels: int32, classes: int32)
    places = Unsqueeze(labels, axes=[1])
    hot = Equal(places, classes)
    code = Cast(hot, to="float")
    total = ReduceSum(code, axes=[0])
    y = Mul(code, total)
    return y=y
"""
    assert groups(typed(text, labels=(60,), classes=(9,))) == [
        "total = Unsqueeze Equal Cast ReduceSum(labels, classes)",
        "y = Unsqueeze Equal Cast Mul(labels, classes, total)",
    ]


def test_scattered_rows_are_one() -> None:
    text = "net n(g, i: int32)\n    y = ScatterAdd(g, i, axis=0, size=7)\n    return y=y\n"
    assert groups(typed(text, g=(20, 3), i=(20,))) == ["y = ScatterAdd(g, i)"]


# -- results ---------------------------------------------------------------------------------------------------------

ROWS, COLUMNS, CLASSES = 130, 24, 11


def classifier() -> ro.Net:
    """An embedding, a product, a softmax, a loss: all that surrounds a recurrence in a language model."""
    net = ro.Net("classifier")
    tokens, labels = net.input("tokens", "int32"), net.input("labels", "int32")
    x = ro.gather(net.parameter("table", (CLASSES, COLUMNS)), tokens, axis=0)
    x = ro.dropout(ro.layer_normalization(x, net.parameter("s", (COLUMNS,), "ones"), None), 0.3)
    scores = ro.tanh(x) @ net.parameter("w", (COLUMNS, CLASSES)) + net.parameter("b", (CLASSES,))
    loss = ro.softmax_cross_entropy_loss(ro.reshape(scores, [-1, CLASSES]), ro.reshape(labels, [-1]))
    net.outputs(loss=loss, share=ro.softmax(scores, axis=-1), most=ro.reduce_max(scores, axes=[0]))
    return net


def feeds_of(net: ro.Net, dtype: str = "float64", shape: Shape = (ROWS, 2)) -> Arrays:
    rng = np.random.default_rng(0)
    words = {name: rng.integers(0, CLASSES, shape).astype("int32") for name in ("tokens", "labels")}
    return {**ro.init_params(net, 0, dtype), **words}


def results(run: ro.Run, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """Outputs, and gradients for one that is given to each."""
    rng = np.random.default_rng(1)
    out, pullback = run.vjp(dict(feeds), seed=3)
    grads = pullback({name: np.asarray(rng.normal(size=a.shape), a.dtype) for name, a in out.items()})
    return {**out, **{f"grad {name}": grad for name, grad in grads.items()}}


@pytest.mark.parametrize("shape", [(ROWS, 2), (1, ROWS), (1, 1, ROWS)])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_those_of_the_reference(dtype: str, compiled: bool, shape: Shape) -> None:
    net = classifier()
    feeds = feeds_of(net, dtype, shape)
    wanted = results(ro.compile(net, device="reference"), feeds)
    run = ro.compile(net, device="cpu", threads=2, tuning=Options(compiled=compiled, around="rows"))
    assert "fused ops" in run.plan(feeds).describe()
    for name, array in results(run, feeds).items():
        limit = (1e-5 if dtype == "float32" else 1e-12) * max(1.0, np.abs(wanted[name]).max())
        np.testing.assert_allclose(array, wanted[name], rtol=0, atol=limit, err_msg=name)
        assert array.dtype == wanted[name].dtype


@pytest.mark.parametrize("shape", [(ROWS, 2), (1, ROWS)])
def test_threads_change_no_bit(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over more rows than there are parts of a sum are shared by neighbours."""
    monkeypatch.setattr(batch_axis, "LITTLE_WORK", 0)
    net = classifier()
    feeds = feeds_of(net, shape=shape)
    one, *others = (
        results(ro.compile(net, device="cpu", threads=count, tuning=Options(around="rows")), feeds)
        for count in (1, 2, 3)
    )
    for other in others:
        for name, array in one.items():
            np.testing.assert_array_equal(other[name], array, err_msg=name)


def test_an_index_out_of_range_names_the_op() -> None:
    net = classifier()
    feeds = feeds_of(net)
    feeds["tokens"][3, 1] = CLASSES
    run = ro.compile(net, device="cpu", tuning=Options(compiled=False))
    with pytest.raises(ro.TypeRuleError, match="Gather"):
        run(feeds)


def test_memory_of_a_plan_lists_fused_ops() -> None:
    net = classifier()
    run = ro.compile(net, device="cpu", tuning=Options(compiled=False))
    assert run.plan(feeds_of(net)).memory().total > 0


def test_sums_of_integers_over_rows_are_integers() -> None:
    net = ro.Net("sums")
    net.outputs(y=ro.reduce_sum(net.input("x", "int64"), axes=[0]))
    x = np.arange(6, dtype=np.int64).reshape(3, 2) + 2**40
    came = ro.compile(net, tuning=Options(around="rows"))(x=x)["y"]
    assert came.dtype == np.int64
    np.testing.assert_array_equal(came, x.sum(axis=0, keepdims=True))


@pytest.mark.parametrize("shape", [(2, 3), (20, 30)])
def test_a_product_of_a_view_with_a_view_of_it(shape: Shape) -> None:
    """Views come in the order of the net, not of the product's operands."""
    net = ro.Net("square")
    flat = ro.reshape(ro.tanh(net.input("x")), [1, -1])
    net.outputs(y=ro.transpose(flat, perm=[1, 0]) @ flat)
    run = lambda one: ro.compile(one, tuning=Options(around="rows"))  # noqa: E731
    ro.testing.check_devices(net, {"x": np.random.default_rng(0).normal(size=shape)}, {"cpu": run})


BY_CHANNEL = """
net n(x, var)
    c = Constant(value=1e-05, dtype="float")
    a = Add(var, c)
    d = Sqrt(a)
    y = Div(x, d)
    z = Tanh(y)
    return z=z
"""


def test_rows_do_not_lie_side_by_side() -> None:
    """What is computed for each channel does not make channels the rows of what follows from them."""
    program = typed(BY_CHANNEL, x=(1, 48, 32), var=(32,))
    assert groups(program)[-1] == "z = Div Tanh(x, d)"


THERE_AND_BACK = """
net n(x)
    m = ReduceMean(x, axes=[1])
    a = Sub(x, m)
    b = Transpose(a, perm=[1, 2, 0])
    c = Tanh(b)
    d = Mul(c, c)
    e = Transpose(d, perm=[2, 0, 1])
    y = Add(e, x)
    return y=y
"""


def test_what_is_transposed_there_and_back_is_one_group() -> None:
    """Rows lie side by side in between, where nothing is read from memory and nothing written to it."""
    program = typed(THERE_AND_BACK, x=(48, 64, 16))
    assert groups(program) == ["y = ReduceMean Sub Transpose Tanh Mul Transpose Add(x)"]


WINDOWS = """
net n(x)
    a = Slice(x, starts=[0], ends=[7], axes=[1])
    b = Slice(x, starts=[1], ends=[8], axes=[1])
    c = Slice(x, starts=[2], ends=[9], axes=[1])
    d = Slice(x, starts=[3], ends=[10], axes=[1])
    y = Max(a, b, c, d)
    return y=y
"""


def test_windows_are_read_in_place() -> None:
    """By a single row where they overlap, by rows of the batch where there are several."""
    for rows in (1, 6):
        shapes = {"x": (rows, 10, 32)}
        assert groups(typed(WINDOWS, **shapes)) == ["y = Slice Slice Slice Slice Max(x)"]
        text = str(ro.compile(ro.parse_net(WINDOWS), tuning=Options(around="rows")).plan(shapes, backward=False))
        assert ("rows are not shared out" if rows == 1 else "6 rows") in text


PARTS = """
net n(x)
    a = Reshape(x, shape=[80, 16])
    b = Slice(a, starts=[0], ends=[4], axes=[1])
    c = Slice(a, starts=[4], ends=[8], axes=[1])
    d = Slice(a, starts=[8], ends=[12], axes=[1])
    e = Slice(a, starts=[12], ends=[16], axes=[1])
    y = Max(b, c, d, e)
    z = Tanh(y)
    return z=z
"""


def test_many_views_with_rows_are_read_in_rows() -> None:
    """Though the rows of what they are views of are others."""
    assert groups(typed(PARTS, x=(20, 64))) == ["a = Reshape", "z = Slice Slice Slice Slice Max Tanh(a)"]


def test_no_product_is_of_many_views_on_one_row() -> None:
    """Gradients of the weights that meet windows in a row are products in blocks."""
    net = ro.Net("n")
    x, w = net.inputs("x", "w")
    net.outputs(y=ro.concat(*[ro.slice(x, [i], [i + 390], axes=[1]) for i in range(5)], axis=2) @ w)
    text = str(ro.compile(net).plan(x=(1, 400, 64), w=(320, 64), wrt="w"))
    assert "rows are not shared out" not in text
    assert "[390, 320]^T @ [390, 64]" in text


@pytest.mark.parametrize("shape", [(1, 10, 32), (6, 10, 32)])
def test_windows_give_what_the_reference_gives(shape: Shape) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    net = ro.parse_net(WINDOWS)
    found = ro.compile(net, tuning=Options(around="rows"))(x=x)["y"]
    np.testing.assert_array_equal(found, ro.compile(net, "reference")(x=x)["y"])
