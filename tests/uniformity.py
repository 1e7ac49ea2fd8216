"""Whether numbers look uniform, by Kolmogorov and Smirnov; `scipy.stats` has this, and takes a second to load."""

from __future__ import annotations

import numpy as np
from scipy.special import kolmogorov


def uniform_probability(numbers: np.ndarray) -> float:
    """How likely a sample of uniform numbers from 0 to 1 lies at least as far from their distribution (for many)."""
    ordered, count = np.sort(numbers, axis=None), numbers.size
    places = np.arange(count + 1) / count
    distance = max((places[1:] - ordered).max(), (ordered - places[:-1]).max())
    return float(kolmogorov(np.sqrt(count) * distance))
