"""Machine code on disk: functions that numba compiles once on a machine, kept in the cache folder.

numba's own `cache=True` writes beside the source of a function, which is inside the installed package. Here the index
and the data that numba makes go into `machine_code` in the cache folder, by the folder and the text of the source. A
file that is damaged is written anew; where nothing can be written functions are compiled for this process alone.

Limit: files are numba's, which holds pickles: the folder must be writable by nobody else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import llvmlite.binding as llvm
import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator, _SourceFileBackedLocatorMixin
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from rnnops import forks
from rnnops.kernels.cache_folder import cache_folder, reason, warn_once

Function = TypeVar("Function", bound=Callable[..., Any])

forks.wait_for(global_compiler_lock, llvm.ffi.lib._lock)  # in the order in which a compiling thread takes them


def compile_once(function: Function, *signatures: Any, **options: Any) -> Function:
    """Compile with numba, or load what an earlier process compiled; the code runs without the interpreter's lock.

    Args:
        signatures: what it takes, compiled here and nothing else later; without one, whatever it is first called with.
        options: numba's. With NUMBA_DISABLE_JIT=1 the function itself is returned.
    """
    compiled: Any = numba.njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    if isinstance(compiled, Dispatcher):
        compiled._cache = MachineCode(function)
        for signature in signatures:
            compiled.compile(signature)
        if signatures:
            compiled.disable_compile()
    return compiled  # type: ignore[no-any-return]


class InCacheFolder(_SourceFileBackedLocatorMixin, _CacheLocator):  # type: ignore[misc]
    """Tells numba where the files of a function lie, and which text they were compiled from."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        self._cache_path = os.path.join(cache_folder(), "machine_code", self.get_suitable_cache_subpath(file))

    def get_cache_path(self) -> str:
        return self._cache_path

    @classmethod
    def from_function(cls, function: Any, file: str) -> InCacheFolder:
        return cls(function, file)


class _Format(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (InCacheFolder,)


class MachineCode(FunctionCache):  # type: ignore[misc]
    """The machine code of one function, by signature."""

    _impl_class = _Format

    def load_overload(self, signature: Any, target: Any) -> Any:
        """What is on disk for a signature, None where there is nothing or where it is damaged."""
        try:
            return super().load_overload(signature, target)
        except Exception:  # a damaged pickle raises anything
            self._forget()
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Put what was compiled on disk, if the disk takes it."""
        try:
            super().save_overload(signature, compiled)
        except OSError as error:
            warn_once("machine code", str(cache_folder()), reason(error))

    def _forget(self) -> None:
        try:
            self.flush()
        except OSError as error:
            warn_once("machine code", str(cache_folder()), reason(error))
