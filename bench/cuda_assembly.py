"""Kernels of the golden cells as machine code, without a GPU: `python -m bench.cuda_assembly`.

Text of nvdisasm is cut into functions, in which the loop over steps is found and instructions are counted by kind.

**Linking.** Kernels are linked and disassembled without a device, by NVIDIA's wheels: nvJitLink (`cuda-bindings`) and
nvdisasm. Wheels of CUDA 12 and of CUDA 13 do; each has folders of its own.

**Loops** over steps of compiled recurrences, as blocks of a CUDA device share them out, and what they
should cost.

**Tables.** For each compute capability the kernels of all cells, forward and backward, are linked and disassembled; a
table says what the assembler gave each (registers, stack, spills) and which instructions its loop over steps holds. A
second table is of the cost model (`share_blocks.py` of the target): microseconds of a step by size. It needs wheels of
NVIDIA (`HINT` names them). With `--save` both become `bench/results/cuda-assembly.md`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

if __name__ == "__main__":  # before anything imports numba: the simulator compiles nothing
    os.environ |= {"NUMBA_ENABLE_CUDASIM": "0", "CUDA_VISIBLE_DEVICES": ""}

import rnnops as ro
from bench.nets import user_net
from bench.problems import Size
from rnnops.compiler.lower.scan import Scan
from rnnops.compiler.run.compiled_scan import EXACT, CompiledScan, Options
from rnnops.compiler.targets.cuda import target
from rnnops.compiler.targets.cuda.lane_nests import LANES
from rnnops.compiler.targets.cuda.loop import Loop
from rnnops.compiler.targets.cuda.share_blocks import (
    CLOCK,
    MULTIPROCESSORS,
    SHARED_BYTES,
    rounding_of,
    step_time,
    tensor_step_time,
)
from rnnops.compiler.targets.cuda.target import FIXED_BYTES, Cuda
from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import facade
from rnnops.kernels.cuda.tensor_cores import INSTRUCTIONS

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
LABEL = re.compile(r"^(\.L_x_\d+|\$[\w$]+):", re.MULTILINE)
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
WIDTHS = {"64": "8", "128": "16"}


@dataclass(frozen=True)
class Instruction:
    """One of them: its name with modifiers, and its operands."""

    name: str
    operands: str

    @property
    def kind(self) -> str:
        """What it is counted as; loads and stores by bytes."""
        base, *modifiers = self.name.split(".")
        if base in ("LDG", "LDS", "STS", "STG", "LDL", "STL", "LDGSTS"):
            nbytes = next((WIDTHS[one] for one in modifiers if one in WIDTHS), "4")
            if base == "LDG" and "STRONG" in modifiers:
                return "LDG strong"
            return f"{base} {nbytes}"
        if base in ("CALL", "I2F", "MUFU") and self._divides(base, modifiers):
            return "division 64" if base == "CALL" or "U64" in modifiers else "division 32"
        return base

    def _divides(self, base: str, modifiers: list[str]) -> bool:
        if base == "CALL":
            return re.search(r"(div|rem)_[su]64", self.operands) is not None
        return base == "I2F" and "RP" in modifiers


def kernel_text(text: str) -> str:
    """The part of a disassembly that is the kernel itself, without functions that it calls."""
    parts = re.split(r"^\.section\s+\.text\.|^\s*\.section\s+\.text\.", text, flags=re.MULTILINE)
    kernels = [part for part in parts[1:] if re.match(r"_Z\S*(loop_|unit_|kernel)", part)]
    return max(kernels or parts, key=len)


def instructions(text: str) -> tuple[list[Instruction], dict[str, int]]:
    """All instructions in order, and at which of them labels are."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        label = LABEL.match(line)
        if label:
            labels[label[1]] = len(found)
        one = INSTRUCTION.search(line)
        if one:
            found.append(Instruction(one[1], one[2]))
    return found, labels


def step_loop(text: str) -> list[Instruction]:
    """The longest loop in which lanes wait for each other, else the longest of all; all instructions without a loop."""
    found, _ = instructions(text)
    loops = list(loops_of(text))
    waiting = [loop for loop in loops if any(one.name.startswith("BAR") for one in loop)]
    return max(waiting or loops or [found], key=len)


def loops_of(text: str) -> Iterator[list[Instruction]]:
    """What lies between a label and a branch back to it."""
    found, labels = instructions(text)
    for place, one in enumerate(found):
        target = TARGET.search(one.operands) if one.name.startswith("BRA") else None
        start = labels.get(target[1], place) if target else place
        if start < place:
            yield found[start : place + 1]


def counted(body: list[Instruction]) -> Counter[str]:
    """How many there are of each kind."""
    return Counter(one.kind for one in body)


HINT = "pip install '.[assembly]', or 'numba-cuda[cu13]' nvidia-cuda-nvdisasm"


def lacking() -> str:
    """What is missing for linking and disassembling; empty where nothing is."""
    try:
        toolkit()
    except Exception as error:  # of the import, or of what looks for the library, which has errors of its own
        return f"nvJitLink, or cuda-bindings: {' '.join(str(error).split())[:80]} ({HINT})"
    return "" if disassembler() else f"nvdisasm ({HINT})"


def toolkit() -> str:
    """The version of CUDA that links, as 12.9."""
    from cuda.bindings import nvjitlink

    return ".".join(map(str, nvjitlink.version()))


def disassembler() -> str | None:
    """Where nvdisasm is: on the path, or in one of the wheels that carry it."""
    folder = Path(sysconfig.get_paths()["purelib"])
    patterns = ("nvidia/*/bin/nvdisasm", "triton/backends/nvidia/bin/nvdisasm")
    there = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    return shutil.which("nvdisasm") or (str(there[0]) if there else None)


def linked(ptx: str, capability: tuple[int, int]) -> tuple[bytes, str]:
    """Machine code of a kernel, and what the assembler says of it. Raises ValueError with the reason of a refusal.

    Args:
        capability: compute capability.
    """
    from cuda.bindings import nvjitlink

    options = [f"-arch=sm_{capability[0]}{capability[1]}", "-verbose"]
    handle = nvjitlink.create(len(options), options)
    try:
        _add(nvjitlink, handle, ptx)
        said = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, said)
        code = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, code)
    finally:
        nvjitlink.destroy(handle)
    return bytes(code), said.decode(errors="replace")


def _add(nvjitlink: object, handle: int, ptx: str) -> None:
    library: object = nvjitlink
    try:
        text = ptx.encode()
        library.add_data(handle, library.InputType.PTX, text, len(text), "kernel")  # type: ignore[attr-defined]
        for path in _device_runtime() if "cudaCGSynchronize" in ptx else ():
            data = path.read_bytes()
            library.add_data(handle, library.InputType.LIBRARY, data, len(data), "cudadevrt")  # type: ignore[attr-defined]
        library.complete(handle)  # type: ignore[attr-defined]
    except Exception as error:
        said = bytearray(library.get_error_log_size(handle))  # type: ignore[attr-defined]
        library.get_error_log(handle, said)  # type: ignore[attr-defined]
        raise ValueError(f"nvJitLink refuses: {said.decode(errors='replace')}") from error


def _device_runtime() -> list[Path]:
    """NVIDIA's library in which a grid's sync is."""
    return sorted(Path(sysconfig.get_paths()["purelib"]).glob("nvidia/**/libcudadevrt.a"))[:1]


def disassembled(code: bytes) -> str:
    """The text of machine code. Raises FileNotFoundError where nvdisasm is missing."""
    program = disassembler()
    if program is None:
        raise FileNotFoundError(f"no nvdisasm: {HINT}")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([program, "-c", file.name], capture_output=True, text=True, check=True)
    return done.stdout


LoopsOf = list[tuple[Scan, list[Loop]]]
KERNEL = "loop_"  # begins the name of a kernel that is a loop


def directions(scans: Sequence[CompiledScan]) -> Iterator[tuple[str, CompiledScan]]:
    """Those with a loop, of which the first is forward."""
    looping = [scan for scan in scans if any(stage.loop and stage.cyclic for stage in scan.plan.stages)]
    return zip(("forward", "backward"), looping, strict=False)


@contextmanager
def loops_written() -> Iterator[LoopsOf]:
    """The loops over steps that follow each other, of each scan that is compiled meanwhile, as kernels are written."""
    found: LoopsOf = []
    real = target.write_cuda_scan

    def write(scan: Scan, plan: Any, layouts: Any, dtype: str, loops: Mapping[int, Loop], weights: str) -> Any:
        cyclic = [loops[number] for number, stage in enumerate(plan.stages) if stage.loop and stage.cyclic]
        found.append((scan, cyclic))
        return real(scan, plan, layouts, dtype, loops, weights)

    with mock.patch.object(target, "write_cuda_scan", write):
        yield found


def predicted(
    scans: Sequence[CompiledScan], written: LoopsOf, batch: int, clock: float = CLOCK
) -> dict[str, float | None]:
    """Microseconds of a step by direction; None for loops that leave the chip, of which nothing is known.

    Args:
        written: what `loops_written` has found when the scans were compiled.
        batch: rows of a step.
        clock: cycles a microsecond; all else but the number of multiprocessors is an H100's.
    """
    found: dict[str, float | None] = {}
    for direction, compiled in directions(scans):
        made = next(loops for scan, loops in reversed(written) if scan is compiled.scan)
        lasting = all(loop.persistent for loop in made)
        found[direction] = sum(time_of(loop, batch) for loop in made) * CLOCK / clock if lasting else None
    return found


def time_of(loop: Loop, batch: int) -> float:
    """Microseconds of a step, on tensor cores where products round their operands."""
    return tensor_step_time(loop, batch) if rounding_of(loop.products) else step_time(loop, batch)


def beside_measured(
    slopes: Mapping[str, float], predictions: Mapping[str, float | None]
) -> dict[str, dict[str, float | None]]:
    """What kernels took a step, what the model said, and the ratio that corrects it.

    Args:
        slopes: microseconds of a step by `forward loop_1` and the like.
    """
    found = {}
    for direction, wanted in predictions.items():
        took = [value for name, value in slopes.items() if name.startswith(f"{direction} {KERNEL}")]
        measured = sum(took) if took else None
        ratio = round(measured / wanted, 3) if measured is not None and wanted else None
        found[direction] = {
            "measured": None if measured is None else round(measured, 3),
            "predicted": None if wanted is None else round(wanted, 3), "ratio": ratio,
        }  # fmt: skip
    return found


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
    options = Options(around="rows", device=Cuda(LANES, blocks, shared - FIXED_BYTES))
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
    yield "\nMicroseconds of a step of the loop on an H100, by the cost model in `targets/cuda/share_blocks.py`:\n"
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
