"""Mutated ONNX files: an error of ours, or what `onnx.reference` computes from the same bytes; never worse."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from fuzzed_files import mutated, outcome, seeds

FILES = seeds()


def run_fuzz(path: Path, first: int, count: int) -> Counter[str]:
    """Outcomes of so many mutations, each from a seed of its own, which the assertion names."""
    names, found = list(FILES), Counter[str]()
    for seed in range(first, first + count):
        name = names[seed % len(names)]
        data = mutated(FILES[name], np.random.Generator(np.random.PCG64(seed)))
        try:
            found[outcome(data, path)] += 1
        except Exception as error:
            raise AssertionError(f"mutation {seed} of '{name}': {type(error).__name__}: {error}") from error
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_files_themselves_give_the_reference_numbers(name: str, tmp_path: Path) -> None:
    assert outcome(FILES[name], tmp_path / "file.onnx") == "equal"


def test_600_mutations(tmp_path: Path) -> None:
    found = run_fuzz(tmp_path / "file.onnx", 0, 600)
    print(dict(found))
    assert found["refused"] > 150
    assert found["equal"] > 150


@pytest.mark.slow
def test_10000_mutations(tmp_path: Path) -> None:
    print(dict(run_fuzz(tmp_path / "file.onnx", 0, 10_000)))
