"""What must be settled before a numeric library loads: thread counts. And what a result says of its machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# OpenMP (PyTorch, numba), BLAS of NumPy, numba, and XLA's thread pool, which reads NPROC
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC")
LIBRARIES = ("rnnops", "numpy", "numba", "torch", "jax", "onnxruntime")


def limit_threads(threads: int) -> None:
    """Give every library the same number of threads, and no more processors than that; to be called before imports."""
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, processors[: max(1, threads)])


def describe_machine(threads: int) -> dict[str, str]:
    """Processor, threads, Python and the version of every library, "missing" where there is none."""
    machine = {"processor": processor_name(), "processors": str(os.cpu_count()), "threads": str(threads)}
    machine["python"] = platform.python_version()
    return {**machine, **{library: library_version(library) for library in LIBRARIES}}


def processor_name() -> str:
    """The model name the kernel reports; the architecture's name where it reports none."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def library_version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "missing"
