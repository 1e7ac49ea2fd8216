"""Addresses as expressions: of a row at a step, and of the first step of a tile."""

from __future__ import annotations

import pytest

from rnnops.compiler.codegen.places import Addresses, Place
from rnnops.compiler.codegen.pointwise_kernel import SizeArguments
from rnnops.compiler.lower.expressions import Name

CASES = {
    "each step": (Place("x", step=6, over="t", row=3), "t * 6 + n * 3", "low * 6"),
    "a step later": (Place("h", step=6, over="t", shift=2, row=3), "(t + 2) * 6 + n * 3", "(low + 2) * 6"),
    "two steps in turn": (Place("h", step=6, over="t", shift=1, ring=2, row=3), "(t + 1) % 2 * 6 + n * 3", None),
    "one step": (Place("h", step=6, over="t", ring=1, row=3), "0 * 6 + n * 3", None),
    "scratch of a tile": (
        Place("s", start=5, step=6, over="i", row=3, thread=50),
        "5 + i * 6 + n * 3 + rank * 50",
        "5",
    ),
    "rows of threads in pages of their own": (
        Place("s", start=5, row=3, apart=1040),
        "5 + n * 3 + apart * 1040",
        "5",
    ),
    "one sum of four rows": (Place("s", row=3, together=4), "n // 4 * 3", "0"),
    "what all rows share": (Place("w", start=7), "7", "7"),
}


def text(sizes: SizeArguments, address: object) -> str:
    """An address with numbers where sizes have names."""
    found = str(address)
    for number, value in enumerate(sizes.values):
        found = found.replace(f"c{number}", str(value))
    return found


@pytest.mark.parametrize("name", CASES)
def test_rows_and_tiles(name: str) -> None:
    place, row, tile = CASES[name]
    sizes = SizeArguments()
    assert text(sizes, Addresses(sizes, batched=True).of_row(place, Name("n"))) == row
    if tile is not None:
        assert text(sizes, Addresses(sizes, batched=True).of_tile(place)) == tile


def test_without_a_batch_there_are_no_rows() -> None:
    sizes = SizeArguments()
    assert text(sizes, Addresses(sizes, batched=False).of_row(CASES["each step"][0], Name("n"))) == "t * 6"
