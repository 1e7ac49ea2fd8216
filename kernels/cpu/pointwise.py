"""The scalar functions that texts of loop forms name, for processors: those of the table, collected.

Each is a plain Python function over NumPy scalars and arrays, float32 and float64 alike; symbols make it straight
arithmetic without a branch, a call or (float64 sin and cos apart) a table, which LLVM turns into vector instructions
when a loop runs over it (`traced.py`). Operands of one call are of one dtype.

Errors are within `ERROR_BOUNDS` for every finite operand whose result is a normal number. Infinities, NaN, zeros and
numbers below the smallest normal one are right; results below the smallest normal number are too, or are 0. The signs
of zeros are kept by odd functions. The bounds hold with and without fused multiply-adds, compiled or not; run in plain
Python, functions may warn of overflow and invalid values (`np.errstate`).
"""

from __future__ import annotations

from rnnops.kernels.scalar_functions import TABLE, implementations

FUNCTIONS = implementations("cpu")
# In units in the last place of the exact result, float32 and float64.
ERROR_BOUNDS = {function.name: function.ulps for function in TABLE if function.ulps is not None}
