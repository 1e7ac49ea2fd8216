"""Processors by emulation: how a Python is started on each, with rnnops as this checkout has it."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

DEBIAN = ("python3", "libgomp1", "libstdc++6")  # and what they need
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")


class UnreachableError(Exception):
    """What a processor needs is not to be had; the text says what."""


def without_avx(_: Path, __: Path) -> tuple[list[str], dict[str, str]]:
    """This Python on a processor of 2008: x86-64-v2, no AVX."""
    if platform.machine() != "x86_64":
        raise UnreachableError("this machine is no x86-64")
    return [emulator("x86_64"), "-cpu", "Nehalem", sys.executable], {}


def aarch64(folder: Path, root: Path) -> tuple[list[str], dict[str, str]]:
    """Debian's Python for arm64, and wheels for it."""
    qemu, system, site = emulator("aarch64"), folder / "arm64", folder / "site"
    if not found_python(system):
        unpack_debian(folder / "apt", system)
    python = found_python(system)
    if python is None:
        raise UnreachableError(f"Debian's packages have no Python: {system}")
    version = python.name.removeprefix("python")
    wheels = folder / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    shutil.rmtree(site, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    called([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(root)], "a wheel of this checkout")
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    kind = ("--only-binary=:all:", "--implementation", "cp", "--python-version", version, *platforms)
    wheel = next(wheels.glob("rnnops-*.whl"))
    called([*pip, "install", *kind, "--target", str(site), str(wheel)], "wheels for aarch64")
    return [qemu, "-L", str(system), str(python)], {"PYTHONPATH": str(site)}


def emulator(machine: str) -> str:
    """QEMU's emulator of programs of a machine."""
    found = shutil.which(f"qemu-{machine}-static") or shutil.which(f"qemu-{machine}")
    if found is None:
        raise UnreachableError(f"there is no qemu-{machine}-static (apt-get install qemu-user-static)")
    return found


def found_python(system: Path) -> Path | None:
    """Python within an unpacked system."""
    return next((p for p in system.glob("usr/bin/python3.*") if re.fullmatch(r"python3\.\d+", p.name)), None)


def unpack_debian(state: Path, system: Path) -> None:
    """Debian's packages for arm64 by apt with lists and caches of its own, so that this system stays what it is."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise UnreachableError("there is no apt-get: packages of Debian cannot be had")
    for name in ("lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    own = {
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "APT::Sandbox::User": "root",
        "Dir::State": state, "Dir::State::lists": state / "lists", "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache", "Debug::NoLocking": "true",
    }  # fmt: skip
    apt = ["apt-get", "-qq", *(word for name, value in own.items() for word in ("-o", f"{name}={value}"))]
    called([*apt, "update"], "Debian's lists for arm64")
    wanted = ["--download-only", "--yes", "--no-install-recommends", "install", *DEBIAN]
    called([*apt, *wanted], "Debian's packages for arm64")
    for package in sorted((state / "cache/archives").glob("*.deb")):
        called(["dpkg-deb", "--extract", str(package), str(system)], package.name)


def called(command: Sequence[str], what: str) -> None:
    """Run a command. Raises UnreachableError with the last line that it said where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing was said"]
        raise UnreachableError(f"{what}: {said[-1]}")
