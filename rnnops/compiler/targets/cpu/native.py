"""A generated module as machine code of this processor."""

from __future__ import annotations

from rnnops.compiler.ir.kernel import Do, Module, statements_of
from rnnops.compiler.targets.cpu.llvm_text import llvm_text
from rnnops.kernels.cpu.barrier import GIVEN
from rnnops.kernels.cpu.native import NativeFunction, native_function
from rnnops.kernels.cpu.revision import REVISION
from rnnops.kernels.cpu.runtime import runtime
from rnnops.kernels.object_cache import key_of
from rnnops.util import LazyModule

scalar_definitions = LazyModule("rnnops.compiler.targets.cpu.scalar_definitions")


def native_scan(module: Module, width: int | None) -> NativeFunction:
    """The driver of a module, compiled or from the disk, where the revision of the kernels stands for scalar functions.

    Args:
        width: of vectors in bits; the host's if None.
    """
    own = {program.name for program in module.programs}
    called = {line.function for line in statements_of(module.driver.body) if isinstance(line, Do)} - own - {"prefetch"}
    text, scalars = llvm_text(module, "scan", runtime(sorted(called), module.dtype, width), GIVEN)
    name = f"scan_{key_of(text)}"  # engines share one table of names
    text = text.replace('@"scan"(', f'@"{name}"(', 1)
    depends = f"{text}\n{sorted(scalars.used.items())} {REVISION:x}"
    return native_function(depends, name, lambda: text + scalar_definitions.scalar_functions(scalars))
