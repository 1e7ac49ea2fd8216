"""Plugins of pytest that are installed beside this library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PLUGIN = """
import warnings

def pytest_configure(config):
    warnings.warn("a plugin warns of itself, as pytest-benchmark does beside xdist")
"""


def test_a_plugin_may_warn_while_it_is_configured(tmp_path: Path) -> None:
    (tmp_path / "plugin_that_warns.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "plugin_that_warns", "-p", "no:cacheprovider"]
    command += ["--numprocesses", "0", str(HERE / "test_labels.py")]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_ADDOPTS": ""}
    ran = subprocess.run(command, cwd=HERE.parent, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-2000:]
    assert "passed" in ran.stdout
