"""300 random programs, written as people write cells: gradients beside the reference, and pairs of one meaning.

34 of them are in the default tier, CI has 167, and the others are slow. `python tests/meaning/sweep.py 0 10000` tries
many more, larger ones among them.
"""

from __future__ import annotations

import pytest
import seeds
from quick_code import rare_collections, unoptimised

SEEDS, BLOCK = 225, 25  # each third tries a relation as well: 300 checks


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_random_programs(first: int) -> None:
    failed = []
    with unoptimised(), rare_collections():
        for seed in range(first, first + BLOCK):
            for name, verdict, recipe in seeds.try_seed(seed, small=True):
                if verdict.failed:
                    failed.append(seeds.report(seed, name, verdict, recipe))
    assert not failed, "\n\n".join(failed)
