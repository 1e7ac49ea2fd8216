"""Outputs and every gradient agree with Caffe2's own values; memory optimization changes no bit."""

from __future__ import annotations

import golden_cases
import numpy as np
import pytest
from devices import DEVICES, Device

COMPILED = (  # every cell once
    *("basic_rnn_tanh", "gru", "layer_norm_lstm_drop", "layer_norm_milstm", "milstm_drop_mem"),
    *("attention_dot", "attention_recurrent_milstm", "attention_regular_mem", "attention_soft_coverage"),
)
COMPILED_TWICE = ("gru_lbr", "lstm")  # with and without memory optimization


def close(name: str, came: np.ndarray, wanted: np.ndarray) -> None:
    assert came.shape == wanted.shape, name
    assert came.dtype == wanted.dtype, name
    limit = 1e-5 * np.abs(wanted).max(initial=0.0) + 1e-6
    error = np.abs(came - wanted).max(initial=0.0)
    assert error <= limit, f"{name}: off by {error}, allowed {limit}"


def results(case: golden_cases.GoldenCase, device: Device, memory: bool | None = None) -> dict[str, np.ndarray]:
    """Outputs, and gradients as `grad <blob>`, which agree with Caffe2's."""
    net = golden_cases.build(case, memory)
    out, pullback = device(net).vjp(golden_cases.feeds_of(case, net))
    assert set(out) == set(case.outputs)
    for label, wanted in case.outputs.items():
        close(label, out[label], wanted)
    grads = pullback(case.output_grads)
    assert set(case.grads) <= set(grads)
    for blob, wanted in case.grads.items():
        close(blob, grads[blob], wanted)
    return {**out, **{f"grad {blob}": grad for blob, grad in grads.items()}}


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *((name, device) for name in golden_cases.NAMES for device in ("reference", "plain")),
        *((name, "cpu") for name in COMPILED),
    ],
)
def test_agrees_with_caffe2(name: str, device: str) -> None:
    results(golden_cases.load(name), DEVICES[device])


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *((name, "reference") for name in golden_cases.NAMES if not name.endswith("_mem")),
        *((name, "cpu") for name in COMPILED_TWICE),
    ],
)
def test_memory_optimization_changes_no_bit(name: str, device: str) -> None:
    case = golden_cases.load(name)
    plain, optimized = (results(case, DEVICES[device], memory) for memory in (False, True))
    assert plain.keys() == optimized.keys()
    for blob, array in plain.items():
        assert array.tobytes() == optimized[blob].tobytes(), blob


def test_there_are_all_cases() -> None:
    assert len(golden_cases.NAMES) == 39
