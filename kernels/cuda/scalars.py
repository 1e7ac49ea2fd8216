"""The scalar functions that kernels call, under one name each, whoever runs the kernels.

The simulator calls the plain Python functions of `kernels/cpu`, so that its numbers are the processor's. A device gets
those of `device_scalars.py` and `random_numbers.py`, which are not equal bit for bit but for `uniform` and for what is
exact.

Limits: operands of one call are of one dtype, as for processors; integers may be of several widths.
"""

from __future__ import annotations

from rnnops.kernels.cuda.facade import SIMULATED
from rnnops.kernels.scalar_functions import implementations

if SIMULATED:
    from rnnops.kernels.cpu.pointwise import add_any_order, add_product, add_product_any_order, larger, smaller, uniform
else:
    from rnnops.kernels.cuda.device_scalars import (
        add_any_order,
        add_product,
        add_product_any_order,
        larger,
        smaller,
    )
    from rnnops.kernels.cuda.random_numbers import uniform

HOME = "cpu" if SIMULATED else "cuda"  # of the functions that texts of loop forms call
FUNCTIONS = implementations(HOME)

__all__ = [
    "FUNCTIONS", "HOME", "add_any_order", "add_product", "add_product_any_order", "larger", "smaller", "uniform",
]  # fmt: skip
