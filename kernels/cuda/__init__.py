"""Building blocks of CUDA kernels.

Only `facade.py`, `simulated.py` and `memory.py` differ for numba-cuda and its simulator. The exception are functions in
LLVM IR: each has a twin in Python for the simulator.
"""

from __future__ import annotations

from importlib.util import find_spec

from rnnops.errors import DeviceError

if find_spec("numba") is None:
    hint = "Install rnnops with its extra 'cuda', or choose device='cpu'."
    raise DeviceError("CUDA kernels are made by numba, which is missing", wanted="a package numba", hint=hint)
