"""Kernel IR that means nothing is found, by what is wrong with it; what plans write means something."""

from __future__ import annotations

import pytest
from verify_kernels import KernelError, verify, verify_device

from rnnops.compiler.lower.expressions import Choice, Expr, Literal, Load, Name, ScalarCall, any_of, compare
from rnnops.compiler.lower.kernel import (
    Array,
    Assign,
    Callee,
    DeviceKernel,
    DeviceModule,
    Do,
    For,
    Function,
    If,
    MatrixProduct,
    Module,
    Parameter,
    Pointer,
    Statement,
    Store,
    StridedMatrix,
)

ZERO, ONE, N, ELEMENT = Literal(0), Literal(1), Name("n"), Name("i")
X, Y = Name("x", dtype="float32"), Name("y", dtype="float64")
LOADED = Load("p", ELEMENT, dtype="float32")
TAKEN = Parameter("p", "float32*"), Parameter("q", "uint8*"), Parameter("x", "float32"), Parameter("n")


def module(*body: Statement, driver: tuple[Statement, ...] = ()) -> Module:
    program = Function("rows", (*TAKEN, Parameter("y", "float64")), body)
    rank = Parameter("rank"), Parameter("status", "int64[]")
    return Module("float32", (program,), Function("scan", rank, driver), (Parameter("a", "float32[]"),), ("T",))


def test_what_means_something() -> None:
    step = Assign("total", ScalarCall("add_any_order", (Name("total", dtype="float32"), LOADED), dtype="float32"))
    test = any_of(compare("<", LOADED, X), compare("!=", Load("q", ELEMENT, dtype="uint8"), 0))
    inside = step, If(test, (Store("q", ELEMENT, test),)), Store("p", ELEMENT, X * LOADED)
    loop = For("i", ZERO, N, ONE, inside)
    wait = Do("wait", (Array("status"), Name("rank")))
    rows = Do("list_rows", (Array("status"), Name("T")), ("count",))
    verify(module(Assign("total", X), loop, driver=(wait, rows, Assign("c", Name("count") + Name("rank")))))


def value(e: Expr) -> Statement:
    return Assign("result", e)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (value(Name("z")), "in rows: z is None, not int64"),
        (value(Name("x")), "x is float32, not int64"),
        (value(X + Y), "operands that do not fit: x . y"),
        (value(compare("<", X, Y)), "operands that do not fit"),
        (value(ScalarCall("maximum", (X, Y), dtype="float32")), "operands that do not fit"),
        (value(Choice(X, X, X, dtype="float32")), "operands that do not fit"),
        (value(any_of(X, X)), "operands that do not fit"),
        (value(Load("r", ZERO, dtype="float32")), "no memory is called r"),
        (value(Load("p", ZERO, dtype="float64")), "p holds float32, and meets float64"),
        (value(Load("p", X, dtype="float32")), "a place in p that is float32"),
        (Store("p", ZERO, Y), "p holds float32, and meets float64"),
        (Assign("x", Y), "x is float32, and gets float64"),
        (If(N, ()), "a test that is int64"),
        (For("i", ZERO, X, ONE, ()), "a loop over i that goes by no int64"),
        (For("i", ZERO, N, ONE, (Assign("i", N),)), "a loop over i that changes where it ends"),
        (For("i", ZERO, N + 1, ONE, (If(compare("<", X, X), (Assign("n", ONE),)),)), "changes where it ends"),
        (If(compare("<", X, X), (Assign("new", X), Assign("new", X * X), Assign("new", N))), "new is float32"),
        (Do("wait", ()), "which nobody has"),
    ],
)
def test_what_means_nothing(line: Statement, problem: str) -> None:
    with pytest.raises(KernelError, match=problem):
        verify(module(line))


def test_what_a_loop_alone_sets_is_not_known_behind_it() -> None:
    loop = For("i", ZERO, N, ONE, (Assign("last", LOADED),))
    for line in (value(Name("last", dtype="float32")), value(Name("i"))):
        with pytest.raises(KernelError, match="is None, not"):
            verify(module(loop, line))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (Do("nothing", ()), "in scan: a call of nothing, which nobody has"),
        (Do("rows", (X,)), "x is None"),
        (Do("rows", (ZERO,)), "with 1 for 5 arguments"),
        (Do("wait", (Array("b"),)), "no memory is called b"),
    ],
)
def test_drivers_that_mean_nothing(line: Statement, problem: str) -> None:
    with pytest.raises(KernelError, match=problem):
        verify(module(driver=(line,)))


LAUNCH = Do("on.launch", (Callee("k"), ONE, Literal(0), Name("T"), Array("a")))
A, B = StridedMatrix("a", ZERO, ONE, ONE), StridedMatrix("b", ZERO, Name("T"), ONE)
FILL = Do("rows", (Name("lane"), Pointer("a", Name("c0"))))


def device_module(*driver: Statement, kernel: tuple[Statement, ...] = (FILL,)) -> DeviceModule:
    arrays = Parameter("a", "float32[]"), Parameter("b", "float32[]")
    program = Function("rows", (Parameter("lane"), Parameter("p", "float32*")), ())
    made = DeviceKernel("k", arrays[:1], ("c0",), (), False, False, kernel)
    scan = Function("scan", (), driver)
    return DeviceModule("float32", "float32", (), (program,), (made,), scan, arrays, ("T", "c0"))


def test_what_means_something_on_a_device() -> None:
    multiply = Do("on.multiply", (MatrixProduct(A, B, A, (ONE, Name("T"), ONE), Literal(True, dtype="bool")),))
    verify_device(device_module(LAUNCH, multiply))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (Do("on.launch", (Callee("k"), Name("T"))), "in scan: a launch of k with 0 arrays"),
        (Do("on.launch", (Callee("other"), Array("a"))), "a launch of other"),
        (Do("on.launch", (Callee("k"), Array("c"))), "no memory is called c"),
        (Do("on.multiply", (MatrixProduct(A, A, A, (ONE, ONE, Name("lane")), ONE),)), "lane is None"),
        (Do("wait", ()), "a call of wait, which nobody has"),
    ],
)
def test_launches_that_mean_nothing(line: Statement, problem: str) -> None:
    with pytest.raises(KernelError, match=problem):
        verify_device(device_module(line))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (Do("rows", (ONE,)), "in k: a call of rows with 1 for 2 arguments"),
        (Do("rows", (ONE, Pointer("b", ZERO))), "no memory is called b"),
        (Assign("x", Name("T")), "T is None"),
        (Assign("x", Name("team")), "team is None"),
        (Do("load_columns", (Pointer("kept", ZERO),)), "no memory is called kept"),
    ],
)
def test_kernels_of_a_device_that_mean_nothing(line: Statement, problem: str) -> None:
    with pytest.raises(KernelError, match=problem):
        verify_device(device_module(LAUNCH, kernel=(line,)))
