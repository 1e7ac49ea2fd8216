"""Outputs and every gradient agree with Caffe2's own values; memory optimization changes no bit."""

from __future__ import annotations

import golden_cases
import numpy as np
import pytest

import rnnops as ro


def close(name: str, came: np.ndarray, wanted: np.ndarray) -> None:
    assert came.shape == wanted.shape, name
    assert came.dtype == wanted.dtype, name
    limit = 1e-5 * np.abs(wanted).max(initial=0.0) + 1e-6
    error = np.abs(came - wanted).max(initial=0.0)
    assert error <= limit, f"{name}: off by {error}, allowed {limit}"


@pytest.mark.parametrize("name", golden_cases.NAMES)
def test_agrees_with_caffe2(name: str) -> None:
    case = golden_cases.load(name)
    net = golden_cases.build(case)
    out, pullback = ro.compile(net, device="reference").vjp(golden_cases.feeds_of(case, net))
    assert set(out) == set(case.outputs)
    for label, wanted in case.outputs.items():
        close(label, out[label], wanted)
    grads = pullback(case.output_grads)
    assert set(case.grads) <= set(grads)
    for blob, wanted in case.grads.items():
        close(blob, grads[blob], wanted)


@pytest.mark.parametrize("name", [name for name in golden_cases.NAMES if not name.endswith("_mem")])
def test_memory_optimization_changes_no_bit(name: str) -> None:
    case = golden_cases.load(name)
    results = []
    for memory in (False, True):
        net = golden_cases.build(case, memory)
        out, pullback = ro.compile(net, device="reference").vjp(golden_cases.feeds_of(case, net))
        results.append({**out, **{f"grad {blob}": grad for blob, grad in pullback(case.output_grads).items()}})
    plain, optimized = results
    assert plain.keys() == optimized.keys()
    for blob, array in plain.items():
        assert array.tobytes() == optimized[blob].tobytes(), blob


def test_there_are_all_cases() -> None:
    assert len(golden_cases.NAMES) == 39
