"""sin and cos on a CUDA device: float32 without a branch, a call or local memory, float64 by libdevice.

libdevice reduces large float32 operands in float64 and in local memory. Here x = m 2^e, m an integer of 24 bits, is
multiplied with 96 bits of 2 / pi in 64-bit integers (Payne and Hanek 1983): from the place on where m times the bits
before it are whole turns. The product is n + r modulo 4, in quarter turns with 62 bits of fraction, |r| <= 1/2; then
the processor's polynomials give sin and cos of pi r / 2, and n says which of them is the result, and its sign.

Limit: large float64 operands go through libdevice's function out of line, which has local memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rnnops.kernels.cpu import coefficients as table
from rnnops.kernels.cuda.facade import compiled_as, types
from rnnops.kernels.cuda.overloads import of_floats, of_integers

ONE, HALF, INFINITY = np.float32(1), np.float32(0.5), np.float32(np.inf)
EIGHTH_TURN = np.float32(np.pi / 4)
UNIT = np.float32(table.HALF_PI * 2.0**-64)  # radians of a bit of r
SIN_0, SIN_1, SIN_2 = map(np.float32, table.SIN_SINGLE)
COS_0, COS_1, COS_2 = map(np.float32, table.COS_SINGLE)

# 2 / pi behind 64 zeros, in words of 64 bits; numba keeps to uint64 only among uint64
WORDS = np.array(table.TWO_OVER_PI_WORDS, np.uint64)
NO_BITS, FIRST, SECOND = np.uint64(0), np.uint64(1), np.uint64(2)
FRACTION_BITS, FRACTION, HIDDEN_BIT = np.uint64(23), np.uint64(2**23 - 1), np.uint64(2**23)
LEAST_EXPONENT = np.uint64(126)  # of 1/2; smaller x are not reduced
FIRST_EXPONENT = np.uint64(127 + 25 - 64)  # of the x whose products start at the first bit of WORDS
WORD_STEPS, LAST_BIT, HALF_WORD = np.uint64(6), np.uint64(63), np.uint64(32)
QUARTER_BITS, EIGHTH = np.uint64(62), np.uint64(2**61)


@of_integers
def _word_at(index: Any, shift: Any) -> Any:
    """64 bits of 2 / pi."""
    return (WORDS[index] << shift) | ((WORDS[index + FIRST] >> FIRST) >> (LAST_BIT - shift))


@of_floats
def _quarter_turns(size: Any) -> Any:
    """x in quarter turns modulo 4: 2 bits before the point, 62 behind; x from 1/2 on."""
    bits = np.uint64(np.float32(size).view(np.uint32))
    place = max(bits >> FRACTION_BITS, LEAST_EXPONENT) - FIRST_EXPONENT
    index, shift = place >> WORD_STEPS, place & LAST_BIT
    m = (bits & FRACTION) | HIDDEN_BIT
    near, far = _word_at(index, shift), _word_at(index + FIRST, shift) >> HALF_WORD
    return m * near + ((m * far) >> HALF_WORD)


@of_floats
def _sin_of(size: Any, quarter: Any) -> Any:
    """sin(size + quarter pi / 2), quarter 0 or 1; NaN where the operand is not finite."""
    turns = _quarter_turns(size)
    is_small = size < EIGHTH_TURN
    n = (NO_BITS if is_small else (turns + EIGHTH) >> QUARTER_BITS) + np.uint64(quarter)
    r = size if is_small else np.float32(np.uint64(turns << SECOND).view(np.int64)) * UNIT
    z = r * r
    sine = r + r * (z * ((SIN_0 * z + SIN_1) * z + SIN_2))
    cosine = ONE - (HALF * z - z * z * ((COS_0 * z + COS_1) * z + COS_2))
    found = cosine if n & FIRST != NO_BITS else sine
    return (-found if n & SECOND != NO_BITS else found) if size < INFINITY else size - size


def _sin_single(x: Any) -> Any:
    return math.copysign(ONE, x) * _sin_of(abs(x), np.float32(0))


def _sin_double(x: Any) -> Any:
    return math.sin(x)


def _cos_single(x: Any) -> Any:
    return _sin_of(abs(x), ONE)


def _cos_double(x: Any) -> Any:
    return math.cos(x)


@compiled_as(lambda x: {types.float32: _sin_single, types.float64: _sin_double}.get(x))
def sin(x: Any) -> Any:
    """Sine of x in radians."""
    return _sin_single(x) if isinstance(x, np.float32) else _sin_double(x)


@compiled_as(lambda x: {types.float32: _cos_single, types.float64: _cos_double}.get(x))
def cos(x: Any) -> Any:
    """Cosine of x in radians."""
    return _cos_single(x) if isinstance(x, np.float32) else _cos_double(x)
