"""Marks of tests of the CUDA device: in the simulator, or on a device where NUMBA_ENABLE_CUDASIM=0 is set for one."""

from __future__ import annotations

import pytest

from rnnops.kernels.cuda import facade, gemm

on_cuda = [pytest.mark.cuda, pytest.mark.skipif(bool(facade.missing()), reason=facade.missing() or "none")]
in_simulator = pytest.mark.skipif(not facade.SIMULATED, reason="what it looks at or replaces, the simulator has")
own_products = pytest.mark.skipif(not facade.missing() and gemm.cublas() is not None, reason="counts our own products")
