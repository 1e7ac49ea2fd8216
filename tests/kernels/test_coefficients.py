"""The table of coefficients is what its script prints; needs mpmath, so run by hand (`pytest -m slow`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.slow


def test_script_prints_the_table() -> None:
    pytest.importorskip("mpmath")
    script = ROOT / "tools" / "derive_polynomials.py"
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "kernels" / "cpu" / "coefficients.py").read_text()
