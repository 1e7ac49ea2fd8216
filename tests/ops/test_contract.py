"""What an op must say: each wrong way to say it is an error that names the op, at once or when it runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MethodType
from typing import Any, ClassVar

import numpy as np
import pytest
from devices import PLAIN
from own_ops import OWN, Distance, Mirror, NonzeroProduct, registered

import rnnops as ro
from rnnops.net.loop_forms import KERNELS, Expansion, Kernel, Pointwise, ProductForm, Reduction, View
from rnnops.net.schema import REGISTRY, Call, OpSchema, no_gradient, register
from rnnops.ops.base import Binary, Unary, Variadic
from rnnops.types import ANY

SUM = "{a} + {b}"


def same(schema: Any, call: Call, *arrays: Any) -> Any:
    return np.array(arrays[0])


class Right(Unary):
    """A copy; what follows changes one thing each."""

    attributes: ClassVar[dict[str, Any]] = {"alpha": 1.0, "mode": "none"}
    loop = Pointwise("{0}")
    reference = same

    def gradient(self, call: Call, x: Any, y: Any, dy: Any) -> Any:
        return dy


class Bare(OpSchema):
    """An op that says nothing."""

    gradient = no_gradient


def wrong(base: type[OpSchema] = Right, **changed: Any) -> OpSchema:
    """An op `Wrong` that is another with some of its attributes changed."""
    schema: OpSchema = type("Wrong", (base,), changed)()
    return schema


LOOPS: dict[str, tuple[OpSchema, str]] = {
    # each loop form, said wrongly
    "no form": (wrong(loop="{0} * 2"), "its loop form has a wrong type; wanted an instance"),
    "a class for a form": (wrong(loop=Pointwise), "its loop form has a wrong type; wanted an instance"),
    "an unknown function": (wrong(loop=Pointwise("cube({0})")), "there is no scalar function 'cube'"),
    "a function of other operands": (wrong(loop=Pointwise("maximum({0})")), "maximum takes 2 operands"),
    "an unknown word": (wrong(loop=Pointwise("{0} * pi")), "'pi' is not a word of texts"),
    "a function that is not called": (wrong(loop=Pointwise("{0} * tanh")), "'tanh' is a function, and not called"),
    "no Python": (wrong(loop=Pointwise("{0} *")), "is not an expression"),
    "no text": (wrong(loop=Pointwise(2.0)), "the text must be a string, not 2.0"),  # type: ignore[arg-type]
    "an attribute of Python": (wrong(loop=Pointwise("{0}.real")), "is not allowed in a text"),
    "an operator of Python": (wrong(loop=Pointwise("{0} ** 2")), "has an operator that texts do not have"),
    "a string": (wrong(loop=Pointwise("'a'")), "'a' is not a number"),
    "a word of ours": (wrong(loop=Pointwise("place_0")), "a word that begins with 'place_'"),
    "an operand that is not there": (wrong(loop=Pointwise("{0} + {1}")), "names '{1}', and there is 0, alpha"),
    "an attribute that is not there": (wrong(loop=Pointwise("{beta} * {0}")), "names '{beta}'"),
    "an attribute that is not a number": (wrong(loop=Pointwise("{0} + {mode}")), "names '{mode}'"),
    "operands that are not there": (wrong(loop=Pointwise("{0}", begins=((1, 0),))), "`begins` of its loop form"),
    "a view of nothing": (wrong(Bare, inputs=(), loop=View(), shapes=same, reference=same), "the op has none"),
    "a reduction without axes": (wrong(loop=Reduction(SUM, 0)), "Reduction, and it has no rule `reduced_axes`"),
    "a combination of one": (wrong(NonzeroProduct, loop=Reduction("{a}", 0)), "does not combine {a} and {b}"),
    "a combination of others": (
        wrong(NonzeroProduct, loop=Reduction("{acc} + {x}", 0)),
        "the combine of its loop form",
    ),
    "a start that is not a number": (wrong(NonzeroProduct, loop=Reduction(SUM, "0")), "`start` of its loop form"),  # type: ignore[arg-type]
    "elements of nothing": (wrong(NonzeroProduct, loop=Reduction(SUM, 0, "1")), "does not read {0}"),
    "elements of others": (wrong(NonzeroProduct, loop=Reduction(SUM, 0, "{0} * {x}")), "the element of its loop form"),
    "a finish of others": (wrong(NonzeroProduct, loop=Reduction(SUM, 0, finish="{n}")), "the finish of its loop form"),
    "an expansion into nothing": (wrong(loop=Expansion()), "Expansion, and it has no rule `expand`"),
    "an expansion of others": (wrong(loop=Expansion(), expand=lambda self, call: None), "does not take 2 arguments"),
    "a product of one": (wrong(loop=ProductForm()), "multiplies two inputs into one output"),
    "a product of other operands": (
        wrong(loop=ProductForm("float8")),
        "has operands as they are, rounded to bfloat16, float16, tfloat32, right ones of int8, or bytes,",
    ),
    "a product of integers": (
        wrong(Binary, loop=ProductForm(), reference=same, gradient=no_gradient),
        "multiplies floats",
    ),
    "an unknown kernel": (wrong(loop=Kernel("sort")), "there is no kernel 'sort', but gather"),
    "a kernel of other ops": (wrong(loop=Kernel("gather")), "reads 2 inputs and the attributes axis"),
}
RULES: dict[str, tuple[OpSchema, str]] = {
    "no shapes": (wrong(Bare, reference=same), "it has no rule `shapes`"),
    "no reference": (wrong(Unary, gradient=no_gradient), "it has no rule `reference`"),
    "no gradient": (wrong(Unary, reference=same), "it has no rule `gradient`.*`differentiable = False`"),
    "shapes of no call": (wrong(shapes=lambda self: ()), "its rule `shapes.*does not take 1 arguments"),
    "dtypes of a call": (wrong(dtypes=lambda self, call: ("float",)), "its rule `dtypes.*does not take 2"),
    "a reference without operands": (wrong(reference=lambda self, call: 0), "its rule `reference.*does not take 2"),
    "a reference of two": (wrong(reference=lambda self, call, a, b: a), "its rule `reference.*does not take 2"),
    "no context": (wrong(uses_context=True, reference=lambda self, call, x: x), "2 arguments and `context=`"),
    "a gradient without the result": (wrong(gradient=lambda self, call, x, dy: dy), "`gradient.*does not take 4"),
    "a function of C": (wrong(reference=staticmethod(max)), "its `reference` has arguments that cannot be read"),
    "a partial of others": (
        wrong(reference=property(lambda self: MethodType(partial(lambda self, call: 0), self))),
        "its rule `reference.*does not take 2",
    ),
    "a rule that is none": (wrong(reference="x"), "its `reference` is not a method"),
    "one operand of many": (
        wrong(Variadic, reference=lambda self, call, a, b: a, gradient=no_gradient),
        "its rule `reference.*does not take 5",
    ),
    "keeps what is not there": (wrong(keeps=("x",)), "unknown port in `keeps`; wanted a tuple of X, Y"),
    "keeps a string": (wrong(keeps="X"), "unknown port in `keeps`"),
    "inputs in a string": (wrong(inputs="X"), "its inputs are not a tuple of names"),
    "inputs that are not names": (wrong(inputs=("a b",)), "its inputs are not a tuple of names"),
    "inputs of one name": (wrong(inputs=("X", "X?")), "two of its inputs have one name"),
    "inputs after many": (wrong(inputs=("X*", "Y?")), "its inputs are in a wrong order"),
    "many inputs twice": (wrong(inputs=("X*", "Y*")), "only its last input"),
    "marks twice": (wrong(inputs=("X?*",)), "its inputs are in a wrong order"),
    "outputs that may be left out": (wrong(outputs=("Y?",)), "its outputs are not a tuple of names"),
    "no outputs": (wrong(outputs=()), "it has no outputs"),
    "attributes without defaults": (wrong(attributes=("alpha",)), "its attributes are not a mapping"),
    "unknown dtypes": (wrong(accepts=("float16",)), "unknown dtype in `accepts`"),
    "a dtype in a string": (wrong(accepts="float32"), "unknown dtype in `accepts`"),
    "dtypes of inputs that are not there": (wrong(same_dtype=(0, 1)), "same_dtype names inputs"),
}


@pytest.mark.parametrize("what", [*LOOPS, *RULES])
def test_what_is_said_wrongly_is_an_error_that_names_the_op(what: str) -> None:
    schema, message = {**LOOPS, **RULES}[what]
    escaped = message.replace("{", r"\{").replace("(", r"\(")
    with pytest.raises(ro.OpError, match=escaped) as caught:
        register(schema)
    assert caught.value.op == "Wrong"
    assert "Wrong" not in REGISTRY


def test_what_is_said_rightly_is_registered() -> None:
    with registered(wrong(), *OWN):
        assert "Wrong" in REGISTRY
        with pytest.raises(ro.OpError, match="op 'Wrong': an op of this name is registered already"):
            register(wrong())
    with pytest.raises(ro.OpError, match="only ops can be registered"):
        register(Right)  # type: ignore[type-var]


def test_kernels_are_those_that_ops_name() -> None:
    for schema in REGISTRY.values():
        assert not isinstance(schema.loop, Kernel) or schema.loop.name in KERNELS
    assert {schema.loop.name for schema in REGISTRY.values() if isinstance(schema.loop, Kernel)} == KERNELS.keys()


# -- what shows when an op is used -------------------------------------------------------------------------------------


def run(schema: OpSchema, *arrays: Any, device: str = "cpu", **attributes: Any) -> Any:
    """An op's results on a device, all of it compiled."""
    with registered(schema):
        net = ro.Net("net")
        names = [f"x{i}" for i in range(len(arrays))]
        inputs = [net.input(n, None if a.dtype.kind == "f" else a.dtype) for n, a in zip(names, arrays, strict=True)]
        net.outputs(y=net.append(schema.name, inputs, attributes)[0])
        options = {} if device == "reference" else {"tuning": PLAIN}
        return ro.compile(net, device=device, **options)(dict(zip(names, arrays, strict=True)))["y"]


ONES, INTEGERS = np.ones((2, 3)), np.ones((2, 3), np.int32)
ANY_DTYPE: dict[str, Any] = {"accepts": ANY}


def by_call(form: Any) -> dict[str, Any]:
    return {"loop": None, "loop_form": lambda self, call: form}


USES: dict[str, tuple[OpSchema, tuple[Any, ...], dict[str, Any], str]] = {
    "a form of the call that is none": (wrong(**by_call("{0}")), (ONES,), {}, "its loop form has a wrong type"),
    "a form of the call with an unknown word": (
        wrong(**by_call(Pointwise("cube({0})"))),
        (ONES,),
        {},
        "there is no scalar function 'cube'",
    ),
    "an operand that the call does not have": (
        wrong(inputs=("X", "B?"), reference=same, gradient=no_gradient, **by_call(Pointwise("{0} + {1}"))),
        (ONES,),
        {},
        "names '{1}', and there is 0",
    ),
    "an attribute that is not a number": (
        wrong(**by_call(Pointwise("{0} + {mode}"))),
        (ONES,),
        {"mode": "fast"},
        "names '{mode}'",
    ),
    "a function of floats": (
        wrong(loop=Pointwise("exp({0})"), **ANY_DTYPE),
        (INTEGERS,),
        {},
        "has no meaning for these dtypes: exp takes floats only; got {0} int32, for a result of int32",
    ),
    "a quotient of integers": (wrong(loop=Pointwise("{0} / 2"), **ANY_DTYPE), (INTEGERS,), {}, "integers have no '/'"),
    "arithmetic with bools": (wrong(loop=Pointwise("{0} + 1"), **ANY_DTYPE), (ONES > 0,), {}, "arithmetic with bools"),
    "a number that does not fit": (
        wrong(loop=Pointwise("{0} + 0.5"), **ANY_DTYPE),
        (INTEGERS,),
        {},
        "0.5 is not a number of int32",
    ),
    "two numbers compared": (wrong(loop=Pointwise("{0} if 1 < 2 else 0")), (ONES,), {}, "a comparison of two numbers"),
    "a sum of bools": (
        wrong(NonzeroProduct, loop=Reduction(SUM, 0), **ANY_DTYPE),
        (ONES > 0,),
        {},
        "arithmetic with bools",
    ),
    "a start that changes sums": (
        wrong(NonzeroProduct, loop=Reduction(SUM, 1)),
        (ONES,),
        {},
        "`start` 1 is not neutral",
    ),
    "a start of others": (
        wrong(NonzeroProduct, loop=Reduction("minimum({a}, {b})", 0)),
        (ONES,),
        {},
        "`start` 0 is not neutral",
    ),
    "a combination that asks who is first": (
        wrong(NonzeroProduct, loop=Reduction("{b} if {a} == 0 else {a}", 0)),
        (ONES,),
        {},
        "is -2.5 for -2.5, -0.5 and -0.5 for",
    ),
    "a combination that asks which two are first": (
        wrong(NonzeroProduct, loop=Reduction("{a} + {b} + {a} * {b} * ({a} + {b})", 0)),
        (ONES,),
        {},
        "depends on which two are combined first",
    ),
    "a reduction of other axes": (
        wrong(Distance, reduced_axes=lambda self, call: (0,)),
        (ONES, ONES),
        {},
        "its shape is not that of its operand without the axes",
    ),
    "an expansion into too much": (
        wrong(loop=Expansion(), expand=lambda s, c, x: (x, x)),
        (ONES,),
        {},
        "`expand` must return a blob for each output; wanted 1 blobs",
    ),
    "an expansion into itself": (
        wrong(loop=Expansion(), expand=lambda s, c, x: x.net.apply("Wrong", [x])),
        (ONES,),
        {},
        "ops are left to expand",
    ),
    "numbers joined by `and`": (wrong(loop=Pointwise("{0} and 3.0")), (ONES,), {}, "'and' and 'or' join bools"),
    "an expansion of another shape": (
        wrong(loop=Expansion(), expand=lambda s, c, x: ro.reduce_sum(x)),
        (ONES,),
        {},
        "`expand` gives another type",
    ),
}


@pytest.mark.parametrize("what", USES)
def test_a_form_that_does_not_fit_a_call_is_an_error_that_names_the_op(what: str) -> None:
    schema, arrays, attributes, message = USES[what]
    for char in "{(*+":
        message = message.replace(char, f"\\{char}")
    with pytest.raises(ro.OpError, match=message) as caught:
        run(schema, *arrays, **attributes)
    assert caught.value.op == "Wrong -> wrong_0"
    assert caught.value.net


VIEWS = {
    "doubled": lambda s, c, x: 2 * x,
    "one more": lambda s, c, x: x + 1,
    "squared": lambda s, c, x: x * x,
    "absolute": lambda s, c, x: np.abs(x),
    "positive": lambda s, c, x: np.maximum(x, 0),
    "sorted": lambda s, c, x: np.sort(x, -1),
    "filled with ones": lambda s, c, x: np.concatenate([x[..., 1:], np.ones_like(x[..., :1])], -1),
    "of another shape": lambda s, c, x: x[:1],
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("what", VIEWS)
def test_a_view_that_computes_is_an_error_that_names_the_op(what: str, device: str) -> None:
    schema = wrong(loop=View(), reference=VIEWS[what])
    with registered(schema):
        net = ro.Net("net")
        net.outputs(y=ro.tanh(net.append("Wrong", [net.inputs("x")])[0] * 2.0))
        with pytest.raises(ro.OpError, match="its reference does more than move elements and fill in zeros") as caught:
            ro.compile(net, device=device, tuning=PLAIN).vjp(x=ONES)
    assert (caught.value.net, caught.value.op) == ("net", "Wrong -> wrong_0")


RETURNS: dict[str, tuple[dict[str, Any], str]] = {
    "another shape": ({"reference": lambda s, c, x: x[:1]}, r"wanted float64\[2, 3\]; got float64\[1, 3\]"),
    "another dtype": ({"reference": lambda s, c, x: x.astype(np.float32)}, r"got float32\[2, 3\]"),
    "two arrays": ({"reference": lambda s, c, x: (x, x)}, "wanted 1 arrays; got 2"),
    "a list": ({"reference": lambda s, c, x: x.tolist()}, "got list"),
    "nothing": ({"reference": lambda s, c, x: None}, "got NoneType"),
    "two shapes": ({"shapes": lambda s, c: ((2, 3), (2, 3))}, "does not return shapes; wanted one for each"),
    "a bare shape": ({"shapes": lambda s, c: (2, 3)}, "its rule `shapes` does not return shapes"),
    "no dtype": ({"dtypes": lambda s, d, a: ("float16",)}, "its rule `dtypes` does not return dtypes"),
    "two dtypes": ({"dtypes": lambda s, d, a: ("float", "float")}, "its rule `dtypes` does not return dtypes"),
}


@pytest.mark.parametrize("device", ["reference", "cpu", "cuda"])
@pytest.mark.parametrize("what", RETURNS)
def test_rules_that_return_something_else_are_errors_that_name_the_op(what: str, device: str) -> None:
    changed, message = RETURNS[what]
    with pytest.raises(ro.OpError, match=message) as caught:
        run(wrong(loop=None, **changed), ONES, device=device)
    assert (caught.value.net, caught.value.op) == ("net", "Wrong -> wrong_0")


GRADIENTS = {
    "two of one": lambda s, c, x, y, dy: (dy, dy),
    "none of one": lambda s, c, x, y, dy: (),
    "an array": lambda s, c, x, y, dy: np.ones((2, 3)),
    "a list of numbers": lambda s, c, x, y, dy: [1.0],
}


@pytest.mark.parametrize("what", GRADIENTS)
def test_a_gradient_rule_that_returns_something_else_is_an_error_that_names_the_op(what: str) -> None:
    with registered(wrong(gradient=GRADIENTS[what])):
        net = ro.Net("net")
        net.outputs(y=net.append("Wrong", [net.inputs("x")])[0])
        with pytest.raises(ro.GradientError, match="something else than one blob or None for each input") as caught:
            ro.compile(net, device="reference").vjp(x=ONES)
    assert (caught.value.net, caught.value.op) == ("net", "Wrong -> wrong_0")


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64"])
def test_starts_at_the_ends_of_integers_are_right(dtype: str) -> None:
    x = np.array([[np.iinfo(dtype).max, 3], [np.iinfo(dtype).min, 7]], dtype)
    net = ro.Net("net")
    blob = net.input("x", dtype)
    net.outputs(low=ro.reduce_min(blob, axes=[1]), high=ro.reduce_max(blob, axes=[0]))
    tuning = replace(PLAIN, around="all")
    found = ro.compile(net, device="cpu", tuning=tuning)(x=x)
    assert found["low"].tolist() == x.min(axis=1, keepdims=True).tolist()
    assert found["high"].tolist() == x.max(axis=0, keepdims=True).tolist()


def test_an_op_without_a_form_is_not_done_again() -> None:
    with registered(Mirror()):
        net = ro.Net("net")
        x = net.inputs("x")
        hidden = net.append("Mirror", [x])[0].named("hidden")
        net.outputs(y=hidden * hidden)
        (call,) = [
            c for c in ro.compile(net, device="reference").plan(x=ONES).plan.program.calls if c.op.type == "Mirror"
        ]
        assert not REGISTRY["Mirror"].is_cheap(call)
