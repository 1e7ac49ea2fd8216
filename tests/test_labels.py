"""Variables that hold blobs are shown beside them, and change nothing else."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest

import rnnops as ro
from rnnops.net.infer import IS_COPIED
from rnnops.net.text import format_net

SHAPES = {"xs": (5, 2, 3), "h0": (2, 4), "w": (3, 4)}


@ro.cell
def labelled(x, h, *, w):  # type: ignore[no-untyped-def]
    def dense(value, weight):  # type: ignore[no-untyped-def]
        product = value @ weight
        return product

    entered = dense(x, w)
    keep, new = ro.sigmoid(entered), np.tanh(entered)
    keep = keep * 0.5
    _unseen = ro.exp(new)
    gates = (keep + h).named("gates")
    return {"h": gates * new}


def over_time(cell: object) -> ro.Net:
    net = ro.Net("model")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(y=ro.scan(cell, xs, h=h0)[1]["h"])
    return net


def in_module(code: str) -> ro.Net:
    """A net that the code of a module writes."""
    namespace = {"ro": ro, "np": np}
    exec(compile(code, "<module>", "exec"), namespace)
    net: ro.Net = namespace["net"]  # type: ignore[assignment]
    return net


def test_cells_say_their_variables() -> None:
    text = str(labelled.net)
    assert "mat_mul_0 = MatMul(x, w)  # entered" in text
    assert "sigmoid_0 = Sigmoid(mat_mul_0)  # keep" in text
    assert "tanh_0 = Tanh(mat_mul_0)  # new" in text
    assert "mul_0 = Mul(sigmoid_0, constant_0)  # keep" in text  # a variable may have held several
    assert "_unseen" not in text
    assert "*gates = Add(mul_0, h)\n" in text


def test_modules_say_theirs_loops_included() -> None:
    code = (
        "net = ro.Net('n')\nx = net.input('x')\nleft, right = ro.split(x, 2, axis=0)\nboth = left + right\n"
        "for _ in range(2):\n    both = np.tanh(both)\nnet.outputs(y=both)\n"
    )
    assert in_module(code).labels.names == {
        "split_0": "left", "split_1": "right", "add_0": "both", "tanh_0": "both", "tanh_1": "both",
    }  # fmt: skip


def test_text_reads_back_with_them() -> None:
    net = over_time(labelled)
    assert "# keep" in str(net)
    assert str(ro.parse_net(str(net))) == str(net)
    plain = ro.parse_net(format_net(net, labelled=False))
    assert not plain.labels.names
    assert str(plain) == format_net(net, labelled=False)


def test_other_comments_are_no_labels() -> None:
    text = "net n(x)  # x\n    # alone\n    a = Tanh(x)  # two words\n    b = Tanh(a)  # b, c\n    return b"
    assert not ro.parse_net(text).labels.names


def test_runs_keep_them_when_copied() -> None:
    assert "variables: entered is mat_mul_0" in str(deepcopy(ro.compile(over_time(labelled))).plan(SHAPES))


def test_nothing_binds_to_them() -> None:
    net = in_module("net = ro.Net('n')\nx = net.input('x')\nkept = np.tanh(x)\nnet.outputs(y=kept * 2.0)")
    assert "kept" not in net
    assert not net.is_capturable("tanh_0")
    with pytest.raises(ro.RnnopsError, match="kept"):
        ro.compile(net, checkpoints=["kept"])


def test_plans_kernels_and_pictures_show_them() -> None:
    net = over_time(labelled)
    plan = ro.compile(net).plan(SHAPES)
    said = "variables: entered is mat_mul_0"
    assert said in str(plan)
    assert f"# {said}" in plan.source
    assert "entered: mat_mul_0" in net.draw(**SHAPES).svg


def test_code_and_results_are_those_of_a_net_without_them() -> None:
    net = over_time(labelled)
    plain = ro.parse_net(format_net(net, labelled=False))
    feeds = {name: np.random.default_rng(0).normal(size=shape).astype("float32") for name, shape in SHAPES.items()}
    (out, pullback), (expected, pullback_of_plain) = (ro.compile(one).vjp(feeds) for one in (net, plain))
    np.testing.assert_array_equal(out["y"], expected["y"])
    grads, wanted = (one({"y": np.ones_like(out["y"])}) for one in (pullback, pullback_of_plain))
    for name in wanted:
        np.testing.assert_array_equal(grads[name], wanted[name])
    modules = [
        [line for line in ro.compile(one).plan(feeds).source.splitlines() if not line.startswith("#")]
        for one in (net, plain)
    ]
    assert modules[0] == modules[1]


def test_copies_and_passes_keep_them() -> None:
    net = over_time(labelled)
    assert net.snapshot().labels.names == net.labels.names
    renamed = in_module(
        "net = ro.Net('n')\nx = net.input('x')\na = ro.exp(x)\nb = a + 1.0\na.named('first')\nnet.outputs(b)"
    )
    assert renamed.labels.names == {"add_0": "b"}


@pytest.mark.skipif(not IS_COPIED, reason="variables of functions are a view")
def test_functions_that_outlive_their_net_keep_nothing_alive() -> None:
    class Big:
        pass

    def write() -> weakref.ref[Big]:
        big = Big()
        seen = weakref.ref(big)
        net = ro.Net("n")
        y = np.tanh(net.input("x"))
        net.outputs(y=y * 2.0)
        del big
        gc.collect()
        assert seen() is None
        return seen

    write()


def test_cells_keep_nothing_alive() -> None:
    class Big:
        pass

    seen: list[weakref.ref[Big]] = []

    @ro.cell
    def step(x, h):  # type: ignore[no-untyped-def]
        big = Big()
        seen.append(weakref.ref(big))
        y = x + h
        return {"h": np.tanh(y)}

    gc.collect()
    assert seen
    assert all(one() is None for one in seen)


def test_other_values_are_never_looked_into() -> None:
    class Shy:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(name)

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]

    @ro.cell
    def step(x, h):  # type: ignore[no-untyped-def]
        shy = Shy()
        total = x + h
        return {"h": np.tanh(total) if shy is not None else x}

    assert step.net.labels.names == {"add_0": "total"}


def test_blobs_of_other_nets_do_not_count() -> None:
    code = (
        "other = ro.Net('o')\na = np.tanh(other.input('x'))\nnet = ro.Net('n')\nb = np.tanh(net.input('x'))\n"
        "net.outputs(y=b)\nother.outputs(y=a)"
    )
    assert in_module(code).labels.names == {"tanh_0": "b"}


def test_namespaces_of_other_kinds_are_left_alone() -> None:
    class Strict(dict[str, object]):
        def get(self, *_: object) -> object:
            raise AssertionError("asked")

    held = Strict()
    exec("net = ro.Net('n')\ny = np.tanh(net.input('x'))\nnet.outputs(y=y)", {"ro": ro, "np": np}, held)
    net = held["net"]
    assert isinstance(net, ro.Net)
    assert not net.labels.names


@pytest.mark.parametrize("written", [lambda net: [np.tanh(net.input("x")) for _ in range(1)]])
def test_comprehensions_and_lambdas(written: Callable[[ro.Net], list[ro.Blob]]) -> None:
    net = ro.Net("n")
    net.outputs(y=written(net)[0])
    assert set(net.labels.names) <= {"tanh_0"}
