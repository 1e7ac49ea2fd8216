"""How many threads NumPy's matrix products use.

The products of one step are small: on two idle cores a second thread makes a step 10 to 30 % faster, and where another
process holds that core OpenBLAS waits for it at every product and a step takes ten times as long. One thread also makes
a curve independent of how many cores there are.

Limit: knows the OpenBLAS that NumPy's wheels bring, by its file; with another library nothing happens.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

SETTER = "scipy_openblas_set_num_threads64_"


def limit_product_threads(threads: int) -> bool:
    """Set the number of threads and say whether a library was found that takes it."""
    folder = Path(np.__file__).parent
    places = (folder.parent / "numpy.libs", folder / ".dylibs", folder / ".libs")
    files = [file for place in places if place.is_dir() for file in place.glob("*openblas*")]
    found = [_set_threads(file, threads) for file in files]
    return any(found)


def _set_threads(library: Path, threads: int) -> bool:
    try:
        setter = getattr(ctypes.CDLL(str(library)), SETTER)
    except (OSError, AttributeError):
        return False
    setter(ctypes.c_int(threads))
    return True
