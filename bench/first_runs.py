"""What all jobs of `first_minutes.py` do: tell what they find, make a run of a cell, go through both of its passes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

import rnnops as ro
from bench.contender import Settings, named
from bench.data import make_feeds
from bench.problems import Arrays, Problem
from bench.rnnops_engine import compile_net

RESULT = "RESULT "  # begins a line that is not for people
MODEL = "model,"  # begins what is told of the cost model beside a loop


def tell(**words: Any) -> None:
    """Something that is known now."""
    print(RESULT + json.dumps(words), flush=True)


def compiled_run(options: argparse.Namespace) -> Any:
    weights = None if options.weights == "float32" else options.weights
    return compile_net(Problem(options.net, options.size), Settings("cuda"), weights=weights)


def passes(run: Any, feeds: Mapping[str, Any], heads: Mapping[str, Any], **stream: Any) -> dict[str, Any]:
    """Outputs and gradients of one step of training, by name."""
    outputs, pullback = run.vjp(feeds, **stream)
    return named((outputs, pullback(heads)))


def placed_feeds(problem: Problem) -> tuple[dict[str, Any], dict[str, Any]]:
    """Feeds and gradients of outputs, on the device."""
    feeds, heads = make_feeds(problem)
    return placed(feeds), placed(heads)


def placed(arrays: Arrays) -> dict[str, Any]:
    return {name: ro.on_device(array) for name, array in arrays.items()}
