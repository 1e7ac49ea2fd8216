"""rnnops as a contender: the net of a problem on the device that is measured, or on the reference for comparison."""

from __future__ import annotations

from functools import partial
from typing import Any

import rnnops as ro
from bench import language_model
from bench.case import Entry
from bench.contender import SAVING, Bench, Contender, MissingPeerError, Settings, named
from bench.counting import count_work
from bench.data import Placed, make_feeds
from bench.nets import build_net, user_net
from bench.problems import Problem, rows_inside

ROUNDED = {"tf32": "tfloat32", "bf16": "bfloat16", "fp16": "float16"}  # operands, on tensor cores


def compile_net(problem: Problem, settings: Settings, device: str = "", **options: Any) -> ro.Run:
    """A run of the net of a problem."""
    has_layers = problem.net.startswith(language_model.PREFIX)
    net = language_model.net_of(problem) if has_layers else build_net(problem)
    return ro.compile(net, device=device or settings.device, threads=settings.threads, **options)


def plain(entry: Entry, bench: Bench, device: str = "", bind: bool = False, **options: Any) -> Contender:
    """The net of an entry; feeds and results stay where the place has put them.

    Args:
        device: the one of the settings if left out.
        bind: whether parameters are bound once, as a model that serves does, and not fed with every call.
        options: of `ro.compile`.
    """
    problem, sets = entry.problem, bench.data(entry.problem).sets
    run: Any = run_of(entry, bench.settings, device, **options)
    feeds = [one.feeds for one in sets]
    if bind:
        parameters = user_net(problem.net).parameters(problem.size.H)
        run = run.bind(**{name: feeds[0][name] for name in parameters})
        feeds = [{name: array for name, array in one.items() if name not in parameters} for one in feeds]

    def forward(k: int) -> Any:
        return run(feeds[k % len(feeds)]), {}

    def kept_forward(k: int) -> Any:
        return run.vjp(feeds[k % len(feeds)])[0], {}

    def training(k: int) -> Any:
        outputs, pullback = run.vjp(feeds[k % len(feeds)])
        return outputs, pullback(sets[k % len(sets)].heads)

    calls = {"forward": forward, "kept forward": kept_forward, "training": training}
    return Contender(
        calls[entry.mode],
        partial(results_of, problem, feeds[0]),
        None if problem.net.startswith(language_model.PREFIX) else lambda: count_work(problem, entry.is_training),
        planned=(lambda: planned_bytes(run, feeds[0], entry.is_training)) if bench.settings.is_cuda else None,
    )


def run_of(entry: Entry, settings: Settings, device: str, **options: Any) -> ro.Run:
    """The net of an entry in its precision. Raises MissingPeerError where rnnops has none of its ways to that."""
    refusals = []
    for floats in ways_to(entry, settings):
        try:
            return compile_net(entry.problem, settings, device, **floats, **options)
        except ro.errors.DeviceError as error:
            refusals.append(" ".join(str(error).split()))
    raise MissingPeerError(f"rnnops has no products in {entry.precision} there: {'; '.join(refusals) or 'never had'}")


def ways_to(entry: Entry, settings: Settings) -> tuple[dict[str, str], ...]:
    """Options that say what products round, or how recurrent weights lie on chip, best first; arrays are float32."""
    if entry.precision in ("fp32", "int8"):
        return ({},)
    if not settings.is_cuda:
        return ({"precision": "bfloat16"},) if entry.precision == "bf16" else ()
    rounded = {"precision": ROUNDED[entry.precision]}
    return (rounded, {"weights": "float16"}) if entry.precision == "fp16" else (rounded,)


def results_of(problem: Problem, feeds: Placed, returned: tuple[Placed, Placed]) -> Placed:
    """Outputs and gradients; what a row puts out past its end is nobody's concern, and zero in other libraries."""
    if "seq_lengths" not in feeds:
        return named(returned)
    inside, whole = rows_inside(feeds, problem.size), user_net(problem.net).differentiated
    outputs = {name: array * inside if name in whole else array for name, array in returned[0].items()}
    return named((outputs, returned[1]))


def planned_bytes(run: Any, feeds: Placed, training: bool) -> int:
    """What the plan says that a call allocates when it needs most."""
    shapes = {name: tuple(array.shape) for name, array in feeds.items()}
    return int(run.plan(shapes, backward=training).memory().total)


def kept_numbers(problem: Problem, settings: Settings) -> int:
    """Numbers that a pullback holds beside feeds, each piece of memory once."""
    feeds, _ = make_feeds(problem)
    outputs, pullback = compile_net(problem, settings).vjp(feeds)
    del outputs
    fed = {_address(array) for array in feeds.values()}
    held = {_address(array): array.size for array in pullback.held_arrays().values()}
    return sum(size for address, size in held.items() if address not in fed)


def held_bytes(label: str, problem: Problem) -> int:
    """Bytes that a pullback holds beside the feeds, with a policy or within a budget."""
    feeds, _ = make_feeds(problem)
    return compile_net(problem, Settings(threads=1), **SAVING[label].options).saved_residuals(feeds).total


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
