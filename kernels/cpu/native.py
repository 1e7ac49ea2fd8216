"""LLVM IR as machine code for the processor at hand, by way of an object that lies on disk: compiled once on a machine.

What runs is always the object, whether it was compiled a moment ago or read: the same bits from either. Its engine goes
with the function that Python holds, and the machine code with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from rnnops import util
from rnnops.kernels.cpu.processor import host, llvm
from rnnops.kernels.cpu.room import WRITE, demand, room_to_compile, room_to_load
from rnnops.kernels.object_cache import key_of, load_object, save_object

# Of LLVM's optimisation: generated code, straight arithmetic in loops, is as fast at 1 as at 3 and made in two thirds
# of the time; products of a single row gain a tenth.
LEVEL, PRODUCTS_LEVEL = 1, 3
util.wait_for(llvm.ffi.lib._lock)


@dataclass(frozen=True, eq=False)
class NativeFunction:
    """Machine code that is started by its address.

    Args:
        engine: what holds the code.
        name: of the function in LLVM.
        write: makes the text of its LLVM module.
    """

    address: int
    engine: Any
    name: str = ""
    write: Callable[[], str] | None = None


def native_function(text: str, name: str, write: Callable[[], str] | None = None) -> NativeFunction:
    """A function of an LLVM module, compiled or from the disk.

    Args:
        text, write: as for `object_of`.
        name: of the function in it; no other module of this process may have the same.
    """
    engine = engine_of(object_of(text, write))
    return NativeFunction(address_of(engine, name), engine, name, write or (lambda: text))


def address_of(engine: Any, name: str) -> int:
    """The address of a function. Raises RuntimeError where the engine's code has none of that name."""
    address = int(engine.get_function_address(name))
    if address == 0:
        raise RuntimeError(f"compiled code without the function {name}: is a file of the cache folder another's?")
    return address


def engine_of(code: bytes) -> Any:
    """An engine that holds an object, and has the addresses of its functions."""
    demand(room_to_load(len(code)), "load compiled kernels")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def object_of(text: str, write: Callable[[], str] | None = None, level: int = LEVEL, room: int = WRITE) -> bytes:
    """The object of an LLVM module: from the disk if it is there.

    Args:
        text: of the module, or, where `write` makes that text, one that says what it depends on.
        level: of LLVM's optimisation, from 0 to 3.
        room: bytes that are needed to write the text and to compile it, at least.
    """
    key = key_of(text, str(level), *_target())
    code = load_object(key)
    if code is None:
        demand(room, "write and compile kernels")
        code = compiled(text if write is None else write(), level)
        save_object(key, code)
    return code


def compiled(text: str, level: int = LEVEL) -> bytes:
    """The object of an LLVM module, compiled for this processor."""
    demand(room_to_compile([text]), "compile kernels")
    machine = _machine(level)
    return bytes(machine.emit_object(_optimised(text, machine, level)))


def linked(texts: Iterable[tuple[str, int]], exported: Collection[str]) -> bytes:
    """One object of several LLVM modules, for programs that link it at any address.

    Args:
        texts: of modules, each with its level of optimisation.
        exported: functions that are seen from outside; of the others those stay that these need.
    """
    texts = list(texts)
    demand(room_to_compile([text for text, _ in texts]), "compile kernels")
    machine = _machine(PRODUCTS_LEVEL, reloc="pic", jit=False)
    first, *others = (_optimised(text, machine, level) for text, level in texts)
    for other in others:
        first.link_in(other)
    for function in first.functions:
        if not function.is_declaration and function.name not in exported:
            function.linkage = "internal"
    clean = llvm.create_new_module_pass_manager()
    clean.add_global_dead_code_eliminate_pass()
    clean.run(first, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return bytes(machine.emit_object(first))


def processor() -> tuple[str, str]:
    """The triple and the name of this processor, as LLVM has them."""
    return _target()[:2]


def assembly(text: str, level: int = LEVEL) -> str:
    """The same for people."""
    machine = _machine(level)
    return str(machine.emit_assembly(_optimised(text, machine, level)))


def optimised(text: str, level: int = LEVEL) -> str:
    """An LLVM module as LLVM optimises it for this processor."""
    return str(_optimised(text, _machine(level), level))


def _optimised(text: str, machine: Any, level: int) -> Any:
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization, options.slp_vectorization = True, False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


@cache
def _target() -> tuple[str, str, str, str]:
    """The inputs of code generation other than the text."""
    demand(room_to_load(0), "ask LLVM for the processor")
    version = ".".join(map(str, llvm.llvm_version_info))
    return llvm.get_process_triple(), host().name, host().text, version


def _machine(level: int = LEVEL, reloc: str = "default", jit: bool = True) -> Any:
    """A target machine of its own for each engine, which ends it."""
    _initialize()
    triple, processor, features, _ = _target()
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(
        cpu=processor, features=features, opt=level, reloc=reloc, codemodel="jitdefault" if jit else "default", jit=jit
    )


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
