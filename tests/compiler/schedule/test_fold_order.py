"""Orders that keep folds in registers: what shares a nest then, and in which order it is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scan_cases import lowered_step
from small_programs import lowered_of

import rnnops as ro
from rnnops.compiler.lower.statements import Layout, Statement
from rnnops.compiler.schedule.loop_nests import Nest, fuse_nests
from rnnops.compiler.schedule.sums import folds_innermost

S, E = 4, 3


def statements_of(build: Callable[..., ro.Blob], **kinds: Any) -> list[Statement]:
    cell = ro.Net("cell")
    given = {name: cell.input(name, "int32" if kind[0] == "int32" else None) for name, kind in kinds.items()}
    cell.outputs(y=build(**given))
    return lowered_step(cell, **kinds).statements


def names(nests: list[Nest]) -> list[str]:
    return [f"{list(nest.extents)} " + ", ".join(s.blob for s in nest.statements) for nest in nests]


def weighted_sum(a: ro.Blob, b: ro.Blob) -> ro.Blob:
    return ro.reduce_sum(ro.tanh(a * b), axes=[0])


def test_a_fold_over_the_outer_axis_is_in_a_register_with_what_it_reads() -> None:
    statements = statements_of(weighted_sum, a=(S, 1), b=(S, E))
    assert names(fuse_nests(statements))[:3] == [
        f"[{S}, {E}] mul_0, tanh_0",
        f"[{E}] reduce_sum_0",
        f"[{S}, {E}] reduce_sum_0",
    ]
    assert names(fuse_nests(statements, folds_last=True)) == [f"[{E}, {S}] mul_0, tanh_0, reduce_sum_0"]


def test_what_a_later_fold_reads_is_computed_right_before_it() -> None:
    """`tanh` needs nothing of what comes between, and is in one nest with the sum."""

    def build(a: ro.Blob, b: ro.Blob) -> ro.Blob:
        early = ro.tanh(b)
        return ro.reduce_sum(early * ro.exp(ro.reduce_sum(a * a, axes=[0])), axes=[0])

    nests = names(fuse_nests(statements_of(build, a=(S, E), b=(S, E)), folds_last=True))
    assert nests[-1] == f"[{E}, {S}] tanh_0, mul_1, reduce_sum_1"


def test_what_two_folds_read_is_computed_in_the_order_of_the_first() -> None:
    def build(a: ro.Blob) -> ro.Blob:
        made = ro.exp(a)
        return ro.reduce_sum(made * ro.reduce_sum(made, axes=[1]), axes=[0])

    nests = names(fuse_nests(statements_of(build, a=(S, E)), folds_last=True))
    assert nests == [f"[{S}, {E}] exp_0, reduce_sum_0", f"[{E}, {S}] mul_0, reduce_sum_1"]


def test_what_is_made_of_a_sums_operand_goes_in_its_order() -> None:
    """Both `y` and a sum read what is made in the order of the sum."""

    def build(a: ro.Blob) -> ro.Blob:
        made = ro.exp(a)
        return made * ro.reduce_sum(made, axes=[0])

    nests = names(fuse_nests(statements_of(build, a=(S, E)), folds_last=True))
    assert nests == [f"[{E}, {S}] exp_0, reduce_sum_0", f"[{E}, {S}] mul_0"]


def test_without_folds_nothing_changes() -> None:
    statements = statements_of(lambda a, b: ro.tanh(a * b) + a, a=(S, E), b=(E,))
    assert fuse_nests(statements, folds_last=True) == fuse_nests(statements)


@pytest.mark.parametrize("place", range(4))
def test_nothing_moves_past_what_it_meets(place: int) -> None:
    """Every statement comes after all that it reads, wherever a sum is read."""

    def build(a: ro.Blob, b: ro.Blob) -> ro.Blob:
        parts = [a, ro.exp(a), ro.tanh(a) * b, ro.reduce_sum(a * b, axes=[0])]
        parts.append(ro.reduce_sum(parts[place] * b, axes=[0]))
        return parts[1] * parts[4] + parts[2] * parts[3]

    nests = fuse_nests(statements_of(build, a=(S, E), b=(S, E)), folds_last=True)
    made: set[str] = set()
    for statement in (statement for nest in nests for statement in nest.statements):
        own = {access.owner for access in statement.reads()} - {"a", "b"}
        assert own <= made
        made.add(statement.target.owner)


def test_axes_are_moved_statement_by_statement() -> None:
    """Folded axes last; what a fold reads, and what is made of that, goes the way that it goes."""
    lines = "p = Mul(a, b); y = ReduceSum(p, axes=[0])"
    product, total = folds_innermost(lowered_of(lines, a=(S, 1), b=(S, E)).statements)
    assert (product.extents, total.extents) == ((E, S), (E, S))
    assert product.target.layout == Layout(0, (E, S), (1, E))
    assert [access.layout.strides for access in product.reads()] == [(0, 1), (1, E)]
    assert total.folded_axes() == (1,)
