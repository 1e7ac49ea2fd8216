"""What the first minutes on a GPU ask of kernels, as far as it goes without one: waits of groups, kernels of plans."""

from __future__ import annotations

import pytest
from cuda_marks import on_cuda
from whole_grid import whole_grid
from without_simulator import run_compiler

from bench.group_wait import group_wait_seconds
from bench.place import HostPlace
from rnnops.kernels.cuda import facade

pytestmark = on_cuda

KERNELS = """
import rnnops as ro
from bench.first_minutes.jobs import kernels_of
from bench.nets import user_net
from bench.problems import Size
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda.target import Cuda

net = user_net("lstm")
run = ro.compile(net.build("lstm", ()), tuning=Options(around="rows", device=Cuda(256, 132, 220 * 1024)))
for kernel in kernels_of(run.plan(net.shapes(Size(4, 16, 64))).plan):
    print(len(facade.scan_signature(kernel.dtypes)) == 7 + len(kernel.dtypes))
"""


@pytest.mark.skipif(not facade.SIMULATED, reason="blocks and threads for the simulator")
def test_groups_wait_for_themselves() -> None:
    with whole_grid(check=True, seed=1):
        assert group_wait_seconds(HostPlace(), blocks=4, threads=2, count=3) > 0


def test_kernels_of_a_plan_are_found() -> None:
    assert run_compiler(KERNELS) == ["True", "True"]
