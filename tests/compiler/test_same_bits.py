"""A process that compiles and one that loads what another has compiled compute the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import hashlib
import numpy as np
import rnnops as ro

T, N, H = 20, 7, 48  # sums of a row are vector loops, whose order is LLVM's choice
net, rng = ro.Net("net"), np.random.default_rng(0)
y, *_ = ro.LayerNormLSTM(net, net.input("x"), None, None, H, H, scope="s")
net.outputs(y=y)
feeds = {"x": rng.normal(size=(T, N, H)).astype("f"), **ro.init_params(net, seed=1)}
outputs, pullback = ro.compile(net, threads=1).vjp(feeds)
found = {**outputs, **pullback({"y": rng.normal(size=outputs["y"].shape).astype("f")})}
print(hashlib.sha256(b"".join(found[name].tobytes() for name in sorted(found))).hexdigest())
"""


def test_compiled_and_loaded_code_give_the_same_bits(tmp_path: Path) -> None:
    environment = {**os.environ, "RNNOPS_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", CODE]
    digests = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert digests[0] == digests[1]
    assert len(digests[0]) > 60
