"""Nets as text: `str(net)` loses nothing, `parse_net` reads it back and refuses all other text with a ParseError."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from broken_texts import BROKEN

import rnnops as ro
from rnnops.autodiff import differentiate
from rnnops.interpreter import prepare
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.net.schema import REGISTRY, Call, OpSchema, no_gradient, register
from rnnops.net.text import DEPTH, parse_net
from rnnops.ops.base import sum_to
from rnnops.recurrent.training_form import training_form
from rnnops.types import ANY, FLOAT, INTEGERS, Shape, Type


class Probe(OpSchema):
    """An op for these tests that takes anything."""

    inputs = ("anything*",)
    attributes: ClassVar[dict[str, Any]] = {"value": None, "other": None, "count": 1, "body": None, "second_body": None}
    accepts = ANY
    same_dtype = ()
    internal = True
    gradient = no_gradient

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        return int(attributes.get("count", 1))

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return (FLOAT,) * self.output_count(attributes)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.shape(0) if call.has(0) else (),) * len(call.op.outputs)

    def reference(self, call: Call, *arrays: Any) -> Any:
        raise AssertionError("this op is written and read, never run")

    def notes(self, op: Op) -> tuple[str, ...]:
        return ('a note with # and "quotes" and } and return',)


@pytest.fixture(autouse=True, scope="module")
def _probe() -> Iterator[None]:
    register(Probe())
    yield
    del REGISTRY["Probe"]


def exact(value: Any) -> Any:
    """A value with its types spelt out, so that 2, 2.0 and True differ and NaN equals itself."""
    if isinstance(value, Net):
        return content(value)
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, repr(value.ravel().tolist()), value.flags.writeable)
    if isinstance(value, tuple):
        return tuple(exact(item) for item in value)
    return type(value).__name__, repr(value)


def content(net: Net) -> dict[str, Any]:
    """Everything that a net says."""
    blobs = [*net.input_names, *(name for op in net.ops for name in op.outputs if name)]
    return {
        "name": (net.name, net.float_dtype),
        "inputs": repr(net.input_specs),
        "ops": [(op.type, op.inputs, op.outputs, op.layer) for op in net.ops],
        "attributes": [{key: exact(value) for key, value in op.attributes.items()} for op in net.ops],
        "outputs": list(net.output_blobs.items()),
        "blobs": [(name, net.dtype_of(name), net.type_of(name), net.is_capturable(name)) for name in blobs],
    }


def check(net: Net) -> Net:
    """Assert that a net survives its text."""
    read = parse_net(str(net))
    assert str(read) == str(net)
    assert content(read) == content(net)
    return read


def lstm() -> Net:
    net = Net("my_lstm")
    x_t, h_prev, c_prev = net.inputs("x_t", "h_prev", "c_prev")
    w, b = net.parameter("w", (3, 16)), net.parameter("b", (16,), ("uniform", -0.1, 1))
    gates = (x_t @ w + ro.tile(h_prev, [1, 4]) + b).named("gates")
    with net.layer("cell"):
        i, f, o, g = ro.split(gates, 4, axis=-1)
        c = (ro.sigmoid(f) * c_prev + ro.sigmoid(i) * ro.tanh(g)).named("c")
    net.outputs(h_t=ro.sigmoid(o) * ro.tanh(c), c_t=c)
    return net


def model() -> Net:
    net = Net("model")
    xs, h0, c0 = net.inputs("xs", "h0", "c0")
    results = ro.recurrent_net(
        net,
        lstm(),
        [("x_t", xs)],
        [("h_prev", h0), ("c_prev", c0)],
        {"h_prev": "h_t", "c_prev": "c_t"},
        scope="enc",
        recompute_blobs_on_backward=["gates"],
        outputs_with_grads=[0],
        reverse=True,
    )
    net.outputs(*results)
    return net


def trained() -> Net:
    """The model as it runs in training: ops that hold the cell and its gradient net."""
    sizes = {"xs": (5, 2, 3), "h0": (2, 4), "c0": (4,), "enc/w": (3, 16), "enc/b": (16,)}
    feeds = {name: Type("float32", sizes[name]) for name in model().input_names}
    return training_form(prepare(model().snapshot(), feeds, "float32"), ["xs", "enc/w"])


def gradient() -> Net:
    sizes = {"xs": (5, 2, 3), "h0": (2, 4), "c0": (4,), "enc/w": (3, 16), "enc/b": (16,)}
    net = trained()
    feeds = {name: Type("float32", sizes[name]) for name in net.input_names}
    return differentiate(prepare(net, feeds, "float32"), ["xs", "enc/w"]).net


def typed() -> Net:
    """A net whose sizes are known, with sizes computed in the net."""
    net = Net("gradients", float_dtype="float64")
    x, n = net.input("x", shape=(2, 3)), net.input("n", "int32", shape=())
    size = ro.gather(ro.shape(x), [1]) * 2 / 2
    total = sum_to(ro.reshape(x, ro.concat([size, net.constant([2])], axis=0)) * 0.5, (1, 2)).named("total")
    net.append("Probe", [n, total])
    net.outputs(total, total_again=total)
    return net


def probing(level: int = 3) -> Net:
    """Nets in nets, every kind of input, names that are not words."""
    net = Net("level" if level else "deepest net")
    net.input("mask", "bool")
    lengths = net.input("_", "int64", shape=(4,))
    net.input("odd name", "float64", shape=())
    for kind, init in enumerate(["zeros", "ones", 0.5, ("normal", 0, 2), ("xavier", 7), float("inf"), float("-inf")]):
        net.parameter(f"p{kind}", (kind,) * kind, init)
    with net.layer("a layer # with signs"):
        bodies = {"body": probing(level - 1), "second_body": probing(0)} if level else {}
        attributes = {"other": ("x", ((), None)), **bodies, "count": 3, "value": 2.0}
        net.append("Probe", [lengths, None, lengths, None], attributes, ["", "return", None])
    net.blob("probe_0").named("net")
    net.outputs(net.blob("return"), lengths, a=lengths)
    return net


NETS: dict[str, Callable[[], Net]] = {
    "lstm": lstm,
    "model": model,
    "trained": trained,
    "gradient": gradient,
    "typed": typed,
    "probing": probing,
    "empty": lambda: Net("empty"),
}


@pytest.mark.parametrize("build", NETS.values(), ids=NETS.keys())
def test_a_net_survives_its_text(build: Callable[[], Net]) -> None:
    check(build())
    check(build().snapshot())


ARRAYS = [
    *(np.array([[0, 1, 100]], dtype) for dtype in (*INTEGERS, "bool", "float16", "float32", "float64")),
    np.array([0.1, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3e38], np.float32),
    np.array(7.5),
    np.zeros((0, 3)),
    np.array([2**64 - 1]),
    np.arange(12.0).reshape(3, 4).T[::2],
]
VALUES = [
    2,
    2.0,
    -0.0,
    True,
    False,
    1e300,
    5e-324,
    0.1,
    1e22,
    float("nan"),
    float("inf"),
    float("-inf"),
    -(2**70),
    np.float32(0.1),
    np.int8(3),
    np.bool_(True),
    (),
    ((),),
    "",
    "a#b",
    'say "hi"',
    "back\\slash \\n",
    "\n\r\t\0\x7f\x85\u2028\ud800",
    "é 😀",
    "[1, 2]",
    "null",
    [1, 2.0, True, "x", None, [np.nan, ()]],
    (("x_t", 0), ("h", -1)),
    (np.ones(2), (np.zeros(()),)),
    *ARRAYS,
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_attributes_keep_value_and_type(value: Any) -> None:
    net = Net("net")
    net.append("Probe", (), {"value": value, "other": (value,)})
    check(net)


@pytest.mark.parametrize("value", [1j, object(), {"a": 1}, b"x", np.ones(1, np.longdouble), np.array(["x"]), (1, [1j])])
def test_attributes_that_have_no_text_are_refused(value: Any) -> None:
    with pytest.raises(ro.NetError, match="an attribute cannot hold this"):
        Net("net").append("Probe", (), {"value": value})


ODD_NAMES = [
    *"_@=([{}'\\#é*/.:-",
    "__",
    "x.",
    "x/",
    "a/b.c-d",
    "a:b",
    "x:",
    "1st",
    "-1",
    "#c",
    "a#b",
    "a,b",
    "*x",
    "a@b",
    "a=b",
    "a\\n",
    "\\u0041",
    "return",
    "net",
    "param",
    "array",
    "true",
    "NaN",
    "Infinity",
    "-Infinity",
    "float",
    "int32",
    "self",
    "blobs",
    "x y",
    "net m(x)",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_survives(name: str) -> None:
    net = Net(name)
    net.input(name)
    net.append("Probe", [net.blob(name)], names=[name + "1"])
    with net.layer(name):
        net.append("Probe", [net.blob(name + "1")], names=["1" + name])
    net.blob("1" + name).named("2" + name)
    net.outputs(net.blob(name), net.blob("2" + name), **{name + " again": net.blob(name)})
    check(net)


def test_the_mark_says_which_blobs_were_named() -> None:
    net = Net("net")
    x = net.input("x")
    (x + x).named("add_7"), (x + x), net.append("Add", [x, x], names=["sum"])
    (x * x).named("old").named("new")
    read = check(net)
    assert [name for op in read.ops for name in op.outputs if read.is_capturable(name)] == ["add_7", "new"]


def test_a_read_net_grows_and_its_nested_nets_do_not() -> None:
    read = parse_net(str(model()))
    with ro.name_scope("later"):
        y = (read.blob("xs") + read.blob("xs")).named("y")
    read.outputs(y)
    assert "later/y" in read
    check(read)
    with pytest.raises(ro.NetError, match="finished snapshot"):
        read.ops[0].attributes["cell"].input("more")
    again = parse_net(str(lstm()))
    assert (again.blob("x_t") * again.blob("b")).name not in lstm()


def test_open_name_scopes_do_not_matter() -> None:
    text = str(probing(1))
    with ro.name_scope("scope"):
        read = parse_net(text)
    assert str(read) == text


def test_a_net_in_a_handwritten_text() -> None:
    read = parse_net(HANDWRITTEN)
    assert str(read) == PRINTED
    assert read.ops[0].attributes["value"] == ("#", '"', 1.0)
    assert [op.layer for op in read.ops] == ["", "top", ""]
    assert [read.is_capturable(name) for name in ("x", "y", "z")] == [True, True, False]
    check(read)


HANDWRITTEN = """
   # a net that nobody printed
net tiny ( x , w : param [ 2 , 3 ] = ( uniform , -1 , 1e0 ), # as in Python, brackets
n:int32)                                                     # may span lines

 _,*y=Probe(x,_,value=["#","\\"",1e0],count=2){second_body=net inner(a)
return a
body =
    net inner(a, b: float64[])

        return b=a
      }
             "z" = Neg(y)@top   # the end
  w/2 = Add(
      y, x
  )
return z, "x"
"""
PRINTED = """
net tiny(x, w: param[2, 3] = (uniform, -1.0, 1.0), n: int32)
    _, *y = Probe(x, _, value=["#", "\\"", 1.0], count=2) {
        # a note with # and "quotes" and } and return
        second_body =
            net inner(a)
                return a
        body =
            net inner(a, b: float64[])
                return b=a
    }
    z = Neg(y) @ top
    w/2 = Add(y, x)
    return z, x
""".strip()


@pytest.mark.parametrize(("text", "line", "message"), BROKEN, ids=range(len(BROKEN)))
def test_broken_texts_are_errors_that_name_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ro.ParseError) as caught:
        parse_net(text)
    assert f"line {line}: " in str(caught.value)
    assert message in str(caught.value)


def test_only_text_is_read() -> None:
    for wrong in (None, b"net m()\nreturn", 3, ["net"]):
        with pytest.raises(ro.ParseError, match="wanted a string"):
            parse_net(wrong)  # type: ignore[arg-type]


def nest(levels: int) -> Net:
    net = Net("innermost")
    for level in range(levels):
        inner, net = net, Net(f"level_{level}")
        net.append("Probe", (), {"body": inner.snapshot()})
    return net


def test_depth_is_bounded() -> None:
    check(nest(DEPTH - 1))
    with pytest.raises(ro.ParseError, match=f"at most {DEPTH} nets and tuples inside each other"):
        parse_net(str(nest(DEPTH)))
    for count in (DEPTH, 10**6):
        with pytest.raises(ro.ParseError, match="inside each other"):
            parse_net(f"net m()\ny = Probe(value={'[' * count}{']' * count})\nreturn")
    with pytest.raises(ro.ParseError, match="inside each other"):
        parse_net("net m()\ny = Probe() {\nbody = " * 10**5)


LONG_LINE = 10**6 // 4  # bytes
LONG = {
    "blanks": " " * LONG_LINE,
    "lines": "\n" * LONG_LINE,
    "comment": "#" * LONG_LINE,
    "quotes": '"' * LONG_LINE,
    "open string": 'net "' + "\\\\" * LONG_LINE,
    "brackets": "net m" + "(" * LONG_LINE,
    "commas": "net m(" + "," * LONG_LINE,
    "integer": "net m()\ny = Probe(value=" + "1" * LONG_LINE,
    "fraction": "net m()\ny = Probe(value=1." + "1" * LONG_LINE,
    "numbers": "net m()\ny = Probe(value=[" + "1, " * (LONG_LINE // 3) + "1])\nreturn y",
    "name": "net " + "m" * LONG_LINE + "(x)\nreturn x",
    "string": 'net m()\ny = Probe(value="' + "é" * LONG_LINE + '")\nreturn',
    "inputs": "net m(" + ", ".join(f"a{i}" for i in range(LONG_LINE // 8)) + ")\nreturn",
    "twice": "net m(" + "x, " * (LONG_LINE // 3) + "x)\nreturn",
    "arguments": "net m(x)\ny = Sum(" + "x, " * (LONG_LINE // 3) + "x)\nreturn y",
    "ops": "net m(x)\n" + "".join(f"y{i} = Neg(x)\n" for i in range(LONG_LINE // 20)) + "return y1",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_long_lines_take_no_long_time(text: str) -> None:
    start = time.perf_counter()
    with contextlib.suppress(ro.ParseError):
        parse_net(text)
    assert time.perf_counter() - start < 20  # about one second where the time is linear, hours where it is not


def read_or_refuse(text: str) -> bool:
    """Whether the text is a net, which then must survive its own text; else it must be refused with a ParseError."""
    try:
        net = parse_net(text)
    except ro.ParseError as error:
        return "line " not in str(error) and pytest.fail(repr(text))
    return str(parse_net(str(net))) == str(net) or pytest.fail(repr(text))


PIECES = [
    *'()[]{}=,:@*#"\\_.-1\n \t\r\x0c',
    "net ",
    "return",
    "null",
    "NaN",
    "-Infinity",
    "1e999",
    "true",
    "[[",
    "param",
    "array(int8, [1], [1])",
    "10000000000000000000000",
    "-1",
    "2.5",
    '"x"',
    " @ y",
    "= zeros",
    "int64",
    "é",
    "\ud800",
    "Probe",
    "Add",
    "Split",
    "x",
    "axis=",
    "value=",
]


def mutated(text: str, chance: random.Random) -> str:
    """The text with a piece put in, left out, doubled, swapped with another or replaced."""
    a, b, c, d = sorted(chance.choices(range(len(text) + 1), k=4))
    b = min(b, a + chance.choice([0, 1, 2, 5, 30]))
    piece = chance.choice(PIECES)
    lines = text.split("\n")
    i, j = chance.choices(range(len(lines)), k=2)
    lines[i], lines[j] = lines[j], lines[i]
    swapped = text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]
    replaced = text.replace(text[a:b] or "x", piece, 3)
    inserted, overwritten = text[:a] + piece + text[a:], text[:a] + piece + text[b:]
    removed, doubled, cut = text[:a] + text[b:], text[:b] + text[a:], text[:a]
    return chance.choice([inserted, overwritten, removed, doubled, cut, swapped, replaced, "\n".join(lines)])


@pytest.mark.parametrize("count", [200, pytest.param(800, marks=pytest.mark.slow)])
@pytest.mark.parametrize("build", NETS.values(), ids=NETS.keys())
def test_mutated_texts_are_nets_or_parse_errors(build: Callable[[], Net], count: int) -> None:
    chance, text = random.Random(1), str(build())
    read = 0
    for _ in range(count):
        mutant = text
        for _ in range(chance.choice([1, 1, 2, 4])):
            mutant = mutated(mutant, chance)
        read += read_or_refuse(mutant)
    assert 0.01 * count < read < 0.98 * count  # else the mutations are too mild or too wild to show anything
