"""The width of the vectors that kernels are made for, from the processor that code is made for.

512 bits with AVX-512, 256 with AVX, 128 with SSE2 or on aarch64, 64 (scalar code) elsewhere. Virtual machines may hide
features; that is worth a warning, as kernels then run at a fraction of their speed. Who wants another width passes it;
which processor code is made for is said in `processor.py`.
"""

from __future__ import annotations

import warnings
from functools import cache

from rnnops.kernels.cpu.processor import ARM, LEVELS, X86, Processor, host

WIDTHS = (512, 256, 128, 64)
PAIRS, SINGLES = "pairs", "singles"  # of numbers rounded to bfloat16, each pair, or each number, a word of 32 bits
INT8 = "int8"  # way of products where B is packed as whole numbers of a byte each
NUMBERS = {PAIRS: 2, SINGLES: 1}  # in a word
ITEM_SIZES = {"float32": 4, "float64": 8, PAIRS: 4}
BASELINE_NAMES = ("", "generic", *LEVELS[:2], "nocona", "core2")


def lanes(width: int, dtype: str) -> int:
    """Numbers in a vector of `width` bits."""
    return 1 if width == 64 else width // 8 // ITEM_SIZES[dtype]


def vector_width(forced: int | None = None) -> int:
    """Bits of a vector: what is asked for, else what the processor has."""
    if forced is None:
        return _host_width()
    if forced not in WIDTHS:
        raise ValueError(f"vector width {forced}: wanted one of {', '.join(map(str, WIDTHS))}")
    return forced


@cache
def _host_width() -> int:
    warn_if_hidden(host())
    return width_of(host())


def width_of(processor: Processor) -> int:
    """The widest vectors that the features allow."""
    if processor.machine in X86:
        by_feature = {"avx512f": 512, "avx": 256}
        return next((width for feature, width in by_feature.items() if feature in processor.features), 128)
    return 128 if processor.machine in ARM else 64


def has_pairs(width: int) -> bool:
    """Whether the processor multiplies pairs of bfloat16 numbers in vectors of so many bits."""
    return width == 512 and host().machine in X86 and "avx512bf16" in host().features


def warn_if_hidden(processor: Processor) -> None:
    """Warn where a processor hides behind a baseline name, unless that was asked for."""
    hides = processor.name in BASELINE_NAMES and not processor.chosen
    if processor.machine in X86 and hides and width_of(processor) < 256:
        known = f"{processor.name or 'an unnamed processor'!r} with vectors of {width_of(processor)} bits"
        text = f"kernels are compiled for {known}, as it shows no AVX: a virtual machine may hide it"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
