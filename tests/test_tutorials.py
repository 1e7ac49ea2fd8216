"""Pages of docs/tutorials have the models of examples/tutorials, and PyTorch's peers are the same models."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnops as ro

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "examples" / "tutorials"
PAGES = ROOT / "docs" / "tutorials"
MODELS = {"co2": "forecaster", "digits": "Reader", "pixels": "Oscillators", "speech": "listener", "text": "Writer"}
PACKAGES = {"co2": ["statsmodels"], "digits": ["sklearn"], "speech": ["sklearn", "sktime"], "text": []}
SHORT: dict[str, dict[str, Any]] = {
    "co2": {"STEPS": 6, "BATCH": 4, "WEEKS": 40, "OPEN": 10, "CONTEXT": 40},
    "digits": {"EPOCHS": 1},
    "speech": {"EPOCHS": 1},
    "text": {"STEPS": 4, "N": 8, "T": 16},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_page_has_the_model_of_its_program(name: str) -> None:
    page = "\n".join(re.findall(r"```python\n(.*?)```", (PAGES / f"{name}.md").read_text(), re.S))
    assert definition(page, MODELS[name]) == definition((PROGRAMS / f"{name}.py").read_text(), MODELS[name])


def definition(source: str, name: str) -> str:
    """A function or class without its comments, docstring and annotations of results."""
    (found,) = [node for node in ast.parse(source).body if getattr(node, "name", None) == name]
    if ast.get_docstring(found):
        found.body.pop(0)
    for node in ast.walk(found):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    return ast.unparse(found)


@pytest.fixture
def _programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The programs can be imported, and are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    before = set(sys.modules)
    yield
    for path in PROGRAMS.glob("*.py"):
        if path.stem not in before:
            sys.modules.pop(path.stem, None)


@pytest.mark.usefixtures("_programs")
@pytest.mark.parametrize("name", SHORT)
def test_pytorch_trains_the_same_model(name: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    for package in PACKAGES[name]:
        pytest.importorskip(package)
    program = import_module(name)
    for setting, value in SHORT[name].items():
        setattr(program, setting, value)
    peer = import_module(f"{name}_torch")
    assert program.HIDDEN == peer.HIDDEN
    np.testing.assert_allclose(peer.train(3, start(program))[0], program.train(3)[0], rtol=1e-4)


def start(program: Any) -> Any:
    """The parameters that the program's model begins with."""
    if hasattr(program, "compiled"):
        return program.compiled(3).get_params()
    return ro.init_params(program.forecasts() if hasattr(program, "forecasts") else program.listener(True), 3)
