"""What policies would cost, as numbers and as a table."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

from small_programs import Saved, recurrence_saved

from rnnops.checkpoints.policy import Policy, Slots
from rnnops.compiler.memory.choose_saved import step_cost, ways
from rnnops.compiler.report.costs import ESTIMATE_HEAD, Estimate, EstimateTable, estimate_of, estimates
from rnnops.compiler.report.describe import SAVED_HEAD as RESIDUALS_HEAD, SavedBlob, SavedResiduals

HEADS = {EstimateTable: ESTIMATE_HEAD, SavedResiduals: RESIDUALS_HEAD}
STATE = 8 * 2 * 3


def by(policy: Policy) -> Saved:
    return recurrence_saved("a = MatMul(x, w); b = Sigmoid(a); c = Mul(b, h); y = Tanh(c)", policy, w=(3, 3))


def test_one_policy() -> None:
    assert estimate_of(by, Policy("all")) == Estimate("all", 9 * STATE, 1.0)
    policy = Policy("memory")
    assert estimate_of(by, policy) == Estimate("memory", 5 * STATE, step_cost(by(policy)).time(Slots(1)))


def test_of_two_parts() -> None:
    policy = Policy("all", slots=Slots(2, steps=2))
    found = estimate_of(by, policy)
    assert found.time == step_cost(by(policy)).time(Slots(2, steps=2)) > 1
    assert found.nbytes == (3 + 2 + 1) * STATE + STATE + 2 * STATE + 3 * STATE  # a part, a slot, at hand, results


def test_the_table() -> None:
    rows = estimates(by, lambda steps, batch: 2).rows
    assert rows[0].policy == "all"
    assert all(one.time < other.time and one.nbytes > other.nbytes for one, other in pairwise(rows))
    every = ways(by, lambda steps, batch: 2)
    assert len(rows) < len(every)
    for way in every:
        assert any(row.time <= way.time and row.nbytes <= way.nbytes for row in rows)
    table = EstimateTable((Estimate("all", 12345, 1.0), Estimate("memory", 7, 1.25)))
    assert str(table).split("\n") == [
        "  policy  time   bytes",
        "  all     1.00  12 345",
        "  memory  1.25       7",
    ]
    assert str(table.rows[0]) == "all: 12 345 bytes, 1.00 of the time"


def test_notebooks_show_tables_with_names_as_text() -> None:
    found = EstimateTable((Estimate("['<b>']", 12345, 1.0),))
    residuals = SavedResiduals((SavedBlob("kept", "<i>", "a&b", "float32", (2, 3)),))
    for shown in (found, residuals):
        parts = [*ElementTree.fromstring(shown._repr_html_()).iter()]
        cells = [part.text or "" for part in parts if part.tag in ("td", "th")]
        assert cells == [cell.strip() for row in (HEADS[type(shown)], *shown.cells()) for cell in row]
