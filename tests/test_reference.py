"""The reference: every public name says what it takes, what it raises, and has an example; all examples run.

In examples `np` is NumPy, `ro` is rnnops, and arrays print four digits.
"""

from __future__ import annotations

import ast
import pydoc
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import getsource, isclass, isfunction, signature
from itertools import pairwise
from typing import Any

import onnx
import pytest
from docstrings import listed, own_doc, parameters, run_examples, sections
from each import check_each
from public_names import public_names

import rnnops as ro
from rnnops.net.schema import REGISTRY, docstring_of
from rnnops.ops.base import Unary
from rnnops.types import BOOL
from rnnops.util import cached_property

CANNOT_FAIL = {"rnnops.op_names", "rnnops.devices", "rnnops.release_memory"}
VALUES = {  # what is neither a class nor a function -> the module in which a docstring stands below it
    "VERSION": "rnnops",
    "CELLS": "rnnops.cells.sized",
    "TOLERANCES": "rnnops.testing.gradient_check",
}
FOREIGN = {"Expm1", "Log1p", "SelectValid", "StopGradient", "WithGradient"}  # ops that ONNX has not
FOREIGN |= {"Solve", "Cholesky", "Slogdet"}
WRITTEN_OPSET = 20  # that `ro.onnx.export` writes unless told
YOUNGER = {"CumProd": 26, "RMSNormalization": 23}  # ops that this one does not have
ON_ONE_LINE = re.compile(r"^(Args|Returns|Yields|Raises|Example): ", re.M)
RETURNED = (  # classes of objects that users get and do not make: their methods are public, too
    "rnnops.compiler.api.compile.Device",
    "rnnops.compiler.api.planned_run.PlannedRun",
    "rnnops.compiler.api.stream.Stream",
    "rnnops.compiler.run.export_native.ExportedFiles",
    "rnnops.compiler.report.costs.BudgetCurve",
    "rnnops.compiler.report.costs.Estimate",
    "rnnops.compiler.report.costs.EstimateTable",
    "rnnops.compiler.report.costs.OpProfile",
    "rnnops.compiler.report.costs.PassProfile",
    "rnnops.compiler.report.costs.Profile",
    "rnnops.compiler.report.describe.SavedBlob",
    "rnnops.compiler.report.describe.SavedResiduals",
    "rnnops.compiler.report.memory_timeline.MemoryCurve",
    "rnnops.compiler.report.memory_timeline.MemoryRow",
    "rnnops.compiler.report.memory_timeline.MemoryTable",
    "rnnops.compiler.report.memory_timeline.PassMemory",
    "rnnops.compiler.report.schedule.Schedule",
    "rnnops.net.op.Input",
    "rnnops.net.op.Op",
    "rnnops.net.drawing.Drawing",
    "rnnops.recurrent.scan.CellFunction",
    "rnnops.types.Type",
)


@dataclass(frozen=True)
class Entry:
    """A public name, or `name.method` of a public class."""

    name: str
    value: Any
    is_method: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def is_error(self) -> bool:
        return isclass(self.value) and issubclass(self.value, BaseException)

    @property
    def is_value(self) -> bool:
        return not self.is_method and self.short in VALUES

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def doc(self) -> str:
        return value_doc(self.short) if self.is_value else own_doc(self.value)

    @property
    def takes(self) -> set[str]:
        """Names of parameters that it must document itself."""
        inherited = self.is_error and "__init__" not in vars(self.value)
        return set() if self.is_value or inherited else parameters(self.value)


def value_doc(name: str) -> str:
    """The string below `NAME = ...` in its module."""
    body = ast.parse(getsource(import_module(VALUES[name]))).body
    for node, below in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        said = below.value if isinstance(below, ast.Expr) else None
        if any(isinstance(one, ast.Name) and one.id == name for one in targets) and isinstance(said, ast.Constant):
            return str(said.value)
    return ""


def entries(torch: bool = False) -> Iterator[Entry]:
    """All public names and methods: those of `rnnops.torch`, or all others."""
    names = {name: value for name, value in public_names(torch).items() if name.startswith("rnnops.torch.") == torch}
    for name, value in names.items():
        yield Entry(name, value)
        yield from methods(name, value, names.values()) if isclass(value) else ()
    for path in () if torch else RETURNED:
        module, _, name = path.rpartition(".")
        value = getattr(import_module(module), name)
        yield Entry(path, value, is_method=True)
        yield from methods(path, value, names.values())


def methods(name: str, value: type, public: Any) -> Iterator[Entry]:
    """Methods and properties of a class and of those of its bases that are not public themselves."""
    others = {id(one) for one in public} - {id(value)}
    for base in value.__mro__:
        if base.__module__.startswith("rnnops") and id(base) not in others:
            for own, one in vars(base).items():
                kinds = (property, cached_property, classmethod, staticmethod)
                if (own.startswith("_") and own != "__call__") or not (isfunction(one) or isinstance(one, kinds)):
                    continue
                if own_doc(one) or not is_said_by_a_base(base, own):
                    yield Entry(f"{name}.{own}", one, is_method=True)


def is_said_by_a_base(owner: type, name: str) -> bool:
    """Whether a base of a class documents a method that the class writes anew without a docstring."""
    return any(own_doc(vars(base)[name]) for base in owner.__mro__[1:] if name in vars(base))


def check(entry: Entry) -> None:
    """Raise AssertionError for what a docstring lacks."""
    found = sections(entry.doc)
    assert found[""], "it has no docstring of its own that begins with what it is"
    lacking = entry.takes - listed(found.get("Args", ""))
    assert not lacking, f"Args: lacks {', '.join(sorted(lacking))}"
    unknown = set() if entry.is_value else listed(found.get("Args", "")) - parameters(entry.value, all_of_them=True)
    assert not unknown, f"Args: says {', '.join(sorted(unknown))}, which it has not"
    assert not ON_ONE_LINE.search(entry.doc), "a section begins on the line of its heading"
    returned = found.get("Returns", "") + found.get("Yields", "")
    assert not re.search(r":(\s|$)", returned), "what stands before a colon in Returns: is shown as a type"
    if not entry.is_method:
        assert ">>> " in found.get("Example", ""), "it has no Example: with >>> lines"
        if not (entry.is_error or entry.is_value or entry.name in CANNOT_FAIL):
            assert listed(found.get("Raises", "")), "it has no Raises:"


def check_docstrings(found: list[Entry]) -> None:
    check_each(found, check)


def check_examples(found: list[Entry]) -> None:
    check_each(found, lambda entry: run_examples(entry.doc, entry.name))


def test_every_public_name_is_documented() -> None:
    check_docstrings(list(entries()))


@pytest.mark.usefixtures("_clean_registry")
def test_examples_of_docstrings_run() -> None:
    check_examples(list(entries()))


def test_rnnops_torch() -> None:
    pytest.importorskip("torch")
    check_docstrings(list(entries(torch=True)))
    check_examples(list(entries(torch=True)))


def test_what_a_docstring_lacks_is_told() -> None:
    def half(x: int, **options: int) -> None:
        """Do half of it.

        Args:
            y, z: others.
        """

    class Base:
        def says(self) -> None:
            """Say it."""

        def is_silent(self) -> None: ...

    class Heir(Base):
        def says(self) -> None: ...

        def is_silent(self) -> None: ...

    assert [is_said_by_a_base(Heir, name) for name in ("says", "is_silent")] == [True, False]
    with pytest.raises(AssertionError, match="Args: lacks x"):
        check(Entry("half", half))

    def none() -> None:
        """Do nothing.

        Args:
            z: another.
        """

    with pytest.raises(AssertionError, match="Args: says z, which it has not"):
        check(Entry("none", none))
    with pytest.raises(AssertionError, match="no docstring"):
        check(Entry("none", lambda: None))
    with pytest.raises(AssertionError, match="Expected"):
        run_examples(">>> ro.op_names()[0]\n'Add'\n", "wrong")


def test_help_shows_an_op_as_a_function() -> None:
    shown = pydoc.plain(pydoc.render_doc(ro.layer_normalization))
    called = "layer_normalization(x, scale, bias=None, axis=-1, epsilon=1e-05)"
    assert f"layer_normalization = <op LayerNormalization: {called}>\n    `(x - mean)" in shown
    assert list(signature(ro.layer_normalization).parameters) == ["x", "scale", "bias", "axis", "epsilon"]
    assert (ro.and_.__name__, ro.topk.__name__) == ("and_", "topk")


def test_help_shows_operators_of_blobs_by_their_names() -> None:
    shown = pydoc.plain(pydoc.render_doc(ro.Blob))
    assert "<lambda>" not in shown
    assert "__radd__(self, other)" in shown


def check_op(name: str) -> None:
    """Raise AssertionError where a docstring says otherwise than ONNX, or than the op itself."""
    schema = REGISTRY[name]
    doc = schema.__doc__ or ""
    said = re.search(rf"ONNX: {name}, op set (\d+)", doc)
    if name in FOREIGN:
        assert re.search("Not in ONNX: (a file gets|exports refuse)", doc)
    else:
        assert said is not None
        assert int(said[1]) == onnx.defs.get_schema(name, YOUNGER.get(name, WRITTEN_OPSET)).since_version
    if not schema.differentiable:
        assert re.search(r"[Gg]radients?\s(stop|pass)", doc), "it does not say that gradients stop"


def test_an_op_has_the_sections_that_it_leaves_out_from_its_base() -> None:
    class Twice(Unary):
        """`2 * x`.

        Returns:
            Twice as much.
        """

        accepts = (BOOL, "int8")

    found = sections(docstring_of(Twice()))
    assert found[""] == "`2 * x`."
    assert found["Args"].strip() == "x: [...] bool or int8."
    assert found["Returns"].strip() == "Twice as much."
    assert listed(found["Raises"]) == {"NetError", "TypeRuleError"}
    assert "Example" not in sections(docstring_of(type("Same", (type(ro.relu),), {})()))


def test_ops_say_what_onnx_has_for_them() -> None:
    check_each(ro.op_names(), check_op)
