"""The machine code of micro-kernels, for processors that need not be there."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from rnnops.kernels.cpu.micro_kernel import PANELS_AT_ONCE, TURN, MicroTile, define_tile, most_tile_rows, tiles
from rnnops.kernels.cpu.processor import PAIRS, WIDTHS

LABEL = re.compile(r"^\.?LBB\w*:.*$", re.M)


def assembly(tile: MicroTile, triple: str, processor: str, features: str = "") -> str:
    """The code of one tile; skips where this LLVM cannot make it."""
    try:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        pytest.skip(f"this llvmlite cannot compile for {triple}: {error}")
    module = ir.Module()
    module.triple = triple
    define_tile(module, tile).linkage = "external"
    compiled = llvm.parse_assembly(str(module))
    machine = target.create_target_machine(cpu=processor, features=features, opt=3)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(compiled, passes)
    return str(machine.emit_assembly(compiled))


def inner_loop(code: str, multiply_add: str) -> list[str]:
    """Instructions of the block with the most multiply-adds."""
    blocks = [block.splitlines() for block in LABEL.split(code)]
    return max(blocks, key=lambda block: sum(multiply_add in line for line in block))


@pytest.mark.parametrize(("dtype", "lanes", "form"), [("float32", 4, "4s"), ("float64", 2, "2d")])
def test_aarch64(dtype: str, lanes: int, form: str) -> None:
    code = assembly(MicroTile(dtype, lanes, 8, 3), "aarch64-linux-gnu", "", "+neon")
    loop = inner_loop(code, "fmla")
    multiply_adds = [line for line in loop if re.search(rf"fmla\s+v\d+\.{form}", line)]
    assert len(multiply_adds) % 24 == 0
    assert multiply_adds
    assert not any("sp" in re.findall(r"\[(\w+)", line) for line in loop), "sums do not fit the registers"
    assert not re.search(r"\bbl\b", code)


@pytest.mark.parametrize(
    ("width", "processor", "register", "rows"),
    [(512, "skylake-avx512", "zmm", 8), (512, "znver4", "zmm", 8), (256, "haswell", "ymm", 4)],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_x86(width: int, processor: str, register: str, rows: int, dtype: str) -> None:
    lanes = width // (32 if dtype == "float32" else 64)
    code = assembly(MicroTile(dtype, lanes, rows, 3, ahead=True, turn=TURN), "x86_64-linux-gnu", processor)
    loop = inner_loop(code, "vfmadd")
    multiply_adds = [line for line in loop if "vfmadd" in line]
    assert multiply_adds
    assert len(multiply_adds) % (3 * rows) == 0
    assert all(register in line for line in multiply_adds)
    assert not [line for line in loop if register in line and "rsp" in line], "sums do not fit the registers"
    assert not re.search(r"\bcall", code)


def test_pairs_on_x86() -> None:
    code = assembly(MicroTile(PAIRS, 16, 8, 3, ahead=True, turn=TURN), "x86_64-linux-gnu", "znver4")
    loop = inner_loop(code, "vdpbf16ps")
    multiply_adds = [line for line in loop if "vdpbf16ps" in line]
    assert multiply_adds
    assert len(multiply_adds) % 24 == 0
    assert all("zmm" in line for line in multiply_adds)
    assert not [line for line in loop if "zmm" in line and "rsp" in line], "sums do not fit the registers"


@pytest.mark.parametrize("width", WIDTHS)
def test_tiles_have_keys_of_their_own(width: int) -> None:
    made = tiles("float32", width)
    assert len({tile.key for tile in made}) == len({tile.name for tile in made}) == len(made)
    assert {tile.rows for tile in made} == set(range(1, most_tile_rows(width) + 1))
    assert {(tile.rows, tile.panels) for tile in made if tile.panels > 1} == {
        (rows, one) for rows, some in PANELS_AT_ONCE.items() for one in some
    }
