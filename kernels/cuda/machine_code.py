"""Machine code of CUDA kernels on disk: in the cache folder, never next to their source in the installed package.

Limit: files are numba's, which holds pickles: the folder must be writable only by this user.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from numba.core.caching import _CacheLocator, _SourceFileBackedLocatorMixin
from numba.core.compiler_lock import global_compiler_lock

from rnnops import util
from rnnops.kernels.object_cache import cache_folder

KERNELS = Path(__file__).resolve().parent
util.wait_for(global_compiler_lock, outer=True)  # who compiles with numba takes LLVM's lock behind it


class KernelsInCacheFolder(_SourceFileBackedLocatorMixin, _CacheLocator):  # type: ignore[misc]
    """Tells numba-cuda where the files of a kernel of ours lie, and which text they were compiled from."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        self._cache_path = os.path.join(cache_folder(), "machine_code", self.get_suitable_cache_subpath(file))

    def get_cache_path(self) -> str:
        return self._cache_path

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        """For kernels of ours; others go where they go."""
        return cls(function, file) if Path(file).resolve().is_relative_to(KERNELS) else None


def keep_in_cache_folder(format_of_kernels: Any) -> None:
    """Have kernels of ours kept in the cache folder.

    Args:
        format_of_kernels: numba-cuda's class that asks where files lie, also for the copies that it makes of kernels.
    """
    format_of_kernels._locator_classes = [KernelsInCacheFolder, *format_of_kernels._locator_classes]
