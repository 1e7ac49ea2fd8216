"""Random feeds by the rules of the table: shapes, and ranges where a file asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Rule = Mapping[str, Any]


def make_feed(rule: Rule, random: np.random.Generator) -> np.ndarray:
    """An array by one rule: a `value`, a `mask_of_lengths`, or `normal`, `uniform` or `integers` of a `shape`."""
    for kind, make in KINDS.items():
        if kind in rule:
            return np.asarray(make(rule, random))
    raise ValueError(f"a rule of the table is none of {', '.join(KINDS)}: {dict(rule)}")


def mask_of_lengths(rule: Rule, random: np.random.Generator) -> np.ndarray:
    """[rows, longest] True up to each row's length."""
    lengths = np.array(rule["mask_of_lengths"])
    return np.arange(lengths.max()) < lengths[:, None]


KINDS: dict[str, Callable[[Rule, np.random.Generator], Any]] = {
    "value": lambda rule, random: rule["value"],
    "mask_of_lengths": mask_of_lengths,
    "normal": lambda rule, random: rule["normal"] * random.normal(size=rule["shape"]),
    "uniform": lambda rule, random: random.uniform(*rule["uniform"], rule["shape"]),
    "integers": lambda rule, random: random.integers(*rule["integers"], rule["shape"]),
}


def make_feeds(rules: Mapping[str, Rule], dtypes: Mapping[str, str], seed: int = 0) -> dict[str, np.ndarray]:
    """Feeds for all inputs of a file.

    Args:
        rules: input -> rule; dtypes: input -> dtype, as the file says.
    """
    random = np.random.default_rng(seed)
    return {name: make_feed(rules[name], random).astype(dtype) for name, dtype in dtypes.items()}
