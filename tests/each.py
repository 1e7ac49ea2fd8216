"""Many small cases in one test: all are tried, and what failed is told by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Checked = TypeVar("Checked")


def check_each(
    cases: Iterable[Checked], check: Callable[[Checked], object], name: Callable[[Checked], str] = str
) -> None:
    """Run a check on every case; an error names those that failed, and comes from the first.

    Args:
        cases: what is checked, at least one.
        check: raises where a case is wrong.
        name: what a case is called.
    """
    count, failed = 0, list[tuple[str, Exception]]()
    for count, case in enumerate(cases, 1):  # noqa: B007 - it is told below
        try:
            check(case)
        except Exception as error:
            failed.append((name(case), error))
    assert count, "there is nothing to check"
    if failed:
        told = "\n".join(f"{called}: {type(error).__name__}: {error}" for called, error in failed[:20])
        raise AssertionError(f"{len(failed)} of {count} cases failed:\n{told}") from failed[0][1]
