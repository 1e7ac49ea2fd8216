"""Pointwise kernels for blocks of CUDA threads, in the simulator: what NumPy makes of the same, for any lanes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scan_cases import lowered_step, run_statements

import rnnops as ro
from rnnops.compiler.codegen.pointwise_kernel import SizeArguments
from rnnops.compiler.lower.expressions import Constants
from rnnops.compiler.schedule.loop_nests import fuse_nests
from rnnops.compiler.targets.cuda.kernel_parts import BlockPointwiseWriter
from rnnops.compiler.targets.cuda.module import TEAMS, programs_text
from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import facade
from rnnops.kernels.cuda.lane_functions import folds_source
from rnnops.kernels.scalar_functions import import_lines

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not facade.SIMULATED, reason="a device has functions of its own")]

HEAD = """\
from typing import Any

import numpy as np
from numba import cuda

from rnnops.kernels.cpu.pointwise import add_any_order, add_product, add_product_any_order, larger, smaller
{functions}

device_function = cuda.jit(device=True)
"""
KERNEL = """
@cuda.jit
def kernel({parameters}):
    lane, lanes = cuda.threadIdx.x, cuda.blockDim.x
    {teams}
    shared_float64 = cuda.shared.array(64, np.float64)
    shared_bool = cuda.shared.array(64, np.uint8)
    row({arguments})
"""
CELLS: dict[str, tuple[Callable[..., ro.Blob], dict[str, Any]]] = {
    "chain": (lambda x, w: ro.tanh(x * w) + x, {"x": (7,), "w": (7,)}),
    "softmax": (lambda x: ro.softmax(x, axis=0), {"x": (9,)}),
    "softmax of rows": (lambda x: ro.softmax(x, axis=1), {"x": (5, 3)}),
    "normalised": (lambda x, g: ro.layer_normalization(x, g, g, axis=0), {"x": (6,), "g": (6,)}),
    "sum over the outer axis": (lambda x: ro.reduce_sum(x * 2.0, axes=[0], keepdims=0), {"x": (4, 3)}),
    "sum of all": (lambda x: x + ro.reduce_sum(x), {"x": (4, 3)}),
    "largest": (lambda x: ro.reduce_max(x, axes=[0]) - ro.reduce_min(x, axes=[0]) * x, {"x": (8,)}),
    "any and all": (lambda x: ro.where(ro.equal(ro.reduce_max(x), x), 1.0, x), {"x": (5,)}),
    "look-up": (lambda x, i: ro.gather(x, i, axis=0), {"x": (5, 2), "i": ("int32", (3,))}),
    "product": (lambda x, m: ro.gather(x, 0, axis=0) @ m, {"x": (1, 4), "m": (4, 8)}),
    "energies and a context": (
        lambda x, k: ro.reduce_sum(k * ro.softmax(ro.reduce_sum(k * x, axes=[1]), axis=0), axes=[0]),
        {"x": (1, 70), "k": (6, 70)},
    ),
    "gradients of rows": (
        lambda x, k: ro.reduce_sum(ro.tanh(k * x), axes=[0, 1]) + x,
        {"x": (3, 1, 35), "k": (3, 4, 35)},
    ),
    "numbers": (lambda x, y: ro.exp(x) * y + ro.reduce_sum(y), {"x": (1,), "y": (4,)}),
}

AXES = [axes for count in (1, 2, 3) for axes in combinations(range(3), count)]
CELLS.update(
    (
        f"{fold.name} over {axes}, of {size}",
        (lambda x, w, f=fold, a=axes: f(x * w, axes=a), {"x": shape, "w": wide}),
    )
    for size, shape, wide in (("small", (3, 5, 4), (3, 1, 4)), ("long rows", (3, 2, 70), (1, 2, 70)))
    for fold in (ro.reduce_sum, ro.reduce_max)
    for axes in AXES
)


@pytest.mark.parametrize("lanes", [1, 2, 5, 16])
@pytest.mark.parametrize("name", CELLS)
def test_lanes_make_the_same_as_numpy(name: str, lanes: int) -> None:
    build, kinds = CELLS[name]
    cell = ro.Net("cell")
    given = {n: cell.input(n, kind[0] if isinstance(kind[0], str) else None) for n, kind in kinds.items()}
    cell.outputs(y=build(**given))
    lowered = lowered_step(cell, **kinds)
    random = np.random.default_rng(0)
    feeds = {n: np.array([4, 0, -5], "int32") if n == "i" else random.normal(size=kind) for n, kind in kinds.items()}
    wanted = run_statements(lowered, feeds)
    last = lowered.statements[-1].target.owner
    sizes, constants = SizeArguments(), Constants()
    writer = BlockPointwiseWriter("row", lowered.types, {}, {last}, {}, sizes, constants)
    program = writer.write(fuse_nests(lowered.statements, folds_last=True))
    values = [f"c{i}" for i in range(len(sizes.values))]
    outside = [name for name in program.scalars if name == "status"]
    parameters = [*outside, *program.pointers.values(), *values]
    arguments = ", ".join([*program.scalars, *program.pointers.values(), *program.sizes])
    head = HEAD.format(functions="\n".join(import_lines("cpu")))
    text = [head, *constants.lines(), folds_source(), *programs_text(program.folds, [program.function(lowered.types)])]
    filled = {"parameters": ", ".join(parameters), "arguments": arguments, "teams": "\n    ".join(TEAMS)}
    module = load_module("\n\n".join(text) + KERNEL.format(**filled))
    memory = {
        owner: feeds.get(owner, lowered.constants.get(owner, np.full(lowered.types[owner].size, np.nan))).reshape(-1)
        for owner in program.pointers
    }
    status = np.zeros(1)
    module.kernel[1, lanes](*([status] if outside else []), *memory.values(), *sizes.values)
    np.testing.assert_allclose(memory[last], wanted[last], rtol=1e-13)
    assert status[0] == 0
