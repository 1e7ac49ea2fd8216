"""Every op on the CUDA device, here its simulator with several blocks at once: what the reference makes, no races."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_marks import on_cuda
from each import check_each
from op_cases import Case, declare
from op_table import CASES
from whole_grid import whole_grid

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.net.loop_forms import Expansion, Pointwise
from rnnops.net.schema import REGISTRY

pytestmark = on_cuda
TUNING = Options(around="rows", device=Cuda(lanes=2, blocks=2))


def net_of(case: Case, arrays: tuple[Any, ...]) -> ro.Net:
    """The case alone, its results as outputs."""
    net = ro.Net("case")
    blobs = declare(net, arrays)
    case.build(*(blobs or [net]))
    net.outputs(**{f"y{i}": ro.Blob(net, name) for i, name in enumerate(net.ops[-1].outputs) if name})
    return net


OPS = sorted({case.op for case in CASES})


def cases_of(op: str, every: bool) -> list[Case]:
    """Cases of an op: a third where it is written out as ops that have cases of their own, and of the mere shapes of an
    elementwise one, another third for the next op."""
    own, number, form = [case for case in CASES if case.op == op], OPS.index(op), REGISTRY[op].loop
    seldom = [isinstance(form, Expansion) or (isinstance(form, Pointwise) and not case.label) for case in own]
    chosen = [case for i, case in enumerate(own) if every or not seldom[i] or (i + number) % 3 == 0]
    return chosen or own[:1]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("op", OPS)
def test_as_the_reference(op: str, every: bool) -> None:
    check_each(cases_of(op, every), assert_as_the_reference)


def assert_as_the_reference(case: Case) -> None:
    dtype = case.dtypes[0]
    arrays = tuple(map(np.asarray, case.arrays(dtype)))
    net = net_of(case, arrays)
    feeds = dict(zip(net.input_names, arrays, strict=True))
    with np.errstate(all="ignore"):
        wanted = ro.compile(net, device="reference")(feeds, seed=1, training=True)
    with whole_grid(check=True, same_value_is_fine=True), np.errstate(all="ignore"):
        came = ro.compile(net, device="cuda", tuning=TUNING)(feeds, seed=1, training=True)
    for name, array in wanted.items():
        assert came[name].dtype == array.dtype
        tolerance = 0 if array.dtype.kind != "f" else 1e-11 if dtype == "float64" else 2e-5
        np.testing.assert_allclose(came[name], array, rtol=tolerance, atol=tolerance, err_msg=name)
