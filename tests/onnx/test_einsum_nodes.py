"""Einsum of ONNX: equations beside onnx.reference; what says nothing is refused while the file is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from each import check_each
from einsum_equations import EQUATIONS
from one_node import check_node, one_node, read

from rnnops.onnx import OnnxError

Equation = tuple[str, list[tuple[int, ...]]]


def test_equations(tmp_path: Path) -> None:
    named = [(text, shapes) for text, shapes in EQUATIONS if broadcasts_by_dots_alone(text, shapes)]
    check_each(named, lambda equation: check_equation(equation, tmp_path), str)


def broadcasts_by_dots_alone(text: str, shapes: list[tuple[int, ...]]) -> bool:
    """Whether sizes of one letter are equal, so that those of a file may be open, by name."""
    return "..." not in text and all(1 not in shape for shape in shapes)


def check_equation(equation: Equation, folder: Path) -> None:
    text, shapes = equation
    draw = np.random.default_rng(0)
    feeds = {f"x{i}": draw.uniform(-1, 1, shape).astype("float32") for i, shape in enumerate(shapes)}
    check_node(one_node("Einsum", {"equation": text}, feeds, 12), feeds, folder)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij,jk->ik", "wanted 2 operands; got 1"),
        ("i->j", "letters that no operand has"),
        ("i1->i", "not a term of letters"),
        ("ij->ii", "a letter twice"),
        ("i->i->i", "not a term of letters"),
    ],
)
def test_equations_that_say_nothing(equation: str, message: str, tmp_path: Path) -> None:
    model = one_node("Einsum", {"equation": equation}, {"x": np.ones((2, 2), "float32")}, 12)
    with pytest.raises(OnnxError, match=rf"one.onnx.*Einsum.*{message}"):
        read(model, tmp_path / "one.onnx")
