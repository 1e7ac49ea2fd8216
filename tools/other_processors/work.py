"""What runs on another processor, started with the folder of tests, and with names if not all is wanted.

Golden values of Caffe2 are met, and of every cell a training step over rows that end, on two threads, agrees with the
reference interpreter there within the tolerances of `ro.testing`. The status is the number of what does not, at most 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import rnnops as ro

sys.path.insert(0, sys.argv[1])
import golden_cases

T, N, D, H = 4, 3, 3, 8
Trial = Callable[[], float]


def cell_agrees(name: str) -> float:
    """The largest error beside the reference, of outputs and gradients, as a part of what is allowed."""
    options = {"ntm": {"slots": 5, "width": 2}, **{key: {"heads": 2} for key in ("retention", "mlstm", "gla")}}
    layer = ro.model.RNN(name, H, trainable_states=True, **options.get(name, {})).named("rnn")
    net = ro.Net(name, sizes_for="float32")
    y, states = layer(net.input("x", shape=(T, N, D)), net.input("lengths", "int32", shape=(N,)))
    net.outputs(y=y, **{f"last_{i}": state for i, state in enumerate(states)})
    x = np.random.default_rng(0).uniform(-1, 1, (T, N, D)).astype("float32")
    feeds = {**ro.init_params(net, 0), "x": x, "lengths": np.array([4, 0, 2], "int32")}
    report = ro.testing.check_devices(net, feeds, {"cpu": lambda net: ro.compile(net, threads=2)})
    return max(row.error / row.limit for row in report.rows if row.limit)


def golden_agrees(name: str) -> float:
    """The largest error beside what Caffe2 computed, as a part of what is allowed."""
    case = golden_cases.load(name)
    net = golden_cases.build(case)
    out, pullback = ro.compile(net, threads=2).vjp(golden_cases.feeds_of(case, net))
    came = {**pullback(case.output_grads), **out}
    wanted = {**case.grads, **case.outputs}
    worst = max(off(came[blob], array) for blob, array in wanted.items())
    if worst > 1:
        raise AssertionError(f"off by {worst:.2g} of what is allowed")
    return worst


def off(came: Any, wanted: Any) -> float:
    """An error as a part of what golden values allow."""
    limit = 1e-5 * np.abs(wanted).max(initial=0.0) + 1e-6
    return float(np.abs(came - wanted).max(initial=0.0) / limit)


def trials(words: list[str]) -> Iterator[tuple[str, Trial]]:
    """All that is run, or what is named."""
    known = {f"golden {name}": (lambda name=name: golden_agrees(name)) for name in golden_cases.NAMES}
    known |= {name: (lambda name=name: cell_agrees(name)) for name in ro.cells.CELLS}
    missing = [word for word in words if word not in known and f"golden {word}" not in known]
    if missing:
        sys.exit(f"no such cell or golden file: {', '.join(missing)}")
    for name, trial in known.items():
        if not words or name in words or name.removeprefix("golden ") in words:
            yield name, trial


def main() -> int:
    """Run all; the status."""
    print(*ro.devices()[1:2], sep="\n", flush=True)
    wrong, count, begin = 0, 0, time.perf_counter()
    for name, trial in trials(sys.argv[2].split(",") if len(sys.argv) > 2 else []):
        count += 1
        try:
            print(f"{name}: right, {trial():.2f} of the error that is allowed", flush=True)
        except Exception as error:  # whatever it is, the others are tried, too
            wrong += 1
            print(f"{name}: WRONG: {type(error).__name__}: {error}", flush=True)
    print(f"{count - wrong} of {count} are right, in {time.perf_counter() - begin:.0f} s")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
