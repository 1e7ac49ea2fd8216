"""Backward passes that run segments again: for each row a segment's steps up from its border, then down."""

from __future__ import annotations

import pytest
from matrix_cells import case

import rnnops as ro
from rnnops.compiler.codegen.scan_module import SegmentWriter
from rnnops.compiler.memory import choose_saved


@pytest.mark.parametrize("reverse", [False, True])
def test_a_row_goes_up_and_then_down(monkeypatch: pytest.MonkeyPatch, reverse: bool) -> None:
    monkeypatch.setattr(choose_saved, "CACHE", 0)
    written = []
    monkeypatch.setattr(
        SegmentWriter, "written", lambda self, own=SegmentWriter.written: written.append(own(self)) or written[-1]
    )
    net, feeds = case("delta_net", T=40, reverse=reverse)
    ro.compile(net).plan(feeds)
    lines = [line.strip() for line in written[0].module.driver.lines()]
    order = [line.split("(")[0] for line in lines if line.startswith(("for n ", "copy_", "for step", "rows_"))]
    assert order == [
        "for n in range", "copy_float32", "for step in range", "rows_0", "copy_float32", "for step in range", "rows_1",
        "copy_float32",
    ]  # fmt: skip
    assert "back = (T - 1) // K * K - tile" in lines
