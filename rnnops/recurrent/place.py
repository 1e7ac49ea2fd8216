"""Where the arrays of a recurrence lie that Python steps through: what makes them there.

Steps, states and checkpoints are views and copies of such arrays, and arrays of all kinds know these themselves:
indexing, assignment, `+=`, `copy`. What NumPy has functions for is asked of the place.
"""

from __future__ import annotations

import numpy as np

from rnnops.types import Array, Shape


class Place:
    """The memory of the host; devices derive theirs."""

    def empty(self, shape: Shape, dtype: str) -> Array:
        """A new array, of any elements."""
        return np.empty(shape, dtype)

    def zeros(self, shape: Shape, dtype: str) -> Array:
        """A new array of zeros."""
        return np.zeros(shape, dtype)

    def timesteps(self, first: int, count: int) -> Array:
        """`first`, `first + 1` and so on, as int32, to be read alone."""
        return np.arange(first, first + count, dtype=np.int32)

    def total(self, array: Array) -> Array:
        """The sum over the first axis."""
        made = self.empty(array.shape[1:], str(array.dtype))
        array.sum(axis=0, out=made)
        return made

    def last_steps(self, count: int, before: Array, after: Array) -> Array:
        """A copy of the last steps of two arrays of steps, one behind the other."""
        made, new = self.empty((count, *before.shape[1:]), str(before.dtype)), min(count, len(after))
        made[count - new :] = after[len(after) - new :]
        if new < count:
            made[: count - new] = before[len(before) - (count - new) :]
        return made

    def stack(self, steps: list[Array]) -> Array:
        """A copy of arrays as steps of one."""
        made = self.empty((len(steps), *steps[0].shape), str(steps[0].dtype))
        for t, step in enumerate(steps):
            made[t] = step
        return made


HOST = Place()
