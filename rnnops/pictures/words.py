"""What pictures are in words: bars of signs."""

from __future__ import annotations

EIGHTHS = " ▏▎▍▌▋▊▉"
WIDTH = 24  # signs of the longest bar


def bar(value: float, most: float, width: int = WIDTH) -> str:
    """A bar that is as long as a value is of the most, in eighths of a sign."""
    eighths = round(8 * width * value / most) if most > 0 else 0
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()
