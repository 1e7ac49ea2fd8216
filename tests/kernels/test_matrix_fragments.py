"""Fragments of `mma.sync` as the PTX ISA has them, roundings of their elements, and the twin beside the device."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from without_simulator import run_compiler

from bench import check_tensor_cores
from bench.check_tensor_cores import compare_tensor_cores
from rnnops.kernels.cuda import tensor_cores
from rnnops.kernels.cuda.tensor_cores import (
    BFLOAT16,
    FLOAT16,
    INSTRUCTIONS,
    TFLOAT32,
    MmaInstruction,
    bits,
    multiplied,
    place_in_c,
    values,
)
from rnnops.ops.linear_algebra import rounded

pytestmark = on_cuda
ALL = list(INSTRUCTIONS.values())


def test_places_of_lanes() -> None:
    """Lane 6 is member 2 of group 1: what the figures of the ISA show for it."""
    assert [TFLOAT32.place_in_a(6, i) for i in range(4)] == [(1, 2), (9, 2), (1, 6), (9, 6)]
    assert [TFLOAT32.place_in_b(6, i) for i in range(2)] == [(2, 1), (6, 1)]
    assert [BFLOAT16.place_in_a(6, i) for i in range(8)] == [
        (1, 4), (1, 5), (9, 4), (9, 5), (1, 12), (1, 13), (9, 12), (9, 13),
    ]  # fmt: skip
    assert [BFLOAT16.place_in_b(6, i) for i in range(4)] == [(4, 1), (5, 1), (12, 1), (13, 1)]
    assert [place_in_c(6, i) for i in range(4)] == [(1, 4), (1, 5), (9, 4), (9, 5)]


@pytest.mark.parametrize("instruction", ALL, ids=INSTRUCTIONS)
def test_each_element_is_in_one_register(instruction: MmaInstruction) -> None:
    lanes, packed = range(32), instruction.packed
    assert {instruction.place_in_a(*one) for one in product(lanes, range(4 * packed))} == {
        *product(range(16), range(instruction.k))
    }
    assert {instruction.place_in_b(*one) for one in product(lanes, range(2 * packed))} == {
        *product(range(instruction.k), range(8))
    }


def nearest(x: Any, digits: int, away: bool) -> Any:
    """Normal numbers rounded to so many digits, in float64."""
    mantissa, exponent = np.frexp(x.astype(float))
    scaled = np.ldexp(mantissa, digits)
    whole = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5) if away else np.rint(scaled)
    return np.ldexp(whole, exponent - digits)


@pytest.mark.parametrize("instruction", ALL, ids=INSTRUCTIONS)
def test_numbers_are_rounded_to_the_nearest(instruction: MmaInstruction) -> None:
    ties = np.ldexp(1 + np.arange(64) * 2.0**-instruction.digits, 3)
    x = np.concatenate([np.random.default_rng(0).normal(size=500), ties, -ties]).astype(np.float32)
    found = values(instruction, bits(instruction, x))
    np.testing.assert_array_equal(found, nearest(x, instruction.digits, instruction is TFLOAT32))
    special = values(instruction, bits(instruction, np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)))
    np.testing.assert_array_equal(special, [np.nan, np.inf, -np.inf, 0.0])


@pytest.mark.parametrize("instruction", ALL, ids=INSTRUCTIONS)
def test_the_reference_device_rounds_alike(instruction: MmaInstruction) -> None:
    patterns = np.random.default_rng(0).integers(0, 2**32, 5000, np.uint32)
    x = np.concatenate([patterns.view(np.float32), (patterns & np.uint32(0xFFFFF000)).view(np.float32)])
    found, wanted = values(instruction, bits(instruction, x)), rounded(x, instruction.precision)
    np.testing.assert_array_equal(found, wanted)  # any NaN is as good as another
    np.testing.assert_array_equal(np.signbit(found[x == x]), np.signbit(wanted[x == x]))


def test_float16_ends_where_it_ends() -> None:
    big = values(FLOAT16, bits(FLOAT16, np.array([65519.0, 65520.0, 2.0**-24, 2.0**-26], np.float32)))
    np.testing.assert_array_equal(big, [65504.0, np.inf, 2.0**-24, 0.0])


def test_the_twin_takes_no_more_of_a_word_than_tf32_has() -> None:
    words = np.full((32, 4), np.float32(1.0).view(np.uint32) + 0x1FFF, np.uint32)
    found = multiplied(TFLOAT32, words, words[:, :2], np.zeros((32, 4), np.float32))
    np.testing.assert_array_equal(found, np.full((32, 4), 8.0))


def test_the_device_multiplies_as_the_twin() -> None:
    for compared in compare_tensor_cores():
        assert compared.is_right, str(compared)


@in_simulator
@pytest.mark.parametrize("place", ["place_in_a", "place_in_b"])
def test_an_element_in_a_wrong_register_is_found(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """As if the ISA had it elsewhere than our fragments: two registers of one lane change places."""
    right = getattr(MmaInstruction, place)
    swapped = {(6, 0): (6, 1), (6, 1): (6, 0)}
    monkeypatch.setattr(MmaInstruction, place, lambda self, *one: right(self, *swapped.get(one, one)))
    compared = compare_tensor_cores()
    assert not compared[0].is_right
    assert "WRONG" in str(compared[0])
    assert 16 < compared[0].whole <= 32  # two rows of 16 columns, or one column of two tiles


def test_twins_have_the_tables_and_the_sizes_of_the_device() -> None:
    assert tensor_cores.OF_TILE == 32 * tensor_cores.OF_LANE
    assert check_tensor_cores.TILES * tensor_cores.COLUMNS == 16


COMPILE = """
from bench.check_tensor_cores import _kernel
from rnnops.kernels.cuda.facade import array_type
for precision, words in (("tfloat32", "uint32"), ("bfloat16", "uint16"), ("float16", "uint16")):
    arrays = map(array_type, ("float32", words, "float32"))
    text = facade.ptx(_kernel(precision).py_func, tuple(arrays), (8, 0))
    print(len(re.findall(r"mma[.]sync[.a-z0-9]*", text)), *{*re.findall(r"m16n8k[0-9]+[.a-z0-9]*", text)})
    print(".local" in text, *sorted({*re.findall(r"cvt[.]r[na][.a-z0-9]*", text)}))
"""


def test_ptx_says_what_is_multiplied() -> None:
    assert run_compiler(COMPILE) == [
        "4 m16n8k8.row.col.f32.tf32.tf32.f32", "False cvt.rna.tf32.f32",
        "2 m16n8k16.row.col.f32.bf16.bf16.f32", "False cvt.rn.bf16x2.f32",
        "2 m16n8k16.row.col.f32.f16.f16.f32", "False cvt.rn.f16x2.f32",
    ]  # fmt: skip
