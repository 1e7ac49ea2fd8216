"""What others have published: numbers that stand in a table beside measured ones, with where they come from."""

from __future__ import annotations

from dataclasses import dataclass

from bench.problems import Problem, Size


@dataclass(frozen=True)
class Published:
    """A number of somebody else's.

    Args:
        seconds: of a whole call.
        source: who measured, on what, and what is in it.
    """

    label: str
    seconds: float
    precision: str
    source: str


FLASHRNN = "FlashRNN bf16, published"
EAGER = "eager bf16, published"
MEASURED_AT = Size(1024, 16, 768)
SOURCE = (
    "FlashRNN's authors on an H100 SXM (chart head_dim--lstm.svg in their repository at d73fb52; arXiv 2412.07752), "
    "one head of 768, products of the inputs not counted"
)
MILLISECONDS = {"forward": (4.87, 147.0), "training": (13.61, 484.0)}  # fused kernels, a loop in PyTorch


def published_of(problem: Problem, mode: str) -> tuple[Published, ...]:
    """Numbers that fit beside a problem: those of an LSTM are a yardstick for other cells, too."""
    if problem.size != MEASURED_AT or mode not in MILLISECONDS:
        return ()
    pairs = zip((FLASHRNN, EAGER), MILLISECONDS[mode], strict=True)
    return tuple(Published(label, time * 1e-3, "bf16", SOURCE) for label, time in pairs)
