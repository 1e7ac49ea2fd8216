"""Whether kernels run in numba's simulator: `NUMBA_ENABLE_CUDASIM=1`, set before numba is first imported."""

from __future__ import annotations

from numba import config

SIMULATED = bool(config.ENABLE_CUDASIM)
