"""Random numbers in compiled code: bit for bit those of `rnnops.kernels.scalar_functions`, compiled or not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from native_loops import ELEMENT, NativeRows

from rnnops.compiler.lower.expressions import Literal, Name, ScalarCall
from rnnops.compiler.lower.kernel import For, Function, Parameter, Store
from rnnops.kernels.cpu.pointwise import uniform
from rnnops.kernels.scalar_functions import uniform_rows

SEEDS = (0, 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 2**40 + 7, 2**64 - 1)
ORDINALS, STEPS, ROW = (0, 1, 2**31 - 1, 2**31, 2**32 - 1), (0, 3, 2**32 - 1), 2
SIZES = (*range(10), 31, 32, 33, 64, 127, 500)


COUNTER = ("seed", "ordinal", "t", "n")
DRAWN = ScalarCall("uniform", (*map(Name, COUNTER), ELEMENT), dtype="float64")
LOOP = For("i", Literal(0), Name("size"), Literal(1), (Store("out", ELEMENT, DRAWN),))
TAKEN = *map(Parameter, COUNTER), Parameter("out", "float64*"), Parameter("size")
NATIVE = NativeRows((Function("fill", TAKEN, (LOOP,)),))


def compiled(seed: Any, ordinal: int, t: int, n: int, out: Any) -> None:
    NATIVE(np.uint64(seed).astype(np.int64), ordinal, t, n, out, out.size)


def plain(seed: Any, ordinal: int, t: int, n: int, out: Any) -> None:
    out[:] = [uniform(seed, ordinal, t, n, e) for e in range(out.size)]


Fill = Callable[..., None]


@pytest.mark.parametrize("fill", [plain, compiled])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_seed(seed: int, fill: Fill) -> None:
    for ordinal, t in product(ORDINALS, STEPS):
        out = np.full(21, np.nan)
        fill(seed, ordinal, t, ROW, out)
        assert (out == uniform_rows(seed, ordinal, t, ROW + 1, 21)[ROW]).all()


@pytest.mark.parametrize("fill", [plain, compiled])
def test_rows_of_every_length(fill: Fill) -> None:
    for size in SIZES:
        out = np.full(size + 2, -1.0)
        fill(SEEDS[-2], 5, 7, ROW, out[1:-1])
        assert out.tolist() == [-1, *uniform_rows(SEEDS[-2], 5, 7, ROW + 1, size)[ROW], -1]


def test_integers_of_every_type() -> None:
    seed, wanted = 2**64 - 3, uniform_rows(2**64 - 3, 2**32 - 4, 6, ROW + 1, 9)[ROW]
    for kind in (int, np.int32, np.int64):
        assert uniform(kind(-3), kind(-4), kind(6), kind(ROW), kind(7)) == wanted[7]
    for kind in (np.uint32, np.uint64):
        assert uniform(np.uint64(seed), kind(2**32 - 4), kind(6), kind(ROW), kind(7)) == wanted[7]
    out = np.empty(9)
    compiled(seed, -4, 6, ROW, out)
    assert (out == wanted).all()


def test_loops_are_vector_loops() -> None:
    assert " x i64> " in NATIVE.optimised
