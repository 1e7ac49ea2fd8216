"""Ops that run once beside a loop: on arrays by name, compiled ones by their kernels."""

from __future__ import annotations

import numpy as np
from small_programs import program_of

from rnnops.compiler.run.compiled_scan import Once
from rnnops.compiler.targets.target import PLAIN_PYTHON

PROGRAM = program_of("e = Exp(w); y = Mul(e, w)", w=(3,))
W = np.array([0.0, 1.0, -2.0])


def test_results_are_there_by_name() -> None:
    workspace = Once(PROGRAM)({"w": W, "x": np.zeros(9)}, PLAIN_PYTHON)
    np.testing.assert_array_equal(workspace["y"], np.exp(W) * W)


def test_kernels_run_in_place_of_references() -> None:
    kernel = {"e": lambda arrays, context, **more: (arrays[0] + 1,)}
    workspace = Once(PROGRAM, kernel)({"w": W}, PLAIN_PYTHON)
    np.testing.assert_array_equal(workspace["y"], (W + 1) * W)
