"""What a result says of the machine with the GPU: names and versions of all that takes part."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench.environment import processor_name

PACKAGES = (
    "rnnops",
    "numpy",
    "numba",
    "numba-cuda",
    "torch",
    "triton",
    "jax",
    "jaxlib",
    "cupy-cuda12x",
    "cupy-cuda13x",
)
QUERY = ("name", "driver_version", "clocks.max.sm", "power.limit")
SIMULATOR = "simulator"


def describe_cuda_machine(tiny: bool) -> dict[str, str]:
    """GPU, driver, capability, versions; "missing" or "unknown" where there is none or nobody knows."""
    return {
        **({"gpu": SIMULATOR} if tiny else gpu()),
        "processor": processor_name(),
        "processors": str(os.cpu_count()),
        "python": platform.python_version(),
        **{package: installed(package) for package in PACKAGES if "cupy" not in package},
        "cupy": next((found for found in map(installed, ("cupy", *PACKAGES[-2:])) if found != "missing"), "missing"),
        **torch_parts(),
    }


def gpu() -> dict[str, str]:
    """What the driver says of the first device, by its own tool and by numba-cuda or PyTorch."""
    asked = from_driver()
    return {
        "gpu": asked.get("name") or name_by_torch(),
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


def name_by_torch() -> str:
    return str(asked_of_torch(lambda torch: torch.cuda.get_device_name()))


def capability() -> str:
    """Compute capability, by whichever library sees the device."""
    try:
        cuda: Any = import_module("numba.cuda")
        return ".".join(map(str, cuda.get_current_device().compute_capability))
    except Exception:  # of the driver, its loader or the import
        return str(asked_of_torch(lambda torch: ".".join(map(str, torch.cuda.get_device_capability()))))


def torch_parts() -> dict[str, str]:
    """CUDA and cuDNN that PyTorch brings along."""
    return {
        "CUDA of torch": str(asked_of_torch(lambda torch: torch.version.cuda)),
        "cuDNN": str(asked_of_torch(lambda torch: torch.backends.cudnn.version())),
    }


def asked_of_torch(question: Any) -> Any:
    try:
        import torch

        return question(torch)
    except Exception:  # no PyTorch, or one that sees no device
        return "unknown"


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
