"""Kernels linked and disassembled without a GPU, where NVIDIA's wheels are; and the model of what a step costs."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest
from without_simulator import run_without_simulator

from bench.cuda_assembly import counted, instructions, kernel_text, step_loop
from rnnops.compiler.targets.cuda.loop import Loop
from rnnops.compiler.targets.cuda.share_blocks import (
    CLOCK,
    GROUP_WAIT,
    L2_BYTES,
    ROUND_TRIP,
    cheapest,
    multiply_cycles,
    partial_cycles,
    product_cycles,
    read_cycles,
    step_time,
    total_cycles,
)
from rnnops.kernels.cuda.step_product import partial_sums

ROUNDED = ("lstm tfloat32", "lstm bfloat16", "lstm float16", "gru bfloat16", "layer_norm_lstm tfloat32")
CELLS = ("lstm", "lstm_with_lengths", "gru", "milstm", "layer_norm_lstm", "attention_decoder")
ASSEMBLE = """
import json, sys, warnings
warnings.simplefilter("ignore")
try:
    from bench.cuda_assembly import lacking
    missing = lacking()
    from rnnops.kernels.cuda import facade
    missing = missing or ("" if facade.overload else "numba-cuda")
except ImportError as error:
    missing = str(error)
if missing:
    print("missing:", missing)
    sys.exit()
from bench.cuda_assembly import assembled
capability = tuple(map(int, sys.argv[2].split(".")))
for one in assembled(sys.argv[1], capability):
    print(json.dumps(vars(one)))
"""
SASS = """
.section .text.__cuda_sm20_div_s64,"ax",@progbits
.text.__cuda_sm20_div_s64:
        /*0000*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
.section .text._ZN5loop_1,"ax",@progbits
.text._ZN5loop_1:
.L_x_0:
        /*0000*/                   STS [R1], R2 ;
        /*0010*/              @!P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0040*/                   LDG.E.STRONG.GPU R4, desc[UR4][R2.64] ;
        /*0050*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
.L_x_2:
        /*0060*/                   FFMA R1, R2, R3, R1 ;
        /*0070*/               @P0 BRA `(.L_x_2) ;
        /*0080*/                   CALL.ABS.NOINC `(__cuda_sm20_div_s64) ;
        /*0090*/                   I2F.U32.RP R0, R5 ;
        /*00a0*/               @P1 BRA `(.L_x_1) ;
        /*00b0*/                   EXIT ;
"""


@pytest.mark.parametrize("capability", ["8.0", "9.0", "10.0"])
@pytest.mark.parametrize("cell", [*CELLS, *ROUNDED])
def test_kernels_stay_in_registers(cell: str, capability: str) -> None:
    """And divide no 64 bits in their step loops, and copy 16 bytes at once; how many instructions they have is told.

    Products of rounded operands are on tensor cores, and nothing else is; weights come by one read a lane.
    """
    said = run_without_simulator(ASSEMBLE, cell, capability).splitlines()
    if said and said[0].startswith("missing:"):
        pytest.skip(said[0])
    found = [json.loads(line) for line in said]
    assert {one["direction"] for one in found} == {"forward", "backward"}
    for one in found:
        counts, registers = Counter(one["counts"]), one["registers"]
        every = f"{registers} registers, {counts['all']} in the step loop"
        print(f"{cell} {one['direction']}, compute capability {capability}: {every}")
        assert 0 < registers <= 255
        assert (one["stack"], one["spills"], one["local"], counts["division 64"]) == (0, 0, 0, 0)
        multiplies = one["has_product"] or one["has_partial_sums"]
        assert counts["BAR"] > 0 or (one["kernel"].startswith("loop_") and not multiplies)  # elements beside each other
        assert not one["has_product"] or counts["LDGSTS 16"] > 0
        on_tensor_cores = cell in ROUNDED and one["has_product"]
        assert (counts["HMMA"] > 0) == on_tensor_cores
        if on_tensor_cores:
            assert counts["LDS 16"] + counts["LDS 8"] >= 4
        elif multiplies:
            assert counts["LDS 16"] >= 8
            assert counts["FFMA"] >= 64
        if one["has_partial_sums"]:
            assert counts["LDG 16"] >= 8  # reads in flight
            assert counts["STG 16"] >= 4  # a tile's rows


def test_instructions_of_the_step_loop_are_counted() -> None:
    text = kernel_text(SASS)
    assert len(instructions(text)[0]) == 12
    counts = counted(step_loop(text))
    assert {kind: counts[kind] for kind in ("LDG 16", "LDG 4", "LDG strong", "BAR", "FFMA", "STS 4")} == {
        "LDG 16": 1, "LDG 4": 1, "LDG strong": 1, "BAR": 1, "FFMA": 1, "STS 4": 0,
    }  # fmt: skip
    assert (counts["division 64"], counts["division 32"]) == (1, 1)


def test_loops_without_a_wait_are_counted_too() -> None:
    text = kernel_text(SASS).replace("BAR.SYNC.DEFER_BLOCKING 0x0", "NOP")
    assert counted(step_loop(text))["division 64"] == 1
    assert len(step_loop(text)) < len(instructions(text)[0]) == len(step_loop(text.replace("BRA", "NOP")))


def test_a_step_costs_what_its_parts_do() -> None:
    """Of 8 rows of 768 numbers and 72 columns a product takes 2.1 to 3.2 us."""
    assert read_cycles(8, 768, 384) - read_cycles(8, 768, 768) == pytest.approx(ROUND_TRIP)
    assert 2.0 < multiply_cycles(8, 768, 72) / 1755 < 3.2
    assert multiply_cycles(8, 1536, 64) == pytest.approx(2 * multiply_cycles(8, 768, 64))
    alone, hidden = read_cycles(8, 768, 384), product_cycles(8, 768, 384, 1e6)
    assert hidden == pytest.approx(1e6 + alone / 2)  # the second slice comes while the first is multiplied
    waits = [step_time(Loop((), frozenset(range(n)), True, 1, 1), 4) for n in (0, 1)]
    assert waits[1] - waits[0] == pytest.approx(GROUP_WAIT)


def test_partial_sums_cost_what_their_parts_do() -> None:
    """128 members with 8 of 1024 features each, 16 rows: L2 takes 64 KiB in 0.96 us and gives as many."""
    sums = partial_sums(16, 1024, 1024, 128)
    given = 128 * sums.of_member * 4 / L2_BYTES
    assert 0.95 < given / CLOCK < 0.97
    assert total_cycles(sums) == pytest.approx(given + 2 * ROUND_TRIP)  # 8 lanes share out the members, 8 at once
    multiply, own = multiply_cycles(16, 32, 1024), ROUND_TRIP + 16 * 32 * 4 / L2_BYTES
    most = own + multiply + given  # without the passes in which one tile is written while the next is multiplied
    assert max(multiply, given) < partial_cycles(32, sums, stays=False) < most
    assert partial_cycles(32, sums, stays=False) - partial_cycles(32, sums, stays=True) == pytest.approx(own)


def test_the_cheapest_loop_is_that_with_fewer_waits() -> None:
    one, two = (Loop((), frozenset(range(count)), True, 1, 1) for count in (1, 2))
    assert cheapest([two, one], 4) is one
    assert cheapest([one, two], 4) is one


def test_an_import_leaves_the_environment_alone() -> None:
    """Where this changed it, tests in the simulator waited for blocks that never ran."""
    import bench.cuda_assembly  # noqa: F401

    assert os.environ.get("NUMBA_ENABLE_CUDASIM") != "0" or "CUDA_VISIBLE_DEVICES" not in os.environ
