"""Every float32 there is through every function of one operand; minutes, so run by hand (`pytest -m slow`)."""

from __future__ import annotations

import numpy as np
import pytest
from pointwise_cases import BOUNDED, ERROR_BOUNDS, UNARY, compiled, errors

CHUNK = 2**17
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", UNARY)
def test_every_float32(name: str) -> None:
    worst, bits = 0.0, np.arange(CHUNK, dtype=np.uint32)
    result = np.empty(CHUNK, np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, 2**32, CHUNK):
            x = (bits + np.uint32(start)).view(np.float32)
            compiled(name, "float32")(result, x)
            found = errors(result, UNARY[name](x.astype(np.float64)))
            assert not found.is_wrong.any(), x[found.is_wrong][:3]
            assert not (name in BOUNDED and (np.abs(result) > 1).any())
            worst = max(worst, float(found.ulps.max()))
    print(f"{name}: {worst:.3f}")
    assert worst <= ERROR_BOUNDS[name][0]
