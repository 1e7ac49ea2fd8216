"""Scalar expressions of every elementwise op: dtypes, results compiled and not, vectors, constants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from native_loops import NativeRows
from op_cases import run_case
from op_table import CASES, INTERNAL_CASES
from scalar_jobs import Job, failures, job_of, merged, native_loop, run, use_of
from scalar_sweep import DTYPES, INF, NAN, few, number_sweep, special, sweep

import rnnops as ro
from rnnops.compiler.lower.expressions import (
    CastExpr,
    Constants,
    Name,
    OperandPlace,
    scalar_expression,
    typed_expression,
)
from rnnops.interpreter import prepare
from rnnops.kernels.cpu.processor import vector_width
from rnnops.kernels.scalar_functions import SCALAR_FUNCTIONS, implementations
from rnnops.net.loop_forms import Pointwise
from rnnops.net.schema import REGISTRY, Call
from rnnops.ops.activation import Gelu
from rnnops.types import FLOAT, Type, type_of

PARTS = 4  # for several processes


@pytest.fixture(autouse=True)
def _silent_edges() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def is_pointwise(call: Call) -> bool:
    return isinstance(REGISTRY[call.op.type].loop_form(call), Pointwise)


def table_jobs(constants: Constants) -> Iterator[Job]:
    """The cases of all ops, their scalars as identifiers."""
    for case in [*CASES, *INTERNAL_CASES]:
        for dtype in case.dtypes:
            ran = run_case(case, case.arrays(dtype), dtype)
            if is_pointwise(ran.last):
                arrays = [ran.arrays[name] if name else None for name in ran.last.op.inputs]
                yield job_of(ran.last, arrays, constants, numbers=False)


def sweep_jobs(constants: Constants) -> Iterator[Job]:
    for op, attributes, arrays in sweep():
        yield job_of(*use_of(op, attributes, *arrays), constants, numbers=True)


def number_jobs(constants: Constants, *dtypes: str) -> Iterator[Job]:
    for dtype in dtypes:
        for op, attributes, arrays in number_sweep(dtype):
            yield job_of(*use_of(op, attributes, *arrays), constants, numbers=True)


def all_jobs(constants: Constants) -> list[Job]:
    return merged([*table_jobs(constants), *sweep_jobs(constants), *number_jobs(constants, "float32")])


def assert_right(jobs: list[Job], constants: Constants, compiled: bool) -> None:
    assert not list(failures(jobs, run(jobs, constants, compiled)))


# -- results -----------------------------------------------------------------------------------------------------------


def test_results_in_plain_python() -> None:
    constants = Constants()
    jobs = [*all_jobs(constants), *number_jobs(constants, *DTYPES)]
    assert_right(jobs, constants, compiled=False)


@pytest.mark.parametrize("part", range(PARTS))
def test_results_compiled(part: int) -> None:
    constants = Constants()
    assert_right(all_jobs(constants)[part::PARTS], constants, compiled=True)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_compiled_with_known_operands(dtype: str) -> None:
    constants = Constants()
    assert_right(merged(number_jobs(constants, dtype)), constants, compiled=True)


def test_every_elementwise_op_is_swept_in_every_dtype() -> None:
    swept: dict[str, set[str]] = {}
    for op, attributes, arrays in sweep():
        call, _ = use_of(op, attributes, *arrays)
        shared = REGISTRY[op].same_dtype
        swept.setdefault(op, set()).add(call.dtype(0 if shared is None else shared[0]))
    for dtype in DTYPES:
        for op, attributes, _ in number_sweep(dtype):
            if op.startswith("Constant"):
                swept.setdefault(op, set()).add(attributes["dtype"])
    ops = {
        case.op
        for case in [*CASES, *INTERNAL_CASES]
        if is_pointwise(run_case(case, case.arrays("float32"), "float32").last)
    }
    assert swept.keys() == ops
    for op, dtypes in swept.items():
        accepted = DTYPES if op == "ConstantOfShape" else REGISTRY[op].accepts
        assert dtypes == set(accepted) - {FLOAT}, op


def test_a_known_power_gives_what_an_unknown_one_gives() -> None:
    for dtype in ("float32", "float64"):
        for power in (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0):
            x, constants = special(dtype), Constants()
            known = job_of(*use_of("Pow", {}, x, np.array(power, dtype)), constants, numbers=True)
            unknown = job_of(*use_of("Pow", {}, x, np.full_like(x, power)), constants, numbers=True)
            assert "pow" not in known.expression
            jobs = [known, Job("Pow", unknown.value, unknown.operands, known.wanted)]
            assert_right(jobs, constants, compiled=False)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 2)])
def test_a_power_does_not_depend_on_how_it_is_repeated(shape: tuple[int, ...]) -> None:
    for power in (np.array(0.5), np.full((1,), 0.5), np.full(shape, 0.5)):
        for x, wanted in ((-INF, INF), (-0.0, 0.0)):
            call, arrays = use_of("Pow", {}, np.full(shape, x), power)
            came = REGISTRY["Pow"].reference(call, *arrays)
            assert type_of(came) == call.output_types[0]
            assert np.signbit(came).sum() == 0
            assert (came == wanted).all()


# -- texts -------------------------------------------------------------------------------------------------------------

TYPES = {
    "x": "float32",
    "y": "float64",
    "i": "int8",
    "j": "int64",
    "u": "uint32",
    "b": "bool",
    "n": "int32",
    "t": "int32",
}
TEXTS = [
    ("Add(x, x)", "a0 + a1"),
    ("Mul(x, x)", "a0 * a1"),
    ("Sum(x, x, x)", "a0 + a1 + a2"),
    ("Mean(x, x, x)", "(a0 + a1 + a2) / np.float32(3.0)"),
    ("Reciprocal(y)", "np.float64(1.0) / a0"),
    ("Relu(x)", "np.float32(0.0) if a0 < np.float32(0.0) else a0"),
    ("LeakyRelu(x, alpha=0.2)", "a0 if a0 > np.float32(0.0) else np.float32(0.2) * a0"),
    ("Elu(y)", "a0 if a0 > np.float64(0.0) else np.float64(1.0) * expm1(a0)"),
    ("Softplus(x)", "maximum(a0, np.float32(0.0)) + log1p(exp(-abs(a0)))"),
    ("Add(i, i)", "np.int8(a0 + a1)"),
    ("Mul(j, j)", "np.int64(np.uint64(a0) * np.uint64(a1))"),
    ("Neg(u)", "np.uint32(-a0)"),
    ("Div(x, x)", "a0 / a1"),
    ("Div(i, i)", "np.int8(divide_towards_zero(a0, a1))"),
    ("Max(u, u, u)", "np.uint32(maximum(np.uint32(maximum(a0, a1)), a2))"),
    ("Less(i, i)", "a0 < a1"),
    ("And(b, b)", "a0 and a1"),
    ("Not(b)", "not a0"),
    ("Where(b, j, j)", "a1 if a0 else a2"),
    ("Clip(x)", "a0"),
    ('Cast(x, to="float64")', "np.float64(a0)"),
    ('Cast(y, to="float32")', "np.float32(a0)"),
    ('Cast(x, to="float")', "a0"),
    ('Cast(b, to="int8")', "np.int8(1) if a0 else np.int8(0)"),
    ('Cast(i, to="bool")', "a0 != np.int8(0)"),
    ('Cast(j, to="int8")', "np.int8(a0)"),
    ("SelectValid(x, x, n, t)", "a0 if a3 < a2 else a1"),
    ("SelectValid(b, b, n, t, drop=1)", "a0 if a3 < a2 else False"),
    ("MaskRows(x, n, t)", "a0 if a2 < a1 else np.float32(0.0)"),
    ('Constant(value=2, dtype="float32")', "np.float32(2.0)"),
    ("ConstantOfShape(shape=[2], value=true)", "True"),
]


def call_of(text: str) -> Call:
    """The call of an op on blobs named as in TYPES."""
    inputs = ", ".join(f"{name}: {dtype}" for name, dtype in TYPES.items())
    net = ro.parse_net(f"net n({inputs})\n    z = {text}\n    return z")
    return prepare(net, {name: Type(dtype, (1,)) for name, dtype in TYPES.items()}, "float32").calls[0]


def shown(text: str, *operands: Any) -> str:
    """The expression of an op, with its constants written out."""
    call, constants = call_of(text), Constants()
    names = [*operands, *(f"a{i}" for i in range(len(operands), len(call.types)))]
    typed = [
        Name(name, dtype=kind.dtype) if isinstance(name, str) and kind else name
        for name, kind in zip(names, call.types, strict=True)
    ]
    expression = str(scalar_expression(call, typed, constants))
    values = dict(line.split(" = ") for line in constants.lines())
    return re.sub(r"\bk\d+\b", lambda match: values[match[0]], expression)


@pytest.mark.parametrize(("text", "expression"), TEXTS)
def test_texts(text: str, expression: str) -> None:
    assert shown(text) == expression


@pytest.mark.parametrize(
    ("power", "expression"),
    [
        (-1, "np.float32(1.0) / a"),
        (0, "np.float32(1.0)"),
        (0.5, "np.float32(np.inf) if a == np.float32(-np.inf) else abs(sqrt(a))"),
        (1, "a"),
        (2.0, "a * a"),
        (np.float32(3), "a * a * a"),
        (0.25, "pow(a, np.float32(0.25))"),
    ],
)
def test_known_powers(power: Any, expression: str) -> None:
    assert shown("Pow(x, x)", "a", power) == expression


def test_known_powers_of_integers() -> None:
    assert shown("Pow(i, i)", "a", 3) == "np.int8(np.int8(a * a) * a)"
    assert shown("Pow(i, i)", "a", -1) == "np.int8(pow(a, np.int8(-1)))"


def test_known_operands_are_constants_of_their_dtype() -> None:
    assert shown("Add(x, x)", 0.1, "a") == "np.float32(0.1) + a"
    assert shown("Where(b, x, x)", True, 1, "a") == "np.float32(1.0) if True else a"
    assert shown("Neg(j)", 7) == "np.int64(-np.int64(7))"
    assert shown('Cast(y, to="int8")', 2.5).startswith("np.int8(floor(np.float64(2.5)) if")


def test_texts_of_reductions() -> None:
    constants = Constants()
    names = {"acc": "total", "x": "a"}
    places = {key: OperandPlace(Name(name, dtype="int32"), "int32") for key, name in names.items()} | {
        "count": OperandPlace(3)
    }
    assert str(typed_expression("{acc} + {x} * {x}", places, "int32", constants)) == "np.int32(total + np.int32(a * a))"
    assert str(typed_expression("maximum({acc}, {x})", places, "int32", constants)) == "np.int32(maximum(total, a))"
    assert str(typed_expression("-2147483648", {}, "int32", constants)) == "k0"
    assert str(typed_expression("-inf", {}, "float32", constants)) == "k1"
    floats = {key: OperandPlace(Name(name, dtype="float32"), "float32") for key, name in names.items()} | {
        "count": OperandPlace(3)
    }
    assert str(typed_expression("{acc} / {count}", floats, "float32", constants)) == "total / k2"
    assert constants.lines() == ["k0 = np.int32(-2147483648)", "k1 = np.float32(-np.inf)", "k2 = np.float32(3.0)"]


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_names_are_identifiers() -> None:
    for name in ("a b", "a; b", "a[0]", "", "0a", "a\n", "é"):
        with pytest.raises(ValueError, match="not an identifier"):
            Name(name)


@pytest.mark.parametrize("text", ["{0}.real", "open({0})", "[{0}]", "{0}({0})", "lambda: {0}"])
def test_other_python_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not allowed in a text|there is no scalar function"):
        typed_expression(text, {"0": OperandPlace(Name("a", dtype="float32"), "float32")}, "float32", Constants())


def test_texts_of_attributes_never_get_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(Gelu):
        def loop_form(self, call: Call) -> Pointwise:
            return Pointwise("{0} + {approximate}")

    call = call_of('Gelu(x, approximate="tanh")')
    monkeypatch.setitem(REGISTRY, "Gelu", Named())
    with pytest.raises(ro.OpError, match=r"Gelu.*names '{approximate}', and there is 0"):
        scalar_expression(call, [Name("a", dtype="float32")], Constants())


def test_other_forms_are_refused() -> None:
    with pytest.raises(TypeError, match="Softmax is not elementwise"):
        scalar_expression(call_of("Softmax(x)"), [Name("a", dtype="float32")], Constants())


def test_two_numbers_are_not_compared() -> None:
    with pytest.raises(TypeError, match="a comparison of two numbers"):
        typed_expression("1 if 2 < 3 else 0", {}, "float32", Constants())


# -- constants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_keep_their_bits(dtype: str) -> None:
    generator = np.random.default_rng(0)
    values = special(dtype)
    if dtype != "bool":
        words = generator.integers(0, 256, (200, values.itemsize), dtype=np.uint8).view(dtype).ravel()
        values = np.concatenate([values, words[~np.isnan(words)]])
    constants = Constants()
    names = [constants.of(value.item(), dtype).name for value in values]
    namespace: dict[str, Any] = {"np": np}
    exec("\n".join(constants.lines()), namespace)  # our own text
    for name, value in zip(names, values, strict=True):
        came = np.asarray(namespace[name])
        assert came.dtype == value.dtype
        assert came.tobytes() == value.tobytes()


def test_names_of_constants() -> None:
    constants = Constants()
    given = [(0.2, "float32"), (0.2, "float64"), (np.float32(0.2), "float32"), (0.0, "float32"), (-0.0, "float32")]
    more = [(NAN, "float64"), (-INF, "float32"), (True, "bool"), (1, "int8"), (NAN, "float64"), (2, "bool")]
    names = [constants.of(value, dtype).name for value, dtype in [*given, *more]]
    assert names == ["k0", "k1", "k0", "k2", "k3", "k4", "k5", "k6", "k7", "k4", "k6"]
    assert constants.lines() == [
        "k0 = np.float32(0.2)",
        "k1 = np.float64(0.2)",
        "k2 = np.float32(0.0)",
        "k3 = np.float32(-0.0)",
        "k4 = np.float64(np.nan)",
        "k5 = np.float32(-np.inf)",
        "k6 = True",
        "k7 = np.int8(1)",
    ]


@pytest.mark.parametrize(
    ("value", "dtype"), [(300, "int8"), (-1, "uint8"), (2.5, "int32"), (NAN, "int64"), (INF, "int8")]
)
def test_numbers_that_do_not_fit_are_refused(value: float, dtype: str) -> None:
    with pytest.raises(ValueError, match=f"is not a number of {dtype}"):
        Constants().of(value, dtype)


# -- compiled code -----------------------------------------------------------------------------------------------------


def test_functions_are_those_of_the_kernels() -> None:
    assert implementations("cpu").keys() == SCALAR_FUNCTIONS.keys()


def loop_of(op: str, attributes: dict[str, Any], dtype: str, count: int) -> str:
    """The optimised code of a loop over arrays with the expression of an op."""
    job = job_of(*use_of(op, attributes, *[few(dtype)] * count), Constants(), numbers=True)
    return NativeRows((native_loop(job, 0),)).optimised


SIMPLE = [("Add", {}, 2), ("Mul", {}, 2), ("Tanh", {}, 1), ("Sigmoid", {}, 1), ("Exp", {}, 1), ("Elu", {}, 1)]


@pytest.mark.skipif(vector_width() == 64, reason="this processor has no vectors")
@pytest.mark.parametrize(("op", "attributes", "count"), [*SIMPLE, ("HardSigmoid", {}, 1), ("Mean", {}, 3)])
def test_loops_become_vector_instructions_of_float32(op: str, attributes: dict[str, Any], count: int) -> None:
    code = loop_of(op, attributes, "float32", count)
    widths = {32 * int(lanes) for lanes in re.findall(r"<(\d+) x float>", code)}
    assert widths & {vector_width(), min(vector_width(), 256)}  # some processors prefer half of their width
    assert "double" not in code


def test_a_wider_value_is_found() -> None:
    x = few("float32")
    job = Job("Add", CastExpr(Name("float32_0", dtype="float32"), dtype="float64"), {"float32_0": x}, x)
    for compiled in (False, True):
        with pytest.raises(AssertionError, match="float64 instead of float32"):
            run([job], Constants(), compiled)


def test_wrong_results_are_found() -> None:
    x = special("float64")
    operand = Name("float64_0", dtype="float64")
    job = Job("Add", operand + operand, {"float64_0": x}, 2 * x * (1 + 1e-11))
    came = run([job], Constants(), compiled=False)
    assert len(list(failures([job], came))) == 1
    assert not list(failures([job], [job.wanted]))
    assert len(list(failures([job], [np.where(np.isnan(x), 0.0, job.wanted)]))) == 1
