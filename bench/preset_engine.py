"""Cells of the library over a sequence as contenders: ours, and the same by hand in JAX.

**Preset cases.** The table of presets: every cell of docs/cells.md beside the same by hand in JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any
from zlib import crc32

import numpy as np

import rnnops as ro
from bench.case import Case, Entry
from bench.contender import Bench, Contender, named
from bench.counting import MOVES, Work, product_flops
from bench.goals import of_peak, speedup
from bench.problems import Array, Arrays, Problem, Shape, Size
from rnnops.cells import CELLS
from rnnops.cells.base import initial_name
from rnnops.net.infer import infer
from rnnops.types import Type

PREFIX = "preset "
CELL = "cell"
SMALL = np.float32(0.1)
SPIKING, STRONGER = ("lif", "alif"), 8.0  # times the input weights of neurons, which would never fire


def preset_of(problem: Problem) -> Any:
    """The cell of a problem, of as many input features as units."""
    return ro.cells.CELLS[problem.net.removeprefix(PREFIX)](problem.size.H, problem.size.H, name=CELL)


def net_of(problem: Problem) -> ro.Net:
    net = ro.Net("preset", sizes_for="float32")
    y, _ = preset_of(problem).apply_over_sequence(net, net.input("xs"))
    net.outputs(y=y)
    return net


def feeds_of(problem: Problem) -> tuple[Arrays, Arrays]:
    """Feeds, and the gradient of the output: parameters as a model has them first, states small, all else normal."""
    size, cell = problem.size, preset_of(problem)
    feeds: Arrays = ro.init_params(net_of(problem), 0, "float32")
    for start in starts_of(cell):
        feeds[start] = SMALL * np.abs(normal(start, feeds[start].shape))  # with zeros, some gradients are but rounding
    if cell.default_name in SPIKING:
        feeds[f"{CELL}/i2h_w"] = STRONGER * feeds[f"{CELL}/i2h_w"]
    feeds["xs"] = normal("xs", (size.T, size.N, size.H))
    return feeds, {"y": normal("y", (size.T, size.N, cell.get_output_dim()))}


def normal(name: str, shape: Shape) -> Array:
    """Normal numbers, the same in every process."""
    return np.random.default_rng(crc32(name.encode())).standard_normal(shape, dtype=np.float32)


def starts_of(cell: Any) -> list[str]:
    """Names of the parameters that states begin with."""
    return [initial_name(name) for name in cell.get_state_names()]


def ours(entry: Entry, bench: Bench) -> Contender:
    """A forward pass, or a training step, as compiled here."""
    feeds, heads = feeds_of(entry.problem)
    run = ro.compile(net_of(entry.problem), device=bench.settings.device, threads=bench.settings.threads)

    def training(k: int) -> Any:
        outputs, pullback = run.vjp(feeds)
        return outputs, pullback(heads)

    call = training if entry.is_training else lambda k: (run(feeds), {})
    return Contender(call, named, partial(work_of, entry.problem, entry.is_training))


def in_jax(entry: Entry, bench: Bench) -> Contender:
    """The same of `jax_cells.py`, a whole pass as one jitted function."""
    import jax
    import jax.numpy as jnp

    from bench.jax_engine import arrays_of, compiled_pass

    cell, preset = jax_cell(entry.problem.net.removeprefix(PREFIX)), preset_of(entry.problem)
    starts, rows = starts_of(preset), entry.problem.size.N

    def outputs_of(feeds: Any) -> Any:
        parameters = {name.removeprefix(f"{CELL}/"): array for name, array in feeds.items()}
        states = [jnp.broadcast_to(feeds[start], (rows, *feeds[start].shape)) for start in starts]
        return {"y": cell(parameters, feeds["xs"], *states)}

    feeds, heads = map(arrays_of, feeds_of(entry.problem))
    run = compiled_pass(outputs_of, entry.is_training, (feeds, heads))
    return Contender(lambda k: jax.block_until_ready(run(feeds, heads)), named, waits=True)


def jax_cell(name: str) -> Callable[..., Any]:
    """A cell by hand, by the name of the preset."""
    found: Callable[..., Any] = getattr(import_module("bench.jax_cells"), name)
    return found


def work_of(problem: Problem, training: bool) -> Work:
    """Work of all steps; a product has a gradient for each operand that is not a constant, as large as itself."""
    net, N, cell = ro.Net("step", sizes_for="float32"), problem.size.N, preset_of(problem)
    shapes = [(N, problem.size.H), *((N, *shape) for shape in cell.get_state_shapes())]
    given = [net.input(f"in_{k}", shape=shape) for k, shape in enumerate(shapes)]
    cell.apply(net, given[0], None, given[1:])
    types = {spec.name: Type("float32", tuple(spec.shape or ())) for spec in net.input_specs}
    calls = list(infer(net, types, "float32").values())
    constants = {name for call in calls if call.op.type == "Constant" for name in call.op.outputs}
    flops = elements = 0.0
    for call in calls:
        if call.op.type == "MatMul":
            gradients = sum(name not in constants for name in call.op.inputs) if training else 0
            flops += product_flops(call) * (1 + gradients)
        elif call.op.type not in MOVES:
            elements += sum(kind.size for kind in call.output_types)
    return Work(flops, elements * (2 if training else 1)).times(problem.size.T, problem.size.T)


SIZES = (Size(100, 32, 128), Size(100, 32, 256))
OF_JAX = 1.5  # in training


def preset_cases(scale: Callable[[Size], Size]) -> Iterator[Case]:
    """Forward for information, and a training step, at two sizes."""
    for size in map(scale, SIZES):
        for mode, goal in (("forward", None), ("training", OF_JAX)):
            yield from (preset(name, size, mode, goal) for name in CELLS)


def preset(name: str, size: Size, mode: str, goal: float | None) -> Case:
    problem = Problem(f"{PREFIX}{name}", size)
    contenders = (
        Entry("rnnops", "preset", problem, mode),
        Entry("JAX", "preset in JAX", problem, mode),
        Entry("peak", "peak", problem, mode),
    )
    return Case(f"presets {mode} {size}", name, contenders, (speedup(("JAX",), goal), of_peak(None)))
