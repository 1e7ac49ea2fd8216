"""Layers of a net: ops inside `with net.layer(name)` are one, any other op that reads something is one."""

from __future__ import annotations

import pytest
from small_programs import program_of, recurrence_saved

from rnnops.compiler.run.find_layers import backward_parts, find_layers, layer_numbers, result_names
from rnnops.errors import GradientError

LAYERS = find_layers(
    program_of("a = Tanh(x) @ first; b = Mul(a, w); c = Exp(b) @ last; y = Add(c, a) @ first", x=(2, 3), w=(3,)), {}
)


def test_the_last_layer_comes_first() -> None:
    assert [layer.names for layer in LAYERS] == [("last",), ("b",), ("first",)]


def test_what_layers_read_and_make() -> None:
    first = LAYERS[-1]
    assert first.ops == {("a", 0), ("y", 0)}
    assert (first.reads, first.makes) == ({"x", "a", "c"}, {"a", "y"})


def test_names_have_numbers() -> None:
    assert layer_numbers(LAYERS, ["first", "b"], "layers=", "n") == [2, 1]
    with pytest.raises(GradientError, match="names no layer"):
        layer_numbers(LAYERS, ["a"], "layers=", "n")


def test_a_recurrence_is_called_by_its_results() -> None:
    (call,) = recurrence_saved("a = Add(x, h); y = Tanh(a)")[0].calls
    assert result_names(call.op)[:2] == ["y_all", "y_last"]
    assert backward_parts(call) == (), "one state is one layer"
