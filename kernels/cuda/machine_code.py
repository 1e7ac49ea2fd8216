"""Machine code of CUDA kernels on disk: in the cache folder, where that of functions for the processor lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rnnops.kernels.cpu.machine_code import InCacheFolder

KERNELS = Path(__file__).resolve().parent


class KernelsInCacheFolder(InCacheFolder):
    """Tells numba-cuda where the files of a kernel of ours lie; others go where they go."""

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        return cls(function, file) if Path(file).resolve().is_relative_to(KERNELS) else None


def keep_in_cache_folder(format_of_kernels: Any) -> None:
    """Have kernels of ours kept in the cache folder.

    Args:
        format_of_kernels: numba-cuda's class that asks where files lie, also for the copies that it makes of kernels.
    """
    format_of_kernels._locator_classes = [KernelsInCacheFolder, *format_of_kernels._locator_classes]
