"""Plans and kernels of many nets as text, to show that a change of the library's form changes nothing else.

    python tools/same_plans.py write FOLDER     # one file a net: its plan, its memory, the keys of its kernels
    python tools/same_plans.py compare A B      # exits with 1 if the folders differ

The nets are the golden cells, one layer of each cell of `ro.cells.CELLS`, and the nets of the benchmark. A key is the
hash of a kernel's text and of the processor (`kernels/cpu/processor.py`), without the revision of the sources, which
changes with every word in them. Equal keys are equal kernels, so equal bits and speed. Write both folders on one
machine, with one Python and one `RNNOPS_CPU`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import rnnops as ro  # noqa: E402
from rnnops.kernels.cpu import processor  # noqa: E402

processor.REVISION = 0  # before any other module reads it

T, N, D, H = 20, 3, 5, 24
Case = tuple[ro.Net, Mapping[str, Any]]


def golden(name: str) -> Case:
    import golden_cases

    case = golden_cases.load(name)
    net = golden_cases.build(case, None)
    return net, golden_cases.feeds_of(case, net)


def layer(name: str) -> Case:
    net = ro.Net(name)
    output, _ = ro.cells.CELLS[name](D, H, name=name).apply_over_sequence(net, net.input("x"), None)
    net.outputs(y=output)
    return net, {**ro.init_params(net, 0), "x": np.zeros((T, N, D), "float32")}


def benchmark(name: str) -> Case:
    from bench import nets
    from bench.problems import Size

    made = nets.user_net(name)
    feeds = {key: np.zeros(shape, dtype_of(key)) for key, shape in made.shapes(Size(T, N, H)).items()}
    return made.build(name, ()), feeds


def dtype_of(name: str) -> str:
    return "int32" if name in ("seq_lengths", "t") else "float32"


def cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    """The name of each net, and a function that makes it and its feeds."""
    import golden_cases

    from bench import nets

    yield from ((f"golden-{name}", lambda name=name: golden(name)) for name in golden_cases.NAMES)
    yield from ((f"layer-{name}", lambda name=name: layer(name)) for name in ro.cells.CELLS)
    yield from ((f"bench-{name}", lambda name=name: benchmark(name)) for name in nets.NETS)


def said(net: ro.Net, feeds: Mapping[str, Any]) -> str:
    """The plans of a net without and with a backward pass, what they need of memory, and the keys of their kernels."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["RNNOPS_CACHE_DIR"] = cache
        run = ro.compile(net, threads=2)
        plans = [run.plan(feeds, backward=backward) for backward in (False, True)]
        run(feeds)
        outputs, pullback = run.vjp(feeds)
        pullback({name: np.zeros_like(array) for name, array in outputs.items() if array.dtype.kind == "f"})
        keys = sorted(path.name for path in Path(cache).rglob("*.o"))
    return "\n\n".join([*(f"{plan}\n\n{plan.memory()}" for plan in plans), "\n".join(keys)]) + "\n"


def write(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in cases():
        (folder / f"{name}.txt").write_text(said(*make()))
    print(f"wrote {len(list(folder.glob('*.txt')))} files")
    return 0


def compare(a: Path, b: Path) -> int:
    """Print which nets differ, and how many are equal."""
    texts = [{path.name: path.read_text() for path in folder.glob("*.txt")} for folder in (a, b)]
    names = sorted({*texts[0], *texts[1]})
    different = [name for name in names if texts[0].get(name) != texts[1].get(name)]
    print(*(f"{name} differs" for name in different), f"{len(names) - len(different)} of {len(names)} equal", sep="\n")
    return int(bool(different) or not names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write").add_argument("folder", type=Path)
    compared = commands.add_parser("compare")
    compared.add_argument("a", type=Path)
    compared.add_argument("b", type=Path)
    options = parser.parse_args()
    return write(options.folder) if options.command == "write" else compare(options.a, options.b)


if __name__ == "__main__":
    sys.exit(main())
