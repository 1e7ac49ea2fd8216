"""`rnnops onnx --stream`: a file call by call, its states handed on, beside other ways to compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnops.cli.onnx_report import plain, print_times
from rnnops.cli.report import show
from rnnops.compiler import compile as compile_net
from rnnops.onnx.beside import THEIRS, step_times
from rnnops.onnx.difference import distance_of
from rnnops.onnx.errors import MissingPackageError, OnnxError
from rnnops.onnx.open_sizes import open_sizes
from rnnops.onnx.open_states import open_states
from rnnops.onnx.runtime import Session
from rnnops.onnx.state_pairs import state_pairs
from rnnops.onnx.steps import HandedOn, distances_of_steps, split_steps
from rnnops.types import Array

if TYPE_CHECKING:
    from rnnops.cli.onnx_runs import OnnxRuns
    from rnnops.compiler.api.run import Run

CALLS = 8  # of a stream whose steps nobody counts
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Streamed:
    """What is run call by call.

    Args:
        run: whose states are inputs and outputs; links: output -> the state that it is at the next call.
        initial: what states begin with; whole: outputs of one call of all steps, last states too, None where steps are
            not counted.
        session: of ONNX Runtime, None where it is not there or the file has its states inside.
    """

    run: Run
    links: Mapping[str, str]
    initial: Arrays
    whole: Arrays | None
    session: Session | None


def stream(runs: OnnxRuns) -> bool:
    """Run a file call by call, print how far it is from other ways and what a step takes; whether it is near enough."""
    links = links_of(runs)
    steps = steps_of(runs, links)
    streamed = with_states_of_file(runs, links) if links else with_states_inside(runs)
    show("states: " + ", ".join(f"{plain(output)} -> {plain(name)}" for output, name in streamed.links.items()))
    show(f"fed at each step: {plain(', '.join(steps[0]), 400)}")
    shapes = {name: array.shape for name, array in streamed.initial.items()}
    opened = streamed.run.stream(streamed.links, shapes=shapes, initial=streamed.initial)
    made = [opened(feeds) for feeds in steps]
    made[-1] |= {output: np.asarray(opened.states[name]) for output, name in streamed.links.items()}
    if streamed.whole is not None:
        found = distances_of_steps(made, streamed.whole)
        right = runs.compare(f"{len(steps)} steps beside one call of them all", found)
    else:
        other, call = other_of(runs, streamed.session)
        found = distances_of_calls(made, steps, HandedOn(call, streamed.links, streamed.initial))
        right = runs.compare(f"{len(steps)} calls beside {other}", found)
    print_times("a step", step_times(opened, streamed.session, steps[0], streamed.links, runs.constants))
    return right


def with_states_of_file(runs: OnnxRuns, links: Mapping[str, str]) -> Streamed:
    """A file whose states are inputs and outputs."""
    initial = {name: runs.feeds[name] for name in links.values()}
    whole = None if runs.options.steps is None else runs.run(runs.feeds)
    try:
        session = runs.theirs
    except MissingPackageError as error:
        show(f"{THEIRS} is left out: {error}")
        return Streamed(runs.run, links, initial, whole, None)
    return Streamed(runs.run, links, initial, whole, session)


def with_states_inside(runs: OnnxRuns) -> Streamed:
    """A file whose recurrences begin with states of its own."""
    if runs.options.steps is None:
        hint = "Say --steps NAME, the open size that counts steps, or --state OUTPUT=INPUT for each state."
        raise OnnxError("none of its outputs is a state that an input takes", hint=hint)
    opened = open_states(runs.model.net)
    whole = runs.of(opened.closed)(runs.feeds)
    initial = {state: np.broadcast_to(whole.pop(state), whole[last].shape) for last, state in opened.links.items()}
    return Streamed(runs.of(opened.net), opened.links, initial, whole, None)


def links_of(runs: OnnxRuns) -> dict[str, str]:
    """Output -> the state that it is, as the user says, else as the file tells; nothing where neither does."""
    if not runs.options.states:
        return {output: name for output, name in state_pairs(runs.graph).items() if name in runs.types}
    return dict(link(text, list(runs.model.net.output_blobs), runs.types) for text in runs.options.states)


def link(text: str, outputs: list[str], inputs: Mapping[str, Any]) -> tuple[str, str]:
    """An output and an input. Raises OnnxError where a text names no pair of them, or two."""
    splits = [(text[:place], text[place + 1 :]) for place, sign in enumerate(text) if sign == "="]
    pairs = [pair for pair in splits if pair[0] in outputs and pair[1] in inputs]
    if len(pairs) != 1:
        wanted = f"OUTPUT=INPUT of outputs {', '.join(outputs)} and inputs {', '.join(inputs)}"
        raise OnnxError("--state names no pair", wanted=wanted, came=text)
    return pairs[0]


def steps_of(runs: OnnxRuns, links: Mapping[str, str]) -> list[dict[str, Array]]:
    """What each call is fed, without states."""
    name = runs.options.steps
    if name is None:
        calls = [runs.feeds, *(runs.more_feeds() for _ in range(CALLS - 1))]
    else:
        calls = split_steps(runs.feeds, axes_of(runs, name))
    return [{one: array for one, array in feeds.items() if one not in links.values()} for feeds in calls]


def axes_of(runs: OnnxRuns, name: str) -> dict[str, int]:
    """Input -> its axis of steps. Raises OnnxError where no input has one."""
    sizes = {one: open_sizes(one, dims) for one, dims in runs.model.shapes.items() if one in runs.types}
    axes = {one: axis for one, called in sizes.items() for axis, size in called.items() if size == name}
    if not axes:
        raise OnnxError("--steps names no open size", wanted=", ".join(runs.sizes.open) or "none", came=name)
    return axes


def other_of(runs: OnnxRuns, session: Session | None) -> tuple[str, Callable[[Arrays], Arrays]]:
    """Who else runs the file: ONNX Runtime, else the reference device."""
    if session is not None:
        return THEIRS, lambda feeds: session({**feeds, **runs.constants})
    return "the reference device", compile_net(runs.model.net, device="reference").bind(**runs.model.params)


def distances_of_calls(
    made: list[dict[str, Array]], steps: list[dict[str, Array]], other: HandedOn
) -> dict[str, float]:
    """How far calls are from those of another program, the last states too, by output."""
    wanted = [other(feeds) for feeds in steps]
    wanted[-1] |= other.last()
    found: dict[str, float] = {}
    for one, two in zip(made, wanted, strict=True):
        found |= {name: max(found.get(name, 0.0), distance_of(one[name], two[name])) for name in two}
    return found
