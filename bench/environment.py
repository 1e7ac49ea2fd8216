"""What must be settled before a numeric library loads: thread counts. And what a result says of its machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# OpenMP (PyTorch, numba), BLAS of NumPy, numba, and XLA's thread pool, which reads NPROC
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC")
LIBRARIES = ("rnnops", "numpy", "numba", "torch", "jax")
CUDA_LIBRARIES = ("numba-cuda", "triton", "jaxlib")
CUPY = ("cupy", "cupy-cuda12x", "cupy-cuda13x")
QUERY = ("name", "driver_version", "clocks.max.sm", "power.limit")
SIMULATOR = "simulator"


def limit_threads(threads: int) -> None:
    """Give every library the same number of threads, and no more processors than that; to be called before imports."""
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, processors[: max(1, threads)])


def describe_machine(threads: int) -> dict[str, str]:
    """Processor, threads, Python and the version of every library, "missing" where there is none."""
    libraries = {library: installed(library) for library in (*LIBRARIES, "onnxruntime")}
    return {**processor(), "threads": str(threads), "python": platform.python_version(), **libraries}


def describe_cuda_machine(tiny: bool) -> dict[str, str]:
    """GPU, driver, capability, versions; "missing" or "unknown" where there is none or nobody knows."""
    return {
        **({"gpu": SIMULATOR} if tiny else gpu()),
        **processor(),
        "python": platform.python_version(),
        **{library: installed(library) for library in (*LIBRARIES, *CUDA_LIBRARIES)},
        "cupy": next((found for found in map(installed, CUPY) if found != "missing"), "missing"),
        "CUDA of torch": asked_of_torch(lambda torch: torch.version.cuda),
        "cuDNN": asked_of_torch(lambda torch: torch.backends.cudnn.version()),
    }


def processor() -> dict[str, str]:
    """How many processors, and the model name the kernel reports; the architecture's where it reports none."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return {"processor": name, "processors": str(os.cpu_count())}


def gpu() -> dict[str, str]:
    """What the driver says of the first device, by its own tool and by numba-cuda or PyTorch."""
    asked = from_driver()
    return {
        "gpu": asked.get("name") or asked_of_torch(lambda torch: torch.cuda.get_device_name()),
        "driver": asked.get("driver_version", "unknown"),
        "capability": capability(),
        "highest clock": asked.get("clocks.max.sm", "unknown"),
        "power limit": asked.get("power.limit", "unknown"),
    }


def from_driver(query: tuple[str, ...] = QUERY) -> dict[str, str]:
    """Answers of nvidia-smi; none where it is not there."""
    command = ["nvidia-smi", f"--query-gpu={','.join(query)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = done.stdout.splitlines()
    return dict(zip(query, (part.strip() for part in lines[0].split(",")), strict=False)) if lines else {}


def capability() -> str:
    """Compute capability, by whichever library sees the device."""
    try:
        cuda: Any = import_module("numba.cuda")
        return ".".join(map(str, cuda.get_current_device().compute_capability))
    except Exception:  # of the driver, its loader or the import
        return asked_of_torch(lambda torch: ".".join(map(str, torch.cuda.get_device_capability())))


def asked_of_torch(question: Any) -> str:
    try:
        return str(question(import_module("torch")))
    except Exception:  # no PyTorch, or one that sees no device
        return "unknown"


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
