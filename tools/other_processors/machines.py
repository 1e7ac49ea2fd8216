"""Processors by emulation: how a Python is started on each, with rnnops as this checkout has it."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ARM64, QEMU = ("python3", "libgomp1", "libstdc++6"), ("qemu-user-static",)  # of Debian, and what they need
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")


class UnreachableError(Exception):
    """What a processor needs is not to be had; the text says what."""


def without_avx(folder: Path, _: Path) -> tuple[list[str], dict[str, str]]:
    """This Python on a processor of 2008: x86-64-v2, no AVX."""
    if platform.machine() != "x86_64":
        raise UnreachableError("this machine is not an x86-64")
    return [emulator("x86_64", folder), "-cpu", "Nehalem", sys.executable], {}


def aarch64(folder: Path, root: Path) -> tuple[list[str], dict[str, str]]:
    """Debian's Python for arm64, and wheels for it."""
    qemu, system, site = emulator("aarch64", folder), folder / "arm64", folder / "site"
    if not found_python(system):
        unpack_debian("arm64", ARM64, folder / "apt of arm64", system)
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


def emulator(machine: str, folder: Path) -> str:
    """QEMU's emulator of programs of a machine: the one that is installed, or Debian's, unpacked."""
    name, system = f"qemu-{machine}-static", folder / "qemu"
    unpacked = system / "usr/bin" / name
    if (found := shutil.which(name)) is not None:
        return found
    if not unpacked.exists():
        unpack_debian("", QEMU, folder / "apt of qemu", system)
    return str(unpacked)


def found_python(system: Path) -> Path | None:
    """Python within an unpacked system."""
    return next((p for p in system.glob("usr/bin/python3.*") if re.fullmatch(r"python3\.\d+", p.name)), None)


def unpack_debian(architecture: str, packages: Sequence[str], state: Path, system: Path) -> None:
    """Debian's packages by apt with lists and caches of its own, so that this system stays what it is.

    Args:
        architecture: as Debian has it; this machine's where it is empty.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise UnreachableError(f"there is no apt-get, so that Debian's {', '.join(packages)} cannot be had")
    for name in ("lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    own = {
        **({"APT::Architecture": architecture, "APT::Architectures": architecture} if architecture else {}),
        "APT::Sandbox::User": "root",
        "Dir::State": state, "Dir::State::lists": state / "lists", "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache", "Debug::NoLocking": "true",
    }  # fmt: skip
    apt = ["apt-get", "-qq", *(word for name, value in own.items() for word in ("-o", f"{name}={value}"))]
    called([*apt, "update"], "Debian's lists")
    wanted = ["--download-only", "--yes", "--no-install-recommends", "install", *packages]
    called([*apt, *wanted], f"Debian's {', '.join(packages)}")
    for package in sorted((state / "cache/archives").glob("*.deb")):
        called(["dpkg-deb", "--extract", str(package), str(system)], package.name)


def called(command: Sequence[str], what: str) -> None:
    """Run a command. Raises UnreachableError with the last line that it said where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing was said"]
        raise UnreachableError(f"{what}: {said[-1]}")
