"""Kernels of scans as PTX for compute capability 9.0: they compile without a device, at sizes that one would run."""

from __future__ import annotations

from typing import Any

import pytest
from without_simulator import run_compiler, run_without_simulator

COMPILE = """
import rnnops as ro
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.target import load_module

T, N, D, H = 64, 16, 32, 256
cell, dtype, weights = sys.argv[1:]
net = ro.Net("net")
made = getattr(ro, cell)(net, net.input("x"), net.input("lengths", "int32"), None, D, H, memory_optimization=True)
net.outputs(h=made[0])
shapes = {**{spec.name: spec.shape for spec in net.parameters}, "x": (T, N, D), "lengths": (N,)}
tuning = Options(around="all", device=Cuda(256, 132, 220 * 1024, weights=weights))
plan = ro.compile(net, tuning=tuning).plan(shapes, dtype=dtype)
for kernel in plan.plan.compiled.kernels:
    text_of_module = kernel.compiled.text.python()
    module = load_module(text_of_module)
    for name in sorted(vars(module)):
        if name.startswith(("loop_", "unit_")):
            text = facade.ptx_of_scan(getattr(module, name), (9, 0))
            body = text_of_module.split(f"def {name}(")[1].split("\\n\\n\\n")[0]
            found = (name, "step_product(" in body,
                     ".f64" in text, ".local" in text, "red.release.gpu" in text and "ld.acquire.gpu" in text,
                     ",".join(sorted(set(re.findall(r"\\.extern \\.shared \\.align (\\d+)", text)))) or "none",
                     len(re.findall(r"ld\\.shared\\.v4\\.(f32|u16|b16)|ld\\.shared\\.v2\\.(f64|b64)", text)))
            print(*found)
"""


def kernels(cell: str, dtype: str, weights: str = "") -> list[list[str]]:
    """For each kernel its name, and what its PTX holds.

    Products, float64, local memory, waits, bytes to which dynamic shared memory is aligned, reads of four.
    """
    return [line.split() for line in run_compiler(COMPILE, cell, dtype, weights)]


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "LayerNormLSTM", "MILSTM"])
def test_float32_stays_float32_and_in_registers(cell: str) -> None:
    found = kernels(cell, "float32")
    loops = [facts for facts in found if facts[1] == "True"]
    assert len(loops) == 2  # forward and backward
    for _, _, doubles, local, waits, aligned, fours in loops:
        assert (doubles, local, waits) == ("False", "False", "True")
        assert aligned == "16"
        assert int(fours) >= 8  # four rows and four columns, each read at once


@pytest.mark.parametrize(("dtype", "weights"), [("float64", ""), ("float32", "float16")])
def test_other_dtypes(dtype: str, weights: str) -> None:
    found: list[Any] = [facts for facts in kernels("LSTM", dtype, weights) if facts[1] == "True"]
    assert [facts[3] for facts in found] == ["False", "False"]
    assert [facts[5] for facts in found] == ["16", "16"]


TEXT = """
import rnnops as ro
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.compiler.run.compiled_scan import Options

net = ro.Net("net")
net.outputs(h=ro.GRU(net, net.input("x"), None, None, 3, 4)[0])
run = ro.compile(net, tuning=Options(compiled=False, device=Cuda(3, 2)))
print(*re.findall(r"cuda.shared.array\\(0.*?\\)", run.plan(x=(2, 2, 3)).source), sep="\\n")
"""


def test_shared_memory_that_is_read_four_numbers_at_once_is_asked_for_aligned() -> None:
    """Without numba-cuda too, as text."""
    found = run_without_simulator("import re\n" + TEXT).splitlines()
    assert found
    assert set(found) == {"cuda.shared.array(0, types.float32, alignment=16)"}


COOPERATIVE = (
    COMPILE.split("plan = ro.compile")[0]
    + """
from numba import types
from numba.cuda.compiler import compile_cuda

plan = ro.compile(net, tuning=tuning).plan(shapes, dtype=dtype)
for kernel in plan.plan.compiled.kernels:
    text = kernel.compiled.text.python()
    module = load_module(text)
    for name in sorted(vars(module)):
        if name.startswith("loop_"):
            waits = " await_group(counters" in text.split(f"def {name}(")[1].split("\\n\\n\\n")[0]
            loop = getattr(module, name)
            with facade._pretended((9, 0)):
                made = compile_cuda(loop.py_func, types.void, facade.scan_signature(loop.dtypes), cc=(9, 0))
            print(waits, made.library.use_cooperative)
"""
)


def test_kernels_whose_blocks_wait_for_each_other_are_launched_cooperatively() -> None:
    """All blocks must run at the same time: numba-cuda asks the driver for that where a kernel says so."""
    said = run_compiler(COOPERATIVE, "LSTM", "float32", "")
    assert sorted(said) == ["False False", "False False", "True True", "True True"]
