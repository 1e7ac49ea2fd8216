"""How many threads NumPy's matrix products use.

The products of one step are small: on two idle cores a second thread makes a step 10 to 30 % faster, and where another
process holds that core the library waits for it at every product and a step takes ten times as long. One thread also
makes a curve independent of how many cores there are.
"""

from __future__ import annotations


def limit_product_threads(threads: int) -> bool:
    """Set the number of threads; False, and nothing done, without threadpoolctl, which comes with the extra `demo`."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return False
    threadpool_limits(threads, user_api="blas")
    return True
