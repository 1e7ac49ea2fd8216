"""What files take beside ONNX Runtime, one thread each, parameters bound: a call, and a step of files with states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx

import rnnops as ro
from rnnops.onnx.compare import OURS, THEIRS, Session, call_times, state_pairs, step_times
from tools.real_models.checks import input_dtypes
from tools.real_models.feeds import make_feeds
from tools.real_models.table import RealFile

MEDIAN, LEAST = 1.0, 0.5  # goals of the ratios of float files
Arrays = Mapping[str, np.ndarray]
Times = Mapping[str, float]  # whose -> seconds


@dataclass(frozen=True)
class Speed:
    """What a file takes.

    Args:
        call, step: seconds of each; None where the file has no states that its next call takes.
    """

    name: str
    quantised: bool
    call: Times
    step: Times | None


def time_file(entry: RealFile, path: Path, **options: Any) -> Speed:
    """Time a file that can be read.

    Args:
        options: of `rnnops.onnx.compare.time_in_turns`.
    """
    graph, session = onnx.load(path, load_external_data=False).graph, Session(path)
    feeds = make_feeds(entry.feeds, input_dtypes(path))
    model = ro.onnx.load_model(path, sizes=entry.sizes)
    run = ro.compile(model.net, threads=1).bind(**model.params)
    call = call_times(run, session, feeds, {}, **options)
    links = {output: name for output, name in state_pairs(graph).items() if name in feeds}
    if not links:
        return Speed(entry.name, entry.quantised, call, None)
    initial = {name: feeds.pop(name) for name in links.values()}
    shapes = {name: array.shape for name, array in initial.items()}
    stream = run.stream(links, shapes=shapes, initial=initial)
    step = first_step(feeds, model.shapes, entry.steps)
    return Speed(entry.name, entry.quantised, call, step_times(stream, session, step, links, {}, **options))


def first_step(feeds: Arrays, shapes: Mapping[str, Any], steps: str) -> dict[str, np.ndarray]:
    """Feeds of one step: the first along axes whose size has that name; all where the name is empty."""
    axes = {name: shapes[name].index(steps) for name in feeds if steps and steps in shapes.get(name, ())}
    first = {name: np.ascontiguousarray(np.take(feeds[name], [0], axis)) for name, axis in axes.items()}
    return {**feeds, **first}


def summary(speeds: Iterable[Speed]) -> tuple[list[str], bool]:
    """Lines on the ratios of float files, and whether these are as large as is wanted."""
    found = {what: [times[THEIRS] / times[OURS] for times in each if times] for what, each in by_kind(speeds).items()}
    lines, right = [f"wanted of float files: a median of {MEDIAN} and none below {LEAST}"], True
    for what, ratios in found.items():
        if ratios:
            lines.append(f"{what}: {len(ratios)} files, median {median(ratios):.2f}, least {min(ratios):.2f}")
            right = right and median(ratios) >= MEDIAN and min(ratios) >= LEAST
    return lines, right


def by_kind(speeds: Iterable[Speed]) -> dict[str, list[Times | None]]:
    """Times of calls and of steps of float files."""
    floats = [speed for speed in speeds if not speed.quantised]
    return {"calls": [speed.call for speed in floats], "steps": [speed.step for speed in floats]}
