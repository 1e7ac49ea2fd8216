"""The vector width: from features, forced, and warnings where features are hidden."""

from __future__ import annotations

import warnings

import pytest

from rnnops.kernels.cpu.processor import WIDTHS, TargetProcessor, host, lanes, vector_width, warn_if_hidden, width_of

AVX512 = frozenset({"sse2", "avx", "avx2", "fma", "avx512f"})
AVX2 = AVX512 - {"avx512f"}
SSE2 = frozenset({"sse2"})


@pytest.mark.parametrize(
    ("machine", "features", "width"),
    [
        ("x86_64", AVX512, 512),
        ("x86_64", AVX2, 256),
        ("amd64", frozenset({"avx"}), 256),
        ("x86_64", SSE2, 128),
        ("x86_64", frozenset(), 128),
        ("aarch64", frozenset({"neon"}), 128),
        ("arm64", frozenset(), 128),
        ("riscv64", frozenset(), 64),
    ],
)
def test_width_follows_features(machine: str, features: frozenset[str], width: int) -> None:
    assert width_of(TargetProcessor(machine, "some", features)) == width


def test_width_may_be_forced() -> None:
    assert [vector_width(width) for width in WIDTHS] == list(WIDTHS)
    assert vector_width() == width_of(host())
    with pytest.raises(ValueError, match="vector width 100: wanted one of 512, 256, 128, 64"):
        vector_width(100)


def test_lanes() -> None:
    assert [lanes(width, "float32") for width in WIDTHS] == [16, 8, 4, 1]
    assert [lanes(width, "float64") for width in WIDTHS] == [8, 4, 2, 1]


def test_a_baseline_processor_is_named() -> None:
    with pytest.warns(RuntimeWarning, match="'x86-64' with vectors of 128 bits, .* a virtual machine may hide it"):
        warn_if_hidden(TargetProcessor("x86_64", "x86-64", SSE2))


@pytest.mark.parametrize(
    "processor",
    [
        TargetProcessor("x86_64", "znver5", AVX512),
        TargetProcessor("x86_64", "haswell", AVX2),
        TargetProcessor("x86_64", "nehalem", SSE2),
        TargetProcessor("aarch64", "generic", frozenset()),
        TargetProcessor("x86_64", "x86-64-v2", SSE2, chosen=True),
    ],
)
def test_no_warning_without_reason(processor: TargetProcessor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_hidden(processor)
