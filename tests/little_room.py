"""Work in forked processes that have little room (RLIMIT_AS), and how each process ends.

    python tests/little_room.py WORK,... ROOM,... warm,cold     # rooms in MiB; prints one line each

`warm` finds all objects in the cache folder, `cold` none. The parent imports rnnops and nothing else, so that each
child enters LLVM for the first time.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rnnops as ro

MIB = 1 << 20
PAGE = resource.getpagesize()
X = np.ones((20, 4, 8), "float32")
Work = Callable[[], Any]  # gives a number


def lstm() -> ro.Net:
    net = ro.Net("m")
    net.outputs(y=ro.LSTM(net, net.input("x"), None, None, 8, 16, scope="s")[0])
    return net


def feeds(net: ro.Net) -> dict[str, Any]:
    return {**ro.init_params(net, 0, "float32"), "x": X}


def first_call() -> Work:
    net = lstm()
    run, given = ro.compile(net, threads=2), feeds(net)
    return lambda: run(given)["y"].sum()


def compile_and_call() -> Work:
    net = lstm()
    given = feeds(net)
    return lambda: ro.compile(net, threads=2)(given)["y"].sum()


def vjp() -> Work:
    net = lstm()
    run, given = ro.compile(net, threads=2), feeds(net)

    def work() -> Any:
        out, pullback = run.vjp(given)
        return pullback({"y": np.ones_like(out["y"])})["x"].sum()

    return work


def many_threads() -> Work:
    net = lstm()
    run, given = ro.compile(net, threads=64), {**feeds(net), "x": np.ones((20, 64, 8), "float32")}
    return lambda: run(given)["y"].sum()


def bind() -> Work:
    net = lstm()
    run, params = ro.compile(net, threads=1), ro.init_params(net, 0, "float32")

    def work() -> Any:
        bound = run.bind(**params)
        return [bound(x=X)["y"].sum() for _ in range(3)][-1]

    return work


def export(source: str | None = None) -> Work:
    net = lstm()
    run, params, folder = ro.compile(net, threads=1), ro.init_params(net, 0, "float32"), tempfile.mkdtemp()

    def work() -> Any:
        files = run.bind(**params).export_native(folder, x=X.shape, source=source)
        sizes = [path.stat().st_size for path in (files.weights, files.object or files.source) if path]
        shutil.rmtree(folder)
        return sum(sizes)

    return work


def export_c99() -> Work:
    return export("c99")


def stream() -> Work:
    net = ro.Net("stream")
    x, h = net.inputs("x", "h")
    w = net.parameter("w", (16, 16))
    h_last = ro.tanh(x + h @ w)
    net.outputs(h_last=h_last, y=h_last * 2.0)
    run = ro.compile(net, threads=1).bind(**ro.init_params(net, 0, "float32"))

    def work() -> Any:
        opened = run.stream({"h_last": "h"}, rows=2, shapes={"h": ("N", 16)})
        return [opened(x=np.ones((2, 16), "float32"))["y"].sum() for _ in range(3)][-1]

    return work


def model() -> Work:
    from rnnops.model import RNN, Adam, Dense, Model, Placeholder, softmax_cross_entropy

    class Tagger(Model):
        def __init__(self) -> None:
            self.rnn, self.scores = RNN("lstm", 16), Dense(3)

        def forward(self, x: Any) -> Any:
            return self.scores(self.rnn(x)[0])

        def train_one_batch(self, x: Any, y: Any) -> Any:
            scores = self.forward(x)
            return scores, self.minimize(softmax_cross_entropy(scores, y))

    tagger, labels = Tagger(), np.zeros((20, 4), "int32")
    tagger.set_optimizer(Adam(0.01))
    tagger.compile([Placeholder(X.shape, "float32"), Placeholder((20, 4), "int32")], threads=2)
    return lambda: [tagger(X, labels)[1] for _ in range(2)][-1]


WORK = {
    one.__name__: one
    for one in (first_call, compile_and_call, vjp, many_threads, bind, export, export_c99, stream, model)
}


def ended(name: str, room: int | None, cache: str) -> str:
    """How work ends in a child with so many bytes of room; the words of its end, its signal, or its status."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _work(name, room, cache, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else text or f"status {status}"


def _work(name: str, room: int | None, cache: str, write: int) -> None:
    os.environ["RNNOPS_CACHE_DIR"] = cache
    text = "failed before the limit"
    try:
        work = WORK[name]()
        _ = ro.compile  # its modules: where Python has no room to import any, errors are Python's
        if room is not None:
            size = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
            resource.setrlimit(resource.RLIMIT_AS, (size + room, resource.RLIM_INFINITY))
        text = f"right {float(work())!r}"
    except Exception as error:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)  # from here on, the test's own work
        if not isinstance(error, ro.RnnopsError):
            traceback.print_exc()
        named = isinstance(error, ro.RnnopsError)
        text = f"{'named' if named else 'unnamed'} {type(error).__name__}: {error}"[:300]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        os.write(write, text.encode())
        os._exit(0)


def sweep(names: Sequence[str], rooms: Sequence[float], caches: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """A line for each end, and whether it is as good as it should be: the right number, or a named error of memory."""
    for name in names:
        warm = tempfile.mkdtemp()
        wanted = ended(name, None, warm)
        yield f"{name}: {wanted}", wanted.startswith("right")
        for cache in caches:
            for room in rooms:
                folder = warm if cache == "warm" else tempfile.mkdtemp()
                got = ended(name, int(room * MIB), folder)
                if cache == "cold":
                    shutil.rmtree(folder)
                yield f"{name}, {cache}, {room} MiB: {got}", got == wanted or got.startswith("named OutOfMemoryError")
        shutil.rmtree(warm)


def main(names: str, rooms: str, caches: str) -> int:
    bad = 0
    for line, good in sweep(names.split(",") if names else [*WORK], [*map(float, rooms.split(","))], caches.split(",")):
        bad += not good
        print("     " if good else "BAD: ", line, sep="", flush=True)
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
