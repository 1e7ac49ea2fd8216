"""Ops that only move elements: views where strides describe them, else copies; the same elements as the reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scan_cases import lowered_step, run_statements, value_of
from small_programs import call_of, lowered_of, memory_of, program_of, texts_of

import rnnops as ro
from rnnops.compiler.lower.movements import lower_movement, moved_numbers
from rnnops.compiler.lower.scan import Lowered, UnsupportedError
from rnnops.compiler.lower.statements import Access, Layout, split_axes
from rnnops.net.loop_forms import View
from rnnops.net.schema import form_of
from rnnops.ops.base import scatter_slice
from rnnops.types import Shape

X = np.random.default_rng(0).normal(size=(3, 4, 2))
Build = Callable[[ro.Blob], ro.Blob]
VIEWS: dict[str, Build] = {
    "transpose": lambda x: ro.transpose(x, perm=[2, 0, 1]),
    "reshape": lambda x: ro.reshape(x, [4, 6]),
    "squeeze": lambda x: ro.squeeze(ro.unsqueeze(x, [1]), [1]),
    "slice": lambda x: ro.slice(x, [1, 0], [3, 4], [1, 0], [1, 1]),
    "slice_backwards": lambda x: ro.slice(x, [-1], [-99], [1], [-2]),
    "split": lambda x: ro.split(x, [1, 3], axis=1)[1],
    "expand": lambda x: ro.expand(ro.slice(x, [0], [1], [1]), [3, 5, 2]),
    "gather_one": lambda x: ro.gather(x, -1, axis=1),
    "gather_in_steps": lambda x: ro.gather(x, [0, 2], axis=1),
}
COPIES: dict[str, Build] = {
    "reshape_of_transposed": lambda x: ro.reshape(ro.transpose(x, perm=[1, 0, 2]), [4, 6]),
    "tile": lambda x: ro.tile(x, [1, 2, 1]),
    "concat": lambda x: ro.concat([x, ro.tanh(x), x], axis=1),
    "concat_of_itself": lambda x: ro.concat([x, x], axis=0),
    "concat_with_a_number": lambda x: ro.concat([x, ro.expand(x.net.constant(0.5), [3, 1, 2])], axis=1),
    "pad": lambda x: ro.pad(x, [1, 2, 0, 1], constant_value=0.25, axes=[0, 1]),
    "pad_and_cut": lambda x: ro.pad(x, [-1, 2], axes=[1]),
    "pad_reflect": lambda x: ro.pad(x, [2, 1], mode="reflect", axes=[1]),
    "pad_edge": lambda x: ro.pad(x, [2, 1, 1, 1], mode="edge", axes=[1, 2]),
    "pad_wrap": lambda x: ro.pad(x, [3, 2], mode="wrap", axes=[1]),
    "pad_with_a_blob": lambda x: ro.pad(x, [1, 1], ro.reduce_max(x, keepdims=0), axes=[1]),
    "gather_in_no_order": lambda x: ro.gather(x, [3, 0, 1, -4], axis=1),
    "gather_a_matrix": lambda x: ro.gather(x, [[2, 0], [1, 1]], axis=0),
    "gather_twice": lambda x: ro.gather(ro.gather(x, [3, 0, 1], axis=1), [2, 0, 0], axis=1),
    "gradient_of_a_stepped_slice": lambda x: scatter_slice(x, (3, 9, 2), (1,), (1,), (2,)),
}


def cell_of(build: Build) -> ro.Net:
    cell = ro.Net("moves")
    cell.outputs(y=build(cell.input("x")))
    return cell


@pytest.mark.parametrize("name", [*VIEWS, *COPIES])
def test_elements_are_the_references(name: str) -> None:
    cell = cell_of({**VIEWS, **COPIES}[name])
    lowered = lowered_step(cell, x=X.shape)
    wanted = ro.compile(cell, device="reference")(x=X)["y"]
    came = value_of(lowered, run_statements(lowered, {"x": X}), cell.output_blobs["y"])
    np.testing.assert_array_equal(np.broadcast_to(came, wanted.shape), wanted)


@pytest.mark.parametrize("name", VIEWS)
def test_views_cost_nothing(name: str) -> None:
    cell = cell_of(VIEWS[name])
    lowered = lowered_step(cell, x=X.shape)
    assert lowered.statements == []
    assert lowered.views[cell.output_blobs["y"]].owner == "x"


def test_copies_name_what_they_copy() -> None:
    texts = [str(s) for s in lowered_step(cell_of(COPIES["pad"]), x=X.shape).statements]
    assert texts == ["pad_0[4, 7, 2] = copy(0.25)", "pad_0[3, 4, 2] = copy(x)"]


def test_a_known_index_out_of_range_is_left_to_the_reference() -> None:
    with pytest.raises(UnsupportedError, match="out of range"):
        lowered_step(cell_of(lambda x: ro.gather(x, [4], axis=1)), x=X.shape)


def test_parts_of_numbers_are_numbers() -> None:
    cell = ro.Net("numbers")
    x = cell.input("x")
    cell.outputs(y=ro.expand(x.net.constant(0.5), [3, 2]) + x)
    lowered = lowered_step(cell, x=(3, 2))
    assert [str(s) for s in lowered.statements] == ["add_0[3, 2] = Add(0.5, x)"]


def moved(text: str, **inputs: Shape) -> Lowered:
    """One op, moved by itself."""
    program = program_of(text, **inputs)
    found, (call,) = memory_of(program), program.calls
    form = form_of(call)
    assert isinstance(form, View)
    lower_movement(found, call, form)
    return found


def test_a_turn_is_a_view() -> None:
    found = moved("y = Transpose(x, perm=[1, 0])", x=(2, 3))
    assert texts_of(found) == []
    assert found.views["y"] == Access("x", Layout(0, (3, 2), (1, 3)))


def test_blobs_side_by_side_are_copied_each_to_its_place() -> None:
    found = moved("y = Concat(x, z, axis=1)", x=(2, 3), z=(2, 1))
    assert texts_of(found) == ["y[2, 3] = copy(x)", "y[2, 1] = copy(z)"]
    assert [statement.target.layout for statement in found.statements] == [
        Layout(0, (2, 3), (4, 1)),
        Layout(3, (2, 1), (4, 1)),
    ]


def test_numbers_of_elements_say_what_is_filled_in() -> None:
    call = call_of('y = Pad(x, pads=[0, 1, 0, 0], mode="constant", constant_value=7)', x=(2, 2))
    (numbers,) = moved_numbers(call, [0], [1])
    assert numbers.tolist() == [[0, 1, 2], [0, 3, 4]]


def test_axes_are_split_where_steps_change() -> None:
    numbers = np.arange(24).reshape(2, 3, 4)
    assert split_axes(numbers) == (2, 3, 4)
    assert split_axes(numbers[:, ::2].reshape(2, 8)) == (2, 2, 4)
    assert split_axes(numbers.transpose(1, 0, 2).reshape(24)) == (3, 2, 4)
    assert split_axes(np.array([0, 1, 2, 4, 5])) is None
    assert split_axes(np.array([3])) == (1,)


def test_a_reshape_of_a_view_keeps_its_rows() -> None:
    found = lowered_of("v = Slice(x, starts=[1], ends=[2], axes=[2])\ny = Reshape(v, shape=[5, 12])", x=(5, 3, 2, 4))
    assert texts_of(found) == ["y[5, 3, 4] = copy(x)"]
    assert not found.constants
