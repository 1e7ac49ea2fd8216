"""Exported C99 for other processors: compiled, run under an emulator where there is one, and compared.

    python -m tools.cross_compile

A keyword model of one GRU (40 features, 64 units, 10 scores) is exported. Each compiler that is installed builds it,
with all warnings as errors. Debian's packages are gcc, clang, gcc-arm-none-eabi, gcc-aarch64-linux-gnu,
gcc-arm-linux-gnueabihf, qemu-user and nodejs; `pip install ziglang` is for WebAssembly. Missing ones are named.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import rnnops as ro

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wdouble-promotion", "-Werror"]
CORTEX = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
ZIG = [sys.executable, "-m", "ziglang"]
NODE = ["node", "--no-warnings", "wasi.mjs"]
TARGETS: dict[str, tuple[list[str], list[str], list[str]]] = {  # -> compiler, what counts bytes, what runs the program
    "x86-64, gcc": (["gcc"], ["size"], ["./program"]),
    "x86-64, clang": (["clang"], ["size"], ["./program"]),
    "x86-64, g++": (["g++", "-x", "c++"], ["size"], ["./program"]),
    "aarch64, gcc": (["aarch64-linux-gnu-gcc", "-static"], ["aarch64-linux-gnu-size"], ["qemu-aarch64", "program"]),
    "arm, gcc": (["arm-linux-gnueabihf-gcc", "-static"], ["arm-linux-gnueabihf-size"], ["qemu-arm", "program"]),
    "Cortex-M4, gcc": (["arm-none-eabi-gcc", *CORTEX], ["arm-none-eabi-size"], []),
    "WebAssembly, zig": ([*ZIG, "cc", "-target", "wasm32-wasi"], [], NODE),
}
MAIN = """\
#include <stdio.h>
#include <time.h>
#include "keyword.h"
#if defined __cplusplus
#define ALIGNED alignas(64)
#else
#define ALIGNED _Alignas(64)
#endif
#define FRAMES 20000
ALIGNED static unsigned char memory[keyword_MEMORY], weights[keyword_WEIGHTS];
int main(void) {
    FILE *file = fopen("keyword.weights", "rb");
    float frame[40], score[10];
    if (!file || fread(weights, 1, keyword_WEIGHTS, file) != keyword_WEIGHTS) return 2;
    if (keyword_init(memory, weights)) return 3;
    for (int t = 0; t < 8; t++) {
        for (int i = 0; i < 40; i++) frame[i] = 0.05F * (float)(i - t);
        if (keyword_run(memory, frame, score)) return 4;
        for (int i = 0; i < 10; i++) printf("%.9g ", (double)score[i]);
    }
    struct timespec from, to;
    timespec_get(&from, TIME_UTC);
    for (int t = 0; t < FRAMES; t++)
        if (keyword_run(memory, frame, score)) return 4;
    timespec_get(&to, TIME_UTC);
    double us = (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3;
    printf("%.9g", us / FRAMES);
    return 0;
}
"""
WASI = """\
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";
const wasi = new WASI({ version: "preview1", preopens: { ".": "." } });
const made = await WebAssembly.compile(await readFile("program"));
process.exit(wasi.start(await WebAssembly.instantiate(made, wasi.getImportObject())));
"""


def keyword_net() -> ro.Net:
    net = ro.Net("keyword")
    frame, h = net.input("frame", shape=(1, 1, 40)), net.input("h", shape=(1, 64))
    _, last = ro.GRU(net, frame, None, h, 40, 64, scope="gru")
    net.outputs(score=ro.softmax(last @ net.parameter("w", (64, 10)), axis=-1), h_last=ro.squeeze(last, [0]))
    return net


def run(folder: Path, command: Sequence[str]) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def there(command: Sequence[str]) -> bool:
    if command[:3] == ZIG:
        return subprocess.run([*ZIG, "version"], capture_output=True).returncode == 0
    return not command or shutil.which(command[0]) is not None or command[0].startswith("./")


def told(folder: Path, name: str, wanted: np.ndarray) -> str:
    """A row of the table. Raises CalledProcessError for a warning, and for a program that fails."""
    compiler, size, started = TARGETS[name]
    dialect = "-std=c++17" if "c++" in compiler else "-std=gnu11"
    flags = [dialect, "-O2", *WARNINGS]
    run(folder, [*compiler, *flags, "-c", "keyword.c", "-o", "keyword.o"])
    code = re.findall(r"\d+", run(folder, [*size, "keyword.o"]).splitlines()[1])[0] if size else "-"
    difference, time = "not run", "-"
    if started:
        run(folder, [*compiler, *flags, "main.c", "keyword.c", "-o", "program", "-lm"])
        *found, microseconds = map(float, run(folder, started).split())
        difference = f"{np.abs(np.array(found) - wanted).max():.0e}"
        time = "emulated" if started[0].startswith("qemu") else f"{microseconds:.1f}"
    return f"| {name} | {code} | {difference} | {time} |"


def main() -> None:
    net = keyword_net()
    bound = ro.compile(net, threads=1).bind(**ro.init_params(net, seed=0))
    stream = bound.stream({"h_last": "h"})
    frames = [0.05 * (np.arange(40, dtype=np.float32) - t) for t in range(8)]
    wanted = np.concatenate(
        [stream(frame=frame.reshape(1, 1, 40).astype(np.float32))["score"].ravel() for frame in frames]
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = bound.export_native(folder, states={"h_last": "h"}, source="c99")
        (folder / "main.c").write_text(MAIN)
        (folder / "wasi.mjs").write_text(WASI)
        told_of = re.search(r"MEMORY = (\d+), keyword_WEIGHTS = (\d+)", files.header.read_text())
        assert told_of is not None
        print(f"memory {told_of[1]} bytes, weights {told_of[2]} bytes")
        print("| processor, compiler | bytes of code | largest difference | us a frame |\n|---|---|---|---|")
        for target, (compiler, _, started) in TARGETS.items():
            print(
                told(folder, target, wanted) if there(compiler) and there(started) else f"| {target} | not here | | |"
            )


if __name__ == "__main__":
    main()
