"""What a recurrence that the interpreter runs leaves behind, and the bytes of it."""

from __future__ import annotations

import pytest
from small_programs import recurrence_saved

from rnnops.checkpoints.policy import Policy
from rnnops.compiler.memory.allocations import buffers_of, bytes_of_blobs, results_of, workspace_bytes
from rnnops.compiler.memory.memory import KEPT

PRODUCT = "a = MatMul(x, w); b = Sigmoid(a); c = Mul(b, h); y = Tanh(c)"
STATE = ("state h", KEPT, (5, 2, 3))  # four steps and what they start from
KEPT_BYTES = {"all": 8 * (5 + 4) * 6, "memory": 8 * 5 * 6}


def test_a_state_is_kept_for_all_steps_and_is_both_results() -> None:
    (call,) = (call for call in recurrence_saved(PRODUCT, Policy("memory"), w=(3, 3))[0].calls)
    ((name, buffer),) = buffers_of(call).items()
    assert (buffer.what, buffer.kind, buffer.shape) == STATE
    assert results_of(call, {name: buffer}) == [(buffer,)] * 3  # all steps, the last one, workspaces


def test_kept_blobs_lie_beside_it() -> None:
    (call,) = (call for call in recurrence_saved(PRODUCT, Policy("all"), w=(3, 3))[0].calls)
    kept = buffers_of(call)
    assert [(buffer.what, buffer.kind, buffer.shape) for buffer in kept.values()] == [
        STATE,
        ("kept b", KEPT, (4, 2, 3)),
    ]
    assert results_of(call, kept)[-1] == tuple(kept.values())


@pytest.mark.parametrize("policy", KEPT_BYTES)
def test_bytes_of_workspaces(policy: str) -> None:
    program, *_ = recurrence_saved(PRODUCT, Policy(policy), w=(3, 3))
    assert workspace_bytes(program.calls[-1]) == KEPT_BYTES[policy]
    rest = {"xs": 8 * 24, "h0": 8 * 6, "w": 8 * 9, "y_all": 8 * 24, "y_last": 8 * 6}
    assert bytes_of_blobs(program) == {**rest, "y_all/step_workspaces": KEPT_BYTES[policy]}
