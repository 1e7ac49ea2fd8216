"""What a newcomer asks first, done as docs/architecture.md says it: an op, a pass, a scalar function, a target."""

from __future__ import annotations

import operator
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.lower import expressions as ir, statements as ir_statements
from rnnops.compiler.lower.kernel import Array, Assign, Do, For, If, MatrixOperand, Pointer, Statement, Store, Vector
from rnnops.compiler.lower.scan import LoweredStep
from rnnops.compiler.lower.statements import Node
from rnnops.compiler.run import pipeline
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.schedule import plan_step
from rnnops.compiler.targets.target import OnOneThread, was_wrong
from rnnops.kernels.cpu import native, pointwise
from rnnops.kernels.scalar_functions import implementations
from rnnops.net.loop_forms import Pointwise
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.net.schema import register
from rnnops.ops.base import Unary

ROOT = Path(__file__).parent.parent
SHAPES = {"xs": (5, 3, 4), "h0": (3, 4), "w": (4, 4)}


def net_of(function: Any) -> ro.Net:
    """A recurrence with a function of one operand in its step."""
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=function(x + h @ w))
    net = ro.Net("model")
    xs, h0 = net.inputs("xs", "h0")
    y = ro.recurrent_net(net, cell, inputs=[("x", xs)], initial_cell_inputs=[("h", h0)], links={"h": "h_t"})[0]
    net.outputs(y=y)
    return net


def feeds() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape) for name, shape in SHAPES.items()}


@pytest.mark.usefixtures("_clean_registry")
def test_an_op() -> None:
    class Damp(Unary):
        """`x / (1 + x^2)`."""

        keeps = ("X",)
        loop = Pointwise("{0} / (1.0 + {0} * {0})")

        def reference(self, call: Any, x: Any) -> Any:
            return x / (1 + x * x)

        def gradient(self, call: Any, x: Any, y: Any, dy: Any) -> Any:
            return dy * (1.0 - x * x) / ((1.0 + x * x) * (1.0 + x * x))

    net = net_of(register(Damp()))
    ro.testing.check_gradient(net, feeds())
    ro.testing.check_devices(net, feeds())
    assert "/" in ro.compile(net).plan(SHAPES).source, "it is compiled"


def test_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop_double_negation(net: Net) -> Net:
        """rewrite: `a = Neg(x); b = Neg(a)`  -->  `b = Identity(x)`, in cells too."""
        negated = {op.outputs[0]: op.inputs[0] for op in net.ops if op.type == "Neg"}
        return net.with_ops([_without_double_negation(op, negated) for op in net.ops])

    def _without_double_negation(op: Op, negated: Mapping[str, str]) -> Op:
        cell = op.attributes.get("cell")
        if cell is not None:
            return replace(op, attributes={**op.attributes, "cell": drop_double_negation(cell)})
        twice = op.type == "Neg" and op.inputs[0] in negated
        return replace(op, type="Identity", inputs=(negated[op.inputs[0]],)) if twice else op

    net, given = net_of(lambda x: ro.neg(ro.neg(ro.tanh(x)))), feeds()
    before = ro.compile(net)
    monkeypatch.setattr(pipeline, "REWRITES", (drop_double_negation, *pipeline.REWRITES))
    after = ro.compile(net)
    np.testing.assert_array_equal(after(given)["y"], before(given)["y"])
    assert ["= -" in run.plan(SHAPES, backward=False).source for run in (before, after)] == [True, False]


def test_a_pass_on_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def double_by_adding(step: LoweredStep) -> LoweredStep:
        """rewrite: `y = Mul(x, 2)`  -->  `y = sum(x, x)`"""
        return replace(step, nodes=tuple(map(_doubled, step.nodes)))

    def _doubled(node: Node) -> Node:
        if isinstance(node, ir_statements.Statement) and node.form == "apply" and 2 in node.operands:
            return replace(node, form="sum", operands=(node.operands[0], node.operands[0]))
        return node

    net, given, found = net_of(lambda x: ro.tanh(x * 2.0)), feeds(), []
    for table in (plan_step.ROWS_APART, (*plan_step.ROWS_APART, double_by_adding)):
        monkeypatch.setattr(plan_step, "ROWS_APART", table)
        run = ro.compile(net)
        found.append((run(given)["y"].tobytes(), "add_0 * k" in run.plan(SHAPES, backward=False).source))
    assert found == [(found[0][0], True), (found[0][0], False)]


LINE = '    ScalarFunction("soft_root", 1, "elementary", "device_scalars", ulps=(3.0, 3.0)),\n'
FUNCTION = """

def soft_root(x: Any) -> Any:
    return x / np.sqrt(x * x + like(x, 1.0))
"""
PROGRAM = """
import numpy as np
import rnnops as ro
from rnnops.net.loop_forms import Pointwise
from rnnops.ops.base import Unary
from rnnops.net.schema import register

class SoftRoot(Unary):
    differentiable = False
    loop = Pointwise("soft_root({0})")
    def reference(self, call, x):
        return x / np.sqrt(x * x + 1)

cell = ro.Net("cell")
x, h = cell.inputs("x", "h")
cell.outputs(h_t=register(SoftRoot())(x + h))
net = ro.Net("model")
xs, h0 = net.inputs("xs", "h0")
y = ro.recurrent_net(net, cell, inputs=[("x", xs)], initial_cell_inputs=[("h", h0)], links={"h": "h_t"})[0]
net.outputs(y=y)
feeds = {"xs": np.linspace(-3, 3, 120).reshape(5, 3, 8), "h0": np.zeros((3, 8))}
wanted = ro.compile(net, device="reference")(feeds)["y"]
for dtype in ("float32", "float64"):
    given = {name: array.astype(dtype) for name, array in feeds.items()}
    np.testing.assert_allclose(ro.compile(net)(given)["y"], wanted, rtol=1e-6)
print("soft_root(" in ro.compile(net).plan(feeds, backward=False).source)
"""


def test_a_scalar_function(tmp_path: Path) -> None:
    """In a copy of the library: a line of the table, and a function of that name."""
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "rnnops", tmp_path / "rnnops", ignore=skip)
    shutil.copytree(ROOT / "kernels", tmp_path / "rnnops" / "kernels", ignore=skip)
    table, home = (tmp_path / "rnnops" / "kernels" / name for name in ("scalar_functions.py", "cpu/elementary.py"))
    table.write_text(table.read_text().replace('    ScalarFunction("sqrt"', f'{LINE}    ScalarFunction("sqrt"'))
    home.write_text(home.read_text() + FUNCTION)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "RNNOPS_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@dataclass(frozen=True)
class Walker(OnOneThread):
    """A target that walks kernel IR statement by statement."""

    def load(self, text: Any, width: int | None) -> Any:
        return text.module

    def call(self, function: Any, team: Any, work: Any, may_fail: bool) -> bool:
        module, (barrier, status, sizes, *arrays) = function, work
        memory = {"barrier": barrier, "status": status}
        memory |= {parameter.name: array for parameter, array in zip(module.arrays, arrays, strict=True)}
        numbers = {"rank": 0, "threads": 1, **dict(zip(module.sizes, map(int, sizes), strict=True))}
        programs = {program.name: program for program in module.programs}
        Walk({**memory, **numbers}, programs).body(module.driver.body)
        return was_wrong(work)


@dataclass(frozen=True)
class Walk:
    """One call of a function: what its names stand for."""

    known: dict[str, Any]
    programs: Mapping[str, Any]

    def body(self, statements: tuple[Statement, ...]) -> None:
        for s in statements:
            if isinstance(s, Assign):
                self.known[s.name] = self.value(s.value)
            elif isinstance(s, Store):
                self.known[s.buffer][self.value(s.index)] = self.value(s.value)
            elif isinstance(s, For):
                for i in range(*map(self.value, (s.begin, s.end, s.step))):
                    self.known[s.index] = i
                    self.body(s.body)
            elif isinstance(s, If):
                self.body(s.body if self.value(s.test) else ())
            else:
                self.call(s)

    def call(self, s: Do) -> None:
        given = list(map(self.argument, s.arguments))
        if s.function in self.programs:
            program = self.programs[s.function]
            names = [parameter.name for parameter in program.parameters]
            Walk({**self.known, **dict(zip(names, given, strict=True))}, self.programs).body(program.body)
        else:
            result = getattr(native, s.function)(*given)
            self.known.update(dict.fromkeys(s.results, result))

    def argument(self, a: Any) -> Any:
        if isinstance(a, ir.Expr):
            return self.value(a)
        array = self.known[a.buffer]
        if isinstance(a, Pointer):
            return native.at(array, self.value(a.offset))
        if isinstance(a, Vector):
            return native.vector(array, self.value(a.start), self.value(a.count))
        if isinstance(a, MatrixOperand):
            return native.matrix(array, *map(self.value, (a.start, a.rows, a.stride, a.column, a.columns)))
        assert isinstance(a, Array)
        return array

    def value(self, e: ir.Expr) -> Any:
        operands = [self.value(part) for part in ir.parts_of(e)]
        if isinstance(e, ir.Literal):
            return e.value
        if isinstance(e, ir.Name | ir.ModuleConstant):
            return self.known[e.name] if isinstance(e, ir.Name) else e.value
        if isinstance(e, ir.Load):
            return self.known[e.buffer][operands[0]]
        if isinstance(e, ir.BinaryExpr | ir.CompareExpr):
            return OPERATORS[e.operator](*operands)
        if isinstance(e, ir.Logic):
            return (all if e.operator == "and" else any)(operands)
        if isinstance(e, ir.Choice):
            return operands[1] if operands[0] else operands[2]
        if isinstance(e, ir.CastExpr):
            return np.dtype(e.dtype).type(operands[0])
        if isinstance(e, ir.Negated):
            return not operands[0] if e.dtype == "bool" else -operands[0]
        assert isinstance(e, ir.ScalarCall)
        return CALLED[e.function](*operands)


OPERATORS: dict[str, Any] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    ">>": operator.rshift,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CALLED: dict[str, Any] = {**implementations("cpu"), "min": min, "max": max, **vars(pointwise)}


@pytest.mark.parametrize("with_lengths", [False, True])
def test_a_target(with_lengths: bool) -> None:
    """A layer norm LSTM, forward and backward, walked."""
    net = ro.Net("model")
    lengths = net.input("lengths", "int32") if with_lengths else None
    net.outputs(y=ro.LayerNormLSTM(net, net.input("xs"), lengths, None, 4, 5, scope="rnn")[0])
    given = {**ro.init_params(net, seed=0, dtype="float64"), "xs": feeds()["xs"]}
    if with_lengths:
        given["lengths"] = np.array([5, 2, 0], np.int32)
    walker = {"walker": lambda net: ro.compile(net, tuning=Options(device=Walker()))}
    ro.testing.check_devices(net, given, walker)
