"""Kernels of the golden cells as machine code, without a GPU: `python -m bench.cuda_assembly`.

For each compute capability the kernels of all cells, forward and backward, are linked and disassembled; a table says
what the assembler gave each (registers, stack, spills) and which instructions its loop over steps holds. A second table
is of the cost model (`step_cost.py` of the target): microseconds of a step by size. It needs NVIDIA's wheels
(`cuda_link.py` says which). With `--save` both become `bench/results/cuda-assembly.md`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ["NUMBA_ENABLE_CUDASIM"] = "0"  # before anything imports numba: the simulator compiles nothing
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import rnnops as ro
from bench.cuda_link import disassembled, lacking, linked
from bench.cuda_loops import directions, loops_written, predicted
from bench.nets import user_net
from bench.problems import Size
from bench.sass import counted, kernel_text, step_loop
from rnnops.compiler.run.compiled_scan import EXACT, CompiledScan, Options
from rnnops.compiler.targets.cuda.lane_nests import LANES
from rnnops.compiler.targets.cuda.step_cost import MULTIPROCESSORS, SHARED_BYTES
from rnnops.compiler.targets.cuda.target import FIXED_BYTES, Cuda
from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import facade
from rnnops.kernels.cuda.tensor_cores import INSTRUCTIONS

CELLS = ("lstm", "lstm_with_lengths", "gru", "milstm", "layer_norm_lstm", "attention_decoder")
ROUNDED = tuple(f"{cell} {one}" for cell in ("lstm", "gru", "layer_norm_lstm") for one in INSTRUCTIONS)
CAPABILITIES = (8, 0), (9, 0), (10, 0)
ROOM = {(8, 0): (108, 166912), (9, 0): (MULTIPROCESSORS, SHARED_BYTES), (10, 0): (148, 232448)}  # A100, H100, B200
STEPS, SIZES = 64, tuple((H, N) for N in (16, 64) for H in (512, 768, 1024))
KINDS = (
    *(
        "FFMA",
        "HMMA",
        "LDG 4",
        "LDG 8",
        "LDG 16",
        "LDG strong",
        "LDGSTS 16",
        "LDS 4",
        "LDS 8",
        "LDS 16",
        "STS 4",
        "STS 16",
    ),
    *("STG 4", "STG 16", "BAR", "ATOM", "ATOMG", "RED", "REDG", "MEMBAR", "division 64", "division 32"),
)
RESULTS = Path(__file__).parent / "results" / "cuda-assembly.md"


@dataclass(frozen=True)
class Assembled:
    """A kernel as the assembler left it.

    Args:
        stack, spills: bytes.
        local: instructions that read or write local memory.
        has_product: whether it multiplies by columns of the weights.
        has_partial_sums: whether it multiplies by rows of them.
        counts: of instructions of the step loop, by kind; `all` of them.
    """

    cell: str
    direction: str
    kernel: str
    capability: tuple[int, int]
    registers: int
    stack: int
    spills: int
    local: int
    has_product: bool
    has_partial_sums: bool
    counts: Counter[str] = field(default_factory=Counter)


def compiled(cell: str, H: int, N: int, capability: tuple[int, int]) -> list[CompiledScan]:
    """The loops of a cell's recurrence, forward and backward, for a device that is not there.

    Args:
        cell: one of `CELLS`, or of `ROUNDED`.
    """
    name, _, precision = cell.partition(" ")
    net, (blocks, shared) = user_net(name), ROOM[capability]
    options = Options(least_work=0, device=Cuda(LANES, blocks, shared - FIXED_BYTES))
    run = ro.compile(net.build(name, ()), tuning=options, precision=precision or EXACT)
    plan = run.plan(net.shapes(Size(STEPS, N, H)), dtype="float32")
    return [kernel.compiled for kernel in plan.plan.compiled.kernels]


def assembled(cell: str, capability: tuple[int, int], H: int = 512, N: int = 16) -> Iterator[Assembled]:
    """The kernels of a cell, linked and disassembled."""
    for direction, scan in directions(compiled(cell, H, N, capability)):
        text = scan.text.python()
        module = load_module(text)
        for name in sorted(vars(module)):
            if name.startswith(("loop_", "region_")):
                ptx = facade.ptx_of_scan(getattr(module, name), capability)
                code, said = linked(ptx, capability)
                body = text.split(f"def {name}(")[1].split("\n\n\n")[0]
                multiplies = "step_product(" in body or "tensor_product(" in body, "partial_product(" in body
                yield facts(Assembled(cell, direction, name, capability, 0, 0, 0, 0, *multiplies), code, said)


def facts(kernel: Assembled, code: bytes, said: str) -> Assembled:
    """What the assembler said, and what is in the machine code."""
    registers = re.search(r"Used (\d+) registers", said)
    stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    text = kernel_text(disassembled(code))
    everything, loop = counted(step_loop(text)), step_loop(text)
    everything["all"] = len(loop)
    local = len(re.findall(r"\b(?:LDL|STL)\b", text))
    frame, *spilled = map(int, stack.groups()) if stack else (0, 0)
    return Assembled(
        kernel.cell, kernel.direction, kernel.kernel, kernel.capability,
        int(registers[1]) if registers else 0, frame, sum(spilled), local,
        kernel.has_product, kernel.has_partial_sums, everything,
    )  # fmt: skip


def predictions(cell: str, H: int, N: int) -> dict[str, str]:
    """Microseconds of a step on an H100 by direction."""
    with loops_written() as written:
        scans = compiled(cell, H, N, (9, 0))
    found = predicted(scans, written, N)
    return {name: "per step" if time is None else f"{time:.1f}" for name, time in found.items()}


def assembly_table(kernels: Sequence[Assembled]) -> Iterator[str]:
    kinds = [kind for kind in KINDS if any(kernel.counts[kind] for kernel in kernels)]
    yield "| kernel | cc | registers | stack | spills | local | all | " + " | ".join(kinds) + " |"
    yield "|---" * (len(kinds) + 7) + "|"
    for one in kernels:
        cells = [f"{one.cell} {one.direction} {one.kernel}", f"{one.capability[0]}.{one.capability[1]}"]
        cells += map(str, (one.registers, one.stack, one.spills, one.local, one.counts["all"]))
        yield "| " + " | ".join([*cells, *(str(one.counts[kind]) for kind in kinds)]) + " |"


def cost_table(cells: Sequence[str]) -> Iterator[str]:
    sizes = [f"{H},{N}" for H, N in SIZES]
    yield "| H,N | " + " | ".join(sizes) + " |"
    yield "|---" * (len(sizes) + 1) + "|"
    for cell in cells:
        found = [predictions(cell, H, N) for H, N in SIZES]
        for direction in ("forward", "backward"):
            yield f"| {cell} {direction} | " + " | ".join(one.get(direction, "") for one in found) + " |"


def page(cells: Sequence[str], capabilities: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Both tables, line by line."""
    yield "# Kernels as machine code, and what a step should cost\n"
    yield "No GPU has run them. Counts are of the instructions of the loop over steps as they stand, not as they run.\n"
    yield from assembly_table([one for cell in cells for cc in capabilities for one in assembled(cell, cc)])
    yield "\nMicroseconds of a step of the loop on an H100, by the cost model (`targets/cuda/step_cost.py`, and"
    yield "`tensor_cost.py` for operands that are rounded):\n"
    yield from cost_table(cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=(*CELLS, *ROUNDED), choices=(*CELLS, *ROUNDED))
    parser.add_argument("--capability", nargs="+", default=[f"{a}.{b}" for a, b in CAPABILITIES])
    parser.add_argument("--save", action="store_true", help=f"also write {RESULTS.name} in bench/results")
    options = parser.parse_args()
    if lacking():
        print(f"missing: {lacking()}", file=sys.stderr)
        return 2
    capabilities = [(int(major), int(minor)) for major, minor in (one.split(".") for one in options.capability)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba-cuda's, of a device that is missing
        lines = list(page(options.cells, capabilities))
    print("\n".join(lines))
    if options.save:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
