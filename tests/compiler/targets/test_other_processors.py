"""Processors that this machine is not: code for aarch64 is made, and vectors of SSE2's and aarch64's width are right.

What is made for aarch64 is not run here; the same kernel IR in vectors of 128 bits is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options

T, N, D, H = 5, 3, 6, 10
PRESETS: dict[str, Callable[..., tuple[ro.Blob, ...]]] = {
    name: getattr(ro, name) for name in ("BasicRNN", "LSTM", "MILSTM", "LayerNormLSTM", "LayerNormMILSTM", "GRU")
}
# A process that takes itself for one on aarch64: all that is compiled is kept, and nothing of it is run.
ON_ARM = """
import platform, sys
platform.machine = lambda: "aarch64"
import llvmlite.binding as llvm
llvm.get_process_triple = lambda: "aarch64-unknown-linux-gnu"
llvm.get_host_cpu_name = lambda: "neoverse-n1"
llvm.get_host_cpu_features = lambda: llvm.FeatureMap({"neon": True})
llvm.initialize_native_target = llvm.initialize_all_targets
llvm.initialize_native_asmprinter = llvm.initialize_all_asmprinters
from rnnops.kernels.cpu import native, processor

class Engine:
    def get_function_address(self, name):
        return 1

made = []
native.engine_of = lambda code: made.append(code) or Engine()
import rnnops as ro

assert processor.vector_width() == 128
for name in sys.argv[1:]:
    net = ro.Net(name)
    x, lengths = net.input("x"), net.input("lengths", "int32")
    net.outputs(y=ro.softmax(getattr(ro, name)(net, x, lengths, None, 6, 10)[0], axis=-1))
    for options in ({}, {"precision": "bfloat16"}):
        ro.compile(net, **options).warm_up(x=(5, 3, 6), lengths=(3,))
    ro.compile(net).warm_up(x=(5, 3, 6), lengths=(3,), dtype="float64")
machines = {int.from_bytes(code[18:20], "little") for code in made}
print(len(made), machines)
"""


def test_code_for_aarch64() -> None:
    command = [sys.executable, "-c", ON_ARM, "LayerNormMILSTM"]
    environment = {**os.environ, "RNNOPS_CPU": "native"}  # levels of x86 are none of aarch64's
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    count, machines = done.stdout.split(" ", 1)
    assert int(count) > 6
    assert machines.strip() == "{183}", "ELF's number of aarch64"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_in_vectors_of_128_bits(name: str) -> None:
    net = ro.Net(name)
    x, lengths = net.input("x"), net.input("lengths", "int32")
    net.outputs(y=PRESETS[name](net, x, lengths, None, D, H)[0])
    feeds = {**ro.init_params(net, 0), "x": np.random.default_rng(0).normal(size=(T, N, D)).astype("float32")}
    feeds["lengths"] = np.array([5, 0, 3], "int32")
    narrow = {"128 bits": lambda net: ro.compile(net, tuning=Options(width=128))}
    ro.testing.check_devices(net, feeds, narrow)
