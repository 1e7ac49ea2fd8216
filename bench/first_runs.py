"""What all jobs of `first_minutes.py` do: tell what they find, make a run of a cell, go through both of its passes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from bench.problems import Arrays, Problem

RESULT = "RESULT "  # begins a line that is not for people


def tell(**words: Any) -> None:
    """Something that is known now."""
    print(RESULT + json.dumps(words), flush=True)


def compiled_run(options: argparse.Namespace) -> Any:
    import rnnops as ro
    from bench.nets import build_net

    weights = None if options.weights == "float32" else options.weights
    return ro.compile(build_net(Problem(options.net, options.size)), device="cuda", weights=weights)


def passes(run: Any, feeds: Mapping[str, Any], heads: Mapping[str, Any], stream: Any = None) -> dict[str, Any]:
    """Outputs and gradients of one step of training, by name."""
    given = {} if stream is None else {"stream": stream}
    outputs, pullback = run.vjp(feeds, **given)
    return {**outputs, **{f"gradient of {name}": array for name, array in pullback(heads).items()}}


def placed(arrays: Arrays) -> dict[str, Any]:
    import rnnops as ro

    return {name: ro.on_device(array) for name, array in arrays.items()}
