"""The processor that code is made for: levels, names of LLVM's, and names that are refused."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from rejection import rejects

import rnnops as ro
from rnnops.kernels.cpu import native, processor
from rnnops.kernels.cpu.processor import LEVELS, X86, TargetProcessor, features_of, host, named, width_of

pytestmark = pytest.mark.skipif(platform.machine().lower() not in X86, reason="levels are of x86")
WIDTH_OF = {"x86-64": 128, "x86-64-v2": 128, "x86-64-v3": 256, "x86-64-v4": 512, "haswell": 256, "nehalem": 128}
# What code for a low level is like beside the machine's: of other vectors, under other keys, of right numbers.
AT_LEVEL = """
import sys
import numpy as np
import rnnops as ro
from rnnops.kernels.cpu import micro_kernel, native, processor

net = ro.Net("n")
net.outputs(y=ro.LSTM(net, net.input("x"), None, None, 5, 19, scope="s")[0])
feeds = {**ro.init_params(net, 0, "float32"), "x": np.random.default_rng(0).normal(size=(4, 3, 5)).astype("float32")}
wanted, came = (ro.compile(net, device).vjp(feeds)[0]["y"] for device in ("reference", "cpu"))
assert np.abs(wanted - came).max() < 1e-6
print(processor.vector_width(), micro_kernel.most_tile_rows(processor.vector_width()), native._target()[1], sep="; ")
print(ro.devices()[1])
"""


def features(name: str) -> frozenset[str]:
    return features_of(name, llvm.get_host_cpu_features())


def test_levels_have_what_the_levels_below_have() -> None:
    found = [features(name) for name in LEVELS]
    assert all(low < high for low, high in pairwise(found))
    assert {"avx2", "fma"} <= found[2] - found[1]
    assert "avx512f" in found[3] - found[2]


@pytest.mark.parametrize("name", WIDTH_OF)
def test_width_of_named_processors(name: str) -> None:
    assert width_of(TargetProcessor("x86_64", name, features(name))) == WIDTH_OF[name]


@pytest.mark.parametrize("name", ["x86-64-v5", "avx2", "V3 ", 'a"b', "apple-m1"])
def test_names_that_llvm_does_not_know(name: str) -> None:
    rejects(ro.DeviceError, lambda: named(name), "RNNOPS_CPU", "x86-64-v3", repr(name))


def test_what_the_machine_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    less = {**llvm.get_host_cpu_features(), "avx2": False, "fma": False}
    monkeypatch.setattr(processor, "_own_features", lambda: less)
    rejects(
        ro.DeviceError, lambda: named("x86-64-v3"), "RNNOPS_CPU=x86-64-v3", "with avx2, fma", "leave RNNOPS_CPU out"
    )
    assert named("x86-64-v2").name == "x86-64-v2"


def test_keys_of_objects_follow_from_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for one in (processor._native(), named("x86-64"), named("x86-64-v2")):
        native._target.cache_clear()
        monkeypatch.setattr(native, "host", lambda one=one: one)
        keys.add(native.key_of("text", *native._target()))
    native._target.cache_clear()
    assert len(keys) == 3


def test_a_process_at_a_level(tmp_path: Path) -> None:
    environment = {**os.environ, "RNNOPS_CPU": "x86-64-v2", "RNNOPS_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", AT_LEVEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "128; 4; x86-64-v2\ncpu: " in done.stdout
    assert "vectors of 128 bits, code for x86-64-v2" in done.stdout


def test_this_process_has_the_processor_that_was_asked_for() -> None:
    name = os.environ.get("RNNOPS_CPU", "native")
    assert host().name == (llvm.get_host_cpu_name() if name == "native" else name)
