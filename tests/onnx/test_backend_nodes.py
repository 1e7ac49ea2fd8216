"""The ONNX project's own node tests, for every op of the set: passed, or refused for a reason that is listed here."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from pathlib import Path

import pytest
from backend_cases import Outcome, cases, chosen, few, outcome_of
from each import check_each

import rnnops as ro
from rnnops.onnx import export, load
from rnnops.onnx.load import READABLE

REFUSED = {
    "element types that rnnops does not have": r"element type that is not supported",
    "dropout that is active in inference": r"dropout that is active outside training",
    "op sets before 7": r"version of its op set",
    "float32 and float64 inputs in one graph": r"float32 and float64 inputs",
    "sequences and optionals": r"an input is not a tensor|a sequence is read as|got Optional",
    "places and sizes of sequences that a run says": r"in a sequence that is not known|pieces that are not known",
    "trips of a Loop that data decide": r"data decide how many trips",
    "Scan of op set 8": r"Scan of op set 8",
    "indices of MaxPool": r"MaxPool gives no indices",
    "random numbers, of which a run needs a seed": r"no seed is given",
}
ONLY_WRITTEN = {
    "SelectValid",
    "StopGradient",
    "WithGradient",
    "Log1p",
    "Expm1",
}  # as other ops of ONNX
NOT_WRITTEN = {"Cholesky", "Slogdet", "Solve"}  # ONNX has no words for them
YOUNG = {"CumProd": 26, "RMSNormalization": 23}  # ops that older op sets have no name for

OF_SEQUENCES = {"ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceErase"}  # see test_sequences.py


def reason_of(outcome: Outcome) -> str | None:
    return next((reason for reason, pattern in REFUSED.items() if re.search(pattern, outcome.reason)), None)


EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@EVERY
def test_each_passes_or_is_refused(every: bool, folder: Path) -> None:
    """At most one of twenty is refused: more would mean that something is refused that was not."""
    check_each(chosen(every), lambda name: assert_passes_or_is_refused(name, folder))
    outcomes = [outcome_of(name, folder) for name in chosen(every)]
    counts = Counter(outcome.verdict for outcome in outcomes)
    reasons = Counter(reason_of(outcome) for outcome in outcomes if outcome.verdict == "refused")
    print(dict(counts), dict(reasons))
    others = sum(counts.values()) - reasons["element types that rnnops does not have"]
    assert counts["refused"] - reasons["element types that rnnops does not have"] <= 0.05 * others


def assert_passes_or_is_refused(name: str, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = outcome_of(name, folder)
    if outcome.verdict == "refused":
        assert reason_of(outcome), f"refused for a reason that is not listed: {outcome.reason}"


def test_every_recurrent_case_passes(folder: Path) -> None:
    recurrent = [
        name
        for name, case in cases().items()
        if any(node.op_type in ("LSTM", "GRU", "RNN", "Scan") for node in case.model.graph.node)
    ]
    assert len(recurrent) >= 18
    for name in recurrent:
        outcome = outcome_of(name, folder)
        assert outcome.verdict == "passed" or reason_of(outcome) == "Scan of op set 8", name


def test_every_op_has_a_case() -> None:
    tested = {node.op_type for case in cases().values() for node in case.model.graph.node}
    assert {name for name in READABLE if "::" not in name} - tested == OF_SEQUENCES  # others are of other domains
    assert set(ro.op_names()) - READABLE == ONLY_WRITTEN | NOT_WRITTEN


@EVERY
def test_written_again_they_are_the_same_nets(every: bool, folder: Path) -> None:
    """With inputs that decide shapes as constants, where the case leaves them open. In CI, three cases of each op."""
    names = chosen(True) if every else few(chosen(False), 3)
    check_each(names, lambda name: assert_written_again_it_is_the_same_net(name, folder))


def assert_written_again_it_is_the_same_net(name: str, folder: Path) -> None:
    model = outcome_of(name, folder).model
    if model is None:
        return
    rounds_up = any(op.attributes.get("ceil_mode") for op in model.net.ops)
    floats = "float" in name and any(op.type == "Mod" and not op.attributes.get("fmod") for op in model.net.ops)
    newest = [20, 22 * rounds_up, 28 * floats, *(YOUNG.get(op.type, 0) for op in model.net.ops)]
    export(model, folder / "again.onnx", opset=max(newest))
    assert str(load(folder / "again.onnx")) == str(model.net)
