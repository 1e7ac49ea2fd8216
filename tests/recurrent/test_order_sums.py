"""Sums of products in a cell: texts before and after, and where sums stay as they were written."""

from __future__ import annotations

import pytest

import rnnops as ro
from rnnops.interpreter import Program, prepare
from rnnops.ops.base import MANY_OPERANDS
from rnnops.recurrent.cell_rewrites import order_in_step, order_sums
from rnnops.types import Type

SHAPES = {"x": (3, 5), "h": (3, 4), "c": (3, 4), "w": (5, 4), "u": (4, 4), "b": (4,), "d": (4,)}
HEAD = "net n(x, h, c, w, u, b, d)\n    p = MatMul(x, w)\n    q = MatMul(h, u)\n"


def ordered(lines: str, dtype: str = "float32") -> list[str]:
    """The sums of a step after the pass, and what it returns."""
    net = ro.parse_net(HEAD + "".join(f"    {line.strip()}\n" for line in lines.strip().splitlines()))
    step = prepare(net, {name: Type(dtype, SHAPES[name]) for name in net.input_names}, dtype)
    made = order_in_step(step, weights=("w", "u", "b", "d"), states=("h",))
    return [line.strip() for line in str(made).splitlines()[3:]]


def test_products_of_no_state_come_first_then_a_bias_then_products_of_states() -> None:
    written = """
        a = Add(q, d)
        e = Add(p, b)
        f = Add(a, e)
        y = Add(c, f)
        return y
    """
    assert ordered(written) == ["y = Sum(p, d, q, c, b)", "return y"]


def test_the_order_of_a_sum_does_not_matter() -> None:
    first = ordered("a = Add(p, q)\ny = Add(a, b)\nreturn y")
    assert first == ordered("a = Add(b, p)\ny = Add(q, a)\nreturn y") == ["y = Sum(p, b, q)", "return y"]


AS_WRITTEN = {
    "one product": "a = Add(p, b)\ny = Add(a, c)\nreturn y",
    "two operands": "y = Add(p, q)\nreturn y",
    "a sum that is read twice": "a = Add(p, q)\ne = Exp(a)\nf = Add(a, b)\ny = Mul(e, f)\nreturn y",
    "a sum that is an output": "a = Add(p, q)\ny = Add(a, b)\nreturn y, a",
    "a sum with a name": "*a = Add(p, q)\ny = Add(a, b)\nreturn y",
    "a sum of another layer": "a = Add(p, q) @ other\ny = Add(a, b)\nreturn y",
    "an operand that comes twice": "a = Add(p, p)\ny = Add(a, q)\nreturn y",
    "a smaller sum": "a = Add(b, d)\ne = Add(p, q)\nf = Exp(e)\ny = Add(f, a)\nreturn y",
}


@pytest.mark.parametrize("what", AS_WRITTEN)
def test_other_sums_stay_as_they_were_written(what: str) -> None:
    assert ordered(AS_WRITTEN[what]) == AS_WRITTEN[what].splitlines()


@pytest.mark.parametrize(("last", "again"), [("e = Add(a, b)\n    y = Tanh(e)", ("e",)), ("y = Add(a, b)", ())])
def test_the_sum_that_takes_in_what_is_computed_again_is_computed_again(last: str, again: tuple[str, ...]) -> None:
    """But for a state, which is at hand."""
    cell = ro.parse_net(f"{HEAD}    a = Add(p, q)\n    {last}\n    return y\n")
    (op,) = order_sums(recurrence_with(cell, "a")).ops
    assert [inner.type for inner in op.attributes["cell"].ops][:3] == ["MatMul", "MatMul", "Sum"]
    assert op.attributes["recompute"] == again


def recurrence_with(cell: ro.Net, again: str) -> Program:
    """A recurrence of a cell, of which one blob is computed again."""
    net = ro.Net("outer")
    references = {name: net.input(name) for name in "wubdc"}
    more = {"references": references, "recompute_blobs_on_backward": again}
    net.outputs(
        y=ro.recurrent_net(net, cell, [("x", net.input("xs"))], [("h", net.input("h0"))], {"h": "y"}, **more)[0]
    )
    types = {"xs": (2, *SHAPES["x"]), "h0": SHAPES["h"], **{name: SHAPES[name] for name in references}}
    return prepare(net, {name: Type("float32", shape) for name, shape in types.items()}, "float32")


def test_a_sum_of_very_many_operands_stays() -> None:
    lines = ["s0 = Add(p, q)"]
    lines += [f"e{i} = Identity(c)\ns{i + 1} = Add(s{i}, e{i})" for i in range(MANY_OPERANDS)]
    written = "\n".join([*lines, f"return y=s{MANY_OPERANDS}"])
    assert ordered(written) == written.splitlines()
