"""Wrong uses of ops: each is an error of ours that names the net and the op."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from op_cases import appended, evaluate

import rnnops as ro
from rnnops.errors import GradientError, NetError, TypeRuleError
from rnnops.net.infer import infer
from rnnops.net.net import Net
from rnnops.net.schema import REGISTRY, RunContext
from rnnops.ops.base import scatter_add, sum_to
from rnnops.ops.shapes import dropout_grad
from rnnops.types import FLOAT, Type

Build = Callable[..., Any]
F, I, B = "float", "int64", "bool"  # noqa: E741 - dtypes of operands


# op, the operands as (dtype, *shape), a part of the message
WRONG_TYPES: list[tuple[Build, list[tuple[Any, ...]], str]] = [
    (ro.add, [(F, 2), (F, 3)], "do not broadcast"),
    (ro.sum, [(F, 2), (F, 3)], "do not broadcast"),
    (ro.max, [(F, 2), (F, 2, 3)], "do not broadcast"),
    (ro.less, [(F, 2), (F, 3)], "do not broadcast"),
    (ro.matmul, [(F, 2, 3), (F, 2)], "inner sizes"),
    (ro.matmul, [(F,), (F, 2)], "rank 1 or more"),
    (ro.matmul, [(F, 2, 1, 3), (F, 3, 3, 1)], "do not broadcast"),
    (ro.solve, [(F, 2, 3), (F, 2, 1)], "not a square matrix"),
    (ro.solve, [(F, 2, 2), (F, 2)], "b needs as many rows as a.*unsqueeze"),
    (ro.solve, [(F, 2, 2), (F, 3, 1)], "b needs as many rows as a"),
    (ro.solve, [(F, 3, 2, 2), (F, 2, 2, 1)], "do not broadcast"),
    (ro.cholesky, [(F, 2)], "not a square matrix"),
    (ro.slogdet, [(F, 3, 2)], "not a square matrix"),
    (ro.gemm, [(F, 2, 3), (F, 2, 3)], "inner sizes"),
    (ro.gemm, [(F, 2), (F, 2, 3)], "multiplies matrices"),
    (ro.gemm, [(F, 2, 3), (F, 3, 1), (F, 4)], "do not broadcast|does not broadcast"),
    (ro.gemm, [(F, 2, 3), (F, 3, 1), (F, 2, 2)], "C does not broadcast"),
    (ro.where, [(F, 2), (F, 2), (F, 2)], "a condition must be bool"),
    (ro.where, [(B, 2), (F, 3), (F, 2)], "do not broadcast"),
    (ro.clip, [(F, 2), (F, 1)], "a bound must be a scalar"),
    (lambda x: ro.gelu(x, approximate="erf"), [(F, 2)], "unknown approximate"),
    (lambda x: ro.reshape(x, [4]), [(F, 2, 3)], "do not fit the shape"),
    (lambda x: ro.reshape(x, [-1, -1]), [(F, 2, 3)], "not a shape"),
    (lambda x: ro.reshape(x, [-2, 3]), [(F, 2, 3)], "not a shape"),
    (lambda x: ro.reshape(x, [2, 3, 0]), [(F, 2, 3)], "not a shape"),
    (lambda x: ro.reshape(x, [-1, 4]), [(F, 2, 3)], "do not fit the shape"),
    (lambda x: ro.reshape(x, [-1, 0], allowzero=1), [(F, 0, 3)], "do not fit the shape"),
    (ro.reshape, [(F, 2, 3), (I, 2)], "'shape' decides a shape"),
    (lambda x: ro.flatten(x, axis=3), [(F, 2, 3)], "axis out of range"),
    (lambda x: ro.flatten(x, axis=1.0), [(F, 2, 3)], "axis out of range"),
    (lambda x: ro.shape(x, "first"), [(F, 2)], "'start' is not an integer"),
    (lambda x: ro.pad(x, [1, 1], "0"), [(F, 2)], "constant_value is not a number"),
    (lambda x, y: ro.softmax_cross_entropy_loss(x, y, ignore_index="pad"), [(F, 2, 3), (I, 2)], "not an integer"),
    (lambda x: ro.squeeze(x, [0]), [(F, 2, 1)], "only axes of size 1"),
    (lambda x: ro.squeeze(x, [2]), [(F, 2, 1)], "axis out of range"),
    (lambda x: ro.squeeze(x, [1, -1]), [(F, 2, 1)], "named twice"),
    (lambda x: ro.unsqueeze(x, [4]), [(F, 2, 1)], "axis out of range"),
    (lambda x: ro.unsqueeze(x, [0, -4]), [(F, 2, 1)], "named twice"),
    (ro.unsqueeze, [(F, 2), (I, 1)], "'axes' decides a shape"),
    (lambda x: ro.transpose(x, [0]), [(F, 2, 1)], "name every axis once"),
    (lambda x: ro.transpose(x, [0, 0]), [(F, 2, 1)], "named twice"),
    (lambda x: ro.expand(x, [3]), [(F, 2)], "do not broadcast"),
    (lambda x: ro.expand(x, [-1]), [(F, 2)], "not a shape"),
    (lambda x: ro.tile(x, [2]), [(F, 2, 1)], "one number of 0 or more per axis"),
    (lambda x: ro.tile(x, [-1]), [(F, 2)], "one number of 0 or more per axis"),
    (lambda *b: ro.concat(b, 1), [(F, 2, 1), (F, 3, 1)], "only axis 1 may differ"),
    (lambda *b: ro.concat(b, 2), [(F, 2, 1), (F, 2, 1)], "axis out of range"),
    (lambda x: ro.split(x, [1, 2]), [(F, 4)], "do not add up"),
    (lambda x: ro.split(x, [5, -1]), [(F, 4)], "do not add up"),
    (lambda x: ro.split(x, 4), [(F, 2)], "do not add up"),
    (lambda x: ro.split(x, 2, axis=1), [(F, 2)], "axis out of range"),
    (lambda x, s: ro.split(x, s, num_outputs=2), [(F, 2), (I, 2)], "'split' decides a shape"),
    (lambda x: ro.slice(x, [0], [1, 2]), [(F, 2, 3)], "lists of one length"),
    (lambda x: ro.slice(x, [0], [1], steps=[0]), [(F, 2, 3)], "no step may be 0"),
    (lambda x: ro.slice(x, [0], [1], axes=[2]), [(F, 2, 3)], "axis out of range"),
    (ro.gather, [(F, 2), (F, 2)], "indices must be integers"),
    (ro.gather, [(F,), (I, 2)], "axis out of range"),
    (lambda x: ro.pad(x, [1]), [(F, 2)], "two numbers for each axis"),
    (lambda x: ro.pad(x, [-2, -1]), [(F, 2)], "more elements are cut off"),
    (lambda x: ro.pad(x, [1, 1], mode="mirror"), [(F, 2)], "unknown mode"),
    (lambda x: ro.pad(x, [1, 1], mode="edge"), [(F, 0)], "empty axis"),
    (lambda x: ro.pad(x, [1, 1], 0.5), [(I, 2)], "does not fit the data"),
    (lambda x, v: ro.pad(x, [1, 1], v), [(F, 2), (F, 2)], "constant_value must be one number"),
    (lambda x: ro.constant_of_shape(x.net, [-1]), [(F, 2)], "sizes of 0 or more"),
    (lambda x: ro.constant_of_shape(x.net, x), [(I, 2)], "'shape' decides a shape"),
    (lambda x: x.net.constant(300, "uint8"), [(F, 2)], "out of range"),
    (lambda x: x.net.constant(0.5, "int32"), [(F, 2)], "does not have this dtype"),
    (ro.range, [(I, 1), (I,)], "'start' must be a scalar"),
    (ro.range, [(I,), (I,)], "'start' decides a shape"),
    (lambda x: ro.range(0, x.net.constant(5), 0), [(F,)], "must not be 0"),
    (lambda x: ro.reduce_sum(x, [1]), [(F, 2)], "axis out of range"),
    (lambda x: ro.reduce_max(x, [0, 0]), [(F, 2)], "named twice"),
    (ro.reduce_mean, [(F, 2), (I, 1)], "'axes' decides a shape"),
    (lambda x: ro.softmax(x, 1), [(F, 2)], "axis out of range"),
    (ro.log_softmax, [(F,)], "axis out of range"),
    (ro.layer_normalization, [(F, 2, 3), (F, 2)], "do not broadcast"),
    (ro.layer_normalization, [(F, 1, 3), (F, 2, 3)], "scale and bias must broadcast"),
    (ro.layer_normalization, [(F, 2, 3), (F, 3), (F, 7, 2, 3)], "scale and bias must broadcast"),
    (lambda i: ro.one_hot(i, 3), [(F, 2)], "indices must be integers"),
    (lambda x, k: ro.topk(x, k), [(F, 2), (I, 1)], "'k' decides a shape"),
    (lambda x: ro.topk(x, x.net.constant([3])), [(F, 2)], "k is out of range"),
    (ro.scatter_elements, [(F, 2, 3), (I, 2, 3), (F, 2, 2)], "updates need one for each index"),
    (lambda *b: ro.scatter_elements(*b, axis=1), [(F, 2, 3), (I, 3, 3), (F, 3, 3)], "indices exceed data"),
    (ro.scatter_elements, [(F, 2, 3), (I, 2), (F, 2)], "indices exceed data"),
    (ro.scatter_elements, [(F, 2, 3), (F, 2, 3), (F, 2, 3)], "indices must be integers"),
    (lambda *b: ro.scatter_elements(*b, reduction="mean"), [(F, 2), (I, 2), (F, 2)], "unknown reduction"),
    (lambda *b: ro.scatter_nd(*b, "add"), [("bool", 2), (I, 2, 1), ("bool", 2)], "bools cannot be reduced"),
    (ro.scatter_nd, [(F, 2, 3), (I, 2, 3), (F, 2)], "rows of indices are too long"),
    (ro.scatter_nd, [(F, 2, 3), (I,), (F, 2, 3)], "rows of indices are too long"),
    (ro.scatter_nd, [(F, 2, 3), (I, 2, 1), (F, 2)], "one slice for each index"),
    (lambda a, b: ro.einsum("ij,jk", a, b), [(F, 2, 3), (F, 2, 3)], "'j' has sizes 3 and 2"),
    (lambda a, b: ro.einsum("...j,...j", a, b), [(F, 2, 3), (F, 4, 3)], "an axis of '...' has sizes 2 and 4"),
    (lambda a: ro.einsum("ii", a), [(F, 1, 3)], "'i' has sizes 3 and 1"),
    (lambda a: ro.einsum("ij", a), [(F, 3)], "does not name the axes"),
    (lambda a: ro.einsum("ij", a), [(F, 3, 2, 2)], "does not name the axes"),
    (lambda *b: ro.batch_normalization(*b), [(F, 4, 3), *[(F, 4)] * 4], "each channel needs one number"),
    (lambda *b: ro.batch_normalization(*b), [(F,), *[(F, 1)] * 4], "x has no axes"),
    (ro.rms_normalization, [(F, 2, 3), (F, 2)], "do not broadcast"),
    (ro.rms_normalization, [(F, 1, 3), (F, 2, 3)], "scale must broadcast"),
    (lambda i, v: ro.one_hot(i, 3, v), [(I, 2), (F, 3)], "values must be two numbers"),
    (lambda i: ro.one_hot(i, -3), [(I, 2)], "number of classes"),
    (lambda i, d: ro.one_hot(i, d), [(I, 2), (I,)], "'depth' decides a shape"),
    (ro.softmax_cross_entropy_loss, [(F, 2, 3), (I, 3)], "labels need scores' shape"),
    (ro.softmax_cross_entropy_loss, [(F, 2, 3), (F, 2)], "labels need scores' shape"),
    (ro.softmax_cross_entropy_loss, [(F, 2, 3), (I, 2), (F, 2)], "not one weight a class"),
    (lambda *b: ro.softmax_cross_entropy_loss(*b, reduction="max"), [(F, 2, 3), (I, 2)], "unknown reduction"),
    (ro.select_valid, [(F, 2, 3), (F, 2), ("int32", 2), ("int32", 1)], "one shape"),
    (ro.select_valid, [(F,), (F,), ("int32",), ("int32", 1)], "have rows"),
    (ro.select_valid, [(F, 2, 3), (F, 2, 3), ("int32", 3), ("int32", 1)], "not seq_lengths of these rows"),
    (ro.select_valid, [(F, 2, 3), (F, 2, 3), (I, 2), ("int32", 1)], "not seq_lengths of these rows"),
    (ro.select_valid, [(F, 2, 3), (F, 2, 3), ("int32", 2), ("int32", 2)], "not timestep of these rows"),
    (lambda x: x.net.append("Dropout", [x], {"ratio": 1.5}), [(F, 2)], "ratio out of range"),
    (lambda x: sum_to(x, (3,)), [(F, 2)], "does not broadcast"),
    (lambda x, i: scatter_add(x, i, 0, 5), [(F, 2), (I, 3)], "do not match"),
    (appended("Normalize"), [(F, 2, 3), (F, 2), (F, 2, 1), (F, 3)], "statistics of these rows"),
    (lambda dy, mask: dropout_grad(dy, mask, 0.5), [(F, 2), (B, 3)], "does not fit the array"),
]


@pytest.mark.parametrize(("build", "kinds", "message"), WRONG_TYPES)
def test_wrong_shapes_and_attributes(build: Build, kinds: list[tuple[Any, ...]], message: str) -> None:
    net = Net("bad")
    blobs = [net.input(f"x{i}", kind[0]) for i, kind in enumerate(kinds)]
    build(*blobs)
    feeds = {f"x{i}": Type("float32" if kind[0] == F else kind[0], kind[1:]) for i, kind in enumerate(kinds)}
    with pytest.raises(TypeRuleError, match=message) as caught:
        infer(net, feeds, "float32")
    assert caught.value.net == "bad"
    assert caught.value.op is not None
    assert caught.value.op.split()[0] == net.ops[-1].type


WRONG_DTYPES: list[tuple[Build, list[str]]] = [
    (ro.add, [F, I]),
    (ro.add, [B, B]),
    (ro.sin, [I]),
    (ro.sigmoid, [B]),
    (ro.matmul, [I, I]),
    (ro.less, [B, B]),
    (ro.equal, [B, I]),
    (ro.and_, [F, F]),
    (ro.not_, [I]),
    (ro.max, [F, I]),
    (ro.where, [B, F, I]),
    (lambda a, b: ro.concat(a, b, axis=0), [F, I]),
    (lambda x, v: ro.pad(x, [1, 1], v), [F, I]),
    (ro.reduce_mean, [I]),
    (ro.reduce_sum, [B]),
    (ro.softmax, [I]),
    (ro.layer_normalization, [F, I]),
    (ro.dropout, [I]),
    (ro.softmax_cross_entropy_loss, [I, I]),
    (ro.clip, [B]),
    (ro.softmax_cross_entropy_loss, [F, I, I]),
    (ro.range, [B, B, B]),
    (sum_to, [B]),
]


@pytest.mark.parametrize(("build", "dtypes"), WRONG_DTYPES)
def test_wrong_dtypes(build: Build, dtypes: list[str]) -> None:
    net = Net("bad")
    blobs = [net.input(f"x{i}", dtype) for i, dtype in enumerate(dtypes)]
    with pytest.raises(TypeRuleError, match=r"^net 'bad', op '\w+ -> .*', blob 'x\d': (dtype not|operands of)"):
        build(*blobs, *([()] if build is sum_to else []))


WRONG_CALLS: list[tuple[Build, str]] = [
    (lambda x: ro.cast(x, "complex64"), "unknown dtype"),
    (lambda x: ro.dropout(x, 1.0), "net 'bad', op 'Dropout': ratio out of range"),
    (lambda x: ro.dropout(x, -0.5), "net 'bad', op 'Dropout': ratio out of range"),
    (lambda x: ro.reshape(x, [1.5]), "net 'bad', op 'Reshape': 'shape' must be a list of integers"),
    (lambda x: ro.reduce_sum(x, "all"), "net 'bad', op 'ReduceSum': 'axes' must be a list of integers"),
    (lambda x: x.reshape(2.0), "net 'bad', op 'Reshape': 'shape' must be a list of integers"),
    (lambda x: ro.split(x, 0), "net 'bad', op 'Split': a split has no pieces"),
    (lambda x: ro.split(x, []), "net 'bad', op 'Split': a split has no pieces"),
    (lambda x: ro.split(x, x.net.constant(np.array([1, 1]))), "net 'bad', op 'Split': a split has no pieces"),
    (lambda x: ro.concat([x]), "net 'bad', op 'Concat': attribute 'axis' is missing"),
    (lambda x: ro.concat([x], 0, 1), "net 'bad': an operand is not a blob"),
    (lambda x: ro.concat([], 0), "at least one blob"),
    (lambda x: x.net.append("Concat", [x, x], {"axes": 0}), "net 'bad', op 'Concat': unknown attribute 'axes'"),
    (lambda x: ro.einsum("i.j", x), "op 'Einsum': this is not an equation: 'i.j' is not a term"),
    (lambda x: ro.einsum("i->ii", x), "the result has a letter twice"),
    (lambda x: ro.einsum("i->j", x), "letters that no operand has: j"),
    (lambda x: ro.einsum("i,i", x), "wanted 2 operands; got 1"),
    (lambda x: ro.einsum(x, x), "this is not an equation"),
    (lambda x: ro.add(x, "1"), "net 'bad': an operand is not a blob"),
    (lambda x: ro.where(x > 0, x, None), "net 'bad': an operand is not a blob"),
    (lambda x: ro.range(0, 5), "at least one blob"),
    (lambda x: ro.conv(x, None, x), "net 'bad', op 'Conv -> .*': input 'W' is left out; wanted a blob"),
    (lambda x: ro.conv(None, x, x), "net 'bad', op 'Conv -> .*': input 'X' is left out"),
    (lambda x: ro.conv_transpose(x, None, x), "net 'bad', op 'ConvTranspose -> .*': input 'W' is left out"),
    (lambda x: ro.max_pool(None, [2]), "at least one blob; got NoneType"),
    (lambda x: x.net.append("Reshape", []), "net 'bad', op 'Reshape -> .*': wrong number of inputs"),
]


@pytest.mark.parametrize(("build", "message"), WRONG_CALLS)
def test_wrong_calls(build: Build, message: str) -> None:
    with pytest.raises(NetError, match=message):
        build(Net("bad").input("x"))


def test_a_size_given_twice_is_an_error() -> None:
    net = Net("bad")
    x = net.input("x")
    net.append("Reshape", [x, net.constant(np.array([2]))], {"shape": [2]})
    with pytest.raises(TypeRuleError, match=r"op 'Reshape -> .*given both"):
        infer(net, {"x": Type("float32", (2,))}, "float32")


@pytest.mark.parametrize("index", [-4, 3, 99])
def test_gather_out_of_range(index: int) -> None:
    net = Net("bad")
    ro.gather(net.input("x"), net.input("i", "int64"))
    feeds = {"x": np.zeros((3, 2)), "i": np.array([0, index])}
    with pytest.raises(TypeRuleError, match=rf"net 'bad', op 'Gather -> .*', blob 'i': .*got {index}"):
        evaluate(net, feeds, "float64", RunContext())


@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize("label", [-1, 3])
def test_labels_that_are_no_class(label: int, expanded: bool) -> None:
    net = Net("bad")
    scores, labels = net.input("scores"), net.input("labels", "int64")
    arrays = {"scores": np.zeros((2, 3)), "labels": np.array([0, label])}
    ro.softmax_cross_entropy_loss(scores, labels, ignore_index=5)
    feeds = {"scores": Type("float64", (2, 3)), "labels": Type("int64", (2,))}
    if expanded:
        call = next(iter(infer(net, feeds, "float64").values()))
        net = Net("bad")
        REGISTRY[call.op.type].expand(call, net.input("scores"), net.input("labels", "int64"))
    message = rf"net 'bad', op '\w+ -> .*a label is not a class; wanted 0 to 2; got {label}"
    with pytest.raises(TypeRuleError, match=message):
        evaluate(net, arrays, "float64", RunContext())


@pytest.mark.parametrize("device", ["reference", "cpu", "cuda"])
def test_matrices_without_a_result(device: str) -> None:
    """In a cell, where the backward pass of a factor solves as well."""
    net = ro.Net("model")
    xs, h0 = net.inputs("xs", "h0")
    step = ro.cell(lambda x, h: {"h": ro.solve(x, h) + ro.cholesky(x) * ro.unsqueeze(ro.slogdet(x)[1], [-2, -1])})
    net.outputs(y=ro.scan(step, xs, h=h0, state_shapes={"h": (3, 3)})[1]["h"])
    run, eye = ro.compile(net, device=device), np.eye(3)
    feeds = {"xs": np.tile(2.0 * eye, (2, 2, 1, 1)), "h0": np.ones((2, 3, 3))}
    assert np.isfinite(run.vjp(feeds)[1]({"y": np.ones((2, 2, 3, 3))})["xs"]).all()
    for wrong, op in ((np.zeros((3, 3)), "(Solve|Cholesky)"), (-eye, "Cholesky")):
        feeds["xs"][1, 1] = wrong
        with pytest.raises(ro.NumericsError, match="singular or not positive definite") as caught:
            run(feeds)
        assert re.fullmatch(rf"{op} -> .*", caught.value.op or "")


def test_integer_powers_below_zero() -> None:
    net = Net("bad")
    ro.pow(net.input("a", "int64"), net.input("b", "int64"))
    with pytest.raises(TypeRuleError, match=r"net 'bad', op 'Pow -> .*', blob 'b': an integer has no power below 0"):
        evaluate(net, {"a": np.array([2]), "b": np.array([-1])}, "float64", RunContext())


def test_range_has_no_gradient() -> None:
    net = Net("bad")
    result = ro.range(net.constant(0.0), 3.0, 1.0)
    call = infer(net, {}, "float64")[result.name]
    assert REGISTRY["Range"].differentiable
    with pytest.raises(GradientError, match=r"net 'bad', op 'Range -> .*has no gradient"):
        REGISTRY["Range"].gradient(call)


def test_dtypes_of_results() -> None:
    net = Net("dtypes")
    x, i = net.input("x"), net.input("i", "int32")
    wanted = {
        x + 1: FLOAT,
        i + 1: "int32",
        x < 0: "bool",
        ro.shape(x): "int64",
        ro.cast(x, np.int8): "int8",
        ro.cast(i, "float"): FLOAT,
        ro.where(x < 0, i, 0): "int32",
        ro.one_hot(i, 3): FLOAT,
        ro.range(0, i): "int32",
        ro.gather(x, i): FLOAT,
        ro.constant_of_shape(net, [2], 1): "int64",
        ro.constant(net, True): "bool",
        ro.one_hot(i, 3, np.array([1, 2], np.int8)): "int8",
    }
    assert {blob.name: blob.dtype for blob in wanted} == {blob.name: dtype for blob, dtype in wanted.items()}
