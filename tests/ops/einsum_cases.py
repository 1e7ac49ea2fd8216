"""Uses of Einsum for the table of ops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from einsum_equations import EQUATIONS
from op_cases import Case, floats, integers

import rnnops as ro


def einsum_cases() -> Iterator[Case]:
    for equation, shapes in EQUATIONS:
        arrays = tuple(floats(*shape) + i / 8 for i, shape in enumerate(shapes))
        yield Case("Einsum", equation, partial(ro.einsum, equation), arrays)
    yield Case("Einsum", "int", partial(ro.einsum, "ij,jk->ik"), (integers(2, 3), integers(3, 2)))
