"""The tester is tested: faults that are planted are found, those that both devices share by relations alone."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import seeds
from cell_text import Writer
from program_text import write_program
from quick_code import unoptimised
from recipe import Layer, Recipe, State, draw_recipe
from shrink_recipe import shrink
from verdicts import BESIDE, RELATIONS, examine

from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Pointwise
from rnnops.ops.activation import Tanh

RECIPE = Recipe(
    seed=3,
    sizes=(3, 2, 3),
    classes=3,
    layers=(Layer(5, (("gate", 1), ("residual", 2), ("sum_then_product", 3)), (State((3,)),), ("x",)),),
)


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with unoptimised():
        yield


def test_a_seed_is_a_program() -> None:
    one, two = (write_program(draw_recipe(41)).text for _ in range(2))
    assert one == two
    assert "ro.scan(" in one


def test_a_kernel_that_is_wrong_is_found_beside_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tanh, "loop", Pointwise("tanh({0}) * 1.00001"))
    verdict = examine(RECIPE)
    assert verdict.kind == "differs"
    assert "gradient" in verdict.detail or "output" in verdict.detail


def test_a_gradient_that_is_wrong_on_both_devices_is_found_by_a_relation(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradient(self: Tanh, call: Any, x: Blob, y: Blob, dy: Blob) -> Blob:
        return dy * (1.001 - y * y)

    monkeypatch.setattr(Tanh, "gradient", gradient)
    assert examine(RECIPE).kind == "same"
    found = [examine(RECIPE, "rewritten", salt).kind for salt in range(6)]
    assert "differs" in found


@pytest.mark.parametrize("relation", RELATIONS)
def test_relations_hold_for_a_plain_cell(relation: str) -> None:
    verdict = examine(RECIPE, relation)
    assert verdict.kind == "same", verdict


def test_a_failure_is_told_with_its_smallest_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tanh, "loop", Pointwise("tanh({0}) * 1.00001"))
    verdict = examine(RECIPE)
    smallest = shrink(RECIPE, lambda one: seeds.fails(one, BESIDE, 0, "differs"), tries=40)
    assert len(smallest.layers[0].motifs) < 3
    text = seeds.script(smallest, BESIDE, examine(smallest))
    compile(text, "<script>", "exec")
    assert "np.tanh" in text
    assert verdict.failed


def test_lines_are_written_in_ways_that_mean_the_same() -> None:
    plain, other = write_program(RECIPE), write_program(RECIPE, Random(1))
    assert plain.text != other.text
    assert plain.feeds == other.feeds


def test_a_writer_ties_parameters() -> None:
    writer, r = Writer((2,), "a"), Random(0)
    names = {writer.parameter(r, (3, 3)) for _ in range(20)}
    assert any(name.endswith(".T") for name in names)
    assert len(writer.inputs) < 15
