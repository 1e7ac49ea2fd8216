"""A browser without a window, for tests of pages: what a page is after its scripts have run, and what it looks like."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)


def page_after_scripts(address: str) -> str:
    """The document as HTML, a while after it was loaded. Fails where a script of it did; skips without a browser."""
    ran = _run("--virtual-time-budget=10000", "--dump-dom", "--enable-logging=stderr", address)
    errors = [line for line in ran.stderr.splitlines() if "CONSOLE" in line and ("Uncaught" in line or "rror" in line)]
    assert not errors, errors
    return ran.stdout


def brightness(address: str, folder: Path, dark: bool) -> float:
    """The mean of a picture's pixels, from 0 to 1, where the user prefers a dark or a light page."""
    picture = folder / f"{'dark' if dark else 'light'}.png"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    _run(scheme, "--window-size=1200,900", f"--screenshot={picture}", address)
    plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib reads the picture")
    return float(np.mean(plt.imread(picture)[..., :3]))


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    if BROWSER is None:
        pytest.skip(f"no browser is installed: {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory() as profile:  # it wants a folder of its own, and there may be no home
        return _run_in(profile, *arguments)


def _run_in(profile: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    folder = f"--user-data-dir={profile}"
    command = [
        BROWSER,
        folder,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
