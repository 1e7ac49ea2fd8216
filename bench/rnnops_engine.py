"""rnnops as a contender: the net of a problem on the device that is measured, or on the reference for comparison."""

from __future__ import annotations

from typing import Any

import rnnops as ro
from bench.contender import Contender, Settings, gradient_of
from bench.counting import count_work
from bench.nets import build_net, make_feeds, user_net
from bench.problems import Arrays, Problem, rows_inside


def plain(problem: Problem, mode: str, settings: Settings) -> Contender:
    """Parameters are fed with every call."""
    return contender_of(problem, mode, compile_net(problem, settings.device, settings.threads), bind=False)


def bound(problem: Problem, mode: str, settings: Settings) -> Contender:
    """Parameters are bound once, as a model that serves does."""
    return contender_of(problem, mode, compile_net(problem, settings.device, settings.threads), bind=True)


def reference(problem: Problem, mode: str, settings: Settings) -> Contender:
    """The NumPy interpreter, which says what is right."""
    return contender_of(problem, mode, compile_net(problem, "reference", settings.threads), bind=False)


def compile_net(problem: Problem, device: str, threads: int) -> Any:
    """A run of the net of a problem."""
    return ro.compile(build_net(problem), device=device, threads=threads)


def contender_of(problem: Problem, mode: str, run: Any, bind: bool) -> Contender:
    """What calls a run in a mode; parameters are fed with every call, or bound."""
    feeds, output_gradients = make_feeds(problem)
    work = count_work(problem, mode == "training")
    if bind:
        parameters = user_net(problem.net).parameters(problem.size.H)
        run = run.bind(**{name: feeds.pop(name) for name in parameters})

    def forward() -> Any:
        return run(feeds), {}

    def kept_forward() -> Any:
        return run.vjp(feeds)[0], {}

    def training() -> Any:
        outputs, pullback = run.vjp(feeds)
        return outputs, pullback(output_gradients)

    calls = {"forward": forward, "kept forward": kept_forward, "training": training}
    return Contender(calls[mode], lambda returned: named_results(problem, feeds, *returned), work)


def named_results(problem: Problem, feeds: Arrays, outputs: Arrays, gradients: Arrays) -> Arrays:
    """Outputs and gradients; what a row puts out past its end is nobody's concern, and zero in other libraries."""
    inside = rows_inside(feeds, problem.size)
    whole = user_net(problem.net).differentiated
    masked = {name: array * inside if name in whole else array for name, array in outputs.items()}
    return {**masked, **{gradient_of(name): array for name, array in gradients.items()}}


def kept_numbers(problem: Problem, settings: Settings) -> int:
    """Numbers that a pullback holds beside feeds, each piece of memory once."""
    feeds, _ = make_feeds(problem)
    outputs, pullback = compile_net(problem, settings.device, settings.threads).vjp(feeds)
    del outputs
    fed = {_address(array) for array in feeds.values()}
    held = {_address(array): array.size for array in pullback.held_arrays().values()}
    return sum(size for address, size in held.items() if address not in fed)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
