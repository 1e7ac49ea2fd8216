"""Steps of which rows that are over take no part in products; and why they do, where they must."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_masked_rows import planned

import rnnops as ro
from rnnops.compiler.lower.scan import Role, TensorName
from rnnops.compiler.lower.statements import Stage
from rnnops.compiler.schedule.rows import compact_rows, past_end_reads
from rnnops.ops.indexing import mask_rows

SEQUENCE, STATE = Role.SEQUENCE.of("x"), Role.STATE.of("h")


def texts(stages: tuple[Stage, ...]) -> list[str]:
    return [str(node) for stage in stages for node in stage.nodes]


def test_a_masked_product_is_one_of_fewer_rows() -> None:
    scan, plan = planned(lambda x, h, w, lengths, t: ro.select_valid(mask_rows(x, lengths, t) @ w, h, lengths, t))
    compacted = compact_rows(scan, plan)
    assert (compacted.lengths, compacted.uncompacted) == ("lengths", "")
    assert any("@ w" in line for line in texts(compacted.stages))
    assert texts(compacted.past_end) == ["y[4, 3] = copy(h)"]
    assert past_end_reads(compacted) == {STATE}


def test_a_product_that_is_not_masked_stays() -> None:
    scan, plan = planned(lambda x, h, w, lengths, t: ro.tanh(ro.select_valid(x, h, lengths, t) @ w))
    kept = compact_rows(scan, plan)
    assert (kept.lengths, kept.past_end, kept.uncompacted) == ("", (), "'lengths' masks no product")
    assert texts(kept.stages) == texts(plan.stages)
    assert past_end_reads(kept) == {SEQUENCE, STATE}, "rows that are over go the same way"


@pytest.mark.parametrize("unseen", [(), (STATE,)])
def test_what_nobody_sees_is_not_stored(unseen: tuple[TensorName, ...]) -> None:
    scan, plan = planned(lambda x, h, w, lengths, t: ro.select_valid(x @ w, h, lengths, t))
    assert texts(compact_rows(replace(scan, unseen=frozenset(unseen)), plan).past_end) == (
        [] if unseen else ["y[4, 3] = copy(h)"]
    )


def test_without_lengths_nothing_changes() -> None:
    scan, plan = planned(lambda x, h, w, lengths, t: ro.tanh(x @ w + h))
    assert compact_rows(scan, plan) is plan
