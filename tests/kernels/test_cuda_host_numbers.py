"""Numbers of the host on the device: by a copy, and by the arguments of a kernel."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_marks import on_cuda
from lending import Purse
from without_simulator import run_compiler

from rnnops.kernels.cuda import facade
from rnnops.kernels.cuda.device_array import numbers_on_device, renew
from rnnops.kernels.cuda.memory import lent_by

pytestmark = on_cuda
CODE = """
from numba import types
from rnnops.kernels.cuda.device_array import TOGETHER, writing
numbers = types.UniTuple(types.int64, TOGETHER)
text = facade.ptx(writing, (facade.array_type("int64"), types.int64, types.int64, numbers), (9, 0))
print(text.count(".entry"), text.count("ld.param.u64") + text.count("ld.param.b64") + text.count("ld.param.v2"))
"""


@pytest.mark.parametrize("count", [0, 1, 32, 33, 70])
def test_numbers_arrive_however_they_go(count: int) -> None:
    numbers = np.arange(count, dtype=np.int64) * (1 << 40) - 3
    np.testing.assert_array_equal(numbers_on_device(numbers, 0).to_host(), numbers)
    if not facade.SIMULATED:
        return
    with lent_by(Purse()):
        made = numbers_on_device(numbers, 0)
        np.testing.assert_array_equal(made.to_host(), numbers)
        renew(made, numbers[::-1].copy(), 0)
    np.testing.assert_array_equal(made.to_host(), numbers[::-1])
    renew(made, numbers, 0)
    np.testing.assert_array_equal(made.to_host(), numbers)


def test_the_kernel_compiles() -> None:
    (line,) = run_compiler(CODE)
    entries, parameters = map(int, line.split())
    assert entries == 1
    assert parameters >= 16
