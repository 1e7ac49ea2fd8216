"""Ops as statements: every primitive op gives what its reference gives, element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scan_cases import lowered_step, run_statements, value_of
from small_programs import memory_of, program_of, texts_of

import rnnops as ro
from rnnops.compiler.lower.lower_ops import lower_ops
from rnnops.compiler.lower.statements import Access, Layout, Statement

RNG = np.random.default_rng(1)
A, B, M = (RNG.normal(size=shape) for shape in ((3, 4, 2), (4, 1), (2, 5)))
INDICES = np.array([2, 0, 1], "int32")
Build = Callable[..., ro.Blob]
BUILDS: dict[str, Build] = {
    "elementwise": lambda a, b, m, n: ro.tanh(a * b + 1.0) - a,
    "product": lambda a, b, m, n: a @ m,
    "product_of_vectors": lambda a, b, m, n: ro.gather(ro.gather(a, 0, axis=0), 1, axis=0) @ m,
    "matrix_times_vector": lambda a, b, m, n: a @ ro.gather(m, 0, axis=1),
    "product_of_stacks": lambda a, b, m, n: a @ ro.transpose(a, perm=[0, 2, 1]),
    "product_with_broadcasting": lambda a, b, m, n: ro.unsqueeze(a, [1]) @ ro.expand(m, [3, 2, 2, 5]),
    "sum": lambda a, b, m, n: ro.reduce_sum(a, axes=[1]),
    "sum_of_all": lambda a, b, m, n: ro.reduce_sum(a, keepdims=0),
    "mean": lambda a, b, m, n: ro.reduce_mean(a, axes=[0, 2], keepdims=0),
    "largest": lambda a, b, m, n: ro.reduce_max(a, axes=[-1]),
    "smallest": lambda a, b, m, n: ro.reduce_min(a, axes=[0], keepdims=0),
    "squares": lambda a, b, m, n: ro.reduce_sum_square(a, axes=[1], keepdims=0),
    "all_true": lambda a, b, m, n: ro.reduce_min(ro.less(a, 0.5), axes=[1], keepdims=0),
    "some_true": lambda a, b, m, n: ro.reduce_max(ro.less(a, -1.0), axes=[1], keepdims=0),
    "softmax": lambda a, b, m, n: ro.softmax(a, axis=1),
    "normalized": lambda a, b, m, n: ro.layer_normalization(a, ro.gather(m, 0, axis=1), axis=-1),
    "gemm": lambda a, b, m, n: ro.gemm(ro.gather(a, 0, axis=0), m, alpha=0.5, beta=2.0),
    "look_up": lambda a, b, m, n: ro.gather(a, n, axis=1),
    "look_up_rows": lambda a, b, m, n: ro.gather(a, ro.unsqueeze(n, [1]), axis=0),
    "labels": lambda a, b, m, n: ro.softmax_cross_entropy_loss(ro.gather(a, 0, axis=2), n, reduction="none"),
    "integers": lambda a, b, m, n: ro.cast(n * 3, "int8"),
}  # fmt: skip


@pytest.mark.parametrize("name", BUILDS)
def test_statements_give_what_the_reference_gives(name: str) -> None:
    cell = ro.Net("one")
    a, b, m = cell.inputs("a", "b", "m")
    cell.outputs(y=BUILDS[name](a, b, m, cell.input("n", "int32")))
    feeds = {"a": A, "b": B, "m": M, "n": INDICES}
    lowered = lowered_step(cell, a=A.shape, b=B.shape, m=M.shape, n=("int32", (3,)))
    wanted = ro.compile(cell, device="reference")(feeds)["y"]
    came = value_of(lowered, run_statements(lowered, feeds), cell.output_blobs["y"])
    np.testing.assert_allclose(came, wanted, rtol=1e-13, atol=1e-14)


def test_folded_axes_are_those_along_which_the_target_stays() -> None:
    target = Access("y", Layout(0, (2, 3, 4), (4, 0, 1)))
    statement = Statement("y", (2, 3, 4), target, (), "copy", None, "float64", "add", 0)
    assert statement.folded_axes() == (1,)
    indexed = Access("y", target.layout, Access("i", Layout(0, (2, 3, 4), (0, 1, 0))), 8, 2)
    moved = Statement("y", (2, 3, 4), indexed, (), "copy", None, "float64", "add", None)
    assert moved.folded_axes() == (), "the index moves along the axis"


def test_moved_statements_touch_the_same_elements() -> None:
    source = Access("x", Layout(1, (2, 3), (3, 1)), Access("i", Layout(0, (2, 3), (0, 1))), 6, 2)
    statement = Statement("y", (2, 3), Access("y", Layout(0, (2, 3), (3, 1))), (source,), "copy", None, "float64")
    moved = statement.moved((1, 0))
    assert moved.extents == (3, 2)
    assert [access.layout.strides for access in moved.accesses()] == [(1, 3), (1, 3), (1, 0)]


def test_a_copy_that_comes_from_no_op_says_so() -> None:
    with pytest.raises(ValueError, match="comes from no op"):
        Statement("y", (1,), Access("y", Layout(0, (1,), (0,))), (0,), "copy", None, "float64").made_by()


def test_ops_of_a_program_are_statements_in_order() -> None:
    program = program_of("a = Tanh(x); t = Transpose(a, perm=[1, 0]); y = Mul(t, v)", x=(2, 3), v=(3, 1))
    found = lower_ops(program, memory_of(program).views, {})
    assert texts_of(found) == ["a[2, 3] = Tanh(x)", "y[3, 2] = Mul(a, v)"]
    assert found.views["t"] == Access("a", Layout(0, (3, 2), (1, 3)))
    assert [access.layout.strides for access in found.statements[1].reads()] == [(1, 3), (1, 0)]
    assert {*found.types} == {"x", "v", "a", "y"}, "a view has no memory of its own"
