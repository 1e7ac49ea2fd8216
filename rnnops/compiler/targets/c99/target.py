"""Plain C99 as what scans run on: text that the system's compiler turns into a library, called on one thread."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rnnops.compiler.codegen.scan_module import ScanModule
from rnnops.compiler.ir.kernel import Module
from rnnops.compiler.schedule.share_work import Team
from rnnops.compiler.targets.c99.text import c_text
from rnnops.compiler.targets.target import OnOneThread, Work, was_wrong
from rnnops.errors import DeviceError

HEADER = Path(__file__).with_name("runtime.h")
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared")


@dataclass(frozen=True)
class C99(OnOneThread):
    """A C compiler and its code."""

    def load(self, text: ScanModule, width: int | None) -> Any:
        assert isinstance(text.module, Module)
        return _library(c_text(text.module)).scan

    def call(self, function: Any, team: Team, work: Work, may_fail: bool) -> bool:
        _, status, sizes, *arrays = work
        addresses = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        function(ctypes.c_void_p(status.ctypes.data), ctypes.c_void_p(sizes.ctypes.data), addresses)
        return was_wrong(work)


@cache
def _library(text: str) -> Any:
    """A text as a library of this process. Raises DeviceError without a C compiler, or one that takes such a text."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if not compiler or shutil.which(compiler[0]) is None:
        raise DeviceError("no C compiler", wanted="`cc` on the path, or the variable CC", came=" ".join(compiler))
    with tempfile.TemporaryDirectory(prefix="rnnops-c99-") as folder:
        shutil.copy(HEADER, folder)
        source, library = Path(folder, "scan.c"), Path(folder, "scan.so")
        source.write_text(text)
        command = [*compiler, *FLAGS, str(source), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise DeviceError("the C compiler refuses a module", wanted="C99", came=done.stderr[:2000])
        return ctypes.CDLL(str(library))
