"""Kernels linked and disassembled without a device, by NVIDIA's wheels: nvJitLink (`cuda-bindings`) and nvdisasm.

Wheels of CUDA 12 and of CUDA 13 do; each has folders of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

HINT = "pip install 'rnnops[assembly]', or 'numba-cuda[cu13]' nvidia-cuda-nvdisasm"


def lacking() -> str:
    """What is missing for linking and disassembling; empty where nothing is."""
    try:
        toolkit()
    except Exception as error:  # of the import, or of what looks for the library, which has errors of its own
        return f"nvJitLink, or cuda-bindings: {' '.join(str(error).split())[:80]} ({HINT})"
    return "" if disassembler() else f"nvdisasm ({HINT})"


def toolkit() -> str:
    """The version of CUDA that links, as 12.9."""
    from cuda.bindings import nvjitlink

    return ".".join(map(str, nvjitlink.version()))


def disassembler() -> str | None:
    """Where nvdisasm is: on the path, or in one of the wheels that carry it."""
    folder = Path(sysconfig.get_paths()["purelib"])
    patterns = ("nvidia/*/bin/nvdisasm", "triton/backends/nvidia/bin/nvdisasm")
    there = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    return shutil.which("nvdisasm") or (str(there[0]) if there else None)


def linked(ptx: str, capability: tuple[int, int]) -> tuple[bytes, str]:
    """Machine code of a kernel, and what the assembler says of it. Raises ValueError with the reason of a refusal.

    Args:
        capability: compute capability.
    """
    from cuda.bindings import nvjitlink

    options = [f"-arch=sm_{capability[0]}{capability[1]}", "-verbose"]
    handle = nvjitlink.create(len(options), options)
    try:
        _add(nvjitlink, handle, ptx)
        said = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, said)
        code = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, code)
    finally:
        nvjitlink.destroy(handle)
    return bytes(code), said.decode(errors="replace")


def _add(nvjitlink: object, handle: int, ptx: str) -> None:
    library: object = nvjitlink
    try:
        text = ptx.encode()
        library.add_data(handle, library.InputType.PTX, text, len(text), "kernel")  # type: ignore[attr-defined]
        for path in _device_runtime() if "cudaCGSynchronize" in ptx else ():
            data = path.read_bytes()
            library.add_data(handle, library.InputType.LIBRARY, data, len(data), "cudadevrt")  # type: ignore[attr-defined]
        library.complete(handle)  # type: ignore[attr-defined]
    except Exception as error:
        said = bytearray(library.get_error_log_size(handle))  # type: ignore[attr-defined]
        library.get_error_log(handle, said)  # type: ignore[attr-defined]
        raise ValueError(f"nvJitLink refuses: {said.decode(errors='replace')}") from error


def _device_runtime() -> list[Path]:
    """NVIDIA's library in which a grid's sync is."""
    return sorted(Path(sysconfig.get_paths()["purelib"]).glob("nvidia/**/libcudadevrt.a"))[:1]


def disassembled(code: bytes) -> str:
    """The text of machine code. Raises FileNotFoundError where nvdisasm is missing."""
    program = disassembler()
    if program is None:
        raise FileNotFoundError(f"no nvdisasm: {HINT}")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([program, "-c", file.name], capture_output=True, text=True, check=True)
    return done.stdout
