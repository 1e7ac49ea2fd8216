"""The width of the vectors that kernels are made for, from the processor that numba compiles for.

512 bits with AVX-512, 256 with AVX, 128 with SSE2 or on aarch64, 64 (scalar code) elsewhere. Not the host's own
features count but those that numba hands to LLVM: `NUMBA_CPU_NAME`, `NUMBA_CPU_FEATURES` and `NUMBA_ENABLE_AVX` take
features away, and virtual machines may hide them; either is worth a warning, as kernels then run at a fraction of their
speed. Nothing here is a global setting: who wants another width passes it.
"""

from __future__ import annotations

import platform
import warnings
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm
from numba.core.registry import cpu_target

from rnnops.kernels.cpu.vectors import WIDTHS

X86 = ("x86_64", "amd64", "i386", "i686")
ARM = ("aarch64", "arm64")
BASELINE_NAMES = ("", "generic", "x86-64", "x86-64-v2", "nocona", "core2")
WIDE_FEATURES = ("avx512f", "avx2", "avx", "fma")
SETTINGS = "NUMBA_CPU_NAME, NUMBA_CPU_FEATURES and NUMBA_ENABLE_AVX"


@dataclass(frozen=True)
class Processor:
    """What code is compiled for: machine, LLVM's name of the processor, features it may use."""

    machine: str
    name: str
    features: frozenset[str]


def vector_width(forced: int | None = None) -> int:
    """Bits of a vector: what is asked for, else what the processor has."""
    if forced is None:
        target = target_processor()
        warn_if_hidden(target, host_features())
        return width_of(target)
    if forced not in WIDTHS:
        raise ValueError(f"vector width {forced}: wanted one of {', '.join(map(str, WIDTHS))}")
    return forced


def width_of(processor: Processor) -> int:
    """The widest vectors that the features allow."""
    if processor.machine in X86:
        by_feature = {"avx512f": 512, "avx": 256}
        return next((width for feature, width in by_feature.items() if feature in processor.features), 128)
    return 128 if processor.machine in ARM else 64


def warn_if_hidden(target: Processor, host: frozenset[str]) -> None:
    """Warn where features are switched off, or where the processor hides behind a baseline name."""
    if target.machine not in X86:
        return
    missing = [feature for feature in WIDE_FEATURES if feature in host - target.features]
    if missing:
        message = f"without {', '.join(missing)}, which the processor has: see {SETTINGS}"
    elif target.name in BASELINE_NAMES and width_of(target) < 256:
        message = "as the processor shows no AVX: a virtual machine may hide it"
    else:
        return
    text = f"numba compiles for {target.name or 'an unnamed processor'!r} with vectors of {width_of(target)} bits, "
    warnings.warn(text + message, RuntimeWarning, stacklevel=3)


@cache
def target_processor() -> Processor:
    """What numba compiles for; LLVM is asked once."""
    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    return Processor(platform.machine().lower(), name, enabled(features))


def enabled(features: str) -> frozenset[str]:
    """The features that a string such as "+avx2,-avx512f" switches on."""
    return frozenset(word[1:] for word in features.split(",") if word.startswith("+"))


@cache
def host_features() -> frozenset[str]:
    """What LLVM finds the processor itself to have."""
    try:
        return frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)
    except RuntimeError:  # LLVM cannot tell on this platform
        return frozenset()
