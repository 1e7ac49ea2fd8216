"""Building blocks of CUDA kernels.

`facade.py`, with `simulated.py` and `memory.py`, alone knows numba-cuda and its simulator, but for what is written in
LLVM IR with a twin in Python.
"""

from __future__ import annotations

from importlib.util import find_spec

from rnnops.errors import DeviceError

if find_spec("numba") is None:
    hint = "Install rnnops with its extra 'cuda', or choose device='cpu'."
    raise DeviceError("CUDA kernels are made by numba, which is missing", wanted="a package numba", hint=hint)
