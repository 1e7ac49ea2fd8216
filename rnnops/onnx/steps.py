"""A model step by step: states handed on by hand, a sequence cut into steps, and what steps made put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rnnops.onnx.difference import distance_of
from rnnops.onnx.errors import OnnxError
from rnnops.types import Array

Arrays = Mapping[str, Array]


class HandedOn:
    """A call whose outputs feed its inputs at the next call.

    Args:
        call: feeds -> outputs.
        links: output -> the input that it feeds; initial: what these inputs begin with.
    """

    def __init__(self, call: Callable[[Arrays], Arrays], links: Mapping[str, str], initial: Arrays) -> None:
        self._call, self._links = call, links
        self.states = {name: initial[name] for name in links.values()}

    def __call__(self, feeds: Arrays) -> dict[str, Array]:
        """The outputs that are no states."""
        out = dict(self._call({**feeds, **self.states}))
        self.states = {name: out.pop(output) for output, name in self._links.items()}
        return out

    def last(self) -> dict[str, Array]:
        """The states so far, by the outputs that they are."""
        return {output: self.states[name] for output, name in self._links.items()}


def split_steps(feeds: Arrays, axes: Mapping[str, int]) -> list[dict[str, Array]]:
    """Feeds of one step each; what has no axis of steps is fed at each of them.

    Args:
        axes: input -> its axis of steps.

    Raises OnnxError where inputs have other numbers of steps.
    """
    counts = {feeds[name].shape[axis] for name, axis in axes.items()}
    if len(counts) != 1:
        raise OnnxError("inputs have other numbers of steps", wanted="one number", came=sorted(counts))
    parts = {name: np.split(feeds[name], feeds[name].shape[axis], axis) for name, axis in axes.items()}
    return [{**feeds, **{name: part[t] for name, part in parts.items()}} for t in range(counts.pop())]


def join_steps(steps: Sequence[Array], whole: Array) -> Array:
    """What steps made, along the axis in which one step differs from the whole; the last where none does."""
    last = steps[-1]
    differing = [axis for axis, size in enumerate(whole.shape) if last.ndim != whole.ndim or size != last.shape[axis]]
    if last.ndim != whole.ndim or len(differing) != 1:
        return last
    return np.concatenate(steps, differing[0])


def distances_of_steps(steps: Sequence[Arrays], whole: Arrays) -> dict[str, float]:
    """How far what steps made is from what one call makes of all of them, by output; some may be the last step's."""
    made = {name: [step[name] for step in steps if name in step] for name in whole}
    return {name: distance_of(join_steps(made[name], wanted), wanted) for name, wanted in whole.items()}
