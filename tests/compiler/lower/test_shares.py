"""Shares of threads and places of indices: expressions that plans write, as Python computes them."""

from __future__ import annotations

from rnnops.compiler.lower.expressions import Expr, Literal, Name, inside, share_of


def value(expression: Expr, **numbers: int) -> int:
    found = {}
    exec(compile(f"found = {expression}", "expression", "exec"), {**numbers, "min": min, "max": max}, found)
    return int(found["found"])


def test_shares_are_all_there_is_once() -> None:
    for block in (1, 8, 48):
        first, last = share_of(Name("rank"), Name("threads"), Name("count"), Literal(block))
        for count in (0, 1, 7, 48, 100):
            for threads in (1, 2, 3, 64):
                known = [{"rank": rank, "threads": threads, "count": count} for rank in range(threads)]
                shares = [(value(first, **one), value(last, **one)) for one in known]
                assert [begin for begin, _ in shares[1:]] == [end for _, end in shares[:-1]]
                assert (shares[0][0], shares[-1][1]) == (0, count)
                assert all(begin % block == 0 or begin == count for begin, _ in shares)


def test_indices_count_from_the_end_and_stay_inside() -> None:
    place = inside(Name("index"), Name("size"))
    found = [value(place, index=index, size=3) for index in range(-6, 7)]
    assert found == [0, 0, 0, 0, 1, 2, 0, 1, 2, 2, 2, 2, 2]
